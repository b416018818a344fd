"""Looking ahead at an adoption: size and digest before and after, and for XML a diff."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from persistence.maintenance import listing
from persistence.maintenance.adoption import read_through
from persistence.maintenance.revisions import newest_whole
from persistence.maintenance.tree import Folder
from persistence.model.sidecar import Sidecar
from persistence.storage import nofollow, stored_revision
from persistence.storage.layout import Place
from persistence.storage.sidecars import ChangedSidecarError

_LARGEST = 1 << 18
"""Bytes of a content that is compared line by line."""
_MOST_LINES = 200
_BETWEEN_TAGS = re.compile(r">(?=<)")


@dataclass(frozen=True, slots=True)
class Preview:
    """What an adoption would do: ``said`` in one line, ``difference`` as the lines of a unified diff."""

    said: str
    difference: tuple[str, ...]


def preview(folder: Folder, place: Place) -> Preview:
    """Look ahead at the adoption of the content of a place.

    Raises:
        BadRequestError: it would be refused: it must be XML, and is not, or has permissions that are not known.
        DamagedError: the sidecar beside it cannot be decoded.
        OSError: it cannot be read.
    """
    stored, is_changed = _stored(place)
    seen = read_through(folder.address(place.name), place.content)
    before = "nothing" if stored is None or stored.deleted else f"{stored.size} bytes {stored.digest}"
    said = f"would be adopted: {before} -> {seen.size} bytes {seen.digest}"
    if stored is not None and is_changed:
        said = f"{said}; its sidecar says: {_facts(stored)}"
    if not place.must_be_xml or stored is None or stored.deleted:
        return Preview(said, ())
    return Preview(said, tuple(_difference(place, stored)))


def _stored(place: Place) -> tuple[Sidecar | None, bool]:
    """What the sidecar says, and whether it was changed or belongs to another content."""
    try:
        return stored_revision.read_sidecar(place), False
    except ChangedSidecarError as error:
        return error.said, True


def _facts(said: Sidecar) -> str:
    """The facts of a changed sidecar on which permissions depend, to be looked at before they count."""
    facts = {"version": said.version, "creator": said.creator, "group": said.group, "stage": said.stage}
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)


def _difference(place: Place, stored: Sidecar) -> Iterator[str]:
    """Compare with what was stored, where it is kept under a second name, else with the newest whole revision."""
    kept = newest_whole(listing.history(place.directory.removesuffix("/")), place.name, living=True)
    if kept is None:
        yield "no older revision to compare with is left"
        return
    old, new = _lines(kept[0].place.content), _lines(place.content)
    name = f"stored at {stored.modified}" if kept[1].id == stored.id else f"revision of {kept[1].modified}"
    if old is None or new is None:
        yield f"too large to be compared with the {name}"
        return
    lines = list(difflib.unified_diff(old, new, name, "as it is", lineterm="", n=1))
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"... and {len(lines) - _MOST_LINES} more lines"


def _lines(path: str) -> list[str] | None:
    """The lines of XML, with a break between tags; ``None`` where it is too large."""
    with open(nofollow.open_file(path), "rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        return None
    return _BETWEEN_TAGS.sub(">\n", data.decode("utf-8", "replace")).splitlines()
