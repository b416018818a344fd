"""Sidecars, and the lock-free read: one whole revision with its own sidecar, after any crash.

The sidecar is the commit record. Its content bears the revision's stamp as modification time, so a content that shows
the stamp of the sidecar just read belongs to it, whatever writers do meanwhile. That is the usual case. What is none
of its sidecar's, ``integrity`` judges.

Where the stamp is not there (a writer is at work or was killed, a person replaced the file, the file system keeps no
nanoseconds), the sidecar names its content by id: it is at ``.<name>.<id>`` until the writer's last rename, then at
``<name>``. If the sidecar's path still leads to the file that was read after the content was opened, no writer passed
by, and the two belong together; the open sidecar keeps its inode number from being used again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from io import FileIO
from typing import Annotated, BinaryIO

import msgspec

from persistence.bounded_cache import BoundedCache
from persistence.closable import closed_after_error
from persistence.errors import BusyError, DamagedError, MalformedXmlError
from persistence.limits import CHUNK, LARGEST_SMALL_FILE
from persistence.model.sidecar import SCHEMA, Sidecar, digest_of, shows_stamp, stamp
from persistence.model.texts import Instant, epoch_seconds, one_later, to_datetime
from persistence.storage import files
from persistence.storage.files import NotOpenedError
from persistence.storage.layout import FilePaths, revision_of, unfinished_of
from persistence.xml import XmlCheck

_SCHEMA_BEFORE = 1  # The schema without checksum and address, which `persistence upgrade` reads


# Sidecars as bytes: small JSON in a stable order, readable and diffable, which show changes.
#
# Each has a checksum of itself and the path of the content that it belongs to. A flipped bit in an owner would
# otherwise change who may read a document, and a file that was moved between documents would be served as another's.


class ChangedSidecarError(DamagedError):
    """A sidecar that can be read, but was changed since; or ``is_misplaced``, whole beside another content."""

    def __init__(self, path: str, cause: str, sidecar: Sidecar, *, is_misplaced: bool = False) -> None:
        super().__init__(f"the sidecar {last_names(path)} {cause}")
        self.sidecar = sidecar
        self.cause = cause
        self.is_misplaced = is_misplaced


class _CheckedSidecar(Sidecar, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """A sidecar as its file holds it."""

    address: str  # the path of the content below the root, also for an older revision
    checksum: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _SummedSidecar(_CheckedSidecar, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """The fields that the checksum is of: all but an ``encrypted`` that is false."""

    # Earlier services do not distinguish it from its absence: they compute this checksum, and accept the sidecar.
    encrypted: bool = False


_summed_decoder = msgspec.json.Decoder(_SummedSidecar)
_decoder = msgspec.json.Decoder(Sidecar)
_encoder = msgspec.json.Encoder()
_NO_CHECKSUM = "0" * 64
_TAIL = len(f',"checksum":"{_NO_CHECKSUM}"}}')


def encode(sidecar: Sidecar, address: str) -> bytes:
    """Return the file's content: one field a line, in the order of ``Sidecar``, then the address and the checksum."""
    fields = {name: getattr(sidecar, name) for name in Sidecar.__struct_fields__} | {"schema": SCHEMA}
    summed = fields | {"encrypted": bool(sidecar.encrypted)}
    compact = _encoder.encode(_SummedSidecar(**summed, address=address, checksum=_NO_CHECKSUM))
    checksum = hashlib.sha256(compact[:-_TAIL]).hexdigest()
    checked = _CheckedSidecar(**fields, address=address, checksum=checksum)
    return msgspec.json.format(_encoder.encode(checked), indent=2) + b"\n"


def decode(data: bytes, path: str, address: str) -> Sidecar:
    """Read a sidecar of the content at ``address``; of ``path``, its own, the last names are for the message."""
    try:
        summed = _summed_decoder.decode(data)
        sidecar = _decoder.decode(data)
        _check_instants(sidecar)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: a day that is in no calendar
        raise _unreadable(data, path, error) from error
    if summed.schema != SCHEMA:
        raise _of_schema(summed.schema, path)
    if summed.checksum != hashlib.sha256(_encoder.encode(summed)[:-_TAIL]).hexdigest():
        raise ChangedSidecarError(path, "was changed since it was written: it has not the checksum it says", sidecar)
    if summed.address != address:
        raise ChangedSidecarError(path, f"belongs to {summed.address}", sidecar, is_misplaced=True)
    return sidecar


