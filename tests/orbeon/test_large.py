"""Attachments of 2 GB in all pass through an import in pieces, whatever the engine."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forms.vectors import Form
from tests.orbeon.databases import ZONE, RuntimeDatabase

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("orbeon")]

_SIZE = 14_000_000
_COUNT, _FEWER = 150, 20
"""Attachments; fewer in MariaDB, which without an index scans the table for each piece."""

_LARGEST_GROWTH = 150_000
"""KB that an import with large attachments may take more than one with small ones, whatever their number."""

_RUN = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "persistence", *sys.argv[1:]])
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def _imported(found: RuntimeDatabase, directory: Path) -> int:
    """Import into a new tree; return the most memory that the command took, in KB."""
    directory.mkdir()
    own = ["--data", str(directory / "data"), "--dialect", "orbeon"]
    subprocess.run([sys.executable, "-m", "persistence", "init", *own], cwd=directory, check=True, capture_output=True)
    command = [sys.executable, "-c", _RUN, "import", found.address, *own, "--time-zone", ZONE]
    done = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)
    status, most = done.stdout.splitlines()[-1].split()
    assert status == "0", done.stderr
    return int(most)


def _fill(found: RuntimeDatabase, size: int) -> dict[str, str]:
    """Add a document with attachments to an empty database; return their digests by name."""
    found.definition("2024-01-01 12:00:00", Form("<form/>").document())
    digests, names = {}, [f"scan{number:03}.bin" for number in range(_FEWER if found.kind == "mysql" else _COUNT)]
    for name in names:
        content = os.urandom(1000) + b"x" * (size - 1000)
        digests[name] = hashlib.sha256(content).hexdigest()
        found.file("d1", "2024-01-02 12:00:00", name, content)
    named = "".join(f"<f>/fr/service/persistence/crud/hr/leave/data/d1/{name}</f>" for name in names)
    found.data("d1", "2024-01-02 12:00:01", f"<form>{named}</form>")
    return digests


def test_two_gigabytes_of_attachments_are_streamed(database: RuntimeDatabase, tmp_path: Path) -> None:
    database.make()
    _fill(database, 2000)
    before = _imported(database, tmp_path / "small")
    for table in ("orbeon_form_definition", "orbeon_form_data", "orbeon_form_data_attach"):
        database.clear(table)
    digests = _fill(database, _SIZE)
    most = _imported(database, tmp_path / "large")
    (folder,) = (tmp_path / "large/data").glob("*/*/data/d1")
    for name, digest in digests.items():
        with (folder / name).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == digest
    assert most < before + _LARGEST_GROWTH
