"""The report of an import: counts by result, and the causes of refusals."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from persistence.errors import one_line
from persistence.forms.messages import attribute, element, text
from persistence.limits import MOST_NAMED, MOST_NOTES
from persistence.services.imports.revisions import ImportOutcome, ImportResult

_KINDS = {True: "definitions", False: "documents"}


@dataclass(slots=True)
class ImportReport:
    """Counts outcomes: documents and definitions by result, and ``revisions`` that are new or ``known``.

    ``named`` are the first refused and skipped documents, ``ownerless`` the first of those ``without_owner``.
    """

    counts: Counter[tuple[bool, ImportResult]] = field(default_factory=Counter)
    revisions: int = 0
    known: int = 0
    ignored: int = 0
    named: list[ImportOutcome] = field(default_factory=list)
    ownerless: list[str] = field(default_factory=list)
    without_owner: int = 0
    notes: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: ImportOutcome) -> None:
        self.ignored += outcome.result is ImportResult.IGNORED
        self.counts[outcome.is_definition, outcome.result] += 1
        self.revisions += outcome.placed
        self.known += outcome.known
        if outcome.cause and len(self.named) < MOST_NAMED:
            self.named.append(outcome)
        self.without_owner += outcome.lacks_owner
        if outcome.lacks_owner and len(self.ownerless) < MOST_NAMED:
            self.ownerless.append(outcome.name)
        for note in outcome.notes:
            if note in self.notes or len(self.notes) < MOST_NOTES:
                self.notes[note] = self.notes.get(note, 0) + 1

    @property
    def refused(self) -> int:
        """The number of refused documents, versions and files."""
        return sum(count for (_, result), count in self.counts.items() if result is ImportResult.REFUSED)

    def lines(self, *, is_dry: bool) -> list[str]:
        """Return the counts and notes for people."""
        lines = []
        for is_definition, kind in _KINDS.items():
            of_kind = {result: self.counts[is_definition, result] for result in ImportResult}
            counts = f"{of_kind[ImportResult.IMPORTED]} {'would be imported' if is_dry else 'imported'}, "
            counts += f"{of_kind[ImportResult.UNCHANGED]} were there already"
            for result in (ImportResult.SKIPPED, ImportResult.REFUSED):
                counts += f", {of_kind[result]} {result.value}" if of_kind[result] else ""
            lines.append(f"{kind}: {counts}")
        ignored = f"; {self.ignored} other files ignored" if self.ignored else ""
        lines.append(f"revisions: {self.revisions} new, {self.known} known{ignored}")
        if self.without_owner:
            lines.append(f"documents without an owner: {self.without_owner}")
        lines += [f"note: {note} ({count} times)" for note, count in self.notes.items()]
        return lines

    def facts(self) -> dict[str, object]:
        """Return the counts and notes for programs."""
        counts = {
            kind: {each.value: self.counts[is_definition, each] for each in _COUNTED}
            for is_definition, kind in _KINDS.items()
        }
        revisions = {"new": self.revisions, "known": self.known}
        notes = [{"note": note, "count": count} for note, count in self.notes.items()]
        return {
            **counts,
            "revisions": revisions,
            "ignored": self.ignored,
            "without_owner": self.without_owner,
            "notes": notes,
        }

    def as_xml(self, *, is_dry: bool) -> bytes:
        """Write the report of a request."""
        children = [
            element(kind, "".join(attribute(each.value, str(self.counts[is_definition, each])) for each in _COUNTED))
            for is_definition, kind in _KINDS.items()
        ]
        children.append(
            element("revisions", attribute("new", str(self.revisions)) + attribute("known", str(self.known)))
        )
        children += [
            element(each.result.value, attribute("name", one_line(each.name)), text(each.cause)) for each in self.named
        ]
        children += [element("without-owner", attribute("name", one_line(name))) for name in self.ownerless]
        children += [element("note", attribute("count", str(count)), text(note)) for note, count in self.notes.items()]
        root = attribute("dry-run", str(is_dry).lower()) + attribute("refused", str(self.refused))
        root += attribute("without-owner", str(self.without_owner)) if self.without_owner else ""
        return element("import", root + attribute("ignored", str(self.ignored)), "".join(children)).encode()


_COUNTED = (ImportResult.IMPORTED, ImportResult.UNCHANGED, ImportResult.SKIPPED, ImportResult.REFUSED)