def decode_before(data: bytes, path: str) -> Sidecar:
    try:
        sidecar = _decoder.decode(data)
        _check_instants(sidecar)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DamagedError(f"the sidecar {last_names(path)} cannot be read: {error}") from error
    if sidecar.schema != _SCHEMA_BEFORE:
        raise _of_schema(sidecar.schema, path)
    return sidecar


def _check_instants(sidecar: Sidecar) -> None:
    for instant in (sidecar.modified, sidecar.created, sidecar.restored):
        if instant is not None:
            to_datetime(instant)
    if sidecar.modified.startswith("9999"):
        raise ValueError("nothing can come after the year 9999")


class _Schema(msgspec.Struct, frozen=True):
    schema: int


def _unreadable(data: bytes, path: str, error: Exception) -> DamagedError:
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
    except (msgspec.DecodeError, RecursionError):
        schema = SCHEMA
    if schema == _SCHEMA_BEFORE:
        try:
            before = decode_before(data, path)
        except DamagedError as worse:
            return worse
        return ChangedSidecarError(path, f"has schema {schema}: it is of a tree of an older format", before)
    if schema != SCHEMA:
        return _of_schema(schema, path)
    return DamagedError(f"the sidecar {last_names(path)} cannot be read: {error}")


def _of_schema(schema: int, path: str) -> DamagedError:
    whose = "a newer version of the service wrote it" if schema > SCHEMA else "it is of a tree of an older format"
    return DamagedError(f"the sidecar {last_names(path)} cannot be read: its schema is {schema}, not {SCHEMA}: {whose}")


def is_other_json(path: str) -> bool:
    """Return whether a file is JSON that was never a sidecar; raises ``OSError``."""
    with open(files.open_file(path), "rb") as file:
        data = file.read(LARGEST_SMALL_FILE + 1)
    if len(data) > LARGEST_SMALL_FILE:
        return False
    try:
        return "schema" not in msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return True  # a list, or a text
    except (msgspec.DecodeError, RecursionError):
        return False


def last_names(path: str) -> str:
    """Return the end of a path: enough to find the file below the root, without saying where the root is."""
    return "/".join(path.rsplit("/", 5)[1:])


_REMEMBERED, _REMEMBERED_BYTES = 4096, 4 << 20  # Verdicts that are kept: one is a few hundred bytes
SETTLED = 2_000_000_000  # Nanoseconds after its last change in which a file may change again under the same time


# Damage is never taken for an edit: whether a content that is not its sidecar's may be served.
#
# A content has the size, and by its stamp the time, that its sidecar says. Any other is looked at once per state of the
# file: with the right digest it is the same content under another time; else the policy decides whether it is an edit
# by hand, or damage.


class HandEdits(Enum):
    """The contents, of those that are not their sidecar's, that count as edits by hand."""

    XML = "xml"  # Well-formed XML in the place of XML
    NONE = "none"
    ALL = "all"


