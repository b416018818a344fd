"""Encrypting anew what is stored, by what forms mark now and with the key that encrypts now (spec forms 4.5).

Every revision is rewritten in place, one after the other: it keeps its instants, its stage and its entity tag, and what
it was is not kept. Documents can be read and saved meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO

import msgspec

from persistence.crypto import frames
from persistence.crypto.frames import PlainFile
from persistence.errors import (
    BadRequestError,
    BusyError,
    ConfigurationError,
    DamagedError,
    PersistenceError,
    disk_errors,
)
from persistence.forms.data_marks import MARKER_WORD
from persistence.forms.encryption import Sealing, Survey
from persistence.forms.holders import AttachmentHolder, HolderReader
from persistence.model.addresses import DATA_XML, AttachmentRef, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.services.encrypting import Encrypting
from persistence.storage.rewriting import BodiesOf, RevisionRewriter
from persistence.storage.store import Store
from persistence.storage.stored_revision import StoredRevision
from persistence.xml.markup import WordWatch

_CHUNK = 1 << 18
_ROUNDS = 3
"""How often a document is looked at: what is saved while it is encrypted anew may say what held before."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision that is stored: the current one, or with an ``instant`` an older one."""

    address: DocumentAddress
    instant: Instant | None
    sidecar: Sidecar


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A revision that is to be rewritten, and what gives its new content and sidecar, but for id, size and digest."""

    revision: Revision
    content: Callable[[StoredRevision], Iterator[bytes]]
    sidecar: Callable[[Sidecar], Sidecar]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be rewritten of a document, in this order; ``problems`` say what cannot be."""

    rewritings: tuple[Rewriting, ...]
    problems: tuple[str, ...]


class Reencryption:
    """Encrypts the data of one tree anew, as ``vault`` would store it. Methods raise what those of ``Store`` do."""

    def __init__(self, store: Store, bodies_of: BodiesOf, vault: Encrypting) -> None:
        self._store = store
        self._rewritable = RevisionRewriter(store, bodies_of)
        self._vault = vault

    @property
    def root(self) -> str:
        """The root of the tree."""
        return self._store.root

    @property
    def has_key(self) -> bool:
        """Whether there is a key that encrypts."""
        return self._vault.keys.ring().writing is not None

    def has_form(self, form: Form) -> bool:
        """Whether there is a form, other than the designer's."""
        return not self._vault.dialect.is_designer(form) and form in self._store.forms(form.app)

    def forms(self) -> list[Form]:
        """The forms of the tree but for the designer's, in order."""
        found = (form for form in self._store.forms() if not self._vault.dialect.is_designer(form))
        return sorted(found, key=lambda form: (form.app, form.name))

    def documents(self, form: Form) -> Iterator[str]:
        """The documents of a form, and the drafts of those that were never saved."""
        saved = set[str]()
        for document in self._store.documents(form):
            saved.add(document)
            yield document
        for document in self._store.documents(form, Collection.DRAFT):
            if document not in saved:
                yield document

    def encrypt(self, form: Form, document: str, version: int | None = None) -> tuple[int, list[str]]:
        """Encrypt a document anew with its draft, if it has the version; returns how many revisions, and problems.

        Raises:
            ConfigurationError: there is no key that encrypts.
        """
        self._vault.keys.ring().to_write()
        self._finish(form, document)
        count, problems = 0, list[str]()
        for _ in range(_ROUNDS):
            plan = self.plan(form, document, version)
            problems = list(plan.problems)
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

    def _finish(self, form: Form, document: str) -> None:
        """What a kill has left holds what is to be encrypted, and nobody reads it."""
        for collection in Collection:
            self._rewritable.finish(DocumentAddress(form, collection, document, DATA_XML))

    def plan(self, form: Form, document: str, version: int | None = None) -> Plan:
        """What would be rewritten of a document and its draft, if it has the version."""
        planning = _Planning(self._store, self._rewritable, self._vault, form, document)
        planning.run(version)
        return Plan((*planning.opened, *planning.data, *planning.sealed), tuple(planning.problems))

    def _rewrite(self, rewriting: Rewriting) -> bool:
        """Rewrite a revision, unless it is not there any more."""
        revision = rewriting.revision
        address, instant, old = revision.address, revision.instant, revision.sidecar
        found = self._rewritable.read(address, instant)
        if found is None or found.file is None or found.sidecar.id != old.id:
            _close(found)
            return False
        doing = f"encrypting {address} anew"
        watch = WordWatch(MARKER_WORD)
        with found.file, self._rewritable.upload(address, old) as upload:
            for piece in rewriting.content(found):
                with disk_errors(doing):
                    upload.write(piece)
                watch.feed(piece)
            with disk_errors(doing):
                upload.flush()
            said = rewriting.sidecar(old)
            is_plain = address.is_main and not watch.may_be_there
            rewritten = msgspec.structs.replace(
                said,
                id=upload.id,
                size=upload.size,
                digest=upload.digest,
                tag=old.etag,
                encrypted=False if is_plain else said.encrypted,
            )
            return self._rewritable.rewrite(address, instant, old, rewritten, upload)


