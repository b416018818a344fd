"""A worker that may open no more files: answers or refusals, and all is well when it may again."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from itertools import count, islice
from pathlib import Path

from tests.rigs.faults.filling import Story, insist
from tests.rigs.faults.judge import refusal_faults
from tests.service import Service, running
from tests.waiting import at_once

_DOCUMENTS = 20
_CLIENTS = 12
_REQUESTS = 12
_THREADS = 4
_LONGEST = 400.0


def run_out(directory: Path, spares: Iterable[int] = range(8)) -> Story:
    """Leave a worker so many descriptors more than it has, under many connections; then give them back."""
    story = Story("few descriptors")
    with running(directory, workers=1, threads=_THREADS) as service:
        bodies = {f"app/form/data/{number}/data.xml": f"<d>{number}</d>".encode() for number in range(_DOCUMENTS)}
        for path, body in bodies.items():
            story.expect("PUT before", service.put(path, body).status, 201)
        for spare in spares:
            _ask_with_few_left(service, story, bodies, spare)
        insist(lambda: service.raw("GET", "/healthz"))
        for path, body in bodies.items():
            found = service.get(path)
            story.expect(f"GET {path} afterwards", (found.status, found.body), (200, body))
            story.expect(f"PUT {path} afterwards", service.put(path, body).status, 204)
        story.expect("left over", service.leftovers(), [])
        for path in ("/healthz", "/readyz"):
            story.expect(path, service.raw("GET", path).status, 200)
    return story


def _ask_with_few_left(service: Service, story: Story, bodies: dict[str, bytes], spare: int) -> None:
    """Many clients at once, while a worker may open ``spare`` files more than it had open at rest."""
    insist(lambda: service.raw("GET", "/healthz"))  # gunicorn replaces a worker that could not accept a connection
    (worker,) = service.workers()
    usual = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (_limit(worker, spare), usual[1]))
    try:
        each = list(bodies.items())
        at_once(*(partial(_ask, service, story, each[number:]) for number in range(_CLIENTS)), seconds=_LONGEST)
    finally:
        with suppress(ProcessLookupError):  # the server may have replaced it
            resource.prlimit(worker, resource.RLIMIT_NOFILE, usual)


def _limit(worker: int, spare: int) -> int:
    """The number below which there are so many free ones: also between those that are taken."""
    taken = {int(name) for name in os.listdir(f"/proc/{worker}/fd")}
    return next(islice((number for number in count() if number not in taken), spare, None))


def _ask(service: Service, story: Story, bodies: list[tuple[str, bytes]]) -> None:
    for number in range(_REQUESTS):
        path, body = bodies[number % len(bodies)]
        is_read = number % 3 > 0
        try:
            answer = service.get(path) if is_read else service.put(path, body)
        except (OSError, HTTPException):
            story.refuse(0)  # the connection was refused, or not served to its end
            continue
        if answer.status in (200, 204):
            story["served"] += 1
        else:
            story.refuse(answer.status)
        if answer.status >= 400:
            story.violations += refusal_faults(answer, "EMFILE")
        elif is_read and answer.body != body:
            story.violations.append(f"{path} reads {answer.body!r}")
