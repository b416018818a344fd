"""The aims of the service that need a measurement of their own: results beside aims.

``python bench/aims.py`` measures all of them; ``--only saving,list`` some. What is compared runs in turn, round by
round, and the result is the median. ``--write`` puts the table into bench/results/aims.md. The aims of a GET and a PUT
beside other servers, and of large attachments, are in the tables of ``bench/bench.py``. Judges nothing.
"""

from __future__ import annotations

import argparse
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from statistics import median

from client import Connection, new, over, putting, request
from forms import warm_list
from orders import APP, FORM, Orders, definition, documents, plant
from processes import children, resident
from report import Aim, aims, load, machine, write
from search import publish, reindexed
from servers import SERVICE, scratch, served, server
from wrk import drive, mixed, rate

_CLIENTS = 8
_DOCUMENT = "/crud/bench/form/data/{}/data.xml"
_ORDER = f"/crud/{APP}/{FORM}/data/{{}}/data.xml"
_SMALL, _SIZE = 1_000, 5_000
"""Documents of the small form, and bytes of a document."""

_SAMPLE = 2_000
_REVISIONS = 100
_VERSIONS = 2_000
_OF_PUTS = 0.05
_STRETCH = 10

Measuring = Callable[[Path, argparse.Namespace], Iterator[Aim]]


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", default=",".join(_ALL), help=f"of {', '.join(_ALL)}, with commas between them")
    arguments.add_argument("--seconds", type=int, default=3, help="length of one measurement")
    arguments.add_argument("--rounds", type=int, default=5, help="measurements of each, in turn")
    arguments.add_argument("--documents", type=int, default=100_000, help="documents of the large form")
    arguments.add_argument("--requests", type=int, default=200_000, help="requests after which memory is looked at")
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--threads", type=int, default=8)
    arguments.add_argument("--data", default=None, help="directory to write in (default: a temporary one)")
    arguments.add_argument("--write", action="store_true", help="put the table into bench/results/aims.md")
    options, before = arguments.parse_args(), load()
    found: list[Aim] = []
    for name in options.only.split(","):
        with scratch(options.data) as directory:
            results = list(_ALL[name.strip()](directory, options))
        found += results
        print(aims(results), flush=True)
    if options.write:
        write("aims", "Aims", f"{machine(options.workers, options.threads, before)}\n\n{aims(found)}")


def _in_turn(rounds: int, ours: Callable[[], float], theirs: Callable[[], float]) -> float:
    """Return the median ratio of two measurements."""
    return median(ours() / theirs() for _ in range(rounds))


def _heads(directory: Path, options: argparse.Namespace) -> Iterator[Aim]:
    """HEAD, which wrk cannot send, on one connection; and GET that is answered 304."""
    size = (options.workers, options.threads)
    with server(SERVICE, f"{directory}/data", *size) as port, server("constant:app", str(directory), *size) as constant:
        _ask(port, putting(_DOCUMENT.format(1)))
        unchanged = request("GET", _DOCUMENT.format(1), headers=[f"If-None-Match: {_tag(port)}"])
        head, same = request("HEAD", _DOCUMENT.format(1)), request("HEAD", "/")
        one = _in_turn(options.rounds, lambda: _alone(port, head, options), lambda: _alone(constant, same, options))
        yield Aim("HEAD, 1 connection, times HEAD of the Flask constant", one, 0.9)
        yield Aim(
            "GET with 304, times GET of the Flask constant",
            _in_turn(
                options.rounds,
                lambda: rate(port, [unchanged], _CLIENTS, options.seconds),
                lambda: rate(constant, [request("GET", "/")], _CLIENTS, options.seconds),
            ),
            0.9,
        )


