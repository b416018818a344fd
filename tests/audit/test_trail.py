"""The files of the audit: the chain, what verification finds, rotation, crashes, and other programs that interfere."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from persistence.audit.audit_log import (
    REPAIRED,
    AuditEvent,
    AuditTrail,
    Head,
    Rotation,
    Seal,
    head_of,
    lock_path,
    parsed,
    prepare,
    require_outside,
    rotated,
)
from persistence.audit.verification import AuditVerdict, expected_head, in_order, is_of_kind, newest, verify
from persistence.errors import BusyError, DiskError, NotFoundError, StartupError
from persistence.storage import files
from persistence.storage.locks import LogLock
from tests.opened import close, opened

EVENT = AuditEvent(action="update", app="acme", form="order", document="D", status=204, user="älice").encoded()
SEAL = Seal.by("0a1b2c3d", b"s" * 32)


def seal_of(key_id: str) -> Seal | None:
    return SEAL if key_id == SEAL.key_id else None


@pytest.fixture
def path(tmp_path: Path) -> str:
    return prepare(f"{tmp_path}/audit/audit.jsonl")


def trail(path: str, **more: object) -> AuditTrail:
    return opened(AuditTrail(path, seal_of=seal_of, **more))  # type: ignore[arg-type]


def verdict(path: str, *, must_be_sealed: bool = False, expected: tuple[int, str] | None = None) -> AuditVerdict:
    return verify(path, seal_of, must_be_sealed=must_be_sealed, expected=expected)


def numbers(path: str) -> list[int]:
    """The numbers of all lines, in the order of the files."""
    return [json.loads(line)["n"] for each in in_order(path, seal_of) for line in Path(each).read_bytes().splitlines()]


def written(path: str, lines: int = 9, event: bytes = EVENT, **more: object) -> list[bytes]:
    """A trail of some lines, closed; its lines."""
    own = trail(path, **more)
    for _ in range(lines):
        own.append(event)
    close(own)
    return Path(path).read_bytes().splitlines(keepends=True)


def test_each_line_has_the_digest_of_the_line_before(path: str) -> None:
    lines = [json.loads(line) for line in written(path, 3)]
    assert [line["n"] for line in lines] == [1, 2, 3]
    assert [line["prev"] for line in lines[1:]] == [line["digest"] for line in lines[:-1]]
    assert lines[0]["prev"] == "0" * 64
    assert lines[0]["user"] == "älice"
    found = verdict(path)
    assert (found.lines, found.findings, found.notes) == (3, [], [])
    assert (found.last.number, found.last.digest) == (3, lines[2]["digest"])
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640


def test_no_line_has_what_a_terminal_obeys(path: str) -> None:
    (line,) = written(path, 1, AuditEvent(action="x", user='a\nb\x1b[0m\x9b\u202e"\\').encoded())
    text = line.decode()
    assert text.rstrip("\n").isprintable()
    assert json.loads(text)["user"] == 'a\nb\x1b[0m\x9b\u202e"\\'
    assert verdict(path).findings == []


def changed(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], lines[4].replace(b"acme", b"acne"), *lines[5:]]


def changed_with_its_digest(lines: list[bytes]) -> list[bytes]:
    """Line 5 with another form, and a right digest of its own."""
    text = lines[4].replace(b"acme", b"acne").partition(b',"digest"')[0]
    own = hashlib.sha256(text).hexdigest().encode()
    return [*lines[:4], text + b',"digest":"' + own + b'"}\n', *lines[5:]]


TAMPERING: list[tuple[str, Callable[[list[bytes]], list[bytes]], str]] = [
    ("changed", changed, "audit.jsonl, line 5: it was changed or damaged"),
    ("changed first", lambda lines: [lines[0].replace(b"204", b"403"), *lines[1:]], "line 1: it was changed"),
    ("changed last", lambda lines: [*lines[:-1], lines[-1].replace(b"204", b"403")], "line 9: it was changed"),
    ("changed, with its digest", changed_with_its_digest, "line 6: the line before it was changed"),
    ("removed", lambda lines: [*lines[:4], *lines[5:]], "line 5: line 5 is missing before it"),
    ("several removed", lambda lines: [*lines[:2], *lines[5:]], "line 3: lines 3 to 5 are missing before it"),
    ("first removed", lambda lines: lines[2:], "lines 1 to 2 are missing at the beginning"),
    ("cut at the end", lambda lines: lines[:-2], "lines 8 to 9 are missing at the end"),
    ("cut in a line", lambda lines: [*lines[:-1], lines[-1][:50]], "line 9: it was changed or damaged"),
    (
        "inserted copy",
        lambda lines: [*lines[:4], lines[2], *lines[4:]],
        "number 3 is not in its order, or was inserted",
    ),
    ("inserted", lambda lines: [*lines[:4], b'{"n":5}\n', *lines[4:]], "line 5: it was changed or damaged"),
    ("swapped", lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]], "number 5 is not in its order"),
    ("emptied", lambda _: [], "lines 1 to 9 are missing at the end"),
]


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize(("tamper", "finding"), [each[1:] for each in TAMPERING], ids=[each[0] for each in TAMPERING])
def test_tampering_is_found(
    path: str, tamper: Callable[[list[bytes]], list[bytes]], finding: str, *, sealed: bool
) -> None:
    lines = written(path, seal=lambda: SEAL) if sealed else written(path)
    assert verdict(path, must_be_sealed=sealed).findings == []
    Path(path).write_bytes(b"".join(tamper(lines)))
    found = verdict(path, must_be_sealed=sealed).findings
    assert found
    assert sealed or any(finding in each for each in found), found


def test_a_chain_that_was_rewritten_as_a_whole_shows_only_with_a_key_or_a_kept_head(path: str, tmp_path: Path) -> None:
    written(path, seal=lambda: SEAL)
    kept = verdict(path).last
    forged = prepare(f"{tmp_path}/forged/audit.jsonl")
    written(forged)
    for each in (path, lock_path(path)):
        shutil.copy(each.replace("/audit/", "/forged/"), each)
    assert verdict(path).findings == []
    assert verdict(path, must_be_sealed=True).findings == [
        "the last line has no keyed digest, although audit_signed asks for one"
    ]
    assert verdict(path, expected=(kept.number, kept.digest)).findings == [
        "line 9 does not have the digest that was expected"
    ]


def test_a_seal_is_not_taken_off(path: str) -> None:
    """Keyed digests follow others, and never the other way round; without the key nothing can be compared."""
    written(path, 2)
    written(path, 2, seal=lambda: SEAL)
    found = verdict(path, must_be_sealed=True)
    assert (found.findings, found.notes) == ([], ["2 lines before those with keyed digests have none"])
    gone = verify(path, lambda _: None, must_be_sealed=False)
    assert gone.findings == [
        'lines 3 to 4 were not compared: the digests name the signing key "0a1b2c3d", which is missing'
    ]
    named = verify(path, lambda _: None, must_be_sealed=False, retired={SEAL.key_id, "other"})
    assert named.findings == []
    assert "2 lines were not compared: their digests are by keys that you name as retired" in named.notes
    assert verify(path, lambda _: None, must_be_sealed=True, retired={SEAL.key_id}).findings == [
        "the digest of the last line cannot be compared, although audit_signed asks for that"
    ]
    written(path, 1)
    assert any("its digest is not keyed" in each for each in verdict(path).findings)


@pytest.mark.parametrize(
    ("text", "found"),
    [("3:" + "a" * 64, (3, "a" * 64)), ("3:" + "g" * 64, None), ("x:" + "a" * 64, None), ("3", None), ("3:aa", None)],
)
def test_a_head_is_read(text: str, found: tuple[int, str] | None) -> None:
    assert expected_head(text) == found


@pytest.mark.parametrize("record", [b"", b"\0" * 160, b"1 2 3", b"1 " + b"x" * 64 + b" a 4", b"1 aa 3 4", b"\xff" * 99])
def test_a_damaged_head_is_none(record: bytes) -> None:
    assert head_of(record) is None
    assert head_of(Head(7, "f" * 64, 8, 9).record()) == Head(7, "f" * 64, 8, 9)


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_a_line_that_names_a_key_that_is_not_here_is_not_believed(path: str, *, sealed: bool) -> None:
    """Also where somebody has kept a head that it should have: it says its digest, and nobody can compute it."""
    lines = written(path, 6, seal=lambda: SEAL) if sealed else written(path, 6)
    kept = [json.loads(line)["digest"] for line in lines]
    digests = [line[line.index(b',"digest"') :] for line in lines]

    def forged(number: int) -> bytes:
        text = lines[number - 1].replace(b"acme", b"acne").partition(b',"digest"')[0]
        text = text.replace(b',"seal":"0a1b2c3d"', b"")
        return text + b',"seal":"00000000"' + digests[number - 1]

    Path(path).write_bytes(b"".join([*lines[:2], forged(3), forged(4), *lines[4:]]))
    finding = 'lines 3 to 4 were not compared: the digests name the signing key "00000000", which is missing'
    assert finding in verdict(path).findings
    assert finding in verdict(path, expected=(6, kept[5])).findings
    Path(path).write_bytes(b"".join([*lines[:5], forged(6)]))
    named = verify(path, seal_of, must_be_sealed=sealed, expected=(6, kept[5]), retired={"00000000"}).findings
    assert "line 6 does not have the digest that was expected" in named
    is_late = any(each.startswith("line 6 was not compared") for each in named)
    assert is_late is sealed, "a retired key has no lines after those of a key that is here"
    written(path, 1, **({"seal": lambda: SEAL} if sealed else {}))
    assert any("line 6 was not compared" in each for each in verdict(path).findings), "the next line covers nothing up"


def compressed(path: str) -> bytes:
    return gzip.compress(Path(path).read_bytes())


BAD_GZIP: dict[str, tuple[Callable[[str], bytes], str]] = {
    "not gzip": (lambda _: b"x" * 99, "audit.jsonl-y.gz: it cannot be unpacked: "),
    "cut": (lambda path: compressed(path)[:-20], "audit.jsonl-y.gz: it cannot be unpacked: "),
    "damaged": (lambda path: compressed(path)[:40] + b"\xff" * 20, "audit.jsonl-y.gz: it cannot be unpacked: "),
    "huge": (lambda _: gzip.compress(bytes(64 << 20)), "audit.jsonl-y.gz: it unpacks to more than 200 times its size"),
}


@pytest.mark.parametrize(("content", "finding"), BAD_GZIP.values(), ids=BAD_GZIP)
def test_a_compressed_file_that_cannot_be_read_is_a_finding_and_the_rest_is_verified(
    path: str, content: Callable[[str], bytes], finding: str
) -> None:
    lines = written(path, 5)
    Path(f"{path}-y.gz").write_bytes(content(path))
    os.mkfifo(f"{path}-pipe")
    Path(f"{path}.directory").mkdir()
    found = verdict(path)
    assert len(found.findings) == 1
    assert found.findings[0].startswith(finding)
    assert found.lines == 5
    Path(path).write_bytes(b"".join(changed(lines)))
    assert any("line 5: it was changed" in each for each in verdict(path).findings)
    kept = newest(path, seal_of, {}, since="", until="", before=0, most=9)
    assert [line["n"] for line in kept.lines] == [5, 4, 3, 2, 1]


def test_the_longest_lines_that_are_alike_are_not_taken_for_too_large(path: str) -> None:
    long = AuditEvent(action="update", user="x" * 1000, app="y" * 1000, document="z" * 1000).encoded()
    written(path, 1000, long)
    Path(f"{path}.1.gz").write_bytes(compressed(path))
    os.unlink(path)
    found = verdict(path)
    assert (found.lines, found.findings) == (1000, [])


def test_a_cut_end_is_found_although_the_lock_file_was_removed(path: str) -> None:
    """A writer knows its own last line; without one, a missing lock file says that somebody has removed it."""
    own = trail(path)
    for _ in range(6):
        own.append(EVENT)
    lines = Path(path).read_bytes().splitlines(keepends=True)
    Path(path).write_bytes(b"".join(lines[:4]))
    os.unlink(lock_path(path))
    assert verdict(path).findings == ["the lock file is missing or has no head: lines may be missing at the end"]
    own.append(EVENT)
    assert verdict(path).findings == ["audit.jsonl, line 5: lines 5 to 6 are missing before it"]


def test_a_cut_end_is_found_although_the_head_was_set_back(path: str) -> None:
    own = trail(path)
    for _ in range(4):
        own.append(EVENT)
    head, size = Path(lock_path(path)).read_bytes(), os.path.getsize(path)
    own.append(EVENT)
    own.append(EVENT)
    os.truncate(path, size)
    Path(lock_path(path)).write_bytes(head)
    own.append(EVENT)
    assert verdict(path).findings == ["audit.jsonl, line 5: lines 5 to 6 are missing before it"]


def test_a_new_process_goes_on_without_a_lock_file_in_a_rotated_audit(path: str) -> None:
    written(path, 6)
    os.rename(path, f"{path}.000000000006")
    written(path, 2)
    os.unlink(lock_path(path))
    written(path, 2)
    assert (numbers(path), verdict(path).findings) == (list(range(1, 11)), [])


def test_it_is_rotated_by_size_and_the_chain_goes_on(path: str) -> None:
    written(path, 20, rotation=Rotation(size=1000))
    names = [os.path.basename(each) for each in in_order(path, seal_of)]
    assert len(names) > 4
    assert names[0] == "audit.jsonl.000000000004"
    assert numbers(path) == list(range(1, 21))
    assert verdict(path).findings == []
    os.unlink(rotated(path)[1][1])
    assert [each.partition(": ")[2] for each in verdict(path).findings] == ["lines 5 to 8 are missing before it"]


def test_it_is_rotated_by_age_however_the_clock_jumps(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own, now = trail(path, rotation=Rotation(age=3600)), time.time()
    for moment, files_then in ((0, 1), (3000, 1), (4000, 2), (-9000, 3), (-9000, 3), (10**9, 4)):
        monkeypatch.setattr(time, "time", lambda moment=moment: now + moment)
        own.append(EVENT)
        assert len(rotated(path)) + 1 == files_then
    assert verdict(path).findings == []


def test_old_files_are_removed_and_the_audit_says_so(path: str) -> None:
    written(path, 30, rotation=Rotation(size=1000, keep=2))
    assert len(rotated(path)) == 2
    found = verdict(path)
    assert found.findings == []
    assert any("were removed, as the settings ask" in note for note in found.notes)
    os.unlink(rotated(path)[0][1])
    assert "are missing at the beginning" in verdict(path).findings[0]


def test_rotation_never_replaces_a_file(path: str) -> None:
    own = trail(path, rotation=Rotation(size=1))
    own.append(EVENT)
    Path(f"{path}.000000000001").write_bytes(b"mine")
    own.append(EVENT)
    assert Path(f"{path}.000000000001").read_bytes() == b"mine"
    assert len(list(Path(path).parent.glob("*.000000000001~*"))) == 1


def test_a_rotation_that_fails_costs_no_line(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[str] = []
    own = trail(path, rotation=Rotation(size=1000), on_fault=faults.append)

    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(files, "rename", refused)
    for _ in range(9):
        own.append(EVENT)
    assert faults == ["rotating the audit: Permission denied"]
    assert (numbers(path), verdict(path).findings) == (list(range(1, 10)), [])


LOGROTATE: dict[str, Callable[[str], object]] = {
    "renamed": lambda path: os.rename(path, f"{path}.1"),
    "renamed and made": lambda path: (os.rename(path, f"{path}-20261122"), Path(path).touch()),
    "copied and truncated": lambda path: (shutil.copy(path, f"{path}.1"), os.truncate(path, 0)),
    "compressed": lambda path: (
        Path(f"{path}.1.gz").write_bytes(gzip.compress(Path(path).read_bytes())),
        os.unlink(path),
    ),
    "linked by a backup": lambda path: os.link(path, f"{path}.backup"),
}


@pytest.mark.parametrize("rotate", LOGROTATE.values(), ids=LOGROTATE)
def test_other_programs_may_rotate(path: str, rotate: Callable[[str], object]) -> None:
    own = trail(path)
    own.append(EVENT)
    own.append(EVENT)
    rotate(path)
    own.append(EVENT)
    assert Path(path).read_bytes().count(b"\n") == 1
    if not os.path.exists(f"{path}.backup"):  # a second copy of its lines
        found = verdict(path)
        assert (found.lines, found.findings) == (3, [])


def test_a_removed_file_is_found_missing_and_a_removed_lock_costs_nothing(path: str) -> None:
    own, other = trail(path), trail(path)
    own.append(EVENT)
    other.append(EVENT)
    os.unlink(lock_path(path))
    for each in (own, other, own):
        each.append(EVENT)
    assert (numbers(path), verdict(path).findings) == ([1, 2, 3, 4, 5], [])
    os.unlink(path)
    own.append(EVENT)
    assert verdict(path).findings == ["lines 1 to 5 are missing at the beginning"]
    os.unlink(lock_path(path))
    os.rename(path, f"{path}.000000000006")
    own.append(EVENT)
    assert numbers(path) == [6, 7]


@pytest.mark.parametrize("piece", [b'{"n":4,"at', b"\0" * 700, b'{"n":4}\n\0\0', b"x\ny\n", b"\n"], ids=repr)
@pytest.mark.parametrize("headless", [False, True], ids=["", "headless"])
def test_the_next_writer_closes_what_a_crash_has_torn(path: str, piece: bytes, *, headless: bool) -> None:
    lines = written(path, 3)
    with open(path, "ab") as file:
        file.write(piece)
    if headless:
        os.unlink(lock_path(path))
    if not piece.endswith(b"\n"):
        headless_too = ["the lock file is missing or has no head: lines may be missing at the end"] * headless
        torn = ["audit.jsonl, line 4: it was changed or damaged", *headless_too]
        assert verdict(path).findings == torn or b"\n" in piece
    written(path, 2)
    text = Path(path).read_bytes()
    assert text.startswith(b"".join(lines) + piece)
    found = verdict(path)
    assert (found.lines, found.findings) == (6, [])
    assert found.notes == [
        f"audit.jsonl: a crash has torn a line, of which {len(piece.removesuffix(bytes([10])))} bytes are left (line 4)"
    ]


def test_a_writer_that_was_killed_before_it_noted_its_line_loses_nothing(path: str) -> None:
    """The head is older than the file."""
    written(path, 3)
    head = Path(lock_path(path)).read_bytes()
    lines = written(path, 2)
    Path(lock_path(path)).write_bytes(head)
    assert verdict(path).findings == []
    written(path, 1)
    assert Path(path).read_bytes().splitlines(keepends=True)[:5] == lines
    assert (numbers(path), verdict(path).findings) == ([1, 2, 3, 4, 5, 6], [])


def test_whole_lines_behind_the_end_are_not_covered_up(path: str) -> None:
    """A tail that does not follow is closed as what a crash leaves, and still reported."""
    lines = written(path, 5)
    with open(path, "ab") as file:
        file.write(b"\0\0\n" + lines[3])
    written(path, 1)
    assert verdict(path).findings == [
        "audit.jsonl, line 7: it is whole, and was behind the end of the chain: inserted, or lost"
    ]


def test_after_a_power_cut_what_was_lost_shows(path: str) -> None:
    """The file is shorter than its head says: the chain goes on from the head, and the gap stays."""
    lines = written(path, 6)
    os.truncate(path, sum(map(len, lines[:4])) + 20)
    written(path, 1)
    found = verdict(path)
    assert [each.partition(": ")[2] for each in found.findings] == ["lines 5 to 6 are missing before it"]
    assert numbers_of_whole(path) == [1, 2, 3, 4, 7, 8]


def numbers_of_whole(path: str) -> list[int]:
    found = (parsed(line, seal_of) for line in Path(path).read_bytes().splitlines())
    return [line.n for line in found if line is not None]


def test_a_disk_that_fills_tears_a_line_and_the_next_one_goes_on(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = trail(path)
    own.append(EVENT)

    def half(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:30])
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_all", half)
        for _ in range(2):
            with pytest.raises(DiskError, match="No space left"):
                own.append(EVENT)
    assert own.append(EVENT) == 3
    assert verdict(path).findings == []


NOT_FILES: dict[str, tuple[Callable[[str], object], str]] = {
    "a link": (lambda path: os.symlink("/dev/null", path), "symbolic link"),
    "a pipe": (os.mkfifo, "not a regular file"),
    "a directory": (os.mkdir, "directory"),
}


@pytest.mark.parametrize(("make", "cause"), NOT_FILES.values(), ids=NOT_FILES)
def test_what_is_no_file_is_refused(path: str, make: Callable[[str], object], cause: str) -> None:
    own = trail(path)
    own.append(EVENT)
    os.unlink(path)
    make(path)
    with pytest.raises(DiskError):
        own.append(EVENT)
    with pytest.raises(StartupError, match=cause) as refused:
        trail(path).try_out()
    assert "\n" not in str(refused.value)


def test_nobody_waits_for_ever_for_a_writer_that_is_stopped(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persistence.audit.audit_log._PATIENCE", 0.05)
    own = trail(path)
    with LogLock(lock_path(path), 1).holding("never"), pytest.raises(BusyError):
        own.append(EVENT)
    assert own.append(EVENT) == 1


def test_a_line_that_is_being_written_when_it_is_closed_is_whole_and_durable(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descriptor is not closed meanwhile, which could be another file's by then; later ones are refused."""
    own, synced = trail(path), list[int]()
    own.append(EVENT)
    is_writing, really, sync = threading.Event(), files.write_all, files.sync

    def slowly(descriptor: int, data: bytes) -> None:
        is_writing.set()
        time.sleep(0.2)
        really(descriptor, data)

    def counted(descriptor: int) -> None:
        sync(descriptor)
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(files, "write_all", slowly)
    monkeypatch.setattr(files, "sync", counted)
    writer = threading.Thread(target=own.append, args=(EVENT,))
    writer.start()
    assert is_writing.wait(10)
    close(own)
    writer.join()
    with pytest.raises(BusyError):
        own.append(EVENT)
    own.close()
    assert (verdict(path).lines, verdict(path).findings) == (2, [])
    assert synced[-1] == os.path.getsize(path)


