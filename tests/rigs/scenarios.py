"""The requests that a rig disturbs: the form each one meets, and what a client may find of it afterwards.

Kills, failing calls and the model of power cuts take the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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


def send(service: Service, form: str, step: Step) -> Answer:
    """Send a request; the application's name in its answer becomes ``$`` again."""
    version = {"Svc-Form-Definition-Version": step.version} if step.version else {}
    application = form.partition("/")[0]
    path = step.path if step.path.startswith("/") else f"/crud/{form}/{step.path}"
    body = step.body.replace(b"$", application.encode())
    answer = service.whole(step.method, path.replace("$", application), {**version, **dict(step.headers)}, body)
    return replace(answer, body=answer.body.replace(application.encode(), b"$"))


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
    unchanged: tuple[Resource, ...]
    properties: tuple[str, ...] = ()
    in_order: bool = False
    unindexed: bool = False
    repeats: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def resources(self) -> tuple[Resource, ...]:
        return (*(one for chain in self.chains for moment in chain for one in moment), *self.unchanged)


class Stored:
    """A plain model of a form: what is there, and what each request changes, in chains of moments.

    Everything that was ``found`` after the requests that made it is as it was found.
    """

    def __init__(self, made_by: Iterable[Step], found: Mapping[Resource, bytes | None] | None = None) -> None:
        self._files: dict[tuple[str, str | None], bytes] = {}
        """By path, and of files of definitions by version."""
        self._first: dict[tuple[str, str | None], bytes] = {}
        """What was there when the document was first saved, which a revert brings back."""
        self._hidden: dict[str, bytes] = {}
        """Attachments of documents that are deleted: they come back when those are saved again."""
        self._lease: bytes | None = None
        for step in made_by:
            self.do(step)
        for resource, content in (found or {}).items():
            if resource.path.endswith("/data.xml") and content is None and not resource.is_lease:
                self._remove(resource.path)
            elif resource.is_lease:
                self._lease = content
            elif resource.version is not None or resource.path != _FORM:  # else it is one of those
                self._changed(resource.path, content, resource.version)

    def do(self, step: Step) -> tuple[Chain, ...]:
        method, path = step.method, step.path
        if method in {"LOCK", "UNLOCK"}:
            before, self._lease = self._lease, lease_after(step)
            return (((Resource(path, before, self._lease, is_lease=True),),),)
        if method == "POST":
            return self._revert()
        if path.startswith("form/"):
            return self._publish(path, step.body, step.version)
        if method == "DELETE" and path == "data/":
            mains = [path for path, _ in self._files if path.startswith("data/") and path.endswith("/data.xml")]
            return tuple(self._remove(main) for main in mains)
        if method == "DELETE":
            return (self._remove(path),)
        saved: Moment = (self._changed(path, step.body),)
        if path.endswith("/data.xml"):
            hidden = [each for each in self._hidden if each.startswith(path.removesuffix("data.xml"))]
            saved += tuple(self._changed(each, self._hidden[each]) for each in hidden)
        if path == _DATA and not self._first:
            self._first = {key: body for key, body in self._files.items() if key[0].startswith("data/")}
        return (((saved, *self._without_draft(path))),)

    def unchanged(self, chains: tuple[Chain, ...]) -> tuple[Resource, ...]:
        """Everything else that is there."""
        changed = {(one.path, one.version, one.is_lease) for chain in chains for moment in chain for one in moment}
        every = [Resource(path, body, body, version) for (path, version), body in self._files.items()]
        if self._lease is not None:
            every.append(Resource(_LEASED, self._lease, self._lease, is_lease=True))
        return tuple(one for one in every if (one.path, one.version, one.is_lease) not in changed)

    def _changed(self, path: str, after: bytes | None, version: str | None = None) -> Resource:
        before = self._files.pop((path, version), None)
        if after is not None:
            self._files[path, version] = after
            self._hidden.pop(path, None)
        return Resource(path, before, after, version)

    def _remove(self, path: str) -> Chain:
        """A document goes with its attachments, its draft after it; an attachment goes alone."""
        directory, _, name = path.rpartition("/")
        every = [other for other, _ in self._files if other.startswith(f"{directory}/")]
        gone = [path, *(other for other in every if other != path)] if name == "data.xml" else [path]
        moment = tuple(self._changed(each, None) for each in gone)
        if path.startswith("data/"):
            self._hidden |= {each.path: each.before for each in moment[1:] if each.before is not None}
        return (moment, *self._without_draft(path))

    def _without_draft(self, path: str) -> Chain:
        draft = path.replace("data/", "draft/", 1)
        is_main = path.startswith("data/") and path.endswith("/data.xml")
        return self._remove(draft) if is_main and (draft, None) in self._files else ()

    def _publish(self, path: str, body: bytes, version: str | None) -> tuple[Chain, ...]:
        latest = max((int(each or 0) for name, each in self._files if name == _FORM), default=0)
        number = str(latest + 1 if version == "next" else version or latest or 1)
        shown = [Resource(_FORM, self._files.get((_FORM, str(latest))), body)]
        written = self._changed(path, body, number)
        return (((*(shown if path == _FORM and int(number) >= latest else []), written),),)

    def _revert(self) -> tuple[Chain, ...]:
        """Attachments come first, one by one; a document that was deleted comes back whole."""
        is_whole = (_DATA, None) not in self._files
        every = sorted(self._first.items(), key=lambda pair: pair[0][0] == _DATA)
        moments = [(self._changed(path, body),) for (path, _), body in every]
        return ((sum(moments, ()),),) if is_whole else tuple((moment,) for moment in moments)


