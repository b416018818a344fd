"""XML parsed as it streams by: without a tree, bounded in everything a document can grow in.

The parser is expat, not lxml: lxml never frees the names that a thread has parsed (``trees`` has the remedy). A
document type is refused at once, so there are no entities. expat keeps every name, so it is fed in small steps.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count, islice, repeat
from operator import sub
from queue import SimpleQueue
from sys import getsizeof
from typing import Self
from xml.parsers import expat

from persistence import limits
from persistence.errors import MalformedXmlError, one_line

ENCODINGS = frozenset(
    {
        *("utf-8", "utf-16", "utf-16be", "utf-16le", "us-ascii", "ascii", "koi8-r", "koi8-u"),
        *(f"iso-8859-{part}" for part in range(1, 17) if part != 12),  # noqa: PLR2004 - there is none
        *(f"windows-{page}" for page in range(1250, 1259)),
    }
)
"""Encodings that a document may name, in small letters. In all but UTF-16, bytes below 128 are ASCII.

expat asks Python for others, and Python has codecs such as ``unicode_escape``, ``utf-7`` and ``idna``, in which a
document could mean something else to other parsers.
"""

_ASCII_COMPATIBLE = (b"<", codecs.BOM_UTF8, b" ", b"\t", b"\r", b"\n")

_S = r"[ \t\r\n]"
# Matching takes time that is linear in the length of a tag: nothing in the patterns can match in two ways (``++`` and
# ``*+`` give nothing back), and each pattern is tried only where the one before has ended.
_BEGIN = re.compile(r"<[^ \t\r\n<>/=\"'!?]++")
_ATTRIBUTE = re.compile(rf"{_S}*+([^ \t\r\n<>/=\"']++){_S}*+={_S}*+(?:\"[^\"]*+\"|'[^']*+')")
_END = re.compile(rf"{_S}*+/?+>")


class WordWatch:
    """Look for an ASCII word in the names of elements and attributes of XML that streams by, without parsing it."""

    # ``may_be_there`` is exact when it is ``False``. It is ``True`` also where text or a comment has the word, and for
    # an encoding in which ASCII characters are not single bytes. Names have no character references (XML 1.0, 2.3).
    def __init__(self, word: bytes) -> None:
        self.may_be_there = False
        self._word = word
        self._end: bytes | None = None

    def feed(self, piece: bytes) -> None:
        if self.may_be_there or not piece:
            return
        if self._end is None:
            self._end = b""
            self.may_be_there = not piece.startswith(_ASCII_COMPATIBLE)
        joined = self._end + piece
        # UTF-16 writes ASCII with zeros, which no other encoding has in XML.
        self.may_be_there = self.may_be_there or self._word in joined or b"\0" in piece
        self._end = joined[1 - len(self._word) :]


def may_mention(pieces: Iterable[bytes], word: bytes) -> bool:
    """Return whether a name in XML may contain an ASCII word (``WordWatch``)."""
    watch = WordWatch(word)
    for piece in pieces:
        watch.feed(piece)
        if watch.may_be_there:
            return True
    return False


def codec_of(begin: bytes, declared: str | None) -> str:
    """Return Python's codec by the first bytes (XML 1.0, appendix F), else by the declared encoding."""
    if begin.startswith(codecs.BOM_UTF16_BE) or begin[:1] == b"\0":
        return "utf-16-be"
    if begin.startswith(codecs.BOM_UTF16_LE) or begin[1:2] == b"\0":
        return "utf-16-le"
    return declared or "utf-8"


def markup_codec_of(begin: bytes) -> str:
    """Return the codec by which markup can be read and every byte written back: Latin-1, unless it is UTF-16."""
    codec = codec_of(begin, None)
    return "latin-1" if codec == "utf-8" else codec


