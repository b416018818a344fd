"""Documents, their changes and definitions as people read them: values by their labels, in lines and tables."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice, takewhile
from operator import itemgetter

import nh3

from persistence import limits
from persistence.errors import BadRequestError, DamagedError, MalformedXmlError, disk_errors
from persistence.forms import diffs
from persistence.forms.controls import DESIGNER_COLUMNS, NO_OUTLINE, Control, Outline, OutlineNode
from persistence.forms.definition_tree import DefinitionTree, on_definition, text_in
from persistence.forms.form_data import readable
from persistence.model.addresses import DocumentAddress, parse_holder_path
from persistence.providers.router import Route
from persistence.services.rules import Read
from persistence.xml import decoded, indented

_VALUE_COSTS = 100  # in the unit of MOST_SHOWN
_HEADED = 2  # Values of indexed controls in the heading of a document
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+")
_NUMBER = re.compile(r"(-?)([0-9]{5,30})(\.[0-9]+)?", re.ASCII)
_NUMBERS = frozenset({"decimal", "integer", "double", "float", "long", "int"})
_MOMENTS = frozenset({"date", "dateTime", "time", "boolean"})
_BOOLEANS = {"true": "Yes", "false": "No"}
_ENDS = ("<br>", "</p>", "</div>", "</li>", "</tr>")  # of lines of rich text, as nh3 writes them


@dataclass(frozen=True, slots=True)
class DisplayedValue:
    """One value as it is shown: a ``text``, perhaps cut, in place of which another field may say more."""

    # That of a boolean, ``Yes`` or ``No``, is not of the form, but of this service: pages translate it. ``raw`` is the
    # value of an item whose label is shown, or the markup of rich text, ``image`` a ``data:`` URI, and ``attachment``
    # the name of an attachment of the same document.
    text: str = ""
    raw: str = ""
    is_rich_text: bool = False
    image: str = ""
    attachment: str = ""
    is_encrypted: bool = False
    is_boolean: bool = False

    @property
    def cost(self) -> int:
        """Return what it costs to show it, in the unit of ``MOST_SHOWN``."""
        return _VALUE_COSTS + len(self.text) + len(self.raw) + len(self.image)


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A control with its values, the table of a repeat with ``rows``, or the heading of what follows deeper."""

    depth: int
    label: str
    name: str
    is_control: bool = False
    is_relevant: bool = True
    values: tuple[DisplayedValue, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[tuple[DisplayedValue, ...], ...], ...] = ()
    rows_left_out: int = 0

    @property
    def is_heading(self) -> bool:
        return not (self.is_control or self.rows)


@dataclass(slots=True)
class ShownDocument:
    """The values of a revision and its XML, perhaps cut; ``cause`` says why some are missing."""

    # ``folded`` are the controls without a value, and those that do not apply. ``title`` has values of indexed
    # controls, and ``file_names`` the names that the attachments have for people.
    title: str = ""
    lines: list[ShownLine] = field(default_factory=list)
    folded: list[ShownLine] = field(default_factory=list)
    file_names: dict[str, str] = field(default_factory=dict)
    cause: str = ""
    is_damaged: bool = False
    xml: list[str] = field(default_factory=list)
    is_xml_cut: bool = False


def shown_document(address: DocumentAddress, read: Read, outline: Outline, language: str | None) -> ShownDocument:
    """Return the values of a revision, whose open content is closed."""
    with read.found.opened as file, disk_errors(f"reading {address}"):
        data = file.read(limits.LARGEST_SHOWN + 1)
    shown = _shown(address, data, outline, language)
    lines = islice(indented(decoded(data[: limits.LARGEST_XML_SHOWN])), limits.XML_LINES_SHOWN + 1)
    shown.xml = [cut(line, limits.LONGEST_VALUE) for line in lines]
    shown.is_xml_cut = len(data) > limits.LARGEST_XML_SHOWN or len(shown.xml) > limits.XML_LINES_SHOWN
    return shown


