"""Differences between revisions of form data: their comparison, and its XML, JSON and lines (spec crud 8.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import blake2b
from itertools import pairwise, takewhile
from operator import eq

import msgspec

from persistence.forms.controls import Outline, OutlineNode
from persistence.forms.form_data import ITEM, RELEVANT, is_value_encrypted
from persistence.forms.messages import attribute, element, text
from persistence.limits import LARGEST_FOUND, MOST_ALIGNED, MOST_DIFFED_ELEMENTS
from persistence.model.texts import Instant
from persistence.xml import SEPARATOR, Streaming

HOLDER_ATTRIBUTES = ("filename", "mediatype", "size", "hash-algorithm", "hash-value")
"""The attributes of the holder of an attachment that belong to its value: the others are about the element."""

_DIGEST = 16
_BEGIN, _NAMED, _END = "\x01", "\x02", "\x03"
"""Around tags in content that no control has: characters that XML does not have."""
_TAGS = re.compile(f"([{_BEGIN}{_NAMED}{_END}])")


@dataclass(frozen=True, slots=True)
class HeldValue:
    """The value of a control: its text, and the attributes of an attachment holder; all encrypted values are equal."""

    text: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    is_encrypted: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.attributes or self.is_encrypted)


NO_VALUE = HeldValue()


@dataclass(slots=True, eq=False)
class DataNode:
    """An element of form data at a node of the outline; ``inside`` are the known elements in it by name."""

    inside: dict[str, list[DataNode]] = field(default_factory=dict)
    items: tuple[HeldValue, ...] = ()  # of a control that takes several files
    value: HeldValue = NO_VALUE
    other: bytes = b""  # a digest of all unknown content
    digest: bytes = b""  # that of all content
    is_relevant: bool = True  # as a runtime marks elements (spec forms 3)

    def at(self, name: str) -> list[DataNode]:
        return self.inside.get(name, [])

    def close(self) -> None:
        parts = [repr((self.value, self.items, self.other)).encode("utf-8", "surrogatepass")]
        for name in sorted(self.inside):
            parts += (b"\0", name.encode(), *(each.digest for each in self.inside[name]))
        self.digest = blake2b(b"".join(parts), digest_size=_DIGEST).digest()


NO_DATA = DataNode()  # An empty element


def read_data(pieces: Iterable[bytes], outline: Outline) -> DataNode | None:
    """Read form data; return ``None`` where it has more elements than are compared (``MOST_DIFFED_ELEMENTS``)."""
    return _DataReader(outline).read(pieces).root


def opaque_data(pieces: Iterable[bytes]) -> DataNode:
    """Return data without a known structure, such as a definition: two are equal or not."""
    root, digest = DataNode(), blake2b(digest_size=_DIGEST)
    for piece in pieces:
        digest.update(piece)
    root.other = digest.digest()
    root.close()
    return root


@dataclass(slots=True)
class _Open:
    """An element that has begun: ``known`` is its node in the outline, ``None`` of a file, or of unknown content."""

    known: OutlineNode | None
    node: DataNode
    attributes: Mapping[str, str]
    text: list[str] = field(default_factory=list)  # of the control or file that it is, or is in
    items: list[HeldValue] = field(default_factory=list)
    other: list[str] = field(default_factory=list)  # unknown content of the known element that it is, or is in
    has_text: bool = False  # text in it is that of a control or file
    is_file: bool = False
    is_foreign: bool = False  # its content is not the form's, but a runtime's


class _DataReader(Streaming):
    def __init__(self, outline: Outline) -> None:
        super().__init__()
        self.parser.buffer_text = True
        self.parser.CharacterDataHandler = self._characters
        self.root: DataNode | None = None
        self._outline = outline
        self._open: list[_Open] = []
        self._count = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self._count += 1
        if self._count > MOST_DIFFED_ELEMENTS:
            return
        if not self._open:
            root = self._outline.root
            self._open.append(_Open(root, DataNode(), attributes, has_text=root.is_control))
            self._note(f"{_BEGIN}{name}{_NAMED}")  # no form says how its root is called
            return
        above = self._open[-1]
        known = None if above.known is None else above.known.inside.get(name)
        if known is not None:
            node = DataNode(is_relevant=attributes.get(RELEVANT) != "false")
            above.node.inside.setdefault(name, []).append(node)
            self._open.append(_Open(known, node, attributes, has_text=known.is_control))
        elif name == ITEM and above.known is not None and above.known.is_control:
            self._open.append(_Open(None, above.node, attributes, other=above.other, has_text=True, is_file=True))
        else:
            inside = _Open(None, above.node, attributes, above.text, [], above.other, above.has_text)
            inside.is_foreign = above.is_foreign or SEPARATOR in name
            self._open.append(inside)
            self._note(f"{_BEGIN}{name}{_NAMED}")

    def end(self, name: str) -> None:
        if self._count <= MOST_DIFFED_ELEMENTS:
            ended, node = self._open[-1], self._open[-1].node
            if ended.known is not None:
                if ended.known.is_control:
                    node.items = tuple(ended.items)
                    node.value = NO_VALUE if ended.items else _value(ended)
                parts = list(filter(str.strip, _TAGS.split("".join(ended.other))))
                if parts:
                    node.other = blake2b("\0".join(map(str.strip, parts)).encode(), digest_size=_DIGEST).digest()
                node.close()
                self.root = node  # the last one to end is the root
            elif not ended.is_file:
                self._note(_END)
            self._open.pop()
            if ended.is_file:
                self._open[-1].items.append(_value(ended))
        super().end(name)

    def finish(self) -> None:
        super().finish()
        if self._count > MOST_DIFFED_ELEMENTS:
            self.root = None

    def _note(self, content: str) -> None:
        if not self._open[-1].is_foreign:
            self._open[-1].other.append(content)

    def _characters(self, text: str) -> None:
        if self._count > MOST_DIFFED_ELEMENTS or not self._open:
            return
        if self._open[-1].has_text:
            self._open[-1].text.append(text)
        else:
            self._note(text)


def _value(ended: _Open) -> HeldValue:
    if is_value_encrypted(ended.attributes):
        return HeldValue(is_encrypted=True)
    held = tuple((name, found) for name in HOLDER_ATTRIBUTES if (found := ended.attributes.get(name)))
    text = "".join(ended.text)
    return HeldValue(text.strip() if held else text, held)


class DiffKind(Enum):
    """The kinds of differences, by their names on the wire."""

    VALUE_CHANGED = "value-changed"
    ITERATION_ADDED = "iteration-added"
    ITERATION_REMOVED = "iteration-removed"
    ELEMENT_ADDED = "element-added"
    ELEMENT_REMOVED = "element-removed"
    OTHER = "other"


Place = tuple[tuple[str, int], ...]
"""The elements from the root to another: each by its name, and its position among its siblings of that name."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference at an element of the form; ``node`` is ``None`` outside of the form's controls."""

    # Positions are in the newer data, of removed ones in the older. ``place`` of iterations is the element around them,
    # ``added_in`` or ``removed_in`` that of the outermost such iteration around it.
    kind: DiffKind
    node: OutlineNode | None = None
    place: Place = ()
    older: HeldValue = NO_VALUE
    newer: HeldValue = NO_VALUE
    iterations: tuple[int, ...] = ()
    added_in: Place = ()
    removed_in: Place = ()


