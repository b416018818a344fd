"""The values of a service that its metrics look up when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

from persistence import __version__
from persistence.errors import DiskError, PersistenceError
from persistence.limits import LEASES_COUNTED
from persistence.maintenance.last_runs import LastBackup, LastCheck, last
from persistence.metrics.metrics import Measure
from persistence.model.instants import to_datetime
from persistence.model.leases import DocumentLease
from persistence.providers.opened import Providers
from persistence.settings import Settings
from persistence.storage.document_leases import moment


class Measuring:
    """Looks up the state of the places of a service. ``missing_keys`` counts its missing encryption keys."""

    def __init__(self, settings: Settings, providers: Providers, missing_keys: Callable[[], int]) -> None:
        self._settings = settings
        self._missing_keys = missing_keys
        self._providers = providers
        self._by_name = {
            each.database.name if each.database else place: each for place, each in providers.places.items()
        }

    def measures(self) -> Iterator[Measure]:
        """Yield all values, as they are now."""
        yield Measure("persistence_info", 1, (__version__, self._settings.dialect))
        yield from self._places()
        yield from self._last_runs()
        yield Measure("persistence_encryption_keys_missing", self._missing_keys())
        for place, tree in self._providers.trees.items():
            with suppress(DiskError):
                yield Measure("persistence_index_waiting", tree.index.waiting(), (place,))

    def delays(self) -> dict[str, float]:
        """Return the seconds for which the oldest change of this process waits for the index, for each tree."""
        return {place: tree.index.delay for place, tree in self._providers.trees.items()}

    def _last_runs(self) -> Iterator[Measure]:
        home = self._settings.home
        with suppress(DiskError):
            check = last(home, LastCheck)
            yield Measure("persistence_last_check_time_seconds", _seconds(check))
            if check is not None:
                found = {"damage": check.damage, "leftover": check.leftover, "notice": check.notice}
                for severity, number in found.items():
                    yield Measure("persistence_last_check_findings", number, (severity,))
                yield Measure("persistence_last_check_remaining", check.remaining)
        with suppress(DiskError):
            backup = last(home, LastBackup)
            yield Measure("persistence_last_backup_time_seconds", _seconds(backup))
            if backup is not None:
                yield Measure("persistence_last_backup_folders", backup.folders)
                yield Measure("persistence_last_backup_problems", backup.problems + backup.missing)

    def _places(self) -> Iterator[Measure]:
        for space in self._providers.free_space():
            if not space.fault:
                yield from self._leases(space.place)
            yield Measure("persistence_place_up", 0 if space.fault else 1, (space.place,))
            if space.free is not None:
                yield Measure("persistence_place_free_bytes", space.free, (space.place,))

    def _leases(self, place: str) -> Iterator[Measure]:
        provider = self._by_name.get(place)
        if provider is not None and provider.managed is not None:
            now = moment()
            with suppress(PersistenceError):
                read = islice(provider.managed.leases.listed(), LEASES_COUNTED)
                living = sum(1 for each in read if isinstance(each, DocumentLease) and each.remaining(now))
                yield Measure("persistence_leases", living, (place,))


def _seconds(run: LastCheck | LastBackup | None) -> float:
    """Return when a run ended; 0 of one that never was, so that alerts on its age fire."""
    return 0 if run is None else to_datetime(run.at).timestamp()
