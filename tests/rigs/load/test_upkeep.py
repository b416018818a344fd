"""Checking, repairing, backing up and copying a tree that is being written all the time."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import persistence
from tests.maintenance.workshop import Workshop
from tests.rigs.load.hammer import DOCUMENTS, body_of, hammer
from tests.service import Service, running

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
def under_load(directory: Path) -> Iterator[None]:
    """A service being hammered for the block, and until enough was written. At the end nothing must have gone wrong."""
    with (
        running(directory, workers=2, threads=4) as service,
        ProcessPoolExecutor(WRITERS, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        for document in DOCUMENTS:
            stored = service.put(
                path(document), body_of(0, "start"), Form_Definition_Version=1, Workflow_Stage="0 start"
            )
            assert stored.status == 201
        over = directory / "over"
        hammers = [pool.submit(hammer, service.port, number, _LONGEST, over) for number in range(WRITERS)]
        await_writes(service, 1)
        try:
            yield
            await_writes(service, _ENOUGH + 1)
        finally:
            over.touch()
        outcomes = [each.result() for each in hammers]
        assert [violation for outcome in outcomes for violation in outcome.violations] == []
        assert sum(outcome.increments.total() for outcome in outcomes) > _ENOUGH


def await_writes(service: Service, number: int) -> None:
    """Wait until there were so many, which the counters tell."""
    deadline = time.monotonic() + _LONGEST
    while sum(int(str(service.head(path(each))["Svc-Workflow-Stage"]).split()[0]) for each in DOCUMENTS) < number:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def path(document: str) -> str:
    return f"app/form/data/{document}/data.xml"


def is_whole(workshop: Workshop, document: str, *, with_headers: bool) -> bool:
    """Whether a document is one that a writer wrote, to its last byte, with the headers of the same write."""
    status, body = workshop.get(path(document))
    said = re.match(rb'<d count="(\d+)" token="(\w+)">', body)
    assert status == 200
    count, token = int(said[1]), said[2].decode()
    stage = workshop.head(path(document))["Svc-Workflow-Stage"]
    return body == body_of(count, token) and (not with_headers or stage == f"{count} {token}")


def documents_of(kind: str, found: list[str]) -> set[str]:
    return {line.split("/")[3] for line in found if line.startswith(f"{kind} ")}


def test_a_check_of_a_busy_tree_finds_and_repairs_nothing(tmp_path: Path) -> None:
    """A writer at work looks like a crash to whoever does not wait for it."""
    with under_load(tmp_path):
        for _ in range(_ROUNDS):
            assert findings(tmp_path / "data", "--repair", "--adopt", "--all", "--deep") == (0, [])
    assert findings(tmp_path / "data", "--deep") == (0, [])


def test_a_backup_of_a_busy_tree_holds_whole_documents(tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    with under_load(tmp_path / "busy"):
        for _ in range(_BACKUPS):
            done = persistence("backup", str(backups), data=tmp_path / "busy/data")
            assert (done.returncode, done.stdout) == (0, ""), done.stderr
    made = sorted(backups.glob("2*"))
    assert len(made) == _BACKUPS
    for number, backup in enumerate((made[0], made[-1])):
        restored = tmp_path / f"restored-{number}" / "data"
        restored.parent.mkdir()
        done = persistence("restore", str(backup), data=restored)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert findings(restored, "--deep") == (0, [])
        assert all(is_whole(Workshop(restored), document, with_headers=True) for document in DOCUMENTS)


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
    with under_load(tmp_path / "busy"):
        for each in range(number):
            copy = tmp_path / f"copy-{each}" / "data"
            copy.parent.mkdir()
            # What goes while it is being copied is said, and no obstacle: status 24 and 1.
            done = subprocess.run(
                [command, flag, f"{tmp_path}/busy/data/", str(copy)], capture_output=True, text=True, check=False
            )
            assert done.returncode in {0, 1, 24}, done.stderr
            copies.append(copy)
            time.sleep(_PAUSE)
    for copy in copies:
        status, repaired = findings(copy, "--repair")
        assert status in {0, 3, 5}, repaired  # 5: a content newer than its sidecar looks like an edit
        status, found = findings(copy, "--deep")
        # Not those of the content: made from an older revision's, or that of a revision that was saved meanwhile.
        edited = documents_of("edited", found) | documents_of("sidecar-missing", repaired)
        absent = documents_of("no-sidecar", found)
        assert status in {0, 5}, found
        for document in set(DOCUMENTS) - absent:
            assert is_whole(Workshop(copy), document, with_headers=document not in edited), (document, found)
        assert findings(copy, "--adopt", "--all")[0] in {0, 3}
        assert all(is_whole(Workshop(copy), document, with_headers=False) for document in DOCUMENTS)
        assert findings(copy, "--deep") == (0, [])
