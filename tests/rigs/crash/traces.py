"""The file operations of one real request: strace on the worker that serves it, read back as values.

Only what succeeded counts, and only below the data root.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rigs import strikes
from tests.rigs.crash.model import (
    UNTRACED,
    Acknowledged,
    Created,
    CreatedUnnamed,
    Linked,
    MadeDirectory,
    Named,
    Opened,
    Operation,
    Removed,
    Renamed,
    Stamped,
    Synced,
    Written,
)
from tests.service import Service

_CALLS = strikes.calls(
    *("openat", "openat2", "close", "write", "utimensat", "fsync", "mkdir", "mkdirat", "link", "linkat"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "sendto"),
    # Not expected, and not modelled: a service that takes to them must fail the tests, not escape them.
    *("pwrite64", "writev", "fdatasync", "ftruncate", "fallocate", "copy_file_range", "sync_file_range"),
)
_LONGEST_STRING = 1 << 20

_HEX = r"((?:\\x[0-9a-f]{2})*)"
_LINE = re.compile(r"(\d+) +(.*)")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)")
_SUCCESS = re.compile(r'sendto\(.*?"' + "".join(rf"\\x{byte:02x}" for byte in b"HTTP/1.1 2"))
_DESCRIPTOR = re.compile(r"(\d+)<")
_PATH = re.compile(rf'(?:(?:AT_FDCWD|\d+)<{_HEX}>(?:\(deleted\))?, )?"{_HEX}"')
_TIMES = re.compile(r"tv_sec=(\d+), tv_nsec=(\d+)")
_OF_A_DESCRIPTOR = re.compile(r"/proc/self/fd/(\d+)")


@contextmanager
def recording(service: Service, log: Path) -> Iterator[list[Operation]]:
    """Record the requests of a block; the list is filled at its end."""
    (worker,) = service.workers()
    operations: list[Operation] = []
    with strikes.attached(worker, log, "-f", "-y", "-xx", "-s", str(_LONGEST_STRING), "-e", f"trace={_CALLS}"):
        yield operations
    operations += parsed(log.read_text().splitlines(), str(service.data))


def parsed(lines: Iterable[str], root: str) -> Iterator[Operation]:
    """The operations below a root in a log: each at its call's end, an acknowledgement at its beginning."""
    interpreter = _Interpreter(root)
    for text in _whole(lines):
        # Its end comes after the client's knowledge; what is not durable when it begins is too late.
        if _SUCCESS.match(text):
            yield Acknowledged()
        elif call := _CALL.match(text):
            name, arguments, result = call.groups()
            if not result.startswith("-"):
                yield from interpreter.read(name, arguments, int(result))


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """The calls, those put together that another thread's interrupted."""
    begun: dict[str, str] = {}
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        thread, text = match.groups()
        resumed = _RESUMED.match(text)
        if _SUCCESS.match(text):
            yield text
        elif text.endswith("<unfinished ...>"):
            begun[thread] = text.removesuffix("<unfinished ...>").rstrip()
        elif resumed is None:
            yield text
        elif thread in begun:
            yield begun.pop(thread) + resumed[1]


class _Interpreter:
    def __init__(self, root: str) -> None:
        self._root = root
        self._handles = 0
        self._open: dict[int, tuple[int, str | None]] = {}
        self._readers: dict[str, Callable[[str, int], Operation | None]] = {
            "openat": self._opened,
            "openat2": self._opened,
            "close": self._closed,
            "write": self._written,
            "utimensat": self._stamped,
            "fsync": self._synced,
        }

    def read(self, name: str, arguments: str, result: int) -> Iterator[Operation]:
        """What one successful call did, if it did anything below the root."""
        reader = self._readers.get(name)
        operation = reader(arguments, result) if reader else self._of_names(name, arguments)
        if operation is not None:
            yield operation

    def _paths(self, arguments: str) -> list[str]:
        return [os.path.join(_text(base or ""), _text(name)) for base, name in _PATH.findall(arguments)]

    def _below(self, path: str) -> str | None:
        if path == self._root:
            return ""
        inside = path.removeprefix(f"{self._root}/")
        return None if inside == path or inside.split("/")[0] in UNTRACED else inside

    def _opened(self, arguments: str, result: int) -> Operation | None:
        self._open.pop(result, None)
        path = self._below(self._paths(arguments)[0])
        if path is None:
            return None
        self._handles += 1
        unnamed = "O_TMPFILE" in arguments
        self._open[result] = self._handles, None if unnamed else path
        if unnamed:
            return CreatedUnnamed(self._handles)
        if "O_CREAT" in arguments:
            return Created(self._handles, path, "O_TRUNC" in arguments)
        return Opened(self._handles, path)

    def _descriptor(self, arguments: str) -> tuple[int, str | None] | None:
        match = _DESCRIPTOR.match(arguments)
        return self._open.get(int(match[1])) if match else None

    def _closed(self, arguments: str, _: int) -> None:
        if match := _DESCRIPTOR.match(arguments):
            self._open.pop(int(match[1]), None)

    def _written(self, arguments: str, result: int) -> Operation | None:
        known = self._descriptor(arguments)
        data = re.search(rf', "{_HEX}"', arguments)
        return Written(known[0], _bytes(data[1])[:result]) if known and data else None

    def _stamped(self, arguments: str, _: int) -> Operation | None:
        known = self._descriptor(arguments)
        if known is None:
            return None
        _, (seconds, nanoseconds) = _TIMES.findall(arguments)
        return Stamped(known[0], int(seconds) * 1_000_000_000 + int(nanoseconds))

    def _synced(self, arguments: str, _: int) -> Operation | None:
        known = self._descriptor(arguments)
        return Synced(*known) if known else None

    def _of_names(self, name: str, arguments: str) -> Operation | None:
        if name.startswith("sendto"):
            return None
        paths = self._paths(arguments)
        inside = [self._below(path) for path in paths]
        if name.startswith("link") and inside[1] is not None and (match := _OF_A_DESCRIPTOR.fullmatch(paths[0])):
            return Named(self._open[int(match[1])][0], inside[1])
        if not inside or None in inside:
            if any(inside) or self._descriptor(arguments):
                raise AssertionError(f"the model does not know what this does: {name}({arguments})")
            return None
        known = [path for path in inside if path is not None]
        return _change(name, known)


def _change(name: str, paths: list[str]) -> Operation:
    if name.startswith("mkdir"):
        return MadeDirectory(*paths)
    if name.startswith("link"):
        return Linked(*paths)
    if name.startswith("rename"):
        return Renamed(*paths)
    if name.startswith(("unlink", "rmdir")):
        return Removed(*paths)
    raise AssertionError(f"the model does not know {name} of {paths}")


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


def _text(escaped: str) -> str:
    return os.fsdecode(_bytes(escaped))
