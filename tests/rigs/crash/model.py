"""What a crash can leave: a model of durability that replays operations and enumerates the trees after each.

A killed process leaves everything it did. A power cut leaves what was made durable, and of the rest whatever the model
allows:

- *ordered*: names change on disk in the order in which they were changed, as in a journal. An fsync of a directory
  makes everything durable up to its last change.
- *unordered*: any subset of the changes of names may be there, but those of a directory that was fsynced. That is all
  that POSIX promises.

A file's content and modification time are durable after its fsync. Without one they are lost, there, torn, or zeros
of the right length, in any combination. An fsync of a file says nothing about its names.

A request is a row of operations, as values. Paths are relative to the data root, which itself is ``""``. A handle
stands for one opening of one file, so that a descriptor's number used again is another handle.
"""

from __future__ import annotations

import itertools
import os
import os.path
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.rigs import strikes
from tests.service import Service

UNTRACED = (".locks", ".serve", ".index", "layout.json")
"""What a root has besides the tree: no request's promise rests on it."""


class Content(NamedTuple):
    data: bytes
    stamp: int


class Entry(NamedTuple):
    """A name in a tree: what it leads to, by number, and the content if that is a file."""

    path: str
    node: int
    content: Content | None


State = tuple[Entry, ...]
"""A whole tree, parents first; two names of one file have its number."""


class Operation(NamedTuple):
    """What one call did; of a file that was opened it has the handle, and a new name is its ``path``.

    ``sync`` has the path by which the file or directory was opened, ``None`` for an unnamed file; ``create`` opens a
    file for writing, which it makes if it is missing, and ``write`` appends to one. ``name`` gives an open file a name.
    From ``acknowledged`` on, when the client is told of success, nothing may be lost.
    """

    kind: str
    path: str | None = None
    handle: int = 0
    source: str = ""
    data: bytes = b""
    stamp: int = 0
    truncated: bool = False


ACKNOWLEDGED = Operation("acknowledged")

_ALL_SUBSETS_OF = 7
_SAMPLES = 64
_AT_WRITING = 1_000_000_000
"""The modification time that writing leaves: some time that is no revision's."""
_EMPTY = Content(b"", _AT_WRITING)


