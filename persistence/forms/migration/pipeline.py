"""The migration of a definition as a whole, from the format that it is in (spec forms 1.3, 1.9 to 1.11)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from persistence.forms.migration import grids, templates
from persistence.forms.migration.grids import Editor
from persistence.forms.migration.plan import plan_grids, plan_repeats
from persistence.forms.structure import FR, METADATA_ID, DefinitionTree, instance_of
from persistence.forms.trees import Element, Tree, on_stored_tree, serialized
from persistence.model.form_versions import DATA_FORMATS, V4_0_0, V4_8_0

_RELEASES = frozenset({"created-with-version", "updated-with-version"})
_MIGRATED = frozenset(DATA_FORMATS) - {V4_0_0}
_SINCE = {tuple(map(int, version.split(".")[:2])): version for version in DATA_FORMATS}
_SEPARATOR = re.compile(r"[. -]")
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_FORMAT = f"{FR}data-format-version"


def migrate(stored: bytes, target: str, *, is_unpublished: bool) -> bytes:
    """Migrate the data, templates, binds and grids of a stored definition to ``target``, one of ``DATA_FORMATS``.

    Its own format is inferred from its metadata; names, other attributes and section templates stay. A document without
    form model or form instance comes back as it is. ``is_unpublished`` is true of a definition from the designer's
    documents, whose data names no format.

    Raises:
        BadRequestError: the definition is too large, or would become so.
        DamagedError: it is not well-formed XML.
    """

    def work(tree: Tree) -> bytes:
        definition = DefinitionTree.read(tree)
        if definition is None:
            return stored
        _migrate(definition, target, is_unpublished=is_unpublished)
        return serialized(tree)

    return on_stored_tree(stored, work)


def _migrate(definition: DefinitionTree, target: str, *, is_unpublished: bool) -> None:
    """Migrate all of the data first: binds and grids lead to it."""
    source = source_format(definition)
    editor = Editor()
    if definition.data is not None:
        _migrate_data(definition, definition.data, source, target, editor)
        if is_unpublished:
            definition.data.attrib.pop(_FORMAT, "")
        else:
            definition.data.set(_FORMAT, target)
    templates.regenerate(_migrate_binds(definition, source, target, editor), target, editor)


def _steps(source: str, target: str) -> tuple[tuple[str, ...], bool]:
    """Return the formats whose differences are to be made or undone, in order, and whether they are made."""
    at, to = DATA_FORMATS.index(source), DATA_FORMATS.index(target)
    return (DATA_FORMATS[at + 1 : to + 1], True) if at <= to else (DATA_FORMATS[at:to:-1], False)


def _migrate_data(definition: DefinitionTree, root: Element, source: str, target: str, editor: Editor) -> None:
    steps, is_up = _steps(source, target)
    for step in steps:
        if step == V4_8_0:
            change = grids.wrap_repeated_grids if is_up else grids.dissolve_repeated_grids
            change(root, plan_repeats(definition), editor)
        else:
            change_plain = grids.wrap_plain_grids if is_up else grids.dissolve_plain_grids
            change_plain(root, plan_grids(definition), editor)


def _migrate_binds(definition: DefinitionTree, source: str, target: str, editor: Editor) -> DefinitionTree:
    steps, is_up = _steps(source, target)
    for step in steps:
        if step == V4_8_0:
            change = grids.bind_iterations if is_up else grids.unbind_iterations
        else:
            change = grids.bind_plain_grids if is_up else grids.unbind_plain_grids
        change(definition.main, editor)
        definition = definition.reread()
    return definition


def source_format(definition: DefinitionTree) -> str:
    """Return the data format of the newest release named; 4.8.0 where none is, or one before 4.0 only."""
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
    """Read major and minor number; return ``None`` for a text that does not begin with two numbers."""
    parts = _SEPARATOR.split(text, maxsplit=2)[:2]
    if len(parts) < 2 or not all(_NUMBER.fullmatch(part) for part in parts):  # noqa: PLR2004 - major and minor
        return None
    return int(parts[0]), int(parts[1])
