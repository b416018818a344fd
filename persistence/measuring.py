"""The values of a service that its metrics look up when somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from persistence import __version__
from persistence.errors import DiskError
from persistence.metrics.metrics import Measure
from persistence.providers.opened import Providers
from persistence.settings import Settings


class Measuring:
    """Looks up the state of the places of a service."""

    def __init__(self, settings: Settings, providers: Providers) -> None:
        self._settings = settings
        self._providers = providers

    def measures(self) -> Iterator[Measure]:
        """Yield all values, as they are now."""
        yield Measure("persistence_info", 1, (__version__, self._settings.dialect))
        yield from self._places()
        for place, tree in self._providers.trees.items():
            with suppress(DiskError):
                yield Measure("persistence_index_waiting", tree.index.waiting(), (place,))

    def delays(self) -> dict[str, float]:
        """Return the seconds for which the oldest change of this process waits for the index, for each tree."""
        return {place: tree.index.delay for place, tree in self._providers.trees.items()}

    def _places(self) -> Iterator[Measure]:
        for room in self._providers.rooms():
            yield Measure("persistence_place_up", 0 if room.fault else 1, (room.place,))
            if room.free is not None:
                yield Measure("persistence_place_free_bytes", room.free, (room.place,))
