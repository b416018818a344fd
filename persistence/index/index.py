"""The index as the services know it: it answers for the tree as it is, or says that it cannot yet."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TypeVar

from persistence.closable import Closable
from persistence.errors import BusyError, DiskError, DiskFullError, disk_errors
from persistence.index import connections, distinct, finding, room
from persistence.index.auditing import Audit
from persistence.index.budget import Budget
from persistence.index.connections import Connections, Reader
from persistence.index.damage import SENSELESS, UnusableError
from persistence.index.finding import Found
from persistence.index.flat.views import FlatViews
from persistence.index.generations import Generations
from persistence.index.looking import Looking
from persistence.index.making import Maker
from persistence.index.pending import Pending
from persistence.index.pool import Pool
from persistence.index.processes import Processes
from persistence.index.read_only import ReadOnly
from persistence.index.sources import NOTHING_ELSEWHERE, Elsewhere, Source
from persistence.index.taking import Taking
from persistence.index.work import Aim, Task, Work
from persistence.model.addresses import Form
from persistence.model.search import Field, Hits, Query, Scope
from persistence.storage.layout import Layout
from persistence.xml.streaming import Streaming

_ATTEMPTS = 5
_PAGES = 3
"""How often a page is looked for again because documents on it have changed meanwhile."""

_MAKING = 5.0
"""Seconds for which it is waited for somebody else who makes a small index."""
_MAKING_RETRY_AFTER = 5

_RENEWING = 3.0
"""Seconds for which a search reads documents anew before it says that it takes longer."""
_RETRY_AFTER = 2

_DOUBT = 3600.0
"""Seconds for which an index that was made anew for such an error is believed."""

_NOTHING_FOUND: tuple[int, Sequence[Found]] = (0, ())
_NO_VALUES: Sequence[str] = ()

T = TypeVar("T")


class Index(Closable):
    """What is known of the documents of forms, one file for each.

    It owns its connections, the processes that make it, ``pending`` and ``flat``: ``close`` closes them.

    Methods raise ``BusyError`` while an index is being made, and ``DiskError`` where the disk refuses. On a full disk
    an index that is up to date still answers; ``DiskFullError`` says that something would have to be written first.
    ``source_of`` gives the tree of a form. ``flat`` are the flat views of the tree, where it is to have any: notes
    are for both. ``elsewhere`` are the definitions that other trees have.
    """

    def __init__(
        self,
        root: str,
        pending: Pending,
        source_of: Callable[[Form], Source],
        flat: FlatViews | None = None,
        elsewhere: Elsewhere = NOTHING_ELSEWHERE,
    ) -> None:
        self.flat = flat
        self._elsewhere = elsewhere
        self._root = os.path.realpath(root)
        self._layout = Layout(self._root)
        self._pending = pending
        self._source = lru_cache(256)(source_of)
        self._pool = Pool(self._root)
        self._lock = threading.Lock()
        self._doubted: dict[Form, float] = {}
        self._processes = Processes()
        self._makers: dict[Form, subprocess.Popen[bytes]] = {}

    def close(self) -> None:
        """End the processes that make it, close the files, and leave what is noted to others."""
        self._processes.close()
        self._pool.close()
        if self.flat is not None:
            self.flat.close()
        self._pending.close()

    def search(self, form: Form, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:
        """The documents that a query finds, within a budget if there is one; of a form that there is not, none.

        What a page shows is compared with the tree: so it is as it is, also where a person has edited a file.
        """
        source = self._source(form)

        def look(reader: Reader) -> tuple[int, Sequence[Found]]:
            if budget is not None:
                budget.restart()
            with reader.within(budget):
                return finding.find(reader.connection, scope, query, reader.sample.rarity, budget)

        for _ in range(_PAGES):
            total, page = self._asked(form, look, _NOTHING_FOUND)
            stale = [
                each.hit.document
                for each in page
                if each.mark != source.mark(each.hit.document, is_draft=each.hit.is_draft)
            ]
            if not stale:
                break
            self.take_in(form, stale)
            if self.flat is not None:
                self.flat.take_in(form, stale)
        return Hits(total, tuple(each.hit for each in page))

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:
        """The different values of a field or control, sorted without regard to case, then as they are.

        One of a field is empty where a document has none; of a control, none is. A budget counts if there is one.
        """

        def work(reader: Reader) -> Sequence[str]:
            with reader.within(budget):
                return list(distinct.distinct(reader.connection, scope, by, reader.sample.rarity, budget))

        yield from self._asked(form, work, _NO_VALUES)

    def checking(self, form: Form, version: int) -> Streaming:
        """What checks a document of a form while it is received, and may read for the index what it holds."""
        return self._source(form).checking(version)

    def take_in(self, form: Form, documents: Iterable[str]) -> None:
        """Bring the rows of some documents up to date; where there is no index, they are read when one is made."""
        documents = tuple(documents)
        generations = self._generations(form)
        for _ in range(_ATTEMPTS):
            with suppress(_AgainError), disk_errors("bringing the index up to date of", form):
                room.require(self._root)
                path = generations.current()
                if path is None:
                    return
                with self._minding(form, path):
                    self._bring_up(form, self._pool.used(form, path), documents)
                if generations.current() == path:  # otherwise another one has been made, perhaps without them
                    return
        raise self._restless(form)

    def merge(self, form: Form) -> bool:
        """Tidy the index of a form a little; says whether there may be more to tidy."""
        with suppress(_AgainError), disk_errors("tidying the index of", form):
            room.require(self._root)
            path = self._generations(form).current()
            if path is not None:
                with self._minding(form, path), self._pool.used(form, path).writing() as connection:
                    return Taking(connection, self._source(form)).merge()
        return False

    def make_ready(self, form: Form) -> None:
        """Make the index of a form ready, if there is none that can be used."""
        if self._generations(form).current() is None:
            with disk_errors("making the index of", form):
                room.require(self._root)
                self._make_ready(form)

    def forget(self, form: Form) -> None:
        """Let the index of a form be made anew: something has changed that it cannot hear of. Raises ``OSError``."""
        generations = self._generations(form)
        path = generations.current()
        if path is not None:
            generations.forget(path)

    def take_in_abandoned(self) -> None:
        """Take in what processes that have ended have noted, so that not every search looks at it; flat views too.

        Raises:
            OSError: a log cannot be read, or not be removed.
        """
        for left in self._pending.abandoned():
            by_form: defaultdict[Form, list[str]] = defaultdict(list)
            for noted in left.noted:
                by_form[noted.form].append(noted.document)
            for form, documents in by_form.items():
                self.take_in(form, documents)
                if self.flat is not None:
                    self.flat.take_in(form, documents)
            left.remove()

    def abandoned(self, seconds: float) -> Iterator[str]:
        """The paths of such notes that nobody has taken in for so long. Raises ``OSError``."""
        return self._pending.left(seconds)

    def audit(self, form: Form) -> Audit:
        """What compares the index of a form with its tree."""
        return Audit(self._root, self._generations(form), self._source(form), self._pending)

    def maker(self, form: Form) -> Maker:
        """What makes the index of a form."""
        return Maker(self._root, self._generations(form), self._source(form))

    def _asked(self, form: Form, work: Callable[[Reader], T], nothing: T) -> T:
        """What a search finds, in an index in which all is that was acknowledged before it was asked."""
        with disk_errors("looking what the index has still to take in of", form):
            noted = tuple(each.document for each in self._pending.outstanding() if each.form == form)
        try:
            return self._asked_of_used(form, work, nothing, noted)
        except DiskError as error:
            reading = ReadOnly(self._root, self._generations(form), self._source(form))
            try:
                with disk_errors("reading the index of", form):
                    return reading.asked(work, nothing, noted)
            except DiskFullError:
                if isinstance(error, DiskFullError) or room.is_used_up(self._root):
                    raise
                raise error from None

    def _asked_of_used(self, form: Form, work: Callable[[Reader], T], nothing: T, noted: Iterable[str]) -> T:
        """The same where there is room: what is missing is taken in first."""
        for _ in range(_ATTEMPTS):
            with suppress(_AgainError), disk_errors("using the index of", form):
                room.require(self._root)
                used = self._ready(form)
                if used is None:
                    return nothing
                with self._minding(form, used.path):
                    self._catch_up(form, used, noted)
                    with used.reading() as reader:
                        return work(reader)
        raise self._restless(form)

    def _ready(self, form: Form) -> Connections | None:
        """The index, ready to be asked; ``None`` where there are no documents."""
        path = self._generations(form).current()
        if path is not None:
            with self._minding(form, path):
                used = self._pool.used(form, path)
                if self._pool.is_ready(used):
                    return used
        elif next(self._source(form).documents(), None) is None:
            return None
        self._pool.discard(form)
        self._make_ready(form)
        raise _AgainError

    @contextmanager
    def _minding(self, form: Form, path: str) -> Iterator[None]:
        """Use an index for a block; one that turns out to be damaged is given up.

        Raises:
            _AgainError: it was given up; the next one is to be used.
        """
        try:
            yield
        except UnusableError as error:
            self._pool.discard(form)
            self._generations(form).forget(path)
            raise _AgainError from error
        except sqlite3.Error as error:
            self._pool.discard(form)
            if self._generations(form).current() != path:  # another one is in its place, and its file is removed
                raise _AgainError from error
            if not connections.is_damage(error, path):
                raise connections.as_told(error, f"the index of {form}") from error
            self._generations(form).forget(path)
            raise _AgainError from error
        except FileNotFoundError as error:
            self._pool.discard(form)
            if os.path.exists(path):
                raise
            self._generations(form).forget(path)  # or another one is in its place already
            raise _AgainError from error
        except SENSELESS as error:
            self._pool.discard(form)
            if not self._is_first_doubt(form):
                raise DiskError(f"the index of {form} makes no sense: {type(error).__name__}: {error}") from error
            self._generations(form).forget(path)
            raise _AgainError from error

    def _is_first_doubt(self, form: Form) -> bool:
        """Whether an index that makes no sense is to be made anew; if that does not help, it is not the index."""
        now = time.monotonic()
        last = self._doubted.get(form)
        self._doubted[form] = now
        return last is None or now > last + _DOUBT

    @staticmethod
    def _restless(form: Form) -> BusyError:
        return BusyError(f"the index of {form} is being made again and again", _RETRY_AFTER)

    def _make_ready(self, form: Form) -> None:
        """Make an index ready, at once if the form is small, else by a process of its own.

        Raises:
            BusyError: that will take a while, or somebody else is at it.
        """
        maker = self.maker(form)
        if not maker.is_small:
            self._begin(form)
            raise BusyError(f"the index of {form} is being made", _MAKING_RETRY_AFTER)
        try:
            maker.make(processes=1, timeout=_MAKING, progress=lambda _: None)
        except sqlite3.Error as error:
            raise connections.as_told(error, f"the index of {form}") from error

    def _begin(self, form: Form) -> None:
        """Begin to make a large index, once at a time."""
        with self._lock:
            process = self._makers.get(form)
            if process is None or process.poll() is not None:
                self._makers[form] = self._processes.begin(Work(self._root, (self.task(form),)))

    def make(self, work: Work) -> bool:
        """Do the work in a process of its own and wait for it; return whether it succeeded.

        Raises:
            BusyError: the index was closed.
            OSError: the process cannot be started.
        """
        return self._processes.run(work)

    def task(self, form: Form, aim: Aim = Aim.READY, only: int | None = None) -> Task:
        """The making of the index of a form (``work``)."""
        source = self._source(form)
        return Task(
            form.app,
            form.name,
            source.data_format,
            source.is_designer,
            aim,
            only,
            self._elsewhere.root(form),
            self._elsewhere.hand_edits.value,
        )

    def _catch_up(self, form: Form, used: Connections, documents: Iterable[str]) -> None:
        """Take in what has changed, of some documents and of definitions, which is looked at first: often nothing."""
        with used.reading() as reader:
            stale = Looking(reader.connection, self._source(form)).stale(documents)
        self._bring_up(form, used, stale)

    def _bring_up(self, form: Form, used: Connections, documents: Sequence[str]) -> None:
        """Take in what has changed, of documents that probably have, and of definitions."""
        source = self._source(form)
        with used.reading() as reader:
            looking = Looking(reader.connection, source)
            changed, outdated = looking.changed_definitions(), looking.outdated()
        if not (documents or changed or outdated):
            return
        with used.writing() as connection:
            taking = Taking(connection, source)
            taking.take_in(documents)
            if changed:
                taking.notice(changed)
            end = time.monotonic() + _RENEWING
            for version in Looking(connection, source).outdated():
                for _ in taking.renew(version):
                    if time.monotonic() > end:
                        raise BusyError(
                            f"documents of {form} are being read anew: its definition changed", _RETRY_AFTER
                        )

    def _generations(self, form: Form) -> Generations:
        return Generations(self._layout, form)


class _AgainError(Exception):
    """The index has changed under whoever was using it."""