def tag_attributes(text: str) -> Iterator[re.Match[str]]:
    """Yield the complete attributes of the start tag at the beginning of a text, if there is one."""
    # The match of each has the blanks before it, and as its group the name as it is written.
    match = _BEGIN.match(text)
    while match is not None and (match := _ATTRIBUTE.match(text, match.end())) is not None:
        yield match


def end_of_tag(text: str) -> int | None:
    """Return the length of the start tag with which a text begins; ``None`` where it is not whole."""
    last = _BEGIN.match(text)
    for attribute in tag_attributes(text):
        last = attribute
    end = None if last is None else _END.match(text, last.end())
    return None if end is None else end.end()


_VERSION = re.compile(r"1\.[0-9]+", re.ASCII)

SEPARATOR = " "  # Stands between namespace and local name in the names that handlers get


def local_name(name: str) -> str:
    return name.rpartition(SEPARATOR)[2]


class Streaming:
    """Parses one document, fed in pieces of any length; ``feed`` and ``finish`` raise ``MalformedXmlError``."""

    # The end of ``read``, or of its ``with`` block, breaks the cycle of parser and handlers, which frees the memory at
    # once. Handlers that subclasses override call the inherited one. Bytes are buffered to whole steps, whatever the
    # lengths of pieces.
    most_elements = limits.MOST_ELEMENTS
    most_names = limits.MOST_NAMES

    def __init__(self) -> None:
        self._names: dict[str, str | None] = {}
        self._measured = 0
        self._name_bytes = 0
        self._waiting = bytearray()
        self._begin = b""
        self._fed = 0
        self._token = bytearray()
        self._next = limits.XML_STEP
        self._declared = 0
        self.depth = 0
        self._elements = 0
        self.encoding: str | None = None
        """The encoding of the XML declaration."""
        parser = expat.ParserCreate(namespace_separator=SEPARATOR, intern=self._names)
        parser.buffer_text = False
        if hasattr(parser, "SetReparseDeferralEnabled"):  # since expat 2.6: it would delay events that are counted
            parser.SetReparseDeferralEnabled(False)  # noqa: FBT003 - pyexpat's signature
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.StartDoctypeDeclHandler = _refuse_doctype
        parser.XmlDeclHandler = self.declaration
        parser.StartNamespaceDeclHandler = self.declare
        parser.EndNamespaceDeclHandler = self.undeclare
        self.parser = parser

    def read(self, pieces: Iterable[bytes]) -> Self:
        """Parse a whole document, after which nothing can be parsed any more."""
        try:
            for piece in pieces:
                self.feed(piece)
            self.finish()
        finally:
            del self.parser
        return self

    def feed(self, piece: bytes) -> None:
        at = self._next - len(self._waiting)
        if len(piece) < at:
            self._waiting += piece
            return
        self._step(bytes(self._waiting + piece[:at]))
        while at + self._next <= len(piece):
            end = at + self._next
            self._step(piece[at:end])
            at = end
        self._waiting = bytearray(piece[at:])

    def keep(self, content: str) -> None:
        """Keep the collected values for the content with this id, if the parser collects any."""

    def finish(self) -> None:
        rest = bytes(self._waiting)
        self._begin = self._begin or rest[:3]
        self._parse(rest, is_final=True)
        if self._fed:
            self._check_names()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        self._elements += 1
        if (
            self.depth > limits.DEEPEST
            or self._elements > self.most_elements
            or len(name) > limits.LONGEST_XML_NAME
            or len(attributes) > limits.MOST_ATTRIBUTES
        ):
            raise past_limits(name, attributes, self.depth, self.most_elements)

    def end(self, name: str) -> None:  # noqa: ARG002 - expat's signature
        self.depth -= 1

    def declare(self, _prefix: str | None, namespace: str | None) -> None:
        self._declared += 1
        if self._declared > limits.MOST_NAMESPACES:
            raise MalformedXmlError(f"the XML has more than {limits.MOST_NAMESPACES} namespaces declared at a time")
        if namespace is not None:
            most = limits.LONGEST_NAMESPACE if namespace.isascii() else limits.LONGEST_NAMESPACE // 4
            if len(namespace) > most:
                raise MalformedXmlError(f"the XML has a namespace of more than {most} characters")

    def undeclare(self, _prefix: str | None) -> None:
        self._declared -= 1

    def declaration(self, version: str, encoding: str | None, _standalone: int) -> None:
        """Refuse versions other than 1.x (XML 1.0, production 26) and encodings that expat accepts and XML does not."""
        if not _VERSION.fullmatch(version):
            raise MalformedXmlError(one_line(f"the body is not well-formed XML: its version is {version!r}"))
        if encoding is not None:
            name = encoding.lower()
            if name not in ENCODINGS:
                shown = one_line(f"the XML is in the encoding {encoding!r}, which is not known: use UTF-8")
                raise MalformedXmlError(shown)
            if self._begin.startswith(codecs.BOM_UTF8) and name != "utf-8":
                raise MalformedXmlError(f"the XML begins with the mark of UTF-8, and says that it is in {encoding}")
            self.encoding = encoding

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.__dict__.pop("parser", None)  # ``read`` has done so, if it was called

    def _step(self, piece: bytes) -> None:
        self._begin = self._begin or piece[:3]
        self._fed += len(piece)
        self._parse(piece, is_final=False)
        unfinished = self._fed - self.parser.CurrentByteIndex
        if unfinished <= len(piece):
            self._token = bytearray(piece[len(piece) - unfinished :])
            self._next = limits.XML_STEP
        else:
            self._token += piece
            self._next = limits.XML_STEP if unfinished < limits.XML_LONG_STEP else limits.XML_LONG_STEP
            if unfinished > limits.LONGEST_TOKEN:
                raise MalformedXmlError(
                    f"the XML has a tag, comment or the like of more than {limits.LONGEST_TOKEN} bytes"
                )
            most = limits.MOST_ATTRIBUTES + limits.MOST_NAMESPACES
            if self._token.count(b"=") > most:
                text = self._token.decode(markup_codec_of(self._begin), "ignore")
                if next(islice(tag_attributes(text), most, None), None) is not None:
                    raise _many_attributes()
        self._check_names()

    def _parse(self, piece: bytes, *, is_final: bool) -> None:
        try:
            self.parser.Parse(piece, is_final)
        except (expat.ExpatError, ValueError, LookupError) as error:  # the last two: an encoding Python does not know
            raise MalformedXmlError(one_line(f"the body is not well-formed XML: {error}")) from error

    def _check_names(self) -> None:
        names = self._names
        if len(names) == self._measured:
            return
        if len(names) > self.most_names:
            raise MalformedXmlError(f"the XML has more than {self.most_names} different names")
        self._name_bytes += sum(map(getsizeof, islice(reversed(names), len(names) - self._measured)))
        self._measured = len(names)
        if self._name_bytes > limits.MOST_NAME_BYTES:
            raise MalformedXmlError(
                f"the XML has names of more than {limits.MOST_NAME_BYTES} bytes, with their namespaces"
            )


