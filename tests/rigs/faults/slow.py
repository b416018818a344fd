"""A slow disk: whoever writes the same document waits, up to the deadline; nobody else notices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from persistence.storage.locks import stripe
from tests.rigs import strikes
from tests.rigs.faults.filling import Story
from tests.service import Answer, Service, running

_OLD, _NEW = b"<d>old</d>", b"<d>new</d>"
_TEXT = "text/plain; charset=utf-8"
DEADLINE = 1.0
_PATIENCE = 3.0
_IMPATIENCE = 0.5
WORKERS, THREADS = 2, 4
_SLOWEST, _WAITED = "slowest, ms", "refused after at most, ms"
_HEADINGS = ("served", _SLOWEST, "refused", _WAITED)
_CLIENTS = WORKERS * THREADS + 1
_OTHERS, _READS = 20, 10
_HANGS = 600_000_000
"""Microseconds for which an fsync hangs: until strace lets go of the worker, in any case."""


def stall(directory: Path) -> Story:
    """Let the fsync of one document's directory hang: its writers are refused in time, and all else is served."""
    story = Story("an fsync that hangs", _HEADINGS)
    slow, *others = _paths(1 + _OTHERS)
    with _service(directory) as service, ThreadPoolExecutor(_CLIENTS) as clients:
        for path in (slow, *others):
            story.expect("PUT before", service.put(path, _OLD).status, 201)
        with _hanging(service, directory, [slow]) as await_hanging:
            holder = clients.submit(service.put, slow, _NEW)
            await_hanging(1)
            writers = [clients.submit(_timed, partial(service.put, slow, b"<d>late</d>")) for _ in range(2)]
            for path in others:
                _serve(story, partial(service.put, path, _NEW), 204)
                _serve(story, partial(service.get, path), 200)
                _serve(story, partial(service.get, slow), 200)
            _serve(story, partial(service.raw, "GET", "/readyz"), 200)
            for writer in writers:
                _check_refused(story, *writer.result())
            story.expect("the slow writer was answered", holder.done(), False)
        story.expect("the slow writer, let go", holder.result().status, 204)
        story.expect("what is read then", service.get(slow).body, _NEW)
        story.expect("the next write", service.put(slow, _OLD).status, 204)
        story.expect("left over", service.leftovers(), [])
    return story


def exhaust(directory: Path, story: Story) -> list[tuple[int, int, int]]:
    """Let more and more writers hang, each on a document of its own, until no thread is left; then let them go.

    Return how many hang, and of how many reads that came then how many were answered in time.
    """
    paths, loads = _paths(WORKERS * THREADS), list[tuple[int, int, int]]()
    with _service(directory) as service, ThreadPoolExecutor(_CLIENTS) as clients:
        for path in paths:
            story.expect("PUT before", service.put(path, _OLD).status, 201)
        impatient = replace(service, timeout=_IMPATIENCE)
        with _hanging(service, directory, paths) as await_hanging:
            holders = list[Future[Answer]]()
            for path in paths:
                holders.append(clients.submit(service.put, path, _NEW))
                if not await_hanging(len(holders)):
                    break  # its connection waits in a worker that has no thread left
                answered = sum(_is_answered(impatient, path) for _ in range(_READS))
                loads.append((len(holders), _READS, answered))
                # Each worker has a thread left as long as fewer hang than it has.
                if len(holders) < THREADS:
                    story.expect(f"reads answered while {len(holders)} writers hang", answered, _READS)
        for holder in holders:
            story.expect("a slow writer, let go", holder.result().status, 204)
        for path in paths[: len(holders)]:
            story.expect("what is read then", service.get(path).body, _NEW)
        story.expect("ready", service.raw("GET", "/readyz").status, 200)
    return loads


@contextmanager
def _service(directory: Path) -> Iterator[Service]:
    settings = {"PERSISTENCE_LOCK_TIMEOUT": str(DEADLINE)}
    with running(directory, workers=WORKERS, threads=THREADS, env=settings) as service:
        while len(service.workers()) < WORKERS:
            service.raw("GET", "/healthz")
        yield service


@contextmanager
def _hanging(service: Service, directory: Path, paths: list[str]) -> Iterator[Callable[[int], bool]]:
    """Let every fsync of the directories of some documents hang, in all workers, for the length of a block.

    The function given waits until so many hang, and says whether they do.
    """
    log = directory / "slow.log"
    options = [option for path in paths for option in ("-P", str((service.data / path).parent))]
    workers = service.workers()
    for worker in workers[1:]:
        options += ["-p", str(worker)]
    inject = f"inject=fsync:delay_enter={_HANGS}"

    def await_hanging(number: int) -> bool:
        deadline = time.monotonic() + _PATIENCE
        while log.read_text().count("fsync(") < number:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    with strikes.attached(workers[0], log, "-f", "-e", "signal=none", "-e", "trace=fsync", "-e", inject, *options):
        yield await_hanging


def _paths(number: int) -> list[str]:
    """Documents no two of which share a lock."""
    by_stripe = {stripe(("app", "form", "data", str(name))): f"app/form/data/{name}/data.xml" for name in range(200)}
    return list(by_stripe.values())[:number]


def _timed(ask: Callable[[], Answer]) -> tuple[Answer, float]:
    began = time.monotonic()
    answer = ask()
    return answer, time.monotonic() - began


def _serve(story: Story, ask: Callable[[], Answer], status: int) -> None:
    answer, seconds = _timed(ask)
    story.expect("another request meanwhile", answer.status, status)
    story.expect("another request meanwhile is answered before the deadline", seconds < DEADLINE, True)
    story[_SLOWEST] = max(story[_SLOWEST], round(seconds * 1000))
    story["served"] += 1


def _check_refused(story: Story, answer: Answer, seconds: float) -> None:
    story.refuse(answer.status)
    story.expect("a second writer", answer.status, 503)
    story.expect("its Retry-After", (answer["Retry-After"] or "").isdigit(), True)
    story.expect("its answer in one line", (answer["Content-Type"], answer.body.count(b"\n")), (_TEXT, 1))
    story.expect("it had waited", DEADLINE * 0.9 < seconds < DEADLINE + _PATIENCE, True)
    story[_WAITED] = max(story[_WAITED], round(seconds * 1000))


def _is_answered(service: Service, path: str) -> bool:
    try:
        return service.get(path).status == 200
    except OSError:
        return False
