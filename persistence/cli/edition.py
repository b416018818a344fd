"""What ``persistence show`` prints of a published version."""

from __future__ import annotations

from collections.abc import Iterator

from persistence.cli.columns import facts, indented, table
from persistence.cli.permissions import in_words
from persistence.cli.texts import counted, safe, shown_path
from persistence.maintenance.editions import Edition
from persistence.maintenance.sight import Attachment, Faulty, Origin

_ORIGINS = {
    Origin.NOBODY: "neither the definition nor a property defines any",
    Origin.DEFINITION: "by the definition",
    Origin.PROPERTY: "by property, because the definition has none",
    Origin.SWITCHED_OFF: "switched off by property",
}


def edition_lines(edition: Edition) -> Iterator[str]:
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


def damage(fault: Faulty) -> str:
    """What cannot be read, and why."""
    return safe(f"damaged: {fault.cause}")


def moment(instant: str, who: str | None) -> str:
    """When, and by whom if that is known."""
    return instant if who is None else f"{instant} by {safe(who)}"


def _facts(edition: Edition) -> Iterator[tuple[str, list[str]]]:
    published, metadata = edition.published, edition.published.metadata
    yield "titles", [safe(f"{title} ({tag})" if tag else title) for tag, title in metadata.titles.items()]
    yield "created", [published.created]
    yield "modified", [moment(published.modified, published.modifier)]
    yield "made of", [] if edition.source is None else [safe(f"unpublished definition {edition.source}")]
    yield "available", ["yes" if metadata.available else "no"]
    yield "singleton", [_singleton(edition)]
    yield "permissions", [_ORIGINS[edition.permissions_from], *map(safe, in_words(edition.permissions))]
    yield "other versions", _others(edition)
    yield "size", [counted(edition.size, "byte")]
    yield "edited", ["by hand, or copied without its times"] if edition.is_edited else []
    yield "file", [shown_path(edition.path)]


def _singleton(edition: Edition) -> str:
    answer = "yes" if edition.is_singleton else "no"
    if edition.published.metadata.singleton is not None:
        return f"{answer}, by the definition"
    return f"{answer}, by property" if edition.is_singleton else answer


def _others(edition: Edition) -> list[str]:
    numbers = ", ".join(str(each) for each in edition.others if not isinstance(each, Faulty))
    faults = [f"{each.name} {damage(each)}" for each in edition.others if isinstance(each, Faulty)]
    return [*([numbers] if numbers else []), *faults]


def _attachment(each: Attachment | Faulty) -> tuple[str, ...]:
    if isinstance(each, Faulty):
        return safe(each.name), "", "", damage(each)
    return safe(each.name), safe(each.content_type or ""), str(each.size), ""


def _controls(edition: Edition) -> Iterator[str]:
    if isinstance(edition.controls, Faulty):
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
