"""Requests under test, recorded, and the search for a crash that breaks a promise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from pathlib import Path

from persistence.model.addresses import Address, DefinitionAddress, DocumentAddress
from persistence.storage import stored_revision
from persistence.storage.layout import TRASH, Layout
from tests.crash import traces, trees
from tests.crash.judge import DATA, DRAFT, NEXT, PUBLISHED, SCAN, Change, Judge, Revision
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
    PROMOTE = "PUT over data with a draft and its attachments"
    DELETE = "DELETE"
    PUBLISH = "publish with next"
    ATTACH = "PUT over an attachment"


@dataclass(frozen=True, slots=True)
class Plan:
    """Which resource a request changes, whether it is there before, and what else is."""

    address: Address
    is_there: bool = True
    draft: tuple[DocumentAddress, ...] = ()
    others: tuple[Address, ...] = ()


PLANS = {
    Request.CREATE: Plan(DATA, is_there=False),
    Request.REPLACE: Plan(DATA),
    Request.PROMOTE: Plan(DATA, draft=DRAFT),
    Request.DELETE: Plan(DATA),
    Request.PUBLISH: Plan(NEXT, is_there=False, others=(PUBLISHED,)),
    Request.ATTACH: Plan(SCAN, others=(DATA,)),
}


@dataclass(frozen=True, slots=True)
class Recording:
    """What one request did: to which tree, how the resource was stored before, and every operation.

    ``setup`` are the writes before it, recorded too, because what those left to do may matter.
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
    plan = PLANS[request]
    with running(directory, workers=1, threads=2) as service:
        service.get(str(DATA))  # an answer means that the worker has tried out the disk and is done with it
        recorder = _Recorder(service, directory / "strace.log")
        before = trees.seen(service.data, traces.UNTRACED)
        others = tuple((address, recorder.put(address, _OLD)) for address in plan.others)
        old = recorder.put(plan.address, _OLD) if plan.is_there else None
        for address in plan.draft:
            recorder.put(address, _DRAFT)
        setup = tuple(recorder.operations)
        new = recorder.delete(plan.address) if request is Request.DELETE else recorder.put(plan.address, _NEW)
    draft = tuple((address, _DRAFT) for address in plan.draft)
    change = Change(plan.address, old, new, draft, others)
    return Recording(before, setup, tuple(recorder.operations[len(setup) :]), change)


class _Recorder:
    """Sends requests, and adds what each does to ``operations``."""

    def __init__(self, service: Service, log: Path) -> None:
        self._service = service
        self._log = log
        self.operations: list[Operation] = []

    def put(self, address: Address, body: bytes) -> Revision:
        return self._send("PUT", address, body)

    def delete(self, address: Address) -> Revision:
        return self._send("DELETE", address, None)

    def _send(self, method: str, address: Address, body: bytes | None) -> Revision:
        is_definition = isinstance(address, DefinitionAddress)
        path = f"{address.form}/form/{address.name}" if is_definition else str(address)
        own = {"Form_Definition_Version": "next"} if is_definition else {}
        with traces.recording(self._service, self._log) as operations:
            answer = self._service.ask(method, path, body, None, **own)
        assert answer.status in (201, 204), answer.cause
        sidecar = stored_revision.read_sidecar(Layout(str(self._service.data)).paths(address))
        assert sidecar is not None
        assert answer["ETag"] == f'"{sidecar.id}"'
        assert operations.count(Acknowledged()) == 1, "the log does not show the answer"
        self.operations += operations
        return Revision(sidecar.id, sidecar.modified, body)


def search(recording: Recording, judge: Judge, *, ordered: bool) -> Iterator[list[str]]:
    """Crash after every operation of the request, in every way: the faults of each different tree that this leaves.

    Trees that differ only in the trash count as one: nothing is ever read there, and every start empties it.
    """
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
    yield _without_trash(disk.after_a_kill()), True
    yield from ((_without_trash(state), False) for state in disk.after_a_power_cut())


def _without_trash(state: State) -> State:
    return tuple(entry for entry in state if not entry.path.startswith(f"{TRASH}/"))


def _shown(operation: Operation | None) -> str:
    return "nothing" if operation is None else repr(operation)[:200]
