"""This service beside the servers that a user could pick instead, and beside the least that any server needs.

``python bench/bench.py`` starts all of them on loopback and sends the same bodies to each with wrk, in turn, round by
round; the tables have the median of the rounds. ``--quick`` takes a minute. ``--syncs`` counts the fsyncs of each.
``--write`` puts tables into bench/results, and summary and plot into docs. A peer that is not installed is left out.
Judges nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from statistics import median
from typing import NamedTuple

import processes
from client import MARK, Connection, binary, xml
from peers import BARE, CONSTANT, OURS, PEERS, PROXIED, SEEN, STATIC, Peer, Site, Size
from report import Aim, aims, load, machine, medians, number, plot, ratio, table, write, write_summary
from servers import scratch
from wrk import tried

_CONNECTIONS = (1, 8, 64)
_COMPARED = 8
"""Connections of the rows that are plotted and compared with the aims."""

_REMOVED = 100_000
"""Bytes from which what a PUT has stored is removed after its measurement, or a disk would be full."""

_LARGE = 256 << 20
_MEGABYTE = 1e6


@dataclass(frozen=True)
class Work:
    """Requests of one kind."""

    title: str
    method: str
    size: int
    is_attachment: bool = False

    def body(self) -> bytes:
        """Return the body that is stored or read."""
        return binary(self.size) if self.is_attachment else xml(self.size)

    def pattern(self, site: Site) -> str:
        """Return the path at a server, empty if it does not do this work."""
        if self.method not in site.methods or (site.xml == "/" and self.size != _GET.size):
            return ""
        return site.attachment if self.is_attachment else site.xml


_GET, _PUT = Work("GET 5 KB", "GET", 5_000), Work("PUT 5 KB, new", "PUT", 5_000)
_WORKS = (
    _GET,
    _PUT,
    Work("GET 100 KB", "GET", 100_000),
    Work("PUT 100 KB, new", "PUT", 100_000),
    Work("GET 1 MB, attachment", "GET", 1_000_000, is_attachment=True),
    Work("PUT 1 MB, attachment, new", "PUT", 1_000_000, is_attachment=True),
)


class Figures(NamedTuple):
    """Requests per second, milliseconds, processor milliseconds of a request, MB of memory, and percent refused."""

    rate: float
    p50: float
    p99: float
    user: float
    system: float
    memory: float
    refused: float


Results = Mapping[str, Figures]
"""By the name of the server."""


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="5 KB on 8 connections, in a minute")
    arguments.add_argument("--seconds", type=int, default=3, help="length of one measurement")
    arguments.add_argument("--rounds", type=int, default=3, help="measurements of each, in turn")
    arguments.add_argument("--workers", type=int, default=2, help="of each gunicorn")
    arguments.add_argument("--threads", type=int, default=8, help="of each worker")
    arguments.add_argument("--only", default="", help="names of servers, with commas between them")
    arguments.add_argument("--data", default=None, help="directory to write in (default: a temporary one)")
    arguments.add_argument("--syncs", action="store_true", help="count the fsyncs of a PUT (needs strace), and end")
    arguments.add_argument("--write", action="store_true", help="put tables into bench/results, a summary into docs")
    options, before = arguments.parse_args(), load()
    with scratch(options.data) as directory, ExitStack() as stack:
        sites = dict(_started(stack, directory, options))
        if options.syncs:
            _print_syncs(sites)
            return
        if options.quick:
            found = {(_COMPARED, work): _compared(sites, work, _COMPARED, 1, 2) for work in (_GET, _PUT)}
            large = None
        else:
            found = {
                (connections, work): _compared(sites, work, connections, options.seconds, options.rounds)
                for work in _WORKS
                for connections in _CONNECTIONS
            }
            large = _large(sites, directory, options.rounds)
            print(large.table())
        gets, puts = found[_COMPARED, _GET], found[_COMPARED, _PUT]
        judged = aims([*_judged(gets, puts), *(large.judged() if large else ())])
        print(judged)
    if options.write:
        ran = machine(options.workers, options.threads, before)
        tables = [*([large.table()] if large else ()), *(_table(*key, results) for key, results in found.items())]
        write("requests", "The service beside its peers", "\n\n".join([ran, *tables]).replace("\n\n\n", "\n\n"))
        write_summary(f"{ran}\n\n{judged}", plot(_groups(gets, puts)))


def _started(stack: ExitStack, directory: Path, options: argparse.Namespace) -> Iterator[tuple[Peer, Site]]:
    """Start every server that is installed and wanted."""
    wanted = [name.strip() for name in options.only.split(",") if name.strip()]
    for at, peer in enumerate(PEERS):
        if wanted and peer.name not in wanted:
            continue
        if lacking := peer.lacks():
            print(f"{peer.name} is left out: {lacking} is not installed (make peers says how).", flush=True)
            continue
        (directory / str(at)).mkdir()
        size = Size(options.workers, options.threads)
        yield peer, stack.enter_context(peer.start(directory / str(at) / "server", size))


def _compared(sites: Mapping[Peer, Site], work: Work, connections: int, seconds: int, rounds: int) -> Results:
    """Measure one kind of requests at all servers that do them, in turn; print and return the medians."""
    able = {peer: site for peer, site in sites.items() if work.pattern(site)}
    if work.method == "GET":
        for site in able.values():
            _store(site, work)
    measured: dict[Peer, list[Figures]] = {peer: [] for peer in able}
    for _ in range(rounds):
        for peer, site in able.items():
            measured[peer].append(_measured(site, work, connections, seconds))
    results = {peer.name: Figures(*medians(found)) for peer, found in measured.items()}
    print(_table(connections, work, results), flush=True)
    return results


def _store(site: Site, work: Work) -> None:
    """Store what is read, with the data to which an attachment belongs, and read it: no error must be measured."""
    pattern, name = work.pattern(site), f"read-{work.size}"
    if "{}" in pattern:
        site.ask(site.put(site.xml, name, xml(_GET.size)))
        site.ask(site.put(pattern, name, work.body()))
    _, body = site.ask(_reading(site, work))
    if len(body) < work.size * 0.9:
        raise RuntimeError(f"{work.title} at port {site.port} has only {len(body)} bytes")


def _reading(site: Site, work: Work) -> bytes:
    return site.get(work.pattern(site), f"read-{work.size}")


def _measured(site: Site, work: Work, connections: int, seconds: int) -> Figures:
    pattern, series = work.pattern(site), uuid.uuid4().hex
    is_get = work.method == "GET"
    sent = _reading(site, work) if is_get else site.put(pattern, f"{series}-{MARK}", work.body())
    before = processes.processor_time(site.processes)
    seen = tried(site.port, [sent], connections, seconds)
    spent = processes.processor_time(site.processes).since(before)
    memory = processes.memory(site.processes)
    if not is_get:
        _settle(site, series if work.size >= _REMOVED else "")
    requests, answered = max(1, seen.requests), seen.requests - seen.failed
    refused = 100 * (seen.failed + seen.broken) / (requests + seen.broken)
    user, system = (1000 * each / requests for each in (spent.user, spent.system))
    return Figures(answered / seen.seconds, seen.p50, seen.p99, user, system, memory, refused)


def _settle(site: Site, series: str) -> None:
    """Remove what was stored, if it is named, and let the disk come to rest, so that the next server finds it idle."""
    for path in glob(site.files.format(series)) if series and site.files else ():
        shutil.rmtree(path) if Path(path).is_dir() else Path(path).unlink(missing_ok=True)
    os.sync()


def _table(connections: int, work: Work, results: Results) -> str:
    ours = results.get(OURS)
    columns = (
        "",
        "a second",
        "times ours",
        "p50, ms",
        "p99, ms",
        "user, ms",
        "system, ms",
        "memory, MB",
        "fsync",
        "refused, %",
    )
    rows = [
        (
            *(name, number(found.rate), ratio(found.rate, ours.rate if ours else 0), number(found.p50)),
            *(number(found.p99), number(found.user), number(found.system), number(found.memory)),
            *(_BY_NAME[name].syncs if work.method == "PUT" else "", number(found.refused) if found.refused else ""),
        )
        for name, found in results.items()
    ]
    plural = "connections" if connections > 1 else "connection"
    return f"**{work.title}, {connections} {plural}**\n\n{table(columns, rows)}"


_BY_NAME = {peer.name: peer for peer in PEERS}


@dataclass(frozen=True)
class Transfers:
    """MB per second of large transfers, by the name of the server, and those of dd."""

    gets: Mapping[str, float]
    puts: Mapping[str, float]
    dd: float

    def table(self) -> str:
        """Return the table."""
        columns = ("", "GET, MB/s", "of nginx static", "PUT, MB/s", "of dd conv=fsync", "fsync")
        rows = [("dd conv=fsync", "", "", number(self.dd), "1.00", "yes")]
        for name in {**self.gets, **self.puts}:
            got, put = self.gets.get(name, 0.0), self.puts.get(name, 0.0)
            of_static = ratio(got, self.gets.get(STATIC, 0.0))
            shown = (number(got), of_static) if got else ("", "")
            stored = (number(put), ratio(put, self.dd), _BY_NAME[name].syncs) if put else ("", "", "")
            rows.append((name, *shown, *stored))
        return f"**256 MiB, one transfer at a time**\n\n{table(columns, rows)}"

    def judged(self) -> Iterator[Aim]:
        """Yield the results that have an aim."""
        if PROXIED in self.gets and STATIC in self.gets:
            yield Aim("GET 256 MiB behind nginx, times nginx static", self.gets[PROXIED] / self.gets[STATIC], 0.95)
        if OURS in self.puts:
            yield Aim("PUT 256 MiB, times dd conv=fsync", self.puts[OURS] / self.dd, 0.8)


def _large(sites: Mapping[Peer, Site], directory: Path, rounds: int) -> Transfers:
    """Measure 256 MiB, one transfer at a time, beside dd."""
    work = Work("GET 256 MiB", "GET", _LARGE, is_attachment=True)
    body, source = work.body(), directory / "large"
    source.write_bytes(body)
    able = {peer.name: site for peer, site in sites.items() if site.attachment}
    dd, gets, puts = list[float](), defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for _ in range(rounds):
        dd.append(_dd(source, directory / "copy"))
        for name, site in able.items():
            series = uuid.uuid4().hex
            if "GET" in site.methods:
                if name not in gets:
                    _store(site, work)
                gets[name].append(_transferred(site, _reading(site, work)))
            if "PUT" in site.methods:
                puts[name].append(_transferred(site, site.put(site.attachment, series, body)))
                _settle(site, series)
    source.unlink()
    return Transfers(_medians(gets), _medians(puts), median(dd))


def _medians(measured: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: median(found) for name, found in measured.items()}


def _transferred(site: Site, sent: bytes) -> float:
    """Return MB per second."""
    connection = Connection(site.port)
    seconds = connection.seconds(sent)
    connection.close()
    return _LARGE / seconds / _MEGABYTE


def _dd(source: Path, target: Path) -> float:
    began = time.perf_counter()
    command = ("dd", f"if={source}", f"of={target}", "bs=1M", "conv=fsync", "status=none")
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - began
    target.unlink()
    os.sync()
    return _LARGE / seconds / _MEGABYTE


def _judged(gets: Results, puts: Results) -> Iterator[Aim]:
    """Yield the results that have an aim, of those that were measured."""
    of_gets = {CONSTANT: 0.85, "rclone serve webdav": 0.8, "WsgiDAV": 3, "Kinto, PostgreSQL": 10}
    of_puts = {BARE: 0.8, "WsgiDAV": 1, "Radicale": 10, "Kinto, PostgreSQL": 5}
    for ours, title, results, others in ((OURS, "GET 5 KB", gets, of_gets), (OURS, "PUT 5 KB, new", puts, of_puts)):
        for name, aim in others.items():
            if ours in results and name in results:
                yield Aim(f"{title}, times {name}", results[ours].rate / results[name].rate, aim)
    if OURS in puts:
        spent = puts[OURS].user + puts[OURS].system
        yield Aim("processor time of a PUT", spent, 1.2, is_least=False, unit="ms")


def _groups(gets: Results, puts: Results) -> Iterator[tuple[str, list[tuple[str, str, float]]]]:
    """Yield the groups of the plot."""
    for title, results, mark in (("GET 5 KB", gets, ""), ("PUT 5 KB, new (* calls fsync)", puts, " *")):
        bars = []
        for name, figures in results.items():
            peer = _BY_NAME[name]
            colour = "own" if name in {OURS, PROXIED} else "floor" if peer.is_floor else "peer"
            bars.append((f"{name}{mark if peer.syncs == 'yes' else ''}", colour, figures.rate))
        yield f"{title}, {_COMPARED} connections: requests per second", bars


def _print_syncs(sites: Mapping[Peer, Site]) -> None:
    """Print how often each server calls fsync or fdatasync for a PUT, as strace sees it."""
    if shutil.which("strace") is None:
        sys.exit("strace is not installed")
    rows = []
    for peer, site in sites.items():
        if "PUT" in site.methods:
            rows.append((peer.name, number(_syncs(site)), peer.syncs))
    print(table(("", "fsyncs of a PUT", f"fsync, as the tables have it ({SEEN})"), rows))


def _syncs(site: Site) -> float:
    tried = 10
    with tempfile.NamedTemporaryFile() as log:
        followed = [each for process in site.processes for each in (process, *processes.below(process))]
        command = ["strace", "-f", "-e", "trace=fsync,fdatasync,sync_file_range,syncfs,sync", "-o", log.name]
        tracing = subprocess.Popen([*command, *(f"-p{each}" for each in followed)], stderr=subprocess.DEVNULL)
        time.sleep(1)
        for number in range(tried):
            site.ask(site.put(site.xml, f"sync-{number:010}", xml(5_000)))
        time.sleep(0.5)
        tracing.terminate()
        tracing.wait()
        lines = Path(log.name).read_text().splitlines()
    return sum("sync(" in line or "sync_file_range(" in line for line in lines) / tried


if __name__ == "__main__":
    main()
