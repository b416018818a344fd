"""The files of a backup: the manifest of its parts, the list of digests, and copies or hard links of files.

::

    <backup>/SHA256SUMS                    the digest of every file
    <backup>/.backup/backup.json           the manifest
    <backup>/.backup/settings.toml         a copy of the settings file
    <backup>/.backup/keys.json             the API keys and
    <backup>/.backup/encryption-keys.json  the encryption keys, if they were asked for
    <backup>/.backup/wrong                 what ``backup --verify`` found wrong; only there if it did

A single tree without a directory of attachments lies in the backup itself. Otherwise the parts have directories::

    <backup>/data/                         the tree of the setting ``data``
    <backup>/datasource/<name>/            the tree of ``[datasource.<name>]``
    <backup>/attachments/<provider>/       the ``base-path`` of a provider of attachments

No application's name starts with a dot, so ``.backup`` collides with none.

``SHA256SUMS`` has a file a line, as ``sha256sum --check`` reads it. The lines are sorted by path, so a digest is found
by bisection and memory does not grow with the tree. Backups of the first format have unsorted lists, which
``Checksums`` cannot look up.
"""

from __future__ import annotations

import hashlib
import heapq
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import FileIO
from itertools import islice
from typing import Annotated, BinaryIO, Literal
from urllib.parse import quote

import msgspec

from persistence.errors import DamagedError, ReplacedError, StartupError
from persistence.limits import CHUNK
from persistence.model.sidecar import HashedPieces, Sidecar, digest_text, digits_of, shows_stamp, stamp
from persistence.storage import files
from persistence.storage.stored_revision import StoredRevision, digest_of_open

DIRECTORY = ".backup"
MANIFEST = f"{DIRECTORY}/backup.json"
SETTINGS = f"{DIRECTORY}/settings.toml"
API_KEYS = f"{DIRECTORY}/keys.json"
ENCRYPTION_KEYS = f"{DIRECTORY}/encryption-keys.json"
WRONG = f"{DIRECTORY}/wrong"
SECRET_MODE = 0o600  # The mode of settings and keys: both may open data
FORMAT = 2  # The format of backups that this version writes. Format 1 had no manifest: one tree, and an unsorted list
SUMS = "SHA256SUMS"
_DIGEST = 64
_SEPARATOR = b"  "
_PATH = _DIGEST + len(_SEPARATOR)
_SORTED_IN_MEMORY = 1 << 16  # Lines that are sorted in memory; more wait on the disk in sorted runs
_LINES_PER_WRITE = 1 << 9
_LONGEST_LINE = 1 << 14
"""Bytes of a line: the kernel takes paths of 4096 bytes, and the list of a backup may come from anywhere."""

_DATA = "data"
_DATASOURCE = "datasource"
_ATTACHMENTS = "attachments"


class BackupPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tree or a directory of attachments in a backup."""

    # ``name`` is ``data``, ``datasource/NAME`` or ``attachments/PROVIDER``. ``directory`` is its path in the backup,
    # empty for the backup itself. ``root`` is the path it was saved from. ``missing`` tells why it could not be saved,
    # and is empty if it was.
    kind: Literal["tree", "attachments"]
    name: str
    directory: Annotated[str, msgspec.Meta(pattern=r"^([^./][^/\x00]*(/[^./][^/\x00]*)*)?\Z")]
    root: str
    missing: str = ""

    def path(self, inside: str) -> str:
        return f"{self.directory}/{inside}" if self.directory else inside

    def inside(self, path: str) -> str | None:
        if not self.directory:
            return None if path.split("/", 1)[0] == DIRECTORY else path
        prefix = f"{self.directory}/"
        return path.removeprefix(prefix) if path.startswith(prefix) else None


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of ``backup.json``."""

    # ``needed_keys`` are the ids of the encryption keys that the content may need, ``saved_keys`` those in the backup.
    format: int
    parts: tuple[BackupPart, ...]
    needed_keys: tuple[str, ...] = ()
    saved_keys: tuple[str, ...] = ()

    def part(self, name: str) -> BackupPart | None:
        return next((part for part in self.parts if part.name == name), None)


