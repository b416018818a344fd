"""What ``persistence show`` prints of a published version."""

from __future__ import annotations

from collections.abc import Iterator

from persistence.cli.columns import facts, indented, table
from persistence.cli.permissions import in_words
from persistence.cli.texts import counted, safe, shown_path
from persistence.maintenance.reports import VersionReport
from persistence.maintenance.tree_reader import AttachmentFacts, PermissionsSource, Unreadable

_ORIGINS = {
    PermissionsSource.NOBODY: "neither the definition nor a property defines any",
    PermissionsSource.DEFINITION: "by the definition",
    PermissionsSource.PROPERTY: "by property, because the definition has none",
    PermissionsSource.SWITCHED_OFF: "switched off by property",
}


def edition_lines(edition: VersionReport) -> Iterator[str]:
    """A version in lines: what is known of it, its attachments and its controls."""
    yield safe(f"{edition.published.form} version {edition.published.version}")
    yield from indented(facts(_facts(edition)))
    yield from attachment_lines([_attachment(each) for each in edition.attachments])
    yield from _controls(edition)


def attachment_lines(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The table of attachments, where there are any; ``rows`` have name, content type, size and notes."""
    if rows:
        yield f"{counted(len(rows), 'attachment')}:"
        yield from indented(table((("FILE", "TYPE", "BYTES", "NOTES"), *rows), right=(2,)))


def damage(fault: Unreadable) -> str:
    """What cannot be read, and why."""
    return safe(f"damaged: {fault.cause}")


def moment(instant: str, who: str | None) -> str:
    """When, and by whom if that is known."""
    return instant if who is None else f"{instant} by {safe(who)}"


def _facts(edition: VersionReport) -> Iterator[tuple[str, list[str]]]:
    published, metadata = edition.published, edition.published.metadata
    yield "titles", [safe(f"{title} ({tag})" if tag else title) for tag, title in metadata.titles.items()]
    yield "created", [published.created]
    yield "modified", [moment(published.modified, published.modifier)]
    yield "made of", [] if edition.source is None else [safe(f"unpublished definition {edition.source}")]
    yield "available", ["yes" if metadata.available else "no"]
    yield "singleton", [_singleton(edition)]
    yield "permissions", [_ORIGINS[edition.permissions_source], *map(safe, in_words(edition.permissions))]
    yield "other versions", _others(edition)
    yield "size", [counted(edition.size, "byte")]
    yield "edited", ["by hand, or copied without its times"] if edition.is_edited else []
    yield "file", [shown_path(edition.path)]


def _singleton(edition: VersionReport) -> str:
    answer = "yes" if edition.is_singleton else "no"
    if edition.published.metadata.singleton is not None:
        return f"{answer}, by the definition"
    return f"{answer}, by property" if edition.is_singleton else answer


def _others(edition: VersionReport) -> list[str]:
    numbers = ", ".join(str(each) for each in edition.others if not isinstance(each, Unreadable))
    faults = [f"{each.name} {damage(each)}" for each in edition.others if isinstance(each, Unreadable)]
    return [*([numbers] if numbers else []), *faults]


def _attachment(each: AttachmentFacts | Unreadable) -> tuple[str, ...]:
    if isinstance(each, Unreadable):
        return safe(each.name), "", "", damage(each)
    return safe(each.name), safe(each.content_type or ""), str(each.size), ""


def _controls(edition: VersionReport) -> Iterator[str]:
    if isinstance(edition.controls, Unreadable):
        yield f"controls {damage(edition.controls)}"
    elif edition.controls:
        rows = [
            (
                safe(control.name),
                safe(control.kind),
                safe("/".join(control.paths[edition.data_format])),
                " ".join(_marks(is_indexed=control.is_indexed, is_encrypted=control.is_encrypted)),
            )
            for control in edition.controls
        ]
        yield f"{counted(len(rows), 'control')}, with paths in data of format {edition.data_format}:"
        yield from indented(table((("NAME", "KIND", "PATH", "MARKS"), *rows)))


def _marks(*, is_indexed: bool, is_encrypted: bool) -> Iterator[str]:
    if is_indexed:
        yield "indexed"
    if is_encrypted:
        yield "encrypted"
