"""The outline of a form: its sections, grids, repeats and controls as a tree of the elements of its data, with labels.

Sources: spec forms 1.2, 4.2 and 6.1; crud 8.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from persistence.forms.controls import GridPaths, container_paths, control_path, path_in, shown_parts
from persistence.forms.definition_tree import (
    GRID,
    SECTION,
    XF,
    Bound,
    DefinitionTree,
    Element,
    FormPart,
    Names,
    control_name,
    instance_of,
    on_definition,
    text_in,
)
from persistence.limits import LONGEST_TITLE, MOST_STEPS

_RESOURCES_ID = "fr-form-resources"
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_RESOURCE = re.compile(r"\$form-resources/([^/\s]+)/label")
_HTML = "text/html"
_TAG = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True)
class Label:
    """The label of a control, section or grid in each language; ``is_html`` where its text is HTML."""

    texts: Mapping[str, str]
    is_html: bool

    def in_language(self, language: str | None) -> str:
        """Return the text in a language, else in the first one."""
        first = next(iter(self.texts.values()), "")
        return first if language is None else self.texts.get(language, first)

    def text(self, language: str | None) -> str:
        """Return the text in a language, without the tags of HTML."""
        found = self.in_language(language)
        return (_TAG.sub("", found) if self.is_html else found).strip()


@dataclass(slots=True)
class OutlineNode:
    """An element that data of a form may have; ``inside`` are the elements in it by name.

    ``name`` is that of the control, section, grid or repeat, if any, ``is_iteration`` one of the iterations of that.
    """

    name: str = ""
    label: Label | None = None
    is_control: bool = False
    is_iteration: bool = False
    inside: dict[str, OutlineNode] = field(default_factory=dict)

    def at(self, path: Names) -> OutlineNode:
        node = self
        for step in path:
            node = node.inside.setdefault(step, OutlineNode())
        return node


@dataclass(frozen=True, slots=True)
class Outline:
    """The outline of a form for data of one format: ``root`` is the root element, ``languages`` those of the labels."""

    root: OutlineNode
    languages: tuple[str, ...]

    def label(self, path: tuple[str, ...], language: str | None) -> str:
        """Return the label of the element at a path, as text, or an empty one."""
        node: OutlineNode | None = self.root
        for step in path:
            node = None if node is None else node.inside.get(step)
        return "" if node is None or node.label is None else node.label.text(language)

    def iteration(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the path of the iterations of the innermost repeat around an element; empty outside of repeats."""
        node: OutlineNode | None = self.root
        found = 0
        for depth, step in enumerate(path[:-1], 1):
            node = None if node is None else node.inside.get(step)
            found = depth if node is not None and node.is_iteration else found
        return path[:found]


NO_OUTLINE = Outline(OutlineNode(), ())
"""The outline of an unknown form."""


def read_outline(stored: bytes, data_format: str) -> Outline:
    """Read the outline of a stored definition; it is empty without a form model."""
    return on_definition(stored, lambda definition: _Reading(definition, data_format).outline()) or NO_OUTLINE


class _Reading:
    def __init__(self, definition: DefinitionTree, data_format: str) -> None:
        self._definition = definition
        self._grids = GridPaths.listed(definition)
        self._format = data_format
        self._root = OutlineNode()
        self._steps = Bound(MOST_STEPS, "the form has too many controls, or too deeply nested ones")

    def outline(self) -> Outline:
        parts: dict[int, _Part] = {}
        for shown, start in shown_parts(self._definition):
            part = parts.setdefault(id(shown), _Part(shown))
            for found in part.found:
                self._add(found, start + found.path)
        return Outline(self._root, tuple(parts[id(self._definition.main)].resources))

    def _add(self, found: _Found, path: Names) -> None:
        self._steps.count(len(path))
        steps = self._grids.control_steps(path) if found.is_control else self._grids.steps(path)
        here = path_in(self._format, steps)
        has_element = path_in(self._format, steps[-1:])
        if not here or not (has_element or found.is_iteration):
            return  # without an element for iterations, those of a grid are its own elements (4.0.0)
        node = self._root.at(here)
        if not (node.is_control or node.is_iteration):
            node.name, node.label = found.name, found.label
            node.is_control, node.is_iteration = found.is_control, found.is_iteration
        elif found.is_iteration:
            node.is_iteration = True


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    path: Names
    label: Label | None
    is_control: bool = False
    is_iteration: bool = False


class _Part:
    """The main document or a section template, with its resources by language."""

    def __init__(self, part: FormPart) -> None:
        self.resources = _resources(part)
        self._part = part

    @cached_property
    def found(self) -> tuple[_Found, ...]:
        return tuple(self._find())

    def _find(self) -> Iterator[_Found]:
        body = self._part.body
        for element in () if body is None else body.iterdescendants("*"):
            name = control_name(element)
            if name and element.tag in {SECTION, GRID}:
                path, iterations = container_paths(self._part, element)
                label = self._label(element, name) if path else None
                if iterations:
                    yield _Found(name, iterations, label, is_iteration=True)
                if path:
                    yield _Found(name, path, label)
            elif name and (path := control_path(self._part, element)):
                yield _Found(name, path, self._label(element, name), is_control=True)

    def _label(self, view: Element, name: str) -> Label | None:
        shown = next(view.iterchildren(f"{XF}label"), None)
        leads = None if shown is None else _RESOURCE.fullmatch(shown.get("ref", "").strip())
        resource = leads[1] if leads else name
        texts = {language: found for language, each in self.resources.items() if (found := each.get(resource))}
        if not texts and shown is not None and shown.get("ref") is None and (literal := text_in(shown)):
            texts = {"": literal[:LONGEST_TITLE]}
        return Label(texts, shown is not None and shown.get("mediatype") == _HTML) if texts else None


def _resources(part: FormPart) -> dict[str, dict[str, str]]:
    model = None if part.top is None else part.top.getparent()
    instance = None if model is None else instance_of(model, _RESOURCES_ID)
    found: dict[str, dict[str, str]] = {}
    for resource in () if instance is None else instance.iterfind("*/resource"):
        language = resource.get(_LANGUAGE)
        if language is not None:
            labels: dict[str, str] = {}
            for each in resource.iterchildren("*"):
                label = each.find("label")
                if label is not None:
                    labels.setdefault(each.tag, text_in(label)[:LONGEST_TITLE])
            found.setdefault(language, labels)
    return found
