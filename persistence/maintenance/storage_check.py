"""Checking a database: its findings with the remedies that are asked for, as those of a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from persistence.errors import BadRequestError, ConfigurationError, DamagedError
from persistence.maintenance.body_check import BodiesOf, body_fault
from persistence.maintenance.findings import Finding, FindingKind, FindingTotals, Remedy, Report, Treatment
from persistence.maintenance.mark_check import MarkCheck
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.sidecar import Sidecar
from persistence.storage.managed import MaintainedDatabase, ManagedStorage, StorageFault, StorageFinding

_KINDS: Mapping[StorageFault, FindingKind] = {
    StorageFault.UNREADABLE: FindingKind.ROW_UNREADABLE,
    StorageFault.ROW_WRONG: FindingKind.ROW_WRONG,
    StorageFault.CONTENT_WRONG: FindingKind.CONTENT_WRONG,
    StorageFault.NO_CURRENT: FindingKind.NO_CURRENT,
    StorageFault.ORDER_WRONG: FindingKind.ORDER_WRONG,
    StorageFault.BODY_MISSING: FindingKind.BODY_MISSING,
    StorageFault.BODY_WRONG: FindingKind.BODY_DAMAGED,
    StorageFault.STRAY_CONTENT: FindingKind.STRAY_CONTENT,
    StorageFault.IN_USE_UNCLAIMED: FindingKind.IN_USE_UNCLAIMED,
    StorageFault.OVERDUE: FindingKind.OVERDUE,
    StorageFault.INDEX_WRONG: FindingKind.INDEX_ROWS,
    StorageFault.TOTAL_WRONG: FindingKind.TOTAL_WRONG,
}


_OF_FORM, _OF_FOLDER, _OF_FILE = 2, 4, 5
"""The numbers of names in a path: ``APP/FORM/data/DOCUMENT/FILE`` or ``APP/FORM/form/VERSION/FILE``."""

_DEFINITIONS = "form"
_FOLDERS = {_DEFINITIONS, *(each.value for each in Collection)}


@dataclass(slots=True)
class StorageCheck:
    """One check of a database; with ``is_dry`` remedies are only foretold, and ``is_deep`` reads every content.

    ``bodies_of`` tells where the bodies of a form's attachments are, if they are not in the database. ``marks`` judges
    contents by the marks of definitions.
    """

    database: MaintainedDatabase
    bodies_of: BodiesOf
    marks: MarkCheck
    remedies: frozenset[Remedy] = frozenset()
    is_dry: bool = False
    is_deep: bool = False
    totals: FindingTotals = field(default_factory=FindingTotals)

    def run(self, parts: Sequence[tuple[str, ...]] = ((),)) -> Iterator[Report | None]:
        """Check the database once: yield its findings below some names, and ``None`` for a folder that is done."""
        if not parts:
            return
        treatment = Treatment(self.remedies, self.is_dry, self.totals)

        def judged(address: DocumentAddress, record: Sidecar) -> tuple[StorageFault, str] | None:
            return self._body_fault(address, record) if _is_within(str(address), parts) else None

        for found in self.database.inspect(self.is_deep, judged):
            if found is None:
                self.totals.folders += 1
                yield None
            elif _is_within(found.place, parts):
                yield treatment.apply(_finding(found), found.mend or _nothing)
        for finding in self.marks.of_storage(self.database.storage, is_deep=self.is_deep):
            if _is_within(finding.path, parts):
                yield treatment.apply(finding, _nothing)

    def part(self, path: str) -> tuple[str, ...]:
        """Return the names of a path, as in a tree."""
        names = tuple(path.strip("/").split("/"))
        if not _has(self.database.storage, names):
            raise BadRequestError(f"{path} is not in the database")
        return names

    def _body_fault(self, address: DocumentAddress, record: Sidecar) -> tuple[StorageFault, str] | None:
        try:
            bodies = self.bodies_of(address.form)
        except ConfigurationError:  # the form has no provider any more
            return None
        if bodies is None:
            return StorageFault.BODY_MISSING, f"of {record.modified}: no property leads to its body"
        found = body_fault(bodies, address, record, deep=self.is_deep)
        if found is None:
            return None
        kind = StorageFault.BODY_MISSING if found[0] is FindingKind.BODY_MISSING else StorageFault.BODY_WRONG
        return kind, found[1]

    def count(self) -> int:
        """Count the documents, drafts and versions of definitions."""
        storage = self.database.storage
        return sum(
            sum(1 for _ in storage.versions(form))
            + sum(1 for collection in Collection for _ in storage.documents(form, collection))
            for form in storage.forms()
        )


def _is_within(place: str, parts: Sequence[tuple[str, ...]]) -> bool:
    names = tuple(place.split("/"))
    return any(names[: len(part)] == part for part in parts)


def _has(storage: ManagedStorage, names: tuple[str, ...]) -> bool:
    forms = [form for form in storage.forms() if (form.app, form.name)[: len(names)] == names[:_OF_FORM]]
    if len(names) <= _OF_FORM or not forms:
        return bool(forms)
    form, kind = forms[0], names[_OF_FORM]
    if len(names) > _OF_FILE or kind not in _FOLDERS:
        return False
    if len(names) < _OF_FOLDER:
        found = storage.versions(form) if kind == _DEFINITIONS else storage.documents(form, Collection(kind))
        return any(True for _ in found)
    main = _main(form, kind, names[_OF_FOLDER - 1])
    if main is None or len(names) == _OF_FILE:
        return main is not None and storage.history(replace(main, name=names[-1])) is not None
    return bool(storage.names(main)) or storage.history(main) is not None


def _main(form: Form, kind: str, folder: str) -> Address | None:
    if kind != _DEFINITIONS:
        return DocumentAddress(form, Collection(kind), folder, DATA_XML)
    return DefinitionAddress(form, int(folder), FORM_XHTML) if folder.isascii() and folder.isdecimal() else None


def _finding(found: StorageFinding) -> Finding:
    return Finding(_KINDS[found.fault], found.place, found.what)


def _nothing() -> None:
    """Raise ``DamagedError``: kinds that have no remedy are never repaired."""
    raise DamagedError("nothing can repair it")
