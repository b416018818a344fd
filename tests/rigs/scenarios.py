"""The requests that a rig disturbs: the form each one meets, and what a client may find of it afterwards.

Kills, failing calls and the model of power cuts take the same ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial

from tests.service import Answer, Service, lockinfo


def _body(word: str) -> bytes:
    """A body of one length, so that nothing but the content itself tells one from the other."""
    return f"<d>{word:->400}</d>".encode()


FIRST, OLD, NEW, NEXT, DRAFT, SCAN, SIGNATURE = map(
    _body, ("first", "old", "new", "next", "draft", "scan", "signature")
)

WRITTEN = "new"
"""What a search finds only in what the requests write."""
AGAIN = "next"
"""What it finds only in what is written afterwards."""

LARGE = b"large" * (1 << 18)


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
class Scenario:
    """A request that is disturbed: what was stored before it, what it changes, and what is written afterwards.

    Chains do not wait for each other, but where they begin ``in_order``. ``again`` holds at least one write of every
    resource that the request writes; a DELETE or POST in it completes what was stopped. ``properties`` are those of the
    provider that are to be switched on. All indexes are removed before the request where it is ``unindexed``.
    ``repeats`` says that a refused request leaves what it found, so that the next one makes the same calls.
    """

    name: str
    prepare: tuple[Step, ...]
    step: Step
    chains: tuple[Chain, ...]
    again: tuple[Step, ...]
    unchanged: tuple[Resource, ...] = ()
    properties: tuple[str, ...] = ()
    in_order: bool = False
    unindexed: bool = False
    repeats: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def resources(self) -> tuple[Resource, ...]:
        return (*(one for chain in self.chains for moment in chain for one in moment), *self.unchanged)


def send(service: Service, form: str, step: Step) -> Answer:
    """Send a request; the application's name in its answer becomes ``$`` again."""
    version = {"Svc-Form-Definition-Version": step.version} if step.version else {}
    application = form.partition("/")[0]
    path = step.path if step.path.startswith("/") else f"/crud/{form}/{step.path}"
    body = step.body.replace(b"$", application.encode())
    answer = service.whole(step.method, path.replace("$", application), {**version, **dict(step.headers)}, body)
    return replace(answer, body=answer.body.replace(application.encode(), b"$"))


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


_FIRST_DATA = (((Resource(_DATA, None, NEW),),),)
_OVER_DATA = (((Resource(_DATA, OLD, NEW),),),)
_PUT = Step("PUT", _DATA, NEW)

