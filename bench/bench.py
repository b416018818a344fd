"""Side by side in one run: the service against the least that a server of its kind could do.

GET of a 5 KB ``data.xml`` against a Flask application that returns a constant of that size; PUT of 5 KB against a bare
WSGI application that writes and fsyncs two files and their directory. Same gunicorn settings, same client, the
servers in turn. Prints a table with ratios; judges nothing.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from client import Connection, rate

from persistence.storage.root import init

HERE = Path(__file__).parent
_SERVICES = ("persistence.app:create_app()", "unindexed:app")
# Real form data has about one element per eighty bytes.
_FIELD = b"<applicant-name>" + b"Lea Example of Paris, department of rivers" + b"</applicant-name>\n"
BODY = b"<form>" + _FIELD * 65 + b"</form>"
READY = 20.0


@contextmanager
def server(application: str, directory: str, workers: int, threads: int) -> Iterator[int]:
    """A gunicorn with one application, its port for the length of the block."""
    if application in _SERVICES:
        init(directory)
    environment = {"PERSISTENCE_DATA": directory, "BENCH_DATA": directory}
    with served(application, environment, workers, threads) as (port, _):
        yield port


@contextmanager
def served(application: str, environment: Mapping[str, str], workers: int, threads: int) -> Iterator[tuple[int, int]]:
    """A gunicorn with one application: its port and its first process, for the length of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        *(sys.executable, "-m", "gunicorn", "-b", f"127.0.0.1:{port}", "-k", "gthread", "--log-level", "critical"),
        *("-w", str(workers), "--threads", str(threads), "--keep-alive", "75", "--no-control-socket"),
        *("--chdir", str(HERE), application),
    ]
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        wait(port)
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def wait(port: int) -> None:
    """Wait until the server accepts connections."""
    deadline = time.monotonic() + READY
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def getting(path: str) -> Callable[[Connection, int], None]:
    """A client's GET of one path."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    def get(connection: Connection, _number: int) -> None:
        status, body = connection.ask(request)
        if status != 200 or body != BODY:
            raise RuntimeError(f"GET answered {status}")

    return get


def putting(path: Callable[[int], str]) -> Callable[[Connection, int], None]:
    """A client's PUT; the path is made from a number that never repeats in one measurement."""
    tail = f" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/xml\r\nContent-Length: {len(BODY)}\r\n\r\n"
    rest = tail.encode() + BODY

    def put(connection: Connection, number: int) -> None:
        status, _ = connection.ask(b"PUT " + path(number).encode() + rest)
        if status not in (201, 204):
            raise RuntimeError(f"PUT answered {status}")

    return put


def new(pattern: str) -> Callable[[int], str]:
    """A path that nobody has used: each call of this function starts a series of its own."""
    return lambda number: pattern.format(f"{uuid.uuid4().hex}-{number}")


def over(pattern: str) -> Callable[[int], str]:
    """One path for each client."""
    return lambda number: pattern.format(f"over-{number // 10_000_000}")


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    arguments.add_argument("--rounds", type=int, default=5, help="measurements of each, in turn")
    arguments.add_argument("--clients", type=int, default=2)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--threads", type=int, default=8)
    arguments.add_argument("--data", default=None, help="directory to write in (default: a temporary one)")
    options = arguments.parse_args()
    document = "/crud/bench/form/data/{}/data.xml"
    with tempfile.TemporaryDirectory(dir=options.data) as directory:
        served = f"{directory}/service"
        bare = f"{directory}/bare"
        Path(bare).mkdir()
        size = (options.workers, options.threads)
        with (
            server("persistence.app:create_app()", served, *size) as service,
            server("constant:app", directory, *size) as constant,
            server("bare:app", bare, *size) as two_files,
        ):
            connection = Connection(service)
            putting(document.format)(connection, 1)
            connection.close()
            rows = [
                ("GET 5 KB data.xml / Flask constant", service, getting(document.format(1)), constant, getting("/")),
                ("PUT 5 KB, new / bare two files", service, putting(new(document)), two_files, putting(new("/{}"))),
                ("PUT 5 KB, over / bare two files", service, putting(over(document)), two_files, putting(over("/{}"))),
            ]
            print(f"{'':38}{'service/s':>11}{'baseline/s':>12}{'ratio':>8}   min..max of {options.rounds} pairs")
            for name, our_port, ours, their_port, theirs in rows:
                pairs = [
                    (
                        rate(our_port, ours, options.clients, options.seconds),
                        rate(their_port, theirs, options.clients, options.seconds),
                    )
                    for _ in range(options.rounds)
                ]
                ratios = sorted(mine / other for mine, other in pairs)
                mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
                ratio = statistics.median(ratios)
                print(f"{name:38}{mine:11.0f}{other:12.0f}{ratio:8.2f}   {ratios[0]:.2f}..{ratios[-1]:.2f}")


if __name__ == "__main__":
    main()