OTHER = Difference(DiffKind.OTHER)


def differences(
    older: DataNode | None,
    newer: DataNode | None,
    outline: Outline,
    *,
    by_position: bool = False,
    in_removed: bool = False,
) -> Iterator[Difference]:
    """Yield the differences between two revisions in the order of the form, and last ``OTHER`` for anything else."""
    # An element that is added, or in an added iteration, has had no values; those in removed ones are listed with
    # ``in_removed``. Equal iterations are aligned, those between them by order; ``by_position`` is as in the real
    # system (spec runtime 8).
    if older is None or newer is None:
        yield OTHER
        return
    comparison = _Comparison(by_position=by_position, in_removed=in_removed)
    yield from comparison.within(older, newer, outline.root, ())
    if comparison.differs_elsewhere:
        yield OTHER


class _Comparison:
    def __init__(self, *, by_position: bool, in_removed: bool) -> None:
        self.differs_elsewhere = False
        self._by_position, self._in_removed = by_position, in_removed
        self._alignment = Alignment(MOST_ALIGNED)

    def within(self, older: DataNode, newer: DataNode, outline: OutlineNode, place: Place) -> Iterator[Difference]:
        if older.digest == newer.digest:
            return
        self.differs_elsewhere |= older is not NO_DATA and older.other != newer.other
        if outline.is_control:
            yield from self._values(older, newer, outline, place)
        for name, inner in outline.inside.items():
            before, after, here = older.at(name), newer.at(name), (*place, (name, 0))
            if inner.is_iteration:
                yield from self._iterations(before, after, name, inner, place)
                continue
            if before and not after and not inner.iteration:
                yield Difference(DiffKind.ELEMENT_REMOVED, inner, here)
                continue
            # In new data, the element around it, or its iteration, is what was added.
            if after and not before and not inner.iteration and older is not NO_DATA:
                yield Difference(DiffKind.ELEMENT_ADDED, inner, here)
            yield from self.within(before[0] if before else NO_DATA, after[0] if after else NO_DATA, inner, here)
            self.differs_elsewhere |= [each.digest for each in before[1:]] != [each.digest for each in after[1:]]

    def _values(self, older: DataNode, newer: DataNode, outline: OutlineNode, place: Place) -> Iterator[Difference]:
        if older.value != newer.value:
            yield Difference(DiffKind.VALUE_CHANGED, outline, place, older.value, newer.value)
        if older.items == newer.items:
            return
        for before, after in self._alignment.pairs(older.items, newer.items):
            was = NO_VALUE if before is None else older.items[before]
            now = NO_VALUE if after is None else newer.items[after]
            if was != now:
                yield Difference(DiffKind.VALUE_CHANGED, outline, place, was, now)

    def _iterations(
        self, older: list[DataNode], newer: list[DataNode], name: str, outline: OutlineNode, place: Place
    ) -> Iterator[Difference]:
        if self._by_position:
            pairs = list(_by_position(range(len(older)), range(len(newer))))
        else:
            pairs = list(self._alignment.pairs([each.digest for each in older], [each.digest for each in newer]))
        removed = tuple(before for before, after in pairs if before is not None and after is None)
        added = tuple(after for before, after in pairs if before is None and after is not None)
        if removed:
            yield Difference(DiffKind.ITERATION_REMOVED, outline, place, iterations=removed)
        if added:
            yield Difference(DiffKind.ITERATION_ADDED, outline, place, iterations=added)
        for before, after in pairs:
            inner = (*place, (name, after or 0))
            if before is not None and after is not None:
                yield from self.within(older[before], newer[after], outline, inner)
            elif after is not None:
                values = self.within(NO_DATA, newer[after], outline, inner)
                yield from (replace(each, added_in=inner) for each in values)
            elif before is not None and self._in_removed:
                inner = (*place, (name, before))
                values = self.within(NO_DATA, older[before], outline, inner)
                for each in (each for each in values if each.kind is DiffKind.VALUE_CHANGED):
                    yield replace(each, older=each.newer, newer=NO_VALUE, added_in=(), removed_in=inner)


