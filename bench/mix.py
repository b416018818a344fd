"""A day's mix of requests for some minutes: latencies by kind, and the growth of memory and of descriptors.

``python bench/mix.py`` lays down 100,000 documents of 5 KB in 20 forms with eight indexed controls, has them indexed,
and sends 70 % GETs, 15 % PUTs (half of them new), 10 % searches and 5 % attachments (half of them stored).
``--write`` puts the tables into bench/results/mix.md. Judges nothing.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from client import Connection, binary, new, putting, request
from orders import APP, Orders, documents, plant
from processes import children, descriptors, memory, resident
from report import load, machine, number, table, write
from search import cases, reindexed
from servers import SERVICE, scratch, served
from wrk import Kind, mixed

_FORMS = tuple(f"order-{number:02}" for number in range(20))
_SIZE, _ATTACHMENT = 5_000, 200_000
_SAMPLE = 4_000
"""Documents that are read and replaced: enough that the caches of the service do not hold all of them."""

_STRETCH = 10
"""Seconds after which memory is looked at."""

_CONTENT = ("Content-Type: application/octet-stream", "Svc-Form-Definition-Version: 1")


@dataclass(frozen=True)
class Reading:
    """Memory of all processes and of the largest worker in MB, and open descriptors."""

    memory: float
    worker: float
    descriptors: int


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=int, default=300, help="length of the run")
    arguments.add_argument("--documents", type=int, default=100_000)
    arguments.add_argument("--connections", type=int, default=8)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--threads", type=int, default=8)
    arguments.add_argument("--data", default=None, help="directory to write in (default: a temporary one)")
    arguments.add_argument("--write", action="store_true", help="put the tables into bench/results/mix.md")
    options, before = arguments.parse_args(), load()
    with scratch(options.data) as directory:
        shown = _mix(directory, options)
    print(shown)
    if options.write:
        write("mix", "A day's mix", f"{machine(options.workers, options.threads, before)}\n\n{shown}")


def _mix(directory: Path, options: argparse.Namespace) -> str:
    """Lay down the documents, send the mix, and return the tables."""
    orders = Orders(options.documents, _SIZE)
    tree = directory / "data"
    plant(tree, orders, _FORMS)
    reindexed(tree)
    paths = _sample(orders)
    attached = [path.replace("data.xml", "scan.bin") for path in paths[:200]]
    with served(SERVICE, {"PERSISTENCE_DATA": str(tree)}, options.workers, options.threads) as (port, master):
        connection = Connection(port)
        for path in attached:
            connection.seconds(request("PUT", path, binary(_ATTACHMENT), _CONTENT))
        connection.close()
        readings: list[Reading] = []
        found: dict[str, list[Kind]] = {}
        for _ in range(max(2, options.seconds // _STRETCH)):
            kinds = _kinds(orders, paths, attached)
            seen = mixed(port, kinds, options.connections, _STRETCH, threads=options.connections)
            for kind, result in zip(kinds, seen.kinds, strict=True):
                found.setdefault(kind, []).append(result)
            workers = [resident(worker) for worker in children(master)]
            readings.append(Reading(memory([master]), max(workers), descriptors([master])))
    return f"{_latencies(found, len(readings) * _STRETCH)}\n{_growth(readings)}"


def _sample(orders: Orders) -> list[str]:
    """Return the paths of documents in all forms."""
    wanted = set(random.Random(1).sample(range(orders.count), min(_SAMPLE, orders.count)))
    return [
        f"/crud/{APP}/{_FORMS[at % len(_FORMS)]}/{path}"
        for at, (path, _, _) in enumerate(islice(documents(orders), orders.count))
        if at in wanted
    ]


def _kinds(
    orders: Orders, paths: Sequence[str], attached: Sequence[str]
) -> Mapping[str, tuple[float, Sequence[bytes]]]:
    """Return the requests of each kind, with its share in percent; names of new documents are of this call only."""
    bodies = [orders.order(at).xml() for at in range(50)]
    fresh = [new(f"/crud/{APP}/{form}/data/{{}}/data.xml") for form in _FORMS]
    searches = [
        request("POST", f"/search/{APP}/{form}", f"<search>{case.body}</search>".encode())
        for form in _FORMS
        for case in cases(0)
    ]
    scan = binary(_ATTACHMENT)
    return {
        "GET": (70, [request("GET", path) for path in paths]),
        "PUT, new": (7.5, [putting(path, bodies[at]) for at, path in enumerate(fresh)]),
        "PUT over": (7.5, [putting(path, bodies[at % 50]) for at, path in enumerate(paths)]),
        "search": (10, searches),
        "GET attachment": (2.5, [request("GET", path) for path in attached]),
        "PUT attachment, new": (
            2.5,
            [request("PUT", path.replace("data.xml", "scan.bin"), scan, _CONTENT) for path in fresh],
        ),
    }


def _latencies(found: Mapping[str, Sequence[Kind]], seconds: int) -> str:
    rows = []
    for kind, results in found.items():
        classes: Counter[float] = Counter()
        for result in results:
            classes.update(dict(result.classes))
        whole = Kind(sum(result.failed for result in results), tuple(classes.items()))
        times = (number(whole.percentile(part)) for part in (0.5, 0.9, 0.99, 0.999))
        rows.append((kind, str(whole.requests), number(whole.requests / seconds), *times, str(whole.failed)))
    return table(("", "requests", "a second", "p50, ms", "p90, ms", "p99, ms", "p99.9, ms", "refused"), rows)


def _growth(readings: Sequence[Reading]) -> str:
    first, last = readings[0], readings[-1]
    rows = [
        ("memory of the service, MB", *_change(first.memory, last.memory)),
        ("memory of the largest worker, MB", *_change(first.worker, last.worker)),
        ("descriptors", *_change(first.descriptors, last.descriptors)),
    ]
    return table(("", f"after {_STRETCH} s", "at the end", "growth"), rows)


def _change(first: float, last: float) -> tuple[str, str, str]:
    return number(first), number(last), f"{last - first:+.1f}"


if __name__ == "__main__":
    main()