def tree_name(datasource: str) -> str:
    """Return the name of the tree of a datasource; an empty name means the default tree."""
    return f"{_DATASOURCE}/{datasource}" if datasource else _DATA


def attachments_name(provider: str) -> str:
    return f"{_ATTACHMENTS}/{provider}"


def directory_of(name: str) -> str:
    """Return the directory in a backup of a part: its name, percent-encoded where it cannot be a file name."""
    first, slash, rest = name.partition("/")
    encoded = quote(rest, safe="")
    if encoded.startswith("."):
        encoded = f"%2E{encoded[1:]}"
    return f"{first}{slash}{encoded}"


def read(backup: str) -> Manifest:
    """Read the manifest of a backup; without one the backup has the first format, and holds one tree."""
    path = f"{backup}/{MANIFEST}"
    try:
        manifest = msgspec.json.decode(files.read_file(path), type=Manifest)
    except FileNotFoundError:
        return Manifest(1, (BackupPart("tree", _DATA, "", ""),))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise StartupError(f"{path} cannot be read: {error}") from error
    if manifest.format > FORMAT:
        raise StartupError(f"{path} says format {manifest.format}: a newer version wrote it; this one knows {FORMAT}")
    return manifest


def open_sums(directory: str) -> BinaryIO:
    return open(files.open_file(f"{directory}/{SUMS}"), "rb")


def listed(file: BinaryIO) -> Iterator[tuple[str, str]]:
    for number, text in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), 1):
        path = os.fsdecode(text[_PATH:].removesuffix(b"\n"))
        parts = path.split("/")
        is_line = text.endswith(b"\n") and text[_DIGEST:_PATH] == _SEPARATOR and b"\0" not in text
        if not is_line or not all(parts) or os.pardir in parts or os.curdir in parts:
            raise DamagedError(f"{SUMS}, line {number}, cannot be read")
        yield text[:_DIGEST].decode("ascii", "replace"), path


def count(directory: str) -> int:
    with open_sums(directory) as file:
        return sum(1 for _ in iter(partial(file.readline, _LONGEST_LINE), b""))


def verify(directory: str, part: BackupPart | None = None) -> Iterator[str | None]:
    """Read every file, or those of ``part``; yield ``None`` after each, and before it a line if it is wrong."""
    with open_sums(directory) as file:
        for digest, path in listed(file):
            if part is not None and part.inside(path) is None:
                continue
            try:
                with FileIO(files.open_file(f"{directory}/{path}")) as saved:
                    files.begin_writeback(saved.fileno())  # empties the cache: the disk itself is to be read
                    found = digest_of_open(saved)
            except OSError as error:
                yield f"{path}: {error.strerror}"
            else:
                if found != digest_text(digest):
                    yield f"{path}: it does not have the digest that {SUMS} says"
            yield None