class XmlCheck(Streaming):
    """Checks a document of which nothing is read: its elements are counted in C, and judged after each step."""

    # That takes three quarters of the time of calls of Python for every tag. Refusals are the same: once a limit may
    # have been passed, the elements of the step are judged one by one, before any later error.
    _has_long_name = False

    def _parse(self, piece: bytes, *, is_final: bool) -> None:
        parser = self.parser
        if piece.count(b"=") + self._token.count(b"=") > limits.MOST_ATTRIBUTES:  # maybe of one element
            parser.StartElementHandler, parser.EndElementHandler = self.start, self.end
            super()._parse(piece, is_final=is_final)
            self._note_long_names()  # one of an attribute here may be one of an element later
            return
        # ``put`` takes the two arguments of expat's handler in C, and ignores the second one. An end notes how many
        # elements have begun before it.
        starts: SimpleQueue[str] = SimpleQueue()
        ends: list[int] = []
        parser.StartElementHandler = starts.put  # type: ignore[assignment]
        parser.EndElementHandler = partial(next, map(ends.append, map(SimpleQueue.qsize, repeat(starts))))
        try:
            super()._parse(piece, is_final=is_final)
        except MalformedXmlError:
            self._judge_each(starts, ends)
            raise
        begun = starts.qsize()
        self._note_long_names()
        highest = self.depth + max(max(map(sub, ends, count()), default=0), begun - len(ends))
        if self._has_long_name or highest > limits.DEEPEST or self._elements + begun > self.most_elements:
            self._judge_each(starts, ends)
        else:
            self.depth += begun - len(ends)
            self._elements += begun

    def _note_long_names(self) -> None:
        if len(self._names) != self._measured:
            new = islice(reversed(self._names), len(self._names) - self._measured)
            self._has_long_name |= any(len(name or "") > limits.LONGEST_XML_NAME for name in new)

    def _judge_each(self, starts: SimpleQueue[str], ends: list[int]) -> None:
        ended = 0
        for begun in range(starts.qsize()):
            while ended < len(ends) and ends[ended] <= begun:
                self.end("")
                ended += 1
            self.start(starts.get_nowait(), {})
        self.depth -= len(ends) - ended


