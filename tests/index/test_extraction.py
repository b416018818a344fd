"""What was read while a document was received is taken in without reading it again, and only where it is right."""

import pytest

from persistence.forms.form_data import ExtractedText, ValueReader
from persistence.index.sources import CachingExtraction, ExtractionCache
from persistence.model.versions import IndexKey, PathStep

READER = ValueReader([IndexKey("city", (PathStep("city"),))])
DOCUMENT = b"<form><city>Ulm</city><note>by hand</note></form>"


def received(document: bytes, handed: ExtractionCache) -> None:
    with CachingExtraction(READER, "mark", handed) as check:
        check.read([document])
        check.keep("id")


def test_what_was_received_is_what_a_reader_finds() -> None:
    handed = ExtractionCache()
    received(DOCUMENT, handed)
    assert handed.pop("id", "mark") == READER.read([DOCUMENT]) == ExtractedText({"city": ("Ulm",)}, "by hand")


def test_it_is_handed_over_once_and_for_one_definition() -> None:
    handed = ExtractionCache()
    received(DOCUMENT, handed)
    assert handed.pop("id", "another") is None
    assert handed.pop("id", "mark") is None
    received(DOCUMENT, handed)
    assert handed.pop("id", "mark") is not None
    assert handed.pop("id", "mark") is None


@pytest.mark.parametrize("around", [b"", b"<city>"], ids=["outside of a control", "inside of one"])
def test_large_documents_are_not_kept(around: bytes) -> None:
    handed = ExtractionCache()
    with CachingExtraction(READER, "mark", handed) as check:
        check.read([b"<form>", around, *[b"<x>word</x>"] * 10_000, around.replace(b"<", b"</"), b"</form>"])
        check.keep("id")
        assert check.extracted() == ExtractedText({}, "")
    assert handed.pop("id", "mark") is None


def test_the_oldest_are_let_go_of() -> None:
    handed = ExtractionCache()
    for number in range(5_000):
        handed.put(str(number), "mark", ExtractedText({}, ""))
    assert handed.pop("0", "mark") is None
    assert handed.pop("4999", "mark") is not None
