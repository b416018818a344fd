"""Answers that a client of the service reads: lists, reports, differences, progress (spec search 4 and 5, crud 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

from persistence.errors import MalformedXmlError
from persistence.forms.messages import LANGUAGE, ChildReader, text_in
from persistence.model.addresses import Form
from persistence.model.search import Field

_REASONS = ("refused", "skipped")


@dataclass(frozen=True, slots=True)
class ListedForm:
    """A published version in the list of forms.

    ``modified`` and ``created`` are times as they are listed, which have no fraction where it is zero. ``titles`` are
    by language, which is empty where none is given. ``operations`` are the words of what the caller may do.
    """

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
    with ChildReader(lambda form: forms.append(_listed(form))) as reader:
        reader.read(pieces)
    return forms


def _listed(form: ET.Element) -> ListedForm:
    version = text_in(form.find("form-version")).strip()
    return ListedForm(
        form=Form(text_in(form.find("application-name")), text_in(form.find("form-name"))),
        version=_number(version),
        modified=text_in(form.find("last-modified-time")).strip(),
        created=text_in(form.find("created")).strip(),
        modifier=text_in(form.find("last-modified-by")) or None,
        titles={title.get(LANGUAGE, ""): text_in(title) for title in form.findall("title")},
        operations=frozenset(form.get("operations", "").split()),
        is_available=text_in(form.find("available")).strip() != "false",
    )


def read_values(pieces: Iterable[bytes]) -> dict[Field | str, tuple[str, ...]]:
    """Read the distinct values of controls, by their paths, and of fields; raises as ``read_forms`` does."""
    found: dict[Field | str, tuple[str, ...]] = {}

    def take(query: ET.Element) -> None:
        name = query.get("metadata")
        found[query.get("path", "") if name is None else Field(name)] = tuple(map(text_in, query))

    with ChildReader(take) as reader:
        reader.read(pieces)
    return found


@dataclass(frozen=True, slots=True)
class ReportedImport:
    """The report of an import: by kind, ``definitions`` and ``documents``, how many had each outcome.

    ``revisions`` were new, and ``known`` there already. ``refused`` are all that were refused. ``causes`` has the first
    of the refused and the skipped by name, each with its cause, and ``notes`` how often something else was noticed.
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
    """Read the report of an import; raises as ``read_forms`` does."""
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

    with ChildReader(take) as reader:
        root = reader.read(pieces).root
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
    """The report of a purge: what is gone, or would be if it ``is_dry``; ``freed`` is in bytes.

    ``problems`` are the causes why documents were not purged, or not entirely.
    """

    is_dry: bool
    revisions: int
    documents: int
    drafts: int
    attachments: int
    freed: int
    problems: tuple[str, ...]


def read_purge_report(pieces: Iterable[bytes]) -> ReportedPurge:
    """Read the report of a purge; raises as ``read_forms`` does."""
    problems: list[str] = []
    with ChildReader(lambda problem: problems.append(text_in(problem))) as reader:
        root = reader.read(pieces).root
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
    or ``other`` for all that is not listed. ``name`` and ``label`` are those of the control or section. A value has
    changed from ``older`` to ``newer``; ``iterations`` is how many were added or removed.
    """

    kind: str
    name: str
    label: str
    older: str | None
    newer: str | None
    iterations: int


def read_differences(pieces: Iterable[bytes]) -> list[ReportedDifference]:
    """Read the differences between two revisions, in the order of the form; raises as ``read_forms`` does."""
    found: list[ReportedDifference] = []

    def take(diff: ET.Element) -> None:
        older, newer = (None if each is None else text_in(each) for each in (diff.find("from"), diff.find("to")))
        label, count = text_in(diff.find("label")), _number(diff.get("count", "0"))
        found.append(ReportedDifference(diff.get("type", ""), diff.get("name", ""), label, older, newer, count))

    with ChildReader(take) as reader:
        reader.read(pieces)
    return found


@dataclass(frozen=True, slots=True)
class ReportedReindexing:
    """The progress of rebuilding indexes: ``current`` of ``total`` documents, which are 0 unless it ``is_running``."""

    is_running: bool
    current: int
    total: int


def read_reindexing(pieces: Iterable[bytes]) -> ReportedReindexing:
    """Read the progress of rebuilding indexes; raises as ``read_forms`` does."""
    with ChildReader(lambda _: None) as reader:
        root = reader.read(pieces).root
    current, total = (_number(root.get(f"document-{each}", "0")) for each in ("current", "total"))
    return ReportedReindexing(root.get("state") == "indexing", current, total)


@dataclass(frozen=True, slots=True)
class ReportedReencryption:
    """The progress of encrypting a form again, or one ``version`` of it: ``current`` of ``total`` documents.

    ``state`` is ``encrypting``, ``finished`` or ``stopped``.
    """

    form: Form
    version: int | None
    state: str
    current: int
    total: int


def read_reencryptions(pieces: Iterable[bytes]) -> list[ReportedReencryption]:
    """Read the progress of encrypting forms again; raises as ``read_forms`` does."""
    found: list[ReportedReencryption] = []

    def take(form: ET.Element) -> None:
        app, name, version, current, total = (
            text_in(form.find(each)) for each in ("application-name", "form-name", "form-version", "current", "total")
        )
        number = _number(version) if version else None
        progress = (form.get("state", ""), _number(current), _number(total))
        found.append(ReportedReencryption(Form(app, name), number, *progress))

    with ChildReader(take) as reader:
        reader.read(pieces)
    return found


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise MalformedXmlError(f"the answer has {text[:20]!r} where a number is to be")
    return int(text)
