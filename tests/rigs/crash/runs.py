"""Requests under test, recorded, and the search for a crash that breaks a promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from persistence.storage.layout import TRASH
from tests.in_process import InProcess
from tests.initialised import initialised
from tests.rigs import aftermath, views
from tests.rigs.aftermath import Scene
from tests.rigs.crash import traces
from tests.rigs.crash.model import ACKNOWLEDGED, Disk, Operation, State, materialise, tree_of
from tests.rigs.scenarios import (
    ATTACH_OVER,
    CREATE,
    DELETE_DATA,
    FIRST_REPLACE,
    PROMOTE,
    PUBLISH_SECOND,
    Scenario,
    Step,
    send,
)
from tests.rigs.views import Comparison, Views
from tests.service import Answer, running

RECORDED = (CREATE, FIRST_REPLACE, PROMOTE, DELETE_DATA, PUBLISH_SECOND, ATTACH_OVER)
"""The requests whose crashes are searched."""

FORM = "app/form"


@dataclass(frozen=True, slots=True)
class Recording:
    """What one request did: to which tree, what a client found before it and after it, and every operation.

    ``setup`` are the writes before it, recorded too, because what those left to do may matter.
    """

    before: State
    setup: tuple[Operation, ...]
    operations: tuple[Operation, ...]
    scene: Scene
    after: Views

    def but(self, operations: tuple[Operation, ...]) -> Recording:
        return replace(self, operations=operations)


def record(scenario: Scenario, directory: Path) -> Recording:
    with running(directory, workers=1, threads=2) as service:
        service.get(f"{FORM}/data/document/data.xml")  # an answer means that the worker is done with trying the disk
        before, setup, log = tree_of(service.data), list[Operation](), directory / "strace.log"

        def traced(step: Step) -> Answer:
            with traces.recording(service, log) as operations:
                answer = send(service, FORM, step)
            setup.extend(operations)
            return answer

        kept = aftermath.kept_by(scenario, traced)
        scene = Scene(FORM, scenario, kept, views.seen(service, FORM, scenario.resources))
        with traces.recording(service, log) as operations:
            answer = scene.ask(service)
        assert answer.status in (201, 204), answer.cause
        assert operations.count(ACKNOWLEDGED) == 1, "the log does not show the answer"
        after = aftermath.expected(service, scene)
    return Recording(before, tuple(setup), tuple(operations), scene, after)


class Judge(InProcess):
    """Makes one tree after the other real below a root, and says what is wrong with it."""

    def __init__(self, root: Path) -> None:
        super().__init__(Path(initialised(root)))

    def faults(self, state: State, recording: Recording, *, acknowledged: bool, killed: bool) -> Iterator[str]:
        """Everything wrong with a tree that a kill, or else a power cut, has left during a request or after it.

        Only a kill leaves nothing that the next writer would not clear away: a power cut may have taken the names
        that lead there.
        """
        scene = recording.scene
        materialise(state, self.data)
        found = views.seen(self, scene.form, scene.scenario.resources)
        for resource, view in found.items():
            if view not in (scene.before[resource], recording.after[resource]):
                yield f"{resource.path} is none of the two revisions: {view.status} {view.body[-60:]!r}"
        comparison = Comparison(scene.before, found, recording.after)
        yield from comparison.faults(scene.scenario)
        if acknowledged and not all(comparison.committed(scene.scenario)):
            yield "acknowledged, and not there"
        yield from views.history_faults(self, scene.form, scene.known(found), found)
        yield from aftermath.written_again(self, scene, found)
        if killed:
            yield from (f"the next write leaves {text}" for text in aftermath.left(self.data, scene.form))


def search(recording: Recording, judge: Judge, *, ordered: bool) -> Iterator[list[str]]:
    """Crash after every operation of the request, in every way: the faults of each different tree that this leaves.

    Trees that differ only in the trash count as one: nothing is ever read there, and every start empties it.
    """
    disk = Disk.holding(recording.before, ordered=ordered)
    for operation in recording.setup:
        disk.do(operation)
    known = set[tuple[State, bool, bool]]()
    acknowledged = False
    for step in (None, *recording.operations):
        if step is not None:
            disk.do(step)
        acknowledged = acknowledged or step == ACKNOWLEDGED
        cuts = ((state, False) for state in disk.after_a_power_cut())
        for whole, killed in ((disk.after_a_kill(), True), *cuts):
            state = tuple(entry for entry in whole if not entry.path.startswith(f"{TRASH}/"))
            if (state, acknowledged, killed) not in known:
                known.add((state, acknowledged, killed))
                faults = judge.faults(state, recording, acknowledged=acknowledged, killed=killed)
                shown = "nothing" if step is None else repr(step)[:200]
                yield [f"after {shown}: {fault}" for fault in faults]
