"""Who observes a store hears of each document before it changes and after, with every kind of request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from persistence.dialect import SVC
from persistence.errors import BusyError, DiskError, NotFoundError, PreconditionError
from persistence.model.addresses import FORM_XHTML, Collection, DocumentAddress, Form
from persistence.model.versions import Precondition, Tags
from persistence.properties.properties import Properties
from persistence.services.rules import Delete, Put
from persistence.storage import files
from persistence.storage.reader import StoreReader
from persistence.storage.storage import ChangeEvents
from persistence.storage.store import Store
from tests.failing import refusing
from tests.initialised import initialised
from tests.opened import opened, services

FORM = Form("hr", "leave")
DATA = DocumentAddress(FORM, Collection.DATA, "D", "data.xml")
DRAFT = DATA.moved(Collection.DRAFT)
OTHER = DocumentAddress(FORM, Collection.DATA, "E", "data.xml")
STALE = Precondition(expected=Tags(frozenset({"another"})))


class Told(NamedTuple):
    """What was told, whether the document could have been locked then, and what readers found: its data and draft."""

    what: str
    document: str
    is_free: bool
    data: str
    draft: str


class Place:
    """The services over a store, which is observed: whenever it tells something, what is stored is looked at."""

    def __init__(self, root: Path) -> None:
        self._told: list[Told] = []
        self.store = opened(Store(initialised(root), lock_timeout=0.02, listener=self))
        self._view = StoreReader(str(root))
        made = services(self.store, SVC, Properties.load({}, SVC.property_prefix))
        self.documents, self.definitions = made.documents, made.definitions

    def changing(self, form: Form, document: str) -> None:
        self._look("changing", form, document)

    def changed(self, form: Form, document: str) -> None:
        self._look("changed", form, document)

    def _look(self, what: str, form: Form, document: str) -> None:
        data = DocumentAddress(form, Collection.DATA, document, "data.xml")
        read = [self._read(each) for each in (data, data.moved(Collection.DRAFT))]
        self._told.append(Told(what, document, self._is_free(data), *read))

    def _is_free(self, address: DocumentAddress) -> bool:
        try:
            with self.store.writing(address):
                return True
        except BusyError:
            return False

    def _read(self, address: DocumentAddress) -> str:
        found = self._view.read(address, content=True)
        if found is None:
            return "none"
        if found.file is None:
            return "deleted"
        with found.file:
            return found.file.read().decode()

    def put(self, address: DocumentAddress, body: str, put: Put = Put()) -> None:  # noqa: B008 - it is frozen
        self.documents.write(address, put, [body.encode()])

    def delete(self, address: DocumentAddress) -> None:
        self.documents.delete(address, Delete())

    def discard_draft(self) -> None:
        with self.store.writing(DATA) as writer:
            writer.discard_draft(FORM, "D")

    def heard(self) -> list[Told]:
        told, self._told = self._told, []
        return told


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def both(document: str, before: tuple[str, str], after: tuple[str, str]) -> list[Told]:
    """Told before a change under the lock, and after it without; each with data and draft as they are then."""
    return [Told("changing", document, False, *before), Told("changed", document, True, *after)]


@pytest.mark.parametrize(
    ("data", "draft", "change", "after"),
    [
        ("none", "none", lambda place: place.put(DATA, "<b/>"), ("<b/>", "none")),
        ("<a/>", "none", lambda place: place.put(DATA, "<b/>"), ("<b/>", "none")),
        ("none", "none", lambda place: place.put(DRAFT, "<b/>"), ("none", "<b/>")),
        ("none", "<a/>", lambda place: place.put(DRAFT, "<b/>"), ("none", "<b/>")),
        ("none", "<a/>", lambda place: place.delete(DRAFT), ("none", "none")),
        ("none", "<a/>", lambda place: place.put(DATA, "<b/>"), ("<b/>", "none")),
        ("<a/>", "<b/>", lambda place: place.delete(DATA), ("deleted", "none")),
        ("none", "<a/>", lambda place: place.discard_draft(), ("none", "none")),
        ("none", "none", lambda place: place.discard_draft(), None),
    ],
    ids=[
        *("new document", "next revision", "new draft", "next draft", "deleted draft", "save that discards a draft"),
        *("deletion with a draft", "discarded draft", "no draft to discard"),
    ],
)
def test_a_change_is_told_once_before_and_after_it(
    place: Place, data: str, draft: str, change: Callable[[Place], None], after: tuple[str, str] | None
) -> None:
    for address, body in ((DATA, data), (DRAFT, draft)):
        if body != "none":
            place.put(address, body)
    place.heard()
    change(place)
    assert place.heard() == (both("D", (data, draft), after) if after else [])


def test_deleting_all_tells_of_each(place: Place) -> None:
    for address in (DATA, OTHER):
        place.put(address, "<a/>")
    place.heard()
    assert place.documents.delete_all(FORM, Delete()).deleted == 2
    told = place.heard()
    each = [both(document, ("<a/>", "none"), ("deleted", "none")) for document in "DE"]
    assert told in (each[0] + each[1], each[1] + each[0])
    assert place.documents.delete_all(FORM, Delete()).deleted == 0
    assert place.heard() == []


def test_what_is_refused_and_attachments_and_definitions_are_not_told(place: Place) -> None:
    place.put(DATA, "<a/>")
    place.put(DRAFT, "<a/>")
    place.heard()
    with pytest.raises(PreconditionError):
        place.put(DATA, "<b/>", Put(precondition=STALE))
    with pytest.raises(PreconditionError):
        place.documents.delete(DATA, Delete(precondition=STALE))
    with pytest.raises(NotFoundError):
        place.delete(OTHER)
    for address in (DATA, DRAFT):
        place.put(address.moved(address.collection, "a.bin"), "x")
        place.delete(address.moved(address.collection, "a.bin"))
    for name in (FORM_XHTML, "data.xml"):
        place.definitions.write(FORM, name, Put(), [b"<h/>"])
    assert place.heard() == []


@pytest.mark.parametrize("call", ["written", "rename", "sync_open", "sync_open after the commit"])
@pytest.mark.parametrize(
    ("change", "new"),
    [(lambda place: place.put(DATA, "<b/>"), "<b/>"), (lambda place: place.delete(DATA), "deleted")],
    ids=["write", "deletion"],
)
def test_a_change_that_fails_is_over_too(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: str, change: Callable[[Place], None], new: str
) -> None:
    """Where the directory's last fsync refuses, the answer is an error, and the new state is what readers see."""
    place.put(DATA, "<a/>")
    place.heard()
    name, _, is_late = call.partition(" ")
    rename, real = files.rename, getattr(files, name)
    committed = []

    def committing(source: str, target: str) -> None:
        rename(source, target)
        committed.append(target)

    def failing(*arguments: object) -> object:
        return refusing()() if committed else real(*arguments)

    with monkeypatch.context() as patch:
        if is_late:
            patch.setattr(files, "rename", committing)
        patch.setattr(files, name, failing if is_late else refusing())
        with pytest.raises(DiskError):
            change(place)
    assert place.heard() == both("D", ("<a/>", "none"), (new if is_late else "<a/>", "none"))


def test_a_listener_that_refuses_a_change_hears_nothing_of_its_end() -> None:
    """The updater is closed while a request goes on: that is 503, and no change."""
    heard: list[str] = []

    class Closed:
        def changing(self, form: Form, document: str) -> None:
            raise BusyError(f"the index was closed before {document} of {form}")

        def changed(self, form: Form, document: str) -> None:
            heard.append(f"{document} of {form}")

    events = ChangeEvents(Closed())
    with pytest.raises(BusyError):
        events.begins(FORM, "D")
    events.ends()
    assert heard == []
