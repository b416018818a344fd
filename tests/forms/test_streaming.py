"""XML that is parsed, searched, edited and written as it streams, and trees of it: limits, time and memory."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from persistence import limits, xml
from persistence.errors import BadRequestError, DamagedError, MalformedXmlError
from persistence.forms.definition_tree import Tree, on_tree, serialized
from persistence.forms.encryption import ValueDecrypter, ValueEncrypter
from persistence.forms.form_data import TextExtraction, ValueReader
from persistence.forms.messages import attribute, element, text
from persistence.model.addresses import AttachmentRef
from persistence.model.versions import IndexKey, PathStep
from persistence.xml import ENCODINGS, Streaming, XmlCheck, may_mention

LONG = b"u" * (limits.LONGEST_NAMESPACE - 1)
LAUGHS = "".join(f'<!ENTITY a{n} "{"&a" + str(n - 1) + ";"}{"&a" + str(n - 1) + ";"}">' for n in range(1, 30))


READER = ValueReader([IndexKey("a", (PathStep("a"),)), IndexKey("a/a", (PathStep("a"), PathStep("a")))])


def parsers() -> tuple[Streaming, ...]:
    """That of rules, the one whose elements are counted in C, and the one that extracts values."""
    return Streaming(), XmlCheck(), TextExtraction(READER)


def check(*chunks: bytes) -> None:
    """Check a document by all parsers."""
    (found,) = {refusal(parser, chunks) for parser in parsers()}
    if found is not None:
        raise MalformedXmlError(found)


def refusal(parser: Streaming, chunks: Iterable[bytes]) -> str | None:
    with parser:
        try:
            parser.read(chunks)
        except MalformedXmlError as error:
            return str(error)
    return None


@pytest.mark.parametrize(
    "document",
    [
        b"<r/>",
        b"\xef\xbb\xbf<r/>",
        "<?xml version='1.0' encoding='UTF-16'?><r>é</r>".encode("utf-16"),
        "<?xml version='1.0' encoding='ISO-8859-1'?><r>é</r>".encode("latin-1"),
        b"<?xml version='1.1'?><r/>",
        b"<a>" * limits.DEEPEST + b"</a>" * limits.DEEPEST,
        b"<n:r xmlns:n='" + b"u" * limits.LONGEST_NAMESPACE + b"'/>",
        b"<r x='" + b"y" * 1_000_000 + b"'/>",
        b"<r>" + b"y" * 9_000_000 + b"</r>",
        b"<r>&lt;&#233;</r>",
        b"<r %s/>" % b" ".join(b"x%d='='" % each for each in range(limits.MOST_ATTRIBUTES)),
        b"<r %s/>" % b" ".join(b"xmlns:x%d='u'" % each for each in range(limits.MOST_NAMESPACES)),
        b"<r>%s</r>" % (b"<a xmlns:x='u'/>" * (limits.MOST_NAMESPACES + 1)),
        b"<r>%s</r>" % b"".join(b"<x%d/>" % each for each in range(limits.MOST_NAMES - 1)),
        b"<r x='%s'/>" % (b"=" * (limits.LONGEST_TOKEN // 2)),
    ],
)
def test_well_formed_documents_pass(document: bytes) -> None:
    check(document)


def test_pieces_may_end_anywhere() -> None:
    check(*(bytes([byte]) for byte in '<?xml version="1.0"?><r a="é">é<!-- c --></r>'.encode()))


HOSTILE = {
    "entities in text": f'<!DOCTYPE r [<!ENTITY a0 "ha">{LAUGHS}]><r>&a29;</r>'.encode(),
    "entities in an attribute": f'<!DOCTYPE r [<!ENTITY a0 "ha">{LAUGHS}]><r x="&a29;"/>'.encode(),
    "quadratic": ('<!DOCTYPE r [<!ENTITY a "' + "x" * 100_000 + '">]><r>' + "&a;" * 20_000 + "</r>").encode(),
    "parameter entity": b"<!DOCTYPE r [<!ENTITY % a \"<!ENTITY b 'c'>\">%a;]><r/>",
    "external entity": b'<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><r>&x;</r>',
    "external DTD": b'<!DOCTYPE r SYSTEM "http://127.0.0.1:9/x.dtd"><r/>',
    "plain document type": b"<!DOCTYPE html><html/>",
    "default attributes": b'<!DOCTYPE r [<!ATTLIST e a CDATA "x">]><r><e/></r>',
    "deep": b"<a>" * (limits.DEEPEST + 1) + b"</a>" * (limits.DEEPEST + 1),
    "very deep": b"<a>" * 1_000_000,
    "many elements": b"<r>" + b"<a/>" * (limits.MOST_ELEMENTS + 1) + b"</r>",
    "huge comment": b"<r><!--" + b"y" * 20_000_000 + b"--></r>",
    "huge name": b"<" + b"n" * 1_000_000 + b"/>",
    "huge attribute": b"<r x='" + b"y" * 20_000_000 + b"'/>",
    "huge namespace": b"<r xmlns:n='" + b"u" * 1_000_000 + b"'>" + b"<a n:x=''/>" * 20_000 + b"</r>",
    "long attributes": b"<r xmlns:a='%s' %s/>" % (LONG, b" ".join(b"a:x%d=''" % each for each in range(100_000))),
    "many attributes": b"<r %s/>" % b" ".join(b"x%d=''" % each for each in range(limits.MOST_ATTRIBUTES + 1)),
    "many namespaces at a time": b"<r><a %s>" % b" ".join(b"xmlns:x%d='u'" % each for each in range(900)) * 2,
    "many names": b"<r>%s</r>" % b"".join(b"<x%d/>" % each for each in range(limits.MOST_NAMES + 1)),
    "long names": b"<r xmlns='%s'>%s</r>" % (LONG, b"".join(b"<x%d/>" % each for each in range(17_000))),
    "many prefixes": b"<r>%s</r>" % b"".join(b"<x xmlns:x%d='u'/>" % each for each in range(limits.MOST_NAMES)),
    "wide namespace": "<r xmlns='{}'/>".format("\U0001f600" + "u" * (limits.LONGEST_NAMESPACE // 4)).encode(),
    "NUL": b"<r>a\0b</r>",
    "bad UTF-8": b"<r>\xff\xfe\x80</r>",
    "a surrogate": b"<r>\xed\xa0\x80</r>",
    "no character": b"<r>\xef\xbf\xbe</r>",
    **{f"number {number}": b"<r>&#%s;</r>" % number.encode() for number in ("0", "xD800", "x110000")},
    "Latin-1 without saying so": "<r>é</r>".encode("latin-1"),
    "empty": b"",
    "blank": b"  \n",
    "text": b"just text",
    "truncated": b"<r><a>",
    "trailing": b"<r/>junk",
    "two roots": b"<r/><r/>",
    "undefined entity": b"<r>&nope;</r>",
    "undeclared prefix": b"<x:r/>",
    "unknown encoding": b"<?xml version='1.0' encoding='klingon'?><r/>",
    "no encoding of XML": b"<?xml version='1.0' encoding='unicode_escape'?><r a='\\u0041'/>",
    "another encoding than its mark": b"\xef\xbb\xbf<?xml version='1.0' encoding='ISO-8859-1'?><r>\xc3\xa9</r>",
    "version 2.0": b"<?xml version='2.0'?><r/>",
    "version 1": b"<?xml version='1'?><r/>",
    "no version": b"<?xml version=''?><r/>",
}


TOO_LONG = b"n" * (limits.LONGEST_XML_NAME + 1)
PARTS = {
    "deep": b"<d>" * (limits.DEEPEST + 1),
    "almost deep": b"<d>" * (limits.DEEPEST - 2) + b"</d>" * (limits.DEEPEST - 2),
    "ends": b"</d>" * 3,
    "attributes": b"<a %s/>" % b" ".join(b"x%d=''" % each for each in range(limits.MOST_ATTRIBUTES + 1)),
    "many equals signs": b"<a %s/>" % b" ".join(b"x%d='='" % each for each in range(limits.MOST_ATTRIBUTES)),
    "long name": b"<%s/>" % TOO_LONG,
    "long attribute": b"<a %s=''/>" % TOO_LONG,
    "step": b"y" * limits.XML_STEP,
    "namespaces": b"<r %s/>" % b" ".join(b"xmlns:x%d='u'" % each for each in range(limits.MOST_NAMESPACES + 1)),
    "malformed": b"<&>",
    "leaves": b"<b>1</b><b/>" * 100,
}
"""Parts of documents, each of which passes one limit or none."""


@given(st.lists(st.sampled_from(sorted(PARTS)), max_size=5), st.sampled_from([1 << 20, 4_099]))
def test_the_first_limit_that_is_passed_is_named(names: list[str], piece: int) -> None:
    document = b"<r>" + b"".join(map(PARTS.__getitem__, names)) + b"</r>"
    chunks = [document[at : at + piece] for at in range(0, len(document), piece)]
    assert refusal(XmlCheck(), chunks) == refusal(Streaming(), chunks)


def test_a_long_name_is_refused_after_it_was_an_attribute_in_a_step_of_many_equals_signs() -> None:
    """Names are judged when they are new, and this one is new in a step whose tags call Python."""
    noted = PARTS["long attribute"] + PARTS["many equals signs"]
    with pytest.raises(MalformedXmlError, match="an element name of more than"):
        check(b"<r>" + noted + b" " * limits.XML_STEP * 3 + PARTS["long name"] + b"</r>")


def test_elements_are_counted_over_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Streaming, "most_elements", 10_000)
    monkeypatch.setattr(limits, "MOST_ELEMENTS", 10_000)
    check(b"<r>" + b"<b/>" * 9_999 + b"</r>")
    with pytest.raises(MalformedXmlError, match="more than 10000 elements"):
        check(b"<r>" + b"<b/>" * 10_000 + b"</r>")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_are_refused_in_one_line_within_seconds(name: str) -> None:
    found = set()
    for parser in parsers():
        began = time.process_time()
        found.add(refusal(parser, [HOSTILE[name]]))
        assert time.process_time() - began < 5
    [text] = found
    assert text is not None
    assert "\n" not in text


def test_tokens_up_to_the_limit_are_quick_and_longer_ones_refused() -> None:
    """Fed in pieces, a long token is scanned again and again: bounded, that is bearable."""
    began = time.process_time()
    for begin, end in ((b"<!--", b"-->"), (b'<a x="', b'"/>')):
        longest = b"<r>" + (begin + b"y" * (limits.LONGEST_TOKEN - len(begin + end)) + end) * 9 + b"</r>"
        check(*(longest[at : at + (1 << 18)] for at in range(0, len(longest), 1 << 18)))
        with pytest.raises(MalformedXmlError, match=f"more than {limits.LONGEST_TOKEN} bytes"):
            check(b"<r>" + begin + b"y" * (limits.LONGEST_TOKEN + (64 << 10)) + end + b"</r>")
    assert time.process_time() - began < 10


def is_taken(document: bytes, piece: int) -> bool:
    try:
        check(*(document[at : at + piece] for at in range(0, len(document), piece)))
    except MalformedXmlError:
        return False
    return True


@pytest.mark.parametrize("beside", range(-1, 2))
def test_what_is_taken_does_not_depend_on_the_pieces(beside: int) -> None:
    """A stored document can be read again in pieces of any size."""
    length = limits.LONGEST_TOKEN + beside * limits.XML_STEP // 2
    for token in (b"<!--%s-->", b"<a x='%s'/>", b"<a%s/>"):
        document = b"<r> " + token % (b" " * (length - len(token) + 2)) + b"</r>"
        assert len({is_taken(document, piece) for piece in (len(document), 100_003, 4_099)}) == 1


def test_a_long_tag_is_refused_before_it_is_taken_apart() -> None:
    """In UTF-16 as well, where the parser would see it only as a whole, with every name written out."""
    declared = "".join(f" xmlns:n{number}='{'u' * 240}'" for number in range(900))
    attributes = " ".join(f"n{number % 900}:x{number}=''" for number in range(20_000))
    tag = f"<r{declared} {attributes}/>"
    for codec in ("utf-8", "utf-16"):
        with pytest.raises(MalformedXmlError, match=f"more than {limits.MOST_ATTRIBUTES} attributes"):
            check(tag.encode(codec)[: len(tag.encode(codec)) * 3 // 4])


# Tags taken apart and edited: in linear time, and without a change to any other byte


FR = "http://orbeon.org/oxf/xml/form-runner"
QUICK = 2.0
"""Seconds for a MB, on a busy machine; what is quadratic takes minutes."""


def sealed(document: bytes, *paths: tuple[str, ...], piece: int = 1 << 18) -> bytes:
    with ValueEncrypter(paths, (), lambda text, _: (f"({text})", None), lambda: "s", _as_said) as sealing:
        return b"".join(sealing.edited(document[at : at + piece] for at in range(0, len(document), piece)))


def opened(document: bytes) -> bytes:
    with ValueDecrypter(lambda text, _: text[1:-1]) as opening:
        return b"".join(opening.edited([document]))


def _as_said(_held: AttachmentRef, is_said: bool) -> bool:  # noqa: FBT001 - as ``IsEncrypted`` has it
    return is_said


BLANKS = " " * 200_000
SLOW = {
    "blanks": f'<a encrypted="true"{BLANKS}>x</a>',
    "blanks before a sign": f'<a encrypted{BLANKS}={BLANKS}"true">x</a>',
    "line feeds in a value": '<a encrypted="true" b="{}">x</a>'.format("\n" * 200_000),
    "attributes": "<a {} encrypted='true'>x</a>".format(" ".join(f"a{number}='='" for number in range(999))) * 20,
    "quotes in quotes": """<a encrypted="true" b='{}' c="{}">x</a>""".format('"' * 100_000, "'" * 100_000),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_mark_is_dropped_in_linear_time(name: str) -> None:
    """An attack: 80,000 blanks behind an attribute took 28 s, in which a worker did nothing else."""
    document = f"<r>{SLOW[name]}</r>"
    began = time.process_time()
    assert sealed(document.encode()).count(b"encrypted") == 0
    assert opened(document.encode()).count(b"encrypted") == 0
    assert time.process_time() - began < QUICK


def test_a_free_prefix_is_found_at_once() -> None:
    """An attack: with 18,000 declared prefixes and as many values, 40 s; the last of them is in the way at each."""
    declared = "".join(f' xmlns:fr{number or ""}="u"' for number in range(900))
    document = f"<f{declared}>{'<a>x</a>' * 10_000}</f>".encode()
    began = time.process_time()
    result = sealed(document, ("a",))
    assert time.process_time() - began < QUICK
    assert etree.fromstring(result)[0].attrib == {f"{{{FR}}}value-encrypted": "true"}
    assert opened(result).replace(f' xmlns:fr900="{FR}"'.encode(), b"") == document


@pytest.mark.parametrize("prefix", ["fr", "fr1", "fr01", "fr\u0663", "fr" + "9" * 5_000])
def test_a_prefix_that_is_declared_for_something_else_is_not_taken(prefix: str) -> None:
    others = "" if prefix == "fr" else ' xmlns:fr="u"'
    result = etree.fromstring(sealed(f'<f{others} xmlns:{prefix}="v"><a {prefix}:b="1">x</a></f>'.encode(), ("a",)))
    assert result[0].attrib == {"{v}b": "1", f"{{{FR}}}value-encrypted": "true"}


def test_a_sealed_element_is_found_whatever_its_depth() -> None:
    """The elements around each of many holders are not walked through again."""
    deep = "".join(f"<e{number}>" for number in range(240))
    path = "/fr/service/persistence/crud/a/b/data/d/x.bin"
    document = f"{deep}{f'<h>{path}</h>' * 5_000}{''.join(f'</e{number}>' for number in range(239, -1, -1))}".encode()
    began = time.process_time()
    assert sealed(document, ("e1",)) == document
    assert time.process_time() - began < QUICK


CODECS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "iso-8859-1", "windows-1252"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("piece", [7, 1 << 18])
def test_nothing_but_marks_and_values_is_changed(codec: str, piece: int) -> None:
    """Letters whose bytes look like blanks (U+00E0 ends in A0, U+0445 in 85), and tags on the edge of a window."""
    declaration = f"<?xml version='1.0' encoding='{codec}'?>" if codec.startswith(("iso", "win")) else ""
    odd = "\u00e0" if declaration else "\u00e0\u0445\u4e0d\U0001f600"
    name = "e\u00e0" if declaration else "e\u00e0\u0445"
    root = f"{declaration}\n<r {name}='{odd}'  b = \"{odd}>\"\t>"
    holder = f"<{name}  c='1'{{mark}}\td='{odd * 700}'>{odd}</{name} >"
    document = f"{root}{holder}<v a='1' b='{odd}'{{added}}>{{text}}</v><!-- {odd} --></r>\r\n"

    def written(mark: str = "", added: str = "", text: str = "x") -> bytes:
        return document.format(mark=mark, added=added, text=text).encode(codec)

    declared, said = f' xmlns:fr="{FR}"', ' fr:value-encrypted="true"'
    seal = "<?encrypted-values s?>".encode({"utf-8-sig": "utf-8", "utf-16": "utf-16-le"}.get(codec, codec))
    assert sealed(written("\n encrypted='true'"), piece=piece) == written()
    assert sealed(written("\tencrypted = 'true'"), ("v",), piece=piece) == written("", declared + said, "(x)") + seal
    assert opened(written("", declared + said, "(x)")) == written("", declared)


@pytest.mark.parametrize(
    ("text", "names", "length"),
    [
        ("<a>x", [], 3),
        ("<a/>", [], 4),
        ("<a:b c:d='>' e = \"/>\" />", ["c:d", "e"], 24),
        ("<a\n\tb='1'\r\n>", ["b"], 12),
        ("<a b='1", [], None),
        ("<a b='1' c", ["b"], None),
        ("<!-- a='1' -->", [], None),
        ("<?a b='1'?>", [], None),
        ("</a>", [], None),
        ("", [], None),
    ],
)
def test_a_start_tag_is_taken_apart(text: str, names: list[str], length: int | None) -> None:
    assert [attribute[1] for attribute in xml.tag_attributes(text)] == names
    assert xml.end_of_tag(text) == length


@pytest.mark.parametrize("encoding", sorted(name for name in ENCODINGS if not name.startswith("utf")))
def test_two_parsers_read_the_same_in_each_encoding(encoding: str) -> None:
    """And Python's codec, by which values are written: otherwise what is stored would mean something else."""
    declaration = f"<?xml version='1.0' encoding='{encoding}'?>".encode()
    for byte in map(bytes, ((number,) for number in range(0x80, 0x100))):
        document, texts = declaration + b"<r>" + byte + b"</r>", list[str]()
        with Streaming() as parser:
            parser.parser.CharacterDataHandler = texts.append
            try:
                parser.read([document])
            except MalformedXmlError:
                continue
        assert [etree.fromstring(document).text] == [byte.decode(encoding)] == texts