def _shown(address: DocumentAddress, data: bytes, outline: Outline, language: str | None) -> ShownDocument:
    if len(data) > limits.LARGEST_SHOWN:
        return ShownDocument(cause=f"The data has more than {limits.LARGEST_SHOWN >> 20} MiB: download it to read it.")
    if not outline.root.inside and (metadata := on_definition(data, _metadata_lines)):
        return ShownDocument(metadata[0].values[0].text, metadata)
    if not outline.root.inside:
        cause = "The definition of this version is not known here, or has no controls: see the XML."
        return ShownDocument(cause=cause)
    try:
        tree = diffs.read_data([data], outline)
    except (MalformedXmlError, BadRequestError) as error:
        return ShownDocument(cause=f"The data cannot be read: {error}")
    if tree is None:
        return ShownDocument(cause="The data has too many elements to be shown: see the XML.")
    reader = _Reader(address, language)
    lines = list(islice(reader.lines(tree, outline.root, 0), limits.VALUES_SHOWN + 1))
    headings = [text for _, text in sorted(reader.headings, key=itemgetter(0))[:_HEADED]]
    shown = ShownDocument(" · ".join(headings), file_names=reader.file_names)
    if len(lines) > limits.VALUES_SHOWN or reader.left <= 0:
        count = min(len(lines), limits.VALUES_SHOWN)
        shown.cause = f"Only the first {count} lines are shown: download the XML for the rest."
    shown.lines = list(_headed(lines[: limits.VALUES_SHOWN], is_folded=False))
    shown.folded = list(_headed(lines[: limits.VALUES_SHOWN], is_folded=True))
    return shown


def _metadata_lines(definition: DefinitionTree) -> list[ShownLine]:
    """Return what a document of the designer, which is a definition, says of its form; the title is first."""
    found = {} if definition.metadata is None else {each.tag: text_in(each) for each in definition.metadata}
    named = ((label, found.get(name)) for name, label in DESIGNER_COLUMNS.items())
    return [
        ShownLine(0, label, label, is_control=True, values=(DisplayedValue(cut(text, limits.LONGEST_VALUE)),))
        for label, text in named
        if text
    ]


def _headed(lines: Iterable[ShownLine], *, is_folded: bool) -> Iterator[ShownLine]:
    """Yield the lines that are folded, or the others, each below the headings that it is under."""
    headings = list[ShownLine]()
    for line in lines:
        while headings and headings[-1].depth >= line.depth:
            headings.pop()
        if line.is_heading:
            headings.append(line)
        elif is_folded == (not (line.values or line.rows) or not line.is_relevant):
            yield from headings
            headings.clear()
            yield line


class _Reader:
    """Reads the values of one revision, with labels in a language, until nothing of ``MOST_SHOWN`` is ``left``."""

    def __init__(self, address: DocumentAddress, language: str | None) -> None:
        self.address, self.language = address, language
        self.left = limits.MOST_SHOWN
        self.headings: list[tuple[bool, str]] = []  # values of indexed controls, with false for those that name a thing
        self.file_names: dict[str, str] = {}

    def lines(
        self, node: diffs.DataNode, outline: OutlineNode, depth: int, *, is_relevant: bool = True
    ) -> Iterator[ShownLine]:
        self.left -= len(outline.inside)
        known_here = ((known, node.at(element)) for element, known in outline.inside.items() if element in node.inside)
        for known, found in known_here:
            deeper = depth
            label = "" if known.label is None else known.label.text(self.language)
            columns = _columns(known) if known.is_iteration else []
            if columns:
                heading = "" if outline.name == known.name and outline.label else label
                yield self._table(ShownLine(depth, heading, known.name), found, columns)
                continue
            for number, inner in enumerate(takewhile(lambda _: self.left > 0, found), 1):
                applies = is_relevant and inner.is_relevant
                if known.is_control:
                    if known.has_value:
                        values = self._values(inner, known)
                        if known.is_indexed and values and values[0].text:
                            is_name = not (known.choices or known.type in _NUMBERS or known.type in _MOMENTS)
                            self.headings.append((not is_name, cut(values[0].text, limits.LONGEST_HEADING)))
                        line = ShownLine(depth, label or known.name, known.name, is_relevant=applies, values=values)
                        yield replace(line, is_control=True)
                elif known.is_iteration:
                    yield ShownLine(depth, f"{label or known.name} {number}", known.name)
                    deeper = depth + 1
                elif known.name and label:
                    yield ShownLine(depth, label, known.name)
                    deeper = depth + 1
                yield from self.lines(inner, known, deeper, is_relevant=applies)

    def _table(
        self, line: ShownLine, found: Sequence[diffs.DataNode], columns: Sequence[tuple[tuple[str, ...], OutlineNode]]
    ) -> ShownLine:
        """Return the iterations of a repeat as a table, of the columns in which there are values."""
        rows = list[list[tuple[DisplayedValue, ...]]]()
        for row in takewhile(lambda _: self.left > 0, found[: limits.REPEAT_ROWS]):
            rows.append([self._values_at(row, path, known) for path, known in columns])
        filled = [at for at in range(len(columns)) if any(row[at] for row in rows)]
        labels = [known.name if known.label is None else known.label.text(self.language) for _, known in columns]
        return replace(
            line,
            columns=tuple(labels[at] for at in filled),
            rows=tuple(tuple(row[at] for at in filled) for row in rows if filled),
            rows_left_out=len(found) - len(rows),
        )

    def _values_at(self, node: diffs.DataNode, path: Sequence[str], known: OutlineNode) -> tuple[DisplayedValue, ...]:
        for step in path:
            inner = node.at(step)
            if not inner:
                return ()
            node = inner[0]
        return self._values(node, known)

    def _values(self, node: diffs.DataNode, known: OutlineNode) -> tuple[DisplayedValue, ...]:
        held = (each for each in (node.value, *node.items) if not each.is_empty)
        found = [value for each in held for value in shown_values(each, known, self.address, self.language)]
        self.left -= sum(each.cost for each in found)
        self.file_names |= {each.attachment: each.text for each in found if each.attachment}
        return tuple(found)


