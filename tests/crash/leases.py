"""Leases of documents among the requests that are killed: LOCK, UNLOCK, and a PUT where only the holder may write."""

from __future__ import annotations

import re

from tests.crash.requests import NEW, NEXT, OLD, Request, Resource, Step
from tests.service import Answer

PROPERTIES = ("lease", "enforce-lease")
"""The properties that these requests need."""

_SHORT, _LONG = 2000, 4000
_DATA = "data/$/data.xml"  # a lease is of the document's id alone, so each form has another document
_OWNER = re.compile(rb"username>(\w+)<")
_HOLDER, _OTHER, _PROBE = "lea", "bob", "eve"


def _info(user: str) -> bytes:
    return (
        '<d:lockinfo xmlns:d="DAV:" xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><d:lockscope><d:exclusive/>'
        "</d:lockscope><d:locktype><d:write/></d:locktype><d:owner>"
        f"<fr:username>{user}</fr:username></d:owner></d:lockinfo>"
    ).encode()


def _lock(seconds: int, user: str = _HOLDER) -> Step:
    return Step("LOCK", _DATA, _info(user), headers=(("Timeout", f"Second-{seconds}"),))


def _unlock(user: str = _HOLDER, path: str = _DATA) -> Step:
    return Step("UNLOCK", path, _info(user))


def _put(body: bytes, user: str = "") -> Step:
    return Step("PUT", _DATA, body, headers=(("Svc-Username", user),) if user else ())


def _lease(before: bytes | None, after: bytes | None) -> Resource:
    return Resource(_DATA, before, after, is_lease=True)


def probe(path: str) -> Step:
    """An UNLOCK by somebody who holds nothing: it changes nothing, and is refused with who does."""
    return _unlock(_PROBE, path)


def others_write(path: str) -> Step:
    """A PUT by somebody who is not the holder."""
    return Step("PUT", path, NEXT, headers=(("Svc-Username", _PROBE),))


def holding(refusal: Answer) -> bytes:
    """Who holds a lease by its refusal, and how long: which of the two lengths is a matter of what was acknowledged."""
    owner = _OWNER.search(refusal.body)
    left = int((refusal["Timeout"] or "").removeprefix("Second-"))
    length = _LONG if left > _SHORT else _SHORT
    return _held(owner[1].decode() if owner else "?", length)


def expected(step: Step) -> bytes | None:
    """The lease after a LOCK or UNLOCK."""
    if step.method == "UNLOCK":
        return None
    owner = _OWNER.search(step.body)
    return _held(owner[1].decode() if owner else "?", int(dict(step.headers)["Timeout"].removeprefix("Second-")))


def _held(user: str, seconds: int) -> bytes:
    return f"{user} for {seconds} s".encode()


_IS_SHORT, _IS_LONG = _held(_HOLDER, _SHORT), _held(_HOLDER, _LONG)
_AFTER = (_put(NEXT, _HOLDER), _unlock(), _put(NEXT))
_STAYS = Resource(_DATA, OLD, OLD)

LOCK_FIRST = Request(
    "LOCK, the first of its directory",
    prepare=(_put(OLD),),
    step=_lock(_LONG),
    chains=(((_lease(None, _IS_LONG),),),),
    again=(_lock(_SHORT), *_AFTER),
    unchanged=(_STAYS,),
    properties=PROPERTIES,
)
LOCK_AGAIN = Request(
    "LOCK after an UNLOCK",
    prepare=(_put(OLD), _lock(_SHORT, _OTHER), _unlock(_OTHER)),
    step=_lock(_LONG),
    chains=(((_lease(None, _IS_LONG),),),),
    again=(_lock(_SHORT), *_AFTER),
    unchanged=(_STAYS,),
    properties=PROPERTIES,
)
RENEW = Request(
    "LOCK by the holder",
    prepare=(_put(OLD), _lock(_SHORT)),
    step=_lock(_LONG),
    chains=(((_lease(_IS_SHORT, _IS_LONG),),),),
    again=(_lock(_LONG), *_AFTER),
    unchanged=(_STAYS,),
    properties=PROPERTIES,
)
UNLOCK = Request(
    "UNLOCK",
    prepare=(_put(OLD), _lock(_SHORT)),
    step=_unlock(),
    chains=(((_lease(_IS_SHORT, None),),),),
    again=(_unlock(), _lock(_LONG, _OTHER), _unlock(_OTHER), _put(NEXT)),
    unchanged=(_STAYS,),
    properties=PROPERTIES,
)
PUT_LEASED = Request(
    "PUT by the holder of a lease",
    prepare=(_put(OLD), _lock(_SHORT)),
    step=_put(NEW, _HOLDER),
    chains=(((Resource(_DATA, OLD, NEW),),),),
    again=(_lock(_LONG), *_AFTER),
    unchanged=(_lease(_IS_SHORT, _IS_SHORT),),
    properties=PROPERTIES,
)

REQUESTS = (LOCK_FIRST, LOCK_AGAIN, RENEW, UNLOCK, PUT_LEASED)
