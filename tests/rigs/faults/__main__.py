"""The long run: ``python -m tests.rigs.faults``."""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.rigs import disks
from tests.rigs.faults import runs, slow
from tests.rigs.faults.filling import ROOMS, Story, fill_up, pass_the_floor, run_out, turn_read_only
from tests.rigs.faults.runs import ERRORS, SCENARIOS
from tests.rigs.report import Report
from tests.rigs.weakened import OF_READING, OF_WRITING

_PROCESSES = 2
_TIMES = 50
_KINDS = ("refused", "open", "tolerated")
_MEMORY = Path("/dev/shm")  # a disk whose fsync costs nothing: the faults here are not its own
_ENOUGH = 3 << 30  # each request has a form of its own, and that an index


def main() -> int:
    report = Report()
    _inject(report)
    for weakness in (*OF_WRITING, *OF_READING):
        with _ground(_MEMORY) as ground:
            found = runs.noticed(weakness, ground)
        report.add_row(("protection taken out", "found", "such as"), (weakness, len(found), found[0] if found else "-"))
        report.expect_caught(weakness, found)
    _suffer(report)
    with _ground(None) as ground:
        story = slow.stall(ground / "stall")
        for row in slow.exhaust(ground / "exhaust", story):
            report.add_row(("writers that hang", "reads", "answered"), row)
        report.add(story.ended())
    return report.end()


def _inject(report: Report) -> None:
    context = multiprocessing.get_context("spawn")
    with _ground(_MEMORY) as ground, ProcessPoolExecutor(_PROCESSES, mp_context=context) as pool:
        reading = pool.submit(runs.read_all, ground / "reading")
        writing = [
            pool.submit(runs.strike_all, scenario, ground / str(number), times=_TIMES)
            for number, scenario in enumerate(SCENARIOS)
        ]
        struck = []
        for future in writing:
            struck.append(future.result())
            report.add(struck[-1])
        for run in reading.result():
            report.add(run)
    kinds = sum((run.kinds for run in struck), Counter[tuple[str, str]]())
    for error in ERRORS:
        report.add_row(("error", *_KINDS), (error, *(kinds[error, kind] for kind in _KINDS)))
    after = sum((run.after_commit for run in struck), Counter[tuple[str, str, str]]())
    for (call, kind, why), times in sorted(after.items()):
        report.add_row(("call after the commit", "outcome", "times", "why it may fail"), (call, kind, times, why))


def _suffer(report: Report) -> None:
    tells: list[Callable[[Path], Story]] = [
        *(partial(fill_up, room) for room in ROOMS),
        partial(turn_read_only, disks.EXT4),
        *(partial(pass_the_floor, kind) for kind in (disks.EXT4, disks.TMPFS)),
        run_out,
    ]
    for tell in tells:
        with _ground(None) as ground:
            try:
                report.add(tell(ground).ended())
            except disks.DiskError as error:
                report.wrong.append(f"{tell}: {error}")


@contextmanager
def _ground(preferred: Path | None) -> Iterator[Path]:
    """A directory for the length of a block, in a preferred place if there is room."""
    is_roomy = preferred is not None and preferred.is_dir() and shutil.disk_usage(preferred).free > _ENOUGH
    parent = str(preferred) if is_roomy else None
    with tempfile.TemporaryDirectory(prefix="persistence-faults-", dir=parent, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


if __name__ == "__main__":
    sys.exit(main())
