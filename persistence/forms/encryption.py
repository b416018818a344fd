"""Encrypted values in form data: encrypt, decrypt and survey them while the data streams by (spec forms 4.2, 4.3).

Values and holders of attachments are in leaves: elements without elements inside. The functions that encrypt and
decrypt a value are arguments; they get the text and the place of its element.

Behind the root element, a processing instruction has the seal of all encrypted values, which binds them together.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

from persistence.errors import BadRequestError, BodyTooLargeError, DamagedError, MalformedXmlError
from persistence.forms.form_data import (
    ATTACHMENT_ENCRYPTED,
    ATTACHMENT_MARKER,
    FR_NAMESPACE,
    MARKER_WORD,
    OLD_MARKER,
    TOKEN_MARKER,
    VALUE_ENCRYPTED,
    VALUE_TOKEN,
    PathState,
    is_value_encrypted,
    path_matcher,
)
from persistence.limits import LONGEST_ENCRYPTED, LONGEST_PATH, MOST_EDITED
from persistence.model.addresses import AttachmentRef, parse_holder_path
from persistence.model.versions import PathStep, Place
from persistence.xml import SEPARATOR, Streaming, codec_of, end_of_tag, local_name, markup_codec_of, tag_attributes

_WINDOW = 1 << 10
_BLANKS = " \t\r\n"
_PREFIX = "fr"
_MOST_DIGITS = 9  # Digits of a number after a prefix that count: no document has as many declarations


def as_content(text: str) -> str:
    """Escape a text as an element's content; a bare carriage return would be read as a line feed."""
    return escape(text, {"\r": "&#13;"})


_LONGEST_WRITTEN = 6 * LONGEST_ENCRYPTED

IsEncrypted = Callable[[AttachmentRef, bool], bool]
"""Decides whether an attachment is encrypted; the second argument says whether its holder has the attribute."""

Encrypt = Callable[[str, Place], tuple[str, str | None]]
"""Encrypts a value, and returns its token for the index beside it, if it is to have one."""

Decrypt = Callable[[str, Place], str]
Paths = Iterable[tuple[str, ...]]

_WANTED, _VALUE = "wanted", "value"
SEAL = f"{MARKER_WORD.decode()}-values"  # The target of the processing instruction with the seal


@dataclass(slots=True)
class OpenElement:
    """An element that has begun, and has no elements inside so far."""

    at: int  # the byte of its start tag
    attributes: Mapping[str, str]
    tag: bytes | None  # the start tag without attributes to drop, if it has any
    after: int  # the byte after the old tag
    prefix: str | None  # one that is declared for the form runner's attributes
    is_wanted: bool  # it is at or inside one of the paths
    is_value: bool  # likewise of the values
    most: int  # characters of its text that are of interest


