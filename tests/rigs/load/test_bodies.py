"""Backing up documents whose attachments are kept elsewhere, while these are being replaced and deleted."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.service import PUBLIC, Service, running

DOCUMENTS = 4
_BACKUPS = 4
_WRITERS = 3
_ENOUGH = 10
"""Writes between one backup and the next."""
CONFIG = """
data = "{0}/data"
"svc.persistence.provider.*.*.data.attachments" = "big"
"svc.persistence.big.base-path" = "{0}/big"
"""


def settings(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / "own.toml"
    file.write_text(CONFIG.format(directory))
    return file


def persistence(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "persistence.cli", *arguments, "--config", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def write(service: Service, number: int, over: threading.Event, counts: list[int]) -> None:
    """Replace attachments of all documents, and delete one now and then, until it is over."""
    chosen = random.Random(number)
    while not over.is_set():
        path = f"app/form/data/{chosen.randrange(DOCUMENTS)}/a{chosen.randrange(3)}.bin"
        if chosen.random() < 0.1:
            status = service.ask("DELETE", path, headers={}).status
            assert status in {204, 404, 410}, status
        else:
            status = service.put(path, chosen.randbytes(chosen.randrange(40_000)), Form_Definition_Version=1).status
            assert status in {201, 204}, status
        counts[number] += 1


def test_every_record_in_a_backup_has_its_body(tmp_path: Path) -> None:
    file = settings(tmp_path)
    (tmp_path / "big").mkdir()
    over, counts = threading.Event(), [0] * _WRITERS
    with running(tmp_path, workers=2, threads=4, options=("--config", str(file))) as service:
        service.face = PUBLIC
        for document in range(DOCUMENTS):
            stored = service.put(f"app/form/data/{document}/data.xml", b"<d/>", Form_Definition_Version=1)
            assert stored.status == 201, stored.cause
        with ThreadPoolExecutor(_WRITERS) as pool:
            writers = [pool.submit(write, service, each, over, counts) for each in range(_WRITERS)]
            try:
                for _ in range(_BACKUPS):
                    before = sum(counts)
                    done = persistence(file, "backup", str(tmp_path / "backups"), "--verify")
                    assert (done.returncode, done.stdout) == (0, ""), done.stderr
                    while sum(counts) < before + _ENOUGH and not any(writer.done() for writer in writers):
                        over.wait(0.01)
                checked = persistence(file, "check", "--repair")  # a writer at work leaves no stray
                assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr
            finally:
                over.set()
            for writer in writers:
                writer.result()
    saved = sorted((tmp_path / "backups").glob("2*"))
    assert len(saved) == _BACKUPS
    for number, backup in enumerate(saved):
        other = settings(tmp_path / f"restored-{number}")
        done = persistence(other, "restore", str(backup))
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        checked = persistence(other, "check", "--deep")
        assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr
