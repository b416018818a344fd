"""The values of one revision of a document beside the labels of their controls, as stored: encrypted ones stay so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from persistence.errors import BadRequestError, MalformedXmlError, disk_errors
from persistence.forms.data_tree import DataNode, HeldValue, read_data
from persistence.forms.outline import Outline, OutlineNode
from persistence.forms.values import readable
from persistence.limits import LARGEST_SHOWN, LARGEST_XML_SHOWN, LONGEST_VALUE, VALUES_SHOWN, XML_LINES_SHOWN
from persistence.model.addresses import DocumentAddress, parse_holder_path
from persistence.services.rules import Read
from persistence.xml.indented import decoded, indented


@dataclass(frozen=True, slots=True)
class ShownText:
    """One value: its text, perhaps cut; of a file its name, and the name of the ``attachment`` of the document."""

    text: str = ""
    attachment: str = ""
    is_encrypted: bool = False


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line: a section, grid, iteration or control at a ``depth``, with its label and the values of a control."""

    depth: int
    label: str
    name: str
    is_control: bool
    values: tuple[ShownText, ...] = ()


@dataclass(slots=True)
class ShownValues:
    """The lines of a revision; ``cause`` says why some are missing. ``xml`` is its XML, perhaps cut."""

    lines: list[ShownLine] = field(default_factory=list)
    cause: str = ""
    xml: list[str] = field(default_factory=list)
    is_xml_cut: bool = False


def shown_values(address: DocumentAddress, read: Read, outline: Outline, language: str | None) -> ShownValues:
    """Return the values of a revision, whose open content is closed."""
    with read.found.opened as file, disk_errors(f"reading {address}"):
        data = file.read(LARGEST_SHOWN + 1)
    shown = _values(address, data, outline, language)
    lines = islice(indented(decoded(data[:LARGEST_XML_SHOWN])), XML_LINES_SHOWN + 1)
    shown.xml = [cut(line, LONGEST_VALUE) for line in lines]
    shown.is_xml_cut = len(data) > LARGEST_XML_SHOWN or len(shown.xml) > XML_LINES_SHOWN
    return shown


def _values(address: DocumentAddress, data: bytes, outline: Outline, language: str | None) -> ShownValues:
    if len(data) > LARGEST_SHOWN:
        return ShownValues(cause=f"The data has more than {LARGEST_SHOWN >> 20} MiB: download it to read it.")
    if not outline.root.inside:
        return ShownValues(cause="The definition of this version is not known here, or has no controls: see the XML.")
    try:
        tree = read_data([data], outline)
    except (MalformedXmlError, BadRequestError) as error:
        return ShownValues(cause=f"The data cannot be read: {error}")
    if tree is None:
        return ShownValues(cause="The data has too many elements to be shown: see the XML.")
    shown = ShownValues()
    for line in _value_lines(tree, outline.root, address, language, 0):
        if len(shown.lines) == VALUES_SHOWN:
            shown.cause = f"Only the first {VALUES_SHOWN} lines are shown: download the XML for the rest."
            break
        shown.lines.append(line)
    return shown


def _value_lines(
    node: DataNode, outline: OutlineNode, address: DocumentAddress, language: str | None, depth: int
) -> Iterator[ShownLine]:
    for element, known in outline.inside.items():
        found = node.at(element)
        label = "" if known.label is None else known.label.text(language)
        deeper = depth
        for number, inner in enumerate(found, 1):
            if known.is_control:
                values = [each for each in (inner.value, *inner.items) if not each.is_empty]
                shown = tuple(_shown_text(each, address) for each in values)
                yield ShownLine(depth, label or known.name, known.name, is_control=True, values=shown)
            elif known.is_iteration:
                yield ShownLine(depth, f"{label or known.name} {number}", known.name, is_control=False)
                deeper = depth + 1
            elif known.name and label:
                yield ShownLine(depth, label, known.name, is_control=False)
                deeper = depth + 1
            yield from _value_lines(inner, known, address, language, deeper)


def _shown_text(held: HeldValue, address: DocumentAddress) -> ShownText:
    if held.is_encrypted:
        return ShownText(is_encrypted=True)
    ref = parse_holder_path(held.text)
    if ref is None:
        return ShownText(cut(readable(held.text), LONGEST_VALUE))
    is_own = (ref.form, ref.document) == (address.form, address.document)
    return ShownText(cut(dict(held.attributes).get("filename", ref.name), LONGEST_VALUE), ref.name if is_own else "")


def cut(text: str, most: int) -> str:
    """Return a text with at most so many characters, and a sign where there are more."""
    return text if len(text) <= most else f"{text[:most]}…"
