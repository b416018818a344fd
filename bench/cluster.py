"""The service on a file tree beside the same service on PostgreSQL, in one run.

``python bench/cluster.py [DOCUMENTS]`` lays down so many documents (1,000,000) of a form with eight indexed controls in
both, has them indexed, and measures GETs, PUTs and searches of both in turn: the same gunicorn settings, the same
client, the database on the same disk with fsync. Prints tables with ratios, and how much processor time each request
takes in the service and in the database, from which docs/cluster.md calculates. Totals of searches must be the same.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import database
from client import Connection, new, over, putting, request
from orders import APP, FORM, OF_EACH_USER, Orders, definition, plant
from processes import processor_time
from relational import Relational
from search import Case, asked, cases, median, publish, reindexed
from servers import SERVICE, served
from wrk import drive

_SPARSE, _FULL = 700, 5_000
"""Bytes of the documents that are laid down, and of those that are measured."""

_PATH = f"/crud/{APP}/{FORM}/data/{{}}/data.xml"
_SAVES = (1_000, 10_000, 100_000)
_BUSY = 0.6
"""The part of a processor that is planned for, so that there is room for peaks, checkpoints and vacuum."""


@dataclass(frozen=True)
class Side:
    """One of the two: its port, and the first processes of its service and of its database."""

    port: int
    service: int
    database: int | None

    def seconds(self) -> tuple[float, float]:
        """The processor time so far of the service, and of the database."""
        behind = [] if self.database is None else [self.database]
        return processor_time([self.service]).total, processor_time(behind).total


@dataclass(frozen=True)
class Measured:
    """Requests a second, or milliseconds; and the processor milliseconds of one in the service and in the database."""

    value: float
    service: float
    database: float


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("documents", type=int, nargs="?", default=1_000_000)
    arguments.add_argument("--seconds", type=int, default=4, help="length of one measurement")
    arguments.add_argument("--rounds", type=int, default=5, help="measurements of each, in turn")
    arguments.add_argument("--clients", type=int, default=8)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--threads", type=int, default=8)
    arguments.add_argument("--data", default=None, help="directory to write in (default: a temporary one)")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="persistence-bench-", dir=options.data) as directory:
        _measure(Path(directory), options)


def _measure(directory: Path, options: argparse.Namespace) -> None:
    count = options.documents
    orders = Orders(count, _SPARSE)
    tree = directory / "tree"
    plant(tree, orders)
    print(f"{count} documents in a tree, indexed in {reindexed(tree):.0f} s", flush=True)
    data = database.made(directory)
    with database.running(data, *database.UNSAFE) as postgresql:
        database.fill(postgresql, orders)
        print(f"{count} in a database, indexed in {reindexed(postgresql.uri):.0f} s, without fsync", flush=True)
        postgresql.settle()
    with ExitStack() as stack:
        postgresql = stack.enter_context(database.running(data))
        print(f"{postgresql.size() / count:.0f} bytes of the database for each\n")
        sides = []
        for number, (place, process) in enumerate(((str(tree), None), (postgresql.uri, postgresql.process))):
            environment = {"PERSISTENCE_DATA": place, "PERSISTENCE_LOCAL": str(directory / f"local{number}")}
            gunicorn = served(SERVICE, environment, options.workers, options.threads)
            port, master = stack.enter_context(gunicorn)
            sides.append(Side(port, master, process))
        _searches((sides[0], sides[1]), count)
        saves = _requests((sides[0], sides[1]), options, postgresql)
    _needed(saves)
    print(f"\nThe load of the machine was {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors.")


def _requests(
    sides: tuple[Side, Side], options: argparse.Namespace, postgresql: database.Server
) -> dict[str, Measured]:
    """Print the table of GETs and PUTs; returns what was measured of the database."""
    body = Orders(1000, _FULL).order(1).xml()
    for side in sides:
        connection = Connection(side.port)
        connection.seconds(putting(_PATH.format(1), body))
        connection.close()
    requests: dict[str, Callable[[], list[bytes]]] = {
        "GET": lambda: [request("GET", _PATH.format(1))],
        "PUT new": lambda: [putting(new(_PATH), body)],
        "PUT over": lambda: [putting(path, body) for path in over(_PATH)],
    }
    print(
        "\n| 5 KB | tree, a second | PostgreSQL, a second | ratio | min to max | CPU of the tree's service, ms", end=""
    )
    print(" | CPU of the service, ms | CPU of the database, ms | WAL, bytes |\n|---|--:|--:|--:|---|--:|--:|--:|--:|")
    found = {}
    for name, sent in requests.items():
        began = postgresql.written()
        pairs = [tuple(_rate(side, sent(), options) for side in sides) for _ in range(options.rounds)]
        ratios = sorted(theirs.value / ours.value for ours, theirs in pairs)
        tree, found[name] = (_middle(column) for column in zip(*pairs, strict=True))
        saved = sum(theirs.value for _, theirs in pairs) * options.seconds
        print(
            f"| {name} | {tree.value:.0f} | {found[name].value:.0f} | {statistics.median(ratios):.2f}"
            f" | {ratios[0]:.2f} to {ratios[-1]:.2f} | {tree.service:.2f} | {found[name].service:.2f}"
            f" | {found[name].database:.2f} | {(postgresql.written() - began) / saved:.0f} |",
            flush=True,
        )
    return found


def _rate(side: Side, sent: list[bytes], options: argparse.Namespace) -> Measured:
    before = side.seconds()
    load = drive(side.port, sent, options.clients, options.seconds)
    service, behind = (after - then for after, then in zip(side.seconds(), before, strict=True))
    return Measured(load.rate, service / load.requests * 1000, behind / load.requests * 1000)


def _middle(found: tuple[Measured, ...]) -> Measured:
    return Measured(
        *(statistics.median(getattr(each, name) for each in found) for name in ("value", "service", "database"))
    )


def _searches(sides: tuple[Side, Side], count: int) -> None:
    """Print the table of searches, in the documents that were laid down."""
    print("| search, first page of 10 with total | hits | tree, ms | PostgreSQL, ms | ratio", end="")
    print(" | CPU of the service, ms | CPU of the database, ms |\n|---|--:|--:|--:|--:|--:|--:|")
    for case in cases(count):
        _row(sides, case)
    owned = Case(f"owner only, {OF_EACH_USER} own documents", "", Relational(), user="user-7")
    for side in sides:
        publish(side.port, definition('<permissions><permission operations="read"><owner/></permission></permissions>'))
    _row(sides, owned)
    for side in sides:
        publish(side.port, definition())


def _row(sides: tuple[Side, Side], case: Case) -> None:
    (hits, tree), (others, postgresql) = (_search(side, case) for side in sides)
    if hits != others:
        raise SystemExit(f"{case.title}: {hits} hits in the tree, and {others} in the database")
    print(
        f"| {case.title} | {hits} | {tree.value:.1f} | {postgresql.value:.1f} | {postgresql.value / tree.value:.1f}"
        f" | {postgresql.service:.1f} | {postgresql.database:.1f} |",
        flush=True,
    )


def _search(side: Side, case: Case) -> tuple[int, Measured]:
    """The hits of a search, and what it takes."""
    calls = 0

    def call() -> int:
        nonlocal calls
        calls += 1
        return asked(side.port, case)

    before = side.seconds()
    hits, value = median(call)
    service, behind = (after - then for after, then in zip(side.seconds(), before, strict=True))
    return hits, Measured(value, service / calls * 1000, behind / calls * 1000)


def _needed(found: dict[str, Measured]) -> None:
    """Print what so many saves a second need, half of them new, each with three GETs."""
    save = [
        sum(getattr(found[name], where) * part for name, part in (("PUT new", 0.5), ("PUT over", 0.5), ("GET", 3)))
        for where in ("service", "database")
    ]
    print(f"\nA save with three GETs takes {save[0]:.2f} ms in the service and {save[1]:.2f} ms in the database.")
    print(f"Processors of this kind, {_BUSY:.0%} busy:\n\n| saves a second, with three GETs each", end="")
    print(" | processors of the service | processors of the database |\n|--:|--:|--:|")
    for saves in _SAVES:
        service, behind = (saves * each / 1000 / _BUSY for each in save)
        print(f"| {saves:,} | {service:.0f} | {behind:.0f} |")


if __name__ == "__main__":
    main()
