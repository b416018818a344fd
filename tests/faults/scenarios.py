"""The requests that meet a fault: what is there before, what is asked, what is written next, and where to look."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from persistence.storage.layout import INDEX
from tests.search_faults import await_index
from tests.service import Answer, Service

# One length, so that nothing but the content itself tells one from the other.
OLD, NEW, NEXT, DRAFT = (f"<d>{word:->400}</d>".encode() for word in ("old", "new", "next", "draft"))
WRITTEN, AGAIN = "new", "next"
"""What a search finds only in what is written, and only in what is written next."""
LARGE = b"large" * (1 << 18)

_DATA = "data/D/data.xml"
_FILE = "data/D/file.bin"
_FORM = "form/form.xhtml"
_VERSION = "Svc-Form-Definition-Version"
_DRAFT = "draft/D/data.xml"
_DRAFT_FILE = "draft/D/file.bin"


@dataclass(frozen=True, slots=True)
class View:
    """Something to read: a path below a form, and of a definition the version."""

    path: str
    version: int | None = None

    def read(self, service: Service, form: str) -> Answer:
        """Read it."""
        own = {} if self.version is None else {"Form_Definition_Version": self.version}
        return service.get(f"{form}/{self.path}", **own)


Prepare = Callable[[Service, str], None]
Ask = Callable[[Service, str], Answer]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A request in a form of its own, given as ``app/form``; of the views the first is what the request changes.

    ``repeats`` says that a refused request leaves what it found, so that the next one makes the same calls.
    """

    title: str
    prepare: Prepare
    ask: Ask
    then: Ask
    views: tuple[View, ...]
    repeats: bool = True


def _put(path: str, body: bytes, **own: object) -> Ask:
    return lambda service, form: service.put(f"{form}/{path}", body, **own)


def _delete(path: str) -> Ask:
    return lambda service, form: service.delete(f"{form}/{path}")


def _all(*asks: Ask) -> Prepare:
    def prepare(service: Service, form: str) -> None:
        for ask in asks:
            answer = ask(service, form)
            assert answer.status in (201, 204), answer.cause

    return prepare


def _publish_again(service: Service, form: str) -> Answer:
    """Replace the latest version, then publish the next one: its number must follow."""
    latest = service.put(f"{form}/{_FORM}", NEXT)
    written = service.put(f"{form}/{_FORM}", NEXT, Form_Definition_Version="next")
    assert written[_VERSION] == str(int(latest[_VERSION] or 0) + 1)
    return written


def _remove_indexes(service: Service, form: str) -> None:
    """Save a document, and remove all indexes as somebody may: the next change is the first to be noted."""
    _all(_put(_DATA, OLD))(service, form)
    await_index(service, form)
    shutil.rmtree(service.data / INDEX)


CREATE = Scenario("PUT new, of a new form", _all(), _put(_DATA, NEW), _put(_DATA, NEXT), (View(_DATA),), repeats=False)
BESIDE = Scenario(
    "PUT new",
    _all(_put("data/E/data.xml", OLD)),
    _put(_DATA, NEW),
    _put(_DATA, NEXT),
    (View(_DATA), View("data/E/data.xml")),
)
REPLACE = Scenario(
    "PUT over", _all(_put(_DATA, OLD), _put(_DATA, OLD)), _put(_DATA, NEW), _put(_DATA, NEXT), (View(_DATA),)
)
FIRST_REPLACE = Scenario(
    "PUT over, for the first time",
    _all(_put(_DATA, OLD)),
    _put(_DATA, NEW),
    _put(_DATA, NEXT),
    (View(_DATA),),
    repeats=False,
)
UNINDEXED = Scenario(
    "PUT over, its index removed", _remove_indexes, _put(_DATA, NEW), _put(_DATA, NEXT), (View(_DATA),), repeats=False
)
ATTACH = Scenario(
    "PUT attachment over",
    _all(_put(_DATA, OLD), _put(_FILE, OLD), _put(_FILE, OLD)),
    _put(_FILE, NEW),
    _put(_FILE, NEXT),
    (View(_FILE), View(_DATA)),
)
ATTACH_LARGE = Scenario(
    "PUT large attachment, new",
    _all(_put(_DATA, OLD)),
    _put(_FILE, LARGE),
    _put(_FILE, NEXT),
    (View(_FILE), View(_DATA)),
    repeats=False,  # it would, but it is a lot to write
)
PUBLISH = Scenario(
    "PUT form, version next",
    _all(_put(_FORM, OLD, Form_Definition_Version=1)),
    _put(_FORM, NEW, Form_Definition_Version="next"),
    _publish_again,
    (View(_FORM), View(_FORM, 1)),
)
DELETE = Scenario(
    "DELETE",
    _all(_put(_DATA, OLD), _put(_DATA, OLD), _put(_FILE, OLD)),
    _delete(_DATA),
    _put(_DATA, NEXT),
    (View(_DATA),),
)
PROMOTE = Scenario(
    "PUT over, with a draft",
    _all(_put(_DATA, OLD), _put(_DATA, OLD), _put(_DRAFT, DRAFT), _put(_DRAFT_FILE, DRAFT)),
    _put(_DATA, NEW),
    _put(_DATA, NEXT),
    (View(_DATA), View(_DRAFT), View(_DRAFT_FILE)),
)
FORGET = Scenario(
    "DELETE attachment of a draft",
    _all(_put(_DRAFT, DRAFT), _put(_DRAFT_FILE, DRAFT)),
    _delete(_DRAFT_FILE),
    _put(_DRAFT_FILE, NEXT),
    (View(_DRAFT_FILE), View(_DRAFT)),
)

SCENARIOS = (
    *(CREATE, BESIDE, FIRST_REPLACE, REPLACE, UNINDEXED),
    *(ATTACH, ATTACH_LARGE, PUBLISH, DELETE, PROMOTE, FORGET),
)
