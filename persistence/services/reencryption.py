"""Re-encryption of stored data, by the current definitions and key (spec forms 4.5).

Every revision is rewritten in place, with its instants, stage and entity tag, while documents are read and saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO

import msgspec

from persistence.crypto import frames
from persistence.crypto.frames import PlainFile
from persistence.crypto.value_cipher import DataCipher
from persistence.errors import (
    BadRequestError,
    BusyError,
    ConfigurationError,
    DamagedError,
    PersistenceError,
    disk_errors,
)
from persistence.forms.encryption import EncryptionSurvey, ValueEncrypter
from persistence.forms.form_data import MARKER_WORD, HolderReader
from persistence.limits import CHUNK
from persistence.model.addresses import DATA_XML, AttachmentRef, Collection, DocumentAddress, Form
from persistence.model.sidecar import Sidecar
from persistence.services.data_revisions import DataRevision, living_revisions, opened_revision
from persistence.services.encryption_at_rest import EncryptionAtRest, Path
from persistence.storage.managed import BodiesOf, ManagedStorage
from persistence.storage.split_attachments import RevisionRewriter
from persistence.storage.stored_revision import StoredRevision
from persistence.xml.markup import WordWatch

_PASSES = 3
"""Passes over a document: a save during the first may have been encrypted by the definition before."""


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The rewriting of a revision; ``content`` and ``sidecar`` make the new ones, but for id, size and digest."""

    revision: DataRevision
    content: Callable[[StoredRevision], Iterator[bytes]]
    sidecar: Callable[[Sidecar, DocumentAddress], Sidecar]


class Reencryption:
    """Encrypts the data of one storage again."""

    def __init__(self, store: ManagedStorage, bodies_of: BodiesOf, at_rest: EncryptionAtRest) -> None:
        self.store = store
        self._rewriter = RevisionRewriter(store, bodies_of)
        self._at_rest = at_rest

    @property
    def has_key(self) -> bool:
        return self._at_rest.keys.ring().writing is not None

    def has_form(self, form: Form) -> bool:
        """Return whether a form other than the designer's exists."""
        return not self._at_rest.dialect.is_designer(form) and form in self.store.forms(form.app)

    def forms(self) -> list[Form]:
        """Return the forms of the storage other than the designer's, in order."""
        found = (form for form in self.store.forms() if not self._at_rest.dialect.is_designer(form))
        return sorted(found, key=lambda form: (form.app, form.name))

    def encrypt(self, form: Form, document: str, version: int | None = None) -> tuple[int, list[str]]:
        """Encrypt a document of the version with its draft again; return the number of revisions, and problems."""
        self._at_rest.keys.ring().to_write()
        for collection in Collection:  # an interrupted rewrite may have left plain content
            self._rewriter.finish(DocumentAddress(form, collection, document, DATA_XML))
        count, problems = 0, list[str]()
        for _ in range(_PASSES):
            plan = self.plan(form, document, version)
            problems = plan.problems
            if not plan.rewritings:
                break
            for rewriting in plan.rewritings:
                try:
                    count += self._rewrite(rewriting)
                except PersistenceError as error:
                    problems.append(str(error))
            if problems:
                break
        return count, problems

    def plan(self, form: Form, document: str, version: int | None = None) -> DocumentPlan:
        """Return the rewritings of a document and its draft, or of those revisions that have the version."""
        plan = DocumentPlan(self.store, self._rewriter, self._at_rest, form, document)
        plan.make(version)
        return plan

    def _rewrite(self, rewriting: Rewriting) -> bool:
        revision = rewriting.revision
        address, old = revision.address, revision.sidecar
        found = opened_revision(self._rewriter, revision)
        if found is None:
            return False
        action, watch = f"re-encrypting {address}", WordWatch(MARKER_WORD)
        with found.opened, self._rewriter.upload(address, old) as upload:
            for piece in rewriting.content(found):
                with disk_errors(action):
                    upload.write(piece)
                watch.feed(piece)
            with disk_errors(action):
                upload.flush()
            described = rewriting.sidecar(old, address)
            rewritten = msgspec.structs.replace(
                described,
                id=upload.id,
                size=upload.size,
                digest=upload.digest,
                tag=old.etag,
                encrypted=False if address.is_main and not watch.may_be_there else described.encrypted,
            )
            return self._rewriter.rewrite(address, revision.instant, old, rewritten, upload)