class ChecksumWriter:
    """Collects lines and writes them sorted by path; sorted runs that do not fit into memory wait in ``directory``."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lines: list[bytes] = []
        self._runs: list[str] = []

    def add(self, hexadecimal: str, path: str) -> None:
        """Add the line of a file; ``path`` is relative to the directory."""
        self._lines.append(hexadecimal.encode() + _SEPARATOR + os.fsencode(path) + b"\n")
        if len(self._lines) >= _SORTED_IN_MEMORY:
            run = f"{self._directory}/.{SUMS}.{len(self._runs)}"  # no application begins with a dot
            _write(run, iter(sorted(self._lines, key=_path_of)))
            self._runs.append(run)
            self._lines.clear()

    def write(self) -> None:
        """Write the list durably."""
        with ExitStack() as stack:
            runs = [stack.enter_context(open(path, "rb")) for path in self._runs]
            in_order = heapq.merge(*runs, sorted(self._lines, key=_path_of), key=_path_of)
            _write(f"{self._directory}/{SUMS}", in_order)
        for path in self._runs:
            files.remove(path)


def _path_of(text: bytes) -> bytes:
    return text[_PATH:-1]


def _write(path: str, lines: Iterator[bytes]) -> None:
    with files.closing(files.open_new(path)) as descriptor:
        while block := b"".join(islice(lines, _LINES_PER_WRITE)):
            files.write_all(descriptor, block)
        files.sync(descriptor)


def leave_out(directory: str, folders: Sequence[str]) -> None:
    """Replace the list of a backup by one without the files in some directories, durably. Raises ``OSError``."""
    left_out = tuple(os.fsencode(f"{folder}/") for folder in folders)
    fresh = f"{directory}/.{SUMS}"
    files.remove(fresh)
    with open_sums(directory) as file:
        lines = iter(partial(file.readline, _LONGEST_LINE), b"")
        _write(fresh, (line for line in lines if not line[_PATH:].startswith(left_out)))
    files.rename(fresh, f"{directory}/{SUMS}")
    files.sync_directory(directory)


@contextmanager
def mapped(directory: str) -> Iterator[Checksums]:
    """Map the sorted list of a backup into memory for a block. Raises ``OSError``."""
    with FileIO(files.open_file(f"{directory}/{SUMS}")) as file:
        if os.fstat(file.fileno()).st_size == 0:  # which cannot be mapped
            yield Checksums(b"")
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as lines:
            yield Checksums(lines)


@dataclass(frozen=True, slots=True)
class Checksums:
    """Looks up digests in the lines of a sorted list."""

    lines: bytes | mmap.mmap

    def digest(self, path: str) -> str | None:
        """Return the digest of a file, ``sha256:`` and 64 hex digits; ``None`` if it is not in the list."""
        wanted = os.fsencode(path)
        low, high = 0, len(self.lines)
        while low < high:  # both are at the beginning of a line, or at the end
            start = self.lines.rfind(b"\n", low, (low + high) // 2) + 1 or low
            end = self.lines.find(b"\n", start)
            if end < 0:
                return None
            found = self.lines[start + _PATH : end]
            if found == wanted:
                return digest_text(self.lines[start : start + _DIGEST].decode("ascii", "replace"))
            low, high = (end + 1, high) if found < wanted else (low, start)
        return None


@dataclass(slots=True)
class BackupCount:
    """How many files were copied, how many bytes these have, and how many files were linked."""

    copied: int = 0
    copied_bytes: int = 0
    linked: int = 0


@dataclass(frozen=True, slots=True)
class PreviousBackup:
    """The previous backup, to whose files the next one may link: its path, its manifest and its digests."""

    path: str
    manifest: Manifest
    checksums: Checksums


@contextmanager
def previous_backup(path: str | None) -> Iterator[PreviousBackup | None]:
    """Open a backup whose files may be linked, for a block; ``None`` if its list or its files may be wrong."""
    found = None
    if path is not None and not files.exists(f"{path}/{WRONG}"):
        with suppress(StartupError):  # damaged, or of a newer version
            found = read(path)
    if path is None or found is None or found.format != FORMAT:
        yield None
    else:
        with mapped(path) as digests_in_it:
            yield PreviousBackup(path, found, digests_in_it)


class NewBackup:
    """A new directory with the digest of every file in it. Methods raise ``OSError``."""

    def __init__(self, directory: str, previous: PreviousBackup | None) -> None:
        self.count = BackupCount()
        self.previous = previous
        self.directory = directory
        files.ensure(directory)
        self.checksums = ChecksumWriter(directory)

    def write(self, path: str, data: bytes, mode: int = files.FILE_MODE) -> None:
        files.make_all(os.path.dirname(f"{self.directory}/{path}"))
        with files.written(f"{self.directory}/{path}", data, mode):
            self.checksums.add(hashlib.sha256(data).hexdigest(), path)


class PartFiles:
    """The files of one part of a new backup; ``earlier`` are other paths a file may have in the previous backup."""

    def __init__(self, backup: NewBackup, part: BackupPart) -> None:
        self._backup = backup
        self._part = part
        self._before = None if backup.previous is None else backup.previous.manifest.part(part.name)

    def has(self, path: str) -> bool:
        return files.exists(f"{self._backup.directory}/{self._part.path(path)}")

    def add_bytes(self, path: str, data: bytes, nanoseconds: int, *earlier: str) -> None:
        self._note(hashlib.sha256(data).hexdigest(), path)
        if not self._link(
            path, len(data), nanoseconds, earlier, lambda last, at: files.read_file(f"{last.path}/{at}") == data
        ):
            files.write_new(self._target(path, len(data)), [data], nanoseconds)

    def add(self, path: str, source: BinaryIO, sidecar: Sidecar | None, *earlier: str) -> None:
        status = os.fstat(source.fileno())
        size, nanoseconds = status.st_size, status.st_mtime_ns
        is_it = sidecar is not None and sidecar.size == size and shows_stamp(nanoseconds, sidecar)
        expected = sidecar.digest if sidecar is not None and is_it else None
        if not self._link_content(path, size, nanoseconds, expected, earlier):
            self._copy(path, source, size, nanoseconds, expected)

    def add_stored(
        self, path: str, sidecar: Sidecar, read: Callable[[], StoredRevision | None], *earlier: str
    ) -> str | None:
        """Add a content that is in no file, with the stamp of its revision."""
        # It is linked, or copied from what ``read`` returns. Return what is wrong, and ``None`` if it is missing.
        nanoseconds = stamp(sidecar)
        if self._link_content(path, sidecar.size, nanoseconds, sidecar.digest, earlier):
            return ""
        found = read()
        if found is None or found.file is None:
            return None
        try:
            with found.file as file:
                self._copy(path, file, sidecar.size, nanoseconds, sidecar.digest)
        except DamagedError as error:
            return str(error)
        return ""

    def _copy(self, path: str, source: BinaryIO, size: int, nanoseconds: int, expected: str | None) -> None:
        pieces, target = HashedPieces(chunks(source, path)), self._target(path, size)
        try:
            files.write_new(target, pieces, nanoseconds)
        finally:
            self._note(digits_of(pieces.digest), path)
        if expected not in {None, pieces.digest}:
            raise DamagedError(f"{path}: its digest is not {expected}")

    def _link_content(
        self, path: str, size: int, nanoseconds: int, digest: str | None, earlier: tuple[str, ...]
    ) -> bool:
        def is_same(last: PreviousBackup, at: str) -> bool:
            return last.checksums.digest(at) == digest  # of the copied bytes, which the sidecar may not have

        if digest is None or not self._link(path, size, nanoseconds, earlier, is_same):
            return False
        self._note(digits_of(digest), path)
        return True

    def _target(self, path: str, size: int) -> str:
        self._backup.count.copied += 1
        self._backup.count.copied_bytes += size
        target = f"{self._backup.directory}/{self._part.path(path)}"
        files.make_all(os.path.dirname(target))
        return target

    def _link(
        self,
        path: str,
        size: int,
        nanoseconds: int,
        earlier: tuple[str, ...],
        is_same: Callable[[PreviousBackup, str], bool],
    ) -> bool:
        # Size and time are not enough: if a file system keeps whole seconds, two contents may share both.
        last, before = self._backup.previous, self._before
        if last is None or before is None:
            return False
        for candidate in map(before.path, (path, *earlier)):
            source = f"{last.path}/{candidate}"
            with suppress(OSError):  # a copy will do
                status = os.lstat(source)
                files.require_file(status, source)
                if (status.st_size, status.st_mtime_ns) == (size, nanoseconds) and is_same(last, candidate):
                    target = f"{self._backup.directory}/{self._part.path(path)}"
                    files.make_all(os.path.dirname(target))
                    files.link(source, target)
                    self._backup.count.linked += 1
                    return True
        return False

    def _note(self, hexadecimal: str, path: str) -> None:
        self._backup.checksums.add(hexadecimal, self._part.path(path))


def chunks(source: BinaryIO, path: str) -> Iterator[bytes]:
    try:
        yield from iter(partial(source.read, CHUNK), b"")
    except OSError as error:
        raise DamagedError(f"{path} cannot be read to its end: {error.strerror}") from error
    except ReplacedError as error:  # in a database, of which nothing that is read was replaced
        raise DamagedError(f"{path} cannot be read to its end: a part of it is missing") from error
