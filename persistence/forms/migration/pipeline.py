"""The migration of a definition as a whole, from the format that it is in (spec forms 1.3, 1.8 to 1.11)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from persistence.forms.controls import containers
from persistence.forms.migration import grids
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
    text_in,
)
from persistence.forms.trees import Element, Tree, on_stored_tree, serialized
from persistence.model.versions import DATA_FORMATS, V4_0_0, V4_8_0, V2019_1_0

_RELEASES = frozenset({"created-with-version", "updated-with-version"})
_MIGRATED = frozenset(DATA_FORMATS) - {V4_0_0}
_SINCE = {tuple(map(int, version.split(".")[:2])): version for version in DATA_FORMATS}
_SEPARATOR = re.compile(r"[. -]")
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_FORMAT = f"{FR}data-format-version"

_Change = tuple[Callable[[Element, DefinitionTree, Editor], None], Callable[[FormPart, Editor], None]]
"""A change of the data, and the change of the binds that goes with it."""
_MADE: Mapping[str, _Change] = {
    V4_8_0: (grids.wrap_repeated_grids, grids.bind_iterations),
    V2019_1_0: (grids.wrap_plain_grids, grids.bind_plain_grids),
}
_UNDONE: Mapping[str, _Change] = {
    V4_8_0: (grids.dissolve_repeated_grids, grids.unbind_iterations),
    V2019_1_0: (grids.dissolve_plain_grids, grids.unbind_plain_grids),
}
"""The difference of each format from the one before."""

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


def migrate(stored: bytes, target: str, *, is_unpublished: bool) -> bytes:
    """Migrate the data, templates, binds and grids of a stored definition to ``target``, one of ``DATA_FORMATS``.

    Its own format is inferred from its metadata. A document without form model or form instance stays as it is. The
    data of an unpublished definition, from the designer, names no format.
    """

    def work(tree: Tree) -> bytes:
        definition = DefinitionTree.read(tree)
        if definition is None:
            return stored
        changes = _changes(source_format(definition), target)
        editor = Editor()
        if definition.data is not None:
            for change, _ in changes:
                change(definition.data, definition, editor)
            if is_unpublished:
                definition.data.attrib.pop(_FORMAT, "")
            else:
                definition.data.set(_FORMAT, target)
        for _, change_binds in changes:
            change_binds(definition.main, editor)
            definition = definition.reread()
        _rebuild_templates(definition, target, editor)
        return serialized(tree)

    return on_stored_tree(stored, work)


def _changes(source: str, target: str) -> list[_Change]:
    at, to = DATA_FORMATS.index(source), DATA_FORMATS.index(target)
    if at <= to:
        return [_MADE[step] for step in DATA_FORMATS[at + 1 : to + 1]]
    return [_UNDONE[step] for step in DATA_FORMATS[at:to:-1]]


def source_format(definition: DefinitionTree) -> str:
    """Return the data format of the newest release named; 4.8.0 without one, or for one before 4.0."""
    named = () if definition.metadata is None else _named(definition.metadata)
    newest = max((release for text in named if (release := _release(text))), default=None)
    known = [since for since in _SINCE if newest is not None and since <= newest]
    return _SINCE[max(known)] if known else V4_8_0


def _named(metadata: Element) -> Iterator[str]:
    for child in metadata.iterchildren("*"):
        if child.tag in _RELEASES:
            yield text_in(child)
        elif child.tag == "migration" and child.get("version") in _MIGRATED and text_in(child):
            yield child.get("version", "")


def _release(text: str) -> tuple[int, int] | None:
    parts = _SEPARATOR.split(text, maxsplit=2)[:2]
    if len(parts) < 2 or not all(_NUMBER.fullmatch(part) for part in parts):  # noqa: PLR2004 - major and minor
        return None
    return int(parts[0]), int(parts[1])


def _rebuild_templates(definition: DefinitionTree, target: str, editor: Editor) -> None:
    """Rebuild the content of each template of a repeat in the new format, if there is a repeat of its name."""
    main, model = definition.main, definition.model
    builder = _Builder(main, _counts(definition, target), editor, has_default=bool(model.nsmap.get(None)))
    for instance in model.iterchildren(INSTANCE):
        name, _, suffix = instance.get("id", "").rpartition("-")
        bind = _template_bind(main, name, target) if suffix == "template" else None
        if bind is not None:
            builder.fill(instance, bind)


def _template_bind(main: FormPart, name: str, target: str) -> Element | None:
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
    """True if elements without a prefix would have a namespace; elements of data have none."""

    def fill(self, instance: Element, bind: Element) -> None:
        name = bind.get("name")
        if not is_element_name(name):
            return
        previous: dict[str, Element] = {}
        for element in instance.iterdescendants("*"):
            previous.setdefault(element.tag, element)
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
        if previous is not None:
            had = {str(key): str(value) for key, value in previous.items()}
            return had, previous.text if next(previous.iterchildren("*"), None) is None else None
        control = self.main.control(name)
        if control is None or control.get("multiple") == "true":
            return {}, None
        return dict.fromkeys(_SHAPES.get(control.tag, ()), ""), "false" if control.tag == _CHECKBOX else None


@dataclass(frozen=True, slots=True)
class _Counted:
    """A bind that occurs as often as its first place has children; with ``name``, children of that name."""

    bind: Element
    name: str | None


def _counts(definition: DefinitionTree, target: str) -> dict[Element, int]:
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
