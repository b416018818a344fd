"""The marks of a definition that have no effect, as they do not lead to exactly one path of a control (forms 4.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from lxml import etree

from persistence.errors import BadRequestError, one_line
from persistence.forms.controls import CONTAINERS, ENCRYPT, ENCRYPTED, INDEXED, control_path, template_uses
from persistence.forms.structure import (
    BIND,
    FR,
    INSTANCE,
    MODEL_ID,
    DefinitionTree,
    FormPart,
    classes,
    control_name,
)
from persistence.forms.trees import Bound, Element, Tree, on_stored_tree
from persistence.limits import MOST_UNUSABLE, MOST_WALKED

_IN_INDEX = frozenset(
    f"{FR}{name}"
    for name in ("summary-show", "summary-search", "summary-edit", "allow-bulk-edit", "default-sort-column")
)
"""Marks for the summary page of a runtime, which must be in the mark of an indexed control."""
_MARKS = _IN_INDEX | {ENCRYPT, f"{FR}index"}
_CLASSES = INDEXED | {ENCRYPTED}


@dataclass(frozen=True, slots=True)
class UnusableMark:
    """A mark without effect: ``cause`` names it, its control and the reason on one line."""

    cause: str
    is_encryption: bool


def unusable_marks(stored: bytes) -> tuple[UnusableMark, ...]:
    """Return the marks of a definition that have no effect, at most ``MOST_UNUSABLE``."""
    return on_stored_tree(stored, lambda tree: tuple(islice(_unusable(tree), MOST_UNUSABLE)))


def require_usable_marks(tree: Tree) -> None:
    """Refuse a mark without effect, which would leave secrets in plain text."""
    for mark in _unusable(tree):
        raise BadRequestError(mark.cause)


def _unusable(tree: Tree) -> Iterator[UnusableMark]:
    places = _Places(DefinitionTree.read(tree))
    for element in tree.getroot().iter("*"):
        for name, control in _marks(element):
            cause = places.cause(control)
            if element.tag in _IN_INDEX and cause is not None:
                cause = "it is not in <fr:index>"
            if cause:
                subject = f"the mark {name} of {_shown(control)}"
                yield UnusableMark(one_line(f"{subject} has no effect: {cause}"), "encrypt" in name)


def _marks(element: Element) -> Iterator[tuple[str, Element]]:
    around = element.getparent()
    if element.tag in _MARKS and around is not None:
        name = etree.QName(element).localname
        if element.tag not in _IN_INDEX or etree.QName(around).localname != "index":
            yield f"<fr:{name}>", around
    if "fr-" in element.get("class", ""):
        for name in sorted(classes(element) & _CLASSES):
            yield f"class {name}", element


class _Places:
    """The places of marks in a definition: controls of its body, and of the section templates that it shows."""

    def __init__(self, definition: DefinitionTree | None) -> None:
        parts = () if definition is None else (definition.main, *definition.templates.values())
        self._parts = {part.body: part for part in parts if part.body is not None}
        self._unreached = set() if definition is None else {part.body for part in _unreached(definition)}
        self._ids: dict[Element, Counter[str | None]] = {}
        self._walk = Bound(MOST_WALKED, "the marks of the form are too many, or too deeply nested")

    def cause(self, control: Element) -> str | None:
        body = None
        for above in control.iterancestors():
            if above.tag == INSTANCE:
                return None
            if above in self._parts:
                body = above
            self._walk.count()
        if not self._parts:
            return f"the definition has no model {MODEL_ID} with form data, or no body"
        if body is None:
            return "it is outside of the body of the form"
        if control.tag in CONTAINERS:
            return "it is not a control"
        if control_name(control) is None:
            return "its id does not end in -control" if control.get("id") else "it has no id"
        return self._bind_cause(self._parts[body], control) or (
            "its section template is shown where it has no data" if body in self._unreached else ""
        )

    def _bind_cause(self, part: FormPart, control: Element) -> str:
        named = control.get("bind")
        if named is None:
            return "it has no bind"
        if part.bind_named_by(control) is None or part.top is None:
            return f"fr-form-binds has no bind {named!r}"
        if part.top not in self._ids:
            self._ids[part.top] = Counter(each.get("id") for each in part.top.iter(BIND))
        if self._ids[part.top][named] > 1:
            return f"there are several binds {named!r}"
        if not control_path(part, control):
            return f"the bind {named!r} does not lead to an element by names of elements alone"
        return ""


def _unreached(definition: DefinitionTree) -> Iterator[FormPart]:
    reached = {(use.section, use.part.body) for use in template_uses(definition)}
    for part in (definition.main, *definition.templates.values()):
        for element in part.body.iterdescendants("*") if definition.templates and part.body is not None else ():
            shown = definition.templates.get(element.tag)
            if shown is not None and (element.getparent(), shown.body) not in reached:
                yield shown


def _shown(element: Element) -> str:
    name = etree.QName(element).localname
    named = next((f"{each} {element.get(each)!r}" for each in ("id", "bind", "ref") if element.get(each)), "")
    return f"the element {name}{named and f' with the {named}'}"