NO_ENCODINGS = "unicode_escape raw_unicode_escape utf-7 idna punycode rot13 hex cp037 utf8 mbcs charmap"


@pytest.mark.parametrize("encoding", NO_ENCODINGS.split())
def test_what_is_no_encoding_of_xml_is_refused(encoding: str) -> None:
    """An attack: with ``unicode_escape``, a stored document was not the one that was acknowledged."""
    document = f"<?xml version='1.0' encoding='{encoding}'?><city encrypted='true' a='\\u0041'>Paris</city>".encode()
    with pytest.raises(MalformedXmlError, match="encoding"):
        sealed(document)


# Trees: what is refused before one is made, what survives, and that a process does not grow with them


@pytest.mark.parametrize(
    "name", ["truncated", "empty", "plain document type", "external entity", "deep", "unknown encoding"]
)
def test_in_a_body_it_is_a_bad_request_and_in_storage_damage(name: str) -> None:
    with pytest.raises(MalformedXmlError):
        on_tree(HOSTILE[name], serialized)
    with pytest.raises(DamagedError):
        on_tree(HOSTILE[name], serialized, is_stored=True)


@pytest.mark.parametrize("is_stored", [False, True])
def test_what_is_too_large_is_a_bad_request(*, is_stored: bool) -> None:
    with pytest.raises(BadRequestError, match=f"more than {limits.LARGEST_TREE}"):
        on_tree(b"<r>" + b" " * limits.LARGEST_TREE + b"</r>", serialized, is_stored=is_stored)


