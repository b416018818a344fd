"""What was read while a document was received is taken in without reading it again, and only where it is right."""

import pytest

from persistence.forms.values import Extracted, ValueReader
from persistence.index.handing import Handed, Handing
from persistence.model.form_versions import IndexKey, PathStep

READER = ValueReader([IndexKey("city", (PathStep("city"),))])
DOCUMENT = b"<form><city>Ulm</city><note>by hand</note></form>"


def received(document: bytes, handed: Handed) -> None:
    with Handing(READER, "mark", handed) as check:
        check.read([document])
        check.hand_over("id")


def test_what_was_received_is_what_a_reader_finds() -> None:
    handed = Handed()
    received(DOCUMENT, handed)
    assert handed.take("id", "mark") == READER.read([DOCUMENT]) == Extracted({"city": ("Ulm",)}, "by hand")


def test_it_is_handed_over_once_and_for_one_definition() -> None:
    handed = Handed()
    received(DOCUMENT, handed)
    assert handed.take("id", "another") is None
    assert handed.take("id", "mark") is None
    received(DOCUMENT, handed)
    assert handed.take("id", "mark") is not None
    assert handed.take("id", "mark") is None


@pytest.mark.parametrize("around", [b"", b"<city>"], ids=["outside of a control", "inside of one"])
def test_large_documents_are_not_kept(around: bytes) -> None:
    handed = Handed()
    with Handing(READER, "mark", handed) as check:
        check.read([b"<form>", around, *[b"<x>word</x>"] * 10_000, around.replace(b"<", b"</"), b"</form>"])
        check.hand_over("id")
        assert check.extracted() == Extracted({}, "")
    assert handed.take("id", "mark") is None


def test_the_oldest_are_let_go_of() -> None:
    handed = Handed()
    for number in range(5_000):
        handed.give(str(number), "mark", Extracted({}, ""))
    assert handed.take("0", "mark") is None
    assert handed.take("4999", "mark") is not None
