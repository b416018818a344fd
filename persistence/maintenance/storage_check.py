"""Checking a database: its findings with the remedies that are asked for, as those of a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from persistence.errors import DamagedError
from persistence.maintenance.findings import Finding, FindingKind, Remedy, Report, Tally, Treatment
from persistence.model.addresses import Collection
from persistence.storage.maintained import MaintainedDatabase, StorageFault, StorageFinding

_KINDS: Mapping[StorageFault, FindingKind] = {
    StorageFault.UNREADABLE: FindingKind.ROW_UNREADABLE,
    StorageFault.ROW_WRONG: FindingKind.ROW_WRONG,
    StorageFault.CONTENT_WRONG: FindingKind.CONTENT_WRONG,
    StorageFault.NO_CURRENT: FindingKind.NO_CURRENT,
    StorageFault.ORDER_WRONG: FindingKind.ORDER_WRONG,
    StorageFault.STRAY_CONTENT: FindingKind.STRAY_CONTENT,
    StorageFault.IN_USE_UNCLAIMED: FindingKind.IN_USE_UNCLAIMED,
    StorageFault.OVERDUE: FindingKind.OVERDUE,
    StorageFault.INDEX_WRONG: FindingKind.INDEX_ROWS,
    StorageFault.TOTAL_WRONG: FindingKind.TOTAL_WRONG,
}


@dataclass(slots=True)
class StorageCheck:
    """One check of a database; with ``is_dry`` remedies are only foretold, and ``is_deep`` reads every content."""

    database: MaintainedDatabase
    remedies: frozenset[Remedy] = frozenset()
    is_dry: bool = False
    is_deep: bool = False
    tally: Tally = field(default_factory=Tally)

    def run(self, only: tuple[str, ...] = ()) -> Iterator[Report | None]:
        """Check the database: yield its findings below some names, and ``None`` for a folder that is done.

        Raises:
            PersistenceError: it cannot be read.
        """
        treatment = Treatment(self.remedies, self.is_dry, self.tally)
        for found in self.database.inspect(self.is_deep):
            if found is None:
                self.tally.folders += 1
                yield None
            elif found.place.split("/")[: len(only)] == list(only):
                yield treatment.apply(_finding(found), found.mend or _nothing)

    def count(self) -> int:
        """Count the documents, drafts and versions of definitions."""
        storage = self.database.storage
        return sum(
            sum(1 for _ in storage.versions(form))
            + sum(1 for collection in Collection for _ in storage.documents(form, collection))
            for form in storage.forms()
        )


def _finding(found: StorageFinding) -> Finding:
    return Finding(_KINDS[found.fault], found.place, found.what)


def _nothing() -> None:
    """Raise ``DamagedError``: kinds that have no remedy are never repaired."""
    raise DamagedError("nothing can repair it")
