"""The preparation of an unpublished definition: its form, its attachments, and the metadata of the publication."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from xml.sax.saxutils import escape

from lxml import etree

from persistence.errors import BadRequestError
from persistence.forms.controls import container_paths, shown_parts
from persistence.forms.marks import require_usable_marks
from persistence.forms.migration.plan import cell_bound, plain_grids, repeated_grids
from persistence.forms.structure import INSTANCE, MODEL, XH, DefinitionTree, is_content_repeat
from persistence.forms.trees import Bound, Element, Tree, on_tree, serialized
from persistence.limits import MOST_STEPS
from persistence.model.addresses import AttachmentRef, Form, definition_holder_path, parse_holder_path
from persistence.model.versions import V4_8_0, V2019_1_0

_VERSION = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Announcement:
    """The metadata of a publication: availability for new data, and a comment.

    With ``lists_grids`` the lists of grids are written, by which data of older formats is read (spec forms 1.5).
    """

    is_available: bool = True
    comment: str | None = None
    lists_grids: bool = True


@dataclass(frozen=True, slots=True)
class PreparedDefinition:
    """A definition ready to be stored; ``held`` attachments are copied, and ``libraries`` are versions by name."""

    form: Form
    content: bytes
    held: tuple[AttachmentRef, ...]
    libraries: dict[str, int]


def prepare(
    data: bytes, announcement: Announcement, is_copied: Callable[[Form, AttachmentRef], bool]
) -> PreparedDefinition:
    """Make a definition ready; ``is_copied`` decides which attachments go with its form."""
    return on_tree(data, partial(_prepare, announcement=announcement, is_copied=is_copied))


def _prepare(
    tree: Tree, *, announcement: Announcement, is_copied: Callable[[Form, AttachmentRef], bool]
) -> PreparedDefinition:
    path = f"{XH}head/{MODEL}[@id='fr-form-model']/{INSTANCE}[@id='fr-form-metadata']/metadata"  # spec forms 6.2
    root = tree.getroot()
    metadata = root.find(path) if root.tag == f"{XH}html" else None
    if metadata is None:
        raise BadRequestError("the definition has no metadata, which would name its form")
    form = Form(_required(metadata, "application-name"), _required(metadata, "form-name"))
    held: dict[str, AttachmentRef] = {}
    for element, one in _holders(tree):
        if is_copied(form, one):
            if held.setdefault(one.name, one) != one:
                raise BadRequestError(f"the definition names two different attachments called {one.name!r}")
            element.text = definition_holder_path(form, one.name)
    _set(metadata, "available", None if announcement.is_available else "false")
    _set(metadata, "version-comment", announcement.comment)
    require_usable_marks(tree)
    definition = DefinitionTree.read(tree) if announcement.lists_grids else None
    if definition is not None:
        _list_grids(definition, metadata)
    versions = metadata.find("library-versions")
    texts = {} if versions is None else {each.tag: (each.text or "").strip() for each in versions.iterchildren("*")}
    libraries = {name: int(text) for name, text in texts.items() if _VERSION.fullmatch(text)}
    return PreparedDefinition(form, serialized(tree), tuple(held.values()), libraries)


def _required(metadata: Element, name: str) -> str:
    text = (metadata.findtext(name) or "").strip()
    if not text:
        raise BadRequestError(f"the metadata of the definition has no {name}")
    return text


def _holders(tree: Tree) -> Iterator[tuple[Element, AttachmentRef]]:
    for element in tree.iter(etree.Element):
        is_leaf = next(element.iterchildren(etree.Element), None) is None
        held = parse_holder_path(element.text) if is_leaf and element.text else None
        if held is not None:
            yield element, held


def _set(metadata: Element, name: str, text: str | None) -> None:
    found = metadata.findall(name)
    if text is not None:
        element = found.pop(0) if found else etree.SubElement(metadata, name)
        element[:] = []
        try:
            element.text = text
        except ValueError as error:
            raise BadRequestError(f"the {name} has characters that XML cannot have") from error
    for other in found:
        metadata.remove(other)


def _list_grids(definition: DefinitionTree, metadata: Element) -> None:
    repeated, plain = list[dict[str, str]](), list[dict[str, object]]()
    cells = cell_bound()
    size = Bound(MOST_STEPS, "the grids of the form are too many, or too deeply nested")
    for part, start in shown_parts(definition):
        for each in repeated_grids(part):
            if is_content_repeat(each.element) or each.is_wrapped:
                path = (*start, *each.container, each.name)
                size.count(len(path))
                repeated.append({"path": "/".join(path), "iteration-name": each.iteration})
        for grid in plain_grids(part, cells):
            own, _ = container_paths(part, grid.element)
            if own:
                path = start + own
                size.count(len(path) + len(grid.content))
                plain.append(
                    {
                        "containerPath": [{"value": name} for name in path[:-1]],
                        "newGridElem": {"value": path[-1]},
                        "afterElem": None if grid.after is None else {"value": grid.after},
                        "content": [{"value": name} for name in grid.content],
                        "topLevel": part is definition.main,
                    }
                )
    _write_list(metadata, V4_8_0, repeated)
    _write_list(metadata, V2019_1_0, {"migrations": plain} if plain else None)


def _write_list(metadata: Element, version: str, listed: object) -> None:
    for element in metadata.findall("migration"):
        if element.get("version") == version:
            metadata.remove(element)
    if listed:
        etree.SubElement(metadata, "migration", version=version).text = json.dumps(listed)


def write_publication_answer(form: Form, *, version: int, attachments: int) -> bytes:
    app, name = escape(form.app), escape(form.name)
    return (
        f"<response><app>{app}</app><form>{name}</form><published-attachments>{attachments}</published-attachments>"
        f"<published-version>{version}</published-version></response>"
    ).encode()