def test_lines_become_durable_by_themselves(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persistence.audit.audit_log._SYNC_PAUSE", 0.01)
    synced = threading.Event()
    monkeypatch.setattr(files, "sync", lambda _: synced.set())
    own = trail(path)
    own.append(EVENT)
    assert synced.wait(5)
    close(own)
    with pytest.raises(BusyError):
        own.append(EVENT)
    synced.clear()
    strict = trail(path, syncs_lines=True)
    strict.append(EVENT)
    assert synced.is_set()


def test_where_there_is_no_audit(path: str) -> None:
    with pytest.raises(NotFoundError):
        verdict(path)


WRITER = """
import sys
from persistence.audit.audit_log import AuditEvent
from persistence.audit.audit_log import AuditTrail, Rotation
own = AuditTrail(sys.argv[1], rotation=Rotation(size=20_000))
print(flush=True)
number = 0
while True:
    number += 1
    own.append(AuditEvent(action="update", id=f"{sys.argv[2]}-{number}", user="x" * (number % 900)).encoded())
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


@pytest.fixture
def writers(path: str) -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """Start processes that write until they are killed, and print the number of each line when it is written."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: int) -> subprocess.Popen[bytes]:
        with open(f"{path[:-12]}/out-{name}", "wb") as output:
            started.append(subprocess.Popen([sys.executable, "-c", WRITER, path, str(name)], stdout=output))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()


def test_eight_processes_write_and_are_killed_and_no_line_is_lost(
    path: str, writers: Callable[[int], subprocess.Popen[bytes]]
) -> None:
    """A kill may end a write between two pages of memory; the next writer closes that line, which counts for nobody."""
    chosen, names = random.Random(15), iter(range(100))
    running = {name: writers(name) for _ in range(8) if (name := next(names)) >= 0}
    while any(not os.path.getsize(f"{path[:-12]}/out-{name}") for name in running):
        time.sleep(0.02)
    for _ in range(8):
        time.sleep(0.1)
        victim = chosen.choice(sorted(running))
        running.pop(victim).send_signal(signal.SIGKILL)
        fresh = next(names)
        running[fresh] = writers(fresh)
    for each in running.values():
        each.kill()
        each.wait()
    opened(AuditTrail(path)).append(EVENT)
    found = verdict(path)
    assert found.findings == []
    lines = [line for each in in_order(path, seal_of) for line in Path(each).read_bytes().splitlines()]
    events = [json.loads(line) for line in lines if line.endswith(b"}")]
    torn = len(lines) - len(events)
    assert torn <= sum(event["action"] == REPAIRED for event in events)
    assert torn <= 16
    ids = {event.get("id") for event in events}
    for out in Path(path).parent.glob("out-*"):
        said = [line for line in out.read_text().split("\n")[:-1] if line]
        assert all(f"{out.name[4:]}-{number}" in ids for number in said), out.name
    assert len(rotated(path)) > 1


def test_details_that_are_too_long_are_left_out(path: str) -> None:
    (line,) = written(path, 1, AuditEvent(action="export", details={"match": ["x" * 250] * 1000}).encoded())
    assert json.loads(line)["details"]["left_out"] > 250_000
    assert verdict(path).findings == []


def test_a_link_in_a_data_directory_does_not_lead_the_audit_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/audit.jsonl").symlink_to(tmp_path / "audit.jsonl")
    (tmp_path / "linked").symlink_to(tmp_path / "data")
    for path in ("data/audit.jsonl", "linked/audit.jsonl"):
        with pytest.raises(StartupError, match="must not lie in the data directory"):
            require_outside(f"{tmp_path}/{path}", [f"{tmp_path}/data"])
    require_outside(f"{tmp_path}/audit.jsonl", [f"{tmp_path}/data"])


@pytest.mark.parametrize(
    ("wanted", "is_found"),
    [
        ({"document": "a"}, True),
        ({"document": "b", "form": "leave"}, True),
        ({"document": "c"}, False),
        ({"document": "b", "form": "other"}, False),
        ({"name": "a"}, False),
    ],
)
def test_a_line_is_about_each_of_its_documents(wanted: dict[str, str], is_found: bool) -> None:  # noqa: FBT001
    line = {"n": 1, "action": "document-delete", "form": "leave", "details": {"document": ["a", "b"], "name": "a"}}
    assert is_of_kind(line, wanted) is is_found
