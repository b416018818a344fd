"""Verification of the audit: lines that were changed, removed, inserted or moved, missing files, a cut end.

Lines that were rewritten with their chain and the head in the lock file are found only if the digests are keyed, or
somebody has kept a number and digest elsewhere. A digest that cannot be compared is a finding.
"""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO, cast

import msgspec

from persistence.audit import audit_log
from persistence.closable import closed_after_error
from persistence.errors import DamagedError, NotFoundError, disk_errors
from persistence.limits import AUDIT_BYTES_READ, CHUNK, LONGEST_AUDIT_LINE, MOST_AUDIT_UNPACKED
from persistence.model.texts import json_line
from persistence.storage.locks import LockFile

_RECORD = 256
_PATIENCE = 10.0
_GZIP = ".gz"
_MOST_FINDINGS = 1000
"""Findings that are listed; further ones are counted."""
_LINES_EXAMINED = 1000
"""Lines of a file in which its first whole one is looked for, while writers wait."""
_KEY_SHOWN = 40
"""Characters of the id of a key that are shown: whoever writes a line may invent any."""


@dataclass(slots=True)
class AuditVerdict:
    """The result. ``more`` counts findings that are not listed; ``notes`` are nothing wrong."""

    lines: int = 0
    findings: list[str] = field(default_factory=list)
    more: int = 0
    notes: list[str] = field(default_factory=list)
    last: audit_log.Head = audit_log.START

    def add(self, finding: str) -> None:
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(finding)
        else:
            self.more += 1


@dataclass(frozen=True, slots=True)
class _Place:
    """A file: its size under the lock, ``None`` if compressed, and the number of its first line."""

    path: str
    size: int | None
    first: int

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


def opened(path: str) -> BinaryIO:
    """Open a file of the audit; one that was compressed is unpacked first."""
    if not path.endswith(_GZIP):
        return open(path, "rb")
    name, most = os.path.basename(path), MOST_AUDIT_UNPACKED * os.path.getsize(path) + LONGEST_AUDIT_LINE
    unpacked = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    with closed_after_error(unpacked):
        try:
            with gzip.open(path, "rb") as packed:
                while unpacked.tell() <= most and (piece := packed.read(CHUNK)):
                    unpacked.write(piece)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DamagedError(f"{name}: it cannot be unpacked: {error}") from error
        if unpacked.tell() > most:
            raise DamagedError(f"{name}: it unpacks to more than {MOST_AUDIT_UNPACKED} times its size")
        unpacked.seek(0)
    return cast("BinaryIO", unpacked)


def in_order(path: str, seal_of: audit_log.SealOf) -> list[str]:
    """Return the paths of the files of the audit in the order of their lines."""
    return [place.path for place in _places(path, seal_of)]


def verify(
    path: str,
    seal_of: audit_log.SealOf,
    *,
    must_be_sealed: bool,
    expected: tuple[int, str] | None = None,
    retired: AbstractSet[str] = frozenset(),
) -> AuditVerdict:
    """Verify all files of the audit at ``path``; a service may write to it meanwhile.

    With ``must_be_sealed`` the last line must have a keyed digest that can be compared. ``expected`` is a line that
    somebody has noted. Lines by the keys ``retired`` need not be compared.
    """
    with disk_errors("reading the audit"):
        head, lock = None, audit_log.lock_path(path)
        with ExitStack() as stack:
            if os.path.exists(lock):
                stack.enter_context(LockFile(lock).exclusive("others are writing the audit", timeout=_PATIENCE))
                with open(lock, "rb") as file:
                    head = audit_log.head_of(file.read(_RECORD))
            places = _places(path, seal_of)
        run = _Verification(_places=places, _head=head, _seal_of=seal_of, _expected=expected, _retired=retired)
        run.verify(must_be_sealed=must_be_sealed)
        return run


def _places(path: str, seal_of: audit_log.SealOf) -> list[_Place]:
    # Files beside it that begin with its name and a dot or hyphen are its own: programs that rotate logs name them so.
    directory, name = os.path.split(path)
    with disk_errors("looking for files of the audit"):
        names = [each for each in sorted(os.listdir(directory)) if each.startswith((f"{name}.", f"{name}-"))]
        beside = (f"{directory}/{each}" for each in names if each != os.path.basename(audit_log.lock_path(path)))
        files = [each for each in (path, *beside) if os.path.isfile(each)]
    found = [
        _Place(each, None if each.endswith(_GZIP) else os.path.getsize(each), _first_number(each, seal_of))
        for each in files
    ]
    if not found:
        raise NotFoundError(f"there is no audit at {path}")
    return sorted(found, key=lambda place: (place.first, place.path != path, place.path))


def _first_number(path: str, seal_of: audit_log.SealOf) -> int:
    with (
        suppress(gzip.BadGzipFile, EOFError, zlib.error),
        cast("BinaryIO", gzip.open(path, "rb") if path.endswith(_GZIP) else open(path, "rb")) as file,
    ):
        lines = (audit_log.parsed(line[:-1], seal_of) for line in islice(audit_log.lines_of(file), _LINES_EXAMINED))
        return next((line.n for line in lines if line is not None), 0)
    return 0


