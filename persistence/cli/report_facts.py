"""Reports as objects of ``--json``. Sizes are in bytes. An unreadable part is an object with the cause, ``damaged``."""

from __future__ import annotations

from collections.abc import Iterator

from persistence.cli.terminal import shown_path
from persistence.maintenance.permission_words import in_words
from persistence.maintenance.reports import (
    AttachmentFacts,
    DocumentReport,
    FormSummary,
    Unreadable,
    VersionReport,
    VersionSummary,
)
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar

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
