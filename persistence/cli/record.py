"""What ``persistence show`` prints of a document or a draft."""

from __future__ import annotations

from collections.abc import Iterator

from persistence.cli.columns import facts, indented, table
from persistence.cli.edition import attachment_lines, damage, moment
from persistence.cli.texts import counted, safe, shown_path
from persistence.maintenance.reports import DocumentReport
from persistence.maintenance.tree_reader import AttachmentFacts, Unreadable
from persistence.model.sidecar import Sidecar


def record_lines(record: DocumentReport) -> Iterator[str]:
    """A document in lines: what is known of it, its attachments and its older revisions."""
    address = record.address
    yield safe(f"{address.form}/{address.collection.value}/{address.document}")
    yield from indented(facts(_facts(record)))
    yield from attachment_lines([_attachment(each, record.named) for each in record.attachments])
    yield from _revisions(record.revisions)


def _facts(record: DocumentReport) -> Iterator[tuple[str, list[str]]]:
    if record.sidecar is None:
        yield "data", ["never saved: there are only attachments"]
    else:
        yield from _of_revision(record.sidecar)
        yield from _of_content(record, record.sidecar)
    yield "saved data" if record.address.is_draft else "draft", _other(record.other)
    if isinstance(record.named, Unreadable):
        yield "content", [damage(record.named)]
    yield "file", [shown_path(record.path)]


def _of_revision(sidecar: Sidecar) -> Iterator[tuple[str, list[str]]]:
    yield "form version", [str(sidecar.version)]
    yield "created", [moment(sidecar.created, sidecar.creator)]
    yield "owner's group", [] if sidecar.group is None else [safe(sidecar.group)]
    yield "organization", [safe(" / ".join(sidecar.organization))] if sidecar.organization else []
    yield "deleted" if sidecar.deleted else "modified", [moment(sidecar.modified, sidecar.modifier)]
    yield "stage", [] if sidecar.stage is None else [safe(sidecar.stage)]
    yield "valid", [] if sidecar.valid is None else ["yes" if sidecar.valid else "no"]
    yield "adopted", ["by a repair or an adoption: no request has made this revision"] if sidecar.adopted else []


def _of_content(record: DocumentReport, sidecar: Sidecar) -> Iterator[tuple[str, list[str]]]:
    if not sidecar.deleted:
        yield "size", [counted(record.size, "byte")]
        yield "digest", [safe(sidecar.digest)] if sidecar.digest and not record.is_edited else []
        yield "edited", [_edited(sidecar)] if record.is_edited else []


def _edited(sidecar: Sidecar) -> str:
    return f"by hand, or copied without its times; what was saved had {counted(sidecar.size, 'byte')}"


def _other(other: Sidecar | Unreadable | None) -> list[str]:
    if other is None:
        return ["none"]
    if isinstance(other, Unreadable):
        return [damage(other)]
    return [f"{'deleted' if other.deleted else 'of'} {moment(other.modified, other.modifier)}"]


def _attachment(each: AttachmentFacts | Unreadable, named: frozenset[str] | Unreadable | None) -> tuple[str, ...]:
    if isinstance(each, Unreadable):
        return safe(each.name), "", "", damage(each)
    note = ""
    if isinstance(named, frozenset):
        note = "named by the data" if each.name in named else "not named by the data"
    return safe(each.name), safe(each.content_type or ""), str(each.size), note


def _revisions(revisions: tuple[Sidecar | Unreadable, ...]) -> Iterator[str]:
    if revisions:
        yield f"{counted(len(revisions), 'older revision')}:"
        yield from indented(table((("MODIFIED", "BY", "STAGE", "NOTES"), *map(_revision, revisions))))


def _revision(revision: Sidecar | Unreadable) -> tuple[str, ...]:
    if isinstance(revision, Unreadable):
        return revision.name, "", "", damage(revision)
    note = "deleted" if revision.deleted else ""
    return revision.modified, safe(revision.modifier or ""), safe(revision.stage or ""), note