class LeafEditor(Streaming):
    """A parser that follows ``paths`` and ``values`` (names from below the root element), and handles leaves."""

    # It yields bytes that will not change any more; subclasses call ``replace`` for later ones. Attributes are added in
    # the form runner's namespace, by a prefix that is declared for it, or that is declared for them.
    dropped: tuple[str, ...] = ()  # names of attributes in it that are removed; so are the old one, and a seal
    seal: str | None = None  # that of the document, behind its root element

    def __init__(self, paths: Iterable[tuple[str, ...]] = (), values: Iterable[tuple[str, ...]] = ()) -> None:
        super().__init__()
        self.parser.buffer_text = True
        self.parser.CharacterDataHandler = self._text
        self.parser.ProcessingInstructionHandler = self._instruction
        self.path: list[str] = []  # The local names of the elements that have begun, the root element first
        self._numbered: list[tuple[str, int]] = []
        self._siblings: list[dict[str, int]] = [{}]
        self._dropped_names = frozenset(f"{FR_NAMESPACE}{SEPARATOR}{name}" for name in self.dropped)
        kinds = ((path, kind) for kind, found in ((_WANTED, paths), (_VALUE, values)) for path in found)
        self._place: PathState[str] = path_matcher((tuple(map(PathStep, path)), kind) for path, kind in kinds)
        self._places: list[PathState[str]] = []
        self._wanted_from = self._value_from = 0
        self._at: int | None = None
        self._begun: OpenElement | None = None
        self._texts: list[str] = []
        self._size = 0
        self._bound: dict[str, list[str | None]] = {}
        self._fitting: dict[str, None] = {}  # the prefixes that stand for the form runner's namespace here
        self._highest = 0
        self._bytes = bytearray()
        self._from = 0
        self._replacements: list[tuple[int, int, bytes]] = []

    @abstractmethod
    def looks_at(self, attributes: Mapping[str, str], *, is_wanted: bool) -> int:
        """Return how many characters of the text of an element that begins are of interest, or 0."""

    @abstractmethod
    def leaf(self, begun: OpenElement, text: str, end: int) -> None:
        """Handle an element with attributes or text, and none inside, whose end tag or only tag is at ``end``."""

    @abstractmethod
    def long(self, begun: OpenElement) -> None:
        """Handle an element that is longer than ``looks_at`` returned, or too long to be held in memory."""

    def branch(self, begun: OpenElement, text: str) -> None:
        """Handle an element with attributes or text that has elements inside; ``text`` is before the first."""

    def between(self, text: str) -> None:
        """Handle text in a wanted element, after an element inside."""

    def edited(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._bytes += piece
            self.feed(piece)
            after = self._from + len(self._bytes)
            if after - self._unchanged() > MOST_EDITED:
                self._look_at({})
                self._give_up()
            if settled := self._settled(min(self._unchanged(), after)):
                yield settled
        self.finish()
        if settled := self._settled(self._from + len(self._bytes)):
            yield settled

    def _unchanged(self) -> int:
        """Return the number of bytes of the document that will not be changed any more."""
        if self._begun is not None:
            return self._begun.at
        return max(self._from, self.parser.CurrentByteIndex) if self._at is None else self._at

    def _settled(self, end: int) -> bytes:
        out, at = bytearray(), 0
        for begin, after, text in self._replacements:
            out += self._bytes[at : begin - self._from]
            out += text
            at = after - self._from
        out += self._bytes[at : end - self._from]
        self._replacements.clear()
        del self._bytes[: end - self._from]
        self._from = end
        return bytes(out)

    @property
    def place(self) -> Place:
        return tuple(self._numbered[1:])

    def replace(self, begin: int, end: int, written: bytes) -> None:
        """Replace bytes; to be called in ascending order."""
        self._replacements.append((begin, end, written))

    def encoded(self, content: str) -> bytes:
        """Encode content in the document's encoding; other characters become references."""
        return content.encode(self._codec, "xmlcharrefreplace")

    def with_attributes(self, tag: bytes, prefix: str | None, added: Mapping[str, str]) -> bytes:
        """Add attributes to a start tag; without a ``prefix``, one is declared."""
        declared = ""
        if prefix is None:
            # The usual prefix, else one that no element so far has declared: to find the first free one, all declared
            # prefixes would have to be searched.
            prefix = f"{_PREFIX}{self._highest + 1}" if self._bound.get(_PREFIX) else _PREFIX
            declared = f' xmlns:{prefix}="{FR_NAMESPACE}"'
        text = self._markup(tag)
        end = len(text) - (2 if text.endswith("/>") else 1)
        attributes = "".join(f' {prefix}:{name}="{value}"' for name, value in added.items())
        written = f"{declared}{attributes}".encode(self._codec)
        return self._written(text[:end].rstrip(_BLANKS)) + written + self._written(text[end:])

    def _without_dropped(self, tag: bytes) -> bytes:
        text, kept, at = self._markup(tag), [], 0
        for attribute in tag_attributes(text):
            prefix, _, local = self._written(attribute[1]).decode(self._codec).rpartition(":")
            if local in self.dropped and prefix in self._fitting if prefix else local == OLD_MARKER:
                kept.append(text[at : attribute.start()])
                at = attribute.end()
        kept.append(text[at:])
        return self._written("".join(kept))

    def markup_at(self, at: int, length_in: Callable[[str], int | None] = end_of_tag) -> bytes:
        """Return the markup at a byte that has been parsed, by its length at the beginning of a text."""
        begin, size = at - self._from, _WINDOW
        while True:
            data = bytes(self._bytes[begin : begin + size])
            text = self._markup(data)
            length = length_in(text)
            if length is not None:
                return self._written(text[:length])
            if len(data) < size:
                raise MalformedXmlError("the XML has a tag or processing instruction that cannot be read")
            size *= 2

    @property
    def _codec(self) -> str:
        return codec_of(self._begin, self.encoding)

    def _markup(self, data: bytes) -> str:
        """Decode bytes so that the markup can be read; ``_written`` gives the same bytes back."""
        return data.decode(markup_codec_of(self._begin), "surrogatepass")

    def _written(self, text: str) -> bytes:
        return text.encode(markup_codec_of(self._begin), "surrogatepass")

    def declare(self, prefix: str | None, namespace: str | None) -> None:
        super().declare(prefix, namespace)
        if prefix is not None:
            self._bound.setdefault(prefix, []).append(namespace)
            self._fit(prefix)
            number = prefix.removeprefix(_PREFIX)
            if len(number) <= _MOST_DIGITS and number.isdecimal():
                self._highest = max(self._highest, int(number))

    def undeclare(self, prefix: str | None) -> None:
        super().undeclare(prefix)
        if prefix is not None:
            self._bound[prefix].pop()
            self._fit(prefix)

    def _fit(self, prefix: str) -> None:
        if self._bound[prefix][-1:] == [FR_NAMESPACE]:
            self._fitting[prefix] = None
        else:
            self._fitting.pop(prefix, None)
        if not self._bound[prefix]:
            del self._bound[prefix]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        if self._begun is not None:
            begun, self._begun = self._begun, None
            self.branch(begun, "".join(self._texts))
        siblings = self._siblings[-1]
        siblings[name] = number = siblings.get(name, 0) + 1  # with its namespace: another one is another element
        self.path.append(local_name(name))
        self._numbered.append((name, number))
        self._siblings.append({})
        self._places.append(self._place)
        self._place = self._place.entered(name, attributes)
        if self._place.found:
            self._wanted_from = self._wanted_from or (self.depth if _WANTED in self._place.found else 0)
            self._value_from = self._value_from or (self.depth if _VALUE in self._place.found else 0)
        self._at = self.parser.CurrentByteIndex
        if attributes:
            self._look_at(attributes)

    def end(self, name: str) -> None:
        self._at = None
        if self._begun is not None:
            begun, self._begun = self._begun, None
            self.leaf(begun, "".join(self._texts), self.parser.CurrentByteIndex)
        super().end(name)
        self.path.pop()
        self._numbered.pop()
        self._siblings.pop()
        self._place = self._places.pop()
        if self.depth < self._wanted_from:
            self._wanted_from = 0
        if self.depth < self._value_from:
            self._value_from = 0

    def _look_at(self, attributes: Mapping[str, str]) -> None:
        at, self._at = self._at, None
        is_wanted = self._wanted_from > 0
        most = 0 if at is None else self.looks_at(attributes, is_wanted=is_wanted)
        if at is not None and most:
            tag, after = None, 0
            is_labelled = attributes.get(OLD_MARKER) == "true" or not self._dropped_names.isdisjoint(attributes)
            if self._dropped_names and is_labelled:
                old = self.markup_at(at)
                tag, after = self._without_dropped(old), at + len(old)
            prefix = next(iter(self._fitting), None)
            self._begun = OpenElement(at, attributes, tag, after, prefix, is_wanted, self._value_from > 0, most)
            self._texts = []
            self._size = 0

    def _instruction(self, target: str, data: str) -> None:
        if target != SEAL or self.depth:
            return
        self.seal = data
        if self.dropped:
            begin = self.parser.CurrentByteIndex
            written = self.markup_at(begin, lambda text: text.find("?>") + 2 if "?>" in text else None)
            self.replace(begin, begin + len(written), b"")

    def _text(self, text: str) -> None:
        self._look_at({})
        begun = self._begun
        if begun is None:
            if self._wanted_from:
                self.between(text)
            return
        self._texts.append(text)
        self._size += len(text)
        if self._size > begun.most:
            self._give_up()

    def _give_up(self) -> None:
        begun, self._begun = self._begun, None
        self._texts = []
        if begun is not None:
            self.long(begun)


class ValueEncrypter(LeafEditor):
    """An editor that encrypts the values at ``paths``, and labels them as encrypted; ``count`` is their number."""

    # A client's own attributes of encryption are dropped: its values are plain. A holder gets one if its attachment
    # ``is_encrypted``. In leaves at or below the paths, all text is encrypted but a holder's; at or below ``values``,
    # holders' too. ``sealed`` returns the seal of all encrypted values, in order. A token is an
    # attribute.
    dropped = (VALUE_ENCRYPTED, ATTACHMENT_ENCRYPTED, VALUE_TOKEN)

    def __init__(
        self, paths: Paths, values: Paths, encrypt: Encrypt, sealed: Callable[[], str], is_encrypted: IsEncrypted
    ) -> None:
        super().__init__(paths, values)
        self.count = 0
        self._encrypt = encrypt
        self._sealed = sealed
        self._is_encrypted = is_encrypted

    def edited(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        yield from super().edited(pieces)
        if self.count:
            yield self.encoded(f"<?{SEAL} {self._sealed()}?>")

    def looks_at(self, attributes: Mapping[str, str], *, is_wanted: bool) -> int:
        """Return the bound of a value, or of a path: every element may be a holder."""
        del attributes
        return LONGEST_ENCRYPTED if is_wanted else LONGEST_PATH

    def leaf(self, begun: OpenElement, text: str, end: int) -> None:
        held = _held(text, begun)
        if held is not None:
            is_encrypted = self._is_encrypted(held, _is_encrypted_holder(begun))
            self._retag(begun, {ATTACHMENT_ENCRYPTED: "true"} if is_encrypted else {})
        elif text and begun.is_wanted:
            encrypted, token = self._encrypt(text, self.place)
            added = {VALUE_ENCRYPTED: "true"} | ({} if token is None else {VALUE_TOKEN: token})
            self.replace(self._retag(begun, added), end, self.encoded(as_content(encrypted)))
            self.count += 1
        else:
            self._retag(begun, {})

    def branch(self, begun: OpenElement, text: str) -> None:
        self._retag(begun, {})
        if begun.is_wanted:
            self.between(text)

    def long(self, begun: OpenElement) -> None:
        if begun.is_wanted:
            raise BodyTooLargeError(f"a value to be encrypted has more than {LONGEST_ENCRYPTED} characters")
        self._retag(begun, {})

    def between(self, text: str) -> None:
        if text.strip():
            raise BadRequestError("form data has text beside elements in a value to encrypt")

    def _retag(self, begun: OpenElement, added: Mapping[str, str]) -> int:
        tag, after = begun.tag, begun.after
        if tag is None:
            if not added:
                return begun.at
            tag = self.markup_at(begun.at)
            after = begun.at + len(tag)
        if added:
            tag = self.with_attributes(tag, begun.prefix, added)
        self.replace(begun.at, after, tag)
        return after


class ValueDecrypter(LeafEditor):
    """An editor that decrypts encrypted values at all paths, and drops their attribute and seal (spec forms 4.3)."""

    dropped = (VALUE_ENCRYPTED, VALUE_TOKEN)

    def __init__(self, decrypt: Decrypt) -> None:
        super().__init__()
        self._decrypt = decrypt

    def looks_at(self, attributes: Mapping[str, str], *, is_wanted: bool) -> int:
        del is_wanted
        return _LONGEST_WRITTEN if is_value_encrypted(attributes) else 0

    def leaf(self, begun: OpenElement, text: str, end: int) -> None:
        if begun.tag is None:
            return
        self.replace(begun.at, begun.after, begun.tag)
        if text:
            self.replace(begun.after, end, self.encoded(as_content(self._decrypt(text, self.place))))

    def long(self, begun: OpenElement) -> None:
        del begun
        raise DamagedError("an encrypted value is longer than any that this service writes")


IsCurrent = Callable[[str, str | None, tuple[str, ...]], bool]
"""Decides whether an encrypted value and its token, if any, at a path are as they would be written now."""


class EncryptionSurvey(LeafEditor):
    """A parser that counts the encrypted values in stored data: ``values`` all, ``wanted`` those at ``paths``."""

    # ``stale`` are not encrypted with the key in use (``is_current``), or should not be encrypted; ``plain`` values and
    # ``plain_files`` at ``paths`` are not encrypted; ``wrong`` holders have an attribute that differs from
    # ``is_encrypted``. ``places`` lead to all encrypted values, ``token_places`` to those that have a token.
    def __init__(self, paths: Paths, values: Paths, is_current: IsCurrent, is_encrypted: IsEncrypted) -> None:
        super().__init__(paths, values)
        self.values = self.wanted = self.stale = self.plain = self.plain_files = self.wrong = 0
        self.places: set[tuple[str, ...]] = set()
        self.token_places: set[tuple[str, ...]] = set()
        self._is_current = is_current
        self._is_encrypted = is_encrypted

    @property
    def is_done(self) -> bool:
        return not (self.stale or self.plain or self.wrong)

    def looks_at(self, attributes: Mapping[str, str], *, is_wanted: bool) -> int:
        return _LONGEST_WRITTEN if is_wanted or is_value_encrypted(attributes) else LONGEST_PATH

    def leaf(self, begun: OpenElement, text: str, end: int) -> None:
        del end
        held = _held(text, begun)
        if is_value_encrypted(begun.attributes):
            self.values += 1
            self.wanted += begun.is_wanted
            path, token = tuple(self.path[1:]), begun.attributes.get(TOKEN_MARKER)
            self.places.add(path)
            if token is not None:
                self.token_places.add(path)
            is_current = self._is_current(text, token, path)
            self.stale += not (is_current and begun.is_wanted)
        elif held is not None:
            is_labelled = _is_encrypted_holder(begun)
            is_encrypted = self._is_encrypted(held, is_labelled)
            self.wrong += is_labelled is not is_encrypted
            self.plain_files += begun.is_wanted and not is_encrypted
        elif text and begun.is_wanted:
            self.plain += 1

    def long(self, begun: OpenElement) -> None:
        self.stale += begun.is_wanted


def _held(text: str, begun: OpenElement) -> AttachmentRef | None:
    held = parse_holder_path(text) if len(text) <= LONGEST_PATH else None
    return None if begun.is_wanted and begun.is_value else held


def _is_encrypted_holder(holder: OpenElement) -> bool:
    return holder.attributes.get(ATTACHMENT_MARKER) == "true"
