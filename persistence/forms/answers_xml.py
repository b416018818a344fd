"""Answers that a client of the service reads: lists, reports, differences, progress (spec search 4 and 5, crud 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

from persistence.errors import MalformedXmlError
from persistence.forms.messages import LANGUAGE, read_children, text_in
from persistence.model.addresses import Form
from persistence.model.search import Field

_REASONS = ("refused", "skipped")


@dataclass(frozen=True, slots=True)
class ListedForm:
    """A published version in the list of forms: times without a fraction that is zero, and titles by language."""

    form: Form
    version: int
    modified: str
    created: str
    modifier: str | None
    titles: Mapping[str, str]
    operations: frozenset[str]
    is_available: bool


def read_forms(pieces: Iterable[bytes]) -> list[ListedForm]:
    forms: list[ListedForm] = []

    def take(form: ET.Element) -> None:
        listed = ListedForm(
            form=Form(text_in(form.find("application-name")), text_in(form.find("form-name"))),
            version=_number(text_in(form.find("form-version")).strip()),
            modified=text_in(form.find("last-modified-time")).strip(),
            created=text_in(form.find("created")).strip(),
            modifier=text_in(form.find("last-modified-by")) or None,
            titles={title.get(LANGUAGE, ""): text_in(title) for title in form.findall("title")},
            operations=frozenset(form.get("operations", "").split()),
            is_available=text_in(form.find("available")).strip() != "false",
        )
        forms.append(listed)

    read_children(pieces, take)
    return forms


def read_values(pieces: Iterable[bytes]) -> dict[Field | str, tuple[str, ...]]:
    """Read the distinct values of controls, by their paths, and of fields."""
    found: dict[Field | str, tuple[str, ...]] = {}

    def take(query: ET.Element) -> None:
        name = query.get("metadata")
        found[query.get("path", "") if name is None else Field(name)] = tuple(map(text_in, query))

    read_children(pieces, take)
    return found


@dataclass(frozen=True, slots=True)
class ReportedImport:
    """The report of an import: the counts of ``definitions`` and ``documents`` by outcome.

    ``revisions`` were new, and ``known`` stored already. ``causes`` are by name, of the first that were refused or
    skipped; ``notes`` are counted.
    """

    is_dry: bool
    refused: int
    definitions: Mapping[str, int] = field(default_factory=dict)
    documents: Mapping[str, int] = field(default_factory=dict)
    revisions: int = 0
    known: int = 0
    causes: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)


def read_import_report(pieces: Iterable[bytes]) -> ReportedImport:
    counts: dict[str, dict[str, int]] = {"definitions": {}, "documents": {}, "revisions": {}}
    causes: dict[str, str] = {}
    notes: dict[str, int] = {}

    def take(child: ET.Element) -> None:
        if child.tag in counts:
            counts[child.tag] = {name: _number(text) for name, text in child.items()}
        elif child.tag in _REASONS:
            causes[child.get("name", "")] = text_in(child)
        elif child.tag == "note":
            notes[text_in(child)] = _number(child.get("count", "1"))

    root = read_children(pieces, take)
    revisions = counts["revisions"]
    return ReportedImport(
        is_dry=root.get("dry-run") == "true",
        refused=_number(root.get("refused", "0")),
        definitions=counts["definitions"],
        documents=counts["documents"],
        revisions=revisions.get("new", 0),
        known=revisions.get("known", 0),
        causes=causes,
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class ReportedPurge:
    """The report of a purge: what was removed, or would be if it ``is_dry``; ``freed`` is in bytes.

    ``problems`` say why documents were not purged, or not entirely.
    """

    is_dry: bool
    revisions: int
    documents: int
    drafts: int
    attachments: int
    freed: int
    problems: tuple[str, ...]


def read_purge_report(pieces: Iterable[bytes]) -> ReportedPurge:
    problems: list[str] = []
    root = read_children(pieces, lambda problem: problems.append(text_in(problem)))
    return ReportedPurge(
        is_dry=root.get("dry-run") == "true",
        revisions=_number(root.get("revisions", "0")),
        documents=_number(root.get("documents", "0")),
        drafts=_number(root.get("drafts", "0")),
        attachments=_number(root.get("attachments", "0")),
        freed=_number(root.get("bytes", "0")),
        problems=tuple(problems),
    )


@dataclass(frozen=True, slots=True)
class ReportedDifference:
    """A difference between two revisions of a document (spec crud 8.1).

    ``kind`` is ``value-changed``, ``iteration-added``, ``iteration-removed``, ``element-added``, ``element-removed``,
    or ``other`` for all that is not listed; ``iterations`` is how many were added or removed.
    """

    kind: str
    name: str
    label: str
    older: str | None
    newer: str | None
    iterations: int


def read_differences(pieces: Iterable[bytes]) -> list[ReportedDifference]:
    """Read the differences between two revisions, in the order of the form."""
    found: list[ReportedDifference] = []

    def take(diff: ET.Element) -> None:
        older, newer = (None if each is None else text_in(each) for each in (diff.find("from"), diff.find("to")))
        label, count = text_in(diff.find("label")), _number(diff.get("count", "0"))
        found.append(ReportedDifference(diff.get("type", ""), diff.get("name", ""), label, older, newer, count))

    read_children(pieces, take)
    return found


@dataclass(frozen=True, slots=True)
class ReportedReindexing:
    """The progress of rebuilding indexes: ``current`` of ``total`` documents, which are 0 unless it ``is_running``."""

    is_running: bool
    current: int
    total: int


def read_reindexing(pieces: Iterable[bytes]) -> ReportedReindexing:
    root = read_children(pieces, lambda _: None)
    current, total = (_number(root.get(f"document-{each}", "0")) for each in ("current", "total"))
    return ReportedReindexing(root.get("state") == "indexing", current, total)


@dataclass(frozen=True, slots=True)
class ReportedReencryption:
    """The progress of encrypting a form, or one ``version``, again; ``state`` is encrypting, finished or stopped."""

    form: Form
    version: int | None
    state: str
    current: int
    total: int


def read_reencryptions(pieces: Iterable[bytes]) -> list[ReportedReencryption]:
    found: list[ReportedReencryption] = []

    def take(form: ET.Element) -> None:
        app, name, version, current, total = (
            text_in(form.find(each)) for each in ("application-name", "form-name", "form-version", "current", "total")
        )
        number = _number(version) if version else None
        progress = (form.get("state", ""), _number(current), _number(total))
        found.append(ReportedReencryption(Form(app, name), number, *progress))

    read_children(pieces, take)
    return found


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise MalformedXmlError(f"the response has {text[:20]!r} instead of a number")
    return int(text)
