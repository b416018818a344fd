"""The long run: ``python -m tests.rigs.faults``. Ends with tables, and with status 1 where anything does not hold."""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click

from tests.rigs import disks
from tests.rigs.faults import runs, slow
from tests.rigs.faults.descriptors import run_out
from tests.rigs.faults.filling import ROOMS, Story, fill_up, pass_the_floor, turn_read_only
from tests.rigs.faults.runs import ERRORS, SCENARIOS, Run
from tests.rigs.weakened import OF_READING, OF_WRITING
from tests.table import table

_PROCESSES = 2
_TIMES = 50
_SHOWN = 30
_KINDS = ("refused", "open", "tolerated")
_MEMORY = Path("/dev/shm")  # a disk whose fsync costs nothing: the faults here are not its own
_ENOUGH = 3 << 30  # each request has a form of its own, and that an index


def main() -> int:
    violations = [*_injected(), *_weakened(), *_real(), *_slow()]
    click.echo("\n".join(["", *violations[:_SHOWN], f"{len(violations)} violations"]))
    return int(bool(violations))


def _injected() -> Iterator[str]:
    with _ground(_MEMORY) as ground, _pool() as pool:
        click.echo(f"one fault in each request, and {_TIMES} times in a row; every call of every request:")
        reading = pool.submit(runs.read_all, ground / "reading")
        writing = [
            pool.submit(runs.strike_all, scenario, ground / str(number), times=_TIMES)
            for number, scenario in enumerate(SCENARIOS)
        ]
        struck = []
        for future in writing:
            run = future.result()
            struck.append(run)
            click.echo(f"  {run.title}: {run.points} points, {run.repeated} repetitions, {run.seconds:.0f} s")
        read = reading.result()
    headings = ("request", "points", *(f"{error}: {'/'.join(_KINDS)}" for error in ERRORS))
    click.echo(f"\n{table((*headings, 'in a row', 'KiB more', 'violations', 's'), map(_written_row, struck))}\n")
    after = sum((run.after_commit for run in struck), Counter[tuple[str, str, str]]())
    rows = [(call, kind, times, why) for (call, kind, why), times in sorted(after.items())]
    click.echo(f"{table(('call after the commit', 'outcome', 'times', 'why it may fail'), rows)}\n")
    headings = ("request", "points", "faults", "refused", "cut off", "whole", "violations", "s")
    click.echo(f"{table(headings, map(_read_row, read))}\n")
    for run in (*struck, *read):
        yield from run.violations


def _weakened() -> Iterator[str]:
    """The rig's own proof: a service without a protection is found out."""
    rows = []
    for weakness in (*OF_WRITING, *OF_READING):
        with _ground(_MEMORY) as ground:
            found = runs.noticed(weakness, ground)
        rows.append((weakness, len(found), found[0] if found else "-"))
        if not found:
            yield f"not noticed: {weakness}"
    click.echo(f"{table(('protection taken out', 'found', 'such as'), rows)}\n")


def _written_row(run: Run) -> Sequence[object]:
    counts = ("/".join(str(run.kinds[error, kind]) for kind in _KINDS) for error in ERRORS)
    return run.title, run.points, *counts, run.repeated, run.memory, len(run.violations), f"{run.seconds:.0f}"


def _read_row(run: Run) -> Sequence[object]:
    kinds: Counter[str] = Counter()
    for (_, kind), times in run.kinds.items():
        kinds[kind] += times
    counts = (kinds[kind] for kind in ("refused", "cut off", "whole"))
    return run.title, run.points, kinds.total(), *counts, len(run.violations), f"{run.seconds:.1f}"


def _real() -> Iterator[str]:
    stories: list[tuple[str, Callable[[Path], Story]]] = [
        *((f"full: {room.kind.title}", partial(fill_up, room)) for room in ROOMS),
        (f"read-only: {disks.EXT4.title}", partial(turn_read_only, disks.EXT4)),
        *((f"min_free: {kind.title}", partial(pass_the_floor, kind)) for kind in (disks.EXT4, disks.TMPFS)),
        ("few descriptors", run_out),
    ]
    rows = []
    for title, tell in stories:
        began = time.monotonic()
        with _ground(None) as ground:
            try:
                story = tell(ground)
            except disks.DiskError as error:
                yield f"{title}: {error}"
                continue
        refusals = ", ".join(f"{times} x {status or 'no answer'}" for status, times in sorted(story.refusals.items()))
        rows.append((title, story.acknowledged, refusals, len(story.faults), f"{time.monotonic() - began:.1f}"))
        yield from (f"{title}: {fault}" for fault in story.faults)
    click.echo(f"{table(('for real', 'served', 'refused', 'violations', 's'), rows)}\n")


def _slow() -> Iterator[str]:
    with _ground(None) as ground:
        story = slow.stall(ground / "stall")
        row = (
            story.acknowledged,
            f"{story.slowest:.3f}",
            story.refusals[503],
            f"{story.waited:.2f}",
            len(story.faults),
        )
        headings = ("others served", "slowest, s", "writers of the same refused", "after at most, s", "violations")
        click.echo(f"an fsync that hangs, writers are to wait {slow.DEADLINE} s:\n\n{table(headings, [row])}\n")
        loads = slow.exhaust(ground / "exhaust", story)
        click.echo(f"more of them, in {slow.WORKERS} workers of {slow.THREADS} threads:\n")
        click.echo(
            table(("hanging", "reads", "answered"), [(load.hanging, load.reads, load.answered) for load in loads])
        )
        yield from (f"slow: {fault}" for fault in story.faults)


@contextmanager
def _pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(_PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@contextmanager
def _ground(preferred: Path | None) -> Iterator[Path]:
    """A directory for the length of a block, in a preferred place if there is room."""
    is_roomy = preferred is not None and preferred.is_dir() and shutil.disk_usage(preferred).free > _ENOUGH
    parent = str(preferred) if is_roomy else None
    with tempfile.TemporaryDirectory(prefix="persistence-faults-", dir=parent, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


if __name__ == "__main__":
    sys.exit(main())