@dataclass(slots=True)
class Alignment:
    """Aligns sequences by what they have in common, while ``left`` pairs may be compared, and then by order."""

    left: int

    def pairs(self, older: Sequence[object], newer: Sequence[object]) -> Iterator[tuple[int | None, int | None]]:
        """Yield pairs of positions in order, with ``None`` for what one of them lacks; a pair may be unequal."""
        begins = sum(1 for _ in takewhile(bool, map(eq, older, newer)))
        most = min(len(older), len(newer)) - begins
        ends = sum(1 for _ in takewhile(bool, map(eq, older[::-1][:most], newer[::-1][:most])))
        rows, columns = len(older) - begins - ends, len(newer) - begins - ends
        anchors = [(at, at) for at in range(begins)]
        if rows * columns <= self.left:
            self.left -= rows * columns
            middle = _common(older[begins : begins + rows], newer[begins : begins + columns])
            anchors += [(begins + before, begins + after) for before, after in middle]
        anchors += [(begins + rows + at, begins + columns + at) for at in range(ends)]
        bounds = [(-1, -1), *anchors, (len(older), len(newer))]
        for (before, after), (next_before, next_after) in pairwise(bounds):
            if before >= 0:
                yield before, after
            yield from _by_position(range(before + 1, next_before), range(after + 1, next_after))


def _by_position(older: range, newer: range) -> Iterator[tuple[int | None, int | None]]:
    for at in range(max(len(older), len(newer))):
        yield older[at] if at < len(older) else None, newer[at] if at < len(newer) else None


def _common(older: Sequence[object], newer: Sequence[object]) -> list[tuple[int, int]]:
    lengths = [[0] * (len(newer) + 1)]
    for before in reversed(older):
        below, row = lengths[-1], [0] * (len(newer) + 1)
        for at in range(len(newer) - 1, -1, -1):
            row[at] = below[at + 1] + 1 if before == newer[at] else max(below[at], row[at + 1])
        lengths.append(row)
    lengths.reverse()
    found, before, after = [], 0, 0
    while before < len(older) and after < len(newer):
        if older[before] == newer[after]:
            found.append((before, after))
            before, after = before + 1, after + 1
        elif lengths[before + 1][after] >= lengths[before][after + 1]:
            before += 1
        else:
            after += 1
    return found


_CUT = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True, slots=True)
class ComparedRevisions:
    """The differences of a revision to an ``older`` one; a page of a history does not repeat the ``newer`` one's."""

    older: Instant
    newer: Instant | None
    found: Iterable[Difference]

    @property
    def times(self) -> dict[str, str]:
        newer = {} if self.newer is None else {"newer-modified-time": self.newer}
        return {"older-modified-time": self.older, **newer}