def _tag(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("HEAD", _DOCUMENT.format(1))
    tag = connection.getresponse().headers["ETag"]
    connection.close()
    return str(tag)


def _alone(port: int, sent: bytes, options: argparse.Namespace) -> float:
    """Return the requests per second of one connection."""
    connection, count, began = Connection(port), 0, time.perf_counter()
    while time.perf_counter() < began + options.seconds:
        connection.seconds(sent)
        count += 1
    connection.close()
    return count / (time.perf_counter() - began)


def _ask(port: int, sent: bytes) -> None:
    connection = Connection(port)
    connection.seconds(sent)
    connection.close()


def _saving(directory: Path, options: argparse.Namespace) -> Iterator[Aim]:
    """PUT over documents with a history, and PUT of new ones with and without an index of eight controls."""
    size = (options.workers, options.threads)
    (directory / "bare").mkdir()
    with ExitStack() as stack:
        ours, unindexed, bare = (
            stack.enter_context(server(application, f"{directory}/{name}", *size))
            for name, application in (("data", SERVICE), ("unindexed", "unindexed:app"), ("bare", "bare:app"))
        )
        publish(ours, definition())
        publish(unindexed, definition())
        connection = Connection(ours)
        paths = over(_DOCUMENT)
        for path in paths:
            for _ in range(_REVISIONS):
                connection.seconds(putting(path))
        connection.close()
        yield Aim(
            f"PUT over documents of {_REVISIONS} revisions and more, times bare WSGI",
            _in_turn(
                options.rounds,
                lambda: rate(ours, map(putting, paths), _CLIENTS, options.seconds),
                lambda: rate(bare, map(putting, over("/{}")), _CLIENTS, options.seconds),
            ),
            0.75,
        )
        body = Orders(1000, _SIZE).order(1).xml()
        yield Aim(
            "PUT of new documents with 8 indexed controls, times the same without an index",
            _in_turn(
                options.rounds,
                lambda: rate(ours, [putting(new(_ORDER), body)], _CLIENTS, options.seconds),
                lambda: rate(unindexed, [putting(new(_ORDER), body)], _CLIENTS, options.seconds),
            ),
            0.92,
        )


def _beside(directory: Path, options: argparse.Namespace) -> Iterator[Aim]:
    """The p99 of GETs on one connection, with nothing else and while eight connections PUT."""
    with server(SERVICE, f"{directory}/data", options.workers, options.threads) as port:
        _ask(port, putting(_DOCUMENT.format(1)))
        get = [request("GET", _DOCUMENT.format(1))]
        ratios = []
        for _ in range(options.rounds):
            idle = drive(port, get, 1, options.seconds).p99
            writing = threading.Thread(
                target=drive, args=(port, [putting(new(_DOCUMENT))], _CLIENTS, options.seconds + 2)
            )
            writing.start()
            time.sleep(1)
            ratios.append(drive(port, get, 1, options.seconds).p99 / idle)
            writing.join()
    yield Aim("p99 of GET while 8 connections PUT, times its idle p99", median(ratios), 5, is_least=False)


def _memory(directory: Path, options: argparse.Namespace) -> Iterator[Aim]:
    """The memory of a worker after many requests, a twentieth of them PUTs, and its growth after a tenth of them."""
    environment = {"PERSISTENCE_DATA": f"{directory}/data"}
    with server(SERVICE, f"{directory}/data", 1, 1):  # makes the tree
        pass
    with served(SERVICE, environment, 1, options.threads) as (port, master):
        _ask(port, putting(_DOCUMENT.format(1)))
        (worker,), answered, early = children(master), 0, 0.0
        while answered < options.requests:
            kinds = {
                "get": (1 - _OF_PUTS, [request("GET", _DOCUMENT.format(1))]),
                "put": (_OF_PUTS, [putting(new(_DOCUMENT))]),
            }
            answered += mixed(port, kinds, _CLIENTS, _STRETCH, threads=_CLIENTS).requests
            if not early and answered >= options.requests / 10:
                early = resident(worker)
        last = resident(worker)
    yield Aim(f"memory of a worker after {answered:,} requests", last, 70, is_least=False, unit="MB")
    yield Aim("its growth after the first tenth of them", last - early, 2, is_least=False, unit="MB")


def _sizes(directory: Path, options: argparse.Namespace) -> Iterator[Aim]:
    """The start with many documents, and GETs and PUTs beside those in a form that has few."""
    samples, trees = [], [directory / "small", directory / "large"]
    for tree, count in zip(trees, (_SMALL, options.documents), strict=True):
        orders = Orders(count, _SIZE)
        plant(tree, orders)
        reindexed(tree)
        step = max(1, count // _SAMPLE)
        samples.append([request("GET", _path(path)) for path, _, _ in islice(documents(orders), 0, None, step)])
    yield Aim(
        f"start to first answer with {options.documents:,} documents",
        median(_started(trees[1], samples[1][0], options) for _ in range(options.rounds)),
        *(1.0, False, "s"),
    )
    size = (options.workers, options.threads)
    body = Orders(1000, _SIZE).order(1).xml()
    with server(SERVICE, str(trees[0]), *size) as small, server(SERVICE, str(trees[1]), *size) as large:
        gets = _in_turn(
            options.rounds,
            lambda: rate(large, samples[1], _CLIENTS, options.seconds),
            lambda: rate(small, samples[0], _CLIENTS, options.seconds),
        )
        yield Aim(f"GET with {options.documents:,} documents, times with {_SMALL:,}", gets, 0.9)
        puts = _in_turn(
            options.rounds,
            lambda: rate(large, [putting(new(_ORDER), body)], _CLIENTS, options.seconds),
            lambda: rate(small, [putting(new(_ORDER), body)], _CLIENTS, options.seconds),
        )
        yield Aim(f"PUT of new ones with {options.documents:,} documents, times with {_SMALL:,}", puts, 0.9)


def _path(below: str) -> str:
    return f"/crud/{APP}/{FORM}/{below}"


def _started(tree: Path, sent: bytes, options: argparse.Namespace) -> float:
    began = time.perf_counter()
    with server(SERVICE, str(tree), options.workers, options.threads) as port:
        _ask(port, sent)
        return time.perf_counter() - began


def _list(_directory: Path, _options: argparse.Namespace) -> Iterator[Aim]:
    """The list of published forms."""
    yield Aim(f"list of {_VERSIONS:,} published versions, warm", warm_list(_VERSIONS), 40, is_least=False, unit="ms")


_ALL: dict[str, Measuring] = {
    "heads": _heads,
    "saving": _saving,
    "beside": _beside,
    "memory": _memory,
    "sizes": _sizes,
    "list": _list,
}

if __name__ == "__main__":
    main()