@dataclass(slots=True, kw_only=True)
class _Verification(AuditVerdict):
    _places: list[_Place]
    _head: audit_log.Head | None
    _seal_of: audit_log.SealOf
    _expected: tuple[int, str] | None
    _retired: AbstractSet[str]
    _damaged: int = 0  # lines since the last whole one
    _first: int = 0
    _discarded: int = 0
    _open: set[int] = field(default_factory=set)
    _is_sealed: bool = False
    _is_compared: bool = False
    _has_present: bool = False
    _is_as_expected: bool = False
    _uncompared: tuple[str, int, int] = ("", 0, 0)  # by a key that is not here: its id, the first line and the last
    _unsealed: int = 0
    _gone: int = 0
    _lost: int = 0

    def verify(self, *, must_be_sealed: bool) -> None:
        for place in self._places:
            try:
                with opened(place.path) as file:
                    pieces = dict(self._pieces(file, place))
                    self._file(file, place, pieces)
            except DamagedError as error:
                self.add(str(error))
        self._report_uncompared()
        self._ends()
        if must_be_sealed and not self._is_sealed:
            self.add("the last line has no keyed digest, although audit_signed asks for one")
        elif must_be_sealed and not self._is_compared:
            self.add("the digest of the last line cannot be compared, although audit_signed asks for that")
        if self._expected is not None and not self._is_as_expected:
            self.add(f"line {self._expected[0]} does not have the digest that was expected")
        if self._open:
            shown = ", ".join(map(str, sorted(self._open)[:10]))
            self.notes.append(f"{len(self._open)} changes were begun and have no outcome, lines {shown}")
        if self._lost:
            self.notes.append(f"{self._lost} lines could not be written, as later ones say")
        if self._gone:
            self.notes.append(
                f"{self._gone} lines were not compared: their digests are by keys that you name as retired"
            )
        if self._is_sealed and self._unsealed:
            self.notes.append(f"{self._unsealed} lines before those with keyed digests have none")

    def _pieces(self, file: BinaryIO, place: _Place) -> Iterator[tuple[int, int]]:
        at = 0
        vouching = []
        for line in audit_log.lines_of(file):
            if b'"action":"%s"' % audit_log.REPAIRED.encode() in line:
                found = audit_log.parsed(line.removesuffix(b"\n"), self._seal_of)
                if found is not None and found.action == audit_log.REPAIRED and at > found.length:
                    vouching.append((at - found.length - 1, at, found))
            at += len(line)
        for start, end, found in vouching:
            if audit_log.piece_of(file, start, end).sha256 == found.sha256:
                self.notes.append(
                    f"{place.name}: a crash has torn a line, of which {found.length} bytes are left (line {found.n})"
                )
                yield start, end
        file.seek(0)

    def _file(self, file: BinaryIO, place: _Place, pieces: dict[int, int]) -> None:
        at = until = 0
        for number, line in enumerate(audit_log.lines_of(file), 1):
            if place.size is not None and at >= place.size:
                break
            until = pieces.get(at, until)
            found = audit_log.parsed(line[:-1], self._seal_of) if line.endswith(b"\n") else None
            where = f"{place.name}, line {number}"
            if at < until:
                if found is not None:
                    self.add(f"{where}: it is whole, and was behind the end of the chain: inserted, or lost")
            elif found is None:
                self.add(f"{where}: it was changed or damaged")
                self._damaged += 1
            else:
                self._line(found, where)
            at += len(line)

    def _line(self, line: audit_log.ChainedLine, where: str) -> None:
        last = self.last
        if self.lines == 0:
            self._first = line.n - self._damaged
            if line.n == 1 and line.prev != audit_log.ORIGIN:
                self.add(f"{where}: the first line names one before it")
        else:
            due = last.number + 1 + self._damaged
            if line.n < due:
                self.add(f"{where}: number {line.n} is not in its order, or was inserted")
                return
            if line.n > due:
                self.add(f"{where}: {_range(due, line.n - 1)} missing before it")
            elif not self._damaged and line.prev != last.digest:
                self.add(f"{where}: the line before it was changed")
        self.lines += 1
        self.last = audit_log.Head(line.n, line.digest, 0, 0)
        self._damaged = 0
        self._compare(line)
        self._is_as_expected |= (line.n, line.digest) == self._expected and self._is_compared
        if line.action == audit_log.DISCARDED:
            self._discarded = max(self._discarded, line.last)
        self._lost += line.lost
        if line.phase == audit_log.BEGIN:
            self._open.add(line.n)
        self._open.discard(line.begun)
        if self._is_sealed and not line.seal:
            self.add(f"{where}: its digest is not keyed, and those of lines before it are")
        self._is_sealed = bool(line.seal)
        self._unsealed += not line.seal

    def _compare(self, line: audit_log.ChainedLine) -> None:
        # The digest of a missing key proves nothing. A retired key has lines only before those of known keys.
        self._is_compared = not line.seal or self._seal_of(line.seal) is not None
        self._has_present |= self._is_compared and bool(line.seal)
        if not self._is_compared and line.seal in self._retired and not self._has_present:
            self._gone += 1
        elif not self._is_compared:
            key, first, last = self._uncompared
            if (key, last) != (line.seal, line.n - 1):
                self._report_uncompared()
                first = line.n
            self._uncompared = line.seal, first, line.n

    def _report_uncompared(self) -> None:
        key, first, last = self._uncompared
        if key:
            lines = f"line {first} was" if first == last else f"lines {first} to {last} were"
            shown = json_line(key[:_KEY_SHOWN]).decode()
            self.add(f"{lines} not compared: the digests name the signing key {shown}, which is missing")

    def _ends(self) -> None:
        last = self.last
        if self._first > 1 and self._discarded >= self._first - 1:
            self.notes.append(f"the lines before number {self._first} were removed, as the settings ask")
        elif self._first > 1:
            self.add(f"{_range(1, self._first - 1)} missing at the beginning")
        if self._head is None:
            self.add("the lock file is missing or has no head: lines may be missing at the end")
        elif self._head.number > last.number + self._damaged:
            self.add(f"{_range(last.number + self._damaged + 1, self._head.number)} missing at the end")
        elif self._head.number == last.number and self._head.digest != last.digest:
            self.add(f"the last line, number {last.number}, was changed")


