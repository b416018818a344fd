"""Values, cells and holders of form data, and what is not relevant in it."""

import re
import time
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from persistence import limits
from persistence.errors import BadRequestError, DamagedError, MalformedXmlError
from persistence.forms.controls import DESIGNER_KEYS, read_index_keys
from persistence.forms.form_data import (
    NODE_END,
    CellReader,
    Column,
    ExtractedText,
    HolderReader,
    ValueReader,
    cell_matcher,
    nonrelevant_edges,
    readable,
)
from persistence.limits import LARGEST_ATTACHMENT_LIST, LONGEST_PATH, LONGEST_WORD, MOST_NESTED_TEXT, MOST_REST
from persistence.model.addresses import AttachmentRef, Collection, Form, definition_holder_path, parse_holder_path
from persistence.model.versions import IndexKey, PathStep
from tests.forms.vectors import V2
from tests.orders import DEFINITION as FORM
from tests.orders import DOCUMENTS


def key(path: str) -> IndexKey:
    return IndexKey(path, tuple(map(PathStep, path.split("/"))))


def read(document: str | bytes, *paths: str) -> ExtractedText:
    data = document if isinstance(document, bytes) else document.encode()
    return ValueReader(map(key, paths)).read([data])


READER = ValueReader(read_index_keys(FORM.encode(), "4.0.0"))


FR = 'xmlns:fr="http://orbeon.org/oxf/xml/form-runner"'
VALUES = {
    "blanks": ("<f><a> \n</a><a>\u00a0x </a><a/><a></a></f>", {"a": (" \n", "\u00a0x ")}, ""),
    "CDATA, references and text around comments are one text": (
        "<f><a>1&amp;<![CDATA[<2>]]>3<!-- - -->4<?p i?>5&#xE9;</a>6<![CDATA[7]]></f>",
        {"a": ("1&<2>345é",)},
        "67",
    ),
    "all text inside, also rest where an element is inside": (
        "<f><a>1<b>2</b>3<b/></a><a>4</a></f>",
        {"a": ("123", "4")},
        NODE_END.join("123"),
    ),
    "keys inside each other": (
        "<f><a>1<b>2</b>3<c>4</c></a><a><b>5</b></a></f>",
        {"a": ("1234", "5"), "a/b": ("2", "5"), "a/d": ()},
        NODE_END.join("134"),
    ),
    "elsewhere, and in namespaces": (
        "<a><b/><x><a><b>1</b></a></x><b xmlns='urn:x'>2</b><p:a xmlns:p='urn:x'><b>3</b></p:a></a>",
        {"a/b": ()},
        NODE_END.join("123"),
    ),
    "in an element that is called as the root": ("<a><a><b>1</b></a></a>", {"a/b": ("1",)}, ""),
    "the root has any name": ("<p:f xmlns:p='urn:x'><a><b>1</b></a></p:f>", {"a/b": ("1",)}, ""),
    **{
        f"encrypted by {mark}": (
            f"<f {FR}><a {mark}>c1pher</a><b {mark}>c1pher<x>c1pher</x></b><a>open</a><c>rest</c></f>",
            {"a": ("open",), "b": ()},
            "rest",
        )
        for mark in ('fr:value-encrypted="true"', 'encrypted="true"')
    },
}
"""Documents, the values at their keys, and the rest."""


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_kept_as_it_is_and_what_has_no_key_is_rest(name: str) -> None:
    document, values, rest = VALUES[name]
    assert read(document, *values) == ExtractedText({path: each for path, each in values.items() if each}, rest)


def test_a_name_with_a_separator_has_no_namespace_and_a_key_without_steps_no_values() -> None:
    assert not ValueReader([IndexKey("x", (PathStep("urn:x a"),))]).read([b"<f><a xmlns='urn:x'>1</a></f>"]).values
    assert ValueReader([IndexKey("a[1]", ())]).read([b"<f><a>1</a></f>"]) == ExtractedText({}, "1")


PATTERNS = {
    "any": (PathStep(""), PathStep("b")),
    "id": (PathStep("a", "", "x"), PathStep("b")),
    "any with id": (PathStep("", "", "x"), PathStep("")),
    "namespace": (PathStep("c", "urn:x"), PathStep("b")),
    "any, any": (PathStep(""), PathStep("")),
    "plain": (PathStep("a"), PathStep("b")),
}


