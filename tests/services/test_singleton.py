"""Singleton forms and the index: it is asked, believed only as far as it knows, and not needed (spec crud 4.12)."""

from pathlib import Path
from typing import NoReturn

import pytest

from persistence.dialect import SVC
from persistence.errors import BusyError, ConflictError, DiskFullError
from persistence.index.sync.journal import OfflineJournal
from persistence.index.sync.updater import TreeIndex
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.versions import VersionRequest
from persistence.properties.properties import Properties
from persistence.providers.opened import open_index
from persistence.services.rules import Put
from persistence.settings import Settings
from persistence.storage.reader import StoreReader
from persistence.storage.store import Store
from tests.initialised import initialised
from tests.opened import opened, services_of
from tests.published import Planter

LEAVE = Form("hr", "leave")
PROPERTIES = Properties.load({}, SVC.property_prefix)
WHEN = "2024-05-01T10:00:00.000Z"


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A tree with a singleton form, of which there are two versions."""
    data = tmp_path / "data"
    for version in (1, 2):
        Planter(data).publish("hr/leave", version, "<singleton>true</singleton>", WHEN)
    return str(data)


def index(root: str) -> TreeIndex:
    return opened(open_index(Settings(data=root), PROPERTIES, root))


def create(root: str, document: str, index: TreeIndex, *, version: int = 1) -> None:
    """One PUT by a process that notes it and is killed before it has told the index."""
    store = opened(Store(initialised(root), lock_timeout=5, listener=opened(OfflineJournal(root))))
    documents = services_of(store, SVC, PROPERTIES, index).documents
    address = DocumentAddress(LEAVE, Collection.DATA, document, DATA_XML)
    documents.write(address, Put(version=VersionRequest(number=version)), [b"<d/>"])


def stored(root: str) -> set[str]:
    return set(StoreReader(root).documents(LEAVE))


def test_the_index_is_asked_and_no_document_is_looked_at(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = index(root)
    create(root, "A", known)
    known.make_ready(LEAVE)
    monkeypatch.setattr(StoreReader, "documents", lambda *_: pytest.fail("the documents were listed"))
    with pytest.raises(ConflictError):
        create(root, "B", known)
    create(root, "C", known, version=2)


def test_what_a_killed_process_has_only_noted_counts(root: str) -> None:
    known = index(root)
    Planter(Path(root)).save("hr/leave", "old", b"<d/>", WHEN, version=2)
    known.make_ready(LEAVE)
    create(root, "A", known)
    for other in (known, index(root)):
        with pytest.raises(ConflictError):
            create(root, "B", other)
    assert stored(root) == {"old", "A"}


@pytest.mark.parametrize("error", [BusyError("it is being made"), DiskFullError("no space left")])
def test_where_the_index_cannot_answer_the_documents_do(
    root: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise error

    unable = index(root)
    monkeypatch.setattr(unable, "search", refuse)
    create(root, "A", unable)
    with pytest.raises(ConflictError):
        create(root, "B", unable)
    create(root, "C", unable, version=2)
    assert stored(root) == {"A", "C"}