def _columns(iteration: OutlineNode) -> list[tuple[tuple[str, ...], OutlineNode]]:
    """Return the controls of a repeat with their paths in an iteration; none where they do not fit into a table."""
    found: list[tuple[tuple[str, ...], OutlineNode]] = []
    for name, inner in iteration.inside.items():
        if inner.is_control:
            if inner.is_rich_text:
                return []
            found += [((name,), inner)] if inner.has_value else []
        elif inner.is_iteration or inner.label is not None or not (within := _columns(inner)):
            return []
        else:
            found += (((name, *path), known) for path, known in within)
    return found if len(found) <= limits.REPEAT_COLUMNS else []


def shown_values(
    held: diffs.HeldValue,
    known: OutlineNode,
    address: DocumentAddress,
    language: str | None,
    longest: int = limits.LONGEST_VALUE,
) -> list[DisplayedValue]:
    """Return the value of a control as it is shown, cut to ``longest``: one that selects several items has several."""
    # Each of at most ``ITEMS_SHOWN`` items has its label; with more, the value stands as it is.
    text = held.text
    if held.is_encrypted:
        return [DisplayedValue(is_encrypted=True)]
    ref = parse_holder_path(text)
    if ref is not None:
        is_own = (ref.form, ref.document) == (address.form, address.document)
        name = dict(held.attributes).get("filename") or ref.name
        return [DisplayedValue(cut(name, longest), attachment=ref.name if is_own else "")]
    if _IMAGE.fullmatch(text):
        return [DisplayedValue(image=text)]
    if known.is_rich_text:
        return [DisplayedValue(plain_text(text, longest), cut(text, longest), is_rich_text=True)]
    items = text.split(None, limits.ITEMS_SHOWN)
    if text in known.choices:
        items = [text]
    if items and all(each in known.choices for each in items):
        return [DisplayedValue(cut(known.choice(each, language), longest), each) for each in items]
    if known.type == "boolean" and text in _BOOLEANS:
        return [DisplayedValue(_BOOLEANS[text], is_boolean=True)]
    text = readable(text)
    if known.type in _NUMBERS and (number := _NUMBER.fullmatch(text)):
        text = f"{number[1]}{int(number[2]):,}{number[3] or ''}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return [DisplayedValue(cut(text.replace("T", " ", 1) if known.type == "dateTime" else text, longest))]


def plain_text(text: str, longest: int = limits.LONGEST_VALUE) -> str:
    """Return the text of rich text, a line for each paragraph."""
    lines = nh3.clean(cut(text, longest), tags={"br", "p", "div", "li", "tr"})
    for end in _ENDS:
        lines = lines.replace(end, f"{end}\n")
    return html.unescape(nh3.clean(lines, tags=set())).strip()


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


