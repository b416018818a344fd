"""Form data that streams by: its holders, values and cells (spec forms 3.1, 4.3 and 6.7; search 2.1; crud 8.2)."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, Generic, NamedTuple, TypeVar
from xml.sax.saxutils import escape, quoteattr

from persistence import limits
from persistence.errors import BadRequestError, DamagedError, MalformedXmlError
from persistence.model.addresses import AttachmentRef, parse_holder_path
from persistence.model.queries import VALUE_TOKEN
from persistence.model.versions import IndexKey, PathStep
from persistence.xml import SEPARATOR, Streaming, local_name, past_limits

FR_NAMESPACE = "http://orbeon.org/oxf/xml/form-runner"
RELEVANT = f"{FR_NAMESPACE}{SEPARATOR}relevant"

VALUE_ENCRYPTED = "value-encrypted"
ATTACHMENT_ENCRYPTED = "attachment-encrypted"
ENCRYPTED_TOKEN = "value-encrypted-token"  # noqa: S105 - the name of an attribute
OLD_MARKER = "encrypted"

MARKER_WORD = b"encrypted"  # A word in the names of all attributes of encryption

VALUE_MARKER = f"{FR_NAMESPACE}{SEPARATOR}{VALUE_ENCRYPTED}"
ATTACHMENT_MARKER = f"{FR_NAMESPACE}{SEPARATOR}{ATTACHMENT_ENCRYPTED}"
TOKEN_MARKER = f"{FR_NAMESPACE}{SEPARATOR}{ENCRYPTED_TOKEN}"

ITEM = "_"  # The name of the element around each file of a control that takes several

_FR = f"{FR_NAMESPACE}{SEPARATOR}"


def is_value_encrypted(attributes: Mapping[str, str]) -> bool:
    """Return whether the value of an element is encrypted, by the new or the old attribute (spec forms 4.3)."""
    return attributes.get(VALUE_MARKER) == "true" or attributes.get(OLD_MARKER) == "true"


def nonrelevant_edges(pieces: Iterable[bytes]) -> array[int]:
    """Return the positions at which each non-relevant element begins and ends, in turn, ascending."""
    # Its bytes can be cut out, and all others stay. Of a non-relevant root only the content counts.
    try:
        return _Finder().read(pieces).edges
    except MalformedXmlError as error:
        raise DamagedError(f"the stored form data cannot be parsed: {error}") from error


class _Finder(Streaming):
    """A parser that records the edges of non-relevant elements."""

    # An event has the byte at which its markup begins; it ends where the next event begins. The default handler gets
    # every event that no other handler takes, so none is missed.
    def __init__(self) -> None:
        super().__init__()
        self.parser.DefaultHandler = self._next_event
        self.edges: array[int] = array("Q")
        self._cut_from = 0
        self._is_edge_next = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self._next_event()
        if not self._cut_from and attributes.get(RELEVANT) == "false":
            self._cut_from = self.depth
            self._note_edge(is_behind=self.depth == 1)

    def end(self, name: str) -> None:
        self._next_event()
        if self.depth == self._cut_from:
            self._cut_from = 0
            self._note_edge(is_behind=self.depth > 1)
        super().end(name)

    def _note_edge(self, *, is_behind: bool) -> None:
        if is_behind:
            self._is_edge_next = True
        else:
            self.edges.append(self.parser.CurrentByteIndex)

    def _next_event(self, _text: str = "") -> None:
        if self._is_edge_next:
            self.edges.append(self.parser.CurrentByteIndex)
            self._is_edge_next = False


@dataclass(frozen=True, slots=True)
class AttachmentHolder:
    """An element that names an attachment."""

    path: tuple[str, ...]  # the local names below the root, itself included
    attributes: Mapping[str, str]  # those without a namespace, and as ``fr:`` those of the form runner
    held: AttachmentRef
    text: str
    is_relevant: bool


class EncryptedValueWatch(Streaming):
    """A parser that finds out whether there ``is_one``: an encrypted value, by any program and with any key."""

    def __init__(self) -> None:
        super().__init__()
        self.is_one = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self.is_one = self.is_one or is_value_encrypted(attributes)


class HolderReader(Streaming):
    """A parser that collects the holders of attachments that ``is_wanted``."""

    def __init__(self, is_wanted: Callable[[AttachmentRef], bool]) -> None:
        super().__init__()
        self.parser.CharacterDataHandler = self._characters
        self.holders: list[AttachmentHolder] = []
        self._is_wanted = is_wanted
        self._path: list[str] = []
        self._attributes: dict[str, str] = {}
        self._irrelevant_from = 0
        self._text: str | None = None
        self._left = limits.LARGEST_ATTACHMENT_LIST

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self._path.append(local_name(name))
        self._attributes, self._text = attributes, ""
        if not self._irrelevant_from and attributes.get(RELEVANT) == "false":
            self._irrelevant_from = self.depth

    def end(self, name: str) -> None:
        held = parse_holder_path(self._text) if self._text else None
        if held is not None and self._is_wanted(held):
            if len(self.holders) == limits.MOST_HOLDERS:
                raise BadRequestError(f"the form data names more than {limits.MOST_HOLDERS} attachments")
            own = {
                name.replace(_FR, "fr:"): value
                for name, value in self._attributes.items()
                if name != RELEVANT and (name.startswith(_FR) or SEPARATOR not in name)
            }
            text, path = (self._text or "").strip(), tuple(map(sys.intern, self._path[1:]))
            self._left -= limits.HOLDER_COSTS + getsizeof(text) + getsizeof(path)
            self._left -= sum(getsizeof(name) + getsizeof(value) for name, value in own.items())
            if self._left < 0:
                most = limits.LARGEST_ATTACHMENT_LIST
                raise BadRequestError(f"the attachments in the form data take more than {most} bytes")
            self.holders.append(AttachmentHolder(path, own, held, text, not self._irrelevant_from))
        self._path.pop()
        self._text = None
        if self._irrelevant_from == self.depth:
            self._irrelevant_from = 0
        super().end(name)

    def _characters(self, text: str) -> None:
        if self._text is not None and len(self._text) <= limits.LONGEST_PATH:
            self._text += text


def write_attachment_list(attachments: Iterable[tuple[str, AttachmentHolder]]) -> bytes:
    lines = []
    for name, holder in attachments:
        attributes = {**holder.attributes, "name": name}
        if not holder.is_relevant:
            attributes["fr:relevant"] = "false"
        written = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
        lines.append(f"<attachment{written}>{escape(holder.text)}</attachment>")
    return f'<attachments xmlns:fr="{FR_NAMESPACE}">{"".join(lines)}</attachments>'.encode()


T = TypeVar("T")

_MOST_KEPT = 10_000


_Path = tuple[tuple[PathStep, ...], int, T]  # Steps, the next one of them, and the value at their end


class PathState(Generic[T]):
    """A state of the matcher, at an element: ``found`` are the values of the paths that lead here."""

    # ``following`` are those of the elements inside, by name; ``None`` where more than the name counts (``chosen``).
    __slots__ = ("_chosen", "_identities", "_inside", "following", "found")

    def __init__(self, paths: Iterable[_Path[T]]) -> None:
        found: list[T] = []
        self._inside: dict[str, list[_Path[T]]] = {}
        for steps, at, value in paths:
            if at == len(steps):
                found.append(value)
            else:
                step = steps[at]
                name = f"{step.namespace}{SEPARATOR}{step.name}" if step.namespace else step.name
                self._inside.setdefault(name, []).append((steps, at, value))
        self.found = tuple(found)
        self._identities = {steps[at].id for each in self._inside.values() for steps, at, _ in each}
        is_plain = "" not in self._inside and self._identities <= {None}
        self.following: dict[str, PathState[T]] | None = {} if is_plain else None
        self._chosen: dict[tuple[str | None, str | None], PathState[T]] = {}

    def entered(self, name: str, attributes: Mapping[str, str]) -> PathState[T]:
        return self.chosen(name, attributes) if self.following is None else self.following.get(name, OFF_PATH)

    def chosen(self, name: str, attributes: Mapping[str, str]) -> PathState[T]:
        identity = attributes.get("id")
        key = (name if name in self._inside else None, identity if identity in self._identities else None)
        place = self._chosen.get(key)
        if place is None:
            paths = (*self._inside.get("", ()), *self._inside.get(name, ()))
            taken = [(steps, at + 1, found) for steps, at, found in paths if steps[at].id in {None, identity}]
            place = _with_all_following(PathState(taken))
            if len(self._chosen) < _MOST_KEPT:
                self._chosen[key] = place
        return place

    def branch(self) -> Iterator[PathState[T]]:
        if self.following is not None:
            for name, paths in self._inside.items():
                self.following[name] = place = PathState((steps, at + 1, found) for steps, at, found in paths)
                yield place


OFF_PATH: PathState[Any] = PathState(())  # The state of elements that are on no path


def path_matcher(paths: Iterable[tuple[tuple[PathStep, ...], T]]) -> PathState[T]:
    """Return the state around the root element, for paths of steps below it, each with its value."""
    below = (
        each for each in paths if len(each[0]) < limits.DEEPEST and not any(SEPARATOR in step.name for step in each[0])
    )
    return _with_all_following(PathState(((PathStep(""), *steps), 0, found) for steps, found in below))


def _with_all_following(first: PathState[T]) -> PathState[T]:
    waiting = [first]
    while waiting:
        waiting += waiting.pop().branch()
    return first


NODE_END = "\x1f"  # Between text nodes: a character that XML does not have


_DATA_URI = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)(?:;[\w.=+-]+)*,", re.ASCII)
_WORD = re.compile(r"[!-~]+")
_ENCODED = re.compile(r"[\w+/=-]+", re.ASCII)
_KILOBYTE = 1000


def file_type(value: str) -> str | None:
    """Return the media type of a value that is a file, as ``data:`` URI or base64; ``file`` if unknown."""
    text = value.strip()
    if len(text) <= limits.LONGEST_WORD and not text.startswith("data:"):
        return None
    found = _DATA_URI.match(text)
    if found is not None and (";" in found[0] or _WORD.fullmatch(text)):
        return found["type"]
    return "file" if len(text) > limits.LONGEST_WORD and _WORD.fullmatch(text) else None


def readable(value: str) -> str:
    """Return a value for a reader; the content of a file becomes its type and size, such as ``[image/png, 12 KB]``."""
    content = file_type(value)
    if content is None:
        return value
    size = (len(value) - value.find(",") - 1) * 3 // 4  # of base64, which has four characters for three bytes
    return f"[{content}, {-(-size // _KILOBYTE)} KB]"


def _searched(text: str) -> str:
    if text.isspace() or file_type(text) is not None:
        return ""
    if len(text) <= limits.LONGEST_WORD or max(map(len, text.split())) <= limits.LONGEST_WORD:
        return text
    return _ENCODED.sub(lambda word: "" if len(word[0]) > limits.LONGEST_WORD else word[0], text)


@dataclass(frozen=True, slots=True)
class ExtractedText:
    """The values and other text of a document, without encrypted values and contents of files."""

    values: Mapping[str, tuple[str, ...]]  # at each path, in document order, without empty ones
    rest: str  # the other text nodes that are not blank, with ``NODE_END`` between
    tokens: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of encrypted values, as ``values``


class ValueReader:
    """A reader of the values of keys in documents."""

    def __init__(self, keys: Iterable[IndexKey]) -> None:
        self.start = path_matcher((key.steps, key.path) for key in keys if key.steps)

    def read(self, pieces: Iterable[bytes]) -> ExtractedText:
        return TextExtraction(self).read(pieces).extracted()


class TextExtraction(Streaming):
    """A parser that collects text."""

    # It reads every document that is written, so its handlers are closures that call nothing, and text goes directly
    # into a list, in which ``NODE_END`` stands for every tag.
    def __init__(self, reader: ValueReader) -> None:
        super().__init__()
        self._parts: list[str] = []
        self._opened: list[int] = []
        self._leaves: list[tuple[int, int]] = []
        self._values: dict[str, list[str]] = {}
        self._tokens: dict[str, list[str]] = {}
        self._nested = 0
        self._rest: list[str] = []
        self._room = limits.MOST_REST
        self._left = limits.MOST_VALUES
        self._held = 0
        self._text: Callable[[str], None] | None = self._parts.append
        self._set_handlers(reader.start)

    def _set_handlers(self, place: PathState[str]) -> None:
        parts, opened, close = self._parts, self._opened, self._close
        places: list[PathState[str]] = []
        elements = encrypted_at = 0

        def start(name: str, attributes: dict[str, str]) -> None:
            nonlocal place, elements, encrypted_at
            places.append(place)
            elements += 1
            if len(places) > limits.DEEPEST or elements > limits.MOST_ELEMENTS or len(name) > limits.LONGEST_XML_NAME:
                raise past_limits(name, attributes, len(places), limits.MOST_ELEMENTS)
            following = place.following
            place = place.chosen(name, attributes) if following is None else following.get(name, OFF_PATH)
            parts.append(NODE_END)
            if place.found:
                opened.append(len(parts))
            if attributes:
                if len(attributes) > limits.MOST_ATTRIBUTES:
                    raise past_limits(name, attributes, len(places), limits.MOST_ELEMENTS)
                if not encrypted_at and is_value_encrypted(attributes):
                    encrypted_at = len(places)
                    self.parser.CharacterDataHandler = None
                    self._note_token(place.found, attributes.get(TOKEN_MARKER, ""))

        def end(_name: str) -> None:
            nonlocal place, encrypted_at
            if place.found:
                close(place.found)
            if encrypted_at == len(places):
                encrypted_at = 0
                self.parser.CharacterDataHandler = self._text
            parts.append(NODE_END)
            place = places.pop()

        self.parser.buffer_text = True
        self.parser.StartElementHandler = start
        self.parser.EndElementHandler = end
        self.parser.CharacterDataHandler = self._text

    def stop_extracting(self) -> None:
        """Discard all values, and only check the rest of the document."""
        self._text = self.parser.CharacterDataHandler = None
        self._room = self._left = 0
        self._rest.clear()
        self._values.clear()
        self._tokens.clear()

    def _note_token(self, paths: tuple[str, ...], token: str) -> None:
        if VALUE_TOKEN.fullmatch(token) and self._left > 0:
            self._left -= len(token) * len(paths)
            for path in paths:
                self._tokens.setdefault(path, []).append(token)

    def _close(self, paths: tuple[str, ...]) -> None:
        """Take the value of an element that ends; its text belongs to the rest only if there are elements inside."""
        parts, at = self._parts, self._opened.pop()
        inside = parts[at:]
        value = ""
        if NODE_END not in inside:
            self._leaves.append((at, len(parts)))
            value = "".join(inside)
        elif self._nested <= limits.MOST_NESTED_TEXT:
            value = "".join(inside).replace(NODE_END, "")
            self._nested += len(value)
        if value and self._left > 0 and file_type(value) is None:
            self._left -= len(value) * len(paths)
            for path in paths:
                self._values.setdefault(path, []).append(value)
        if not self._opened:
            self._held = 0
            self.parser.CharacterDataHandler = self._text
            for first, after in self._leaves:
                parts[first:after] = [""] * (after - first)
            self._leaves.clear()

    def extracted(self) -> ExtractedText:
        values = {path: tuple(each) for path, each in self._values.items()}
        tokens = {path: tuple(each) for path, each in self._tokens.items()}
        return ExtractedText(values, NODE_END.join(self._rest)[: limits.MOST_REST], tokens)

    def _parse(self, piece: bytes, *, is_final: bool) -> None:
        super()._parse(piece, is_final=is_final)
        parts = self._parts
        if self._opened:
            self._held += len(piece)
            if self._held > limits.MOST_HELD:
                del parts[self._opened[0] :]
                self.parser.CharacterDataHandler = None
        if self._opened or NODE_END not in parts:
            return
        ended = len(parts) - parts[::-1].index(NODE_END)
        if self._room > 0:
            texts = list(filter(None, map(_searched, filter(None, "".join(parts[:ended]).split(NODE_END)))))
            self._rest += texts
            self._room -= sum(map(len, texts)) + len(texts)
        del parts[:ended]


class Column(NamedTuple):
    """The path of a control below the root, and that of the iterations of the innermost repeat around it, if any."""

    path: tuple[str, ...]
    takes_files: bool = False
    iteration: tuple[str, ...] = ()


CellPlace = tuple[int, bool]  # A column, and whether the element is an iteration around its values, or has one of them


class CellReader(Streaming):
    """A parser that collects the values of columns in document order: ``cells`` are those with any."""

    # Of an attachment the file name counts, if its holder has one. Blank values do not count, but an iteration without
    # a value has an empty one: the first value of a column is then not taken for that of the first iteration.
    def __init__(self, start: PathState[CellPlace]) -> None:
        super().__init__()
        self.cells: dict[int, list[str]] = {}
        self._places = [start]
        self._open: list[tuple[list[str], str]] = []
        self._iterations: list[dict[int, int]] = []  # of each open one the columns, and how many values they had before
        self._left = limits.MOST_CELL_CHARACTERS
        self.parser.buffer_text = True
        self.parser.CharacterDataHandler = self._text

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        place = self._places[-1].entered(name, attributes)
        self._places.append(place)
        if place.found:
            columns = [column for column, is_iteration in place.found if is_iteration]
            if columns:
                self._iterations.append({column: len(self.cells.get(column, ())) for column in columns})
            if len(columns) < len(place.found):
                self._open.append(([], attributes.get("filename", "")))

    def end(self, name: str) -> None:
        super().end(name)
        place = self._places.pop()
        if place.found:
            columns = [column for column, is_iteration in place.found if not is_iteration]
            if columns:
                parts, file_name = self._open.pop()
                value = "".join(parts)
                if value.strip():
                    for column in columns:
                        self.cells.setdefault(column, []).append(file_name or value)
            if len(columns) < len(place.found):
                for column, before in self._iterations.pop().items():
                    values = self.cells.setdefault(column, [])
                    if len(values) == before:
                        self._count(1)
                        values.append("")

    def _text(self, text: str) -> None:
        if self._open:
            self._count(len(text))
            self._open[-1][0].append(text)

    def _count(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise BadRequestError(
                f"the form data has more than {limits.MOST_CELL_CHARACTERS} characters in its controls"
            )


def cell_matcher(columns: Iterable[Column]) -> PathState[CellPlace]:
    paths: list[tuple[tuple[PathStep, ...], CellPlace]] = []
    for at, column in enumerate(columns):
        steps = tuple(map(PathStep, column.path))
        paths.append((steps, (at, False)))
        if column.takes_files:
            paths.append(((*steps, PathStep(ITEM)), (at, False)))
        if column.iteration:
            paths.append((steps[: len(column.iteration)], (at, True)))
    return path_matcher(paths)
