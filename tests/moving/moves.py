"""Moves between trees in the process of a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from persistence.model.exports import parse_pattern
from persistence.properties.properties import Properties
from persistence.providers.places import open_place
from persistence.services.moving.moving import Move, MoveSource
from persistence.services.moving.outcomes import MoveOutcome
from persistence.settings import Settings
from persistence.storage import root


def moved(
    there: Path, here: Path, match: str = "", meanwhile: Callable[[], None] = lambda: None
) -> list[MoveOutcome]:
    """Move a tree as the command does; ``meanwhile`` is called between the passes. Return the outcomes of the last."""
    root.init(str(here))
    settings, properties = Settings(data=str(there)), Properties.load({}, "svc.")
    with open_place(settings, properties, str(there)) as origin, open_place(settings, properties, str(here)) as target:
        source = MoveSource(origin.name, origin.storage, origin.revisions)
        move = Move(source, target.storage, target.arrivals, (parse_pattern(match),))
        first = list(move.first())
        assert [each for each in first if each.cause] == []
        meanwhile()
        with origin.keeping_writers_out() as require:
            last = list(move.last())
            require()
            move.end()
    return last