def test_everything_in_a_document_survives() -> None:
    document = (
        "<?xml version='1.0' encoding='UTF-8'?>\n<!-- a --><?b c?><r xmlns:x=\"u\" x:y=\"z\">é &lt; "
        '<![CDATA[<d>]]> <!-- e --><f xml:lang="fr"/>\n  </r><!-- g --><?h?>'
    ).encode()
    assert on_tree(document, serialized).replace(b"\n", b"") == document.replace(b"\n", b"")
    latin = "<?xml version='1.0' encoding='ISO-8859-1'?><r>é</r>".encode("latin-1")
    assert on_tree(latin, serialized) == "<?xml version='1.0' encoding='UTF-8'?>\n<r>é</r>".encode()


def test_the_work_is_done_in_a_thread_that_ends_and_its_exceptions_come_out() -> None:
    threads = []
    on_tree(b"<r/>", lambda _: threads.append(threading.current_thread()))
    assert threads != [threading.current_thread()]
    assert not threads[0].is_alive()
    with pytest.raises(ZeroDivisionError):
        on_tree(b"<r/>", lambda _: 1 // 0)


GROWTH = """
from persistence.errors import BadRequestError
from persistence.forms.definition_tree import on_tree
from persistence.xml import Streaming, XmlCheck

def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10

def document(number):
    names = (f"a-rather-long-name-as-machines-make-them-{number}-{n}" for n in range(15_000))
    return b"<r>" + "".join(f"<{name}/>" for name in names).encode() + b"</r>"

def check(number):
    for parser in (Streaming(), XmlCheck()):
        with parser:
            parser.read([document(number)])

def parse(number):
    on_tree(document(number), lambda tree: None)

def refuse(tree):
    for element in list(tree.iter()):
        raise BadRequestError("it is refused")

def refused():
    try:
        on_tree(b"<r>" + b"<a>x</a>" * 150_000 + b"</r>", refuse)
    except BadRequestError:
        pass

on_tree(b"<r/>", str)
"""
EVER_NEW = "for n in range(5): {0}(n)\nbefore = resident()\nfor n in range(5, 50): {0}(n)\nprint(resident() - before)"
REFUSED = "before = resident()\nrefused()\nprint(resident() - before)"


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory in use from /proc")
@pytest.mark.parametrize(
    ("script", "most"),
    [
        pytest.param(EVER_NEW.format("check"), 20 << 20, marks=pytest.mark.long, id="ever new names"),
        pytest.param(EVER_NEW.format("parse"), 20 << 20, marks=pytest.mark.long, id="trees of ever new names"),
        pytest.param(REFUSED, 15 << 20, id="refused"),
    ],
)
def test_documents_do_not_fill_the_memory(script: str, most: int) -> None:
    """Of 675 000 names, a thread that stayed would keep almost 50 MB; the exception of a refusal, the tree."""
    command = [sys.executable, "-c", GROWTH + script]
    assert int(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout) < most


def name_of(tree: Tree) -> str:
    return tree.getroot().tag


def test_declarations_of_namespaces_are_bounded() -> None:
    """Lxml takes time that grows with their square."""
    with pytest.raises(BadRequestError, match="namespaces"):
        on_tree(b"<a>" + b'<a xmlns:a="u"/>' * (limits.MOST_DECLARATIONS + 1) + b"</a>", name_of)


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_document_is_read_in_each_encoding_in_which_it_can_be_stored(codec: str) -> None:
    assert on_tree("<é>text</é>".encode(codec), name_of) == "é"
    assert on_tree("\n<é/>".encode(codec), name_of, is_stored=True) == "é"


def test_what_only_one_parser_takes_is_no_damage() -> None:
    """It was accepted, and is there as it was sent: whoever asks for it in another format hears why not."""
    odd = b"<d xmlns:n='http://{'/>"
    with pytest.raises(MalformedXmlError, match="not a valid URI"):
        on_tree(odd, name_of)
    with pytest.raises(BadRequestError, match="not a valid URI"):
        on_tree(odd, name_of, is_stored=True)


def test_elements_and_attributes_of_a_tree_are_bounded() -> None:
    """Each takes some hundreds of bytes there, however short it is."""
    most = b"<a>" + b"<a b=''/>" * ((limits.MOST_TREE_NODES - 1) // 2) + b"%s</a>"
    assert on_tree(most % b"", name_of) == "a"
    with pytest.raises(BadRequestError, match=str(limits.MOST_TREE_NODES)):
        on_tree(most % b"<a/><a/>", name_of)


# A word in the markup of XML is found without parsing, however the document is cut into pieces and encoded


WORD = b"encrypted"
SAID = '<a fr:value-encrypted="true">x</a>'
PLAIN = b"<a><encrypte/>\xc3\xa9<d/></a>"


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9, 10, 1000])
def test_what_is_not_there_is_not_found(size: int) -> None:
    assert not may_mention([b"", *(PLAIN[at : at + size] for at in range(0, len(PLAIN), size))], WORD)


@pytest.mark.parametrize("encoding", [*sorted(ENCODINGS), "utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("said", [SAID, f"\r\n{SAID}", "<a encrypted=''/>"])
def test_no_encoding_and_no_pieces_hide_a_word(encoding: str, said: str) -> None:
    document = said.encode(encoding)
    for size in range(1, 30):
        pieces = [document[at : at + size] for at in range(0, len(document), size)]
        assert may_mention(pieces, WORD), pieces
        assert may_mention([b"", *pieces], WORD), pieces
    for at in range(1, len(document)):
        assert may_mention([document[:at], document[at:]], WORD), at


# Texts and attributes that the service writes: a parser reads them as they were


NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_texts = st.text(st.sampled_from("ab&<>'\"\t\r\n \x00\x1f\x7f\ud800\ufffeé\U0001f600") | st.characters())


@given(_texts)
def test_what_is_written_is_read_as_it_was(value: str) -> None:
    read = ET.fromstring(element("e", attribute("a", value), text(value)))  # noqa: S314 - it was just written
    expected = NOT_IN_XML.sub("\ufffd", value)
    assert (read.get("a"), read.text or "") == (expected, expected)