class Integrity:
    """Judges contents by one policy, for all threads. ``verify_up_to`` is in bytes: 0 verifies no digest on reading."""

    def __init__(self, hand_edits: HandEdits = HandEdits.XML, *, verify_up_to: int = 0) -> None:
        self.hand_edits = hand_edits
        self.verify_up_to = verify_up_to
        self._verdicts: BoundedCache[bool | str] = BoundedCache(_REMEMBERED, _REMEMBERED_BYTES)

    def judge(self, paths: FilePaths, sidecar: Sidecar, file: str | int, status: os.stat_result) -> bool:
        """Return whether a file has the right content under another time; else it was edited."""
        # ``status`` is that of the file, which differs by size or time from what its sidecar says.
        look = partial(self._looked_at, paths, sidecar, file, status)
        is_settled = time.time_ns() - status.st_ctime_ns > SETTLED
        known = self._verdicts.get((*files.state_of(status), file, sidecar.id), look) if is_settled else look()
        if isinstance(known, str):
            raise DamagedError(known)
        return known

    def _looked_at(self, paths: FilePaths, sidecar: Sidecar, file: str | int, status: os.stat_result) -> bool | str:
        try:
            descriptor = files.open_file(file) if isinstance(file, str) else os.dup(file)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StateChangedError from error
        with files.closing(descriptor):
            if files.state_of(os.fstat(descriptor)) != files.state_of(status):
                raise StateChangedError
            if status.st_size == sidecar.size and digest_of(_pieces(descriptor)) == sidecar.digest:
                return True
            cause = self._fault(paths, status, descriptor)
        if cause is None:
            return False
        return f"the content {last_names(paths.content)} is damaged: it is not that of {sidecar.modified}, and {cause}"

    def _fault(self, paths: FilePaths, status: os.stat_result, descriptor: int) -> str | None:
        if self.hand_edits is HandEdits.ALL:
            return None
        if self.hand_edits is HandEdits.NONE:
            return "edits by hand are not served (hand_edits)"
        if not paths.must_be_xml:
            return "only XML may be edited by hand" if not paths.is_older else "an older revision is never edited"
        older = _older_content(paths, status, descriptor)
        if older is not None:
            return f"it is that of an older revision, {older}"
        try:
            XmlCheck().read(_pieces(descriptor))
        except MalformedXmlError as error:
            return f"no edit by hand: {error}"
        return None


class StateChangedError(Exception):
    """A file is not in the state in which it was looked at."""


def digest_of_file(path: str) -> str:
    with open(files.open_file(path), "rb") as file:
        return digest_of_open(file)


def digest_of_open(file: BinaryIO) -> str:
    """Return the digest of an open file's content, read from where it is to its end; raises ``OSError``."""
    return digest_of(iter(partial(file.read, CHUNK), b""))


