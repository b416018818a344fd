"""Re-encryption of stored data (spec forms 4.5), and the jobs that do it or rebuild indexes (spec search 5)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

import msgspec

from persistence import crypto, errors
from persistence.catalog import NOTHING_ENCRYPTED, EncryptedControls
from persistence.closable import Closable, Jobs, closed
from persistence.crypto import DataCipher, key_of
from persistence.forms.encryption import EncryptionSurvey, ValueDecrypter, ValueEncrypter
from persistence.forms.form_data import MARKER_WORD, HolderReader
from persistence.forms.messages import attribute, attributes_of, element, text
from persistence.index.protocol import ReindexingState, ReindexingStatus
from persistence.limits import CHUNK
from persistence.model.addresses import AttachmentRef, Collection, DocumentAddress, Form
from persistence.model.permissions import removing, require_second_key
from persistence.model.sidecar import Sidecar
from persistence.model.versions import Place
from persistence.services.codec import EncryptionAtRest, Path
from persistence.services.documents import DataRevision, living_revisions, opened_revision
from persistence.services.transforms import from_start
from persistence.storage.attachments import RevisionRewriter
from persistence.storage.storage import BodiesOf, JobRecord, Storage
from persistence.storage.stored_revision import StoredRevision
from persistence.xml import WordWatch

_ATTEMPTS = 3


# Search for revisions that are encrypted with a key, in one storage: a key that none needs may be retired.
#
# Older revisions, drafts and deleted documents count. A revision that cannot be read is a problem: it may need the key.


@dataclass(frozen=True, slots=True)
class KeyReferences:
    """Finds the revisions of one storage that are encrypted with a key."""

    # Attachments of a form are not read if it ``keeps_bodies_elsewhere``, with another service.
    rewriter: RevisionRewriter
    key_id: str
    keeps_bodies_elsewhere: Callable[[Form], bool]

    def of(self, form: Form, document: str) -> tuple[int, list[str]]:
        """Return how many revisions of a document, its attachments and its draft need the key, and problems."""
        for _ in range(_ATTEMPTS):
            problems = list[str]()
            found = [
                self._needs_key(each, problems)
                for each in living_revisions(self.rewriter, form, document, problems)
                if each.sidecar.body is None or not self.keeps_bodies_elsewhere(form)
            ]
            if None not in found:  # else a revision was moved meanwhile to a place that was read before
                return sum(map(bool, found)), problems
        return 0, [f"{form}/data/{document} is written too often to be read: run this again"]

    def _needs_key(self, revision: DataRevision, problems: list[str]) -> bool | None:
        hashed = revision.sidecar.sealed_hash
        if hashed is not None and key_of(hashed) == self.key_id:
            return True
        try:
            found = opened_revision(self.rewriter, revision)
            if found is None:
                return None
            with found.opened, errors.disk_errors("reading", revision.address):
                return self._is_in(revision, found)
        except errors.MalformedXmlError as error:
            problems.append(f"{revision.address} cannot be read: {error}")
        except (errors.BusyError, errors.ConfigurationError, errors.DamagedError) as error:
            problems.append(str(error))
        return False

    def _is_in(self, revision: DataRevision, found: StoredRevision) -> bool:
        if not revision.address.is_main:
            header = crypto.read_header(found.opened)
            return header is not None and header.key_id == self.key_id
        if revision.sidecar.encrypted is False and not found.is_edited:  # noted while the content was stored
            return False
        used = set[str | None]()

        def note(value: str, _: Place) -> str:
            used.add(key_of(value))
            return value

        with ValueDecrypter(note) as reading:
            for _ in reading.edited(iter(lambda: found.opened.read(CHUNK), b"")):
                pass
            if reading.seal is not None:
                used.add(key_of(reading.seal))
        return self.key_id in used


_PASSES = 3  # Passes over a document: a save during the first may have been encrypted by the definition before


# Every revision is rewritten in place, with its instants, stage and entity tag, while documents are read and saved.


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The rewriting of a revision; ``content`` and ``sidecar`` make the new ones, but for id, size and digest."""

    revision: DataRevision
    content: Callable[[StoredRevision], Iterator[bytes]]
    sidecar: Callable[[Sidecar, DocumentAddress], Sidecar]


