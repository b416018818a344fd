"""XML with its tags on lines of their own, indented, for people: as it is written, without parsing it.

A document that is cut off, or is not XML, is shown as far as possible.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

_TAG = re.compile(r"(<[^<>]*>)")
_INDENT = "  "
_DEEPEST = 40
"""Levels that are indented; deeper ones are not moved further to the right."""


def decoded(data: bytes) -> str:
    """Return the text of XML; encodings other than Unicode are read as Latin-1, without a look at the declaration."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        is_cut = error.start >= len(data) - 3 and error.reason == "unexpected end of data"
        return data.decode("utf-8-sig", "ignore") if is_cut else data.decode("latin-1")


def indented(text: str) -> Iterator[str]:
    """Yield the lines of XML; an element with nothing but text in it is on one line."""
    depth, line, is_text_only = 0, "", False
    for at, piece in enumerate(_TAG.split(text)):
        if at % 2 == 0:  # the text between two tags
            if piece.strip():
                line += piece.strip("\r\n")
            continue
        is_end, is_whole = piece.startswith("</"), piece.startswith(("<?", "<!")) or piece.endswith("/>")
        if is_end:
            depth = max(0, depth - 1)
        if is_end and is_text_only:
            yield line + piece
            line, is_text_only = "", False
            continue
        if line.strip():
            yield line
        line, is_text_only = "", not (is_end or is_whole)
        line = _INDENT * min(depth, _DEEPEST) + piece
        if not is_text_only:
            yield line
            line = ""
        depth += is_text_only
    if line.strip():
        yield line
