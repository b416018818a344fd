"""Searches over HTTP, beside the same searches as LIKE scans with joins over the same data.

``python bench/search.py [DOCUMENTS ...]`` lays down documents of a form with eight indexed controls (10,000, 100,000
and 1,000,000 of them if nothing is said, the last with little in them), has them indexed, and prints tables: how fast
the index was made, the median of each search over HTTP and of the relational one, and what a worker takes of memory.
"""

from __future__ import annotations

import http.client
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orders import APP, FORM, OF_EACH_USER, RARE_CITY, RARE_NAME, RARE_TEXT, Orders, definition, plant
from processes import children, most_resident
from relational import Like, Relational, fill
from servers import SERVICE, server

SIZES = (10_000, 100_000, 1_000_000)
_FULL, _SPARSE, _MOST_FULL = 5_000, 700, 100_000
"""Bytes of a document, and of one where there are more documents than that."""

_CALLS, _FEWEST, _MOST_SECONDS = 21, 3, 10.0
_PAGE_5000 = 49_990


@dataclass(frozen=True)
class Case:
    """A search in both worlds."""

    title: str
    body: str
    relational: Relational
    user: str = ""


def cases(count: int) -> list[Case]:
    """The searches; those with offsets only where there are so many documents."""
    created = ("2022-03-01T00:00:00.000Z", "2022-04-01T00:00:00.000Z")
    between = "".join(
        f'<query metadata="created" match="{match}">{at}</query>'
        for match, at in zip(("gte", "lt"), created, strict=True)
    )
    status = '<query path="order/status" match="exact">open</query>'
    found = [
        Case("no filter, newest first", "", Relational()),
        Case(
            "exact on one control, 100 hits",
            f'<query path="order/city" match="exact">{RARE_CITY}</query>',
            Relational((Like("order/city", RARE_CITY, is_exact=True),)),
        ),
        Case(
            "substring of 5 letters, 100 hits",
            f'<query path="order/name" match="substring">{RARE_NAME[:5].lower()}</query>',
            Relational((Like("order/name", RARE_NAME[:5].lower()),)),
        ),
        Case(
            "substring of 2 letters",
            '<query path="order/name" match="substring">qu</query>',
            Relational((Like("order/name", "qu"),)),
        ),
        Case("free text, 100 hits", f"<query>{RARE_TEXT}</query>", Relational(text=RARE_TEXT)),
        Case(
            "two controls and a month, sorted by a control",
            f"""{status}<query path="order/topics" match="token">red</query>{between}
            <query path="order/name" sort="asc"/>""",
            Relational(
                (Like("order/status", "open", is_exact=True), Like("order/topics", "red")),
                created=created,
                sort="order/name",
            ),
        ),
        Case(
            "exact on one control, a third of all", status, Relational((Like("order/status", "open", is_exact=True),))
        ),
        Case("no filter, sorted by a control", '<query path="order/name" sort="asc"/>', Relational(sort="order/name")),
    ]
    found.append(
        Case(
            "a date between two, a month of ten years",
            '<query path="order/due" match="between">2024-03-01 2024-03-31</query>',
            Relational(between=("order/due", "2024-03-01", "2024-03-31")),
        )
    )
    found.append(Case("created in a month", between, Relational(created=created)))
    if count > _PAGE_5000:
        found.append(Case("page 5,000 of everything", "<page-number>5000</page-number>", Relational(offset=_PAGE_5000)))
    return found


def main() -> None:
    """Measure and print."""
    sizes = [int(argument) for argument in sys.argv[1:]] or SIZES
    for count in sizes:
        with tempfile.TemporaryDirectory(prefix="persistence-bench-") as directory:
            _searches(Path(directory), count)


def _searches(directory: Path, count: int) -> None:
    orders = Orders(count, _FULL if count <= _MOST_FULL else _SPARSE)
    plant(directory / "data", orders)
    seconds = reindexed(directory / "data")
    size = sum(file.stat().st_size for file in (directory / "data/.index").rglob("*.sqlite"))
    each = sum(file.stat().st_size for file in (directory / f"data/{APP}/{FORM}/data" / orders.order(0).id).iterdir())
    print(
        f"\n{count} documents of {each} bytes with their sidecars; indexed in {seconds:.1f} s,"
        f" {count / seconds:.0f} a second; the index has {size / count:.0f} bytes for each\n"
    )
    relational = fill(directory / "relational.sqlite", orders)
    print(
        "| search, first page of 10 with total | hits | p50, ms | LIKE and joins, ms | ratio |\n|---|--:|--:|--:|--:|"
    )
    with server(SERVICE, f"{directory}/data", 1, 2) as port:
        for case in cases(count):
            _row(port, relational, case)
        owned = Case(f"owner only, {OF_EACH_USER} own documents", "", Relational(creator="user-7"), user="user-7")
        publish(port, definition('<permissions><permission operations="read"><owner/></permission></permissions>'))
        _row(port, relational, owned)
        print(f"\nmost memory of the worker: {_memory():.0f} MB", flush=True)


def _row(port: int, relational: sqlite3.Connection, case: Case) -> None:
    hits, ours = median(lambda: asked(port, case))
    others, theirs = median(lambda: case.relational.run(relational)[0])
    if hits != others:
        raise SystemExit(f"{case.title}: {hits} hits, and {others} in the relational database")
    print(f"| {case.title} | {hits} | {ours:.1f} | {theirs:.1f} | {theirs / ours:.1f} |", flush=True)


def asked(port: int, case: Case) -> int:
    """The hits that a search over HTTP has."""
    body = f"<search><drafts>exclude</drafts>{case.body}</search>"
    headers = {"Svc-Username": case.user} if case.user else {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", f"/search/{APP}/{FORM}", body, headers)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    if response.status != 200:
        raise SystemExit(f"{case.title}: {response.status} {answer.decode()}")
    return int(answer.split(b'"', 2)[1])


def median(call: Callable[[], int | tuple[int, list[str]]]) -> tuple[int, float]:
    """What a call returns, and the median of its milliseconds: of many calls, of few where they are slow."""
    taken: list[float] = []
    while len(taken) < _CALLS and (len(taken) < _FEWEST or sum(taken) < _MOST_SECONDS):
        began = time.perf_counter()
        found = call()
        taken.append(time.perf_counter() - began)
    return found if isinstance(found, int) else found[0], statistics.median(taken) * 1000


def reindexed(data: Path | str) -> float:
    """The seconds that a new index takes of the documents in a tree, or in a database."""
    began = time.monotonic()
    subprocess.run((sys.executable, "-m", "persistence.cli", "reindex", "--data", str(data)), check=True)
    return time.monotonic() - began


def publish(port: int, content: bytes) -> None:
    """Publish the form again, with this content."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Svc-Form-Definition-Version": "1", "Content-Type": "application/xhtml+xml"}
    connection.request("PUT", f"/crud/{APP}/{FORM}/form/form.xhtml", content, headers)
    response = connection.getresponse()
    response.read()
    if response.status not in (201, 204):
        raise SystemExit(f"PUT of the form answered {response.status}")
    connection.close()


def _memory() -> float:
    """The most resident memory, in MB, of the workers that this process has started."""
    workers = [worker for master in children(os.getpid()) for worker in children(master)]
    return max(most_resident(worker) for worker in workers)


if __name__ == "__main__":
    main()
