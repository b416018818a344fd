"""The long run: ``python -m tests.index``. Ends with tables, and with status 1 where anything was wrong."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from tests.index.damaging import NOTICED, RIGHT, UNNOTICED, WRONG, counted, filled
from tests.index.racing import Racer, plant, reindexing, republishing
from tests.published import Planter
from tests.service import running
from tests.table import table

_SECONDS = 10.0
_WRITERS = 4
_DAMAGES = 40

_RACES = (
    ("nothing else", None, 10),
    ("reindexing", reindexing, 10),
    ("reindexing", reindexing, 1_500),
    ("publishing other controls", republishing, 300),
    ("publishing other controls", republishing, 1_500),
)
_RACE_HEADINGS = (
    *("beside", "times", "documents", "writes", "searches", "told to come back", "longest wait, s", "violations"),
)
_DAMAGE_HEADINGS = ("damage", "index", "times", "right", "wrong", "refused")


def main() -> int:
    """Race and damage."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="persistence-index-") as name:
        directory = Path(name)
        races = list(_raced(directory))
        damages = list(_damaged(directory))
    click.echo(f"\n{table(_RACE_HEADINGS, [row for row, _ in races])}")
    click.echo(f"\n{table(_DAMAGE_HEADINGS, [row for row, _ in damages])}")
    click.echo(f"\n{time.monotonic() - began:.0f} s in all")
    faults = [fault for _, found in (*races, *damages) for fault in found]
    for fault in faults:
        click.echo(f"  {fault}")
    return int(bool(faults))


def _raced(directory: Path) -> Iterator[tuple[tuple[object, ...], list[str]]]:
    for number, (beside, disturbance, documents) in enumerate(_RACES):
        click.echo(f"{_WRITERS} writers who look for what they have stored, beside {beside} …")
        home = directory / f"race-{number}"
        with Planter(home / "data") as planter:  # it renews the lease of its tree while it is open
            plant(planter, documents)
        with running(home, workers=2, threads=8) as service:
            service.timeout = 120.0
            raced = Racer(service).run(_SECONDS, _WRITERS, disturbance(service) if disturbance else None)
        row = (
            *(beside, raced.disturbances, documents, raced.writes, raced.searches, raced.busy),
            *(f"{raced.longest:.1f}", len(raced.violations)),
        )
        yield row, [f"beside {beside}: {each}" for each in raced.violations]


def _damaged(directory: Path) -> Iterator[tuple[tuple[object, ...], list[str]]]:
    memory = filled()
    for way in (*NOTICED, *UNNOTICED):
        for is_open in (False, True):
            found = counted(memory, way, range(_DAMAGES), directory, is_open=is_open)
            state = "open" if is_open else "opened afterwards"
            others = _DAMAGES - found[RIGHT] - found[WRONG]
            is_fault = others or (way in NOTICED and found[WRONG])
            fault = [f"{way}, {state}: {dict(found)}"] if is_fault else []
            yield (way, state, _DAMAGES, found[RIGHT], found[WRONG], others), fault


if __name__ == "__main__":
    sys.exit(main())
