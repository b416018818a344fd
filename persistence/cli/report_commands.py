"""``forms`` and ``show``: facts about forms, a form version or a document."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from persistence.cli.options import (
    ChosenTree,
    TreeChoice,
    choose_trees,
    form_names,
    on_each,
    reading,
    tree_options,
    usage_errors,
    version_number,
)
from persistence.cli.statuses import REMAINS, worst
from persistence.cli.terminal import (
    counted,
    facts,
    indented,
    is_json,
    json_option,
    print_table,
    safe,
    say,
    say_json,
    shown_path,
)
from persistence.errors import BadRequestError, NotFoundError, PersistenceError
from persistence.maintenance.reports import (
    SOURCES,
    AttachmentFacts,
    DocumentCounts,
    DocumentReport,
    FormSummary,
    Unreadable,
    VersionReport,
    VersionSummary,
    in_words,
    overview,
    report_document,
    report_version,
)
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.properties.property_table import FORM

Facts = dict[str, object]


def form_facts(summary: FormSummary, tree: str, *, published_elsewhere: bool) -> Facts:
    counts = summary.counts
    return {
        "form": str(summary.form),
        "tree": tree,
        "documents": counts.documents,
        "deleted": counts.deleted,
        "drafts": counts.drafts,
        "bytes": counts.size,
        "saved": counts.saved,
        "published_elsewhere": published_elsewhere,
        "versions": [
            _damaged("version", each) if isinstance(each, Unreadable) else _summary(each) for each in summary.versions
        ],
    }


def version_facts(report: VersionReport) -> Facts:
    return {
        "form": str(report.summary.published.form),
        **_summary(report.summary),
        "created": report.summary.published.created,
        "source": report.source,
        "permission_rules": list(in_words(report.permissions)),
        "other_versions": [
            _damaged("version", each) if isinstance(each, Unreadable) else {"version": each} for each in report.others
        ],
        "size": report.size,
        "edited": report.is_edited,
        "file": None if report.path is None else shown_path(report.path),
        "attachments": list(_attachments(report.attachments, None)),
        "data_format": report.data_format,
        "controls": [_damaged("file", report.controls)]
        if isinstance(report.controls, Unreadable)
        else [
            {
                "name": control.name,
                "kind": control.kind,
                "path": "/".join(control.path(report.data_format)),
                "indexed": control.is_indexed,
                "encrypted": control.is_encrypted,
            }
            for control in report.controls
        ],
    }


def document_facts(report: DocumentReport) -> Facts:
    address, sidecar = report.address, report.sidecar
    named = report.named
    other: Facts | None = None
    if isinstance(report.other, Unreadable):
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
        **({"damaged": named.cause} if isinstance(named, Unreadable) else {}),
        "file": None if report.path is None else shown_path(report.path),
        "attachments": list(_attachments(report.attachments, named if isinstance(named, frozenset) else None)),
        "revisions": [
            _damaged("modified", each) if isinstance(each, Unreadable) else revision_facts(each.modified, each)
            for each in report.revisions
        ],
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
        "size": content_size(sidecar),
        "deleted": sidecar.deleted,
        "adopted": sidecar.adopted or None,
        "encrypted": sidecar.encrypted or None,
        "restored": sidecar.restored,
    }
    return {name: value for name, value in values.items() if value is not None}


def content_size(sidecar: Sidecar) -> int:
    """Return the size of a content, also if another provider has it."""
    return sidecar.size if sidecar.body is None else sidecar.body.size


def _summary(summary: VersionSummary) -> Facts:
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


def _attachments(
    attachments: tuple[AttachmentFacts | Unreadable, ...], named: frozenset[str] | None
) -> Iterator[Facts]:
    for each in attachments:
        if isinstance(each, Unreadable):
            yield _damaged("file", each)
        else:
            yield {
                "file": each.name,
                "type": each.content_type,
                "size": each.size,
                "encrypted": each.is_encrypted,
                **({} if named is None else {"named": each.name in named}),
            }


def _damaged(label: str, fault: Unreadable) -> Facts:
    return {label: fault.name, "damaged": fault.cause}


_HEADINGS = (
    "FORM",
    "VERSION",
    "TITLE",
    "MODIFIED",
    "BY",
    "DOCUMENTS",
    "DELETED",
    "DRAFTS",
    "BYTES",
    "SAVED",
    "TREE",
    "NOTES",
)
_NUMBERS = (1, 5, 6, 7, 8)
_TITLE = 2
_ORDERS: dict[str, Callable[[DocumentCounts], Any]] = {
    "documents": lambda each: each.documents,
    "deleted": lambda each: each.deleted,
    "drafts": lambda each: each.drafts,
    "bytes": lambda each: each.size,
    "saved": lambda each: each.saved or "",
}
_ENGLISH = "en"
_SECOND = 19


@click.command(short_help="List the published versions of all forms.")
@click.argument("path", metavar="[APP[/FORM]]", required=False, shell_complete=form_names)
@click.option("--sort", type=click.Choice(tuple(_ORDERS)), help="Sort by a number or time, the highest first.")
@json_option
@tree_options
def forms(*, path: str | None, sort: str | None, **options: str | None) -> None:
    """List the published versions of all forms in all trees, or of those of APP, or of APP/FORM.

    Documents, deleted documents, drafts and their bytes are counted once for each form. Nothing is changed, and the
    service may run.
    """
    with usage_errors():
        app, name = _app_and_name(path)
    trees = choose_trees(options).trees
    found = list[tuple[ChosenTree, FormSummary]]()
    unknown = list[NotFoundError]()

    def read(tree: ChosenTree, _prefix: str) -> int:
        try:
            with usage_errors(), reading(tree) as reader:
                found.extend((tree, summary) for summary in overview(reader, app, name))
        except NotFoundError as error:  # it may be in another tree
            unknown.append(error)
        return 0

    status = on_each(trees, read)
    if unknown and len(unknown) == len(trees):
        raise unknown[0]
    found.sort(key=lambda each: (each[1].form.app, each[1].form.name))  # a stable sort keeps the order of the trees
    if sort is not None:
        found.sort(key=lambda each: _ORDERS[sort](each[1].counts), reverse=True)
    summaries = [summary for _, summary in found]
    damaged = sum(isinstance(version, Unreadable) for summary in summaries for version in summary.versions)
    if is_json():
        for tree, summary in found:
            say_json(form_facts(summary, tree.name, published_elsewhere=_is_elsewhere(summary, tree)))
    else:
        rows = [row for tree, summary in found for row in _form_rows(summary, tree, with_tree=len(trees) > 1)]
        if rows:
            print_table((_HEADINGS, *rows), right=_NUMBERS, flexible=_TITLE, footer=_totals(summaries))
        say(_counts(summaries, damaged))
    sys.exit(worst((status, REMAINS if damaged else 0)))


def _app_and_name(path: str | None) -> tuple[str | None, str | None]:
    match [] if path is None else path.split("/"):
        case []:
            return None, None
        case [app]:
            return app, None
        case [app, name] if name:
            return app, name
        case _:
            raise BadRequestError(f"{safe(path or '')} is not APP or APP/FORM")


def _form_rows(summary: FormSummary, tree: ChosenTree, *, with_tree: bool) -> Iterator[tuple[str, ...]]:
    form, where = safe(str(summary.form)), safe(tree.name) if with_tree else ""
    found = summary.counts
    numbers = (found.documents, found.deleted, found.drafts, found.size)
    saved = "" if found.saved is None else f"{found.saved[:_SECOND]}Z"
    counts = (*(str(number) if number else "" for number in numbers), saved)
    if not summary.versions:
        note = "published in another tree" if _is_elsewhere(summary, tree) else "nothing published"
        yield form, "", "", "", "", *counts, where, note
    for version in summary.versions:
        if isinstance(version, Unreadable):
            yield form, version.name, "", "", "", *counts, where, safe(f"damaged: {version.cause}")
        else:
            published, titles = version.published, version.published.metadata.titles
            title = safe(titles.get(_ENGLISH, next(iter(titles.values()), "")))
            cells = str(published.version), title, f"{published.modified[:_SECOND]}Z", safe(published.modifier or "")
            yield form, *cells, *counts, where, "; ".join(_notes(version))
        counts = ("",) * len(counts)


def _is_elsewhere(summary: FormSummary, tree: ChosenTree) -> bool:
    if summary.versions:
        return False
    try:
        with reading(tree) as reader:
            storage = reader.catalog_of(summary.form).storage
            return next(iter(storage.versions(summary.form)), None) is not None
    except PersistenceError:  # the form has no provider, or that tree cannot be used
        return False


def _notes(summary: VersionSummary) -> Iterator[str]:
    if not summary.published.metadata.available:
        yield "not available"
    if summary.is_singleton:
        yield "singleton"
    yield f"permissions: {summary.permissions_source.value}"


def _totals(found: Iterable[FormSummary]) -> tuple[str, ...]:
    total = DocumentCounts()
    for summary in found:
        total.add(summary.counts)
    numbers = map(str, (total.documents, total.deleted, total.drafts, total.size))
    return ("TOTAL", "", "", "", "", *numbers, "" if total.saved is None else f"{total.saved[:_SECOND]}Z", "", "")


def _counts(found: Iterable[FormSummary], damaged: int) -> str:
    published = [summary for summary in found if summary.versions]
    counts = (
        counted(len({summary.form for summary in published}), "form"),
        counted(sum(len(summary.versions) for summary in published), "version"),
        counted(sum(summary.counts.documents for summary in found), "document"),
        f"{sum(summary.counts.deleted for summary in found)} deleted",
        counted(sum(summary.counts.drafts for summary in found), "draft"),
    )
    return ", ".join(counts) + (f"; {counted(damaged, 'version')} damaged" if damaged else "")


_SHAPES = "APP/FORM, APP/FORM/VERSION, APP/FORM/data/DOCUMENT or APP/FORM/draft/DOCUMENT"
_COLLECTIONS = {collection.value: collection for collection in Collection}


@click.command(short_help="Print the facts about a form or a document.")
@click.argument("path", shell_complete=form_names)
@json_option
@tree_options
def show(*, path: str, **options: str | None) -> None:
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
    choice = choose_trees(options)
    with usage_errors():
        report = _report(path.split("/"), choice)
    if is_json():
        say_json(version_facts(report) if isinstance(report, VersionReport) else document_facts(report))
    elif isinstance(report, VersionReport):
        _say_version(report)
    else:
        _say_document(report)
    if report.is_damaged:
        sys.exit(REMAINS)


def _report(parts: list[str], choice: TreeChoice) -> VersionReport | DocumentReport:
    version = None
    match parts:
        case [app, name]:
            pass
        case [app, name, number] | [app, name, "form", number]:
            version = version_number(number)
        case [app, name, collection, document] if collection in _COLLECTIONS:
            main = DocumentAddress(Form(app, name), _COLLECTIONS[collection], document, DATA_XML)
            tree = choice.tree_of(main.form)
            with reading(tree) as reader:
                return report_document(reader, main)
        case _:
            raise BadRequestError(f"{safe('/'.join(parts))} is not {_SHAPES}")
    form = Form(app, name)
    tree = choice.tree_of(form, FORM)
    with reading(tree) as reader:
        return report_version(reader, form, version)


def _say_version(report: VersionReport) -> None:
    say(safe(f"{report.summary.published.form} version {report.summary.published.version}"))
    for line in indented(facts(_version_facts(report))):
        say(line)
    _say_attachments(report.attachments, None)
    _say_controls(report)


def _version_facts(report: VersionReport) -> Iterator[tuple[str, list[str]]]:
    published, metadata = report.summary.published, report.summary.published.metadata
    yield "titles", [safe(f"{title} ({tag})" if tag else title) for tag, title in metadata.titles.items()]
    yield "created", [published.created]
    yield "modified", [_moment(published.modified, published.modifier)]
    yield "made of", [] if report.source is None else [safe(f"unpublished definition {report.source}")]
    yield "available", ["yes" if metadata.available else "no"]
    singleton = "yes" if report.summary.is_singleton else "no"
    if metadata.singleton is not None:
        singleton += ", by the definition"
    elif report.summary.is_singleton:
        singleton += ", by property"
    yield "singleton", [singleton]
    yield "permissions", [SOURCES[report.summary.permissions_source], *map(safe, in_words(report.permissions))]
    yield "other versions", _other_versions(report)
    yield "size", [counted(report.size, "byte")]
    yield "edited", ["by hand, or copied without its times"] if report.is_edited else []
    yield "file", [] if report.path is None else [shown_path(report.path)]


def _other_versions(report: VersionReport) -> list[str]:
    numbers = ", ".join(str(each) for each in report.others if not isinstance(each, Unreadable))
    faults = [f"{each.name} {_damage(each)}" for each in report.others if isinstance(each, Unreadable)]
    return [*([numbers] if numbers else []), *faults]


def _say_controls(report: VersionReport) -> None:
    if isinstance(report.controls, Unreadable):
        say(f"controls {_damage(report.controls)}")
    elif report.controls:
        rows = [("NAME", "KIND", "PATH", "MARKS")]
        for control in report.controls:
            labels = [*(["indexed"] if control.is_indexed else []), *(["encrypted"] if control.is_encrypted else [])]
            path = "/".join(control.path(report.data_format))
            rows.append((safe(control.name), safe(control.kind), safe(path), " ".join(labels)))
        count = counted(len(report.controls), "control")
        say(f"{count}, with paths in data of format {report.data_format}:")
        print_table(rows, is_indented=True)


def _say_document(report: DocumentReport) -> None:
    address = report.address
    say(safe(f"{address.form}/{address.collection.value}/{address.document}"))
    for line in indented(facts(_document_facts(report))):
        say(line)
    _say_attachments(report.attachments, report.named)
    if report.revisions:
        say(f"{counted(len(report.revisions), 'older revision')}:")
        print_table((("MODIFIED", "BY", "STAGE", "NOTES"), *map(_revision, report.revisions)), is_indented=True)


def _document_facts(report: DocumentReport) -> Iterator[tuple[str, list[str]]]:
    if report.sidecar is None:
        yield "data", ["never saved: there are only attachments"]
    else:
        yield from _revision_facts(report.sidecar)
        if not report.sidecar.deleted:
            yield "size", [counted(report.size, "byte")]
            if report.is_edited:
                saved = counted(report.sidecar.size, "byte")
                yield "edited", [f"by hand, or copied without its times; what was saved had {saved}"]
            elif report.sidecar.digest:
                yield "digest", [safe(report.sidecar.digest)]
    other, label = "none", "saved data" if report.address.is_draft else "draft"
    if isinstance(report.other, Unreadable):
        other = _damage(report.other)
    elif report.other is not None:
        word = "deleted" if report.other.deleted else "of"
        other = f"{word} {_moment(report.other.modified, report.other.modifier)}"
    yield label, [other]
    if isinstance(report.named, Unreadable):
        yield "content", [_damage(report.named)]
    yield "file", [] if report.path is None else [shown_path(report.path)]


def _revision_facts(sidecar: Sidecar) -> Iterator[tuple[str, list[str]]]:
    yield "form version", [str(sidecar.version)]
    yield "created", [_moment(sidecar.created, sidecar.creator)]
    yield "owner's group", [] if sidecar.group is None else [safe(sidecar.group)]
    yield "organization", [safe(" / ".join(sidecar.organization))] if sidecar.organization else []
    yield "deleted" if sidecar.deleted else "modified", [_moment(sidecar.modified, sidecar.modifier)]
    yield "stage", [] if sidecar.stage is None else [safe(sidecar.stage)]
    yield "valid", [] if sidecar.valid is None else ["yes" if sidecar.valid else "no"]
    yield "adopted", ["by a repair or an adoption: no request has made this revision"] if sidecar.adopted else []


def _revision(revision: Sidecar | Unreadable) -> tuple[str, ...]:
    if isinstance(revision, Unreadable):
        return revision.name, "", "", _damage(revision)
    note = "deleted" if revision.deleted else ""
    return revision.modified, safe(revision.modifier or ""), safe(revision.stage or ""), note


def _say_attachments(
    attachments: tuple[AttachmentFacts | Unreadable, ...], named: frozenset[str] | Unreadable | None
) -> None:
    if not attachments:
        return
    rows = [("FILE", "TYPE", "BYTES", "NOTES")]
    for each in attachments:
        if isinstance(each, Unreadable):
            rows.append((safe(each.name), "", "", _damage(each)))
            continue
        note = ""
        if isinstance(named, frozenset):
            note = "named by the data" if each.name in named else "not named by the data"
        rows.append((safe(each.name), safe(each.content_type or ""), str(each.size), note))
    say(f"{counted(len(attachments), 'attachment')}:")
    print_table(rows, right=(2,), is_indented=True)


def _damage(fault: Unreadable) -> str:
    return safe(f"damaged: {fault.cause}")


def _moment(instant: str, who: str | None) -> str:
    return instant if who is None else f"{instant} by {safe(who)}"