def test_keys_may_be_patterns() -> None:
    document = (
        b"<f xmlns:p='urn:x'><a id='x'><b>1</b><p:b>2</p:b></a><a id='y'><b>3</b></a><p:c id='x'><b>4</b></p:c></f>"
    )
    found = ValueReader(IndexKey(name, steps) for name, steps in PATTERNS.items()).read([document]).values
    assert dict(found) == {
        "any": ("1", "3", "4"),
        "id": ("1",),
        "any with id": ("1", "2", "4"),
        "namespace": ("4",),
        "any, any": ("1", "2", "3", "4"),
        "plain": ("1", "3"),
    }


def test_the_metadata_of_an_unpublished_definition_are_the_values_of_the_designer() -> None:
    found = ValueReader(DESIGNER_KEYS).read([FORM.encode()])
    names = [path.rpartition("/")[2] for path in found.values]
    assert dict(zip(names, found.values.values(), strict=True)) == {
        "application-name": ("acme",),
        "form-name": ("order",),
        "title": ("Order", "Bestellung"),
        "description": ("Test form",),
    }
    assert not ValueReader(DESIGNER_KEYS).read([V2.document().replace("fr-form-metadata", "x").encode()]).values


def test_pieces_may_end_anywhere() -> None:
    document = DOCUMENTS[0].body.replace(b"Ada", "Ädä".encode()).replace(b"call back", b"call <!-- x -->&lt; back")
    assert READER.read(bytes([byte]) for byte in document) == READER.read([document])
    assert READER.read([document]).rest == "call < back"


def test_a_separator_cannot_be_smuggled_in() -> None:
    for text in ("\x1f", "&#x1f;", "&#31;"):
        with pytest.raises(MalformedXmlError):
            read(f"<?xml version='1.1'?><f>{text}</f>", "a")


LONG = b"y " * 500_000


def test_of_rest_and_values_only_so_much_is_kept_and_what_is_too_long_keeps_no_other_from_its_value() -> None:
    found = ValueReader([key("a")]).read([b"<f>", *[b"<b>", LONG, b"</b>"] * 20, b"<a>y</a>z</f>"])
    assert len(found.rest) == MOST_REST
    assert found.rest.startswith(LONG.decode() + NODE_END + "y")
    assert found.values == {"a": ("y",)}
    found = ValueReader([key("a")]).read([b"<f>", *[b"<a>", LONG, b"</a>"] * 20, b"</f>"])
    assert len(found.values["a"]) == 9  # the one that passes the limit is still kept
    long = [b"<a>", *[LONG] * 20, b"</a>"]
    found = ValueReader([key("a"), key("b")]).read([b"<f>", *long, b"<a>short</a>", *long, b"<b>after</b>z</f>"])
    assert found == ExtractedText({"a": ("short",), "b": ("after",)}, "z")


def test_values_inside_each_other_do_not_multiply_without_end() -> None:
    depth = 100
    paths = ["/".join(["a"] * level) for level in range(1, depth + 1)]
    document = ["<f>", *["<a>"] * depth, *["x " * 500_000] * 8, *["</a>"] * depth, "</f>"]
    found = ValueReader(map(key, paths)).read(text.encode() for text in document).values
    assert len(found[paths[-1]][0]) == 8_000_000
    assert sum(len(value) for each in found.values() for value in each) < MOST_NESTED_TEXT + 3 * 8_000_000


PNG = "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAA" * 200
WORD = "x" * LONGEST_WORD
LONG_URL = f"https://example.org/{'a/' * 200}?q=1"


@pytest.mark.parametrize(
    "text",
    [
        PNG,
        f"\n{PNG[:2000]}\n{PNG[2000:]}\n",
        "data:image/svg+xml;charset=utf-8,<svg xmlns='x'> <g/> </svg>",
        "data:image/gif;base64,R0lGODdhAQABAIAAAP",
        WORD + "x",
        f" {WORD}x ",
    ],
)
def test_the_content_of_a_file_is_no_value_and_no_text(text: str) -> None:
    document = f"<f><a>{escape(text)}</a><b>{escape(text)}</b></f>"
    assert read(document, "a") == ExtractedText({}, "")


@pytest.mark.parametrize(
    "text",
    [
        WORD,
        f"{'x ' * LONGEST_WORD}it says",
        "\u8a9e" * 3 * LONGEST_WORD,
        "data: see the appendix, and image/png;base64,",
        "data:2024/2025, revenue rose by 3 %",
        LONG_URL,
    ],
)
def test_long_texts_are_values_and_text(text: str) -> None:
    document = f"<f><a>{text}</a><b>{text}</b></f>"
    assert read(document, "a") == ExtractedText({"a": (text,)}, text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("data:image/png;base64," + "A" * 16_000, "[image/png, 12 KB]"),
        ("data:image/gif;base64,R0lGODdh", "[image/gif, 1 KB]"),
        ("A" * 16_000, "[file, 12 KB]"),
        ("Ada", "Ada"),
    ],
)
def test_the_content_of_a_file_is_shown_by_its_type_and_size(value: str, expected: str) -> None:
    assert readable(value) == expected