@dataclass(slots=True)
class DiffsWriter:
    """A writer of the differences of one response, with labels in a language."""

    language: str | None = None
    truncation: int | None = None  # characters of a value
    left: int = LARGEST_FOUND  # characters; what is beyond is one difference of the kind ``other``

    def xml(self, compared: ComparedRevisions) -> str:
        content = self._bounded(compared, self._written)
        return element("diffs", "".join(attribute(*each) for each in compared.times.items()), "".join(content))

    def json(self, compared: ComparedRevisions) -> str:
        found = self._bounded(compared, lambda each: as_json(each, self.language, self.truncation))
        return msgspec.json.encode({**compared.times, "diffs": [msgspec.Raw(each.encode()) for each in found]}).decode()

    def _bounded(self, compared: ComparedRevisions, write: Callable[[Difference], str]) -> Iterator[str]:
        for each in compared.found:
            if each.added_in:  # the real system has the count alone (spec runtime 8)
                continue
            written = write(each)
            self.left -= len(written)
            if self.left < 0:
                yield write(OTHER)
                break
            yield written

    def _written(self, each: Difference) -> str:
        attributes, content = attribute("type", each.kind.value), ""
        if each.node is not None:
            attributes += attribute("name", each.node.name) if each.node.name else ""
            if (label := each.node.label) is not None:
                html = attribute("mediatype", "text/html") if label.is_html else ""
                content = element("label", html, text(label.in_language(self.language)))
        if each.iterations:
            attributes += attribute("count", str(len(each.iterations)))
        if each.kind is DiffKind.VALUE_CHANGED:
            content += self._value("from", each.older) + self._value("to", each.newer)
        return element("diff", attributes, content)

    def _value(self, name: str, value: HeldValue) -> str:
        attributes = "".join(attribute(each, held) for each, held in value.attributes)
        return element(name, attributes, text(shortened(value.text, self.truncation)))


def shortened(value: str, size: int | None) -> str:
    """Return a text of at most so many characters, of which the last one shows that it was longer."""
    return value if size is None or len(value) <= size else value[: size - 1] + _CUT


_WORDS: Mapping[DiffKind, str] = {
    DiffKind.ITERATION_ADDED: "added",
    DiffKind.ITERATION_REMOVED: "removed",
    DiffKind.ELEMENT_ADDED: "added",
    DiffKind.ELEMENT_REMOVED: "removed",
}


def as_line(each: Difference, language: str | None = None, truncation: int | None = None) -> str:
    """Return a difference as one line; its values are quoted, with at most ``truncation`` characters."""
    label = _label(each, language)
    return f"{place_of(each)}{f' ({label})' if label else ''}: {change_of(each, truncation)}"


def as_json(each: Difference, language: str | None = None, truncation: int | None = None) -> str:
    is_value = each.kind is DiffKind.VALUE_CHANGED
    values = {
        "type": each.kind.value,
        "name": None if each.node is None else each.node.name,
        "label": _label(each, language),
        "place": place_of(each) if each.node is not None else None,
        "count": len(each.iterations),
        "from": _object(each.older, truncation) if is_value else None,
        "to": _object(each.newer, truncation) if is_value else None,
    }
    return msgspec.json.encode({name: value for name, value in values.items() if value}).decode()


def place_of(each: Difference) -> str:
    """Return the path of a difference, with the numbers of iterations after the first."""
    own = [each.node.name] if each.node is not None and each.iterations else []
    return "/".join([path_of(each.place), *own] if each.place else own) or "elsewhere"


def path_of(place: Place) -> str:
    return "/".join(name if position == 0 else f"{name}[{position + 1}]" for name, position in place)


def change_of(each: Difference, truncation: int | None) -> str:
    if each.kind is DiffKind.VALUE_CHANGED:
        return f"{_value_text(each.older, truncation)} -> {_value_text(each.newer, truncation)}"
    if each.iterations:
        count, numbers = len(each.iterations), ", ".join(str(position + 1) for position in each.iterations)
        return f"{count} iteration{'' if count == 1 else 's'} {_WORDS[each.kind]}: {numbers}"
    return _WORDS.get(each.kind, "something differs")


def _value_text(value: HeldValue, truncation: int | None) -> str:
    if value.is_encrypted:
        return "encrypted"
    held = [f"{name}={shortened(text, truncation)}" for name, text in value.attributes]
    return " ".join([repr(shortened(value.text, truncation)), *held])


def _label(each: Difference, language: str | None) -> str:
    label = None if each.node is None else each.node.label
    return "" if label is None else label.in_language(language)


def _object(value: HeldValue, truncation: int | None) -> dict[str, object]:
    if value.is_encrypted:
        return {"encrypted": True}
    return {"text": shortened(value.text, truncation), **dict(value.attributes)}
