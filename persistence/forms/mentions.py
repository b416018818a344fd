"""Whether XML may have a word in its markup, without parsing it."""

from __future__ import annotations

from collections.abc import Iterable

_ASCII_COMPATIBLE = (b"<", b"\xef\xbb\xbf", b" ", b"\t", b"\r", b"\n")


def may_mention(pieces: Iterable[bytes], word: bytes) -> bool:
    """Whether an element or attribute may be called by an ASCII word, or have it in its name.

    Names have no character references. An encoding in which ASCII is written in another way is not looked into.
    """
    end = b""
    is_first = True
    for piece in pieces:
        if (is_first and not piece.startswith(_ASCII_COMPATIBLE)) or b"\0" in piece[:4]:
            return True
        is_first = False
        if word in end + piece:
            return True
        end = piece[-len(word) :]
    return False
