"""What a page of a history costs, by the number of revisions: ``python bench/history.py [DIRECTORY]``.

The documents are made in a directory below DIRECTORY, of which only the sidecars are real. A page is asked of the
application in this process, without a socket. Times are the median; the ratio is to a document of one revision. The
list of revisions is cached, but not while its directory may still change: *saved* is the first page right after a save.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path

from werkzeug.test import Client

from persistence.app import create_app
from persistence.model.addresses import PUBLIC_PREFIX
from persistence.model.sidecar import SCHEMA, Sidecar, fresh_id
from persistence.model.texts import Instant, from_datetime
from persistence.settings import Settings
from persistence.storage import stored_revision
from persistence.storage.layout import FilePaths
from persistence.storage.root import init

NUMBERS = (1, 10, 100, 1_000, 10_000)
PAGES = (10, 100)
ROUNDS = 30
REST = 2.1
"""Seconds after which a directory is taken for one that does not change under the same times."""
_BEGIN = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)


def make(root: Path, document: str, number: int) -> None:
    """Lay down a document with so many revisions."""
    paths = FilePaths(f"{root}/hr/leave/data/{document}", "data.xml")
    Path(paths.history).mkdir(parents=True)
    created = from_datetime(_BEGIN)
    for at in range(number):
        modified = from_datetime(_BEGIN + timedelta(seconds=at))
        place = paths if at == number - 1 else paths.revision(modified)
        Path(place.content).write_bytes(b"<d/>")
        Path(place.sidecar).write_bytes(stored_revision.encode(_sidecar(created, modified), paths.address))


def _sidecar(created: Instant, modified: Instant) -> Sidecar:
    return Sidecar(
        schema=SCHEMA,
        id=fresh_id(),
        version=1,
        modified=modified,
        created=created,
        size=4,
        creator="lea",
        group="staff",
        modifier="bob",
    )


def seconds(client: Client, path: str, changed: Path | None = None) -> float:
    """Return the median time of a request; ``changed`` is a directory that changes before each."""
    taken = []
    for _ in range(ROUNDS):
        if changed is not None:
            os.utime(changed)
        began = time.perf_counter()
        answer = client.get(path)
        taken.append(time.perf_counter() - began)
        if answer.status_code != HTTPStatus.OK:
            sys.exit(answer.text)
        answer.close()
    return statistics.median(taken)


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        root = Path(directory, "data")
        init(str(root))
        for number in NUMBERS:
            make(root, f"d{number}", number)
        with create_app(Settings(data=str(root), insecure=True)) as app:
            client = Client(app)
            time.sleep(REST)
            print("revisions  page size  first page ms  ratio  last page ms  ratio  saved ms")
            for size in PAGES:
                base = None
                for number in NUMBERS:
                    path = f"{PUBLIC_PREFIX}/history/hr/leave/d{number}?page-size={size}"
                    first = seconds(client, path)
                    last = seconds(client, f"{path}&page-number={(number + size - 1) // size}")
                    saved = seconds(client, path, root / f"hr/leave/data/d{number}/.history")
                    base = base or first
                    print(
                        f"{number:9}  {size:9}  {first * 1e3:13.2f}  {first / base:5.1f}"
                        f"  {last * 1e3:12.2f}  {last / base:5.1f}  {saved * 1e3:8.2f}"
                    )


if __name__ == "__main__":
    main()
