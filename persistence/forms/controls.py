"""The sections, grids and controls of a form, their paths, labels and outline (spec forms 1.2 to 1.5, 4 and 6.1)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from typing import Any, Self

from lxml import etree

from persistence.errors import one_line
from persistence.forms.definition_tree import (
    BIND,
    FR,
    GRID,
    INSTANCE,
    MODEL_ID,
    REPEAT,
    SECTION,
    XF,
    XH,
    BodyElement,
    Bound,
    DefinitionTree,
    Element,
    FormPart,
    Names,
    Tree,
    classes,
    control_name,
    instance_of,
    is_plain_grid,
    is_repeated,
    on_definition,
    on_tree,
    text_in,
)
from persistence.limits import LONGEST_TITLE, MOST_KEY_CHARACTERS, MOST_STEPS, MOST_UNUSABLE, MOST_WALKED
from persistence.model.texts import OrderedType, type_named
from persistence.model.versions import DATA_FORMATS, V4_0_0, V4_8_0, V2019_1_0, IndexKey, PathStep

CONTAINERS = frozenset({SECTION, GRID, REPEAT, BIND})  # Elements that are not controls, though their ids have names

PATH_RULES = 3
"""To be raised when a definition gets other paths or types than before: what they were used for is then made again."""

ENCRYPT = f"{FR}encrypt"
INDEXED = frozenset({"fr-index", "fr-summary", "fr-search"})
ENCRYPTED = "fr-encrypt"
_OF_FILES = frozenset(
    {
        *("upload", "attachment", "image-attachment", "video-attachment"),
        *("image-annotation", "handwritten-signature", "wpaint"),
    }
)
"""Controls whose text is the path of an attachment (spec forms 6.7)."""
_ORDER = {version: at for at, version in enumerate(DATA_FORMATS)}


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """A section of the main document that shows a section template, whose data begins at ``path``."""

    part: FormPart
    section: Element
    path: Names


def template_uses(definition: DefinitionTree) -> Iterator[TemplateUse]:
    """Yield the sections that use an inlined section template, in document order."""
    # A repeated section has data in each iteration (spec forms 1.11). Sections inside templates are not followed.
    main = definition.main
    for container in main.elements:
        section = container.element
        part = definition.template(section) if section.tag == SECTION else None
        bind = main.bind(container.name) if container.name else None
        if part is None or bind is None:
            continue
        path = main.path(bind)
        iteration = main.iteration_name(section)
        if path is not None and (iteration or not is_repeated(section)):
            yield TemplateUse(part, section, path + ((iteration,) if iteration else ()))


def shown_parts(definition: DefinitionTree) -> Iterator[tuple[FormPart, Names]]:
    """Yield the main document, and each section template as often as it is shown, with where its data begins."""
    yield definition.main, ()
    for use in template_uses(definition):
        yield use.part, use.path


def shown_elements(definition: DefinitionTree) -> Iterator[tuple[FormPart, BodyElement, Names, Names]]:
    """Yield the elements of shown parts that have data, with the paths of each and of its iterations, if it repeats."""
    count = Bound(MOST_STEPS, "the form has too many controls, or too deeply nested ones").count
    for part, start in shown_parts(definition):
        for each in part.elements:
            own, iterations = part.paths(each)
            if own:
                count(len(start) + len(own))
                yield part, each, start + own, start + iterations if iterations else ()
            elif start:  # it is looked at again wherever its template is shown
                count()


Steps = tuple[tuple[str, str], ...]
"""The element names on a path, each with the first data format that has this element."""


def path_in(data_format: str, steps: Steps) -> Names:
    """Return the element names from the data root in data of a format."""
    wanted = _ORDER[data_format]
    return tuple(step for step, since in steps if _ORDER[since] <= wanted)


@dataclass(frozen=True, slots=True)
class GridPaths:
    """The paths of grids, whose elements older formats lack: of plain ones, and in the oldest of iterations."""

    # A grid that the metadata does not list has its element in every format (spec forms 1.5, 4.2).
    plain: frozenset[Names]
    repeated: frozenset[Names]

    @classmethod
    def listed(cls, definition: DefinitionTree) -> Self:
        """Read the lists in the metadata; a malformed one has no grids."""

        # JSON has values of any type: reading fails where it is not one of the lists (spec forms 1.5).
        def plain(listed: Any) -> Iterator[Names]:
            for entry in listed["migrations"]:
                yield tuple(step["value"] for step in (*entry["containerPath"], entry["newGridElem"]))

        def repeated(listed: Any) -> Iterator[Names]:
            for entry in listed:
                yield tuple(step.removeprefix("(").removesuffix(")") for step in entry["path"].split("/"))

        return cls(_listed(definition, V2019_1_0, plain), _listed(definition, V4_8_0, repeated))

    @classmethod
    def in_view(cls, definition: DefinitionTree) -> Self:
        """Return the grids of the view that have a bind, listed or not: those that a migration changes."""
        found: dict[bool, set[Names]] = {True: set(), False: set()}
        for _, each, path, _ in shown_elements(definition):
            if each.element.tag == GRID:
                found[is_plain_grid(each.element)].add(path)
        return cls(frozenset(found[True]), frozenset(found[False]))

    def steps(self, path: Names) -> Steps:

        def since(at: int) -> str:
            if self.plain and path[: at + 1] in self.plain:
                return V2019_1_0
            return V4_8_0 if self.repeated and path[:at] in self.repeated else V4_0_0

        return tuple((name, since(at)) for at, name in enumerate(path))

    def control_steps(self, path: Names) -> Steps:
        """Return the steps to a control, whose own element is in every format."""
        return (*self.steps(path)[:-1], (path[-1], V4_0_0))


def _listed(definition: DefinitionTree, version: str, paths_in: Callable[[Any], Iterator[Names]]) -> frozenset[Names]:
    migrations = () if definition.metadata is None else definition.metadata.iterchildren("migration")
    found = next((each for each in migrations if each.get("version") == version), None)
    if found is None:
        return frozenset()
    try:
        return frozenset(paths_in(json.loads(text_in(found))))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return frozenset()


@dataclass(frozen=True, slots=True)
class Control:
    """A control: ``kind`` is the local name of its element, ``steps`` lead from the data root to its value."""

    name: str
    kind: str
    steps: Steps
    is_indexed: bool
    has_index: bool  # an element marks it as indexed, not only a class
    is_encrypted: bool
    type: OrderedType | None = None  # of its bind, if its values have an order
    view_steps: Steps = ()  # of an encrypted one by all grids of the view: without unlisted ones it must not be plain

    def path(self, data_format: str) -> Names:
        return path_in(data_format, self.steps)

    @property
    def shapes(self) -> frozenset[Names]:
        every = (self.steps, self.view_steps) if self.view_steps else (self.steps,)
        return frozenset(path_in(version, steps) for steps in every for version in DATA_FORMATS)

    @property
    def takes_files(self) -> bool:
        """Return whether its text is the path of an attachment."""
        return self.kind in _OF_FILES


def read_controls(stored: bytes) -> tuple[Control, ...]:
    """Read the controls with a bind to an element: the form's own in document order, then the controls of templates."""
    # Controls of one name and path are one, indexed or encrypted if one of them is. None without a form model.
    return on_definition(stored, _controls) or ()


