"""Who observes a store hears of each document before it changes and after, with every kind of request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from persistence.dialect import SVC
from persistence.errors import BusyError, DiskError, NotFoundError, PreconditionError
from persistence.model.addresses import FORM_XHTML, Collection, DocumentAddress, Form
from persistence.model.versions import Precondition, Tags
from persistence.properties.properties import Properties
from persistence.services.apis import Services
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


@dataclass(frozen=True)
class Told:
    """What was told, whether the document could have been locked then, and what readers found: its data and draft."""

    what: str
    document: str
    is_free: bool
    data: str
    draft: str


class Listener:
    """Observes a store, and looks at what is stored whenever it is told something."""

    def __init__(self, root: Path) -> None:
        self.told: list[Told] = []
        self.store = opened(Store(initialised(root), lock_timeout=0.02, listener=self))
        self._view = StoreReader(str(root))

    def changing(self, form: Form, document: str) -> None:
        self._told("changing", form, document)

    def changed(self, form: Form, document: str) -> None:
        self._told("changed", form, document)

    def _told(self, what: str, form: Form, document: str) -> None:
        data = DocumentAddress(form, Collection.DATA, document, "data.xml")
        draft = data.moved(Collection.DRAFT)
        self.told.append(Told(what, document, self._is_free(data), self._read(data), self._read(draft)))

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


@dataclass(frozen=True)
class Place:
    """The services over a store that somebody listens to."""

    services: Services
    listener: Listener

    def put(self, address: DocumentAddress, body: str, put: Put = Put()) -> None:  # noqa: B008 - it is frozen
        self.services.documents.write(address, put, [body.encode()])

    def delete(self, address: DocumentAddress) -> None:
        self.services.documents.delete(address, Delete())

    def heard(self) -> list[Told]:
        told = self.listener.told[:]
        self.listener.told.clear()
        return told


@pytest.fixture
def place(tmp_path: Path) -> Place:
    listener = Listener(tmp_path)
    return Place(services(listener.store, SVC, Properties.load({}, SVC.property_prefix)), listener)


def both(document: str, before: tuple[str, str], after: tuple[str, str]) -> list[Told]:
    """Told before a change under the lock, and after it without; each with data and draft as they are then."""
    return [Told("changing", document, False, *before), Told("changed", document, True, *after)]


def test_a_new_document_and_the_next_revision_are_told(place: Place) -> None:
    place.put(DATA, "<a/>")
    assert place.heard() == both("D", ("none", "none"), ("<a/>", "none"))
    place.put(DATA, "<b/>")
    assert place.heard() == both("D", ("<a/>", "none"), ("<b/>", "none"))


def test_a_draft_is_told(place: Place) -> None:
    place.put(DRAFT, "<a/>")
    assert place.heard() == both("D", ("none", "none"), ("none", "<a/>"))
    place.put(DRAFT, "<b/>")
    assert place.heard() == both("D", ("none", "<a/>"), ("none", "<b/>"))
    place.delete(DRAFT)
    assert place.heard() == both("D", ("none", "<b/>"), ("none", "none"))


def test_a_save_that_discards_a_draft_is_told_once(place: Place) -> None:
    place.put(DRAFT, "<a/>")
    place.heard()
    place.put(DATA, "<b/>")
    assert place.heard() == both("D", ("none", "<a/>"), ("<b/>", "none"))


def test_a_deletion_is_told_once_though_a_draft_goes_too(place: Place) -> None:
    place.put(DATA, "<a/>")
    place.put(DRAFT, "<b/>")
    place.heard()
    place.delete(DATA)
    assert place.heard() == both("D", ("<a/>", "<b/>"), ("deleted", "none"))


def test_deleting_all_tells_of_each(place: Place) -> None:
    for address in (DATA, OTHER):
        place.put(address, "<a/>")
    place.heard()
    assert place.services.documents.delete_all(FORM, Delete()).deleted == 2
    told = place.heard()
    each = [both(document, ("<a/>", "none"), ("deleted", "none")) for document in "DE"]
    assert told in (each[0] + each[1], each[1] + each[0])
    assert place.services.documents.delete_all(FORM, Delete()).deleted == 0
    assert place.heard() == []


def test_discarding_a_draft_alone_is_told_only_where_there_is_one(place: Place) -> None:
    place.put(DRAFT, "<a/>")
    place.heard()
    for heard in (both("D", ("none", "<a/>"), ("none", "none")), []):
        with place.listener.store.writing(DATA) as writer:
            writer.discard_draft(FORM, "D")
        assert place.heard() == heard


def test_what_is_refused_is_not_told(place: Place) -> None:
    place.put(DATA, "<a/>")
    place.heard()
    with pytest.raises(PreconditionError):
        place.put(DATA, "<b/>", Put(precondition=STALE))
    with pytest.raises(PreconditionError):
        place.services.documents.delete(DATA, Delete(precondition=STALE))
    with pytest.raises(NotFoundError):
        place.delete(OTHER)
    assert place.heard() == []


def test_attachments_and_definitions_are_not_told(place: Place) -> None:
    place.put(DATA, "<a/>")
    place.put(DRAFT, "<a/>")
    place.heard()
    for address in (DATA, DRAFT):
        place.put(address.moved(address.collection, "a.bin"), "x")
        place.delete(address.moved(address.collection, "a.bin"))
    place.services.definitions.write(FORM, FORM_XHTML, Put(), [b"<h/>"])
    place.services.definitions.write(FORM, "data.xml", Put(), [b"<h/>"])
    assert place.heard() == []


@pytest.mark.parametrize("call", ["written", "rename", "sync_open"])
@pytest.mark.parametrize(
    ("change", "left"), [(lambda place: place.put(DATA, "<b/>"), "<a/>"), (lambda place: place.delete(DATA), "<a/>")]
)
def test_a_change_that_fails_before_its_commit_is_over_too(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: str, change: Callable[[Place], None], left: str
) -> None:
    place.put(DATA, "<a/>")
    place.heard()
    with monkeypatch.context() as patch:
        patch.setattr(files, call, refusing())
        with pytest.raises(DiskError):
            change(place)
    assert place.heard() == both("D", ("<a/>", "none"), (left, "none"))


@pytest.mark.parametrize(
    ("change", "left"), [(lambda place: place.put(DATA, "<b/>"), "<b/>"), (lambda place: place.delete(DATA), "deleted")]
)
def test_a_change_that_fails_after_its_commit_is_over_too(
    place: Place, monkeypatch: pytest.MonkeyPatch, change: Callable[[Place], None], left: str
) -> None:
    """The directory's last fsync refuses: the answer is an error, and the new state is what readers see."""
    place.put(DATA, "<a/>")
    place.heard()
    rename, sync = files.rename, files.sync_open
    committed = False

    def committing(source: str, target: str) -> None:
        nonlocal committed
        rename(source, target)
        committed = True

    def syncing(descriptor: int) -> None:
        if committed:
            refusing()()
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(files, "rename", committing)
        patch.setattr(files, "sync_open", syncing)
        with pytest.raises(DiskError):
            change(place)
    assert place.heard() == both("D", ("<a/>", "none"), (left, "none"))


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
        events.begins(Form("hr", "leave"), "D")
    events.ends()
    assert heard == []