class Reencryption:
    """Encrypts the data of one storage again (spec forms 4.5)."""

    def __init__(self, store: Storage, bodies_of: BodiesOf, at_rest: EncryptionAtRest) -> None:
        self.store = store
        self._rewriter = RevisionRewriter(store, bodies_of)
        self._at_rest = at_rest

    @property
    def has_key(self) -> bool:
        return self._at_rest.keys.ring().writing is not None

    def has_form(self, form: Form) -> bool:
        return not self._at_rest.dialect.is_designer(form) and form in self.store.forms(form.app)

    def forms(self) -> list[Form]:
        return sorted(form for form in self.store.forms() if not self._at_rest.dialect.is_designer(form))

    def encrypt(self, form: Form, document: str, version: int | None = None) -> tuple[int, list[str]]:
        """Encrypt a document of the version with its draft again; return the number of revisions, and problems."""
        self._at_rest.keys.ring().to_write()
        for collection in Collection:  # an interrupted rewrite may have left plain content
            self._rewriter.finish(DocumentAddress(form, collection, document))
        count, problems = 0, list[str]()
        for _ in range(_PASSES):
            plan = self.plan(form, document, version)
            problems = plan.problems
            if not plan.rewritings:
                break
            for rewriting in plan.rewritings:
                try:
                    count += self._rewrite(rewriting)
                except errors.PersistenceError as error:
                    problems.append(str(error))
            if problems:
                break
        return count, problems

    def plan(self, form: Form, document: str, version: int | None = None) -> DocumentPlan:
        """Return the rewritings of a document and its draft, or of those revisions that have the version."""
        plan = DocumentPlan(self._rewriter, self._at_rest, form, document)
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
                with errors.disk_errors(action):
                    upload.write(piece)
                watch.feed(piece)
            with errors.disk_errors(action):
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
    """Rewritings of one document and its draft, and ``problems`` with other revisions."""

    # ``named`` are the attachments that data names in controls, each with whether any of these is encrypted.
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
        revisions = [
            each
            for each in living_revisions(self.rewriter, self.form, self.document, self.problems)
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
        except (errors.BadRequestError, errors.BusyError, errors.ConfigurationError, errors.DamagedError) as error:
            self.problems.append(str(error))

    def _note_names(self, revision: DataRevision, found: StoredRevision) -> None:
        controls = self.at_rest.router.of(self.form).catalog.of(self.form, revision.sidecar.version).encrypted
        if controls is None:
            return
        with HolderReader(self._is_own) as reader:
            holders = reader.read(from_start(found.opened)).holders
        for holder in holders:
            if holder.held.collection is not None:
                key, path = (holder.held.collection, holder.held.name), holder.path
                is_encrypted = any(path[:length] in controls.paths for length in range(1, len(path) + 1))
                self.named[key] = self.named.get(key, False) or is_encrypted

    def _plan_attachment(self, revision: DataRevision, found: StoredRevision) -> None:
        address, sidecar = revision.address, revision.sidecar
        plain = self.at_rest.plain_file(found, address)
        if self.named.get((address.collection, address.name), plain is not None):
            header = crypto.read_header(found.opened) if sidecar.encrypted else None
            if header is None or header.key_id != self.at_rest.keys.ring().writing:

                def reencrypted(found: StoredRevision) -> Iterator[bytes]:
                    return crypto.encrypted(self._decrypted(address, found), address, self.at_rest.keys.ring())

                self.to_encrypt.append(Rewriting(revision, reencrypted, self._as_encrypted))
        elif plain is not None:
            self.to_decrypt.append(Rewriting(revision, partial(self._decrypted, address), self.at_rest.as_plain))

    def _plan_data(self, revision: DataRevision, found: StoredRevision) -> None:
        controls = self.at_rest.router.of(self.form).catalog.of(self.form, revision.sidecar.version).encrypted
        if controls is None:  # the paths of encrypted values
            found_before = self._survey(found, NOTHING_ENCRYPTED)
            places = frozenset(found_before.places)
            controls = EncryptedControls(places, places, frozenset(found_before.token_places))
        survey = self._survey(found, controls)
        has_values = survey.plain + survey.wanted > 0
        sealed, plain = revision.sidecar.sealed_hash, revision.sidecar.client_hash
        is_hash_done = not (has_values and plain is not None)
        if sealed is not None:
            is_hash_done = has_values and self.at_rest.cipher(revision.address).is_current(sealed)
        if not (survey.is_done and is_hash_done):
            content = partial(self._encrypted_data, revision.address, controls)
            sidecar = self._as_encrypted if has_values else self.at_rest.as_plain
            self.data.append(Rewriting(revision, content, sidecar))

    def _survey(self, found: StoredRevision, controls: EncryptedControls) -> EncryptionSurvey:
        cipher = self.at_rest.cipher(DocumentAddress(self.form, Collection.DATA, self.document))
        with_token = self._with_token(controls)

        def is_current(value: str, token: str | None, path: Path) -> bool:
            return cipher.is_current(value, token) and (token is not None) is (path in with_token)

        with EncryptionSurvey(controls.paths, controls.values, is_current, self._will_be_encrypted) as survey:
            return survey.read(from_start(found.opened))

    def _is_own(self, held: AttachmentRef) -> bool:
        return (held.form, held.document) == (self.form, self.document)

    def _will_be_encrypted(self, held: AttachmentRef, is_labelled: bool) -> bool:  # noqa: FBT001 - as ``IsEncrypted`` has it
        if self._is_own(held) and held.collection is not None:
            will_be = self.named.get((held.collection, held.name))
            if will_be is not None:
                address = DocumentAddress(held.form, held.collection, held.document, held.name)
                sidecar = self.rewriter.store.sidecar(address)
                return will_be and sidecar is not None and not sidecar.deleted
        return self.at_rest.is_encrypted(held, is_labelled)

    def _encrypted_data(
        self, address: DocumentAddress, controls: EncryptedControls, found: StoredRevision
    ) -> Iterator[bytes]:
        plain = self.at_rest.decrypted(address, from_start(found.opened))
        cipher = DataCipher(self.at_rest.cipher(address), self._with_token(controls))
        with ValueEncrypter(
            controls.paths, controls.values, cipher.encrypt, cipher.seal, self._will_be_encrypted
        ) as sealing:
            yield from sealing.edited(plain)

    def _with_token(self, controls: EncryptedControls) -> frozenset[Path]:
        return controls.indexed if self.at_rest.finds_values(self.form) else frozenset()

    def _decrypted(self, address: DocumentAddress, found: StoredRevision) -> Iterator[bytes]:
        plain = self.at_rest.plain_file(found, address)
        yield from from_start(found.opened if plain is None else plain)

    def _as_encrypted(self, old: Sidecar, address: DocumentAddress) -> Sidecar:
        return self.at_rest.as_encrypted(self.at_rest.as_plain(old, address), address)


_MOST_WAITING = 100
_RETRY_AFTER = 30
_PAUSE = 0.5
_LONGEST_WAIT = 24 * 3600.0
_LONGEST_BEGIN = 1.0  # Seconds for which a request waits until its job has begun

DocumentDone = Callable[[list[str]], None]  # Called after each document, with its problems


def reindexing_xml(status: ReindexingStatus) -> bytes:
    numbers = {"document-current": status.current, "document-total": status.total}
    shown = numbers if status.state is ReindexingState.INDEXING else {}
    return element("status", attributes_of({"state": status.state.value, **shown})).encode()


class ReencryptionProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a form; ``version`` is ``None`` for all versions."""

    # A job that has not begun ``waits``; the numbers are then those of the job before.
    app: str
    name: str
    version: int | None
    current: int
    total: int
    waits: bool = False

    @property
    def form(self) -> Form:
        return Form(self.app, self.name)


@dataclass(frozen=True, slots=True)
class ReencryptionJob:
    """The re-encryption of a form, or of one version of it, in one storage."""

    # ``reindex`` rebuilds the index and the flat views: deleted rows of a database stay on the disk for a while.
    reencryption: Reencryption
    form: Form
    version: int | None
    reindex: Callable[[Form], None]
    begun: threading.Event = field(default_factory=threading.Event)  # Set when the job has begun or failed to

    @property
    def record(self) -> JobRecord:
        return self.reencryption.store.reencryption

    def note_waiting(self) -> None:
        """Record that the job waits, so that no process reports the state of the job before."""
        known = _progress_in(self.record)
        own = [each for each in known if each.form == self.form]
        before = own[-1] if own else ReencryptionProgress(self.form.app, self.form.name, self.version, 0, 0)
        waiting = msgspec.structs.replace(before, version=self.version, waits=True)
        others = known if self.record.is_taken() else [each for each in known if each not in own]
        self.record.write(msgspec.json.encode([waiting, *(each for each in others if not _is_same(each, waiting))]))

    def run(self, step: DocumentDone, is_ending: Callable[[], bool] = lambda: False) -> int:
        """Encrypt every document again, and report progress; return the number of rewritten revisions."""
        # When it ``is_ending`` it stops after a document; the next job of the form goes on from there.
        count, written = 0, 0.0
        with self.record.turn("another form is being re-encrypted", _LONGEST_WAIT, is_ending):
            total = sum(1 for _ in self.reencryption.store.documents_and_drafts(self.form))
            own = [each for each in _progress_in(self.record) if each.form == self.form]
            was_stopped = any(each.current < each.total for each in own)
            begun = ReencryptionProgress(self.form.app, self.form.name, self.version, 0, total)
            self._report(begun, lambda each: each.form != self.form)
            self.begun.set()
            for done, document in enumerate(self.reencryption.store.documents_and_drafts(self.form), 1):
                rewritten, problems = self.reencryption.encrypt(self.form, document, self.version)
                count += rewritten
                step(problems)
                if monotonic() >= written + _PAUSE:
                    written = monotonic()
                    self._report(msgspec.structs.replace(begun, current=min(done, total - 1)))
                if is_ending():
                    return count
            if count or was_stopped:
                self.reindex(self.form)
            self._report(msgspec.structs.replace(begun, current=total))
        return count

    def _report(self, own: ReencryptionProgress, stays: Callable[[ReencryptionProgress], bool] | None = None) -> None:
        """Record the progress beside that of other jobs, which is all that ``stays``."""
        with suppress(errors.PersistenceError):
            others = filter(stays or (lambda each: not _is_same(each, own)), _progress_in(self.record))
            self.record.write(msgspec.json.encode([*others, own]))


def _is_same(one: ReencryptionProgress, other: ReencryptionProgress) -> bool:
    return (one.form, one.waits) == (other.form, other.waits)


def _progress_in(record: JobRecord) -> list[ReencryptionProgress]:
    try:
        return msgspec.json.decode(record.read(), type=list[ReencryptionProgress])
    except msgspec.DecodeError:
        return []


@dataclass(eq=False)
class ReencryptionJobs(Closable):
    """Runs jobs one after the other in its own thread, with the progress in ``records``; ``log`` gets failures."""

    # Where revisions are only added (``is_append_only``), who begins a job must have shown a second key.
    records: Sequence[JobRecord]
    job_of: Callable[[Form, int | None], ReencryptionJob]
    log: Callable[[Form, str], None]
    is_append_only: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _jobs: Jobs[Form] = field(init=False)

    def __post_init__(self) -> None:
        self._jobs = Jobs("re-encryption", self._failed)

    def begin(self, form: Form, version: int | None) -> bool:
        """Begin to encrypt a form again in the background, and return whether the form exists."""
        job = self.job_of(form, version)
        if self.is_append_only:
            require_second_key()
        if not job.reencryption.has_key:
            raise errors.NotSupportedError("there is no encryption key: make one with persistence encryption-key new")
        if not job.reencryption.has_form(form):
            return False
        with self._lock:
            if self._jobs.is_ending():
                raise closed("re-encryption")
            if len(self._jobs) > _MOST_WAITING:
                raise errors.BusyError("too many forms wait to be re-encrypted", _RETRY_AFTER)
            job.note_waiting()
            self._jobs.begin(form, partial(self._run, job))
        job.begun.wait(_LONGEST_BEGIN)
        return True

    def close(self) -> None:
        """End the running job after its current document; waiting jobs are not begun."""
        self._jobs.close()

    def states(self) -> list[tuple[ReencryptionProgress, str]]:
        states = list[tuple[ReencryptionProgress, str]]()
        for record in self.records:
            has_begun = record.is_taken()  # first: a job that ends meanwhile has finished, and was not stopped
            forms = _progress_in(record)
            for each in forms:
                state = "stopped"
                if each.waits:
                    state = "waiting" if has_begun else state
                elif each.current >= each.total:
                    state = "finished"
                elif has_begun and each is forms[-1]:
                    state = "encrypting"
                states.append((each, state))
        return states

    def status(self) -> bytes:
        forms = ""
        for progress, state in self.states():
            fields = {
                "application-name": text(progress.app),
                "form-name": text(progress.name),
                "form-version": str(progress.version or ""),
                "current": str(progress.current),
                "total": str(progress.total),
            }
            content = "".join(element(name, content=each) for name, each in fields.items())
            forms += element("form", attribute("state", state), content=content)
        return element("forms", content=forms).encode()

    def _run(self, job: ReencryptionJob) -> None:
        def log_all(problems: list[str]) -> None:
            for problem in problems:
                self.log(job.form, problem)

        try:
            with removing() if self.is_append_only else nullcontext():  # the second key was shown to ``begin``
                job.run(log_all, self._jobs.is_ending)
        finally:
            job.begun.set()

    def _failed(self, form: Form, error: Exception) -> None:
        self.log(form, str(error) if isinstance(error, errors.PersistenceError) else f"{type(error).__name__}: {error}")
