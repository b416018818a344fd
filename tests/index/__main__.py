"""The long run: ``python -m tests.index``."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.index.test_damage import NOTICED, RIGHT, UNNOTICED, WRONG, counted, filled
from tests.index.test_racing import RACE, reindexing, republishing
from tests.rigs.modelled.runs import run
from tests.rigs.report import Report

_SECONDS = 10.0
_DAMAGES = 40

_RACES = (
    ("nothing else", None, 10),
    ("reindexing", reindexing, 10),
    ("reindexing", reindexing, 1_500),
    ("publishing other controls", republishing, 300),
    ("publishing other controls", republishing, 1_500),
)
_DAMAGE_HEADINGS = ("damage", "index", "times", "right", "wrong", "refused")


def main() -> int:
    report = Report()
    with tempfile.TemporaryDirectory(prefix="persistence-index-") as name:
        _race(report, Path(name))
        _damage(report, Path(name))
    return report.end()


def _race(report: Report, directory: Path) -> None:
    for number, (beside, disturbance, documents) in enumerate(_RACES):
        name = f"{documents} documents, beside {beside}"
        race = replace(RACE, name=name, seconds=_SECONDS, beside=disturbance, documents=documents)
        report.add(run(race, directory / f"race-{number}"))


def _damage(report: Report, directory: Path) -> None:
    memory = filled()
    for way in (*NOTICED, *UNNOTICED):
        for is_open in (False, True):
            found = counted(memory, way, range(_DAMAGES), directory, is_open=is_open)
            state = "open" if is_open else "opened afterwards"
            others = _DAMAGES - found[RIGHT] - found[WRONG]
            report.add_row(_DAMAGE_HEADINGS, (way, state, _DAMAGES, found[RIGHT], found[WRONG], others))
            if others or (way in NOTICED and found[WRONG]):
                report.wrong.append(f"{way}, {state}: {dict(found)}")


if __name__ == "__main__":
    sys.exit(main())
