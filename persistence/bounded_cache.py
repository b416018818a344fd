"""A cache that is bounded in entries and in bytes of memory, because clients choose what is asked."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Generic, TypeVar

R = TypeVar("R")

_ENTRY = 200  # Bytes that an entry takes beside its key and value
_SHARED = (type, Enum, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
"""Types of values that exist whether they are kept or not."""


class BoundedCache(Generic[R]):
    """The values used last, for all threads; the newest is kept however large. Two threads may make the same."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._entries: OrderedDict[Hashable, tuple[R, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], R]) -> R:
        """Return the value that is kept, else the one that is made; an error is not kept."""
        with self._lock:
            if (found := self._entries.get(key)) is not None:
                self._entries.move_to_end(key)
                return found[0]
        made = make()
        size = _ENTRY + size_of(key) + size_of(made)
        with self._lock:
            self._size += size - self._entries.pop(key, (made, 0))[1]
            self._entries[key] = made, size
            while len(self._entries) > 1 and (len(self._entries) > self._most or self._size > self._most_bytes):
                self._size -= self._entries.popitem(last=False)[1][1]
        return made


def size_of(value: object) -> int:
    """Return the bytes of memory of a value and of all that it leads to, each once, without classes and functions."""
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
