"""``forms`` and ``show``: facts about forms, a form version or a document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click

from persistence.cli import options
from persistence.cli.declarations import REMAINS, command, exits, worst
from persistence.cli.terminal import (
    Columns,
    Facts,
    counted,
    is_json,
    labelled,
    print_table,
    safe,
    say,
    say_json,
    say_table,
    shown_path,
    to_second,
)
from persistence.errors import PersistenceError
from persistence.maintenance import reports
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.sidecar import Sidecar
from persistence.model.texts import Instant
from persistence.properties.property_table import FORM

T = TypeVar("T")


def _form_facts(summary: reports.FormSummary, tree: options.ChosenTree) -> Facts:
    counts = summary.counts
    return {
        "form": str(summary.form),
        "tree": tree.name,
        "documents": counts.documents,
        "deleted": counts.deleted,
        "drafts": counts.drafts,
        "bytes": counts.size,
        "saved": counts.saved,
        "published_elsewhere": _is_elsewhere(summary, tree),
        "versions": _listed("version", summary.versions, _summary),
    }


def _version_facts(report: reports.VersionReport) -> Facts:
    def control(each: Any) -> Facts:
        facts = {"name": each.name, "kind": each.kind, "path": "/".join(each.path(report.data_format))}
        return {**facts, "indexed": each.is_indexed, "encrypted": each.is_encrypted}

    controls = [report.controls] if isinstance(report.controls, reports.Unreadable) else report.controls
    return {
        "form": str(report.summary.published.form),
        **_summary(report.summary),
        "created": report.summary.published.created,
        "source": report.source,
        "permission_rules": list(reports.in_words(report.permissions)),
        "other_versions": _listed("version", report.others, lambda number: {"version": number}),
        "size": report.size,
        "edited": report.is_edited,
        "file": None if report.path is None else shown_path(report.path),
        "attachments": _attachments(report.attachments, None),
        "data_format": report.data_format,
        "controls": _listed("file", controls, control),
    }


def _document_facts(report: reports.DocumentReport) -> Facts:
    address, sidecar = report.address, report.sidecar
    named = report.named
    other: Facts | None = None
    if isinstance(report.other, reports.Unreadable):
        other = {"damaged": report.other.cause}
    elif report.other is not None:
        other = revision_facts(report.other.modified, report.other)
    return {
        "form": str(address.form),
        "collection": address.collection.value,
        "document": address.document,
        **({} if sidecar is None else revision_facts(sidecar.modified, sidecar)),
        **({} if sidecar is None or sidecar.deleted else {"size": report.size, "edited": report.is_edited}),
        **({} if sidecar is None or sidecar.valid is None else {"valid": sidecar.valid}),
        **({} if sidecar is None or not sidecar.digest or report.is_edited else {"digest": sidecar.digest}),
        "data" if address.is_draft else "draft": other,
        **({"damaged": named.cause} if isinstance(named, reports.Unreadable) else {}),
        "file": None if report.path is None else shown_path(report.path),
        "attachments": _attachments(report.attachments, named),
        "revisions": _listed("modified", report.revisions, lambda each: revision_facts(each.modified, each)),
    }


def revision_facts(instant: Instant, sidecar: Sidecar | None) -> Facts:
    """Return a revision without unknown values. ``None`` is a damaged sidecar."""
    if sidecar is None:
        return {"modified": instant, "damaged": True}
    values = {
        "modified": instant,
        "modified_by": sidecar.modifier,
        "created": sidecar.created,
        "owner": sidecar.creator,
        "group": sidecar.group,
        "organization": list(sidecar.organization) or None,
        "stage": sidecar.stage,
        "version": sidecar.version,
        "size": sidecar.size if sidecar.body is None else sidecar.body.size,  # also if another provider has it
        "deleted": sidecar.deleted,
        "adopted": sidecar.adopted or None,
        "encrypted": sidecar.encrypted or None,
        "restored": sidecar.restored,
    }
    return {name: value for name, value in values.items() if value is not None}


def _summary(summary: reports.VersionSummary) -> Facts:
    published = summary.published
    return {
        "version": published.version,
        "titles": dict(published.metadata.titles),
        "modified": published.modified,
        "modified_by": published.modifier,
        "available": published.metadata.available,
        "singleton": summary.is_singleton,
        "permissions": summary.permissions_source.value,
    }


def _listed(label: str, found: Iterable[T | reports.Unreadable], facts_of: Callable[[T], Facts]) -> list[Facts]:
    return [
        {label: each.name, "damaged": each.cause} if isinstance(each, reports.Unreadable) else facts_of(each)
        for each in found
    ]


def _attachments(attachments: Iterable[reports.AttachmentFacts | reports.Unreadable], named: object) -> list[Facts]:
    def facts_of(each: reports.AttachmentFacts) -> Facts:
        facts = {"file": each.name, "type": each.content_type, "size": each.size, "encrypted": each.is_encrypted}
        return facts | ({"named": each.name in named} if isinstance(named, frozenset) else {})

    return _listed("file", attachments, facts_of)


_COUNTS = ("documents", "deleted", "drafts", "bytes", "saved")


@command("forms", "List the published versions of all forms.", options.TREES)
@exits(
    "all could be read",
    "could not look: no such application or form, no data directory (or not in all of them)",
    remains="a version is damaged, as its line says",
)
@click.argument("path", metavar="[APP[/FORM]]", required=False, shell_complete=options.form_names)
@click.option("--sort", type=click.Choice(_COUNTS), help="Sort by a number or time, the highest first.")
def forms(*, path: str | None, sort: str | None, choice: options.TreeChoice) -> int:
    """List the published versions of all forms in all trees, or of those of APP, or of APP/FORM.

    Documents, deleted documents, drafts and their bytes are counted once for each form. Nothing is changed, and the
    service may run.
    """
    parts = options.parts_of(path, "APP", "APP/FORM") if path else {} if path is None else {"APP": path}
    found = list[Facts]()

    def read(tree: options.ChosenTree, _prefix: str) -> int:
        with options.usage_errors(), options.reading(tree) as reader:
            found.extend(
                _form_facts(each, tree) for each in reports.overview(reader, parts.get("APP"), parts.get("FORM"))
            )
        return 0

    status = options.on_each(choice.trees, read, is_anywhere=True)
    found.sort(key=lambda each: each["form"].split("/"))  # a stable sort keeps the order of the trees
    if sort is not None:
        found.sort(key=lambda each: each[sort] or ("" if sort == "saved" else 0), reverse=True)
    damaged = sum("damaged" in version for each in found for version in each["versions"])
    if is_json():
        for each in found:
            say_json(each)
    else:
        _say_forms(found, damaged, with_tree=len(choice.trees) > 1)
    return worst((status, REMAINS if damaged else 0))


def _say_forms(found: Sequence[Facts], damaged: int, *, with_tree: bool) -> None:
    rows = [row for each in found for row in _form_rows(each, each["tree"] if with_tree else "")]
    total = {name: sum(each[name] for each in found) for name in _COUNTS[:-1]}
    total["saved"] = max((each["saved"] for each in found if each["saved"]), default=None)
    columns = ("FORM", "VERSION", "TITLE", "MODIFIED", "BY", *map(str.upper, _COUNTS), "TREE", "NOTES")
    if rows:
        footer = ("TOTAL", "", "", "", "", *_numbers(total, zero="0"), "", "")
        print_table((columns, *rows), right=(1, 5, 6, 7, 8), flexible=2, footer=footer)
    published = [each for each in found if each["versions"]]
    counts = (
        counted(len({each["form"] for each in published}), "form"),
        counted(sum(len(each["versions"]) for each in published), "version"),
        counted(total["documents"], "document"),
        f"{total['deleted']} deleted",
        counted(total["drafts"], "draft"),
    )
    say(", ".join(counts) + (f"; {counted(damaged, 'version')} damaged" if damaged else ""))


def _numbers(facts: Facts, zero: str = "") -> tuple[str, ...]:
    return (*(str(facts[name] or zero) for name in _COUNTS[:-1]), to_second(facts["saved"]))


def _form_rows(facts: Facts, tree: str) -> Iterator[tuple[str, ...]]:
    form, where, numbers = safe(facts["form"]), safe(tree), _numbers(facts)
    if not facts["versions"]:
        note = "published in another tree" if facts["published_elsewhere"] else "nothing published"
        yield form, "", "", "", "", *numbers, where, note
    for each in facts["versions"]:
        if "damaged" in each:
            yield form, each["version"], "", "", "", *numbers, where, safe(f"damaged: {each['damaged']}")
        else:
            titles, notes = each["titles"], "" if each["available"] else "not available; "
            notes += "singleton; " if each["singleton"] else ""
            title = safe(titles.get("en", next(iter(titles.values()), "")))
            cells = str(each["version"]), title, to_second(each["modified"]), safe(each["modified_by"] or "")
            yield form, *cells, *numbers, where, f"{notes}permissions: {each['permissions']}"
        numbers = ("",) * len(numbers)


def _is_elsewhere(summary: reports.FormSummary, tree: options.ChosenTree) -> bool:
    if summary.versions:
        return False
    try:
        with options.reading(tree) as reader:
            storage = reader.catalog_of(summary.form).storage
            return next(iter(storage.versions(summary.form)), None) is not None
    except PersistenceError:  # the form has no provider, or that tree cannot be used
        return False


@command("show", "Print the facts about a form or a document.", options.TREES)
@exits(
    "all could be read", "there is nothing there, or it is damaged", remains="a part of it is damaged, as the lines say"
)
@click.argument("path", shell_complete=options.form_names)
def show(*, path: str, choice: options.TreeChoice) -> int:
    """Print the facts about a form or a document, without its content.

    \b
    PATH is one of  APP/FORM                 the latest published version
                    APP/FORM/VERSION         another one
                    APP/FORM/form/VERSION    the same, by its path on disk
                    APP/FORM/data/DOCUMENT   a document
                    APP/FORM/draft/DOCUMENT  its draft

    The tree or database is that of the form, as persistence config route says. Names are those of the URL, without
    percent-encoding. Nothing is changed, and the service may run.
    """  # noqa: D301 - click's mark for lines that stay apart
    report = _report(path, choice)
    facts = _version_facts(report) if isinstance(report, reports.VersionReport) else _document_facts(report)
    if is_json():
        say_json(facts)
        return REMAINS if report.is_damaged else 0
    if isinstance(report, reports.VersionReport):
        title, labels = f"{facts['form']} version {facts['version']}", _version_labels(report, facts)
    else:
        title, labels = f"{facts['form']}/{facts['collection']}/{facts['document']}", _document_labels(report, facts)
    say(safe(title))
    for line in labelled(labels):
        say(f"  {line}")
    _say_listed("attachment", facts["attachments"], _ATTACHMENTS)
    if isinstance(report, reports.DocumentReport):
        _say_listed("older revision", facts["revisions"], _REVISIONS)
    elif isinstance(report.controls, reports.Unreadable):
        say(f"controls {_damage(facts['controls'][0])}")
    else:
        _say_listed("control", facts["controls"], _CONTROLS, f", with paths in data of format {report.data_format}")
    return REMAINS if report.is_damaged else 0


@options.usage_errors()
def _report(path: str, choice: options.TreeChoice) -> reports.VersionReport | reports.DocumentReport:
    match path.split("/"):
        case [app, name, "form", number]:
            path = f"{app}/{name}/{number}"
    shapes = ("APP/FORM", "APP/FORM/VERSION", "APP/FORM/data/DOCUMENT", "APP/FORM/draft/DOCUMENT")
    parts = options.parts_of(path, *shapes, may_be_empty=options.NAMES)
    form = Form(parts["APP"], parts["FORM"])
    if "DOCUMENT" in parts:
        collection = Collection.DRAFT if "draft" in parts else Collection.DATA
        main = DocumentAddress(form, collection, parts["DOCUMENT"])
        with options.reading(choice.tree_of(form)) as reader:
            return reports.report_document(reader, main)
    version = options.version_number(parts["VERSION"]) if "VERSION" in parts else None
    with options.reading(choice.tree_of(form, FORM)) as reader:
        return reports.report_version(reader, form, version)


def _version_labels(report: reports.VersionReport, facts: Facts) -> Iterator[tuple[str, list[str]]]:
    yield "titles", [safe(f"{title} ({tag})" if tag else title) for tag, title in facts["titles"].items()]
    yield "created", [facts["created"]]
    yield "modified", [_moment(facts)]
    yield "made of", [] if report.source is None else [safe(f"unpublished definition {report.source}")]
    yield "available", [_yes(facts["available"])]
    cause = ""
    if report.summary.published.metadata.singleton is not None:
        cause = ", by the definition"
    elif facts["singleton"]:
        cause = ", by property"
    yield "singleton", [_yes(facts["singleton"]) + cause]
    yield "permissions", [reports.SOURCES[report.summary.permissions_source], *map(safe, facts["permission_rules"])]
    others = facts["other_versions"]
    numbers = ", ".join(str(each["version"]) for each in others if "damaged" not in each)
    faults = [f"{each['version']} {_damage(each)}" for each in others if "damaged" in each]
    yield "other versions", [*([numbers] if numbers else []), *faults]
    yield "size", [counted(report.size, "byte")]
    yield "edited", ["by hand, or copied without its times"] if report.is_edited else []
    yield "file", [facts["file"]] if facts["file"] else []


def _document_labels(report: reports.DocumentReport, facts: Facts) -> Iterator[tuple[str, list[str]]]:
    sidecar = report.sidecar
    if sidecar is None:
        yield "data", ["never saved: there are only attachments"]
    else:
        yield "form version", [str(sidecar.version)]
        yield "created", [_moment(facts, "created", "owner")]
        yield "owner's group", [safe(facts["group"])] if "group" in facts else []
        yield "organization", [safe(" / ".join(sidecar.organization))] if sidecar.organization else []
        yield "deleted" if sidecar.deleted else "modified", [_moment(facts)]
        yield "stage", [safe(facts["stage"])] if "stage" in facts else []
        yield "valid", [_yes(facts["valid"])] if "valid" in facts else []
        adopted = "by a repair or an adoption: no request has made this revision"
        yield "adopted", [adopted] if sidecar.adopted else []
        if not sidecar.deleted:
            yield "size", [counted(report.size, "byte")]
            saved = f"by hand, or copied without its times; what was saved had {counted(sidecar.size, 'byte')}"
            yield "edited", [saved] if report.is_edited else []
            yield "digest", [safe(facts["digest"])] if "digest" in facts else []
    label, other = ("saved data", facts["data"]) if report.address.is_draft else ("draft", facts["draft"])
    if other is None:
        yield label, ["none"]
    elif "damaged" in other:
        yield label, [_damage(other)]
    else:
        yield label, [f"{'deleted' if other['deleted'] else 'of'} {_moment(other)}"]
    yield "content", [_damage(facts)] if "damaged" in facts else []
    yield "file", [facts["file"]] if facts["file"] else []


def _note(facts: Facts) -> str:
    if "damaged" in facts:
        return _damage(facts)
    named = {None: "", True: "named by the data", False: "not named by the data"}[facts.get("named")]
    return "deleted" if facts.get("deleted") else named


def _marks(control: Facts) -> str:
    return " ".join(mark for mark in ("indexed", "encrypted") if control[mark])


_ATTACHMENTS: Columns = ("file", "type", ("BYTES", "size"), ("NOTES", _note))
_REVISIONS: Columns = ("modified", ("BY", "modified_by"), "stage", ("NOTES", _note))
_CONTROLS: Columns = ("name", "kind", "path", ("MARKS", _marks))


def _say_listed(noun: str, objects: Sequence[Facts], columns: Columns, end: str = "") -> None:
    if objects:
        say(f"{counted(len(objects), noun)}{end}:")
        say_table(objects, columns, is_indented=True)


def _damage(facts: Facts) -> str:
    return safe(f"damaged: {facts['damaged']}") if "damaged" in facts else ""


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _moment(facts: Facts, instant: str = "modified", by: str = "modified_by") -> str:
    return facts[instant] if facts.get(by) is None else f"{facts[instant]} by {safe(facts[by])}"
