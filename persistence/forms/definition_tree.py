"""Definitions as trees: their model, binds and view, and those of their section templates (spec forms 0, 1.4)."""

from __future__ import annotations

import codecs
import re
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from lxml import etree

from persistence import limits
from persistence.closable import taking
from persistence.errors import BadRequestError, BusyError, DamagedError, MalformedXmlError, one_line
from persistence.xml import Streaming, XmlCheck

Element = etree._Element  # noqa: SLF001 - lxml gives the type of all elements no other name
Tree = etree._ElementTree  # noqa: SLF001 - likewise

_LONGEST_WAIT = 30.0
_turns = threading.BoundedSemaphore(2)
_LARGER_BLOCK = 100_000  # Bytes, of which glibc wants 64 KiB (its FASTBIN_CONSOLIDATION_THRESHOLD)

T = TypeVar("T")


def on_tree(data: bytes, work: Callable[[Tree], T], *, is_stored: bool = False, is_checked: bool = False) -> T:
    """Return the result of ``work`` on the tree of a document; it must not hold an element, which keeps all alive."""
    # A document that ``is_checked`` has passed a parser with the limits of ``Streaming``.
    # It runs in a thread of its own: lxml keeps the names of all documents of a thread until the thread ends.
    if len(data) > limits.LARGEST_TREE:
        raise BadRequestError(f"the XML has {len(data)} bytes, more than {limits.LARGEST_TREE}")
    # Each element has the first sign, and each attribute and declaration the second: few signs are few nodes.
    is_small = data.count(b"<") + data.count(b"=") <= min(limits.MOST_TREE_NODES, limits.MOST_DECLARATIONS)
    try:
        if not (is_checked and is_small):
            (XmlCheck() if is_small else _Limits()).read([data])
    except MalformedXmlError as error:
        if is_stored:
            raise DamagedError(f"the stored XML cannot be parsed: {error}") from error
        raise
    refusal = BusyError("other definitions are being parsed")
    with taking(_turns, refusal, timeout=_LONGEST_WAIT), ThreadPoolExecutor(1, thread_name_prefix="tree") as thread:
        return thread.submit(_work, data, work).result()


class _Limits(Streaming):
    def __init__(self) -> None:
        super().__init__()
        self._declarations = 0
        self._nodes = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self._nodes += 1 + len(attributes)
        if self._nodes > limits.MOST_TREE_NODES:
            raise BadRequestError(
                f"the XML has more than {limits.MOST_TREE_NODES} elements and attributes, which is too many"
            )

    def declare(self, prefix: str | None, namespace: str | None) -> None:
        super().declare(prefix, namespace)
        self._declarations += 1
        if self._declarations > limits.MOST_DECLARATIONS:
            raise BadRequestError(
                f"the XML declares more than {limits.MOST_DECLARATIONS} namespaces, which is too many"
            )


class Bound:
    """A bound on a sum, for work that can exceed the size of a tree by far."""

    def __init__(self, most: int, refusal: str) -> None:
        self._left = most
        self._refusal = refusal

    def count(self, number: int = 1) -> None:
        self._left -= number
        if self._left < 0:
            raise BadRequestError(self._refusal)


def serialized(tree: Tree) -> bytes:
    """Serialize a document: UTF-8 with an XML declaration, not indented, with the nodes before and after the root."""
    return etree.tostring(tree, encoding="UTF-8", xml_declaration=True)


def _work(data: bytes, work: Callable[[Tree], T]) -> T:
    try:
        return work(_parse(data))
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:  # the frames of an exception and of its causes would keep the tree alive
            traceback.clear_frames(cause.__traceback__)
            cause = cause.__cause__ or cause.__context__
        raise
    finally:
        # glibc keeps small blocks that a thread has freed; the memory goes back when a larger one is freed after them.
        bytearray(_LARGER_BLOCK)


def _parse(data: bytes) -> Tree:
    sections = data.replace(b"\0", b"").count(b"<![CDATA[")  # UTF-16 has a zero in each of these characters
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=True,
        strip_cdata=sections > limits.MOST_KEPT_SECTIONS,  # which makes text of them
        collect_ids=False,
    )
    if data[:1] == b"\0":
        data = codecs.BOM_UTF16_BE + data
    elif data[1:2] == b"\0":
        data = codecs.BOM_UTF16_LE + data
    try:
        return etree.ElementTree(etree.fromstring(data, parser))
    except etree.XMLSyntaxError as error:  # two parsers need not agree, on encodings above all
        raise MalformedXmlError(one_line(f"the XML cannot be parsed: {error}")) from error


