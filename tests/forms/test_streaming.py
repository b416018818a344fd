"""The pre-pass over XML: hostile documents are refused quickly, without memory in proportion."""

import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.errors import MalformedXmlError
from persistence.limits import (
    DEEPEST,
    LONGEST_NAMESPACE,
    LONGEST_TOKEN,
    LONGEST_XML_NAME,
    MOST_ATTRIBUTES,
    MOST_ELEMENTS,
    MOST_NAMES,
    MOST_NAMESPACES,
    XML_STEP,
)
from persistence.xml import Streaming, XmlCheck

LONG = b"u" * (LONGEST_NAMESPACE - 1)
LAUGHS = "".join(f'<!ENTITY a{n} "{"&a" + str(n - 1) + ";"}{"&a" + str(n - 1) + ";"}">' for n in range(1, 30))


def check(*chunks: bytes) -> None:
    """Check a document by both parsers: that of rules, and the one whose elements are counted in C."""
    found = refusal(Streaming(), chunks)
    assert refusal(XmlCheck(), chunks) == found
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
        b"<a>" * DEEPEST + b"</a>" * DEEPEST,
        b"<n:r xmlns:n='" + b"u" * LONGEST_NAMESPACE + b"'/>",
        b"<r x='" + b"y" * 1_000_000 + b"'/>",
        b"<r>" + b"y" * 9_000_000 + b"</r>",
        b"<r>&lt;&#233;</r>",
        b"<r %s/>" % b" ".join(b"x%d='='" % each for each in range(MOST_ATTRIBUTES)),
        b"<r %s/>" % b" ".join(b"xmlns:x%d='u'" % each for each in range(MOST_NAMESPACES)),
        b"<r>%s</r>" % (b"<a xmlns:x='u'/>" * (MOST_NAMESPACES + 1)),
        b"<r>%s</r>" % b"".join(b"<x%d/>" % each for each in range(MOST_NAMES - 1)),
        b"<r x='%s'/>" % (b"=" * (LONGEST_TOKEN // 2)),
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
    "deep": b"<a>" * (DEEPEST + 1) + b"</a>" * (DEEPEST + 1),
    "very deep": b"<a>" * 1_000_000,
    "many elements": b"<r>" + b"<a/>" * (MOST_ELEMENTS + 1) + b"</r>",
    "huge comment": b"<r><!--" + b"y" * 20_000_000 + b"--></r>",
    "huge name": b"<" + b"n" * 1_000_000 + b"/>",
    "huge attribute": b"<r x='" + b"y" * 20_000_000 + b"'/>",
    "huge namespace": b"<r xmlns:n='" + b"u" * 1_000_000 + b"'>" + b"<a n:x=''/>" * 20_000 + b"</r>",
    "long attributes": b"<r xmlns:a='%s' %s/>" % (LONG, b" ".join(b"a:x%d=''" % each for each in range(100_000))),
    "many attributes": b"<r %s/>" % b" ".join(b"x%d=''" % each for each in range(MOST_ATTRIBUTES + 1)),
    "many namespaces at a time": b"<r><a %s>" % b" ".join(b"xmlns:x%d='u'" % each for each in range(900)) * 2,
    "many names": b"<r>%s</r>" % b"".join(b"<x%d/>" % each for each in range(MOST_NAMES + 1)),
    "long names": b"<r xmlns='%s'>%s</r>" % (LONG, b"".join(b"<x%d/>" % each for each in range(17_000))),
    "many prefixes": b"<r>%s</r>" % b"".join(b"<x xmlns:x%d='u'/>" % each for each in range(MOST_NAMES)),
    "wide namespace": "<r xmlns='{}'/>".format("\U0001f600" + "u" * (LONGEST_NAMESPACE // 4)).encode(),
    "NUL": b"<r>a\0b</r>",
    "bad UTF-8": b"<r>\xff\xfe\x80</r>",
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


TOO_LONG = b"n" * (LONGEST_XML_NAME + 1)
PARTS = {
    "deep": b"<d>" * (DEEPEST + 1),
    "almost deep": b"<d>" * (DEEPEST - 2) + b"</d>" * (DEEPEST - 2),
    "ends": b"</d>" * 3,
    "attributes": b"<a %s/>" % b" ".join(b"x%d=''" % each for each in range(MOST_ATTRIBUTES + 1)),
    "many equals signs": b"<a %s/>" % b" ".join(b"x%d='='" % each for each in range(MOST_ATTRIBUTES)),
    "long name": b"<%s/>" % TOO_LONG,
    "long attribute": b"<a %s=''/>" % TOO_LONG,
    "step": b"y" * XML_STEP,
    "namespaces": b"<r %s/>" % b" ".join(b"xmlns:x%d='u'" % each for each in range(MOST_NAMESPACES + 1)),
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
        check(b"<r>" + noted + b" " * XML_STEP * 3 + PARTS["long name"] + b"</r>")


def test_elements_are_counted_over_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Streaming, "most_elements", 10_000)
    check(b"<r>" + b"<b/>" * 9_999 + b"</r>")
    with pytest.raises(MalformedXmlError, match="more than 10000 elements"):
        check(b"<r>" + b"<b/>" * 10_000 + b"</r>")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_are_refused_in_one_line_within_seconds(name: str) -> None:
    found = set()
    for parser in (Streaming(), XmlCheck()):
        began = time.process_time()
        found.add(refusal(parser, [HOSTILE[name]]))
        assert time.process_time() - began < 5
    [text] = found
    assert text is not None
    assert "\n" not in text


@pytest.mark.long
def test_names_are_forgotten_with_their_document() -> None:
    """Ever new names must not fill the memory of a worker, nor make it refuse the next ones."""
    many_names(0)
    before = resident()
    for round_ in range(1, 20):
        many_names(round_)
    assert resident() - before < 20 << 20


def many_names(round_: int) -> None:
    """Parse a document whose names nobody has used before."""
    check(b"<r>" + b"".join(b"<n%d_%d_%s/>" % (round_, number, b"x" * 100) for number in range(20_000)) + b"</r>")


def resident() -> int:
    """Memory of this process, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_tokens_up_to_the_limit_are_quick_and_longer_ones_refused() -> None:
    """Fed in pieces, a long token is scanned again and again: bounded, that is bearable."""
    began = time.process_time()
    for begin, end in ((b"<!--", b"-->"), (b'<a x="', b'"/>')):
        longest = b"<r>" + (begin + b"y" * (LONGEST_TOKEN - len(begin + end)) + end) * 9 + b"</r>"
        check(*(longest[at : at + (1 << 18)] for at in range(0, len(longest), 1 << 18)))
        with pytest.raises(MalformedXmlError, match=f"more than {LONGEST_TOKEN} bytes"):
            check(b"<r>" + begin + b"y" * (LONGEST_TOKEN + (64 << 10)) + end + b"</r>")
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
    length = LONGEST_TOKEN + beside * XML_STEP // 2
    for token in (b"<!--%s-->", b"<a x='%s'/>", b"<a%s/>"):
        document = b"<r> " + token % (b" " * (length - len(token) + 2)) + b"</r>"
        assert len({is_taken(document, piece) for piece in (len(document), 100_003, 4_099)}) == 1


def test_a_long_tag_is_refused_before_it_is_taken_apart() -> None:
    """In UTF-16 as well, where the parser would see it only as a whole, with every name written out."""
    declared = "".join(f" xmlns:n{number}='{'u' * 240}'" for number in range(900))
    attributes = " ".join(f"n{number % 900}:x{number}=''" for number in range(20_000))
    tag = f"<r{declared} {attributes}/>"
    for codec in ("utf-8", "utf-16"):
        with pytest.raises(MalformedXmlError, match=f"more than {MOST_ATTRIBUTES} attributes"):
            check(tag.encode(codec)[: len(tag.encode(codec)) * 3 // 4])
