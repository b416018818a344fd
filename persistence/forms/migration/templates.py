"""The templates of repeats, rebuilt from the binds (spec forms 1.8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from persistence.forms.controls import containers
from persistence.forms.migration.grids import Editor
from persistence.forms.migration.plan import PlanNode, visits
from persistence.forms.structure import (
    BIND,
    FB,
    FR,
    GRID,
    INSTANCE,
    DefinitionTree,
    FormPart,
    is_element_name,
    is_legacy_repeat,
    is_repeated,
    reference,
)
from persistence.forms.trees import Element
from persistence.model.form_versions import V4_0_0

_INITIALLY = f"{FB}initial-iterations"
_CHECKBOX = f"{FR}checkbox-input"
_FILE = ("filename", "mediatype", "size")
_SHAPES: Mapping[str, tuple[str, ...]] = {
    f"{FR}attachment": (*_FILE, "hash-algorithm", "hash-value"),
    f"{FR}image-attachment": _FILE,
    f"{FR}video-attachment": _FILE,
    f"{FR}image": _FILE[:2],
    f"{FR}video": _FILE[:2],
}
"""Attributes of the empty holders of attachments and images."""


def regenerate(definition: DefinitionTree, target: str, editor: Editor) -> None:
    """Rebuild the content of each template of a repeat, in the format that binds and data have by now.

    An instance whose id only looks like a template's, with no repeat of its name, is left as it is.
    """
    main, model = definition.main, definition.model
    builder = _Builder(main, _counts(definition, target), editor, has_default=bool(model.nsmap.get(None)))
    for instance in model.iterchildren(INSTANCE):
        name, _, suffix = instance.get("id", "").rpartition("-")
        bind = _template_bind(main, name, target) if suffix == "template" else None
        if bind is not None:
            builder.fill(instance, bind)


def _template_bind(main: FormPart, name: str, target: str) -> Element | None:
    """Return the bind for the root of a repeat's template: of its iterations; in 4.0.0 of the repeated grid itself."""
    repeat = main.control(name)
    if repeat is None or not is_repeated(repeat):
        return None
    if target == V4_0_0 and repeat.tag == GRID and is_legacy_repeat(repeat):
        return main.bind(name)
    return main.bind(main.iteration_name(repeat) or "")


@dataclass(frozen=True, slots=True)
class _Builder:
    main: FormPart
    counts: Mapping[Element, int]
    editor: Editor
    has_default: bool
    """True if elements without a prefix would be in a namespace, which those of data are not."""

    def fill(self, instance: Element, bind: Element) -> None:
        """Replace an instance's elements by one with the elements of the binds inside ``bind``."""
        name = bind.get("name")
        if not is_element_name(name):
            return
        previous = _previous(instance)
        root = self.editor.make(instance, name or "", is_undeclared=self.has_default)
        ahead = [(bind.iterchildren(BIND), root)]
        while ahead:
            inside, parent = ahead[-1]
            inner = next(inside, None)
            if inner is None:
                ahead.pop()
            else:
                ahead += [(inner.iterchildren(BIND), made) for made in self._made(inner, parent, previous)]
        for child in list(instance.iterchildren("*")):
            instance.remove(child)
        instance.insert(0, root)

    def _made(self, bind: Element, parent: Element, previous: Mapping[str, Element]) -> list[Element]:
        """Put the element of a bind into a parent, as often as it is to occur."""
        about, name = reference(bind), bind.get("name")
        if about.startswith("@") and is_element_name(about[1:]):
            self.editor.fill(parent, {about[1:]: ""}, parent.text)
        if about.startswith("@") or about == "." or not is_element_name(name):
            return []
        made = [self.editor.make(parent, name or "") for _ in range(self.counts.get(bind, 1))]
        parent.extend(made)
        if next(bind.iterchildren(BIND), None) is None:
            for element in made:
                self.editor.fill(element, *self._content(element.tag, previous.get(element.tag)))
        return made

    def _content(self, name: str, previous: Element | None) -> tuple[Mapping[str, str], str | None]:
        """Return attributes and text of a leaf: its previous ones, else the initial ones of its kind of control."""
        if previous is not None:
            had = {str(key): str(value) for key, value in previous.items()}
            return had, previous.text if next(previous.iterchildren("*"), None) is None else None
        control = self.main.control(name)
        if control is None or control.get("multiple") == "true":
            return {}, None
        return dict.fromkeys(_SHAPES.get(control.tag, ()), ""), "false" if control.tag == _CHECKBOX else None


def _previous(instance: Element) -> dict[str, Element]:
    """Return the elements of an instance by name; of equal names the first."""
    found: dict[str, Element] = {}
    for element in instance.iterdescendants("*"):
        found.setdefault(element.tag, element)
    return found


@dataclass(frozen=True, slots=True)
class _Counted:
    """A bind that occurs as often as its first place has children; with ``name``, children of that name."""

    bind: Element
    name: str | None


def _counts(definition: DefinitionTree, target: str) -> dict[Element, int]:
    """Count the binds of repeats that begin with the iterations of the first place in the data."""
    found: dict[Element, int] = {}
    seen: set[int] = set()
    if definition.data is None:
        return found
    for place, counted in visits(definition.data, _to_count(definition.main, target)):
        if id(counted) not in seen:
            seen.add(id(counted))
            tags = Counter(child.tag for child in place.iterchildren("*"))
            found |= {each.bind: tags[each.name] if each.name else tags.total() for each in counted.values()}
    return found


def _to_count(main: FormPart, target: str) -> PlanNode[_Counted]:
    plan: PlanNode[_Counted] = PlanNode()
    for container in containers(main):
        repeat, name = container.element, container.name or ""
        bind = main.bind(name)
        path = None if bind is None else main.path(bind)
        inner = _template_bind(main, name, target)
        if repeat.get(_INITIALLY) != "first" or bind is None or inner is None or not path:
            continue
        if inner is bind:
            plan.at(path[:-1]).tasks[name] = _Counted(bind, path[-1])
        else:
            plan.at(path).tasks[name] = _Counted(inner, None)
    return plan