def _older_content(paths: FilePaths, status: os.stat_result, descriptor: int) -> str | None:
    # A copy that was made while the file was written, or a disk that went back, leaves an older content there.
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(paths.history):
            revision = revision_of(name) if name.endswith(paths.name) else None
            if revision is None or revision[1] != paths.name:
                continue
            if abs(epoch_seconds(revision[0]) - status.st_mtime_ns // 1_000_000_000) > 1:
                continue
            with suppress(FileNotFoundError), FileIO(files.open_to_read(f"{paths.history}/{name}")) as file:
                kept = os.fstat(file.fileno())
                is_same = (kept.st_size, kept.st_mtime_ns) == (status.st_size, status.st_mtime_ns)
                if is_same and digest_of(_pieces(file.fileno())) == digest_of(_pieces(descriptor)):
                    return revision[0]
    return None


def _pieces(descriptor: int) -> Iterator[bytes]:
    at = 0
    while piece := os.pread(descriptor, CHUNK, at):
        yield piece
        at += len(piece)


_ATTEMPTS = 200

UNKNOWN_SIZE = -1  # The size of a content of which another service does not say how long it is before it sends it


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """A revision as it lies on disk; also of one that ``is_edited``, size and entity tag are those of the content."""

    sidecar: Sidecar
    etag: str  # 40 hex digits
    size: int  # in bytes; ``UNKNOWN_SIZE`` only where the content was not asked for
    file: BinaryIO | None = None  # the caller's to close; ``None`` for a tombstone, and if it was not asked for
    is_edited: bool = False  # replaced by hand: not the content that the sidecar describes

    @property
    def latest(self) -> Instant:
        """The instant after which the next revision comes: an edit by hand is kept as a revision of its own."""
        modified = self.sidecar.modified
        return one_later(modified) if self.is_edited else modified

    @property
    def opened(self) -> BinaryIO:
        """The open content, where it was asked for; ``ValueError`` where it was not."""
        if self.file is None:
            raise ValueError("the content was not opened")
        return self.file

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def read_sidecar(paths: FilePaths) -> Sidecar | None:
    opened = open_sidecar(paths)
    if opened is None:
        return None
    os.close(opened[1])
    return opened[0]


def open_sidecar(paths: FilePaths) -> tuple[Sidecar, int] | None:
    """Return the sidecar, and its file, which the caller closes; ``None`` where nothing was ever stored."""
    refusal: OSError
    try:
        descriptor = files.open_to_read(paths.sidecar)
        try:
            return decode(files.read_small(descriptor), paths.sidecar, paths.address), descriptor
        except BaseException:
            os.close(descriptor)
            raise
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotOpenedError as error:
        what, refusal = "a socket" if error.errno == errno.ENXIO else "a symbolic link, or below one", error
    except IsADirectoryError as error:
        what, refusal = "a directory", error
    except BlockingIOError as error:
        what, refusal = "a pipe", error
    raise DamagedError(f"the sidecar {last_names(paths.sidecar)} cannot be read: {what}") from refusal


def next_id(paths: FilePaths) -> str | None:
    """Return the content id in the sidecar of an uncommitted write; ``None`` without one, or if a power cut took it."""
    try:
        descriptor = files.open_to_read(paths.next_sidecar)
    except (FileNotFoundError, NotOpenedError):
        return None
    try:
        return decode(files.read_small(descriptor), paths.next_sidecar, paths.address).id
    except (DamagedError, IsADirectoryError, BlockingIOError):
        return None
    finally:
        os.close(descriptor)


def read(paths: FilePaths, integrity: Integrity, *, content: bool) -> StoredRevision | None:
    """Return the current revision, with its content opened if asked for; ``None`` where nothing was ever stored."""
    sidecar = read_sidecar(paths)
    if sidecar is None:
        return None
    if sidecar.deleted:
        return StoredRevision(sidecar, sidecar.etag, 0)
    found = _stamped(paths, sidecar, content=content)
    if found is not None:
        return verified(paths, integrity, found) if integrity.verify_up_to else found
    # A writer is at work or was killed, or the content is another: only a sidecar that stays in its place tells.
    for _ in range(_ATTEMPTS):
        opened = open_sidecar(paths)
        if opened is None:
            return None
        sidecar, descriptor = opened
        with files.closing(descriptor):
            if sidecar.deleted:
                return StoredRevision(sidecar, sidecar.etag, 0)
            candidate = _beside(paths, sidecar, content=content)
            if not is_still_at(descriptor, paths.sidecar):
                if candidate is not None:
                    candidate.close()
                continue
            if candidate is None:
                raise _missing(paths)
            with suppress(StateChangedError):
                return verified(paths, integrity, candidate.judged(paths, integrity, sidecar))
    raise BusyError(f"{paths.name} is being written too often to be read")


def verified(paths: FilePaths, integrity: Integrity, found: StoredRevision) -> StoredRevision:
    """Return a revision whose open content has the digest of its sidecar, up to the size that the policy says."""
    file, sidecar = found.file, found.sidecar
    if file is None or found.is_edited or sidecar.digest is None or not 0 < sidecar.size <= integrity.verify_up_to:
        return found
    try:
        digest = digest_of(_pieces(file.fileno()))
    except OSError:
        file.close()
        raise
    if digest == sidecar.digest:
        return found
    file.close()
    raise DamagedError(
        f"the content {last_names(paths.content)} is damaged: its digest is not the one its sidecar says"
    )


def _stamped(paths: FilePaths, sidecar: Sidecar, *, content: bool) -> StoredRevision | None:
    try:
        status, file = _open(paths.content, content=content)
    except FileNotFoundError:
        return None
    if status.st_mtime_ns == stamp(sidecar) and status.st_size == sidecar.size:
        return StoredRevision(sidecar, sidecar.etag, sidecar.size, file)
    if file is not None:
        file.close()
    return None


def content(paths: FilePaths) -> BinaryIO | None:
    """Return the content at its place, whatever its sidecar says; ``None`` where there is none. Raises ``OSError``."""
    try:
        return _open(paths.content, content=True)[1]
    except (FileNotFoundError, NotADirectoryError):
        return None


FileFingerprint = tuple[int, int, int]
"""Tells one state of a file from every other: its inode, modification time and size."""

Fingerprint = tuple[FileFingerprint | None, ...]
"""Tells one state of a resource from every other, by its sidecar and its content.

A sidecar is replaced by another file, and the history keeps the old one's inode from being used again.
"""

NOTHING_THERE: Fingerprint = (None, None)


def fingerprint_of(*places: str | int) -> Fingerprint:
    """Return the fingerprint of each open file, or of what is at each path; ``None`` where there is nothing."""
    found = list[FileFingerprint | None]()
    for place in places:
        try:
            status = os.lstat(place) if isinstance(place, str) else os.fstat(place)
        except (FileNotFoundError, NotADirectoryError):
            found.append(None)
        else:
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def facts(paths: FilePaths, integrity: Integrity, sidecar: Sidecar) -> StoredRevision:
    """Return the facts about a revision whose sidecar is the current one: for writers, who hold the lock."""
    if sidecar.deleted:
        return StoredRevision(sidecar, sidecar.etag, 0)
    found = _stamped(paths, sidecar, content=False) or beside(paths, integrity, sidecar, content=False)
    if found is None:
        raise _missing(paths)
    return found


def _missing(paths: FilePaths) -> DamagedError:
    return DamagedError(f"the content {last_names(paths.content)} is missing")


def beside(paths: FilePaths, integrity: Integrity, sidecar: Sidecar, *, content: bool) -> StoredRevision | None:
    """A revision's content: what waits for its last name, else what lies at its place; ``None`` where there is none."""
    for _ in range(_ATTEMPTS):
        found = _beside(paths, sidecar, content=content)
        if found is None:
            return None
        with suppress(StateChangedError):
            return found.judged(paths, integrity, sidecar)
    raise BusyError(f"{paths.name} is being changed too often to be read")


@dataclass(frozen=True, slots=True)
class _FoundContent:
    """A file where a content may lie."""

    path: str
    status: os.stat_result
    file: FileIO | None

    def judged(self, paths: FilePaths, integrity: Integrity, sidecar: Sidecar) -> StoredRevision:
        size, nanoseconds = self.status.st_size, self.status.st_mtime_ns
        with closed_after_error(self):
            is_same = size == sidecar.size and shows_stamp(nanoseconds, sidecar)
            if is_same or integrity.judge(paths, sidecar, self.path, self.status):
                return StoredRevision(sidecar, sidecar.etag, size, self.file)
        # An edit by hand has a tag of its own, because a client that knows the acknowledged content must not overwrite
        # or trust its copy of this one.
        tag = hashlib.sha256(f"{sidecar.id}:{size}:{nanoseconds}".encode()).hexdigest()[:40]
        return StoredRevision(sidecar, tag, size, self.file, is_edited=True)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def _beside(paths: FilePaths, sidecar: Sidecar, *, content: bool) -> _FoundContent | None:
    for path in (paths.next_content(sidecar.id), paths.content):
        with suppress(FileNotFoundError):
            return _FoundContent(path, *_open(path, content=content))
    return None


def _open(path: str, *, content: bool) -> tuple[os.stat_result, FileIO | None]:
    descriptor = None
    if content:
        try:
            descriptor = files.open_to_read(path)
        except NotOpenedError as error:
            raise FileNotFoundError from error
    try:
        status = os.lstat(path) if descriptor is None else os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError
        return status, None if descriptor is None else FileIO(descriptor)
    except OSError:
        if descriptor is not None:
            os.close(descriptor)
        raise


def is_still_at(descriptor: int, path: str) -> bool:
    ours = os.fstat(descriptor)
    try:
        theirs = os.lstat(path)
    except FileNotFoundError:
        return False
    return ours.st_ino == theirs.st_ino and ours.st_dev == theirs.st_dev


def incomplete_writes(main: FilePaths) -> Iterator[FilePaths]:
    """Yield the resources in a directory, with older revisions, of which a write is under way or was killed."""
    for directory in (main.directory, main.history):
        with suppress(FileNotFoundError, NotADirectoryError):
            for name in os.listdir(directory):
                content = unfinished_of(name)
                if content is not None:
                    yield FilePaths(directory, content)
