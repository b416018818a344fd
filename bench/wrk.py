"""Load by wrk: the same requests, as bytes, on as many connections as a measurement wants."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

_SCRIPT = Path(__file__).with_name("requests.lua")
_GRACE = 60
"""Seconds beyond its time after which wrk is given up."""


@dataclass(frozen=True)
class Kind:
    """Requests of one kind: how many were refused, and how many took at most so many milliseconds."""

    failed: int
    classes: tuple[tuple[float, int], ...]

    @property
    def requests(self) -> int:
        """Responses of this kind."""
        return sum(count for _, count in self.classes)

    def percentile(self, part: float) -> float:
        """Return the milliseconds within which this part of the responses came, 5 % too many at most."""
        wanted, seen = part * self.requests, 0
        for milliseconds, count in sorted(self.classes):
            seen += count
            if seen >= wanted:
                return milliseconds
        return 0.0


@dataclass(frozen=True)
class Load:
    """One run: requests with a response, seconds, milliseconds, statuses of 400 and more, and broken connections."""

    requests: int
    seconds: float
    p50: float
    p99: float
    failed: int
    broken: int
    kinds: tuple[Kind, ...] = ()

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


def parse(output: str) -> Load:
    """Return the result in the output of wrk: the line of JSON that the script prints at the end."""
    found = [line for line in output.splitlines() if line.startswith('{"requests":')]
    if not found:
        raise ValueError(f"wrk printed no result:\n{output}")
    return msgspec.json.decode(found[-1], type=Load)


def rate(port: int, requests: Iterable[bytes], connections: int, seconds: int) -> float:
    """Return the requests per second of a run."""
    return drive(port, requests, connections, seconds).rate


def drive(port: int, requests: Iterable[bytes], connections: int, seconds: int) -> Load:
    """Send one kind of requests, by chance one of these at a time; none may fail."""
    requests = list(requests)
    load = tried(port, requests, connections, seconds)
    if load.failed or load.broken or not load.requests:
        first = requests[0].split(b"\r\n", 1)[0].decode()
        raise RuntimeError(f"{first}: {load.failed} of {load.requests} refused, {load.broken} broken off")
    return load


def tried(port: int, requests: Iterable[bytes], connections: int, seconds: int) -> Load:
    """Send one kind of requests, of which some may fail."""
    return mixed(port, {"requests": (1, requests)}, connections, seconds, threads=min(2, connections))


def mixed(
    port: int, kinds: Mapping[str, tuple[float, Iterable[bytes]]], connections: int, seconds: int, *, threads: int
) -> Load:
    """Send kinds of requests, each with its share; a connection needs a thread of its own if there are several."""
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed (Debian: wrk)")
    with tempfile.TemporaryDirectory() as directory:
        arguments = []
        for name, (share, requests) in kinds.items():
            file = Path(directory, name)
            file.write_bytes(b"\0".join(requests))
            arguments += [str(share), str(file)]
        command = [
            *("wrk", "-t", str(threads), "-c", str(connections), "-d", f"{seconds}s", "--timeout", "60s"),
            *("-s", str(_SCRIPT), f"http://127.0.0.1:{port}/", "--", *arguments),
        ]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _GRACE, check=False)
    if ended.returncode or "PANIC" in ended.stderr:
        raise RuntimeError(f"wrk failed: {ended.stderr}{ended.stdout}")
    return parse(ended.stdout)