@dataclass(slots=True)
class DocumentPlan:
    """Rewritings of one document and its draft, and ``problems`` with other revisions.

    ``named`` are the attachments that data names in controls, each with whether any of these is encrypted.
    """

    store: ManagedStorage
    rewriter: RevisionRewriter
    at_rest: EncryptionAtRest
    form: Form
    document: str
    problems: list[str] = field(default_factory=list)
    named: dict[tuple[Collection, str], bool] = field(default_factory=dict)
    to_decrypt: list[Rewriting] = field(default_factory=list)
    data: list[Rewriting] = field(default_factory=list)
    to_encrypt: list[Rewriting] = field(default_factory=list)

    @property
    def rewritings(self) -> list[Rewriting]:
        """The rewritings in such an order that no data says that an encrypted attachment is plain."""
        return [*self.to_decrypt, *self.data, *self.to_encrypt]

    def make(self, version: int | None) -> None:
        """Examine every revision, or the revisions of one version."""
        revisions = [
            each
            for each in living_revisions(self.store, self.rewriter, self.form, self.document, self.problems)
            if version in (None, each.sidecar.version)
        ]
        data = [each for each in revisions if each.address.is_main]
        for each in data:
            self._look_at(each, self._note_names)
        for each in revisions:
            if not each.address.is_main:
                self._look_at(each, self._plan_attachment)
        for each in data:
            self._look_at(each, self._plan_data)

    def _look_at(self, revision: DataRevision, look: Callable[[DataRevision, StoredRevision], None]) -> None:
        try:
            found = opened_revision(self.rewriter, revision)
            if found is None:
                return
            with found.opened:
                if found.is_edited:
                    path = revision.address
                    self.problems.append(f"{path} was edited by hand: 'persistence check --adopt PATH' adopts it")
                else:
                    look(revision, found)
        except (BadRequestError, BusyError, ConfigurationError, DamagedError) as error:
            self.problems.append(str(error))

    def _note_names(self, revision: DataRevision, found: StoredRevision) -> None:
        controls = self.at_rest.router.of(self.form).catalog.of(self.form, revision.sidecar.version).encrypted
        if controls is None:
            return
        with HolderReader(self._is_own) as reader:
            holders = reader.read(_pieces(found.opened)).holders
        for holder in holders:
            if holder.held.collection is not None:
                key, path = (holder.held.collection, holder.held.name), holder.path
                is_encrypted = any(path[:length] in controls.paths for length in range(1, len(path) + 1))
                self.named[key] = self.named.get(key, False) or is_encrypted

    def _plan_attachment(self, revision: DataRevision, found: StoredRevision) -> None:
        address, sidecar = revision.address, revision.sidecar
        plain = self.at_rest.plain_file(found, address)
        if self.named.get((address.collection, address.name), plain is not None):
            header = frames.read_header(found.opened) if sidecar.encrypted else None
            if header is None or header.key_id != self.at_rest.keys.ring().writing:
                self.to_encrypt.append(Rewriting(revision, partial(self._reencrypted, address), self._as_encrypted))
        elif plain is not None:
            self.to_decrypt.append(Rewriting(revision, partial(self._decrypted, address), self.at_rest.as_plain))

    def _plan_data(self, revision: DataRevision, found: StoredRevision) -> None:
        paths, values = self._encrypted_paths(revision, found)
        survey = self._survey(found, paths, values)
        has_values = survey.plain + survey.wanted > 0
        sealed, plain = revision.sidecar.sealed_hash, revision.sidecar.client_hash
        is_hash_done = not (has_values and plain is not None)
        if sealed is not None:
            is_hash_done = has_values and self.at_rest.cipher(revision.address).is_current(sealed)
        if not (survey.is_done and is_hash_done):
            content = partial(self._encrypted_data, revision.address, paths, values)
            sidecar = self._as_encrypted if has_values else self.at_rest.as_plain
            self.data.append(Rewriting(revision, content, sidecar))

    def _encrypted_paths(
        self, revision: DataRevision, found: StoredRevision
    ) -> tuple[frozenset[Path], frozenset[Path]]:
        """Return the paths of encrypted controls, and of those without files; of encrypted values if not defined."""
        controls = self.at_rest.router.of(self.form).catalog.of(self.form, revision.sidecar.version).encrypted
        if controls is not None:
            return controls.paths, controls.values
        places = frozenset(self._survey(found, frozenset(), frozenset()).places)
        return places, places

    def _survey(self, found: StoredRevision, paths: frozenset[Path], values: frozenset[Path]) -> EncryptionSurvey:
        cipher = self.at_rest.cipher(DocumentAddress(self.form, Collection.DATA, self.document, DATA_XML))
        with EncryptionSurvey(paths, values, cipher.is_current, self._will_be_encrypted) as survey:
            return survey.read(_pieces(found.opened))

    def _is_own(self, held: AttachmentRef) -> bool:
        return (held.form, held.document) == (self.form, self.document)

    def _will_be_encrypted(self, held: AttachmentRef, is_labelled: bool) -> bool:  # noqa: FBT001 - as ``IsEncrypted`` has it
        if self._is_own(held) and held.collection is not None:
            will_be = self.named.get((held.collection, held.name))
            if will_be is not None:
                sidecar = self.store.sidecar(DocumentAddress(held.form, held.collection, held.document, held.name))
                return will_be and sidecar is not None and not sidecar.deleted
        return self.at_rest.is_encrypted(held, is_labelled)

    def _encrypted_data(
        self, address: DocumentAddress, paths: frozenset[Path], values: frozenset[Path], found: StoredRevision
    ) -> Iterator[bytes]:
        plain = self.at_rest.decrypted(address, _pieces(found.opened))
        cipher = DataCipher(self.at_rest.cipher(address))
        with ValueEncrypter(paths, values, cipher.encrypt, cipher.seal, self._will_be_encrypted) as sealing:
            yield from sealing.edited(plain)

    def _decrypted(self, address: DocumentAddress, found: StoredRevision) -> Iterator[bytes]:
        plain = self.at_rest.plain_file(found, address)
        yield from _pieces(found.opened if plain is None else plain)

    def _reencrypted(self, address: DocumentAddress, found: StoredRevision) -> Iterator[bytes]:
        return frames.encrypted(self._decrypted(address, found), address, self.at_rest.keys.ring())

    def _as_encrypted(self, old: Sidecar, address: DocumentAddress) -> Sidecar:
        return self.at_rest.as_encrypted(self.at_rest.as_plain(old, address), address)


def _pieces(file: BinaryIO | PlainFile) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(CHUNK):
        yield piece
