"""Moves between trees in the process of a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from persistence.model.exports import parse_pattern
from persistence.properties.properties import Properties
from persistence.providers.places import open_place
from persistence.services.moving.moving import Move, MoveSource, MoveTarget
from persistence.services.moving.outcomes import MoveOutcome
from persistence.settings import Settings
from tests.initialised import initialised


def moved(there: Path, here: Path, match: str = "", meanwhile: Callable[[], None] = lambda: None) -> list[MoveOutcome]:
    """Move a tree as the command does; ``meanwhile`` is called between the passes. Return the outcomes of the last."""
    if not here.exists():
        initialised(here)
    settings, properties = Settings(data=str(there)), Properties.load({}, "svc.")
    with open_place(settings, properties, str(there)) as origin, open_place(settings, properties, str(here)) as target:
        source = MoveSource(origin.name, origin.storage, origin.revisions)
        move = Move(source, MoveTarget(target.storage, target.arrivals), (parse_pattern(match),))
        for _ in move.first():
            continue
        meanwhile()
        with origin.keeping_writers_out() as require:
            last = list(move.last())
            require()
            if not any(each.cause for each in last):
                move.end()
    return last