def _controls(definition: DefinitionTree) -> tuple[Control, ...]:
    grids, in_view = GridPaths.listed(definition), cache(partial(GridPaths.in_view, definition))
    own = cache(_own_control)
    found: dict[tuple[str, Names], Control] = {}
    for part, each, path, _ in shown_elements(definition):
        if each.is_container:
            continue
        bind = part.bind_named_by(each.element)
        named = "" if bind is None else bind.get("type", "")
        control = replace(own(each), steps=grids.control_steps(path), type=type_named(named))
        if control.is_encrypted:
            control = replace(control, view_steps=in_view().control_steps(path))
        same = found.get((control.name, path), control)
        found[control.name, path] = replace(
            same,
            is_indexed=same.is_indexed or control.is_indexed,
            has_index=same.has_index or control.has_index,
            is_encrypted=same.is_encrypted or control.is_encrypted,
            type=same.type or control.type,
            view_steps=same.view_steps or control.view_steps,
        )
    return tuple(found.values())


def _own_control(each: BodyElement) -> Control:
    names, element = classes(each.element), each.element
    has_index = next(element.iterchildren("{*}index"), None) is not None
    return Control(
        each.name or "",
        etree.QName(element).localname,
        (),
        is_indexed=has_index or not names.isdisjoint(INDEXED),
        has_index=has_index,
        is_encrypted=next(element.iterchildren(ENCRYPT), None) is not None or ENCRYPTED in names,
    )


