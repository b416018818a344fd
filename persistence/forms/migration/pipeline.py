"""The migration of a definition as a whole (spec forms 1.9 to 1.11)."""

from __future__ import annotations

from persistence.forms.migration import binds, data, templates
from persistence.forms.migration.editing import Editor
from persistence.forms.migration.plan import plan_grids, plan_repeats
from persistence.forms.migration.source import source_format
from persistence.forms.names import FR
from persistence.forms.structure import DefinitionTree
from persistence.forms.trees import Element, Tree, on_stored_tree, serialized
from persistence.model.form_versions import DATA_FORMATS, V4_8_0

_FORMAT = f"{FR}data-format-version"


def migrate(stored: bytes, target: str, *, is_unpublished: bool) -> bytes:
    """A stored definition with data, templates, binds and grids as they are in ``target``, one of ``DATA_FORMATS``.

    The format it is in is inferred from its metadata; names, other attributes and section templates stay. A document
    without form model or form instance comes back as it is. ``is_unpublished`` is true of a definition from the
    designer's documents, whose data names no format.

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
    """All of the data first: binds and grids say where it is."""
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
    """The formats whose differences are to be undone or made, in order, and whether they are made."""
    at, to = DATA_FORMATS.index(source), DATA_FORMATS.index(target)
    return (DATA_FORMATS[at + 1 : to + 1], True) if at <= to else (DATA_FORMATS[at:to:-1], False)


def _migrate_data(definition: DefinitionTree, root: Element, source: str, target: str, editor: Editor) -> None:
    steps, is_up = _steps(source, target)
    for step in steps:
        if step == V4_8_0 and is_up:
            data.wrap_repeated_grids(root, plan_repeats(definition), editor)
        elif step == V4_8_0:
            data.dissolve_repeated_grids(root, plan_repeats(definition), editor)
        elif is_up:
            data.wrap_plain_grids(root, plan_grids(definition), editor)
        else:
            data.dissolve_plain_grids(root, plan_grids(definition), editor)


def _migrate_binds(definition: DefinitionTree, source: str, target: str, editor: Editor) -> DefinitionTree:
    steps, is_up = _steps(source, target)
    for step in steps:
        if step == V4_8_0 and is_up:
            binds.bind_iterations(definition.main, editor)
        elif step == V4_8_0:
            binds.unbind_iterations(definition.main, editor)
        elif is_up:
            binds.bind_plain_grids(definition.main, editor)
        else:
            binds.unbind_plain_grids(definition.main, editor)
        definition = definition.reread()
    return definition
