"""XML for the fuzzer: documents from a grammar that knows the odd corners, in many encodings, whole and broken."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from persistence.limits import DEEPEST, LONGEST_NAMESPACE, LONGEST_XML_NAME
from tests.forms.test_streaming import HOSTILE
from tests.rigs.fuzz.definitions import data_of, thrown
from tests.rigs.fuzz.verdict import FR


class Encoding(NamedTuple):
    """How a document is written: the name it declares, if any, the codec in truth, and what stands before it."""

    declared: str | None
    codec: str
    mark: bytes = b""


ENCODINGS = (
    *(Encoding(None, "utf-8"),) * 6,
    Encoding("UTF-8", "utf-8"),
    Encoding("utf-8", "utf-8", b"\xef\xbb\xbf"),
    Encoding(None, "utf-8", b"\xef\xbb\xbf"),
    Encoding("UTF-16", "utf-16-le", b"\xff\xfe"),
    Encoding("UTF-16", "utf-16-be", b"\xfe\xff"),
    Encoding(None, "utf-16-le", b"\xff\xfe"),
    Encoding("UTF-16LE", "utf-16-le"),
    Encoding("UTF-16", "utf-16-be"),
    Encoding(None, "utf-16-le"),
    Encoding("ISO-8859-1", "latin-1"),
    Encoding("iso-8859-15", "iso-8859-15"),
    Encoding("windows-1252", "cp1252"),
    Encoding("US-ASCII", "ascii"),
    Encoding("US-ASCII", "utf-8"),
    Encoding("Shift_JIS", "shift_jis"),
    Encoding("IBM037", "cp037"),
    Encoding("UTF-7", "utf-7"),
    Encoding("UTF-32", "utf-32"),
    Encoding(None, "utf-32-le", b"\xff\xfe\x00\x00"),
    # The declaration is not the truth:
    Encoding("ISO-8859-1", "utf-8", b"\xef\xbb\xbf"),
    Encoding("ISO-8859-1", "utf-16-le", b"\xff\xfe"),
    Encoding("UTF-8", "utf-16-le", b"\xff\xfe"),
    Encoding("UTF-16", "utf-8"),
    Encoding("UTF-8", "latin-1"),
    Encoding("klingon", "utf-8"),
    Encoding("", "utf-8"),
)

_PLAIN_NAMES = ("f", "a", "b", "name", "control-1", "grid-iteration", "a:a", "b:a", "fr:x", "é", "x.y", "_")
_ODD_NAMES = (
    *("xml:a", "xmlns", "xmlns:a", "c:a", "a:b:c", ":a", "a:", "-a", "1a", "a b", "xml", "XML", "a·", "·a", "\u0132"),
    *("\u3005", "\u0e01", "\U00010000", "\u2160", "\u0300", "\u00d7", "a\u200c", "\u200c", "\u2c00", "x" * 300, ""),
)
_TEXTS = (
    *("text", " ", "\n", "&lt;&amp;&gt;&quot;&apos;", "&#233;", "&#x1F600;", "é", "\U0001f600", "\r\n", "\x85\u2028"),
    *("<![CDATA[<a>&]]>", "<![CDATA[]]>", "<!-- c -->", "<!---->", "<?pi x?>", "<?pi?>", "<?a:b c?>"),
)
_ODD_TEXTS = (
    *("&#0;", "&#xFFFE;", "&#xD800;", "&#x110000;", "&#1;", "&nope;", "&", "&;", "&#;", "<", "]]>", "]]&gt;", "\x01"),
    *("\ufffe", "\uffff", "\ufdd0", "\ud800", "\x00", "\x7f"),
    *("<!-- -- -->", "<!--->", "<!-- a --->", "<![CDATA[", "<?"),
    *("<?xml version='1.0'?>", "<?XML x?>", "<? pi?>", "<!ELEMENT a ANY>", "<!DOCTYPE f>", "<![INCLUDE[]]>", "</f>"),
    *("&#99999999999999999999;", "&#x0000041;", "&amp", "<a/ >", "< a/>", "<a></a >", "<a/></a>", "<a></b>"),
)
_ATTRIBUTES = (
    *('x="1"', "y='2'", 'a:x="3"', f'xmlns:fr="{FR}" fr:relevant="false"', 'xml:lang="de"', 'xml:space="preserve"'),
    *('xmlns="urn:d"', 'xmlns=""', 'xmlns:a="urn:a"', 'xmlns:b="urn:a"', 'xmlns:b="urn:b"', 'z="&lt;&#10;&#xE9;"'),
    *('fr:relevant="false"', 'fr:relevant="true"', 'relevant="false"', 'n = "spaced"', 'x.y="é"'),
)
_ODD_ATTRIBUTES = (
    *('x="1" x="2"', 'a:x="1" b:x="2"', 'x="<"', 'x="&"', "x=1", "x", 'x="', "x='\"'", 'c:x="1"', 'x="1"y="2"'),
    *('xmlns:a=""', 'xmlns:xml="urn:x"', 'xmlns:xml="http://www.w3.org/XML/1998/namespace"', 'xmlns:xmlns="urn:x"'),
    *('xmlns:q="http://www.w3.org/2000/xmlns/"', 'xmlns="http://www.w3.org/XML/1998/namespace"', 'xmlns:1="u"'),
    *('xmlns:q="http://www.w3.org/XML/1998/namespace"', 'xmlns="http://www.w3.org/2000/xmlns/"', 'xmlns:a:b="u"'),
    *('xmlns:q="not a uri"', 'xmlns:q="relative/uri"', 'xmlns:xmlq="u"', 'x="\x01"', 'x="&nope;"', 'xml:id="1"'),
    *(':x="1"', 'x:="1"', 'xmlns:="u"', "", 'xml:space="odd"', 'xmlns:q="a b" xmlns:r="a b" q:x="1" r:x="1"'),
)
_OPENINGS = (
    *("", "", "", "\n", "<!-- c -->", "<?pi x?>", "<?xml-stylesheet href='x'?>"),
    *(" <?xml version='1.0'?>", "x", "\ufeff"),
    *("<!DOCTYPE f>", "<!DOCTYPE f [<!ENTITY e 'x'>]>", "<!DOCTYPE f SYSTEM 'x.dtd'>", "<!doctype f>", "<!DOCTYPE"),
    *("<!-- <!DOCTYPE f> -->", "<![CDATA[x]]>", "&#32;", "\x00"),
)
_CLOSINGS = (
    *("", "", "", "", "\n", "<!-- c -->", "<?pi?>", "x", "<f/>", "&#32;", "\x00", "\ufeff", "<!DOCTYPE f>", "</f>"),
)
_VERSIONS = ("1.0", "1.0", "1.0", "1.0", "1.1", "1.5", "2.0", "", "1")
_STANDALONE = ("", "", "", " standalone='yes'", " standalone='no'", " standalone='maybe'", " x='y'")


def _mostly(usual: tuple[str, ...], odd: tuple[str, ...], rest: SearchStrategy[str]) -> SearchStrategy[str]:
    """Some of the usual, and once in a while something odd or arbitrary: else hardly a document would be accepted."""
    return st.integers(0, 39).flatmap(
        lambda dice: st.sampled_from(odd) if dice == 0 else rest if dice == 1 else st.sampled_from(usual)
    )


_names = _mostly(_PLAIN_NAMES, _ODD_NAMES, st.text(min_size=1, max_size=5))
_texts = _mostly(_TEXTS, _ODD_TEXTS, st.text(max_size=10))
_attributes = _mostly(_ATTRIBUTES, _ODD_ATTRIBUTES, st.text(max_size=10))


def _element(name: str, attributes: list[str], children: list[str]) -> str:
    start = " ".join((name, *dict.fromkeys(attributes)))
    return f"<{start}>{''.join(children)}</{name}>" if children else f"<{start}/>"


_trees = st.recursive(
    _texts,
    lambda inner: st.builds(_element, _names, st.lists(_attributes, max_size=2), st.lists(inner | _texts, max_size=4)),
    max_leaves=8,
)
_roots = st.builds(
    _element,
    _mostly(("f", "form", "a:f"), _ODD_NAMES, st.text(min_size=1, max_size=5)),
    st.lists(_attributes, max_size=2).map(lambda own: [f'xmlns:fr="{FR}"', 'xmlns:a="urn:a"', 'xmlns:b="urn:b"', *own]),
    st.lists(_trees, max_size=4),
)


_definitions = thrown(st.sampled_from(("", "Leave")) | _trees)

definitions = _definitions.map(lambda text: text.encode(errors="surrogatepass"))
"""Definitions with nothing around them, most of them well-formed."""


@st.composite
def _written(draw: st.DrawFn) -> bytes:
    encoding = draw(st.sampled_from(ENCODINGS))
    declaration = ""
    if encoding.declared is not None or draw(st.integers(0, 2)) == 0:
        said = "" if encoding.declared is None else f" encoding='{encoding.declared}'"
        declaration = f"<?xml version='{draw(st.sampled_from(_VERSIONS))}'{said}{draw(st.sampled_from(_STANDALONE))}?>"
    is_framed = draw(st.integers(0, 3)) == 0
    opening, closing = (draw(st.sampled_from(_OPENINGS)), draw(st.sampled_from(_CLOSINGS))) if is_framed else ("", "")
    root = draw(_roots | _definitions | _definitions.map(data_of))
    text = declaration + opening + root + closing
    return encoding.mark + text.encode(encoding.codec, "surrogatepass" if "utf-" in encoding.codec else "ignore")


@st.composite
def broken(draw: st.DrawFn, wholes: SearchStrategy[bytes]) -> bytes:
    """A document with one accident: cut, a bit flipped, bytes put in, taken out or doubled."""
    document = draw(wholes)
    at = draw(st.integers(0, len(document)))
    length = draw(st.integers(0, 8))
    accident = draw(st.sampled_from(("cut", "flip", "put in", "take out", "double")))
    if accident == "cut":
        return document[:at]
    if accident == "flip":
        flipped = bytes((document[at] ^ 1 << draw(st.integers(0, 7)),)) if at < len(document) else b""
        return document[:at] + flipped + document[at + 1 :]
    if accident == "put in":
        return document[:at] + draw(st.binary(max_size=8)) + document[at:]
    if accident == "take out":
        return document[:at] + document[at + length :]
    return document[: at + length * 4] + document[at:]


@st.composite
def _at_the_limits(draw: st.DrawFn) -> bytes:
    """Just inside, on and outside each limit that costs little to reach."""
    beside = draw(st.integers(-1, 1))
    deep = DEEPEST + beside
    long = LONGEST_XML_NAME + beside
    wide = draw(st.integers(1, 3000))
    return draw(
        st.sampled_from(
            (
                b"<a>" * deep + b"</a>" * deep,
                b"<f>" + b"<a>" * (deep - 1) + b"t" + b"</a>" * (deep - 1) + b"</f>",
                b"<" + b"n" * long + b"/>",
                b'<n:e xmlns:n="' + b"u" * (LONGEST_NAMESPACE + beside) + b'"/>',
                b"<f>" + b"<a/>" * wide + b"</f>",
                b"<f " + b" ".join(b'a%d=""' % number for number in range(wide)) + b"/>",
                b"<f " + b" ".join(b'xmlns:n%d="u%d"' % (number, number) for number in range(wide)) + b"/>",
                b"<f>" + b"<!-- -->" * wide + b"</f>",
                b"<f>" + b"&#65;" * wide + b"</f>",
                b'<f x="' + b"&lt;" * wide + b'"/>',
                b"<f>" + b"]" * wide + b"</f>",
            )
        )
    )


_SMALL_HOSTILE = tuple(document for document in HOSTILE.values() if len(document) < 1 << 17)
_others = st.binary(max_size=40) | st.sampled_from(_SMALL_HOSTILE)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Bodies for a place that holds XML; a fifth or more are well-formed."""
    dice = draw(st.integers(0, 19))
    if dice < 12:
        return draw(_written())
    if dice < 17:
        return draw(broken(_written()))
    return draw(_at_the_limits() if dice < 19 else _others)
