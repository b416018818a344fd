"""The contract of a storage, asked of every implementation."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest

from persistence.dialect import ORBEON
from persistence.model.addresses import Form
from persistence.postgresql import revision_rows
from persistence.postgresql.database_storage import DatabaseStorage
from persistence.remote.remote_calls import Client, ProviderNames
from persistence.remote.remote_store import RemoteStore
from persistence.storage import files
from persistence.storage.attachments import FileBodies, SplitStorage
from persistence.storage.locks import Locks
from persistence.wire import CallPolicy, Connection
from tests.initialised import initialised
from tests.opened import opened
from tests.postgresql.storages import rows, storage_at
from tests.served import served
from tests.service import Service
from tests.storage.contract import TIMEOUT, WITHOUT_RECORDS, StorageContract, Subject, files_in, no_lock, tree_at


class TestTree(StorageContract):
    @pytest.fixture
    def constructed(self, tmp_path: Path) -> Subject:
        root = tmp_path / "root"
        return Subject(tree_at(root), tree_at(root, is_locked=False), lambda: files_in(root))


class TestTreeWithoutUnnamedFiles(TestTree):
    """A tree on a file system that has no unnamed files."""

    @pytest.fixture(autouse=True)
    def _spooled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "open_unnamed", lambda *_: None)


class TestAttachmentsInAnotherDirectory(StorageContract):
    """A tree, with the bodies of attachments in another directory."""

    lacks = WITHOUT_RECORDS

    @pytest.fixture
    def constructed(self, tmp_path: Path) -> Subject:
        root, base = tmp_path / "root", tmp_path / "base"
        base.mkdir()
        main, unlocked = (tree_at(root, is_locked=each) for each in (True, False))
        both = (SplitStorage(each, FileBodies(str(base))) for each in (main, unlocked))
        return Subject(*both, lambda: files_in(root, base), main=main)


_OLDER = "a provider is asked for older revisions of data only (spec crud 4.8)"
_GONE = "of what is deleted, an answer says only that it is (spec crud 13)"
_OF_DOCUMENT = "a provider may compare the tag of an attachment with that of its document (spec crud 4.6)"
_PUBLISHED = "only what is published and can be found is listed"

_numbers = count()


peer = served(ORBEON.name, alone=True)
"""The service that has the forms of a remote storage."""


class TestRemote(StorageContract):
    lacks: ClassVar[Mapping[str, str]] = {
        "test_a_revision_says_size_and_digest_of_its_content": "no answer tells a digest",
        "test_what_is_known_of_a_revision_is_what_was_said_to_be_stored": "a provider has instants of its own",
        "test_a_head_says_what_a_read_says[definition]": "what a list of forms says of a definition has no tag",
        "test_older_revisions_are_kept[definition]": _OLDER,
        "test_older_revisions_are_kept[attachment of a definition]": _OLDER,
        "test_a_writer_that_is_refused_leaves_the_history_as_it_is[definition]": _OLDER,
        "test_a_writer_that_is_refused_leaves_the_history_as_it_is[attachment of a definition]": _OLDER,
        **{
            f"test_of_two_writers_over_one_revision_one_is_refused[{kind}]": _OF_DOCUMENT
            for kind in ("attachment", "attachment of a draft", "attachment of a definition")
        },
        "test_a_writer_that_is_refused_leaves_the_history_as_it_is[attachment]": _OF_DOCUMENT,
        "test_a_draft_is_later_than_what_it_is_a_draft_of": "the provider has a clock of its own",
        "test_a_tombstone_is_a_revision": _GONE,
        "test_deleted_versions_are_listed_too": _PUBLISHED,
        "test_drafts_and_deleted_documents_are_listed_too": _PUBLISHED,
    }

    @pytest.fixture
    def constructed(self, tmp_path: Path, peer: Service) -> Subject:
        """A storage of an application of its own: a service for each test would take too long."""
        root = initialised(tmp_path / "root")
        number = next(_numbers)

        def storage(locks: Locks) -> RemoteStore:
            names = ProviderNames(ORBEON, ORBEON)
            uri = f"http://127.0.0.1:{peer.port}"
            return RemoteStore(Client("peer", names, opened(Connection(uri, CallPolicy()))), root, locks)

        unlocked = Locks(root, TIMEOUT)
        unlocked.holding = no_lock  # type: ignore[method-assign,assignment]
        app = peer.data / f"app{number}"
        return Subject(
            storage(Locks(root, TIMEOUT)),
            storage(unlocked),
            lambda: files_in(tmp_path / "root", *([app] if app.is_dir() else [])),
            Form(f"app{number}", "leave"),
        )


class TestDatabase(StorageContract):
    @pytest.fixture
    def constructed(self, tmp_path: Path, storage_uri: str) -> Subject:
        storage, unlocked = (
            storage_at(storage_uri, tmp_path / "local", lock_timeout=TIMEOUT, is_locked=each) for each in (True, False)
        )
        return Subject(storage, unlocked, lambda: self.files(storage))

    def files(self, storage: DatabaseStorage) -> set[str]:
        return rows(storage)


class TestDatabaseWithPieces(TestDatabase):
    """A PostgreSQL database, where every content is in pieces of some bytes, and lists are read by a few rows."""

    @pytest.fixture(autouse=True)
    def _large_bodies(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(revision_rows, "INLINE", 0)
        monkeypatch.setattr(revision_rows, "PIECE", 100_000)
        monkeypatch.setattr("persistence.postgresql.database.LISTED_ROWS", 2)

    def files(self, storage: DatabaseStorage) -> set[str]:
        revision_rows.sweep(storage.database, 0, 1000)
        return rows(storage)
