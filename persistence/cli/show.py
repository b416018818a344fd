"""``persistence show``: facts about a form version or a document."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from persistence.cli.completion import form_names
from persistence.cli.managing import reading
from persistence.cli.options import TreeChoice, choose_trees, tree_options, usage_errors, version_number
from persistence.cli.report_facts import document_facts, version_facts
from persistence.cli.statuses import REMAINS
from persistence.cli.terminal import counted, facts, indented, json_option, print_table, safe, say, say_json, shown_path
from persistence.errors import BadRequestError
from persistence.maintenance.permission_words import SOURCES, in_words
from persistence.maintenance.reports import (
    AttachmentFacts,
    DocumentReport,
    Unreadable,
    VersionReport,
    report_document,
    report_version,
)
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.sidecar import Sidecar
from persistence.properties.property_table import FORM

_SHAPES = "APP/FORM, APP/FORM/VERSION, APP/FORM/data/DOCUMENT or APP/FORM/draft/DOCUMENT"
_COLLECTIONS = {collection.value: collection for collection in Collection}


@click.command(short_help="Print the facts about a form or a document.")
@click.argument("path", shell_complete=form_names)
@json_option
@tree_options
def show(*, path: str, as_json: bool, **options: str | None) -> None:
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
    if as_json:
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
    yield "singleton", [_singleton(report)]
    yield "permissions", [SOURCES[report.summary.permissions_source], *map(safe, in_words(report.permissions))]
    yield "other versions", _other_versions(report)
    yield "size", [counted(report.size, "byte")]
    yield "edited", ["by hand, or copied without its times"] if report.is_edited else []
    yield "file", [] if report.path is None else [shown_path(report.path)]


def _singleton(report: VersionReport) -> str:
    answer = "yes" if report.summary.is_singleton else "no"
    if report.summary.published.metadata.singleton is not None:
        return f"{answer}, by the definition"
    return f"{answer}, by property" if report.summary.is_singleton else answer


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
        yield from _content_facts(report, report.sidecar)
    yield "saved data" if report.address.is_draft else "draft", [_other(report.other)]
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


def _content_facts(report: DocumentReport, sidecar: Sidecar) -> Iterator[tuple[str, list[str]]]:
    if sidecar.deleted:
        return
    yield "size", [counted(report.size, "byte")]
    if report.is_edited:
        saved = counted(sidecar.size, "byte")
        yield "edited", [f"by hand, or copied without its times; what was saved had {saved}"]
    elif sidecar.digest:
        yield "digest", [safe(sidecar.digest)]


def _other(other: Sidecar | Unreadable | None) -> str:
    if other is None:
        return "none"
    if isinstance(other, Unreadable):
        return _damage(other)
    return f"{'deleted' if other.deleted else 'of'} {_moment(other.modified, other.modifier)}"


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
