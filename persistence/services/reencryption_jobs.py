"""Encrypting forms anew on request, one after the other, and how far that is (spec forms 4.5)."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from time import monotonic

import msgspec

from persistence.closable import Closable, closed
from persistence.errors import BusyError, NotSupportedError, PersistenceError, disk_errors
from persistence.forms.messages import attribute, element, text
from persistence.model.addresses import Form
from persistence.services.reencrypting import Reencryption
from persistence.storage import files, nofollow
from persistence.storage.layout import REENCRYPTED, REENCRYPTING
from persistence.storage.locks import LockFile

_MOST_WAITING = 100
_RETRY_AFTER = 30
_PAUSE = 0.5
_LONGEST_WAIT = 24 * 3600.0
_LONGEST_END = 10.0
"""Seconds for which ``close`` waits for the document that is just being encrypted."""


class State(Enum):
    """What is being done with a form, by its name in answers; what is stopped was killed or failed before its end."""

    ENCRYPTING = "encrypting"
    STOPPED = "stopped"
    FINISHED = "finished"


class Progress(msgspec.Struct, frozen=True):
    """How far a form is: how many of its documents are done. ``version`` is ``None`` where all versions are meant."""

    app: str
    name: str
    version: int | None
    current: int
    total: int

    def state(self, *, is_running: bool) -> State:
        """What is being done, where ``is_running`` says that somebody works on the form."""
        if self.current >= self.total:
            return State.FINISHED
        return State.ENCRYPTING if is_running else State.STOPPED

    def as_xml(self, state: State) -> str:
        """The element of the form in the status."""
        said = {
            "application-name": text(self.app),
            "form-name": text(self.name),
            "form-version": str(self.version or ""),
            "current": str(self.current),
            "total": str(self.total),
        }
        attributes = attribute("state", state.value)
        return element("form", attributes, content="".join(element(name, content=each) for name, each in said.items()))


Step = Callable[[list[str]], None]
"""Hears that a document is done, and what could not be."""


@dataclass(frozen=True, slots=True)
class Job:
    """All data of a form, or of one version of it, in the tree of ``root``.

    ``reindex`` makes anew what searches and reports ask: in a database, what is deleted stays on the disk for a while.
    """

    reencryption: Reencryption
    root: str
    form: Form
    version: int | None
    reindex: Callable[[Form], None]

    @contextmanager
    def begun(self, is_ending: Callable[[], bool]) -> Iterator[int]:
        """Wait until no other is being encrypted, and keep others waiting for a block; how many documents there are.

        Raises:
            BusyError: another one took very long, or it ``is_ending``.
        """
        with disk_errors("waiting for another form that is encrypted anew"):
            path = f"{self.root}/{REENCRYPTING}"
            files.ensure_file(path)
            said = "another form is being encrypted anew"
            with LockFile(path).exclusive(said, timeout=_LONGEST_WAIT, is_ending=is_ending):
                yield sum(1 for _ in self.reencryption.documents(self.form))

    def run(self, step: Step, is_ending: Callable[[], bool] = lambda: False) -> int:
        """Encrypt every document anew, and say how far that is; returns how many revisions were rewritten.

        When it ``is_ending`` it stops after a document; the next job of the form goes on from there.

        Raises:
            ConfigurationError: there is no key that encrypts.
            DiskError: the disk refuses.
        """
        count = 0
        with self.begun(is_ending) as total:
            known = [each for each in progress_in(self.root) if Form(each.app, each.name) == self.form]
            was_stopped = any(each.current < each.total for each in known)
            report = _Report(self, total)
            for done, document in enumerate(self.reencryption.documents(self.form), 1):
                rewritten, problems = self.reencryption.encrypt(self.form, document, self.version)
                count += rewritten
                step(problems)
                report.say(min(done, total - 1))
                if is_ending():
                    return count
            if count or was_stopped:
                self.reindex(self.form)
            report.say(total, is_last=True)
        return count


class _Report:
    """Leaves for everybody how far a job is, beside what is known of jobs before."""

    def __init__(self, job: Job, total: int) -> None:
        self._job = job
        self._total = total
        self._others = [each for each in progress_in(job.root) if Form(each.app, each.name) != job.form]
        self._written = 0.0
        self.say(0, is_last=True)

    def say(self, current: int, *, is_last: bool = False) -> None:
        if not is_last and monotonic() < self._written + _PAUSE:
            return
        self._written = monotonic()
        form = self._job.form
        own = Progress(form.app, form.name, self._job.version, current, self._total)
        with suppress(OSError):  # nobody's data
            files.write_durably(f"{self._job.root}/{REENCRYPTED}", msgspec.json.encode([*self._others, own]))


def is_running(root: str) -> bool:
    """Whether a form of a tree is being encrypted anew: whoever does it holds the lock. Raises ``DiskError``."""
    with disk_errors("looking whether a form is being encrypted anew"):
        try:
            LockFile(f"{root}/{REENCRYPTING}").shared().close()
        except BusyError:
            return True
        except FileNotFoundError:
            return False
        return False


def progress_in(root: str) -> list[Progress]:
    """How far the forms of a tree are, those that are done too, the latest at the end. Raises ``DiskError``."""
    with disk_errors("looking how far encrypting anew is"):
        try:
            descriptor = nofollow.open_to_read(f"{root}/{REENCRYPTED}")
        except FileNotFoundError:
            return []
        try:
            return msgspec.json.decode(nofollow.read_small(descriptor), type=list[Progress])
        except msgspec.DecodeError:
            return []
        finally:
            os.close(descriptor)


def _status_of(root: str) -> str:
    """The elements of the forms of a tree; one at most is being encrypted, the latest.

    The lock is looked at first: what ends meanwhile has finished, and is not taken for stopped.
    """
    has_begun = is_running(root)
    forms = progress_in(root)
    states = (each.state(is_running=has_begun and each is forms[-1]) for each in forms)
    return "".join(each.as_xml(state) for each, state in zip(forms, states, strict=True))


class Reencrypts(Closable):
    """Begins jobs, and tells how far they are. ``job_of`` makes one; ``log`` hears what could not be done.

    It owns the thread that does one job after the other, as long as there are any.
    """

    def __init__(
        self, roots: tuple[str, ...], job_of: Callable[[Form, int | None], Job], log: Callable[[Form, str], None]
    ) -> None:
        self._roots = roots
        self._job_of = job_of
        self._log = log
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._is_ending = False

    def begin(self, form: Form, version: int | None) -> None:
        """Begin to encrypt a form anew; it goes on when this returns. Where there is no such form, nothing is done.

        Raises:
            BusyError: too many wait already, or this was closed.
            NotSupportedError: nothing is encrypted here, because there is no key (spec crud 8.6).
        """
        job = self._job_of(form, version)
        if not job.reencryption.has_key:
            raise NotSupportedError("there is no encryption key: make one with persistence key new")
        if not job.reencryption.has_form(form):
            return
        with self._lock:
            if self._is_ending:
                raise closed("encrypting anew")
            if len(self._waiting) >= _MOST_WAITING:
                raise BusyError("too many forms wait to be encrypted anew", _RETRY_AFTER)
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="reencryption", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the job that is under way after the document it is at; those that wait are not begun."""
        with self._lock:
            self._is_ending = True
            self._waiting.clear()
            thread = self._thread
        if thread is not None:
            thread.join(_LONGEST_END)

    def status(self) -> bytes:
        """How far forms are: the XML of the answer."""
        return element("forms", content="".join(map(_status_of, self._roots))).encode()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                job = self._waiting.popleft()
            self._run(job)

    def _run(self, job: Job) -> None:
        try:
            job.run(partial(self._tell, job.form), lambda: self._is_ending)
        except PersistenceError as error:
            if not self._is_ending:
                self._log(job.form, str(error))

    def _tell(self, form: Form, problems: list[str]) -> None:
        for problem in problems:
            self._log(form, problem)
