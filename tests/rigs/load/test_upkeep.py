"""Checking, repairing, backing up, copying and emptying a tree that is being written all the time."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import persistence
from tests.in_process import InProcess
from tests.maintenance.workshop import Workshop
from tests.rigs.clients import Writer
from tests.rigs.judging import judge, mismatch
from tests.rigs.ledger import Cut, Expected, Ledger
from tests.rigs.server import working
from tests.service import alone, attachments_apart, configured, running
from tests.waiting import eventually

WRITERS = 3
_LONGEST = 60.0
_ENOUGH = 20
"""Writes that a tree must have had meanwhile, at least."""
_ROUNDS = 8
_BACKUPS = 3
_PAUSE = 0.2
"""Seconds between one copy and the next, while others are written."""


def findings(data: Path, *flags: str) -> tuple[int, list[str]]:
    checked = Workshop(data).check(*flags)
    return checked.status, [
        f"{found['kind']} {found['path']} {found['outcome']} {found['what']}" for found in checked.findings
    ]


@contextmanager
def under_load(directory: Path, settings: str = "") -> Iterator[Ledger]:
    """A service with writers for the block, and until enough was written. At the end nothing must have gone wrong."""
    ledger = Ledger()
    with running(directory, workers=2, threads=4, settings=settings) as service:
        writers = [Writer(service, ledger, number, large=1) for number in range(WRITERS)]
        for writer in writers:
            writer.begin()
        with working([writer.act for writer in writers]):
            eventually(lambda: ledger.writes > WRITERS, _LONGEST)
            before = ledger.writes
            yield ledger
            eventually(lambda: ledger.writes > before + _ENOUGH, _LONGEST)
    assert [violation for writer in writers for violation in writer.violations] == []


def faults(data: Path, expected: Sequence[Expected], *, edited: set[str], absent: set[str]) -> list[str]:
    """What in a tree is not what a writer wrote, to its last byte, with the headers of the same write.

    Not the headers of documents that look ``edited``; what is ``absent`` may be so.
    """
    found = list[str]()
    with InProcess(data) as service:
        for each in expected:
            document = each.resource.path.split("/")[3]
            answer = service.get(each.resource.path)
            if each.resource != each.resource.main or each.resource.is_published:
                continue
            if answer.status == 404 and each.current(None) is not None:
                continue
            digest = hashlib.sha256(answer.body).hexdigest()
            written = [state for state in each.states if state.revision and state.revision.digest == digest]
            if answer.status != 200 or not written:
                found += [] if document in absent else [f"{each.resource.path}: {answer.status}, {answer.body[:60]!r}"]
            elif document not in edited:
                (state,) = written
                found += mismatch(answer, state, each.resource)
    return found


def documents_of(kind: str, found: list[str]) -> set[str]:
    return {line.split("/")[3] for line in found if line.startswith(f"{kind} ")}


def test_a_check_of_a_busy_tree_finds_and_repairs_nothing(tmp_path: Path) -> None:
    """A writer at work looks like a crash to whoever does not wait for it."""
    with under_load(tmp_path):
        for _ in range(_ROUNDS):
            assert findings(tmp_path / "data", "--repair", "--adopt", "--all", "--deep") == (0, [])
    assert findings(tmp_path / "data", "--deep") == (0, [])


def ended_well(command: str, *arguments: str, home: Path) -> None:
    """A command has nothing to say about the tree below a directory with its settings."""
    env = {"PERSISTENCE_CONFIG": str(home / "settings.toml")}
    done = persistence(command, *arguments, data=home / "data", env=env)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def apart(home: Path) -> str:
    home.mkdir()
    return attachments_apart("*.*", "big", home / "big")


@pytest.mark.parametrize("is_apart", [False, True], ids=["one tree", "attachments elsewhere"])
def test_a_backup_of_a_busy_tree_holds_whole_documents(tmp_path: Path, *, is_apart: bool) -> None:
    """Every record has its body, wherever that is, though it is replaced and deleted while the backup is made."""
    home, backups, cuts = tmp_path / "busy", tmp_path / "backups", list[Cut]()
    with under_load(home, apart(home) if is_apart else "") as ledger:
        for _ in range(_BACKUPS):
            began, before = ledger.tick(), ledger.writes
            ended_well("backup", str(backups), "--verify", home=home)
            cuts.append(Cut(began, ledger.tick()))
            eventually(lambda before=before: ledger.writes > before + _ENOUGH // 2, _LONGEST)  # type: ignore[misc]
        ended_well("check", "--repair", home=home)  # a writer at work leaves no stray
    assert any((home / "big").rglob("scan*")) == is_apart
    made = sorted(backups.glob("2*"))
    assert len(made) == _BACKUPS
    for number, (backup, cut) in enumerate(zip(made, cuts, strict=True)):
        restored = tmp_path / f"restored-{number}"
        env = configured(restored, apart(restored) if is_apart else "", None)
        ended_well("restore", str(backup), home=restored)
        ended_well("check", "--deep", home=restored)
        with alone(restored, env=env) as service:
            assert judge(service, restored / "data", ledger.at(cut)).violations == []


def test_deleting_all_data_among_writers(tmp_path: Path) -> None:
    """The issue: safe against concurrent writers: every document ends deleted, or saved after its deletion."""
    paths, failures = [f"app/form/data/D{number}/data.xml" for number in range(40)], list[int]()
    with running(tmp_path, workers=2, threads=4) as service:

        def save() -> None:
            statuses = [service.put(path, b"<again/>", Form_Definition_Version=1).status for path in paths]
            failures.extend(status for status in statuses if status not in (201, 204))

        save()
        with working([save]):
            assert [service.delete("app/form/data/").status for _ in range(4)] == [200] * 4
        assert failures == []
        assert service.delete("app/form/data/").status == 200
        assert {service.get(path).status for path in paths} == {404}
        assert {service.put(path, Form_Definition_Version=1).status for path in paths} == {201}
        assert service.leftovers() == []


@pytest.mark.parametrize(
    ("command", "flag", "number"),
    [
        ("rsync", "--archive", 3),
        *(
            pytest.param(*each, 10, marks=pytest.mark.long)
            for each in (("rsync", "--archive"), ("cp", "--archive"), ("cp", "--recursive"))
        ),
    ],
)
def test_a_plain_copy_of_a_busy_tree_is_good_after_a_repair(
    tmp_path: Path, command: str, flag: str, number: int
) -> None:
    """Files of one document are copied at different times: what does not fit is found, and what is left is whole."""
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")
    copies = []
    with under_load(tmp_path / "busy") as ledger:
        for each in range(number):
            copy = tmp_path / f"copy-{each}" / "data"
            copy.parent.mkdir()
            began = ledger.tick()
            # What goes while it is being copied is said, and no obstacle: status 24 and 1.
            done = subprocess.run(
                [command, flag, f"{tmp_path}/busy/data/", str(copy)], capture_output=True, text=True, check=False
            )
            assert done.returncode in {0, 1, 24}, done.stderr
            copies.append((copy, Cut(began, ledger.tick())))
            time.sleep(_PAUSE)
    for copy, cut in copies:
        expected = ledger.at(cut)
        status, repaired = findings(copy, "--repair")
        assert status in {0, 3, 5}, repaired  # 5: a content newer than its sidecar looks like an edit
        status, found = findings(copy, "--deep")
        # Not those of the content: made from an older revision's, or that of a revision that was saved meanwhile.
        edited = documents_of("edited", found) | documents_of("sidecar-missing", repaired)
        absent = documents_of("no-sidecar", found)
        assert status in {0, 5}, found
        assert faults(copy, expected, edited=edited, absent=absent) == [], found
        assert findings(copy, "--adopt", "--all")[0] in {0, 3}
        assert faults(copy, expected, edited=edited | absent, absent=set()) == []
        assert findings(copy, "--deep") == (0, [])
    next(copy.glob("hr/leave/data/*/data.xml")).write_bytes(b"<d/>")  # proof of the judge
    assert faults(copy, expected, edited=set(), absent=set()) != []
