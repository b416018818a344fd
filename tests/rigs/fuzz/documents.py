"""XML for the fuzzer: documents from a grammar that knows the odd corners, in many encodings, whole and broken.

Form definitions are those of the property tests of ``persistence.forms``, what a designer would publish in small, with
edits that let data, binds and view disagree, and odd metadata.
"""

from __future__ import annotations

import re
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from persistence.limits import DEEPEST, LONGEST_NAMESPACE, LONGEST_XML_NAME
from tests.forms.generated import forms
from tests.forms.test_streaming import HOSTILE
from tests.forms.vectors import VECTORS, Form

FR = "http://orbeon.org/oxf/xml/form-runner"

CONTROLS = ("a", "b", "name", "control-1", "é")
"""Names of controls that come again and again."""

CONTAINERS = ("s", "g", "grid-1", "a", "x.y")
"""Names of sections and grids."""

_ODD_IDS = ("a:b", "a-", "x" * 300, "_", "control-1-iteration")
_CRUD = "/fr/service/persistence/crud"
FILE = "0cc175b9.bin"
"""The name of most attachments."""

_HOLDERS = (
    f"{_CRUD}/hr/leave/data/1b4e28ba/{FILE}",
    f"{_CRUD}/svc/builder/data/1b4e28ba/{FILE}",
    f"{_CRUD}/orbeon/builder/data/1b4e28ba/{FILE}?x=1",
    f"{_CRUD}/hr/leave/form/{FILE}",
    f"{_CRUD}/hr/library/form/{FILE}",
    f"\n{_CRUD}/svc/builder/draft/%C3%BC/e%CC%81.json ",
)
_ODD_HOLDERS = (
    f"{_CRUD}/svc/builder/data/..%2F..%2Fx/y.bin",
    f"{_CRUD}/svc/builder/data/%00/%FF",
    f"{_CRUD}/svc/builder/data/1b4e28ba/{'x' * 250}",
    f"{_CRUD}/_/library/form/%2e%2e",
    f"{_CRUD}////",
    f"{_CRUD}/hr/leave/form/",
    f"{_CRUD}/hr/leave/data/1b4e28ba/data.xml",
    f"{_CRUD}/{'a/' * 3000}",
)
_REPEATS = (
    *('repeat="content"',) * 3,
    *('repeat="content" min="1" max="3"', 'repeat="true"', 'minOccurs="0"', 'max=""', 'repeat="odd"'),
    *('repeat="content" fb:initial-iterations="first"', 'repeat="content" repeat-min="-1"'),
)
_VALUES = (*("", "", "text", "<!-- c -->", "<?pi x?>", "&lt;") * 3, *_HOLDERS)
_WIDGETS = ("xf:input", "xf:select1", "fr:attachment", "fr:image", "fr:checkbox-input", "a:odd")
_WRITTEN = ("<form>", '<form fr:data-format-version="4.0.0">', '<form fr:data-format-version="x">')
_NAMESPACES = 'xmlns:a="urn:a" xmlns:b="urn:b"'
_METADATA = re.compile('<xf:instance id="fr-form-metadata">.*?</xf:instance>', re.DOTALL)
_DATA = re.compile("(<form)(.*?</form>)", re.DOTALL)
_NAMED = re.compile(r'<xf:bind id="([^"]*)-bind"')
_VALUE = re.compile(r"(?<=>)\w+(?=</)")
_CONTROL = re.compile(r'<xf:[\w-]+((?: id="[^"]*")?(?: bind="[^"]*")?)/>')
_EDITS = (
    (r'<xf:bind id="[^"]*"', ('<xf:bind id="other-bind"',)),
    (r' ref="[^"]*"', (' ref="../*[1]"', ' nodeset="a"', "")),
    (r'-(?:control|grid|section)"', ('-odd"',)),
    (r' id="[^"]*-(?:control|grid|section)"', ("",)),
    (r' bind="[^"]*"', ("",)),
    (r'(<fr:(?:grid|section) id="[^"]*" bind="[^"]*")>', tuple(rf"\1 {each}>" for each in _REPEATS)),
    (r"<(?!form>)([\w.-]+)>[^<]*</\1>", ("", r"\g<0>\g<0>")),
    (r"<([\w.-]+-iteration)>.*?</\1>", ("",)),
    (_CONTROL.pattern, (r"<xxf:dialog>\g<0></xxf:dialog>", r"\g<0>\g<0>")),
    (r"fr:c\b", ("a:x",)),
    (r"</?fr:(?:view|body)>", ("",)),
    (r'id="fr-form-model"', ('id="other"',)),
)
"""What is looked for, and what an odd form has instead: in one place, or everywhere if both tags must go."""

_EVERYWHERE = (r"fr:c\b", r"</?fr:(?:view|body)>")


_OPERATIONS = (
    *("create read update delete list", "create read update delete list", "create", "read update -list", "read"),
    *("-list", "", " read\n", "read read"),
)
_ODD_OPERATIONS = ("*", "READ", "fly", "read,update", "read")
_CONDITIONS = (
    *("", "", "<owner/>", "<group-member/>", "<any-authenticated-user/>", "<anyone-with-token/>", "<owner></owner>"),
    *('<user-role any-of="clerk payroll%20clerk"/>', "<user-role/>", '<user-role any-of="% %zz %ff"/>', "<a:owner/>"),
    *("<owner/><group-member/>", "<!-- c --><?pi x?>", "\n<owner/> <!-- c -->"),
)
_ODD_CONDITIONS = (
    *("<nobody/>", "<Owner/>", "<owner/><a:x/>", "", "<owner></owner>text", "<owner><nobody/></owner>"),
    *('<user-role name="clerk"/>', '<user-role a:any-of="clerk"/>', '<owner b="c"/>'),
)
_ODD_PERMISSIONS = (
    *("<permission/>", '<a:permission operations="read"/>', " <!-- c --> "),
    *('<a:permission a:operations="read"/>', '<permission operation="read"/>', "<else/>", "text"),
)


