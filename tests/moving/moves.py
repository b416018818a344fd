"""Moves between trees and databases in the process of a test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from persistence.model.queries import parse_pattern
from persistence.properties.properties import Properties
from persistence.providers.opened import OpenedPlace, moving
from persistence.services.moves import Move, MoveSource, MoveTarget
from persistence.services.transfers import TransferOutcome
from persistence.settings import Settings
from persistence.storage.storage import MaintainedDatabase
from tests.initialised import initialised


@contextmanager
def _opened(place: Path | MaintainedDatabase) -> Iterator[MaintainedDatabase | OpenedPlace]:
    if isinstance(place, MaintainedDatabase):
        yield place
        return
    with moving(Settings(data=str(place)), Properties.load({}, "svc."), str(place)) as opened:
        yield opened


def moved(
    there: Path | MaintainedDatabase,
    here: Path | MaintainedDatabase,
    match: str = "",
    meanwhile: Callable[[], None] = lambda: None,
) -> list[TransferOutcome]:
    """Move as the command does; ``meanwhile`` is called between the passes. Return the outcomes of the last."""
    if isinstance(here, Path) and not here.exists():
        initialised(here)
    with _opened(there) as origin, _opened(here) as target:
        source = MoveSource(origin.name, origin.storage, lambda _: origin.storage)
        move = Move(source, MoveTarget(target.storage), (parse_pattern(match),))
        for _ in move.first():
            continue
        meanwhile()
        with origin.storage.keeping_writers_out() as require:
            last = list(move.last())
            require()
            if not any(each.cause for each in last):
                move.end()
        return last
