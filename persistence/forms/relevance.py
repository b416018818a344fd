"""Removal of non-relevant elements from form data (seed, query parameter ``nonrelevant``; spec forms 3.1).

Both sides stream: what is removed is never built, and neither is what stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO, Protocol

from lxml import etree

from persistence.errors import DamagedError
from persistence.forms.parser import streaming_parser

FR = "http://orbeon.org/oxf/xml/form-runner"
RELEVANT = f"{{{FR}}}relevant"


def remove_nonrelevant(chunks: Iterable[bytes], out: BinaryIO) -> None:
    """Copy form data to ``out`` as UTF-8, without each element that has ``fr:relevant="false"`` and all inside it.

    The root stays, emptied, when it is itself non-relevant, because a document needs one.

    Raises:
        DamagedError: the stored data is not well-formed.
        OSError: ``out`` cannot be written.
    """
    with etree.xmlfile(out, encoding="utf-8") as writer:
        parser = streaming_parser(_Relevant(writer, out))
        try:
            for chunk in chunks:
                parser.feed(chunk)
            parser.close()
        except etree.XMLSyntaxError as error:
            raise DamagedError(f"the stored form data is not well-formed: {error.msg}") from error


class _OpenElement(Protocol):
    def __enter__(self) -> object: ...
    def __exit__(self, *error: object) -> object: ...


class _Relevant:
    """Passes events on to the writer, except below a non-relevant element."""

    def __init__(self, writer: etree._IncrementalFileWriter, out: BinaryIO) -> None:
        self._writer = writer
        self._out = out
        self._open: list[_OpenElement] = []
        self._skipped = 0
        self._root_is_empty = False

    def start(self, tag: str, attributes: dict[str, str], nsmap: dict[str | None, str]) -> None:
        nonrelevant = attributes.get(RELEVANT) == "false"
        if self._skipped or (nonrelevant and self._open):
            self._skipped += 1
            return
        element = self._writer.element(tag, attributes, nsmap={prefix or None: uri for prefix, uri in nsmap.items()})
        element.__enter__()
        self._open.append(element)
        if nonrelevant:
            self._skipped = 1
            self._root_is_empty = True

    def end(self, _tag: str) -> None:
        if self._skipped:
            self._skipped -= 1
            if self._skipped or not self._root_is_empty:
                return
        self._open.pop().__exit__(None, None, None)

    def data(self, text: str) -> None:
        if self._open and not self._skipped:
            self._writer.write(text)

    def comment(self, text: str) -> None:
        self._write_markup(f"<!--{text}-->", etree.Comment(text))

    def pi(self, target: str, text: str | None = None) -> None:
        self._write_markup(f"<?{target} {text or ''}?>", etree.ProcessingInstruction(target, text or ""))

    def _write_markup(self, markup: str, node: etree._Element) -> None:
        if self._skipped:
            return
        if self._open:
            self._writer.write(node)
        else:  # lxml's writer knows nothing before or after the root
            self._writer.flush()
            self._out.write(markup.encode())

    def close(self) -> None:
        """End of the document; there is nothing to return."""
