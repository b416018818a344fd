"""The turn, the progress and the requests of rebuilds: the same for every engine of the index."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import msgspec

from persistence.closable import taking
from persistence.errors import BusyError, PersistenceError
from persistence.index.protocol import ReindexingState, ReindexingStatus
from persistence.model.addresses import Form
from persistence.storage.storage import JobRecord, Readable

LONGEST_WAIT = 24 * 3600.0  # Seconds for which a rebuild waits for another one, which comes to an end
_PAUSE = 0.2  # Seconds between two reports of progress
_MOST_AT_ONCE = 2  # Calls in a process that run or wait: each keeps a thread, of which there are few
_RETRY_AFTER = 30

Progress = Callable[[int], None]  # Hears how many more documents have been read


@contextmanager
def reported(
    record: JobRecord,
    count: Callable[[], int],
    progress: Progress = lambda _: None,
    is_ending: Callable[[], bool] = lambda: False,
) -> Iterator[Progress]:
    """Wait for other rebuilds to end, and report the progress of one during the block, also to ``progress``.

    Raises ``BusyError`` where others rebuilt for very long, or the process ``is_ending``.
    """
    with record.turn("another index is being made", LONGEST_WAIT, is_ending):
        total, current, written = count(), 0, float("-inf")

        def report(documents: int) -> None:
            nonlocal current, written
            current += documents
            progress(documents)
            if time.monotonic() > written + _PAUSE:
                written = time.monotonic()
                status = ReindexingStatus(ReindexingState.INDEXING, min(current, total), total)
                with suppress(PersistenceError):
                    record.write(msgspec.json.encode(status))

        report(0)
        yield report


def status_in(record: JobRecord) -> ReindexingStatus:
    """Return the progress of the rebuild in a record, whichever process does it."""
    if not record.is_taken():
        return ReindexingStatus()
    try:
        found = msgspec.json.decode(record.read(), type=ReindexingStatus)
    except msgspec.DecodeError:
        found = ReindexingStatus()
    return replace(found, state=ReindexingState.INDEXING)


class RequestedRebuilds:
    """Rebuilds indexes on request. A ``Reindexer``; ``rebuild`` does it for some forms, or one version of one.

    Each call ends when the rebuild is done; of two at once the second waits, and more are refused.
    """

    def __init__(
        self,
        view: Readable,
        rebuild: Callable[[Sequence[Form], int | None], None],
        status: Callable[[], ReindexingStatus],
    ) -> None:
        self._view = view
        self._rebuild = rebuild
        self.status = status
        self._turns = threading.BoundedSemaphore(_MOST_AT_ONCE)

    def all(self) -> None:
        self._run(tuple(self._view.forms()), None)

    def version(self, form: Form, number: int | None) -> None:
        if form in set(self._view.forms(form.app)):
            self._run((form,), number)

    def _run(self, forms: Sequence[Form], version: int | None) -> None:
        refusal = BusyError("indexes are being rebuilt, and others wait for their turn already", _RETRY_AFTER)
        with taking(self._turns, refusal):
            self._rebuild(forms, version)