XH = "{http://www.w3.org/1999/xhtml}"
XF = "{http://www.w3.org/2002/xforms}"
XXF = "{http://orbeon.org/oxf/xml/xforms}"
FR = "{http://orbeon.org/oxf/xml/form-runner}"
FB = "{http://orbeon.org/oxf/xml/form-builder}"
XBL = "{http://www.w3.org/ns/xbl}"

BIND = f"{XF}bind"
INSTANCE = f"{XF}instance"
MODEL = f"{XF}model"
SECTION = f"{FR}section"
GRID = f"{FR}grid"
REPEAT = f"{FR}repeat"

MODEL_ID = "fr-form-model"
DATA_ID = "fr-form-instance"
METADATA_ID = "fr-form-metadata"
BINDS_ID = "fr-form-binds"
BINDING = f"{XBL}binding"

SUFFIXES = frozenset({"control", "bind", "grid", "section", "template", "repeat"})
"""The last parts of ids that carry a name, after a hyphen."""

etree.register_namespace("fr", FR[1:-1])  # for a definition that declares no prefix

_DIALOG = f"{XXF}dialog"
_VIEWS = frozenset({SECTION, GRID, _DIALOG})
_VIEW_SUFFIXES = ("control", "grid", "section", "repeat")
_COUNTS = ("min", "max", "minOccurs", "maxOccurs")
_EACH_LANGUAGE = "[@xml:lang = $fb-lang]"
_LIBRARY = re.compile(r"\{http://orbeon\.org/oxf/xml/form-builder/component/[^/{}]+/[^/{}]+\}")
_QUALIFIED = re.compile(r"([^|\s]++)\|([^|\s]++)")

Names = tuple[str, ...]  # The names of the elements on a path, from below the root element of the data


def control_name(element: Element) -> str | None:
    """Return the name in an id: ``main`` of ``main-grid``, ``grid-1`` of ``grid-1-grid``, ``None`` of ``fb-body``."""
    name, _, suffix = element.get("id", "").rpartition("-")
    return name if name and suffix in SUFFIXES else None


def is_element_name(text: str | None) -> bool:
    """Return whether an element without namespace can have this name: lxml refuses to make any other."""
    if not text or len(text) > limits.LONGEST_XML_NAME or text.startswith("{"):
        return False
    try:
        etree.QName(text)
    except ValueError:
        return False
    return True


def classes(element: Element) -> frozenset[str]:
    return frozenset(element.get("class", "").split())


def is_template_use(element: Element) -> bool:
    """Return whether the element stands for a section template: its namespace is a library's."""
    return _LIBRARY.match(element.tag) is not None


def is_content_repeat(container: Element) -> bool:
    """Return whether a section or grid repeats, as it is written since 4.8."""
    return container.get("repeat") == "content"


def is_repeated(container: Element) -> bool:
    """Return whether a section or grid repeats, in the current or the legacy way: even an empty count suffices."""
    return container.get("repeat") in {"content", "true"} or any(container.get(name) is not None for name in _COUNTS)


def is_legacy_repeat(container: Element) -> bool:
    return is_repeated(container) and not is_content_repeat(container)


def is_plain_grid(container: Element) -> bool:
    return container.tag == GRID and not is_repeated(container)


def default_iteration(name: str) -> str:
    """Return the name of the iterations of a repeat that gives none (spec forms 1.2)."""
    return f"{name}-iteration"


@dataclass(slots=True, eq=False)
class BodyElement:
    """A section, grid or dialog, or an element with the name of a control, in the body of a part."""

    element: Element
    name: str | None
    is_container: bool
    outer: BodyElement | None  # the one around it, if any
    is_in_dialog: bool
    inside: Names = ()  # the containers around its content, each repeated one followed by its iterations

    @property
    def around(self) -> Names:
        return () if self.outer is None else self.outer.inside