def _range(first: int, last: int) -> str:
    return f"line {first} is" if first == last else f"lines {first} to {last} are"


def expected_head(text: str) -> tuple[int, str] | None:
    """Read ``NUMBER:DIGEST``; ``None`` for anything else."""
    number, _, digest = text.partition(":")
    with suppress(ValueError):
        if len(digest) == len(audit_log.ORIGIN) and int(digest, 16) >= 0:
            return int(number), digest
    return None


Facts = Mapping[str, object]
_SHOWN = ("app", "form", "collection", "document", "name")


@dataclass(frozen=True, slots=True)
class NewestLines:
    """The fields of lines, the newest first. There may be more below the number ``older``, if it is not 0."""

    lines: tuple[Facts, ...]
    older: int


def facts_of(line: bytes) -> dict[str, object]:
    """Return the fields of a line; empty if it is damaged, which ``verify`` reports."""
    try:
        return msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def is_of_kind(facts: Facts, wanted: Mapping[str, str], since: str = "") -> bool:
    """Return whether a line has the wanted facts; one about several documents has the name of each in its details."""
    several = facts.get("details")
    several = several if isinstance(several, dict) else {}
    return (
        bool(facts)
        and all(
            facts.get(name) == value or (isinstance(each := several.get(name), list) and value in each)
            for name, value in wanted.items()
        )
        and str(facts.get("at", "")) >= since
    )


def subject_of(facts: Facts) -> str:
    """Return the path of a line's form, document or attachment."""
    is_definition = facts.get("collection") == "form"  # a document is the designer's then, and no part of the path
    names = [name for name in _SHOWN if facts.get(name) and not (is_definition and name == "document")]
    return "/".join(str(facts[name]) for name in names)


def outcome_of(facts: Facts) -> str:
    """Return the status of a request, the outcome of a command, or the phase."""
    return str(facts.get("status") or facts.get("outcome") or facts.get("phase") or "")


def newest(  # noqa: PLR0913 - the parts of a question
    path: str, seal_of: audit_log.SealOf, wanted: Mapping[str, str], *, since: str, until: str, before: int, most: int
) -> NewestLines:
    """Return the ``most`` newest lines of a kind, with numbers below ``before`` if that is not 0.

    They are of the times from ``since`` up to ``until``, if these are not empty. At most ``AUDIT_BYTES_READ`` are read.
    """
    found: list[Facts] = []
    lowest, read = 0, 0
    with disk_errors("reading the audit"):
        for line in _backwards(in_order(path, seal_of)):
            facts = facts_of(line)
            number = facts.get("n")
            lowest = number if isinstance(number, int) else lowest
            if since and facts and str(facts.get("at", "")) < since:
                break
            if before and lowest >= before:
                continue
            read += len(line)
            if is_of_kind(facts, wanted, since) and not (until and str(facts.get("at", "")) >= until):
                found.append(facts)
            if len(found) == most or read > AUDIT_BYTES_READ:
                return NewestLines(tuple(found), lowest if lowest > 1 else 0)
    return NewestLines(tuple(found), 0)


def _backwards(paths: list[str]) -> Iterator[bytes]:
    for path in reversed(paths):
        with suppress(DamagedError), opened(path) as file:  # ``verify`` reports what cannot be unpacked
            at, rest = file.seek(0, os.SEEK_END), b""
            while at:
                step = min(CHUNK, at)
                at -= step
                file.seek(at)
                first, *lines = (file.read(step) + rest).split(b"\n")
                yield from reversed([line for line in lines if line])
                rest = first if len(first) <= LONGEST_AUDIT_LINE else b""
            if rest:
                yield rest
