"""Requests under test, recorded, and the search for a crash that breaks a promise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from pathlib import Path

from persistence.model.addresses import DocumentAddress
from persistence.store import reading
from persistence.store.layout import Layout
from tests.crash import traces, trees
from tests.crash.judge import ADDRESS, DRAFT, Change, Judge, Revision
from tests.crash.model import Disk
from tests.crash.operations import Acknowledged, Operation
from tests.crash.trees import State
from tests.service import Service, running

# One length, so that nothing but the content itself tells one from the other.
_OLD, _NEW, _DRAFT = (f"<d>{word:->400}</d>".encode() for word in ("old", "new", "draft"))


class Request(Enum):
    """The requests under test."""

    CREATE = "PUT of new data"
    REPLACE = "PUT over data"
    PROMOTE = "PUT over data with a draft"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Recording:
    """What one request did: to which tree, how the document was stored before, and every operation.

    ``setup`` is the write before it, recorded too, because what that one left to do may matter.
    """

    before: State
    setup: tuple[Operation, ...]
    operations: tuple[Operation, ...]
    change: Change

    def but(self, operations: tuple[Operation, ...]) -> Recording:
        """The same request, had it done these operations."""
        return replace(self, operations=operations)


def record(request: Request, directory: Path) -> Recording:
    """Serve one request for real, in a service of its own, and record it."""
    with running(directory, workers=1, threads=2) as service:
        service.get(str(ADDRESS))  # an answer means that the worker has tried out the disk and is done with it
        before, log = trees.seen(service.data, traces.UNTRACED), directory / "strace.log"
        old, draft, setup = None, None, list[Operation]()
        if request is not Request.CREATE:
            old, setup = _recorded(service, log, ADDRESS, _OLD)
        if request is Request.PROMOTE:
            draft, more = _DRAFT, _recorded(service, log, DRAFT, _DRAFT)[1]
            setup += more
        new, operations = _recorded(service, log, ADDRESS, None if request is Request.DELETE else _NEW)
    return Recording(before, tuple(setup), tuple(operations), Change(old, new, draft))


def _recorded(
    service: Service, log: Path, address: DocumentAddress, body: bytes | None
) -> tuple[Revision, list[Operation]]:
    with traces.recording(service, log) as operations:
        answer = service.delete(str(address)) if body is None else service.put(str(address), body)
    assert answer.status in (201, 204), answer.cause
    sidecar = reading.read_sidecar(Layout(str(service.data)).place(address))
    assert sidecar is not None
    assert sidecar.id == answer["ETag"]
    assert operations.count(Acknowledged()) == 1, "the log does not show the answer"
    return Revision(sidecar.id, sidecar.modified, body), operations


def search(recording: Recording, judge: Judge, *, ordered: bool) -> Iterator[list[str]]:
    """Crash after every operation of the request, in every way: the faults of each different tree that this leaves."""
    disk = Disk.holding(recording.before, ordered=ordered)
    for operation in recording.setup:
        disk.do(operation)
    known = set[tuple[State, bool, bool]]()
    acknowledged = False
    steps: Iterable[Operation | None] = chain([None], recording.operations)
    for step in steps:
        if step is not None:
            disk.do(step)
        acknowledged = acknowledged or isinstance(step, Acknowledged)
        for state, killed in _crashes(disk):
            if (state, acknowledged, killed) not in known:
                known.add((state, acknowledged, killed))
                faults = judge.faults(state, recording.change, acknowledged=acknowledged, killed=killed)
                yield [f"after {_shown(step)}: {fault}" for fault in faults]


def _crashes(disk: Disk) -> Iterator[tuple[State, bool]]:
    yield disk.after_a_kill(), True
    yield from ((state, False) for state in disk.after_a_power_cut())


def _shown(operation: Operation | None) -> str:
    return "nothing" if operation is None else repr(operation)[:200]
