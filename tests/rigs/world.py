"""The forms, documents and contents that clients work on, and how answers about encrypted ones are compared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.message import Message
from http.client import HTTPMessage

from persistence.model.addresses import DATA_XML
from tests import encrypted_form, orders
from tests.rigs.ledger import FORM, Resource
from tests.service import PUBLIC, Answer, Service

SEALED = "hr/sealed"
"""The form that marks controls: its documents are encrypted on disk, and plain in answers."""

XML, XHTML, BINARY = "application/xml", "application/xhtml+xml", "image/png"
_ADDED = re.compile(rb' xmlns:fr="http://orbeon\.org/oxf/xml/form-runner"| fr:[a-z-]+-encrypted="true"')

SHARED = {FORM: orders.definition(), SEALED: encrypted_form.DEFINITION}
"""The definitions of the forms that all clients save data to."""


def data(form: str, document: str, collection: str = "data") -> Resource:
    return Resource(f"{form}/{collection}/{document}/{DATA_XML}")


def is_sealed(resource: Resource) -> bool:
    return resource.path.startswith(f"{SEALED}/") and not resource.is_published


def content(resource: Resource, token: str, word: str, filler: str) -> bytes:
    """Data with a text that no other content has, one that all of a client's have, and some length."""
    if is_sealed(resource):
        return encrypted_form.data().replace(encrypted_form.OPEN.encode(), f"{token} {word} {filler}".encode())
    values = f"<name>{token}</name><email>{token}@example.org</email><notes>{word} {filler}</notes>"
    return f"<form><customer>{values}</customer></form>".encode()


def url(path: str) -> str:
    return f"{PUBLIC}/crud/{path}"


def own_headers(resource: Resource) -> dict[str, object]:
    """Headers of a request to a resource: the version of a definition, and decryption of an attachment."""
    own: dict[str, object] = {} if resource.version is None else {"Form_Definition_Version": resource.version}
    return own | ({"Decrypt": "true"} if is_sealed(resource) and resource != resource.main else {})


def plain(resource: Resource, answer: Answer) -> Answer:
    """An answer as it would be without encryption: that adds a declaration to each value that was encrypted."""
    if not is_sealed(resource) or answer.status != 200 or resource != resource.main:
        return answer
    body, headers = _ADDED.sub(b"", answer.body), HTTPMessage()
    for name, value in Message.items(answer.headers):
        is_whole = name == "Content-Length" and answer.body and value == str(len(answer.body))
        headers[name] = str(len(body)) if is_whole else value
    return Answer(answer.status, headers, body)


class Plain(Service):
    """A service whose encrypted contents are asked for, and compared, plain."""

    def __init__(self, service: Service) -> None:
        super().__init__(service.port, service.data, service.log, service.process)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, **own: object
    ) -> Answer:
        resource = Resource(path.partition("?")[0])
        more = own_headers(resource) if method == "GET" and not resource.is_published else {}
        return plain(resource, super().ask(method, path, body, headers, **{**more, **own}))