def _scenario(
    name: str,
    prepare: tuple[Step, ...],
    step: Step,
    *,
    again: tuple[Step, ...] = (),
    is_repeated: bool = False,
    **more: Any,
) -> Scenario:
    """Let the model say what the request changes, and what is to be written ``again``, at first perhaps the same."""
    stored = Stored(prepare)
    chains = stored.do(step)
    changed = [one.path for chain in chains for one in chain[0]]
    written = sorted(dict.fromkeys(changed), key=lambda path: not path.endswith("/data.xml"))
    if not again and step.path.startswith("form/"):
        again = (Step("PUT", _FORM, NEXT, "next"), Step("PUT", _FORM, NEXT, chains[0][0][-1].version))
    elif not again:
        more_data = () if step.path.startswith("form/") or _DATA in changed else (_DATA,)
        again = tuple(Step("PUT", path, NEXT) for path in (*written, *more_data))
    return Scenario(
        name, prepare, step, chains, (step, *again) if is_repeated else again, stored.unchanged(chains), **more
    )


_DATA = "data/document/data.xml"
_SCAN = "data/document/scan.bin"
_SIGNATURE = "data/document/signature.bin"
_FORM = "form/form.xhtml"
_LOGO = "form/logo.bin"
_DRAFT_DATA, _DRAFT_SCAN, _DRAFT_SIGNATURE = (path.replace("data/", "draft/", 1) for path in (_DATA, _SCAN, _SIGNATURE))


def _put(path: str, body: bytes, version: str | None = None) -> Step:
    return Step("PUT", path, body, version)


_PUT = _put(_DATA, NEW)
_SAVED = (_put(_DATA, OLD),)
# The tombstone is part of the history too.
_HISTORY = (_put(_DATA, FIRST), Step("DELETE", _DATA), *_SAVED)
_DRAFTED = (_put(_DRAFT_DATA, DRAFT), _put(_DRAFT_SCAN, SCAN), _put(_DRAFT_SIGNATURE, SIGNATURE))
_NAMING = b"<d>/fr/service/persistence/crud/$/form/data/document/scan.bin</d>"
_REVERT = Step("POST", "/history/$/form/document/restore?last-modified-time=@")
_WITH_OLDER = (_put(_SCAN, SCAN), _put(_DATA, _NAMING))