def past_limits(name: str, attributes: dict[str, str], depth: int, most_elements: int) -> MalformedXmlError:
    if len(attributes) > limits.MOST_ATTRIBUTES:
        return _many_attributes()
    if len(name) > limits.LONGEST_XML_NAME:
        return MalformedXmlError(f"the XML has an element name of more than {limits.LONGEST_XML_NAME} characters")
    if depth > limits.DEEPEST:
        return MalformedXmlError(f"the XML is nested deeper than {limits.DEEPEST} elements")
    return MalformedXmlError(f"the XML has more than {most_elements} elements")


def _many_attributes() -> MalformedXmlError:
    return MalformedXmlError(f"the XML has an element with more than {limits.MOST_ATTRIBUTES} attributes")


def _refuse_doctype(_name: str, _system: str | None, _public: str | None, _has_subset: int) -> None:
    raise MalformedXmlError("the XML has a document type (DOCTYPE), which is not accepted here")


_TAG = re.compile(r"(<[^<>]*>)")
_INDENT = "  "
_DEEPEST = 40  # Levels that are indented; deeper ones are not moved further to the right


# XML with its tags on lines of their own, indented, for people: as it is written, without parsing it.
#
# A document that is cut off, or is not XML, is shown as far as possible.
def decoded(data: bytes) -> str:
    """Return the text of XML; encodings other than Unicode are read as Latin-1, without a look at the declaration."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        is_cut = error.start >= len(data) - 3 and error.reason == "unexpected end of data"
        return data.decode("utf-8-sig", "ignore") if is_cut else data.decode("latin-1")


def indented(text: str) -> Iterator[str]:
    """Yield the lines of XML; an element with nothing but text in it is on one line."""
    depth, line, is_text_only = 0, "", False
    for at, piece in enumerate(_TAG.split(text)):
        if at % 2 == 0:  # the text between two tags
            if piece.strip():
                line += piece.strip("\r\n")
            continue
        is_end, is_whole = piece.startswith("</"), piece.startswith(("<?", "<!")) or piece.endswith("/>")
        if is_end:
            depth = max(0, depth - 1)
        if is_end and is_text_only:
            yield line + piece
            line, is_text_only = "", False
            continue
        if line.strip():
            yield line
        line, is_text_only = "", not (is_end or is_whole)
        line = _INDENT * min(depth, _DEEPEST) + piece
        if not is_text_only:
            yield line
            line = ""
        depth += is_text_only
    if line.strip():
        yield line