def test_an_image_in_rich_text_is_left_out_and_the_text_around_it_is_not() -> None:
    rich = f'<p>before <img src="{PNG}" alt="x"/> after</p><p>{WORD}x {LONG_URL}</p>'
    assert read(f"<f><b>{escape(rich)}</b></f>").rest == (
        f'<p>before <img src="data:image/png;base64," alt="x"/> after</p><p> {LONG_URL}</p>'
    )


@pytest.mark.parametrize("piece", ["data:a/a;", "data:", "x" * LONGEST_WORD + " ", "data:a/a,", " ", "data:a/a;x;x;"])
def test_texts_that_look_like_contents_of_files_take_time_in_proportion(piece: str) -> None:
    text = piece * (4_000_000 // len(piece))
    begin = time.process_time()
    read(f"<f><a>{text}</a><b>{text}</b></f>", "a")
    assert time.process_time() - begin < 2


NAMES = st.sampled_from("abc")
TEXTS = st.sampled_from(["", " ", "\n\t", "x", " y ", "&amp;", "<![CDATA[z]]>", "é"])


@st.composite
def elements(draw: st.DrawFn, depth: int = 0) -> str:
    name = draw(NAMES)
    inner = draw(st.lists(elements(depth=depth + 1) if depth < 3 else st.nothing(), max_size=3)) if depth < 3 else []
    content = draw(TEXTS) + "".join(element + draw(TEXTS) for element in inner)
    return f"<{name}>{content}</{name}>"


PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), max_size=5, unique=True)


def naively(document: str, paths: list[str]) -> ExtractedText:
    """Extract by trees, in the simplest way."""
    root = etree.fromstring(document)
    found = {path: root.findall(path) for path in paths}
    leaves = {element for each in found.values() for element in each if not len(element)}

    def texts(element: etree._Element) -> list[str]:
        own = [] if element in leaves else [element.text or ""]
        for child in element:
            own += [*texts(child), child.tail or ""]
        return own

    values = {path: ["".join(element.itertext()) for element in each] for path, each in found.items()}
    return ExtractedText(
        {path: tuple(filter(None, each)) for path, each in values.items() if any(each)},
        NODE_END.join(text for text in texts(root) if text.strip()),
    )


@given(elements(), PATHS, st.integers(1, 40))
def test_what_is_found_is_what_a_tree_holds(document: str, paths: list[str], size: int) -> None:
    data = document.encode()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert ValueReader(map(key, paths)).read(pieces) == naively(document, paths)


# The values of controls as cells of a row


MATCHER = cell_matcher(
    [
        Column(("a", "b")),
        Column(("files",), takes_files=True),
        Column(("r", "i", "x"), iteration=("r", "i")),
        Column(("r", "i", "f"), takes_files=True, iteration=("r", "i")),
        Column(("s", "i", "t", "j", "y"), iteration=("s", "i", "t", "j")),
    ]
)


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("", {}),
        ("<a><b>1</b><c>2</c></a><b>3</b>", {0: ["1"]}),
        ("<a><b> </b></a>", {}),
        ("<a><b> 1\n2 </b></a>", {0: [" 1\n2 "]}),
        ("<a><b><![CDATA[<x>]]>&amp;</b></a>", {0: ["<x>&"]}),
        ("<a><b encrypted='true'>cipher</b></a>", {0: ["cipher"]}),
        ("<files filename='a.pdf'>/fr/x</files>", {1: ["a.pdf"]}),
        ("<files>/fr/x</files>", {1: ["/fr/x"]}),
        ("<files filename='a.pdf'/>", {}),
        ("<files><_ filename='a'>/1</_> <_>/2</_></files>", {1: ["a", "/2"]}),
        ("<r><i><x>1</x></i><i/><i><x>2</x></i></r>", {2: ["1", "", "2"], 3: ["", "", ""]}),
        (
            "<r><i><x/><f><_ filename='a'>/1</_><_>/2</_></f></i><i><x>2</x><f/></i></r>",
            {2: ["", "2"], 3: ["a", "/2", ""]},
        ),
        (
            "<s><i><t><j><y/></j><j><y>1</y></j></t></i><i><t/></i><i><t><j/><j><y>2</y></j></t></i></s>",
            {4: ["", "1", "", "2"]},
        ),
    ],
)
def test_values_are_collected_by_column(inside: str, expected: dict[int, list[str]]) -> None:
    with CellReader(MATCHER) as reader:
        assert reader.read([f"<form>{inside}</form>".encode()]).cells == expected


