"""How fast the tree is looked after: a check, a backup and a restore of many documents, with the memory they take.

``python bench/maintenance.py [DOCUMENTS]`` makes a tree in a temporary directory and prints a table: documents
a second, in times of what ``cp --archive`` needs for the same tree, and the most memory. One document has 5 KB.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from persistence.model.sidecar import SCHEMA, Sidecar, digest_text, fresh_id, stamp
from persistence.model.texts import next_after
from persistence.storage import stored_revision
from persistence.storage.root import init
from persistence.storage.store import Store

_DOCUMENTS = 100_000
_BODY = b"<form><text>" + b"x" * 5000 + b"</text></form>"
_COMMAND = (sys.executable, "-m", "persistence.cli")


def main() -> None:
    """Make the tree, run the commands on it, print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _DOCUMENTS
    with tempfile.TemporaryDirectory(prefix="persistence-bench-") as name:
        scratch = Path(name)
        _plant(scratch / "data", count)
        runs = (
            ("cp --archive", ("cp", "--archive", f"{scratch}/data", f"{scratch}/copy")),
            ("check", (*_COMMAND, "check", "--data", f"{scratch}/data")),
            ("check --deep", (*_COMMAND, "check", "--deep", "--data", f"{scratch}/data")),
            ("backup, the first", (*_COMMAND, "backup", f"{scratch}/backups", "--data", f"{scratch}/data")),
            ("backup, nothing changed", (*_COMMAND, "backup", f"{scratch}/backups", "--data", f"{scratch}/data")),
            ("restore", (*_COMMAND, "restore", f"{scratch}/backups", "--data", f"{scratch}/restored")),
        )
        print(f"{count} documents\n")
        print("| | seconds | documents a second | times cp | most memory, MB |\n|---|--:|--:|--:|--:|")
        copying = 0.0
        for title, command in runs:
            seconds, memory = timed(command)
            copying = copying or seconds
            print(
                f"| {title} | {seconds:.1f} | {count / seconds:.0f} | {seconds / copying:.2f} | {memory:.0f} |",
                flush=True,
            )


def _plant(root: Path, count: int) -> None:
    """Lay down documents as the service leaves them, without its fsyncs."""
    init(str(root))
    Store(str(root), lock_timeout=1).close()
    digest = digest_text(hashlib.sha256(_BODY).hexdigest())
    for number in range(count):
        address = f"hr/leave/data/{number:08}/data.xml"
        file = root / address
        file.parent.mkdir(parents=True, mode=0o750)
        now = next_after(None)
        sidecar = Sidecar(
            schema=SCHEMA, id=fresh_id(), version=1, modified=now, created=now, size=len(_BODY), digest=digest
        )
        file.write_bytes(_BODY)
        file.with_name("data.xml.json").write_bytes(stored_revision.encode(sidecar, address))
        os.utime(file, ns=(stamp(sidecar),) * 2)


def timed(command: tuple[str, ...]) -> tuple[float, float]:
    """Seconds and the most resident memory in MB of a command, which must succeed."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - began, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