class FormPart:
    """The main document or one section template: names are unique within one, and resolved within one."""

    # Ids are indexed once: make a new part after a change of binds or ids. ``binds`` are those under ``top``, itself
    # included; of equal ids the first. ``walk`` bounds the steps from elements to their ancestors, for all parts
    # together.
    def __init__(self, model: Element | None, body: Element | None, walk: Bound) -> None:
        tops = () if model is None else model.iterchildren(BIND)
        self.body = body
        self.top = next((bind for bind in tops if bind.get("id") == BINDS_ID), None)
        self.walk = walk
        binds = () if self.top is None else tuple(self.top.iter(BIND))
        self.binds: dict[str, Element] = {}
        self._paths: dict[Element, Names | None] = {}
        self._ids: dict[str, Element] = {}
        self.elements = () if body is None else tuple(self._elements(body))
        self.iterations: dict[Element, Element] = {}
        """For the bind of a repeat, the bind of its iterations: the first one inside that is not of a control.

        A legacy repeat has only the binds of its controls there.
        """
        for bind in binds:
            if (identifier := bind.get("id")) is not None:
                self.binds.setdefault(identifier, bind)
            above = bind.getparent()
            if above is not None and self.control(bind.get("name", "")) is None:
                self.iterations.setdefault(above, bind)
        for each in self.elements:
            each.inside = each.around
            if each.is_container:
                self.walk.count(len(each.around) + 1)
                iteration = self.iteration_name(each.element)
                if iteration is None and each.name and each.element.tag == GRID and is_legacy_repeat(each.element):
                    iteration = default_iteration(each.name)
                each.inside += tuple(step for step in (each.name, iteration) if step)

    def _elements(self, body: Element) -> Iterator[BodyElement]:
        """Yield the sections, grids, dialogs and controls under the body, in document order, and note all ids."""
        known: dict[Element, BodyElement | None] = {body: None}
        for element in body.iterdescendants("*"):
            identifier, tag = element.get("id"), element.tag
            if identifier is not None:
                self._ids.setdefault(identifier, element)
            name = control_name(element) if identifier else None
            if tag in _VIEWS or (name and tag not in {BIND, REPEAT}):
                passed = []
                above = element.getparent()
                while above is not None and above not in known:
                    passed.append(above)
                    above = above.getparent()
                outer = None if above is None else known[above]
                for between in passed:
                    known[between] = outer  # the next one inside looks no further
                is_in_dialog = tag == _DIALOG or (outer is not None and outer.is_in_dialog)
                each = BodyElement(element, name, tag in {SECTION, GRID}, outer, is_in_dialog)
                if len(element):
                    known[element] = each
                yield each

    def paths(self, each: BodyElement) -> tuple[Names | None, Names | None]:
        """Return the path of an element of its own, if it has one, and of its iterations, if it repeats."""
        bind = self.bind_named_by(each.element)
        if bind is None and each.is_container and not is_plain_grid(each.element):
            bind = self.bind(each.name or "")
        path = None if bind is None or not (each.name or each.is_container) else self.path(bind)
        if bind is None or not path or not each.is_container or not is_repeated(each.element):
            return path, None
        inner = self.iterations.get(bind)
        return path, path if inner is None else self.path(inner)

    def bind(self, name: str) -> Element | None:
        return self.binds.get(f"{name}-bind")

    def control(self, name: str) -> Element | None:
        """Return the control of a name: a control in the narrow sense, else a grid, a section or a repeat."""
        found = (self._ids.get(f"{name}-{suffix}") for suffix in _VIEW_SUFFIXES)
        return next((element for element in found if element is not None), None)

    def bind_named_by(self, view: Element) -> Element | None:
        return self.binds.get(view.get("bind", ""))

    def path(self, bind: Element) -> Names | None:
        """Return the element names from the data root to the element of a bind, if any (spec search 2.3)."""
        lineage = []
        above: Element | None = bind
        while above is not None and above.tag == BIND and above is not self.top and above not in self._paths:
            lineage.append(above)
            above = above.getparent()
        path = () if above is None else self._paths.get(above, ())
        for each in reversed(lineage):
            leads = reference(each).removesuffix(_EACH_LANGUAGE)
            steps: Names | None = () if leads == "." else tuple(leads.split("/", limits.DEEPEST))
            if steps and not all(map(is_element_name, steps)):
                steps = None
            path = None if path is None or steps is None else path + steps
            if path is not None and len(path) >= limits.DEEPEST:
                path = None
            self.walk.count(1 + len(path or ()))
            self._paths[each] = path
        return path

    def iteration_name(self, container: Element) -> str | None:
        bind = self.bind_named_by(container) if is_repeated(container) else None
        iteration = None if bind is None else self.iterations.get(bind)
        return None if iteration is None else iteration.get("name")