CREATE = _scenario("PUT of new data", (), _PUT, repeats=False)
BESIDE = _scenario("PUT of new data beside another document", (_put("data/second/data.xml", OLD),), _PUT)
FIRST_REPLACE = _scenario("PUT over data for the first time", _SAVED, _PUT, repeats=False)
UNINDEXED = _scenario("PUT over data without an index", _SAVED, _PUT, unindexed=True, repeats=False)
REPLACE = _scenario("PUT over data with a history", (*_HISTORY, _put(_SCAN, SCAN)), _PUT)
PROMOTE = _scenario("PUT over data with a draft and its attachments", (*_HISTORY, *_DRAFTED), _PUT)
PUBLISH_FIRST = _scenario("publish the first version", (), _put(_FORM, NEW))
PUBLISH_SECOND = _scenario(
    "publish with next",
    (_put(_FORM, OLD),),
    _put(_FORM, NEW, "next"),
    again=(_put(_FORM, NEXT), _put(_FORM, NEXT, "next")),
)
PUBLISH_NEXT = _scenario(
    "publish with next, its attachment sent before",
    (_put(_LOGO, SCAN), _put(_FORM, OLD), _put(_LOGO, SIGNATURE, "next")),
    _put(_FORM, NEW, "next"),
)
ATTACH = _scenario("PUT of a new attachment", _HISTORY, _put(_SCAN, NEW))
ATTACH_LARGE = _scenario("PUT of a large new attachment", _SAVED, _put(_SCAN, LARGE), repeats=False)  # a lot to write
ATTACH_OVER = _scenario("PUT over an attachment", (*_HISTORY, _put(_SCAN, OLD)), _put(_SCAN, NEW))
REVERT = _scenario(
    "bringing back data and the attachment that it names",
    (*_WITH_OLDER, _put(_SCAN, SIGNATURE), *_SAVED),
    _REVERT,
    is_repeated=True,
    in_order=True,
)
REVERT_DELETED = _scenario(
    "bringing back deleted data and its attachment", (*_WITH_OLDER, Step("DELETE", _DATA)), _REVERT, is_repeated=True
)
DELETE_DATA = _scenario("DELETE of data", _SAVED, Step("DELETE", _DATA))
DELETE = _scenario(
    "DELETE of data with attachments",
    (*_HISTORY, _put(_SCAN, SCAN), _put(_SIGNATURE, SIGNATURE), *_DRAFTED),
    Step("DELETE", _DATA),
    is_repeated=True,
)
DELETE_ATTACHMENT = _scenario("DELETE of an attachment", (*_HISTORY, _put(_SCAN, OLD)), Step("DELETE", _SCAN))
DELETE_DRAFT = _scenario("DELETE of a draft with attachments", (*_HISTORY, *_DRAFTED), Step("DELETE", _DRAFT_DATA))
DELETE_DRAFT_ATTACHMENT = _scenario(
    "DELETE of a draft's attachment", (*_HISTORY, *_DRAFTED), Step("DELETE", _DRAFT_SCAN)
)
DELETE_ALL = _scenario(
    "DELETE of all data: three documents",
    (
        *(*_HISTORY, _put(_SCAN, SCAN), *_DRAFTED),
        *(_put("data/second/data.xml", FIRST), _put("data/third/data.xml", OLD)),
    ),
    Step("DELETE", "data/"),
    is_repeated=True,
)

TO_KILL = (
    *(CREATE, REPLACE, PROMOTE, PUBLISH_FIRST, PUBLISH_NEXT, ATTACH, ATTACH_OVER, REVERT, REVERT_DELETED),
    *(DELETE, DELETE_ATTACHMENT, DELETE_DRAFT, DELETE_DRAFT_ATTACHMENT, DELETE_ALL),
)

TO_FAIL = (
    *(CREATE, BESIDE, FIRST_REPLACE, REPLACE, UNINDEXED, ATTACH_OVER, ATTACH_LARGE),
    *(PUBLISH_SECOND, DELETE, PROMOTE, DELETE_DRAFT_ATTACHMENT),
)
TO_RECORD = (CREATE, FIRST_REPLACE, PROMOTE, DELETE_DATA, PUBLISH_SECOND, ATTACH_OVER)

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


_HELD = (_put_leased(OLD), _lock(_SHORT))
_AFTER = (_put_leased(NEXT, _HOLDER), _unlock(), _put_leased(NEXT))
_leased = partial(_scenario, properties=LEASING)

RENEW = _leased("LOCK by the holder", _HELD, _lock(_LONG), again=(_lock(_LONG), *_AFTER))
LEASES = (
    _leased("LOCK, the first of its directory", _HELD[:1], _lock(_LONG), again=(_lock(_SHORT), *_AFTER)),
    _leased(
        "LOCK after an UNLOCK",
        (_put_leased(OLD), _lock(_SHORT, _OTHER), _unlock(_OTHER)),
        _lock(_LONG),
        again=(_lock(_SHORT), *_AFTER),
    ),
    RENEW,
    _leased("UNLOCK", _HELD, _unlock(), again=(_unlock(), _lock(_LONG, _OTHER), _unlock(_OTHER), _put_leased(NEXT))),
    _leased("PUT by the holder of a lease", _HELD, _put_leased(NEW, _HOLDER), again=(_lock(_LONG), *_AFTER)),
)
