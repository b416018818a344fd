"""Which data format a definition is in, from the releases that its metadata names (spec forms 1.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from persistence.forms.structure import METADATA_ID, DefinitionTree, instance_of
from persistence.forms.trees import Element
from persistence.model.form_versions import DATA_FORMATS, V4_0_0, V4_8_0

_RELEASES = frozenset({"created-with-version", "updated-with-version"})
_MIGRATED = frozenset(DATA_FORMATS) - {V4_0_0}
_SINCE = {tuple(map(int, version.split(".")[:2])): version for version in DATA_FORMATS}
_SEPARATOR = re.compile(r"[. -]")
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


def source_format(definition: DefinitionTree) -> str:
    """The data format of the newest release named; 4.8.0 where none is, or one before 4.0 only."""
    instance = instance_of(definition.model, METADATA_ID)
    metadata = None if instance is None else next(instance.iterchildren("*"), None)
    named = () if metadata is None else _named(metadata)
    newest = max((release for text in named if (release := _release(text))), default=None)
    known = [since for since in _SINCE if newest is not None and since <= newest]
    return _SINCE[max(known)] if known else V4_8_0


def _named(metadata: Element) -> Iterator[str]:
    for child in metadata.iterchildren("*"):
        if child.tag in _RELEASES:
            yield _text(child)
        elif child.tag == "migration" and child.get("version") in _MIGRATED and _text(child):
            yield child.get("version", "")


def _text(element: Element) -> str:
    return str(element.xpath("string()")).strip()


def _release(text: str) -> tuple[int, int] | None:
    """Major and minor number; ``None`` for what does not begin with two numbers."""
    parts = _SEPARATOR.split(text, maxsplit=2)[:2]
    if len(parts) < 2 or not all(_NUMBER.fullmatch(part) for part in parts):  # noqa: PLR2004 - major and minor
        return None
    return int(parts[0]), int(parts[1])
