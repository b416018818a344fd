"""A word in the markup of XML is found without parsing, however the document is cut into pieces and encoded."""

from itertools import combinations, pairwise

import pytest

from persistence.xml import ENCODINGS, may_mention

WORD = b"encrypted"
SAID = b'<a fr:value-encrypted="true">x</a>'
PLAIN = b"<a><encrypte/>\xc3\xa9<d/></a>"


@pytest.mark.parametrize("document", [SAID, b"\xef\xbb\xbf" + SAID, b"\r\n" + SAID, b"<a encrypted=''/>"])
def test_a_word_is_found_however_it_is_split(document: bytes) -> None:
    at = document.index(WORD)
    inside = range(at + 1, at + len(WORD))
    for count in (0, 1, 2, len(inside)):
        for cuts in combinations(inside, count):
            edges = (0, *cuts, len(document))
            pieces = [document[begin:end] for begin, end in pairwise(edges)]
            assert may_mention(pieces, WORD), pieces
            assert may_mention([b"", *pieces], WORD), pieces


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9, 10, 1000])
def test_what_is_not_there_is_not_found(size: int) -> None:
    assert not may_mention((PLAIN[at : at + size] for at in range(0, len(PLAIN), size)), WORD)


@pytest.mark.parametrize("encoding", [*sorted(ENCODINGS), "utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_no_encoding_hides_a_word(encoding: str, size: int) -> None:
    document = SAID.decode().encode(encoding)
    assert may_mention((document[at : at + size] for at in range(0, len(document), size)), WORD)
