"""docs/http.md and docs/status-codes.md have every request, parameter, header and status, and no other.

docs/openapi.yaml is compared with the code by tests/fuzz/test_openapi.py; here the pages are compared with it, and the
headers with those that the code names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from persistence.errors import STATUS
from persistence.http.responses import RESPONSE_NAMES
from tests.docs.markdown import DOCS, ROOT, rows, spans
from tests.fuzz import interface
from tests.fuzz.test_openapi import asked_for
from tests.service import PROVIDER, PUBLIC

HTTP = DOCS / "http.md"
STATUSES = DOCS / "status-codes.md"
_PREFIXES = {
    "Path below the prefix and `/crud/`": (f"{PUBLIC}/crud/", f"{PROVIDER}/crud/"),
    "Path below the prefix": (PUBLIC, PROVIDER),
    "Path below the public prefix": (PUBLIC,),
    "Path without a prefix": ("",),
}
"""The tables of paths, each with the prefixes that its paths have."""

_OF_THE_TRANSPORT = {"Connection", "Date", "Server", "Transfer-Encoding"}
"""Headers that gunicorn writes, whatever the service answers."""

_ELSEWHERE = {
    "429": "the pages for administrators answer it, and not the interface",
    "414": "gunicorn answers it",
    "431": "gunicorn answers it",
    "405": "belongs to the methods that a path does not have",
}
"""Statuses that no operation has, each with the reason why it is described."""

Request = tuple[str, str]


def described_requests(text: str) -> set[Request]:
    """Return the methods and paths in the tables of a page; a parameter is ``{}``."""
    found = set()
    for heading, prefixes in _PREFIXES.items():
        for paths, methods, *_ in rows(text, heading):
            for path in spans(paths):
                template = re.sub(r"\$\w+", "{}", path.partition("?")[0])
                found |= {
                    (method, prefix + template) for prefix in prefixes for method in re.findall("[A-Z]+", methods)
                }
    return found


def requests() -> set[Request]:
    """Return the methods and paths of the interface."""
    operations = interface.read().operations
    return {(each.method, each.face + re.sub(r"{\w+}", "{}", each.path)) for each in operations}


def first_cells(text: str, heading: str) -> set[str]:
    """Return the words in code type in the first column of the tables with a heading."""
    return {span for cells in rows(text, heading) for span in spans(cells[0])}


def read_headers() -> set[str]:
    """Return the names of the request headers that the code looks at, those of the service with their prefix."""
    own = {name for each in interface.read().operations for where, name in each.parameters if where == "header"}
    known = {name.removeprefix("Svc-").lower(): name for name in own}
    return {known.get(name, name.title().replace("Md5", "MD5")) for name in asked_for()}


def sent_headers() -> Iterator[str]:
    """Yield the names of response headers: of the service, of the interface, and those that the code writes."""
    yield from (f"Svc-{name}" for name in RESPONSE_NAMES)
    yield from (name for each in interface.read().operations for names in each.headers.values() for name in names)
    for file in (ROOT / "persistence/http").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case (
                    ast.Tuple(elts=[ast.Constant(value=str(name)), _])
                    | ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Store())
                ) if re.fullmatch("[A-Z][A-Za-z]*(-[A-Z][A-Za-z]*)+|Allow|Vary", name) and name not in RESPONSE_NAMES:
                    yield name


def parameters() -> set[str]:
    """Return the parameters of queries."""
    return {name for each in interface.read().operations for where, name in each.parameters if where == "query"}


def statuses() -> set[str]:
    """Return the statuses of errors and of operations."""
    return {str(status) for _, status in STATUS} | {
        str(status) for each in interface.read().operations for status in each.headers
    }


def described_statuses(text: str) -> set[str]:
    """Return the statuses that a page describes."""
    return {status for cells in rows(text, "Status") for status in re.findall(r"\d{3}", cells[0])}


def test_every_request_is_described_and_the_reverse() -> None:
    assert described_requests(HTTP.read_text()) == requests()


def test_every_request_header_is_described_and_the_reverse() -> None:
    assert first_cells(HTTP.read_text(), "Request header") == read_headers()


def test_every_response_header_is_described_and_the_reverse() -> None:
    assert first_cells(HTTP.read_text(), "Response header") == set(sent_headers()) - _OF_THE_TRANSPORT


def test_every_parameter_of_queries_is_described_and_the_reverse() -> None:
    assert first_cells(HTTP.read_text(), "Query parameter") == parameters()


def test_every_status_is_described_and_the_reverse() -> None:
    assert described_statuses(STATUSES.read_text()) == statuses() | set(_ELSEWHERE)


def test_what_is_left_out_and_what_does_not_exist_are_found() -> None:
    page = HTTP.read_text()
    without = page.replace("| `/reindex/status` | GET |", "| `/reindex/state` | GET |")
    assert described_requests(without) ^ requests() == {
        ("GET", f"{prefix}/reindex/{name}") for prefix in (PUBLIC, PROVIDER) for name in ("state", "status")
    }
    fewer = page.replace("| GET HEAD PUT DELETE |", "| GET HEAD PUT |", 1)
    assert {method for method, _ in requests() - described_requests(fewer)} == {"DELETE"}
    assert "Svc-Decrypt" not in first_cells(page.replace("`Svc-Decrypt`", "`Svc-Decripped`"), "Request header")
    assert "Svc-Notice" not in first_cells(page.replace("`Svc-Notice`", "a notice"), "Response header")
    assert "as-of" not in first_cells(page.replace("| `as-of`", "| as of"), "Query parameter")
    assert "507" not in described_statuses(STATUSES.read_text().replace("| 507 |", "| 508 |"))


def test_headers_of_the_code_are_found() -> None:
    assert {"Retry-After", "Allow", "Vary", "X-Accel-Buffering"} <= set(sent_headers())
    assert {"Svc-Created-Existing", "Range", "Authorization", "Origin"} <= read_headers()


def test_the_reasons_for_other_statuses_are_needed() -> None:
    assert statuses().isdisjoint(_ELSEWHERE)
