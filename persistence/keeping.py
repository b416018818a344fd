"""A cache of answers that is bounded in entries and in bytes of memory, because clients choose the questions."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Generic, TypeVar

R = TypeVar("R")

_ENTRY = 200
"""Bytes that an entry takes beside its key and answer."""

_SHARED = (type, Enum, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
"""Types of values that exist whether they are kept or not."""


class Kept(Generic[R]):
    """The answers that were used last, by their questions; for all threads.

    The newest is kept however large it is, so that it is not made for every request. Two threads may make the same.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        """Keep up to ``most`` answers, which take up to ``most_bytes`` of memory with their keys."""
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, tuple[R, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def known(self, key: Hashable) -> R | None:
        """The answer that is kept; ``None`` where none is."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def of(self, key: Hashable, make: Callable[[], R]) -> R:
        """The answer that is kept, else the one that is made; an error is not kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found[0]
        made = make()
        size = _ENTRY + size_of(key) + size_of(made)
        with self._lock:
            before = self._kept.pop(key, None)
            self._size += size - (0 if before is None else before[1])
            self._kept[key] = made, size
            while len(self._kept) > 1 and (len(self._kept) > self._most or self._size > self._most_bytes):
                self._size -= self._kept.popitem(last=False)[1][1]
        return made


def size_of(value: object) -> int:
    """The bytes of memory of a value and of all that it leads to, each once, without classes and functions."""
    seen: set[int] = set()
    left = [value]
    size = 0
    while left:
        each = left.pop()
        if each is None or id(each) in seen or isinstance(each, _SHARED):
            continue
        seen.add(id(each))
        size += sys.getsizeof(each)
        left.extend(_inside(each))
    return size


def _inside(value: object) -> Iterator[object]:
    if isinstance(value, str | bytes | int | float):
        return
    if isinstance(value, Mapping):
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, tuple | list | set | frozenset):
        yield from value
    else:
        yield from getattr(value, "__dict__", {}).values()
        for kind in type(value).__mro__:
            slots = getattr(kind, "__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                yield getattr(value, name, None)
        for name in getattr(value, "__struct_fields__", ()):  # of msgspec
            yield getattr(value, name)
