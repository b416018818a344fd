"""How much more memory a process takes for a large content, up and down: run by itself, prints mebibytes."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.postgresql.database import Database
from persistence.postgresql.database_storage import DatabaseStorage
from tests.storage.contract import next_sidecar, revision, write

CHUNK = 1 << 18
FILE = DocumentAddress(Form("hr", "leave"), Collection.DATA, "D", "a.bin")


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


def main(uri: str, local: str, mebibytes: int) -> None:
    with Database(uri, lock_timeout=30) as database:
        storage = DatabaseStorage(database, local)
        for number in range(8):
            write(storage, FILE, str(number))
        before = peak()
        sent, received = hashlib.sha256(), hashlib.sha256()
        with storage.upload(FILE) as upload:
            for number in range(mebibytes << 2):
                chunk = number.to_bytes(8, "big") * (CHUNK // 8)
                sent.update(chunk)
                upload.write(chunk)
            upload.flush()
            with storage.writing(FILE) as writer:
                over = writer.current(FILE)
                writer.commit(FILE, next_sidecar(upload, over), upload, over=over)
        with revision(storage.read(FILE, content=True)).opened as file:
            while chunk := file.read(CHUNK):
                received.update(chunk)
        assert sent.digest() == received.digest()
        sys.stdout.write(f"{(peak() - before) / (1 << 20):.1f}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
