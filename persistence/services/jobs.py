"""Rebuilding indexes and encrypting forms again on request, with the progress as XML (spec search 5, forms 4.5)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

import msgspec

from persistence.closable import Closable, closed
from persistence.errors import BusyError, NotSupportedError, PersistenceError
from persistence.forms.messages import attribute, element, text
from persistence.index.protocol import ReindexingState
from persistence.model.addresses import Form
from persistence.providers.router import Router
from persistence.services.reencryption import Reencryption
from persistence.storage.managed import JobRecord

_MOST_WAITING = 100
_RETRY_AFTER = 30
_PAUSE = 0.5
_LONGEST_WAIT = 24 * 3600.0
_LONGEST_END = 10.0
"""Seconds for which ``close`` waits for the current document."""
_LONGEST_BEGIN = 1.0
"""Seconds for which a request waits until its job has begun."""

DocumentDone = Callable[[list[str]], None]
"""Called after each document, with its problems."""


class Reindexing:
    """Rebuilds the indexes of the providers."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def all(self) -> None:
        """Rebuild the indexes of all active providers, one after the other."""
        self._router.reindex_all()

    def version(self, form: Form, number: int) -> None:
        """Rebuild the index of one version of a form; do nothing where there is no such form."""
        self._router.reindex(form, number)

    def status(self) -> bytes:
        """Return the progress of the first provider that is rebuilding, in XML."""
        status = self._router.reindexing_status()
        progress = attribute("state", status.state.value)
        if status.state is ReindexingState.INDEXING:
            progress += attribute("document-current", str(status.current)) + attribute(
                "document-total", str(status.total)
            )
        return element("status", progress).encode()


class ReencryptionProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a form; ``version`` is ``None`` for all versions.

    A job that has not begun ``waits``; the numbers are then those of the job before.
    """

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
    """The re-encryption of a form, or of one version of it, in one storage.

    ``reindex`` rebuilds the index and the flat views: deleted rows of a database stay on the disk for a while.
    """

    reencryption: Reencryption
    form: Form
    version: int | None
    reindex: Callable[[Form], None]
    begun: threading.Event = field(default_factory=threading.Event)
    """Set when the job has begun or failed to."""

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
        """Encrypt every document again, and report progress; return the number of rewritten revisions.

        When it ``is_ending`` it stops after a document; the next job of the form goes on from there.
        """
        count = 0
        with self.record.turn("another form is being re-encrypted", _LONGEST_WAIT, is_ending):
            total = sum(1 for _ in self.reencryption.store.documents_and_drafts(self.form))
            own = [each for each in _progress_in(self.record) if each.form == self.form]
            was_stopped = any(each.current < each.total for each in own)
            report = _ProgressWriter(self, total)
            self.begun.set()
            for done, document in enumerate(self.reencryption.store.documents_and_drafts(self.form), 1):
                rewritten, problems = self.reencryption.encrypt(self.form, document, self.version)
                count += rewritten
                step(problems)
                report.write(min(done, total - 1))
                if is_ending():
                    return count
            if count or was_stopped:
                self.reindex(self.form)
            report.write(total, is_last=True)
        return count


class _ProgressWriter:
    """Writes the progress of a job into the record, beside the progress of other jobs."""

    def __init__(self, job: ReencryptionJob, total: int) -> None:
        self._record = job.record
        self._own = ReencryptionProgress(job.form.app, job.form.name, job.version, 0, total)
        self._written = 0.0
        self._write(self._own, [each for each in _progress_in(self._record) if each.form != job.form])

    def write(self, current: int, *, is_last: bool = False) -> None:
        if not is_last and monotonic() < self._written + _PAUSE:
            return
        self._written = monotonic()
        with suppress(PersistenceError):
            others = [each for each in _progress_in(self._record) if not _is_same(each, self._own)]
            self._write(msgspec.structs.replace(self._own, current=current), others)

    def _write(self, own: ReencryptionProgress, others: list[ReencryptionProgress]) -> None:
        with suppress(PersistenceError):
            self._record.write(msgspec.json.encode([*others, own]))


def _is_same(one: ReencryptionProgress, other: ReencryptionProgress) -> bool:
    return (one.form, one.waits) == (other.form, other.waits)


def _progress_in(record: JobRecord) -> list[ReencryptionProgress]:
    try:
        return msgspec.json.decode(record.read(), type=list[ReencryptionProgress])
    except msgspec.DecodeError:
        return []


def _state_of(progress: ReencryptionProgress, has_begun: bool, *, is_last: bool) -> str:  # noqa: FBT001
    if progress.waits:
        return "waiting" if has_begun else "stopped"
    return "finished" if progress.current >= progress.total else "encrypting" if has_begun and is_last else "stopped"


def _progress_xml(progress: ReencryptionProgress, state: str) -> str:
    fields = {
        "application-name": text(progress.app),
        "form-name": text(progress.name),
        "form-version": str(progress.version or ""),
        "current": str(progress.current),
        "total": str(progress.total),
    }
    content = "".join(element(name, content=each) for name, each in fields.items())
    return element("form", attribute("state", state), content=content)


class ReencryptionJobs(Closable):
    """Runs jobs one after the other in its own thread, with the progress in ``records``; ``log`` gets failures."""

    def __init__(
        self,
        records: Iterable[JobRecord],
        job_of: Callable[[Form, int | None], ReencryptionJob],
        log: Callable[[Form, str], None],
    ) -> None:
        self._records = tuple(records)
        self._job_of = job_of
        self._log = log
        self._lock = threading.Lock()
        self._waiting: deque[ReencryptionJob] = deque()
        self._thread: threading.Thread | None = None
        self._is_ending = False

    def begin(self, form: Form, version: int | None) -> bool:
        """Begin to encrypt a form again in the background, and return whether the form exists."""
        job = self._job_of(form, version)
        if not job.reencryption.has_key:
            raise NotSupportedError("there is no encryption key: make one with persistence encryption-key new")
        if not job.reencryption.has_form(form):
            return False
        with self._lock:
            if self._is_ending:
                raise closed("re-encryption")
            if len(self._waiting) >= _MOST_WAITING:
                raise BusyError("too many forms wait to be re-encrypted", _RETRY_AFTER)
            job.note_waiting()
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="reencryption", daemon=True)
                self._thread.start()
        job.begun.wait(_LONGEST_BEGIN)
        return True

    def close(self) -> None:
        """End the running job after its current document; waiting jobs are not begun."""
        with self._lock:
            self._is_ending = True
            self._waiting.clear()
            thread = self._thread
        if thread is not None:
            thread.join(_LONGEST_END)

    def states(self) -> list[tuple[ReencryptionProgress, str]]:
        """Return the progress of all forms, each with its state."""
        states = list[tuple[ReencryptionProgress, str]]()
        for record in self._records:
            has_begun = record.is_taken()  # first: a job that ends meanwhile has finished, and was not stopped
            forms = _progress_in(record)
            states += ((each, _state_of(each, has_begun, is_last=each is forms[-1])) for each in forms)
        return states

    def status(self) -> bytes:
        """Return the progress of all forms in XML."""
        return element("forms", content="".join(_progress_xml(*each) for each in self.states())).encode()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                job = self._waiting.popleft()
            try:
                job.run(partial(self._log_all, job.form), lambda: self._is_ending)
            except PersistenceError as error:
                if not self._is_ending:
                    self._log(job.form, str(error))
            except Exception as error:  # noqa: BLE001 - the thread goes on with the next job
                self._log(job.form, f"{type(error).__name__}: {error}")
            finally:
                job.begun.set()

    def _log_all(self, form: Form, problems: list[str]) -> None:
        for problem in problems:
            self._log(form, problem)