@dataclass(slots=True)
class _Planning:
    """Looks at everything of one document.

    First go the attachments that become plain, and at last those that are encrypted: at no time does data say that an
    attachment is plain when it is not.
    """

    store: Store
    rewritable: RevisionRewriter
    vault: Encrypting
    form: Form
    document: str
    opened: list[Rewriting] = field(default_factory=list)
    data: list[Rewriting] = field(default_factory=list)
    sealed: list[Rewriting] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    named: dict[tuple[Collection, str], bool] = field(default_factory=dict)

    def run(self, version: int | None) -> None:
        """Look at it."""
        revisions = [each for each in self._revisions() if version in (None, each.sidecar.version)]
        data = [each for each in revisions if each.address.is_main]
        for each in data:
            self._noting(each, self._name)
        for each in revisions:
            if not each.address.is_main:
                self._noting(each, self._plan_attachment)
        for each in data:
            self._noting(each, self._plan_data)

    def _noting(self, revision: Revision, look: Callable[[Revision, StoredRevision], None]) -> None:
        """Look at a revision; one that cannot be read is a problem, and no obstacle to the others."""
        address = revision.address
        try:
            found = self.rewritable.read(address, revision.instant)
            if found is None or found.file is None or found.sidecar.id != revision.sidecar.id:
                _close(found)
                return
            with found.file:
                if found.is_edited:
                    self.problems.append(f"{address} was edited by hand: persistence check --adopt PATH takes that in")
                else:
                    look(revision, found)
        except (BadRequestError, BusyError, ConfigurationError, DamagedError) as error:
            self.problems.append(str(error))

    def _revisions(self) -> Iterator[Revision]:
        for collection in (Collection.DRAFT, Collection.DATA):
            main = DocumentAddress(self.form, collection, self.document, DATA_XML)
            for name in self.store.names(main):
                yield from self._of_resource(main.moved(collection, name))

    def _of_resource(self, address: DocumentAddress) -> Iterator[Revision]:
        """The living revisions of one resource, without the second name of the current one that a kill may leave."""
        current = ""
        for instant in (None, *self.store.revisions(address)):
            try:
                if instant is not None and self.store.is_older_name_of(address, instant, current):
                    continue  # it goes with the first name, when that is rewritten
                record = self.rewritable.record(address, instant)
            except DamagedError as error:
                self.problems.append(str(error))
                continue
            if record is not None and instant is None:
                current = record.id
            if record is not None and not record.deleted:
                yield Revision(address, instant, record)

    def _name(self, revision: Revision, found: StoredRevision) -> None:
        """Take down which attachments data names in controls, and whether any of these is marked."""
        marked = self.vault.router.of(self.form).catalog.of(self.form, revision.sidecar.version).encrypted
        if marked is None:
            return
        paths = self.vault.paths(revision.address, marked)
        with HolderReader(lambda held: (held.form, held.document) == (self.form, self.document)) as reader:
            holders = reader.read(_pieces(found.opened)).holders
        for holder in holders:
            if holder.held.collection is not None:
                key = holder.held.collection, holder.held.name
                self.named[key] = self.named.get(key, False) or _is_below(holder, paths)

    def _plan_attachment(self, revision: Revision, found: StoredRevision) -> None:
        address, sidecar = revision.address, revision.sidecar
        plain = self.vault.plain_file(found, address)
        is_wanted = self.named.get((address.collection, address.name), plain is not None)
        if is_wanted:
            header = frames.read_header(found.opened) if sidecar.encrypted else None
            if header is None or header.key_id != self.vault.keys.ring().writing:
                self.sealed.append(
                    Rewriting(revision, partial(self._sealed, address), lambda old: self._as_sealed(old, address))
                )
        elif plain is not None:
            opened = partial(self._opened, address)
            self.opened.append(Rewriting(revision, opened, lambda old: self.vault.as_plain(old, address)))

    def _plan_data(self, revision: Revision, found: StoredRevision) -> None:
        paths, values = self._paths(revision, found)
        survey = self._survey(found, paths, values)
        has_values = survey.plain + survey.wanted > 0
        if not survey.is_done or not self._is_hash_done(revision, is_wanted=has_values):
            content = partial(self._data, revision.address, paths, values)
            noted = self._as_sealed if has_values else self.vault.as_plain
            self.data.append(Rewriting(revision, content, lambda old: noted(old, revision.address)))

    def _is_hash_done(self, revision: Revision, *, is_wanted: bool) -> bool:
        """Whether the client's hash of data, if there is one, is encrypted where values are."""
        sidecar = revision.sidecar
        if sidecar.sealed_hash is not None:
            return is_wanted and self.vault.cipher(revision.address).is_current(sidecar.sealed_hash)
        return sidecar.client_hash is None or not is_wanted

    def _paths(
        self, revision: Revision, found: StoredRevision
    ) -> tuple[frozenset[tuple[str, ...]], frozenset[tuple[str, ...]]]:
        """The paths that are marked, and those of them that take no files.

        Where the definition is gone, both are those of the values that are encrypted.
        """
        marked = self.vault.router.of(self.form).catalog.of(self.form, revision.sidecar.version).encrypted
        if marked is not None:
            return self.vault.paths(revision.address, marked), marked.values
        places = frozenset(self._survey(found, frozenset(), frozenset()).places)
        return places, places

    def _survey(
        self, found: StoredRevision, paths: frozenset[tuple[str, ...]], values: frozenset[tuple[str, ...]]
    ) -> Survey:
        cipher = self.vault.cipher(DocumentAddress(self.form, Collection.DATA, self.document, DATA_XML))
        with Survey(paths, values, cipher.is_current, self._is_encrypted) as survey:
            return survey.read(_pieces(found.opened))

    def _is_encrypted(self, held: AttachmentRef, is_said: bool) -> bool:  # noqa: FBT001 - as ``IsEncrypted`` has it
        """Whether an attachment will be encrypted."""
        if (held.form, held.document) == (self.form, self.document) and held.collection is not None:
            will_be = self.named.get((held.collection, held.name))
            if will_be is not None:
                return will_be and self._is_there(held, held.collection)
        return self.vault.is_encrypted(held, is_said)

    def _is_there(self, held: AttachmentRef, collection: Collection) -> bool:
        sidecar = self.store.sidecar(DocumentAddress(held.form, collection, held.document, held.name))
        return sidecar is not None and not sidecar.deleted

    def _data(
        self,
        address: DocumentAddress,
        paths: Iterable[tuple[str, ...]],
        values: Iterable[tuple[str, ...]],
        found: StoredRevision,
    ) -> Iterator[bytes]:
        opened = self.vault.opening(address, _pieces(found.opened))
        with Sealing(paths, values, self.vault.cipher(address).encrypt, self._is_encrypted) as sealing:
            yield from sealing.edited(opened)

    def _opened(self, address: DocumentAddress, found: StoredRevision) -> Iterator[bytes]:
        plain = self.vault.plain_file(found, address)
        yield from _pieces(found.opened if plain is None else plain)

    def _sealed(self, address: DocumentAddress, found: StoredRevision) -> Iterator[bytes]:
        return frames.encrypted(self._opened(address, found), address, self.vault.keys.ring())

    def _as_sealed(self, old: Sidecar, address: DocumentAddress) -> Sidecar:
        return self.vault.as_encrypted(self.vault.as_plain(old, address), address)


def _is_below(holder: AttachmentHolder, paths: frozenset[tuple[str, ...]]) -> bool:
    return any(holder.path[:length] in paths for length in range(1, len(holder.path) + 1))


def _pieces(file: BinaryIO | PlainFile) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(_CHUNK):
        yield piece


def _close(found: StoredRevision | None) -> None:
    if found is not None and found.file is not None:
        found.file.close()