def test_a_row_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_CELL_CHARACTERS", 5)
    with CellReader(MATCHER) as reader:
        assert reader.read([b"<form><a><b>12345</b></a><c>123456789</c></form>"]).cells == {0: ["12345"]}
    with CellReader(MATCHER) as reader, pytest.raises(BadRequestError):
        reader.read([b"<form><a><b>123</b><b>456</b></a></form>"])
    with CellReader(MATCHER) as reader, pytest.raises(BadRequestError):
        reader.read([b"<form><r><i/><i/><i/></r></form>"])


# Removal of non-relevant elements: the vectors of spec forms 3.1


OFF = 'fr:relevant="false"'


def relevant(data: bytes, piece: int = 7) -> bytes:
    """Return the rest of a document that is fed in small pieces."""
    edges = nonrelevant_edges([data[at : at + piece] for at in range(0, len(data), piece)])
    bounds = [0, *edges, len(data)]
    return b"".join(data[begin:end] for begin, end in zip(bounds[::2], bounds[1::2], strict=True))


@pytest.mark.parametrize(
    "document",
    [
        f"<f {FR}>«<a {OFF}><b>1</b></a>»<c>2</c></f>",
        f'<f {FR}><c fr:relevant="true">2</c></f>',
        f"<f {FR}><g>«<g-iteration {OFF}><x/></g-iteration>»</g></f>",
        f'<f {FR}><d fr:relevant=" false ">3</d></f>',
        f'<f {FR}><d relevant="false">3</d></f>',
        f"<f {FR}>«<a {OFF}><b {OFF}/></a>»tail</f>",
        f"<f {FR}>«<a {OFF}><!-- in --><?in it?></a>»<!-- out --><?out it?></f>",
        f"<f {FR} {OFF}>«<a><b/></a>text»</f>",
        f'<f {FR}><e xmlns="urn:e"><k xmlns=""/></e></f>',
        f"<f {FR}>&lt;&amp;é<![CDATA[<]]></f>",
        f"<!-- a --><?pi x?>\n<f {FR}>«<a {OFF}/>» <b/></f>\n<!-- b -->",
        f'<f {FR} xml:lang="de">«<a {OFF}>x</a>»<b xml:space="preserve"> </b></f>',
        f'<f {FR} xmlns:p="u" xmlns:q="u" t="p:T">«<a {OFF}/>»<p:b/></f>',
        f"<f {FR}>«<a {OFF}></a>»<![CDATA[<a>]]>&#233;</f>",
        f"<f {FR} {OFF}/>",
        f"<f {FR} {OFF}>« <a/> »</f >",
        f"<f {FR}>«<a {OFF}/>»«<b {OFF}>1</b>»<!-- c -->«<d {OFF}\n/>»</f>",
    ],
)
def test_what_is_not_relevant_goes_and_everything_else_stays_to_the_byte(document: str) -> None:
    """What goes is between « and ». Declarations, prefixes, ``xml:`` attributes, CDATA and references are as stored."""
    sent, expected = re.sub("[«»]", "", document), re.sub("«.*?»", "", document, flags=re.DOTALL)
    assert {relevant(sent.encode(), piece).decode() for piece in (1, 3, 7, 10_000)} == {expected}


@pytest.mark.parametrize("encoding", ["UTF-16", "ISO-8859-1"])
def test_other_encodings_stay_what_they_are(encoding: str) -> None:
    document = f'<?xml version="1.0" encoding="{encoding}"?><f {FR}>é<a {OFF}>é</a>ü</f>'
    left = relevant(document.encode(encoding))
    assert etree.fromstring(left).text == "éü"


def test_stored_data_that_is_not_xml_is_damage() -> None:
    with pytest.raises(DamagedError):
        nonrelevant_edges([b"<f><a></f>"])


# Holders of attachments in form data: spec forms 6.7


