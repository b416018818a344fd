"""What the service has before requests are tried: forms and documents such as an attacker would lay down."""

from __future__ import annotations

from tests.encrypted_form import DEFINITION, UNMARKED
from tests.published import PERMISSIONS, definition
from tests.rigs.cost.kinds import XML
from tests.service import PUBLIC, Service

_CRUD = f"{PUBLIC}/crud/cost"
LARGE = 12
"""Documents of the form that has large values: each has as much as is indexed."""

SMALL = 300


def lay_down(service: Service) -> None:
    """Publish forms, and save documents of them, some with as much in an indexed control as there can be."""
    for form, body in (
        ("open", UNMARKED),
        ("sealed", DEFINITION),
        ("large", UNMARKED),
        ("small", UNMARKED),
        ("made", UNMARKED),
        ("guarded", definition(PERMISSIONS.replace("</permissions>", f"{_roles()}</permissions>"))),
    ):
        _ask(service, f"{_CRUD}/{form}/form/form.xhtml", body)
    for number in range(LARGE):
        text = ("a" * 1_000_000, "a b " * 250_000, "word " * 200_000, "é" * 1_000_000)[number % 4]
        _ask(service, f"{_CRUD}/large/data/d{number}/data.xml", _document(text, f"note {'a' * 500_000}"))
    for number in range(SMALL):
        _ask(service, f"{_CRUD}/small/data/d{number}/data.xml", _document(f"name {number} ab", "a note"))
        if number < SMALL // 3:
            _ask(service, f"{_CRUD}/guarded/data/d{number}/data.xml", _document("x", "y"))
    for form in ("large", "small", "guarded", "open"):
        _ask(service, f"{PUBLIC}/search/cost/{form}", b"<search/>", "POST")
    _ask(service, f"{_CRUD}/sealed/data/d/a.bin", b"x" * 1_000)


def _roles() -> str:
    role = '<permission operations="read"><user-role any-of="z{}"/></permission>'
    return "".join(role.format(number) for number in range(800))


def _document(name: str, rest: str) -> bytes:
    return f"<form><person><name>{name}</name><other>{rest}</other></person></form>".encode()


def _ask(service: Service, path: str, body: bytes, method: str = "PUT") -> None:
    answer = service.raw(method, path, XML, body)
    assert answer.status < 300, (path, answer.status, answer.cause)
