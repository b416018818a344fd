"""The file operations of one real request: strace on the worker that serves it, read back as values.

Only what succeeded counts, and only below the data root.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rigs import strikes
from tests.rigs.crash.model import ACKNOWLEDGED, UNTRACED, Operation
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
            yield ACKNOWLEDGED
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

    def read(self, name: str, arguments: str, result: int) -> Iterator[Operation]:
        """What one successful call did, if it did anything below the root."""
        match = _DESCRIPTOR.match(arguments)
        known = self._open.get(int(match[1])) if match else None
        match name:
            case "openat" | "openat2":
                yield from self._opened(arguments, result)
            case "close" if match:
                self._open.pop(int(match[1]), None)
            case "write" if known:
                data = re.search(rf', "{_HEX}"', arguments)
                yield Operation("write", handle=known[0], data=_bytes(data[1])[:result])
            case "utimensat" if known:
                _, (seconds, nanoseconds) = _TIMES.findall(arguments)
                yield Operation("stamp", handle=known[0], stamp=int(seconds) * 1_000_000_000 + int(nanoseconds))
            case "fsync" if known:
                yield Operation("sync", known[1], known[0])
            case "close" | "write" | "utimensat" | "fsync" | "sendto":
                pass
            case _:
                yield from self._renamed(name, arguments, is_known=known is not None)

    def _paths(self, arguments: str) -> list[str]:
        return [os.path.join(_text(base or ""), _text(name)) for base, name in _PATH.findall(arguments)]

    def _below(self, path: str) -> str | None:
        if path == self._root:
            return ""
        inside = path.removeprefix(f"{self._root}/")
        return None if inside == path or inside.split("/")[0] in UNTRACED else inside

    def _opened(self, arguments: str, result: int) -> Iterator[Operation]:
        self._open.pop(result, None)
        path = self._below(self._paths(arguments)[0])
        if path is None:
            return
        self._handles += 1
        is_unnamed = "O_TMPFILE" in arguments
        self._open[result] = self._handles, None if is_unnamed else path
        if is_unnamed:
            yield Operation("create unnamed", handle=self._handles)
        else:
            kind = "create" if "O_CREAT" in arguments else "open"
            yield Operation(kind, path, self._handles, truncated="O_TRUNC" in arguments)

    def _renamed(self, name: str, arguments: str, *, is_known: bool) -> Iterator[Operation]:
        paths = self._paths(arguments)
        inside = [self._below(path) for path in paths]
        if name.startswith("link") and inside[1] is not None and (match := _OF_A_DESCRIPTOR.fullmatch(paths[0])):
            yield Operation("name", inside[1], self._open[int(match[1])][0])
        elif inside and None not in inside:
            kinds = {"mkdir": "mkdir", "link": "link", "rename": "rename", "unlink": "remove", "rmdir": "remove"}
            kind = next((kind for begin, kind in kinds.items() if name.startswith(begin)), None)
            if kind is None:
                raise AssertionError(f"the model does not know {name} of {inside}")
            yield Operation(kind, inside[-1], source=inside[0])
        elif any(inside) or is_known:
            raise AssertionError(f"the model does not know what this does: {name}({arguments})")


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


def _text(escaped: str) -> str:
    return os.fsdecode(_bytes(escaped))