def _permissions(chance: Random) -> str:
    """Who may do what; most forms do not say, else hardly a document could be read."""
    if chance.random() < 0.6:
        return ""
    inside = "".join(_permission(chance) for _ in range(chance.randrange(4)))
    name = chance.choice(("permissions",) * 4 + ("a:permissions",))
    return f"<{name}>{inside}</{name}>"


def _permission(chance: Random) -> str:
    if chance.random() < 0.1:
        return chance.choice(_ODD_PERMISSIONS)
    odd = chance.random() < 0.1
    operations = chance.choice(_ODD_OPERATIONS if odd else _OPERATIONS)
    conditions = chance.choice(_ODD_CONDITIONS if odd else _CONDITIONS)
    return f'<permission operations="{operations}">{conditions}</permission>'


_TRUTHS = ("true", "false", " true ", "", "tr<!-- -->ue", "<![CDATA[true]]>", "&#116;rue", "<x/>true")
_ITEMS = (
    *('<title xml:lang="en">Leave</title><title xml:lang="de">Urlaub</title>', "<title><b>x</b> y</title>", "<title/>"),
    *("<description>&#10;</description>", "<email><templates/></email>", "<version-comment>x</version-comment>"),
    "<library-versions><app>1</app><_>x</_></library-versions>",
    "<created-with-version>2023.1 PE</created-with-version>",
    *("<created-with-version>4.0.0</created-with-version>", "<updated-with-version>4.8-x</updated-with-version>"),
    *("<updated-with-version>99999999999.1</updated-with-version>", '<migration version="2019.1.0">{ no</migration>'),
    *(
        '<migration version="4.8.0">[{"path": "a/b"}]</migration>',
        '<migration version="9">x</migration>',
        "<migration/>",
    ),
)
_APPLICATIONS = (*("hr",) * 20, "Ä", " hr ", "", "..", "a/b", "x" * 300)
_FORMS = (*("leave",) * 20, "library", "builder", ".", "<!-- -->leave", "a&#9;b")


def _metadata(chance: Random) -> str:
    """The instance of the metadata, once in a while one that is overlooked, or says it twice."""
    said = [
        f"<application-name>{chance.choice(_APPLICATIONS)}</application-name>",
        f"<form-name>{chance.choice(_FORMS)}</form-name>",
        *(f"<{name}>{chance.choice(_TRUTHS)}</{name}>" for name in ("available", "singleton") if chance.random() < 0.4),
        _permissions(chance),
        *chance.sample(_ITEMS, chance.randrange(4)),
    ]
    chance.shuffle(said)
    start = chance.choice(("<metadata>",) * 9 + ('<metadata xmlns="urn:x">',))
    one = f"{start}{''.join(said)}</metadata>"
    return f'<xf:instance id="fr-form-metadata">{one * chance.choice((1,) * 9 + (2,))}</xf:instance>'


def _odd(form: Form, chance: Random, title: str) -> str:
    """Give a form the names and values that the fuzzer knows, any metadata, and up to four oddities."""
    text = _renamed(form.document(), chance)
    text = _VALUE.sub(lambda _: chance.choice(_ODD_HOLDERS if chance.random() < 0.03 else _VALUES), text)
    text = re.sub('repeat="content"', lambda _: chance.choice(_REPEATS), text)
    marks = ' class="fr-summary"><xf:label/><fr:index/>' if chance.random() < 0.25 else "><xf:label/>"

    def control(found: re.Match[str]) -> str:
        kind = chance.choice(_WIDGETS)
        return f"<{kind}{found[1]}{marks}</{kind}>"

    for pattern, others in chance.sample(_EDITS, chance.choice((0, 0, 1, 2, 3, 4))):
        found = list(re.finditer(pattern, text))
        for one in reversed(found if pattern in _EVERYWHERE else chance.sample(found, min(1, len(found)))):
            text = text[: one.start()] + one.expand(chance.choice(others)) + text[one.end() :]
    text = _CONTROL.sub(control, text)
    text = text.replace("<form>", chance.choice(_WRITTEN))
    text = _METADATA.sub(lambda _: _metadata(chance), text)
    text = text.replace("<xh:html", f"<xh:html {_NAMESPACES}")
    return text.replace("<xh:head>", f"<xh:head><xh:title>{title}</xh:title>")


def _renamed(text: str, chance: Random) -> str:
    """Call controls and containers as others are called, too, but for some."""
    for name in sorted({*_NAMED.findall(text)}):
        is_control = f'"{name}-control"' in text
        names = _ODD_IDS if chance.random() < 0.03 else CONTROLS if is_control else CONTAINERS
        if chance.random() < 0.8:
            text = re.sub(rf"(?<![\w.:-]){re.escape(name)}(?![\w.=])", chance.choice(names), text)
    return text


_forms = forms() | st.sampled_from([form for each in VECTORS.values() for form in (each.form, each.expected)])
_chances = st.randoms(use_true_random=True)


def thrown(titles: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Definitions without XML declaration; their titles are any content."""
    return st.builds(_odd, _forms, _chances, titles)


def data_of(definition: str) -> str:
    """The data of a definition: form data with values and attachments where such a form has its controls."""
    found = _DATA.search(definition)
    assert found is not None
    return f'{found[1]} {_NAMESPACES} xmlns:fr="{FR}"{found[2]}'


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
