"""One of the processes that hammer a service: optimistic increments of counters in a few documents."""

from __future__ import annotations

import hashlib
import http.client
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

DOCUMENTS = ("A", "B", "C")


@dataclass
class Outcome:
    """What one process saw: acknowledged increments by document, refusals, and what must not be."""

    increments: Counter[str] = field(default_factory=Counter)
    instants: dict[str, list[str]] = field(default_factory=lambda: {document: [] for document in DOCUMENTS})
    refused: int = 0
    reads: int = 0
    violations: list[str] = field(default_factory=list)


def body_of(count: int, token: str) -> bytes:
    """A document that tells its counter and its writer; its length depends on both."""
    filler = hashlib.sha256(f"{count} {token}".encode()).hexdigest() * (count % 40 + 1)
    return f'<d count="{count}" token="{token}">{filler}</d>'.encode()


def check(document: str, response: http.client.HTTPResponse, body: bytes, outcome: Outcome) -> int:
    """The counter of a response, after making sure that body and headers are of one revision."""
    stage = str(response.headers["Svc-Workflow-Stage"])
    count, _, token = stage.partition(" ")
    if body != body_of(int(count), token) or response.headers["Content-Length"] != str(len(body)):
        outcome.violations.append(f"{document}: headers of {stage}, body {body[:60]!r}")
    return int(count)


_LATEST = 60.0
"""Seconds after which it is over, however little a busy machine has let through."""


def hammer(port: int, number: int, seconds: float, over: Path, least: int = 0) -> Outcome:
    """Increment counters: GET, then PUT with ``If-Match`` and the version.

    It lasts for some seconds and at least so many reads, or until a file is there.
    """
    rng = random.Random(number)
    outcome = Outcome()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    began = time.monotonic()
    while not over.exists():
        lasted = time.monotonic() - began
        if lasted > _LATEST or (lasted > seconds and outcome.reads >= least):
            break
        document = rng.choice(DOCUMENTS)
        path = f"/crud/app/form/data/{document}/data.xml"
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        outcome.reads += 1
        if response.status != 200:
            outcome.violations.append(f"GET {response.status}")
            continue
        count = check(document, response, body, outcome) + 1
        _increment(connection, path, str(response.headers["ETag"]), count, outcome, rng)
    connection.close()
    return outcome


def _increment(
    connection: http.client.HTTPConnection, path: str, tag: str, count: int, outcome: Outcome, rng: random.Random
) -> None:
    token = f"{rng.getrandbits(64):x}"
    is_wrong = rng.random() < 0.1
    headers = {
        "If-Match": tag,
        "Svc-Form-Definition-Version": "2" if is_wrong else "1",
        "Svc-Workflow-Stage": f"{count} {token}",
    }
    connection.request("PUT", path, body_of(count, token), headers)
    response = connection.getresponse()
    response.read()
    document = path.split("/")[-2]
    if response.status == 204 and not is_wrong:
        outcome.increments[document] += 1
        outcome.instants[document].append(str(response.headers["Svc-Last-Modified"]))
    elif response.status == 412 or (response.status == 400 and is_wrong):
        outcome.refused += 1
    else:
        outcome.violations.append(f"PUT {response.status}, version {headers['Svc-Form-Definition-Version']}")