@dataclass(eq=False)
class _Node:
    number: int
    is_directory: bool = False
    volatile: Content = _EMPTY
    durable: Content | None = None

    def outcomes(self) -> tuple[Content, ...]:
        data, stamp = self.volatile
        if self.durable == self.volatile:
            return (self.volatile,)
        lost = self.durable or Content(b"", 0)
        torn = (data[: len(data) // 2], bytes(len(data)), lost.data)
        possible = (lost, self.volatile, Content(data, lost.stamp), *(Content(part, stamp) for part in torn))
        return tuple(dict.fromkeys(possible))


@dataclass(eq=False)
class _Change:
    """One change of names, whole or not at all: in each directory a name, and what it leads to from now on."""

    names: tuple[tuple[_Node, str, _Node | None], ...]
    durable: bool = False


_Names = dict[_Node, dict[str, _Node]]


@dataclass
class Disk:
    """A disk below one root: what is on it, what is on its way, and what a crash would leave now."""

    ordered: bool
    _root: _Node = field(default_factory=lambda: _Node(0, is_directory=True))
    _changes: list[_Change] = field(default_factory=list)
    _now: _Names = field(default_factory=dict)
    _handles: dict[int, _Node] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def holding(cls, state: State, *, ordered: bool) -> Disk:
        disk = cls(ordered)
        nodes: dict[int, _Node] = {}
        for path, number, content in state:
            node = nodes.get(number) or disk._node(is_directory=content is None)
            node.volatile = content or node.volatile
            node.durable = content
            nodes[number] = node
            disk._change((path, node))
        for change in disk._changes:
            change.durable = True
        return disk

    def do(self, operation: Operation) -> None:
        kind, path, handle, source, data, stamp, truncated = operation
        node = self._handles.get(handle)
        match kind:
            case "mkdir" | "name" | "remove":
                self._change((path, self._node(is_directory=True) if kind == "mkdir" else node))
            case "link":
                self._change((path, self._at(source)))
            case "rename":
                self._change((source, None), (path, self._at(source)))
            case "open" | "create" | "create unnamed":
                self._handles[handle] = self._at(path) if kind == "open" else self._created(path, truncated=truncated)
            case "write":
                node.volatile = Content(node.volatile.data + data, _AT_WRITING)
            case "stamp":
                node.volatile = node.volatile._replace(stamp=stamp)
            case "sync":
                self._sync(node)

    def after_a_kill(self) -> State:
        names = self._names(set(self._changes))
        return self._state(names, {node: node.volatile for node in self._files(names)})

    def after_a_power_cut(self) -> Iterator[State]:
        """The trees that a power cut may leave, some of them more than once."""
        durable = {change for change in self._changes if change.durable}
        loose = [change for change in self._changes if not change.durable]
        for kept in self._survivors(loose):
            names = self._names(durable.union(kept))
            files = self._files(names)
            for contents in itertools.product(*(node.outcomes() for node in files)):
                yield self._state(names, dict(zip(files, contents, strict=True)))

    def _survivors(self, loose: list[_Change]) -> Iterator[tuple[_Change, ...]]:
        if self.ordered:
            yield from (tuple(loose[:count]) for count in range(len(loose) + 1))
        elif len(loose) <= _ALL_SUBSETS_OF:
            for count in range(len(loose) + 1):
                yield from itertools.combinations(loose, count)
        else:
            yield from (tuple(loose[:count]) for count in range(len(loose) + 1))
            yield from ((change,) for change in loose)
            yield from itertools.combinations(loose, len(loose) - 1)
            chance = random.Random(len(loose))  # the same in every run
            yield from (tuple(change for change in loose if chance.random() < 0.5) for _ in range(_SAMPLES))

    def _node(self, *, is_directory: bool = False) -> _Node:
        return _Node(next(self._numbers), is_directory)

    def _at(self, path: str) -> _Node:
        node = self._root
        for name in filter(None, path.split("/")):
            node = self._now[node][name]
        return node

    def _created(self, path: str | None, *, truncated: bool) -> _Node:
        if path is None:
            return self._node()
        try:
            node = self._at(path)
        except KeyError:
            node = self._node()
            self._change((path, node))
        if truncated:
            node.volatile = _EMPTY
        return node

    def _change(self, *names: tuple[str, _Node | None]) -> None:
        located = []
        for path, node in names:
            parent, _, name = path.rpartition("/")
            located.append((self._at(parent), name, node))
        change = _Change(tuple(located))
        self._changes.append(change)
        _apply(change, self._now)

    def _sync(self, node: _Node) -> None:
        if not node.is_directory:
            node.durable = node.volatile
            return
        changes = enumerate(self._changes)
        touching = [number for number, change in changes if any(where is node for where, _, _ in change.names)]
        reached = range(touching[-1] + 1 if touching else 0) if self.ordered else touching
        for number in reached:
            self._changes[number].durable = True

    def _names(self, kept: set[_Change]) -> _Names:
        names: _Names = {}
        for change in self._changes:
            if change in kept:
                _apply(change, names)
        return names

    def _files(self, names: _Names) -> list[_Node]:
        reachable = (node for _, node in self._walk(names) if not node.is_directory)
        return list(dict.fromkeys(reachable))

    def _walk(self, names: _Names) -> Iterator[tuple[str, _Node]]:
        waiting = [("", self._root)]
        while waiting:
            above, directory = waiting.pop()
            for name, node in names.get(directory, {}).items():
                yield f"{above}{name}", node
                if node.is_directory:
                    waiting.append((f"{above}{name}/", node))

    def _state(self, names: _Names, contents: Mapping[_Node, Content]) -> State:
        entries = (Entry(path, node.number, contents.get(node)) for path, node in self._walk(names))
        return tuple(sorted(entries, key=lambda entry: entry.path))


def _apply(change: _Change, names: _Names) -> None:
    for directory, name, node in change.names:
        if node is None:
            names.setdefault(directory, {}).pop(name, None)
        else:
            names.setdefault(directory, {})[name] = node


def tree_of(root: Path) -> State:
    entries = []
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if inside.parts[0] not in UNTRACED:
            status = path.stat()
            content = None if path.is_dir() else Content(path.read_bytes(), status.st_mtime_ns)
            entries.append(Entry(str(inside), status.st_ino, content))
    return tuple(entries)


def materialise(state: State, root: Path) -> None:
    """Make a root hold exactly this tree, with its hard links and modification times, besides what is untraced."""
    _clear(root, but={path for path, _, content in state if content is None})
    files: dict[int, Path] = {}
    for path, node, content in state:
        target = root / path
        if content is None:
            target.mkdir(exist_ok=True)
        elif node in files:
            os.link(files[node], target)
        else:
            files[node] = target
            target.write_bytes(content.data)
            os.utime(target, ns=(content.stamp, content.stamp))


def _clear(root: Path, *, but: set[str]) -> None:
    """Remove every file, and directories ``but`` some: one tree has most of the next one's, and they are not cheap."""
    for top in root.iterdir():
        if top.name in UNTRACED:
            continue
        for directory, _, names in os.walk(top, topdown=False):
            for name in names:
                os.unlink(os.path.join(directory, name))
            if os.path.relpath(directory, root) not in but:
                os.rmdir(directory)


# The file operations of one real request: strace on the worker that serves it, read back as values. Only what succeeded
# counts, and only below the data root.

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