def read_index_keys(stored: bytes, data_format: str) -> tuple[IndexKey, ...]:
    """Read the keys of a stored definition, for data of a format: those with an element first (spec search 2.2)."""
    indexed = [each for each in read_controls(stored) if each.is_indexed]
    paths: dict[Names, OrderedType | None] = {}
    for each in sorted(indexed, key=lambda each: not each.has_index):
        path = each.path(data_format)
        paths[path] = paths.get(path) or each.type
    refusal = f"the paths of what the form indexes have more than {MOST_KEY_CHARACTERS} characters"
    Bound(MOST_KEY_CHARACTERS, refusal).count(sum(len(step) for path in paths for step in path))
    return tuple(IndexKey("/".join(path), tuple(map(PathStep, path)), of) for path, of in paths.items())


_DESIGNER_METADATA = "xh:head/xf:model[@id = 'fr-form-model']/xf:instance[@id = 'fr-form-metadata']/*"
_DESIGNER_STEPS = (
    PathStep("head", XH[1:-1]),
    PathStep("model", XF[1:-1], "fr-form-model"),
    PathStep("instance", XF[1:-1], "fr-form-metadata"),
    PathStep(""),
)
_DESIGNER_NAMES = ("application-name", "form-name", "title", "description", "thumbnail", "allow-template-use")
DESIGNER_KEYS = tuple(
    IndexKey(f"{_DESIGNER_METADATA}/{name}", (*_DESIGNER_STEPS, PathStep(name))) for name in _DESIGNER_NAMES
)
"""The keys of the designer's own form, whose data are definitions (spec search 2.4)."""
DESIGNER_COLUMNS = {"title": "Title", "application-name": "Application", "form-name": "Form"}
"""Labels of those by which people know a definition."""

_IN_INDEX = frozenset(
    f"{FR}{name}"
    for name in ("summary-show", "summary-search", "summary-edit", "allow-bulk-edit", "default-sort-column")
)
"""Marks for the summary page of a runtime, which must be in the mark of an indexed control."""
_MARKS = _IN_INDEX | {ENCRYPT, f"{FR}index"}
_CLASSES = INDEXED | {ENCRYPTED}
_NAMING = ("id", "bind", "ref")  # The attributes by which a message names an element


@dataclass(frozen=True, slots=True)
class UnusableMark:
    """A mark without effect: ``cause`` names it, its control and the reason on one line."""

    cause: str
    is_encryption: bool


def unusable_marks(stored: bytes, *, is_checked: bool = False) -> tuple[UnusableMark, ...]:
    """Return the marks of a definition that have no effect, at most ``MOST_UNUSABLE`` (see ``on_tree``)."""
    return on_tree(
        stored,
        lambda tree: tuple(islice(unusable_marks_in(tree), MOST_UNUSABLE)),
        is_stored=True,
        is_checked=is_checked,
    )


def unusable_marks_in(tree: Tree) -> Iterator[UnusableMark]:
    places = _Places(DefinitionTree.read(tree))
    for element in tree.getroot().iter("*"):
        for name, control in _marks(element):
            cause = places.cause(control)
            if element.tag in _IN_INDEX and cause is not None:
                cause = "it is not in <fr:index>"
            if cause:
                named = next((f" with the {each} {control.get(each)!r}" for each in _NAMING if control.get(each)), "")
                subject = f"the mark {name} of the element {etree.QName(control).localname}{named}"
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
        bind = part.bind_named_by(control)
        if bind is None or part.top is None:
            return f"fr-form-binds has no bind {named!r}"
        if part.top not in self._ids:
            self._ids[part.top] = Counter(each.get("id") for each in part.top.iter(BIND))
        if self._ids[part.top][named] > 1:
            return f"there are several binds {named!r}"
        if not part.path(bind):
            return f"the bind {named!r} does not lead to an element by names of elements alone"
        return ""


def _unreached(definition: DefinitionTree) -> Iterator[FormPart]:
    reached = {(use.section, use.part.body) for use in template_uses(definition)}
    for part in (definition.main, *definition.templates.values()):
        for element in part.body.iterdescendants("*") if definition.templates and part.body is not None else ():
            shown = definition.templates.get(element.tag)
            if shown is not None and (element.getparent(), shown.body) not in reached:
                yield shown


