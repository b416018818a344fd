"""A definition as text: printed in one canonical way, and what it says about each element of its data."""

from __future__ import annotations

from lxml import etree

from persistence.forms.controls import shown_elements
from persistence.forms.definition_tree import (
    BIND,
    XH,
    DefinitionTree,
    Element,
    Names,
    Tree,
    is_repeated,
    on_definition,
    on_tree,
    serialized,
    text_in,
)

_BLANKS = " \t\r\n"  # those of XML: others are text
_INDENT = "  "
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_PHRASES = frozenset(
    f"{XH}{name}"
    for name in (
        *("p", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "li", "dt", "dd", "span", "a", "b", "i", "u", "em"),
        *("strong", "code", "label", "script", "style"),
    )
)
"""Elements between whose children a blank is shown."""
_PLACES = frozenset({"id", "ref", "nodeset", "name"})  # Attributes by which a bind finds its element

KIND = "kind"
"""The name under which ``read_elements`` has the local name of a section, grid or control."""


def printed(stored: bytes) -> bytes:
    """Return a stored definition with canonical indentation; text, and elements mixed with text, stay as they are."""

    def work(tree: Tree) -> bytes:
        _indent(tree.getroot(), "\n")
        return serialized(tree) + b"\n"

    return on_tree(stored, work, is_stored=True)


def _indent(element: Element, end: str) -> None:
    children = list(element)
    if not children or _has_text(element):
        return
    element.text = inner = end + _INDENT
    for child in children:
        if isinstance(child.tag, str):
            _indent(child, inner)
        child.tail = inner
    children[-1].tail = end


def _has_text(element: Element) -> bool:
    if element.tag in _PHRASES or element.get(_SPACE) == "preserve":
        return True
    if any(child.tag is etree.Entity for child in element):
        return True
    return any((text or "").strip(_BLANKS) for text in (element.text, *(child.tail for child in element)))


def read_elements(stored: bytes) -> dict[Names, dict[str, str]]:
    """Return the kind, and the rules of the bind, of each section, grid and control of a stored definition by path."""
    # A rule is an attribute of the bind, or an element in it, by its local name.
    return on_definition(stored, _elements) or {}


def _elements(definition: DefinitionTree) -> dict[Names, dict[str, str]]:
    found: dict[Names, dict[str, str]] = {}
    for part, each, path, _ in shown_elements(definition):
        kind = etree.QName(each.element).localname
        kind += ", repeated" if each.is_container and is_repeated(each.element) else ""
        bind = part.bind_named_by(each.element)
        if bind is None:
            bind = part.bind(each.name or "")
        found.setdefault(path, {KIND: kind, **({} if bind is None else _rules(bind))})
    return found


def _rules(bind: Element) -> dict[str, str]:
    rules: dict[str, list[str]] = {}
    for name, value in bind.items():
        if name not in _PLACES:
            rules.setdefault(etree.QName(name).localname, []).append(str(value))
    for child in bind.iterchildren("*"):
        if child.tag != BIND:
            level = f" ({child.get('level')})" if child.get("level") else ""
            value = child.get("value") or text_in(child)
            rules.setdefault(etree.QName(child).localname, []).append(value + level)
    return {name: "; ".join(values) for name, values in rules.items()}
