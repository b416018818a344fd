"""The requests that are killed: the form each one meets, and what a client may find of it afterwards."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPResponse

from tests.service import Answer, Service


def _body(word: str) -> bytes:
    """A body of one length, so that nothing but the content itself tells one from the other."""
    return f"<d>{word:->400}</d>".encode()


FIRST, OLD, NEW, NEXT, DRAFT, SCAN, SIGNATURE = map(
    _body, ("first", "old", "new", "next", "draft", "scan", "signature")
)

WRITTEN = "new"
"""What a search finds only in what the requests write."""
AGAIN = "next"
"""What it finds only in what is written after the kill."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request; its path begins below the form, or in the root of the service.

    ``$`` in it, and in the body, stands for the name of the application, ``@`` for the instant of the first revision of
    the document.
    """

    method: str
    path: str
    body: bytes = b""
    version: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Resource:
    """What a client can read, with its content before and after the request; ``None`` where it finds nothing.

    ``version`` is sent with the reading; a definition without it is the latest one. Of the lease of a document
    (``is_lease``) a client is told by its refusals.
    """

    path: str
    before: bytes | None
    after: bytes | None
    version: str | None = None
    is_lease: bool = False


Moment = tuple[Resource, ...]
"""Resources that change at one moment."""

Chain = tuple[Moment, ...]
"""Moments that come one after the other."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to be killed: what was stored before it, what it changes, and what is written after the kill.

    Chains do not wait for each other, but where they begin ``in_order``. ``again`` holds at least one write of every
    resource that the request writes; a DELETE or POST in it completes what was killed. ``properties`` are those of the
    provider that are to be switched on.
    """

    name: str
    prepare: tuple[Step, ...]
    step: Step
    chains: tuple[Chain, ...]
    again: tuple[Step, ...]
    unchanged: tuple[Resource, ...] = ()
    properties: tuple[str, ...] = ()
    in_order: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def resources(self) -> Iterator[Resource]:
        """Everything that is looked at."""
        for chain in self.chains:
            for moment in chain:
                yield from moment
        yield from self.unchanged


def send(service: Service, form: str, step: Step) -> Answer:
    """Send a request, and wait until the worker is done with it, whatever it does after its answer.

    It goes out in one piece: headers and body apart would be one ``recvfrom`` at one time and two at another.
    """
    version = (("Svc-Form-Definition-Version", step.version),) if step.version else ()
    named = "".join(f"{name}: {value}\r\n" for name, value in (*version, *step.headers))
    application = form.partition("/")[0]
    path = step.path if step.path.startswith("/") else f"/crud/{form}/{step.path}"
    body = step.body.replace(b"$", application.encode())
    head = (
        f"{step.method} {path.replace('$', application)} HTTP/1.1\r\n"
        f"Host: localhost\r\nConnection: close\r\n{named}Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", service.port), service.timeout) as connection:
        connection.sendall(head.encode() + body)
        response = HTTPResponse(connection, method=step.method)
        response.begin()
        answer = Answer(response.status, response.headers, response.read().replace(application.encode(), b"$"))
        connection.recv(1)  # its end
        return answer


_DATA = "data/document/data.xml"
_SCAN = "data/document/scan.bin"
_SIGNATURE = "data/document/signature.bin"
_FORM = "form/form.xhtml"
_LOGO = "form/logo.bin"
_DRAFT_DATA, _DRAFT_SCAN, _DRAFT_SIGNATURE = (path.replace("data/", "draft/", 1) for path in (_DATA, _SCAN, _SIGNATURE))

# The tombstone is part of the history too.
_WITH_HISTORY = (Step("PUT", _DATA, FIRST), Step("DELETE", _DATA), Step("PUT", _DATA, OLD))
_WITH_DRAFT = (
    Step("PUT", _DRAFT_DATA, DRAFT),
    Step("PUT", _DRAFT_SCAN, SCAN),
    Step("PUT", _DRAFT_SIGNATURE, SIGNATURE),
)
_DRAFT_GOES: Moment = (
    Resource(_DRAFT_DATA, DRAFT, None),
    Resource(_DRAFT_SCAN, SCAN, None),
    Resource(_DRAFT_SIGNATURE, SIGNATURE, None),
)
_WRITE_DATA = Step("PUT", _DATA, NEXT)


def _stays(path: str, body: bytes, version: str | None = None) -> Resource:
    return Resource(path, body, body, version)


def _goes(document: str, body: bytes) -> Resource:
    return Resource(f"data/{document}/data.xml", body, None)


CREATE = Request(
    "PUT of new data",
    prepare=(),
    step=Step("PUT", _DATA, NEW),
    chains=(((Resource(_DATA, None, NEW),),),),
    again=(_WRITE_DATA,),
)
REPLACE = Request(
    "PUT over data with a history",
    prepare=(*_WITH_HISTORY, Step("PUT", _SCAN, SCAN)),
    step=Step("PUT", _DATA, NEW),
    chains=(((Resource(_DATA, OLD, NEW),),),),
    again=(_WRITE_DATA,),
    unchanged=(_stays(_SCAN, SCAN),),
)
PROMOTE = Request(
    "PUT over data with a draft and its attachments",
    prepare=(*_WITH_HISTORY, *_WITH_DRAFT),
    step=Step("PUT", _DATA, NEW),
    chains=(((Resource(_DATA, OLD, NEW),), _DRAFT_GOES),),
    again=(_WRITE_DATA,),
)
PUBLISH_FIRST = Request(
    "publish the first version",
    prepare=(),
    step=Step("PUT", _FORM, NEW),
    chains=(((Resource(_FORM, None, NEW), Resource(_FORM, None, NEW, "1")),),),
    again=(Step("PUT", _FORM, NEXT, "next"), Step("PUT", _FORM, NEXT, "1")),
)
PUBLISH_NEXT = Request(
    "publish with next, its attachment sent before",
    prepare=(Step("PUT", _LOGO, SCAN), Step("PUT", _FORM, OLD), Step("PUT", _LOGO, SIGNATURE, "next")),
    step=Step("PUT", _FORM, NEW, "next"),
    chains=(((Resource(_FORM, OLD, NEW), Resource(_FORM, None, NEW, "2")),),),
    again=(Step("PUT", _FORM, NEXT, "next"), Step("PUT", _FORM, NEXT, "2")),
    unchanged=(_stays(_FORM, OLD, "1"), _stays(_LOGO, SCAN, "1"), _stays(_LOGO, SIGNATURE, "2")),
)
ATTACH = Request(
    "PUT of a new attachment",
    prepare=_WITH_HISTORY,
    step=Step("PUT", _SCAN, NEW),
    chains=(((Resource(_SCAN, None, NEW),),),),
    again=(Step("PUT", _SCAN, NEXT), _WRITE_DATA),
    unchanged=(_stays(_DATA, OLD),),
)
ATTACH_OVER = Request(
    "PUT over an attachment",
    prepare=(*_WITH_HISTORY, Step("PUT", _SCAN, OLD)),
    step=Step("PUT", _SCAN, NEW),
    chains=(((Resource(_SCAN, OLD, NEW),),),),
    again=(Step("PUT", _SCAN, NEXT), _WRITE_DATA),
    unchanged=(_stays(_DATA, OLD),),
)
_NAMING = b"<d>/fr/service/persistence/crud/$/form/data/document/scan.bin</d>"
_REVERT = Step("POST", "/history/$/form/document/restore?last-modified-time=@")
_WITH_OLDER = (Step("PUT", _SCAN, SCAN), Step("PUT", _DATA, _NAMING))
REVERT = Request(
    "bringing back data and the attachment that it names",
    prepare=(*_WITH_OLDER, Step("PUT", _SCAN, SIGNATURE), Step("PUT", _DATA, OLD)),
    step=_REVERT,
    chains=(((Resource(_SCAN, SIGNATURE, SCAN),),), ((Resource(_DATA, OLD, _NAMING),),)),
    again=(_REVERT, _WRITE_DATA, Step("PUT", _SCAN, NEXT)),
    in_order=True,
)
REVERT_DELETED = Request(
    "bringing back deleted data and its attachment",
    prepare=(*_WITH_OLDER, Step("DELETE", _DATA)),
    step=_REVERT,
    chains=(((Resource(_SCAN, None, SCAN), Resource(_DATA, None, _NAMING)),),),
    again=(_REVERT, _WRITE_DATA, Step("PUT", _SCAN, NEXT)),
)
DELETE = Request(
    "DELETE of data with attachments",
    prepare=(*_WITH_HISTORY, Step("PUT", _SCAN, SCAN), Step("PUT", _SIGNATURE, SIGNATURE), *_WITH_DRAFT),
    step=Step("DELETE", _DATA),
    chains=(
        ((Resource(_DATA, OLD, None), Resource(_SCAN, SCAN, None), Resource(_SIGNATURE, SIGNATURE, None)), _DRAFT_GOES),
    ),
    again=(Step("DELETE", _DATA), _WRITE_DATA, Step("PUT", _SCAN, NEXT)),
)
DELETE_ATTACHMENT = Request(
    "DELETE of an attachment",
    prepare=(*_WITH_HISTORY, Step("PUT", _SCAN, OLD)),
    step=Step("DELETE", _SCAN),
    chains=(((Resource(_SCAN, OLD, None),),),),
    again=(Step("PUT", _SCAN, NEXT), _WRITE_DATA),
    unchanged=(_stays(_DATA, OLD),),
)
DELETE_DRAFT = Request(
    "DELETE of a draft with attachments",
    prepare=(*_WITH_HISTORY, *_WITH_DRAFT),
    step=Step("DELETE", _DRAFT_DATA),
    chains=((_DRAFT_GOES,),),
    again=(Step("PUT", _DRAFT_DATA, NEXT), Step("PUT", _DRAFT_SCAN, NEXT), _WRITE_DATA),
    unchanged=(_stays(_DATA, OLD),),
)
DELETE_DRAFT_ATTACHMENT = Request(
    "DELETE of a draft's attachment",
    prepare=(*_WITH_HISTORY, *_WITH_DRAFT),
    step=Step("DELETE", _DRAFT_SCAN),
    chains=(((Resource(_DRAFT_SCAN, SCAN, None),),),),
    again=(Step("PUT", _DRAFT_SCAN, NEXT),),
    unchanged=(_stays(_DATA, OLD), _stays(_DRAFT_DATA, DRAFT), _stays(_DRAFT_SIGNATURE, SIGNATURE)),
)
DELETE_ALL = Request(
    "DELETE of all data: three documents",
    prepare=(
        *(*_WITH_HISTORY, Step("PUT", _SCAN, SCAN), *_WITH_DRAFT),
        Step("PUT", "data/second/data.xml", FIRST),
        Step("PUT", "data/third/data.xml", OLD),
    ),
    step=Step("DELETE", "data/"),
    chains=(
        ((_goes("document", OLD), Resource(_SCAN, SCAN, None)), _DRAFT_GOES),
        ((_goes("second", FIRST),),),
        ((_goes("third", OLD),),),
    ),
    again=(
        Step("DELETE", "data/"),
        *(Step("PUT", f"data/{document}/data.xml", NEXT) for document in ("document", "second", "third")),
        Step("PUT", _SCAN, NEXT),
    ),
)

REQUESTS = (
    *(CREATE, REPLACE, PROMOTE),
    *(PUBLISH_FIRST, PUBLISH_NEXT),
    *(ATTACH, ATTACH_OVER),
    *(REVERT, REVERT_DELETED),
    *(DELETE, DELETE_ATTACHMENT, DELETE_DRAFT, DELETE_DRAFT_ATTACHMENT, DELETE_ALL),
)