CREATE = Scenario("PUT of new data", (), _PUT, _FIRST_DATA, (_WRITE_DATA,), repeats=False)
BESIDE = Scenario(
    "PUT of new data beside another document",
    prepare=(Step("PUT", "data/second/data.xml", OLD),),
    step=_PUT,
    chains=_FIRST_DATA,
    again=(_WRITE_DATA,),
    unchanged=(_stays("data/second/data.xml", OLD),),
)
FIRST_REPLACE = Scenario(
    "PUT over data for the first time", (Step("PUT", _DATA, OLD),), _PUT, _OVER_DATA, (_WRITE_DATA,), repeats=False
)
UNINDEXED = Scenario(
    "PUT over data without an index",
    (Step("PUT", _DATA, OLD),),
    _PUT,
    _OVER_DATA,
    (_WRITE_DATA,),
    unindexed=True,
    repeats=False,
)
REPLACE = Scenario(
    "PUT over data with a history",
    prepare=(*_WITH_HISTORY, Step("PUT", _SCAN, SCAN)),
    step=_PUT,
    chains=_OVER_DATA,
    again=(_WRITE_DATA,),
    unchanged=(_stays(_SCAN, SCAN),),
)
PROMOTE = Scenario(
    "PUT over data with a draft and its attachments",
    prepare=(*_WITH_HISTORY, *_WITH_DRAFT),
    step=_PUT,
    chains=(((Resource(_DATA, OLD, NEW),), _DRAFT_GOES),),
    again=(_WRITE_DATA,),
)
PUBLISH_FIRST = Scenario(
    "publish the first version",
    prepare=(),
    step=Step("PUT", _FORM, NEW),
    chains=(((Resource(_FORM, None, NEW), Resource(_FORM, None, NEW, "1")),),),
    again=(Step("PUT", _FORM, NEXT, "next"), Step("PUT", _FORM, NEXT, "1")),
)
PUBLISH_SECOND = Scenario(
    "publish with next",
    prepare=(Step("PUT", _FORM, OLD),),
    step=Step("PUT", _FORM, NEW, "next"),
    chains=(((Resource(_FORM, OLD, NEW), Resource(_FORM, None, NEW, "2")),),),
    again=(Step("PUT", _FORM, NEXT), Step("PUT", _FORM, NEXT, "next")),
    unchanged=(_stays(_FORM, OLD, "1"),),
)
PUBLISH_NEXT = Scenario(
    "publish with next, its attachment sent before",
    prepare=(Step("PUT", _LOGO, SCAN), Step("PUT", _FORM, OLD), Step("PUT", _LOGO, SIGNATURE, "next")),
    step=Step("PUT", _FORM, NEW, "next"),
    chains=(((Resource(_FORM, OLD, NEW), Resource(_FORM, None, NEW, "2")),),),
    again=(Step("PUT", _FORM, NEXT, "next"), Step("PUT", _FORM, NEXT, "2")),
    unchanged=(_stays(_FORM, OLD, "1"), _stays(_LOGO, SCAN, "1"), _stays(_LOGO, SIGNATURE, "2")),
)
ATTACH = Scenario(
    "PUT of a new attachment",
    prepare=_WITH_HISTORY,
    step=Step("PUT", _SCAN, NEW),
    chains=(((Resource(_SCAN, None, NEW),),),),
    again=(Step("PUT", _SCAN, NEXT), _WRITE_DATA),
    unchanged=(_stays(_DATA, OLD),),
)
ATTACH_LARGE = Scenario(
    "PUT of a large new attachment",
    prepare=(Step("PUT", _DATA, OLD),),
    step=Step("PUT", _SCAN, LARGE),
    chains=(((Resource(_SCAN, None, LARGE),),),),
    again=(Step("PUT", _SCAN, NEXT),),
    unchanged=(_stays(_DATA, OLD),),
    repeats=False,  # it would, but it is a lot to write
)
ATTACH_OVER = Scenario(
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
REVERT = Scenario(
    "bringing back data and the attachment that it names",
    prepare=(*_WITH_OLDER, Step("PUT", _SCAN, SIGNATURE), Step("PUT", _DATA, OLD)),
    step=_REVERT,
    chains=(((Resource(_SCAN, SIGNATURE, SCAN),),), ((Resource(_DATA, OLD, _NAMING),),)),
    again=(_REVERT, _WRITE_DATA, Step("PUT", _SCAN, NEXT)),
    in_order=True,
)
REVERT_DELETED = Scenario(
    "bringing back deleted data and its attachment",
    prepare=(*_WITH_OLDER, Step("DELETE", _DATA)),
    step=_REVERT,
    chains=(((Resource(_SCAN, None, SCAN), Resource(_DATA, None, _NAMING)),),),
    again=(_REVERT, _WRITE_DATA, Step("PUT", _SCAN, NEXT)),
)
DELETE_DATA = Scenario(
    "DELETE of data",
    prepare=(Step("PUT", _DATA, OLD),),
    step=Step("DELETE", _DATA),
    chains=(((Resource(_DATA, OLD, None),),),),
    again=(_WRITE_DATA,),
)
DELETE = Scenario(
    "DELETE of data with attachments",
    prepare=(*_WITH_HISTORY, Step("PUT", _SCAN, SCAN), Step("PUT", _SIGNATURE, SIGNATURE), *_WITH_DRAFT),
    step=Step("DELETE", _DATA),
    chains=(
        ((Resource(_DATA, OLD, None), Resource(_SCAN, SCAN, None), Resource(_SIGNATURE, SIGNATURE, None)), _DRAFT_GOES),
    ),
    again=(Step("DELETE", _DATA), _WRITE_DATA, Step("PUT", _SCAN, NEXT)),
)
DELETE_ATTACHMENT = Scenario(
    "DELETE of an attachment",
    prepare=(*_WITH_HISTORY, Step("PUT", _SCAN, OLD)),
    step=Step("DELETE", _SCAN),
    chains=(((Resource(_SCAN, OLD, None),),),),
    again=(Step("PUT", _SCAN, NEXT), _WRITE_DATA),
    unchanged=(_stays(_DATA, OLD),),
)
DELETE_DRAFT = Scenario(
    "DELETE of a draft with attachments",
    prepare=(*_WITH_HISTORY, *_WITH_DRAFT),
    step=Step("DELETE", _DRAFT_DATA),
    chains=((_DRAFT_GOES,),),
    again=(Step("PUT", _DRAFT_DATA, NEXT), Step("PUT", _DRAFT_SCAN, NEXT), _WRITE_DATA),
    unchanged=(_stays(_DATA, OLD),),
)
DELETE_DRAFT_ATTACHMENT = Scenario(
    "DELETE of a draft's attachment",
    prepare=(*_WITH_HISTORY, *_WITH_DRAFT),
    step=Step("DELETE", _DRAFT_SCAN),
    chains=(((Resource(_DRAFT_SCAN, SCAN, None),),),),
    again=(Step("PUT", _DRAFT_SCAN, NEXT),),
    unchanged=(_stays(_DATA, OLD), _stays(_DRAFT_DATA, DRAFT), _stays(_DRAFT_SIGNATURE, SIGNATURE)),
)
DELETE_ALL = Scenario(
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

TO_KILL = (
    *(CREATE, REPLACE, PROMOTE),
    *(PUBLISH_FIRST, PUBLISH_NEXT),
    *(ATTACH, ATTACH_OVER),
    *(REVERT, REVERT_DELETED),
    *(DELETE, DELETE_ATTACHMENT, DELETE_DRAFT, DELETE_DRAFT_ATTACHMENT, DELETE_ALL),
)

LEASING = ("lease", "enforce-lease")
"""The properties that the requests about leases need."""

_SHORT, _LONG = 2000, 4000
_LEASED = "data/$/data.xml"  # a lease is of the document's id alone, so each form has another document
_OWNER = re.compile(rb"username>(\w+)<")
_HOLDER, _OTHER, _PROBE = "lea", "bob", "eve"


def _lock(seconds: int, user: str = _HOLDER) -> Step:
    return Step("LOCK", _LEASED, lockinfo(user, None), headers=(("Timeout", f"Second-{seconds}"),))


def _unlock(user: str = _HOLDER, path: str = _LEASED) -> Step:
    return Step("UNLOCK", path, lockinfo(user, None))


def _put_leased(body: bytes, user: str = "") -> Step:
    return Step("PUT", _LEASED, body, headers=(("Svc-Username", user),) if user else ())


def _lease(before: bytes | None, after: bytes | None) -> Resource:
    return Resource(_LEASED, before, after, is_lease=True)


def lease_probe(path: str) -> Step:
    """An UNLOCK by somebody who holds nothing: it changes nothing, and is refused with who does."""
    return _unlock(_PROBE, path)


def others_write(path: str) -> Step:
    return Step("PUT", path, NEXT, headers=(("Svc-Username", _PROBE),))


def lease_told(refusal: Answer) -> bytes:
    """Who holds a lease by its refusal, and how long: which of the two lengths is a matter of what was acknowledged."""
    owner = _OWNER.search(refusal.body)
    left = int((refusal["Timeout"] or "").removeprefix("Second-"))
    length = _LONG if left > _SHORT else _SHORT
    return _held(owner[1].decode() if owner else "?", length)


def lease_after(step: Step) -> bytes | None:
    if step.method == "UNLOCK":
        return None
    owner = _OWNER.search(step.body)
    return _held(owner[1].decode() if owner else "?", int(dict(step.headers)["Timeout"].removeprefix("Second-")))


def _held(user: str, seconds: int) -> bytes:
    return f"{user} for {seconds} s".encode()


_IS_SHORT, _IS_LONG = _held(_HOLDER, _SHORT), _held(_HOLDER, _LONG)
_AFTER = (_put_leased(NEXT, _HOLDER), _unlock(), _put_leased(NEXT))
_STAYS = Resource(_LEASED, OLD, OLD)

_leased = partial(Scenario, unchanged=(_STAYS,), properties=LEASING)
LOCK_FIRST = _leased(
    "LOCK, the first of its directory",
    prepare=(_put_leased(OLD),),
    step=_lock(_LONG),
    chains=(((_lease(None, _IS_LONG),),),),
    again=(_lock(_SHORT), *_AFTER),
)
LOCK_AGAIN = _leased(
    "LOCK after an UNLOCK",
    prepare=(_put_leased(OLD), _lock(_SHORT, _OTHER), _unlock(_OTHER)),
    step=_lock(_LONG),
    chains=(((_lease(None, _IS_LONG),),),),
    again=(_lock(_SHORT), *_AFTER),
)
_HELD = (_put_leased(OLD), _lock(_SHORT))
RENEW = _leased(
    "LOCK by the holder", _HELD, _lock(_LONG), (((_lease(_IS_SHORT, _IS_LONG),),),), again=(_lock(_LONG), *_AFTER)
)
UNLOCK = _leased(
    "UNLOCK",
    _HELD,
    step=_unlock(),
    chains=(((_lease(_IS_SHORT, None),),),),
    again=(_unlock(), _lock(_LONG, _OTHER), _unlock(_OTHER), _put_leased(NEXT)),
)
PUT_LEASED = _leased(
    "PUT by the holder of a lease",
    _HELD,
    step=_put_leased(NEW, _HOLDER),
    chains=(((Resource(_LEASED, OLD, NEW),),),),
    again=(_lock(_LONG), *_AFTER),
    unchanged=(_lease(_IS_SHORT, _IS_SHORT),),
)

LEASES = (LOCK_FIRST, LOCK_AGAIN, RENEW, UNLOCK, PUT_LEASED)
