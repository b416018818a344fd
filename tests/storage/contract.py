"""The contract of a storage: everything that ``persistence.storage.storage`` promises, asked of any implementation.

``StorageContract`` is subclassed for each implementation, with a constructor of an empty one. A test that an
implementation cannot pass is named there with the reason, and must fail.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from persistence.errors import BadAddressError, BusyError, ReplacedError
from persistence.model.addresses import Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.permissions import User
from persistence.model.sidecar import SCHEMA, Sidecar, tombstone
from persistence.model.texts import LAST, Instant, next_after, one_later
from persistence.services.rules import tombstone_of
from persistence.storage.storage import RevisionStorage, Storage
from persistence.storage.store import Store
from persistence.storage.stored_revision import NOTHING_THERE, StoredRevision
from tests.initialised import initialised
from tests.opened import opened
from tests.waiting import at_once

XHTML = b'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>%s</title></head></html>'


@dataclass(frozen=True)
class Subject:
    """An empty storage, and what a test of it needs besides.

    ``unlocked`` is a second storage of the same revisions whose locks hold nobody. ``files`` says which files there
    are, but those that are there of an empty one. ``form`` is a form of an application that nobody else uses.
    """

    storage: RevisionStorage
    unlocked: RevisionStorage
    files: Callable[[], set[str]]
    form: Form = field(default=Form("hr", "leave"))
    main: Storage | None = None

    @property
    def complete(self) -> Storage:
        """The storage with lists, fingerprints and creations: ``main``, where bodies are apart from it."""
        return self.main or self.storage

    @property
    def data(self) -> DocumentAddress:
        return DocumentAddress(self.form, Collection.DATA, "D", "data.xml")

    @property
    def draft(self) -> DocumentAddress:
        return self.data.moved(Collection.DRAFT)

    @property
    def attachment(self) -> DocumentAddress:
        return self.data.moved(Collection.DATA, "a.bin")

    @property
    def definition(self) -> DefinitionAddress:
        return DefinitionAddress(self.form, 1, "form.xhtml")

    def address(self, kind: str) -> Address:
        of: dict[str, Address] = {
            "data": self.data,
            "draft": self.draft,
            "attachment": self.attachment,
            "attachment of a draft": self.attachment.moved(Collection.DRAFT),
            "definition": self.definition,
            "attachment of a definition": DefinitionAddress(self.form, 1, "logo.png"),
        }
        return of[kind]


TIMEOUT = 0.2
"""Seconds for which the storages of the contract wait for a lock."""

WITHOUT_RECORDS = {
    f"test_a_content_is_read_without_its_facts_too[{kind}]": "without a record, nothing leads to a body"
    for kind in ("attachment", "attachment of a draft")
}
"""What a storage lacks that has the bodies of attachments apart."""

KINDS = ("data", "draft", "attachment", "attachment of a draft", "definition", "attachment of a definition")
JOURNALED = ("data", "attachment", "definition", "attachment of a definition")


def body(address: Address, text: str) -> bytes:
    if not address.is_main:
        return text.encode()
    return XHTML % text.encode() if isinstance(address, DefinitionAddress) else b"<data>%s</data>" % text.encode()


def write(
    storage: RevisionStorage,
    address: Address,
    text: str,
    over: StoredRevision | None = None,
    *,
    finds: bool = True,
    **facts: object,
) -> Sidecar:
    """One PUT of a text; with ``finds`` over what is there, else ``over`` what the caller says."""
    return put(storage, address, body(address, text), over, finds=finds, **facts)


def put(
    storage: RevisionStorage,
    address: Address,
    content: bytes,
    over: StoredRevision | None = None,
    *,
    finds: bool = True,
    **facts: object,
) -> Sidecar:
    """One PUT, as the services do it; with ``finds`` over what is there, else ``over`` what the caller says."""
    with storage.upload(address) as upload:
        upload.write(content)
        upload.flush()
        with storage.writing(address) as writer:
            found = writer.current(address)
            return writer.commit(address, next_sidecar(upload, found, **facts), upload, over=found if finds else over)


def next_sidecar(upload: object, over: StoredRevision | None, **facts: object) -> Sidecar:
    """The sidecar of an upload that replaces what was found."""
    modified = next_after(over.latest if over else None)
    sidecar = Sidecar(
        schema=SCHEMA,
        id=upload.id,
        version=1,
        modified=modified,
        created=over.sidecar.created if over else modified,
        size=upload.size,
        digest=upload.digest,
    )
    return msgspec.structs.replace(sidecar, **facts)


def delete(
    storage: RevisionStorage, address: Address, over: StoredRevision | None = None, *, finds: bool = True
) -> Sidecar:
    with storage.writing(address) as writer:
        found = writer.current(address)
        return writer.delete(address, tombstone_of(found, User()), over=found if finds else over)


def conflict(subject: Subject, address: Address) -> Sidecar:
    """Let two writers write over one revision at once, of whom the second is refused; returns what is stored.

    Both have seen the same revision. The first one's block ends, with which its change is committed at the latest.
    """
    storage = subject.unlocked
    with storage.upload(address) as winning, storage.upload(address) as losing:
        winning.write(body(address, "winning"))
        losing.write(body(address, "losing"))
        with storage.writing(address) as loser:
            seen = loser.current(address)
            with storage.writing(address) as winner:
                over = winner.current(address)
                stored = winner.commit(address, next_sidecar(winning, over), winning, over=over)
            left = subject.files()
            with pytest.raises(ReplacedError):
                loser.commit(address, next_sidecar(losing, seen), losing, over=seen)
    assert subject.files() == {name for name in left if not name.startswith(".spool")}
    return stored


def content(found: StoredRevision | None) -> bytes | None:
    if found is None or found.file is None:
        return None
    with found.file as file:
        return file.read()


def revision(found: StoredRevision | None) -> StoredRevision:
    assert found is not None
    return found


class StorageContract:
    lacks: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture
    def subject(self, request: pytest.FixtureRequest, constructed: Subject) -> Subject:
        """The empty storage that a subclass has constructed; a test that it cannot pass must fail."""
        reason = self.lacks.get(request.node.name) or self.lacks.get(request.node.originalname)
        if reason is not None:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
            request.node.repr_failure = str  # nobody sees it, and a whole one takes longer than the test
        return constructed

    @pytest.mark.parametrize("kind", KINDS)
    def test_there_is_nothing_before_anything_is_stored(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        assert storage.sidecar(address) is None
        assert storage.read(address, content=False) is None
        assert storage.read(address, content=True) is None
        assert subject.complete.content(address) is None
        assert subject.complete.fingerprint(address) == NOTHING_THERE
        assert storage.read(address, Instant("2025-03-04T05:06:07.089Z"), content=True) is None
        with storage.writing(address) as writer:
            assert writer.current(address) is None

    @pytest.mark.parametrize("kind", KINDS)
    def test_what_is_written_is_read(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        for text in ("one", "another"):
            stored = write(storage, address, text)
            sent = body(address, text)
            found = revision(storage.read(address, content=False))
            assert (found.sidecar.id, found.etag, found.sidecar.modified) == (stored.id, stored.id, stored.modified)
            assert (found.size, found.file, found.is_edited) == (len(sent), None, False)
            opened = revision(storage.read(address, content=True))
            assert (opened.sidecar.id, opened.size) == (stored.id, len(sent))
            assert content(opened) == sent

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_head_says_what_a_read_says(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        write(storage, address, "one")
        head = revision(storage.read(address, content=False))
        with revision(storage.read(address, content=True)).opened:
            pass
        with storage.writing(address) as writer:
            current = revision(writer.current(address))
        sidecar = storage.sidecar(address)
        assert (sidecar.id, sidecar.modified) == (head.sidecar.id, head.sidecar.modified)
        assert (current.sidecar.id, current.etag, current.file) == (head.sidecar.id, head.etag, None)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_content_is_read_without_its_facts_too(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        write(storage, address, "one")
        file = subject.complete.content(address)
        with file:
            assert file.read() == body(address, "one")

    def test_the_facts_of_a_revision_are_kept(self, subject: Subject) -> None:
        facts = {"content_type": "application/xml", "stage": "begun", "valid": True}
        stored = write(subject.storage, subject.data, "one", **facts)
        found = revision(subject.storage.read(subject.data, content=False)).sidecar
        assert (found.id, found.modified) == (stored.id, stored.modified)
        assert {name: getattr(found, name) for name in facts} == facts

    @pytest.mark.parametrize("kind", KINDS)
    def test_what_is_known_of_a_revision_is_what_was_said_to_be_stored(self, subject: Subject, kind: str) -> None:
        stored = write(subject.storage, subject.address(kind), "one", creator="lea", source="C")
        assert revision(subject.storage.read(subject.address(kind), content=False)).sidecar == stored

    def test_a_revision_says_size_and_digest_of_its_content(self, subject: Subject) -> None:
        stored = write(subject.storage, subject.attachment, "one")
        digest = f"sha256:{hashlib.sha256(b'one').hexdigest()}"
        assert (stored.size, stored.digest) == (3, digest)
        found = revision(subject.storage.read(subject.attachment, content=False)).sidecar
        assert (found.size, found.digest) == (3, digest)

    def test_an_upload_counts_and_hashes_what_is_written(self, subject: Subject) -> None:
        pieces = [b"x" * 70_000, b"", b"y" * 1_000_000, b"z"]
        with subject.storage.upload(subject.attachment) as upload:
            for piece in pieces:
                upload.write(piece)
            assert upload.size == sum(map(len, pieces))
            assert upload.digest == f"sha256:{hashlib.sha256(b''.join(pieces)).hexdigest()}"
            assert len(upload.id) == len(hashlib.sha1(b"", usedforsecurity=False).hexdigest())

    def test_a_large_content_can_be_sought_in(self, subject: Subject) -> None:
        text = "".join(f"{number:09}," for number in range(300_000))
        write(subject.storage, subject.attachment, text)
        found = revision(subject.storage.read(subject.attachment, content=True))
        assert found.size == len(text)
        with found.opened as file:
            file.seek(1_234_560)
            assert file.read(20) == text[1_234_560:1_234_580].encode()
            file.seek(0)
            assert hashlib.sha256(file.read()).digest() == hashlib.sha256(text.encode()).digest()

    @pytest.mark.parametrize("kind", ["attachment", "attachment of a draft", "attachment of a definition"])
    def test_an_empty_content_is_a_content(self, subject: Subject, kind: str) -> None:
        address = subject.address(kind)
        write(subject.storage, address, "")
        found = revision(subject.storage.read(address, content=True))
        assert (found.size, content(found)) == (0, b"")

    @pytest.mark.parametrize("kind", JOURNALED)
    def test_older_revisions_are_kept(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        revisions = [(write(storage, address, text), text) for text in ("one", "two", "three")]
        for sidecar, text in revisions:
            facts = revision(storage.read(address, sidecar.modified, content=False))
            assert (facts.sidecar.id, facts.file, facts.size) == (sidecar.id, None, len(body(address, text)))
            found = revision(storage.read(address, sidecar.modified, content=True))
            assert (found.sidecar.id, found.etag, content(found)) == (sidecar.id, sidecar.id, body(address, text))
        assert storage.read(address, Instant("2025-03-04T05:06:07.089Z"), content=False) is None

    @pytest.mark.parametrize("kind", ["data", "attachment"])
    def test_all_revisions_are_listed_newest_first(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        assert storage.history(address).total == 0
        if kind == "attachment":
            write(storage, subject.data, "1")
        stored = [write(storage, address, str(number)) for number in range(5)][::-1]
        listed = storage.history(address)
        assert listed.total == 5
        assert [listed.instant(position) for position in range(5)] == [each.modified for each in stored]
        found = [each.sidecar for each in listed.page(0, 9)]
        assert [(each.modified, each.version, each.deleted) for each in found if each] == [
            (each.modified, 1, False) for each in stored
        ]
        for begin, end in ((0, 2), (1, 3), (4, 5), (5, 7)):
            assert [each.instant for each in listed.page(begin, end)] == [each.modified for each in stored[begin:end]]
        for count, each in enumerate(stored, 1):
            assert listed.since(each.modified) == count
            assert listed.position_at(each.modified) == count - 1
            assert listed.position_at(one_later(each.modified)) in {count - 1, count - 2}
        assert (listed.since(LAST), listed.position_at(LAST)) == (0, 0)
        assert listed.position_at(Instant("2001-02-03T04:05:06.789Z")) == 5

    @pytest.mark.parametrize("kind", ["data", "attachment"])
    def test_tombstones_are_listed_and_what_came_before_and_after(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        if kind == "attachment":
            write(storage, subject.data, "1")
        first = write(storage, address, "one")
        deleted = delete(storage, address)
        alone = storage.history(address)
        assert [each.instant for each in alone.page(0, 2)] == [deleted.modified, first.modified]
        again = write(storage, address, "two")
        listed = storage.history(address)
        found = [each.sidecar for each in listed.page(0, 3)]
        assert [(each.modified, each.deleted) for each in found if each] == [
            (again.modified, False),
            (deleted.modified, True),
            (first.modified, False),
        ]
        assert listed.since(deleted.modified) == 2

    @pytest.mark.parametrize("kind", ["draft", "attachment of a draft"])
    def test_a_draft_has_one_revision(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        first = write(storage, address, "one")
        second = write(storage, address, "two")
        assert storage.read(address, first.modified, content=False) is None
        assert revision(storage.read(address, second.modified, content=False)).sidecar.id == second.id

    @pytest.mark.parametrize("kind", KINDS)
    def test_instants_increase_strictly(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        instants = [write(storage, address, str(number)).modified for number in range(5)]
        assert instants == sorted(set(instants))
        created = revision(storage.read(address, content=False)).sidecar.created
        assert created <= instants[0]

    def test_a_draft_is_later_than_what_it_is_a_draft_of(self, subject: Subject) -> None:
        """The clock does not decide: an older one counts as left by a crash. A save is later than the draft it ends."""
        saved = write(subject.storage, subject.data, "one")
        ahead = Instant("2100-01-01T00:00:00.000Z")
        write(subject.storage, subject.data, "two", modified=ahead)
        assert ahead > saved.modified
        draft = write(subject.storage, subject.draft, "three")
        assert draft.modified > ahead
        assert write(subject.storage, subject.data, "four").modified > draft.modified

    @pytest.mark.parametrize("kind", JOURNALED)
    def test_a_tombstone_hides_the_content(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        write(storage, address, "one")
        delete(storage, address)
        for is_asked in (True, False):
            found = revision(storage.read(address, content=is_asked))
            assert (found.sidecar.deleted, found.size, found.file) == (True, 0, None)
        assert subject.complete.content(address) is None
        write(storage, address, "two")
        assert content(storage.read(address, content=True)) == body(address, "two")

    @pytest.mark.parametrize("kind", JOURNALED)
    def test_a_tombstone_is_a_revision(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        first = write(storage, address, "one", creator="lea")
        deleted = delete(storage, address)
        assert deleted.deleted
        assert deleted.modified > first.modified
        assert storage.sidecar(address) == deleted
        assert revision(storage.read(address, content=True)) == StoredRevision(deleted, deleted.id, 0, None)
        second = write(storage, address, "two")
        assert second.modified > deleted.modified
        older = revision(storage.read(address, deleted.modified, content=True))
        assert (older.sidecar, older.file) == (deleted, None)
        older = revision(storage.read(address, first.modified, content=True))
        assert (older.sidecar.id, content(older)) == (first.id, body(address, "one"))

    @pytest.mark.parametrize("kind", JOURNALED)
    def test_a_tombstone_may_be_put_where_nothing_was(self, subject: Subject, kind: str) -> None:
        """Spec crud 11: the proxy has looked, perhaps too early."""
        storage, address = subject.storage, subject.address(kind)
        with storage.upload(address) as upload:
            made = next_sidecar(upload, None)
        with storage.writing(address) as writer:
            deleted = tombstone(made, modified=made.modified, modifier=None)
            assert writer.delete(address, deleted, over=None).deleted
        assert revision(storage.read(address, content=False)).sidecar.deleted

    def test_an_attachment_of_a_draft_is_purged_without_a_trace(self, subject: Subject) -> None:
        storage, address = subject.storage, subject.address("attachment of a draft")
        write(storage, subject.draft, "one")
        before = subject.files()
        write(storage, address, "two")
        with storage.writing(address) as writer:
            found = revision(writer.current(address))
            deleted = tombstone(found.sidecar, modified=next_after(found.latest), modifier=None)
            writer.purge(address, deleted, over=found)
        assert storage.read(address, content=True) is None
        assert subject.complete.fingerprint(address) == NOTHING_THERE
        assert revision(storage.read(subject.draft, content=False)).size == len(body(subject.draft, "one"))
        assert subject.files() == before

    def test_a_draft_is_discarded_with_everything_in_it(self, subject: Subject) -> None:
        storage, attachment = subject.storage, subject.address("attachment of a draft")
        write(storage, subject.draft, "one")
        write(storage, attachment, "two")
        with storage.writing(subject.draft) as writer:
            writer.current(subject.draft)
            writer.discard_draft(subject.form, "D")
        with storage.writing(subject.draft) as writer:
            writer.current(subject.draft)
            writer.discard_draft(subject.form, "D")
        for address in (subject.draft, attachment):
            assert storage.read(address, content=False) is None
        assert subject.files() == set()

    def test_a_save_discards_the_draft_and_keeps_its_own(self, subject: Subject) -> None:
        storage = subject.storage
        write(storage, subject.attachment, "kept")
        write(storage, subject.draft, "one")
        write(storage, subject.address("attachment of a draft"), "two")
        with storage.upload(subject.data) as upload:
            upload.write(body(subject.data, "three"))
            with storage.writing(subject.data) as writer:
                found = writer.current(subject.data)
                writer.commit(subject.data, next_sidecar(upload, found), upload, over=found)
                writer.discard_draft(subject.form, "D")
        assert storage.read(subject.draft, content=False) is None
        assert storage.read(subject.address("attachment of a draft"), content=False) is None
        assert content(storage.read(subject.data, content=True)) == body(subject.data, "three")
        assert content(storage.read(subject.attachment, content=True)) == b"kept"

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_fingerprint_tells_every_state_from_every_other(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        seen = [subject.complete.fingerprint(address)]
        for step in (write, write, write):
            step(storage, address, "same")
            seen.append(subject.complete.fingerprint(address))
            assert subject.complete.fingerprint(address) == seen[-1]
        if address.keeps_history:
            delete(storage, address)
            seen.append(subject.complete.fingerprint(address))
            write(storage, address, "same")
            seen.append(subject.complete.fingerprint(address))
        assert len(set(seen)) == len(seen)
        assert seen[0] == NOTHING_THERE

    def test_versions_come_highest_first_with_their_fingerprints(self, subject: Subject) -> None:
        addresses = {number: DefinitionAddress(subject.form, number, "form.xhtml") for number in (1, 10, 9)}
        for number, address in addresses.items():
            write(subject.storage, address, "f", version=number)
        assert list(subject.complete.versions(subject.form)) == [10, 9, 1]
        fingerprints = [(number, subject.complete.fingerprint(addresses[number])) for number in (10, 9, 1)]
        assert list(subject.complete.fingerprints(subject.form)) == fingerprints
        nowhere = Form(subject.form.app, "nowhere")
        assert list(subject.complete.versions(nowhere)) == list(subject.complete.fingerprints(nowhere)) == []

    def test_deleted_versions_are_listed_too(self, subject: Subject) -> None:
        write(subject.storage, subject.definition, "f")
        delete(subject.storage, subject.definition)
        assert list(subject.complete.versions(subject.form)) == [1]

    def test_forms_are_listed_all_and_by_application(self, subject: Subject) -> None:
        app = subject.form.app
        forms = {Form(app, "leave"), Form(app, "Übersicht: 1"), Form(f"{app} 2", "leave")}
        for form in forms:
            write(subject.storage, DefinitionAddress(form, 1, "form.xhtml"), "f")
        assert set(subject.complete.forms()) >= forms
        assert sorted(map(str, subject.complete.forms(app))) == sorted(str(form) for form in forms if form.app == app)
        assert list(subject.complete.forms("nowhere")) == []

    def test_documents_are_listed_by_their_own_names(self, subject: Subject) -> None:
        write(subject.storage, subject.definition, "f")
        names = {"a", "b:c", "50%", "é.", "x.json"}
        for name in names:
            write(subject.storage, DocumentAddress(subject.form, Collection.DATA, name, "data.xml"), "d")
        assert set(subject.complete.documents(subject.form)) == names
        assert set(subject.complete.documents(Form(subject.form.app, "nowhere"))) == set()

    @pytest.mark.parametrize("kind", ["data", "draft", "definition"])
    def test_the_attachments_beside_data_and_definitions_are_listed(self, subject: Subject, kind: str) -> None:
        storage, main = subject.storage, subject.address(kind)
        beside = subject.address({"data": "attachment"}.get(kind, f"attachment of a {kind}"))
        assert storage.names(main) == []
        if kind == "draft":
            write(storage, subject.data, "")
        holder = (
            f"<a>/fr/service/persistence/crud/{subject.form}/{'form' if kind == 'definition' else f'{kind}/D'}/%s</a>"
        )
        write(storage, main, holder % beside.name)
        write(storage, beside, "1")
        assert storage.names(main) == sorted([main.name, beside.name])

    def test_drafts_and_deleted_documents_are_listed_too(self, subject: Subject) -> None:
        write(subject.storage, subject.definition, "f")
        write(subject.storage, subject.data, "d")
        delete(subject.storage, subject.data)
        for collection, names in ((Collection.DATA, "ABC"), (Collection.DRAFT, "CDEF")):
            for name in names:
                write(subject.storage, DocumentAddress(subject.form, collection, name, "data.xml"), "d")
        assert set(subject.complete.documents(subject.form)) == set("ABCD")
        assert set(subject.complete.documents(subject.form, Collection.DRAFT)) == set("CDEF")
        assert sorted(subject.complete.documents_and_drafts(subject.form)) == list("ABCDEF")

    @pytest.mark.parametrize("kind", KINDS)
    def test_of_two_writers_over_one_revision_one_is_refused(self, subject: Subject, kind: str) -> None:
        """Although no lock has kept the second one waiting; nothing is left of it."""
        storage, address = subject.unlocked, subject.address(kind)
        write(storage, address, "first")
        stored = conflict(subject, address)
        assert content(storage.read(address, content=True)) == body(address, "winning")
        assert revision(storage.read(address, content=False)).sidecar.id == stored.id
        write(storage, address, "next")
        assert content(storage.read(address, content=True)) == body(address, "next")

    @pytest.mark.parametrize("kind", JOURNALED)
    def test_a_writer_that_is_refused_leaves_the_history_as_it_is(self, subject: Subject, kind: str) -> None:
        storage, address = subject.unlocked, subject.address(kind)
        first = write(storage, address, "first")
        stored = conflict(subject, address)
        write(storage, address, "next")
        for sidecar, text in ((first, "first"), (stored, "winning")):
            found = revision(storage.read(address, sidecar.modified, content=True))
            assert (found.sidecar.id, content(found)) == (sidecar.id, body(address, text))

    @pytest.mark.parametrize("kind", KINDS)
    def test_nothing_is_stored_over_another_revision_than_the_one_that_is_said(
        self, subject: Subject, kind: str
    ) -> None:
        storage, address = subject.storage, subject.address(kind)
        write(storage, address, "one")
        seen = storage.read(address, content=False)
        stored = write(storage, address, "two")
        with pytest.raises(ReplacedError):
            write(storage, address, "three", over=seen, finds=False)
        with pytest.raises(ReplacedError):
            delete(storage, address, over=seen, finds=False)
        assert revision(storage.read(address, content=False)).sidecar.id == stored.id
        assert content(storage.read(address, content=True)) == body(address, "two")

    @pytest.mark.parametrize("kind", KINDS)
    def test_nothing_is_stored_as_the_first_revision_over_another(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        write(storage, address, "one")
        with pytest.raises(ReplacedError):
            write(storage, address, "two", over=None, finds=False)
        assert content(storage.read(address, content=True)) == body(address, "one")

    @pytest.mark.parametrize("kind", JOURNALED)
    def test_nothing_is_stored_over_a_tombstone_unseen(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        write(storage, address, "one")
        seen = storage.read(address, content=False)
        delete(storage, address)
        with pytest.raises(ReplacedError):
            write(storage, address, "two", over=seen, finds=False)
        assert revision(storage.read(address, content=False)).sidecar.deleted

    def test_nothing_is_purged_unseen(self, subject: Subject) -> None:
        storage, address = subject.storage, subject.address("attachment of a draft")
        write(storage, address, "one")
        seen = revision(storage.read(address, content=False))
        write(storage, address, "two")
        with storage.writing(address) as writer:
            writer.current(address)
            deleted = tombstone(seen.sidecar, modified=next_after(seen.latest), modifier=None)
            with pytest.raises(ReplacedError):
                writer.purge(address, deleted, over=seen)
        assert content(storage.read(address, content=True)) == b"two"

    def test_a_writer_keeps_others_from_its_document_and_from_no_other(self, subject: Subject) -> None:
        """A document is locked with its draft; the file that another document shares a lock with is by chance."""
        others = [DocumentAddress(subject.form, Collection.DATA, str(number), "data.xml") for number in range(8)]
        with subject.storage.writing(subject.data):
            for address in (subject.data, subject.draft, subject.attachment):
                with pytest.raises(BusyError):
                    write_elsewhere(subject.storage, address)
            free = [is_free(subject.storage, address) for address in others]
            assert any(free)
        assert is_free(subject.storage, subject.data)

    def test_a_definition_is_locked_with_all_its_versions(self, subject: Subject) -> None:
        with subject.storage.writing(subject.definition):
            assert not is_free(subject.storage, DefinitionAddress(subject.form, 2, "logo.png"))
        assert is_free(subject.storage, subject.definition)

    def test_a_creation_keeps_others_from_creating_while_a_document_is_locked(self, subject: Subject) -> None:
        def busy() -> None:
            with pytest.raises(BusyError), subject.complete.creating(subject.form):
                pass

        with subject.storage.writing(subject.data), subject.complete.creating(subject.form):
            at_once(busy)
        with subject.complete.creating(subject.form):
            pass

    @pytest.mark.parametrize("error", [None, KeyboardInterrupt])
    def test_an_upload_that_is_given_up_leaves_nothing(
        self, subject: Subject, error: type[BaseException] | None
    ) -> None:
        for kind in KINDS:
            with (
                pytest.raises(error) if error is not None else nullcontext(),
                subject.storage.upload(subject.address(kind)) as upload,
            ):
                upload.write(b"x" * 100_000)
                upload.flush()
                if error is not None:
                    raise error
        assert subject.files() == set()

    def test_no_file_is_left_of_a_write(self, subject: Subject) -> None:
        """A second write of a draft leaves the same files as the first."""
        write(subject.storage, subject.draft, "one")
        left = subject.files()
        for text in ("two", "three"):
            write(subject.storage, subject.draft, text)
        assert subject.files() == left

    @pytest.mark.parametrize("name", ["", "a/b", "a\\b", "a\nb", "x" * 300, "é" * 130, ".", ".."])
    def test_names_that_cannot_be_kept_are_refused(self, subject: Subject, name: str) -> None:
        storage = subject.storage
        for address in (
            DocumentAddress(subject.form, Collection.DATA, name, "data.xml"),
            DocumentAddress(subject.form, Collection.DATA, "D", name),
            DefinitionAddress(subject.form, 1, name),
            DocumentAddress(Form(name, "f"), Collection.DATA, "D", "data.xml"),
        ):
            calls: tuple[Callable[[], object], ...] = (
                lambda address=address: storage.read(address, content=True),
                lambda address=address: storage.sidecar(address),
                lambda address=address: storage.read(address, Instant("2025-03-04T05:06:07.089Z"), content=True),
                lambda address=address: subject.complete.content(address),
                lambda address=address: write(storage, address, "x"),
            )
            for call in calls:
                with pytest.raises(BadAddressError):
                    call()
        for listing in (subject.complete.versions, subject.complete.documents, subject.complete.fingerprints):
            with pytest.raises(BadAddressError):
                list(listing(Form("app", name)))
        with pytest.raises(BadAddressError):
            list(subject.complete.forms(name))

    def test_files_may_have_any_name_that_a_path_can_have(self, subject: Subject) -> None:
        """Also those of sidecars, hidden files, and such that leave no room for a suffix."""
        long = ("x" * 201, "x" * 255, "é" * 127, "%" * 90, "x" * 250 + ".json", "%3C" * 70 + "%", "." * 3 + "é" * 126)
        names = ("data.xml.json", "a.bin.JSON", ".hidden", ".json", "..a", ".data.xml.json", *long)
        storage = subject.storage
        write(storage, subject.data, "data")
        for text in ("one", "two"):
            for name in names:
                write(storage, subject.data.moved(Collection.DATA, name), text + name)
        for name in names:
            address = subject.data.moved(Collection.DATA, name)
            with revision(storage.read(address, content=True)).opened as file:
                assert file.read() == body(address, "two" + name)
            history = storage.history(address)
            assert history.total in (0, 1, 2)

    @pytest.mark.parametrize("kind", ["data", "attachment", "draft"])
    def test_what_is_open_stays_as_it_was_read(self, subject: Subject, kind: str) -> None:
        storage, address = subject.storage, subject.address(kind)
        write(storage, address, "one")
        with revision(storage.read(address, content=True)).opened as file:
            write(storage, address, "another")
            assert file.read() == body(address, "one")

    @pytest.mark.parametrize("kind", ["data", "attachment", "draft"])
    def test_readers_see_whole_revisions_while_it_is_written(self, subject: Subject, kind: str) -> None:
        """Facts and content of one revision, each at least as new as the one before."""
        storage, address = subject.storage, subject.address(kind)
        write(storage, address, "0", stage="0")
        ended = threading.Event()
        wrong: list[object] = []

        def read() -> None:
            last = Instant("")
            while not ended.is_set():
                found = revision(storage.read(address, content=True))
                if content(found) != body(address, found.sidecar.stage or "") or found.sidecar.modified < last:
                    wrong.append(found)
                last = found.sidecar.modified

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            for number in range(1, 20):
                write(storage, address, str(number) * number, stage=str(number) * number)
        finally:
            ended.set()
            for reader in readers:
                reader.join()
        assert wrong == []


def tree_at(root: Path, *, is_locked: bool = True) -> Store:
    store = opened(Store(initialised(root), lock_timeout=TIMEOUT))
    if not is_locked:
        store._locks.holding = no_lock  # type: ignore[method-assign,assignment]  # noqa: SLF001 - a lock that is lost
    return store


def files_in(*directories: Path) -> set[str]:
    """The files below directories, but for what an empty tree has."""
    paths = (path.relative_to(each).as_posix() for each in directories for path in each.rglob("*") if path.is_file())
    return {path for path in paths if not path.startswith((".locks", ".index")) and path != "layout.json"}


def is_free(storage: RevisionStorage, address: Address) -> bool:
    """Return whether another thread gets the lock of an address."""
    try:
        write_elsewhere(storage, address)
    except BusyError:
        return False
    return True


def write_elsewhere(storage: RevisionStorage, address: Address) -> None:
    def hold() -> None:
        with storage.writing(address):
            pass

    at_once(hold)


@contextmanager
def no_lock(*_: object) -> Iterator[None]:
    yield