_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_RESOURCE = re.compile(r"\$form-resources/([^/\s]+)/(?:label|item)")
_TAG = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True)
class Label:
    """The label of a control, section or grid in each language; ``is_html`` where its text is HTML."""

    texts: Mapping[str, str]
    is_html: bool

    def in_language(self, language: str | None) -> str:
        first = next(iter(self.texts.values()), "")
        return first if language is None else self.texts.get(language, first)

    def text(self, language: str | None) -> str:
        """Return the text in a language, without the tags of HTML."""
        found = self.in_language(language)
        return (_TAG.sub("", found) if self.is_html else found).strip()


_HTML = "text/html"
_RICH_TEXT = frozenset({"tinymce", "rich-text"})
_WITHOUT_VALUE = frozenset({"explanation", "trigger"})


@dataclass(slots=True)
class OutlineNode:
    """An element that data of a form may have; ``inside`` are the elements in it by name."""

    name: str = ""  # that of the control, section, grid or repeat, if any
    label: Label | None = None
    is_control: bool = False
    is_iteration: bool = False  # one of the iterations of what the name is of
    kind: str = ""  # of a control, the local name of its element
    type: str = ""  # the local name of the type of its bind, if it has one
    is_indexed: bool = False
    is_encrypted: bool = False
    is_rich_text: bool = False
    choices: Mapping[str, Label] = field(default_factory=dict)  # the labels of its items by value
    inside: dict[str, OutlineNode] = field(default_factory=dict)
    _iteration: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def iteration(self) -> str:
        """Return the name of the iterations inside a repeat, of a whole outline; empty for any other element."""
        # In format 4.0.0 the iterations of a repeated grid have no element around them, and are called as the grid.
        if self._iteration is None:
            found = (name for name, inner in self.inside.items() if inner.is_iteration and inner.name == self.name)
            self._iteration = next(found, "")
        return self._iteration

    @property
    def has_value(self) -> bool:
        return self.is_control and self.kind not in _WITHOUT_VALUE

    @property
    def selects_many(self) -> bool:
        """Return whether the value has several items, with spaces between them."""
        return "select" in self.kind and not self.kind.endswith("1")

    def at(self, path: Names) -> OutlineNode:
        """Return the element at a path, which is added if it is missing."""
        node = self
        for step in path:
            node = node.inside.setdefault(step, OutlineNode())
        return node

    def choice(self, value: str, language: str | None) -> str:
        label = self.choices.get(value)
        return "" if label is None else label.text(language)