CRUD = "/fr/service/persistence/crud"
ORDER = Form("hr", "leave")
NAMED = [
    (f"{CRUD}/hr/leave/data/D/a.bin", AttachmentRef(ORDER, Collection.DATA, "D", "a.bin")),
    (f"\n {CRUD}/hr/leave/draft/D/a.bin \n", AttachmentRef(ORDER, Collection.DRAFT, "D", "a.bin")),
    (f"{CRUD}/hr/leave/form/a.bin", AttachmentRef(ORDER, None, "", "a.bin")),
    (
        f"{CRUD}/h%20r/l%C3%A9/data/D/%C3%A4%20b.pdf?x=/y",
        AttachmentRef(Form("h r", "lé"), Collection.DATA, "D", "ä b.pdf"),
    ),
    (f"{CRUD}/hr/leave/data/D/data.xml", None),
    (f"{CRUD}/hr/leave/data/D/data.xml?a=b", None),
    (f"{CRUD}/hr/leave/form/form.xhtml", None),
    (f"{CRUD}/hr/leave/data/D/", None),
    (f"{CRUD}/hr/leave/data/D", None),
    (f"{CRUD}/hr/leave/other/D/a.bin", None),
    (f"{CRUD}/hr/leave/data/D/e/a.bin", None),
    (f"x{CRUD}/hr/leave/data/D/a.bin", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "held"), NAMED)
def test_what_a_text_names(text: str, held: AttachmentRef | None) -> None:
    assert parse_holder_path(text) == held


def test_the_path_of_a_definitions_attachment_names_it() -> None:
    form, name = Form("h r", "l/é"), "100% ä.pdf"
    assert parse_holder_path(definition_holder_path(form, name)) == AttachmentRef(form, None, "", name)


def found(document: str) -> list[tuple[str, str, bool]]:
    with HolderReader(lambda held: held.document == "D") as reader:
        for byte in document.encode():
            reader.feed(bytes([byte]))
        reader.finish()
        return [("/".join(holder.path), holder.held.name, holder.is_relevant) for holder in reader.holders]


def path(name: str, document: str = "D") -> str:
    return f"{CRUD}/hr/leave/data/{document}/{name}"


HOLDERS = [
    (f"<form><s><c>{path('a')}</c></s></form>", [("s/c", "a", True)]),
    (f"<form><s><c>\n  {path('a')}\n </c></s></form>", [("s/c", "a", True)]),
    (f"<form><c><_>{path('a')}</_><_>{path('b')}</_></c></form>", [("c/_", "a", True), ("c/_", "b", True)]),
    (f"<form><c><![CDATA[{path('a')}]]><!-- c --></c></form>", [("c", "a", True)]),
    (f"<form><c>{path('a')}<d/></c><e f='{path('a')}'/></form>", []),
    (f"<form><c>{path('a', 'other')}</c><d>no path</d><e/></form>", []),
    (f"<form><c>{path('a')}</c>{path('b')}</form>", [("c", "a", True)]),
    (f"<p:form xmlns:p='urn:p'><p:c>{path('a')}</p:c></p:form>", [("c", "a", True)]),
    (
        f"<form {FR}><c fr:relevant='false'>{path('a')}</c><s fr:relevant='false'><c>{path('b')}</c></s></form>",
        [("c", "a", False), ("s/c", "b", False)],
    ),
    (
        f"<form {FR}><c fr:relevant='false'/><c>{path('c')}</c><c fr:relevant='true'>{path('d')}</c></form>",
        [("c", "c", True), ("c", "d", True)],
    ),
]


@pytest.mark.parametrize(("document", "expected"), HOLDERS)
def test_holders(document: str, expected: list[tuple[str, str, bool]]) -> None:
    """An element without elements in it, whose text is a path below the document's own."""
    assert found(document) == expected


def test_what_a_list_of_attachments_takes_is_bounded() -> None:
    """An attack: holders with attributes of 3 MB, of which a document of 180 MB has 60, took 600 MB."""
    holder = f"<c a='{'y' * 900_000}\U0001f600'>{path('a')}</c>".encode()
    with HolderReader(lambda _: True) as reader:
        assert len(reader.read([b"<form>", *[holder] * 9, b"</form>"]).holders) == 9
    with HolderReader(lambda _: True) as reader, pytest.raises(BadRequestError, match=str(LARGEST_ATTACHMENT_LIST)):
        reader.read([b"<form>", *[holder] * 30, b"</form>"])


def test_a_text_longer_than_any_path_is_not_taken_apart() -> None:
    assert parse_holder_path(path("a") + "/" * LONGEST_PATH) is None
    assert parse_holder_path(f"{' ' * LONGEST_PATH}{path('a')}") is not None
