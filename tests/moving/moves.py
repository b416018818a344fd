"""Moves between trees in the process of a test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from persistence.model.queries import parse_pattern
from persistence.properties.properties import Properties
from persistence.providers.opened import open_place
from persistence.services.moves import Move, MoveOutcome, MoveSource, MoveTarget
from persistence.settings import Settings
from persistence.storage.storage import MaintainedDatabase
from tests.initialised import initialised


def between(
    source: MoveSource,
    target: MoveTarget,
    keeping_writers_out: Callable[[], AbstractContextManager[Callable[[], None]]],
    match: str = "",
    meanwhile: Callable[[], None] = lambda: None,
) -> list[MoveOutcome]:
    """Move as the command does; ``meanwhile`` is called between the passes. Return the outcomes of the last."""
    move = Move(source, target, (parse_pattern(match),))
    for _ in move.first():
        continue
    meanwhile()
    with keeping_writers_out() as require:
        last = list(move.last())
        require()
        if not any(each.cause for each in last):
            move.end()
    return last


def moved(there: Path, here: Path, match: str = "", meanwhile: Callable[[], None] = lambda: None) -> list[MoveOutcome]:
    """Move a tree as the command does; ``meanwhile`` is called between the passes. Return the outcomes of the last."""
    if not here.exists():
        initialised(here)
    settings, properties = Settings(data=str(there)), Properties.load({}, "svc.")
    with open_place(settings, properties, str(there)) as origin, open_place(settings, properties, str(here)) as target:
        source = MoveSource(origin.name, origin.storage, origin.revisions)
        return between(
            source, MoveTarget(target.storage, target.arrivals), origin.keeping_writers_out, match, meanwhile
        )


def into_database(
    there: Path, here: MaintainedDatabase, match: str = "", meanwhile: Callable[[], None] = lambda: None
) -> list[MoveOutcome]:
    """Move a tree into a database."""
    settings, properties = Settings(data=str(there)), Properties.load({}, "svc.")
    with open_place(settings, properties, str(there)) as origin:
        source = MoveSource(origin.name, origin.storage, origin.revisions)
        return between(source, MoveTarget(here.storage, here.arrivals), origin.keeping_writers_out, match, meanwhile)


def out_of_database(
    there: MaintainedDatabase, here: Path, match: str = "", meanwhile: Callable[[], None] = lambda: None
) -> list[MoveOutcome]:
    """Move a database into a tree."""
    if not here.exists():
        initialised(here)
    with open_place(Settings(data=str(here)), Properties.load({}, "svc."), str(here)) as target:
        source = MoveSource(there.name, there.storage, lambda _: there.storage)
        return between(source, MoveTarget(target.storage, target.arrivals), there.keeping_writers_out, match, meanwhile)
