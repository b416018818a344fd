"""The pre-pass over XML: hostile documents are refused quickly, without memory in proportion."""

import time
from pathlib import Path

import pytest

from persistence.errors import MalformedXmlError
from persistence.limits import DEEPEST, LONGEST_NAMESPACE, LONGEST_TOKEN, MOST_ELEMENTS
from persistence.xml.streaming import Streaming

LAUGHS = "".join(f'<!ENTITY a{n} "{"&a" + str(n - 1) + ";"}{"&a" + str(n - 1) + ";"}">' for n in range(1, 30))


def check(*chunks: bytes) -> None:
    with Streaming() as document:
        for chunk in chunks:
            document.feed(chunk)
        document.finish()


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
    "version 2.0": b"<?xml version='2.0'?><r/>",
    "version 1": b"<?xml version='1'?><r/>",
    "no version": b"<?xml version=''?><r/>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_are_refused_in_one_line_within_seconds(name: str) -> None:
    began = time.monotonic()
    with pytest.raises(MalformedXmlError) as refusal:
        check(HOSTILE[name])
    assert time.monotonic() - began < 5
    assert "\n" not in str(refusal.value)


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
    began = time.monotonic()
    for begin, end in ((b"<!--", b"-->"), (b'<a x="', b'"/>')):
        longest = b"<r>" + (begin + b"y" * (LONGEST_TOKEN - len(begin + end)) + end) * 9 + b"</r>"
        check(*(longest[at : at + (1 << 18)] for at in range(0, len(longest), 1 << 18)))
        with pytest.raises(MalformedXmlError, match=f"more than {LONGEST_TOKEN} bytes"):
            check(b"<r>" + begin + b"y" * (LONGEST_TOKEN + (64 << 10)) + end + b"</r>")
    assert time.monotonic() - began < 10
