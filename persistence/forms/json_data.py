"""Form data as JSON: the values of controls by the names of their elements, nested as the form is.

A section, or a grid that has an element, is an object, a repeat the list of its iterations, a control a text, and a
control that has a file an object with ``filename``, ``mediatype``, ``size`` and ``path``. Elements that stand several
times where no repeat does are a list. Elements in a namespace are left out; so are attributes, comments and text
between elements. What JSON leaves out stays as it is when JSON is written over data.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from lxml import etree

from persistence.errors import BadRequestError
from persistence.forms.controls import Outline, OutlineNode
from persistence.forms.definition_tree import Bound, Element, Tree, on_tree, serialized
from persistence.forms.form_data import ITEM
from persistence.forms.messages import read_json
from persistence.limits import LONGEST_SHOWN, MOST_TREE_NODES
from persistence.model.texts import similar

_OF_DATA = "sections and controls of the form"
_EMPTY = b"<form/>"  # New data before anything is in it
_FILE = ("filename", "mediatype", "size")
_PATH = "path"
_NODE = OutlineNode()


def as_json(data: bytes, outline: Outline) -> bytes:
    """Return form data as JSON, which is UTF-8 in one line; elements that the outline lacks are shown as they are."""
    found = on_tree(data, lambda tree: _values(tree.getroot(), outline.root), is_stored=True)
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _values(element: Element, node: OutlineNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, children in _by_name(element).items():
        inner = node.inside.get(name, _NODE)
        if inner.is_iteration:
            found[name] = [_values(child, inner) for child in children]
        elif len(children) > 1:
            found[name] = [_value(child, inner) for child in children]
        else:
            found[name] = _value(children[0], inner)
    return found


def _value(element: Element, node: OutlineNode) -> Any:
    iteration = node.iteration
    if iteration:
        return [_values(row, node.inside[iteration]) for row in element.iterchildren(iteration)]
    children = _children(element)
    if children and all(child.tag == ITEM for child in children):
        return [_value(child, _NODE) for child in children]
    if children or (node.inside and not node.is_control):
        return _values(element, node)
    text = _text(element)
    facts = {name: element.get(name) for name in _FILE if element.get(name)}
    return {**facts, _PATH: text.strip()} if facts else text


def _children(element: Element) -> list[Element]:
    return [child for child in element.iterchildren("*") if not child.tag.startswith("{")]


def _by_name(element: Element) -> dict[str, list[Element]]:
    found: dict[str, list[Element]] = {}
    for child in _children(element):
        found.setdefault(child.tag, []).append(child)
    return found


def _text(element: Element) -> str:
    return (element.text or "") + "".join(child.tail or "" for child in element)


def structure_as_json(outline: Outline) -> bytes:
    return json.dumps(_contents(outline.root), ensure_ascii=False, separators=(",", ":")).encode()


def _contents(node: OutlineNode) -> dict[str, Any]:
    found = {}
    for name, inner in node.inside.items():
        iteration = inner.iteration
        is_repeat = bool(iteration) or inner.is_iteration
        inside = inner.inside[iteration] if iteration else inner
        facts: dict[str, Any] = {"kind": "control" if inner.is_control else "repeat" if is_repeat else "section"}
        if inner.label is not None:
            facts["label"] = {language: inner.label.text(language) for language in inner.label.texts}
        found[name] = facts if inner.is_control else {**facts, "contains": _contents(inside)}
    return found


def written_over(data: bytes | None, outline: Outline, body: bytes) -> bytes:
    """Return form data with the values of a body in place of its own; without data, new data of the form."""

    def merged(tree: Tree) -> bytes:
        # The body is read while a turn is held, as the tree is: both take much memory.
        values, merge, root = read_json(body, _OF_DATA), _Merge(), tree.getroot()
        if data is None:
            merge.fill(root, outline.root)
        merge.write(root, outline.root, values, "")
        return serialized(tree)

    return on_tree(data or _EMPTY, merged, is_stored=True)


class _Merge:
    """One writing of values; all elements that it makes are counted, because a short row may stand for many."""

    def __init__(self) -> None:
        self._numbers: dict[int, dict[str, int]] = {}
        """The positions of elements in the form, by the id of the node around them and their names."""
        self._made = Bound(MOST_TREE_NODES, f"the data has more than {MOST_TREE_NODES} elements, which is too many")

    def fill(self, element: Element, node: OutlineNode) -> Element:
        """Add everything that the form has in an element, without iterations."""
        for name, inner in node.inside.items():
            if not inner.is_iteration:
                self._made.count()
                self.fill(etree.SubElement(element, name), inner)
        return element

    def _new(self, name: str, node: OutlineNode) -> Element:
        self._made.count()
        return self.fill(etree.Element(name), node)

    def write(self, element: Element, node: OutlineNode, values: Mapping[str, Any], at: str) -> None:
        by_name = _by_name(element)
        if id(node) not in self._numbers:
            self._numbers[id(node)] = {name: number for number, name in enumerate(node.inside)}
        numbers = self._numbers[id(node)]
        present = sorted((numbers[name], name) for name in by_name if name in numbers)
        for name, value in values.items():
            path = f"{at}/{name}" if at else name
            inner, children = node.inside.get(name), by_name.get(name, [])
            if inner is None and not children:
                near = similar(name[:LONGEST_SHOWN], (*node.inside, *by_name))
                hint = f"; the nearest is {near!r}" if near else ""
                raise BadRequestError(f"the form has no {_shown(path)!r}{hint}")
            if inner is not None and inner.is_iteration:
                self._write_rows(element, name, inner, value, path)
            elif len(children) > 1:
                if not isinstance(value, list) or len(value) != len(children):
                    raise BadRequestError(f"{_shown(path)} must be a list of {len(children)} values")
                for child, each in zip(children, value, strict=True):
                    self._write_value(child, inner or _NODE, each, path)
            else:
                child = children[0] if children else self._new(name, node.inside[name])
                if not children:  # it comes before what follows it in the form
                    at_next = bisect_right(present, (numbers[name], name))
                    if at_next < len(present):
                        by_name[present[at_next][1]][0].addprevious(child)
                    else:
                        element.append(child)
                self._write_value(child, inner or _NODE, value, path)

    def _write_value(self, element: Element, node: OutlineNode, value: Any, path: str) -> None:
        iteration = node.iteration
        children = _children(element)
        if iteration:
            self._write_rows(element, iteration, node.inside[iteration], value, path)
        elif isinstance(value, list):
            if any(child.tag != ITEM for child in children) or (node.inside and not node.is_control):
                raise BadRequestError(f"{_shown(path)} is not a list")
            self._write_files(element, children, value, path)
        elif isinstance(value, dict):
            is_file = not children and (node.is_control or not node.inside) and value.keys() <= {*_FILE, _PATH}
            if is_file:
                self._write_file(element, value, path)
            else:
                self.write(element, node, value, path)
        elif children or (node.inside and not node.is_control):
            raise BadRequestError(f"{_shown(path)} must be an object")
        else:
            self._write_text(element, value, path)
            for name in _FILE if not value else ():
                if element.get(name):
                    element.set(name, "")

    def _write_rows(self, around: Element, name: str, node: OutlineNode, value: Any, path: str) -> None:
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise BadRequestError(f"{_shown(path)} must be a list of objects, one for each iteration")
        rows = list(around.iterchildren(name))
        for row in rows[len(value) :]:
            around.remove(row)
        for number, each in enumerate(value):
            if number >= len(rows):
                row = self._new(name, node)
                if rows:
                    rows[-1].addnext(row)
                else:
                    around.append(row)
                rows.append(row)
            self.write(rows[number], node, each, f"{path}[{number + 1}]")

    def _write_files(self, element: Element, items: list[Element], values: list[Any], path: str) -> None:
        for item in items[len(values) :]:
            element.remove(item)
        for number, each in enumerate(values):
            file = {_PATH: each} if isinstance(each, str) else each
            if not isinstance(file, dict) or not file.keys() <= {*_FILE, _PATH}:
                names = f"{', '.join(_FILE)} and {_PATH}"
                raise BadRequestError(f"{_shown(path)} must be a list of files, objects with {names}")
            if number >= len(items):
                self._made.count()
                items.append(etree.SubElement(element, ITEM))
            self._write_file(items[number], file, f"{path}[{number + 1}]")

    def _write_file(self, element: Element, value: Mapping[str, Any], path: str) -> None:
        for name in _FILE:
            if name in value and value[name] != element.get(name):
                _set(element, name, _scalar(value[name], path), path)
        if _PATH in value and value[_PATH] != _text(element).strip():
            self._write_text(element, value[_PATH], path)

    def _write_text(self, element: Element, value: Any, path: str) -> None:
        text = _scalar(value, path)
        if text != _text(element):
            if next(element.iterchildren("*"), None) is not None:
                raise BadRequestError(f"{_shown(path)} holds XML, which JSON cannot replace")
            for comment in list(element):
                element.remove(comment)
            _set(element, None, text, path)


def _set(element: Element, name: str | None, text: str, path: str) -> None:
    try:
        if name is None:
            element.text = text or None
        else:
            element.set(name, text)
    except ValueError as error:
        raise BadRequestError(f"{_shown(path)} has a character that XML does not allow") from error


def _scalar(value: Any, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str):
        return value or ""
    raise BadRequestError(f"{_shown(path)} must be a text, a number, true, false or null")


def _shown(path: str) -> str:
    return path if len(path) <= LONGEST_SHOWN else f"…{path[-LONGEST_SHOWN:]}"
