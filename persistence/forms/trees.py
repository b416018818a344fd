"""Whole documents as trees."""

from __future__ import annotations

import codecs
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lxml import etree

from persistence.errors import BadRequestError, BusyError, DamagedError, MalformedXmlError, one_line
from persistence.limits import LARGEST_TREE, MOST_DECLARATIONS, MOST_TREE_NODES
from persistence.xml.streaming import Streaming

Element = etree._Element  # noqa: SLF001 - lxml gives the type of all elements no other name
Tree = etree._ElementTree  # noqa: SLF001 - likewise

_LONGEST_WAIT = 30.0
_turns = threading.BoundedSemaphore(2)
_LARGER_BLOCK = 100_000
"""Bytes, of which glibc wants 64 KiB (its FASTBIN_CONSOLIDATION_THRESHOLD)."""

T = TypeVar("T")


def on_tree(data: bytes, work: Callable[[Tree], T]) -> T:
    """Return the result of ``work`` on the tree of a document; it must not hold an element, which keeps all alive.

    It runs in a thread of its own: lxml keeps the names of all documents of a thread until the thread ends.
    """
    _check(data)
    return _worked(data, work)


def on_stored_tree(data: bytes, work: Callable[[Tree], T]) -> T:
    """Return the result of ``work`` on the tree of a stored document."""
    try:
        _check(data)
    except MalformedXmlError as error:
        raise DamagedError(f"the stored XML cannot be parsed: {error}") from error
    return _worked(data, work)


class _Limits(Streaming):
    def __init__(self) -> None:
        super().__init__()
        self._declarations = 0
        self._nodes = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self._nodes += 1 + len(attributes)
        if self._nodes > MOST_TREE_NODES:
            raise BadRequestError(f"the XML has more than {MOST_TREE_NODES} elements and attributes, which is too many")

    def declare(self, prefix: str | None, namespace: str | None) -> None:
        super().declare(prefix, namespace)
        self._declarations += 1
        if self._declarations > MOST_DECLARATIONS:
            raise BadRequestError(f"the XML declares more than {MOST_DECLARATIONS} namespaces, which is too many")


class Bound:
    """A bound on a sum, for work that can exceed the size of a tree by far."""

    def __init__(self, most: int, refusal: str) -> None:
        self._left = most
        self._refusal = refusal

    def count(self, number: int = 1) -> None:
        self._left -= number
        if self._left < 0:
            raise BadRequestError(self._refusal)


def serialized(tree: Tree) -> bytes:
    """Serialize a document: UTF-8 with an XML declaration, not indented, with the nodes before and after the root."""
    return etree.tostring(tree, encoding="UTF-8", xml_declaration=True)


def _check(data: bytes) -> None:
    if len(data) > LARGEST_TREE:
        raise BadRequestError(f"the XML has {len(data)} bytes, more than {LARGEST_TREE}")
    with _Limits() as limits:
        limits.read([data])


def _worked(data: bytes, work: Callable[[Tree], T]) -> T:
    if not _turns.acquire(timeout=_LONGEST_WAIT):
        raise BusyError("other definitions are being parsed")
    try:
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tree") as thread:
            return thread.submit(_work, data, work).result()
    finally:
        _turns.release()


def _work(data: bytes, work: Callable[[Tree], T]) -> T:
    try:
        return work(_parse(data))
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:  # the frames of an exception and of its causes would keep the tree alive
            traceback.clear_frames(cause.__traceback__)
            cause = cause.__cause__ or cause.__context__
        raise
    finally:
        # glibc keeps small blocks that a thread has freed; the memory goes back when a larger one is freed after them.
        bytearray(_LARGER_BLOCK)


def _parse(data: bytes) -> Tree:
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True, strip_cdata=False, collect_ids=False
    )
    if data[:1] == b"\0":
        data = codecs.BOM_UTF16_BE + data
    elif data[1:2] == b"\0":
        data = codecs.BOM_UTF16_LE + data
    try:
        return etree.ElementTree(etree.fromstring(data, parser))
    except etree.XMLSyntaxError as error:  # two parsers need not agree, on encodings above all
        raise MalformedXmlError(one_line(f"the XML cannot be parsed: {error}")) from error