Pieces = tuple[tuple[str, bool], ...]
"""A text in pieces, each with whether it differs from the other text."""


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A difference between two revisions: the older and the newer value, or a ``remark`` in their place."""

    # Texts that both have are in ``pieces``, compared word by word. An added or removed row of a repeat has its ``row``
    # of values by their labels in place of a value.
    label: str
    place: str
    older: DisplayedValue | None = None
    newer: DisplayedValue | None = None
    pieces: tuple[Pieces, Pieces] | None = None
    remark: str = ""
    row: tuple[tuple[str, DisplayedValue], ...] = ()
    is_added: bool = False

    @property
    def cost(self) -> int:
        """Return what it costs to show it, in the unit of ``MOST_SHOWN``."""
        held = (self.older, self.newer, *(value for _, value in self.row))
        return _VALUE_COSTS + sum(each.cost for each in held if each is not None)


def shown_changes(
    found: Iterable[diffs.Difference], address: DocumentAddress, language: str | None
) -> Iterator[ShownChange]:
    alignment = diffs.Alignment(limits.MOST_ALIGNED)
    for (added, removed), group in groupby(found, key=lambda each: (each.added_in, each.removed_in)):
        if added or removed:
            row = tuple(_row(group, address, language))
            yield ShownChange("", diffs.path_of(added or removed), row=row, is_added=bool(added))
            continue
        for each in group:
            label = "" if each.node is None or each.node.label is None else each.node.label.text(language)
            place = diffs.place_of(each)
            if each.node is None or each.kind is not diffs.DiffKind.VALUE_CHANGED:
                yield ShownChange(label, place, remark=diffs.change_of(each, limits.LONGEST_VALUE))
                continue
            older, newer = (_joined(held, each.node, address, language) for held in (each.older, each.newer))
            pieces, remark = None, ""
            if older and newer and older.text and newer.text:
                if older.text == newer.text:
                    remark = "Only the markup, or the file, differs."
                pieces = None if newer.is_boolean else _compared(older.text, newer.text, alignment)
            yield ShownChange(label, place, older, newer, pieces, remark)


def _row(
    group: Iterable[diffs.Difference], address: DocumentAddress, language: str | None
) -> Iterator[tuple[str, DisplayedValue]]:
    for each in group:
        value = _joined(each.newer if each.added_in else each.older, each.node or OutlineNode(), address, language)
        if each.kind is diffs.DiffKind.VALUE_CHANGED and each.node is not None and value is not None:
            yield each.node.name if each.node.label is None else each.node.label.text(language), value


def _joined(
    held: diffs.HeldValue, known: OutlineNode, address: DocumentAddress, language: str | None
) -> DisplayedValue | None:
    if held.is_empty:
        return None
    values = shown_values(held, known, address, language)
    if len(values) == 1:
        return values[0]
    text, raw = "\n".join(each.text for each in values), " ".join(each.raw for each in values)
    return DisplayedValue(cut(text, limits.LONGEST_VALUE), cut(raw, limits.LONGEST_VALUE))


def _compared(older: str, newer: str, alignment: diffs.Alignment) -> tuple[Pieces, Pieces]:
    # Runs of letters and digits, and those of other characters between them.
    before, after = (["".join(run) for _, run in groupby(text, str.isalnum)] for text in (older, newer))
    left, right = list[tuple[str, bool]](), list[tuple[str, bool]]()
    for first, second in alignment.pairs(before, after):
        differs = first is None or second is None or before[first] != after[second]
        left += () if first is None else ((before[first], differs),)
        right += () if second is None else ((after[second], differs),)
    return _merged(left), _merged(right)


def _merged(words: Iterable[tuple[str, bool]]) -> Pieces:
    grouped = groupby(words, key=itemgetter(1))
    return tuple(("".join(word for word, _ in group), differs) for differs, group in grouped)


@dataclass(frozen=True, slots=True)
class DefinitionLine:
    """A section, grid, repeat or control of a definition at a ``depth``."""

    # ``kind`` is a word such as ``input`` or ``repeat``; ``path`` that of a control in searches, and otherwise of its
    # element in the data.
    depth: int
    label: str
    name: str
    kind: str
    path: str
    control: Control | None = None


@dataclass(slots=True)
class ShownDefinition:
    """The lines of a version, and the languages of its labels; ``cause`` says why some lines are missing."""

    lines: list[DefinitionLine] = field(default_factory=list)
    languages: tuple[str, ...] = ()
    cause: str = ""


def shown_definition(route: Route, version: int, language: str | None) -> ShownDefinition:
    """Return the outline of a version with labels in a language, else in the first one of the form."""
    definition, data_format = route.catalog.of(route.form, version), route.properties.data_format
    try:
        outline = definition.outline(data_format) or NO_OUTLINE
        controls = {each.path(data_format): each for each in definition.controls or ()}
    except (BadRequestError, DamagedError) as error:
        return ShownDefinition(cause=f"The definition cannot be read: {error}")
    lines = list(islice(_definition_lines(outline.root, controls, language, (), 0), limits.VALUES_SHOWN + 1))
    cause = f"Only the first {limits.VALUES_SHOWN} lines are shown." if len(lines) > limits.VALUES_SHOWN else ""
    return ShownDefinition(lines[: limits.VALUES_SHOWN], outline.languages, cause)


def _definition_lines(
    node: OutlineNode, controls: dict[tuple[str, ...], Control], language: str | None, path: tuple[str, ...], depth: int
) -> Iterator[DefinitionLine]:
    for element, inner in node.inside.items():
        here, deeper = (*path, element), depth
        control = controls.get(here)
        label = "" if inner.label is None else inner.label.text(language)
        if control is not None:
            yield DefinitionLine(depth, label, control.name, control.kind, "/".join(here), control)
        elif inner.name and not (inner.is_iteration and inner.name == node.name):
            kind = "repeat" if inner.is_iteration or inner.iteration else ("section" if label else "grid")
            yield DefinitionLine(depth, label, inner.name, kind, "/".join(here))
            deeper = depth + 1
        yield from _definition_lines(inner, controls, language, here, deeper)