@dataclass(frozen=True, slots=True)
class Outline:
    """The outline of a form for data of one format: ``root`` is the root element, ``languages`` those of the labels."""

    root: OutlineNode
    languages: tuple[str, ...]

    def find(self, path: tuple[str, ...]) -> OutlineNode | None:
        node: OutlineNode | None = self.root
        for step in path:
            node = None if node is None else node.inside.get(step)
        return node

    def label(self, path: tuple[str, ...], language: str | None) -> str:
        node = self.find(path)
        return "" if node is None or node.label is None else node.label.text(language)

    def iteration(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the path of the iterations of the innermost repeat around an element; empty outside of repeats."""
        node: OutlineNode | None = self.root
        found = 0
        for depth, step in enumerate(path[:-1], 1):
            node = None if node is None else node.inside.get(step)
            found = depth if node is not None and node.is_iteration else found
        return path[:found]


NO_OUTLINE = Outline(OutlineNode(), ())  # The outline of an unknown form


def read_outline(stored: bytes, data_format: str) -> Outline:
    """Read the outline of a stored definition; it is empty without a form model."""
    return on_definition(stored, partial(_outline, data_format=data_format)) or NO_OUTLINE


def _outline(definition: DefinitionTree, data_format: str) -> Outline:
    grids = GridPaths.listed(definition)
    resources = cache(_resources)
    label = cache(lambda part, each: _label(resources(part), each))
    choices = cache(lambda part, each: _choices(resources(part), each.element))
    own = cache(_own_control)
    root = OutlineNode()

    def add(part: FormPart, each: BodyElement, path: Names, *, is_iteration: bool = False) -> None:
        steps = grids.steps(path) if each.is_container else grids.control_steps(path)
        here = path_in(data_format, steps)
        if not here or not (is_iteration or path_in(data_format, steps[-1:])):
            return  # without an element for iterations, those of a grid are its own elements (4.0.0)
        node = root.at(here)
        if not (node.is_control or node.is_iteration):
            node.name, node.label, node.is_control = each.name or "", label(part, each), not each.is_container
            if node.is_control:
                bind, control = part.bind_named_by(each.element), own(each)
                node.kind, node.is_indexed, node.is_encrypted = control.kind, control.is_indexed, control.is_encrypted
                node.type = "" if bind is None else bind.get("type", "").rpartition(":")[2]
                node.is_rich_text = node.kind in _RICH_TEXT or each.element.get("mediatype") == _HTML
                node.choices = choices(part, each)
        node.is_iteration |= is_iteration

    for part, each, path, iterations in shown_elements(definition):
        if each.name:
            if iterations:
                add(part, each, iterations, is_iteration=True)
            add(part, each, path)
    return Outline(root, tuple(resources(definition.main)))


_Resources = Mapping[str, Mapping[str, Element]]  # The resources of a part that have a label: by language, then by name


def _label(resources: _Resources, each: BodyElement) -> Label | None:
    shown = next(each.element.iterchildren(f"{XF}label"), None)
    leads = None if shown is None else _RESOURCE.fullmatch(shown.get("ref", "").strip())
    resource = leads[1] if leads else each.name or ""
    found = ((language, named.get(resource)) for language, named in resources.items())
    texts = {language: text for language, each in found if each is not None and (text := _text(each, "label"))}
    if not texts and shown is not None and shown.get("ref") is None and (literal := text_in(shown)):
        texts = {"": literal[:LONGEST_TITLE]}
    return Label(texts, shown is not None and shown.get("mediatype") == _HTML) if texts else None


def _choices(resources: _Resources, control: Element) -> dict[str, Label]:
    """Return the items of a selection control, which are in its resource, or in the control itself."""
    found: dict[str, dict[str, str]] = {}
    is_html = any(each.get("mediatype") == _HTML for each in control.iterfind(f"{XF}itemset/{XF}label"))
    for itemset in control.iterchildren(f"{XF}itemset"):
        leads = _RESOURCE.fullmatch(itemset.get("ref", "").strip())
        for language, named in resources.items():
            resource = named.get(leads[1]) if leads else None
            for item in () if resource is None else resource.iterchildren("item"):
                found.setdefault(_text(item, "value"), {}).setdefault(language, _text(item, "label"))
    for item in control.iterchildren(f"{XF}item"):
        found.setdefault(_text(item, f"{XF}value"), {}).setdefault("", _text(item, f"{XF}label"))
    labelled = ((value, {language: text for language, text in texts.items() if text}) for value, texts in found.items())
    return {value: Label(texts, is_html) for value, texts in labelled if value and texts}


def _text(element: Element, name: str) -> str:
    child = element.find(name)
    return "" if child is None else text_in(child)[:LONGEST_TITLE]


def _resources(part: FormPart) -> dict[str, dict[str, Element]]:
    model = None if part.top is None else part.top.getparent()
    instance = None if model is None else instance_of(model, "fr-form-resources")
    found: dict[str, dict[str, Element]] = {}
    for resource in () if instance is None else instance.iterfind("*/resource"):
        language = resource.get(_LANGUAGE)
        if language is not None:
            named: dict[str, Element] = {}
            for each in resource.iterchildren("*"):
                if each.find("label") is not None:
                    named.setdefault(each.tag, each)
            found.setdefault(language, named)
    return found


_LEADING = frozenset({"id", "ref", "nodeset", "name"})  # Attributes by which a bind finds its element

KIND = "kind"
"""The name under which ``read_elements`` has the local name of a section, grid or control."""


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
        if name not in _LEADING:
            rules.setdefault(etree.QName(name).localname, []).append(str(value))
    for child in bind.iterchildren("*"):
        if child.tag != BIND:
            level = f" ({child.get('level')})" if child.get("level") else ""
            value = child.get("value") or text_in(child)
            rules.setdefault(etree.QName(child).localname, []).append(value + level)
    return {name: "; ".join(values) for name, values in rules.items()}