@dataclass(frozen=True, slots=True)
class DefinitionTree:
    """A form definition: ``data`` is the root of its inline data; ``templates`` are by the tag that uses them."""

    model: Element
    data: Element | None
    main: FormPart
    templates: Mapping[str, FormPart]

    @classmethod
    def read(cls, tree: Tree) -> DefinitionTree | None:
        """Read the definition in a document; return ``None`` where it has no form model or no form instance."""
        root = tree.getroot()
        heads = root.iterchildren(f"{XH}head") if root.tag == f"{XH}html" else ()
        models = (model for head in heads for model in head.iterchildren(MODEL))
        model = next((model for model in models if model.get("id") == MODEL_ID), None)
        instance = None if model is None else instance_of(model, DATA_ID)
        if model is None or instance is None:
            return None
        data = next(instance.iterchildren("*"), None)
        walk = Bound(limits.MOST_WALKED, "the form has too many sections, grids and binds, or too deeply nested ones")
        return cls(model, data, FormPart(model, _body(root), walk), dict(_templates(root, walk)))

    def reread(self) -> DefinitionTree:
        """Index the main document again, after its model or body has changed."""
        return replace(self, main=FormPart(self.model, self.main.body, self.main.walk))

    @property
    def metadata(self) -> Element | None:
        instance = instance_of(self.model, METADATA_ID)
        return None if instance is None else next(instance.iterchildren("*"), None)

    def template(self, section: Element) -> FormPart | None:
        used = (child.tag for child in section.iterchildren("*") if is_template_use(child))
        return next((self.templates[tag] for tag in used if tag in self.templates), None)


def on_definition(stored: bytes, work: Callable[[DefinitionTree], T]) -> T | None:
    """Return the result of ``work`` on a stored definition; ``None`` where it has no form model."""

    def on_definition_in(tree: Tree) -> T | None:
        definition = DefinitionTree.read(tree)
        return None if definition is None else work(definition)

    return on_tree(stored, on_definition_in, is_stored=True)


def instance_of(model: Element, identifier: str) -> Element | None:
    return next((each for each in model.iterchildren(INSTANCE) if each.get("id") == identifier), None)


def text_in(element: Element) -> str:
    return str(element.xpath("string()")).strip()


def reference(bind: Element) -> str:
    """Return the path of a bind from the bind around it; ``nodeset`` is the old name of ``ref`` (spec forms 1.11)."""
    return bind.get("ref", bind.get("nodeset", ".")).strip()


def _body(root: Element) -> Element | None:
    groups = []
    for candidate in (each for body in root.iterchildren(f"{XH}body") for each in body.iter(f"{FR}body", f"{XF}group")):
        if candidate.tag != f"{FR}body":
            groups.append(candidate)
            continue
        parent = candidate.getparent()
        if parent is None or parent.tag not in {GRID, REPEAT}:
            return candidate
    return next((group for group in groups if "fb-body" in {group.get("id"), *classes(group)}), None)


def _templates(root: Element, walk: Bound) -> Iterator[tuple[str, FormPart]]:
    """Return inlined section templates with the tag of their uses; the first of a tag is last, to win in a dict."""
    # A binding inside another is part of that one's template (XBL 2.0, 2.1), so an element is in one template at most.
    found = []
    for binding, namespaces in with_namespaces(root):
        if binding.tag != BINDING:
            continue
        first = _QUALIFIED.fullmatch(binding.get("element", "").partition(",")[0].strip())
        uris = namespaces.get(first[1]) if first else None
        used_as = f"{{{uris[-1]}}}{first[2]}" if first and uris else None
        is_inner = next(binding.iterancestors(BINDING), None) is not None
        if used_as is not None and not is_inner and "fr-section-component" in classes(binding):
            implementation = next(binding.iterchildren(f"{XBL}implementation"), None)
            model = None if implementation is None else next(implementation.iterchildren(MODEL), None)
            found.append((used_as, FormPart(model, next(binding.iterchildren(f"{XBL}template"), None), walk)))
    return reversed(found)


def with_namespaces(root: Element) -> Iterator[tuple[Element, Mapping[str, Sequence[str]]]]:
    """Yield each element with the namespaces in scope by prefix, the last of which counts; valid for that turn only."""
    # lxml's ``nsmap`` would collect all in scope again for each element.
    scope: dict[str, list[str]] = {}
    opened: list[str] = []
    for event, subject in etree.iterwalk(root, events=("start-ns", "end-ns", "start")):
        if event == "start-ns":
            prefix, uri = subject
            scope.setdefault(prefix, []).append(uri)
            opened.append(prefix)
        elif event == "end-ns":
            scope[opened.pop()].pop()
        else:
            yield subject, scope


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
