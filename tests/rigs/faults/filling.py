"""Full, read-only and slow disks, and too few descriptors, for real: refusals with the cause, and nothing lost."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from itertools import count, islice
from pathlib import Path

from persistence.storage.locks import stripe
from tests.rigs import disks, strikes
from tests.rigs.report import Tally, prefixed
from tests.service import Answer, Service, running
from tests.waiting import at_once

_MOST_WRITES = 600
_REFUSALS = 20
_PATIENCE = 20.0
NO_ROOM = ("ENOSPC", "EDQUOT")
"""The errors of a disk without room: 507, and 500 for all others."""
_LONGEST_LINE = 400
_SETTINGS = {"PERSISTENCE_MIN_FREE": str(1 << 20)}
_READY, _ALIVE = "/readyz", "/healthz"


@dataclass(slots=True)
class Story(Tally):
    headings: Sequence[str] = ("served", "refused")
    refusals: Counter[int] = field(default_factory=Counter)

    def refuse(self, status: int) -> None:
        self.refusals[status] += 1
        self["refused"] += 1

    def expect(self, what: str, found: object, *expected: object) -> None:
        if found not in expected:
            self.violations.append(f"{what}: {found!r}, not {' or '.join(map(repr, expected))}")

    def expect_status(self, service: Service, path: str, when: str, status: int) -> None:
        self.expect(f"{path} {when}", service.raw("GET", path).status, status)


class Filler:
    """Writes through a service, and knows what was acknowledged; refusals say one of the ``errors``."""

    def __init__(self, service: Service, story: Story, errors: tuple[str, ...], size: int = 300) -> None:
        self.service = service
        self._story = story
        self._errors = errors
        self._size = size
        self._stored: dict[str, tuple[bytes, str | None]] = {}
        self._refused: dict[str, bytes] = {}

    def fill(self) -> None:
        for number in range(_MOST_WRITES):
            if self._story["refused"] >= _REFUSALS:
                return
            is_stored = self.put(_document(number), number).status == HTTPStatus.CREATED
            self.put(_document(0), number)
            # What the index gives back may make room again: an attachment is read only beside its document.
            self.put(f"app/form/data/{number if is_stored else 0}/{number}.bin", number)
        self._story.violations.append(f"only {self._story['refused']} writes were refused")

    def put(self, path: str, number: int) -> Answer:
        body = f"<d>{number} {path} {'x' * self._size}</d>".encode()
        answer = self.service.put(path, body)
        if answer.status in (201, 204):
            self._story["served"] += 1
            self._stored[path] = body, answer["ETag"]
            self._refused.pop(path, None)
        else:
            self._story.refuse(answer.status)
            if "EIO" in self._errors:
                self._refused[path] = body
            faults = min((list(refusal_faults(answer, error)) for error in self._errors), key=len)
            self._story.violations += prefixed(f"PUT {path}", faults)
        return answer

    def be_refused(self) -> None:
        """Write new documents on a full disk: of those refused, no name may be left."""
        before = set(self._names())
        for number in range(_REFUSALS):
            self.put(_document(f"more-{number}"), number)
        stored = {path.split("/")[3] for path in self._stored}
        left = [name for name in set(self._names()) - before if Path(name).parts[3] not in stored]
        self._story.expect("names left by refused writes", left, [])

    def write_until_refused(self) -> None:
        for number in range(_MOST_WRITES):
            if self.put(_document(number % 5), number).status not in (201, 204):
                return
        self._story.violations.append("nothing was refused")

    def check(self, when: str) -> None:
        self.check_contents(when)
        if left := [path.name for path in self.service.leftovers() if _awaits_its_name(path) is None]:
            self._story.violations.append(f"{when}: left over: {left[:3]}")

    def finish(self) -> None:
        """Write over each content that has not got its name yet: that is left to the next writer."""
        for path in filter(None, map(_awaits_its_name, self.service.leftovers())):
            name = str(path.relative_to(self.service.data))
            self._story.expect(f"PUT over {name}", self.put(name, 0).status, 204)
        self._story.expect("left over after that", self.service.leftovers(), [])

    def check_contents(self, when: str) -> None:
        """Read everything that was acknowledged.

        What was refused by a disk that failed after the commit may be there instead, whole (docs/design.md).
        """
        for path, (body, tag) in list(self._stored.items()):
            answer = self.service.get(path)
            if answer.status == 200 and answer.body == self._refused.get(path):
                self._stored[path] = answer.body, answer["ETag"]
            elif (answer.status, answer.body, answer["ETag"]) != (200, body, tag):
                self._story.violations.append(f"{when}: {path} is answered {answer.status} {answer.cause[:80]}")

    def _names(self) -> list[str]:
        data = self.service.data
        return [str(path.relative_to(data)) for path in data.glob("app/**/*") if ".history" not in path.parts]


def _document(name: object) -> str:
    return f"app/form/data/{name}/data.xml"


@dataclass(frozen=True, slots=True)
class Room:
    """How a disk fills up: the size of each content, the error that says so, and whether ``/readyz`` can see it."""

    kind: disks.Kind
    size: int = 120_000
    error: str = "ENOSPC"
    is_seen: bool = True


FULL, NO_INODES = Room(disks.EXT4), Room(disks.FEW_INODES, 300)
ROOMS = (FULL, Room(disks.TMPFS), NO_INODES, Room(disks.BTRFS_QUOTA, error="EDQUOT", is_seen=False))


def fill_up(room: Room, directory: Path) -> Story:
    """Fill a disk through the service, replace its worker, make room, and write on."""
    story = Story(f"full: {room.kind.title}")
    with disks.mounted(room.kind, directory) as disk:
        reserve = [disk / f"reserve-{number}" for number in range(100)]  # room in bytes, and in inodes
        for file in reserve:
            file.write_bytes(os.urandom(40_000))
        with running(disk, env=_SETTINGS, log=directory / "service.log") as service:
            filler = Filler(service, story, (room.error,), room.size)
            story.expect_status(service, _READY, "while there is room", 200)
            filler.fill()
            filler.check("on the full disk")
            if room.is_seen:
                story.expect_status(service, _READY, "on the full disk", 503)
            story.expect_status(service, _ALIVE, "on the full disk", 200)
            filler.be_refused()
            replace_worker(service)
            filler.check("from a new worker on the full disk")
            for file in reserve:
                file.unlink()
            os.sync()
            for path in (_document(0), _document("room"), "app/form/data/room/file.bin"):
                story.expect("PUT with room again", filler.put(path, 0).status, 201, 204)
            story.expect_status(service, _READY, "with room again", 200)
            filler.check("with room again")
            filler.finish()
    return story


def turn_read_only(kind: disks.Kind, directory: Path) -> Story:
    """A disk turns read-only among writers: 500 with the cause, everything readable; mounted again, all is well."""
    story, log = Story(f"read-only: {kind.title}"), directory / "service.log"
    with disks.mounted(kind, directory) as disk:
        with running(disk, env=_SETTINGS, log=log) as service:
            filler = Filler(service, story, ("EROFS", "EIO"))  # that which makes it give up is the latter
            for number in range(5):
                filler.put(_document(number), number)
            writer = threading.Thread(target=filler.write_until_refused)
            writer.start()
            disks.turn_read_only(disk)
            writer.join()
            filler.check_contents("on the read-only disk")
            replace_worker(service)
            filler.check_contents("from a new worker on the read-only disk")
            story.expect("PUT to the new worker", filler.put(_document(0), 0).status, 500)
        insist(lambda: disks.remount(disk))
        with running(disk, env=_SETTINGS, log=log) as service:
            filler.service = service
            for number in range(5):
                story.expect("PUT when writable again", filler.put(_document(number), 9).status, 204)
            filler.check("when writable again")
    return story


def pass_the_floor(kind: disks.Kind, directory: Path) -> Story:
    """Free space passes below ``min_free`` and above again: ``/readyz`` says so, and writes go on."""
    story, floor = Story(f"min_free: {kind.title}"), 4 << 20
    with (
        disks.mounted(kind, directory) as disk,
        running(disk, env={"PERSISTENCE_MIN_FREE": str(floor)}, log=directory / "service.log") as service,
    ):
        filler, weight = Filler(service, story, ("ENOSPC",)), disk / "weight"
        for _ in range(2):
            story.expect_status(service, _READY, "above the floor", 200)
            weight.write_bytes(bytes(shutil.disk_usage(disk).free - floor + (1 << 20)))
            answer = service.raw("GET", _READY)
            story.expect("ready below the floor", answer.status, 503)
            story.expect("the cause", f"the floor is {floor}" in answer.cause and answer.cause.count("\n") == 0, True)
            story.expect("PUT below the floor", filler.put(_document(0), 0).status, 201, 204)
            weight.unlink()
        story.expect_status(service, _READY, "above the floor again", 200)
    return story


def replace_worker(service: Service) -> None:
    (worker,) = service.workers()
    os.kill(worker, signal.SIGKILL)
    insist(lambda: service.raw("GET", _ALIVE))


def insist(action: Callable[[], object]) -> None:
    """Repeat an action that the system or a lost worker refuses, until it succeeds."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            action()
        except (OSError, disks.DiskError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _awaits_its_name(path: Path) -> Path | None:
    """The name that a content should have, if it was committed: the disk has refused only the rename after that."""
    name, _, content_id = path.name.removeprefix(".").rpartition(".")
    sidecar = path.with_name(f"{name}.json")
    is_committed = sidecar.is_file() and json.loads(sidecar.read_bytes())["id"] == content_id
    return path.with_name(name) if is_committed else None


def refusal_faults(answer: Answer, error: str) -> Iterator[str]:
    expected = 507 if error in NO_ROOM else 500
    if answer.status != expected:
        yield f"answered {answer.status}, not {expected}"
    if not (answer["Content-Type"] or "").startswith("text/plain"):
        yield f"the refusal is {answer['Content-Type']}"
    if not answer["X-Request-Id"]:
        yield "the refusal has no request id"
    line = answer.body.decode(errors="replace")
    if line.count("\n") != 1 or len(line) > _LONGEST_LINE or "Traceback" in line:
        yield f"the refusal is not one line: {line!r}"
    if os.strerror(getattr(errno, error)) not in line:
        yield f"the refusal does not name its cause: {line!r}"


# A worker that may open no more files: answers or refusals, and all is well when it may again.

_DOCUMENTS = 20
_CLIENTS = 12
_REQUESTS = 12
_LONGEST = 400.0


def run_out(directory: Path, spares: Iterable[int] = range(8)) -> Story:
    """Leave a worker so many descriptors more than it has, under many connections; then give them back."""
    story = Story("few descriptors")
    with running(directory, workers=1, threads=4) as service:
        bodies = {_document(number): f"<d>{number}</d>".encode() for number in range(_DOCUMENTS)}
        for path, body in bodies.items():
            story.expect("PUT before", service.put(path, body).status, 201)
        for spare in spares:
            _ask_with_few_left(service, story, bodies, spare)
        insist(lambda: service.raw("GET", _ALIVE))
        for path, body in bodies.items():
            found = service.get(path)
            story.expect(f"GET {path} afterwards", (found.status, found.body), (200, body))
            story.expect(f"PUT {path} afterwards", service.put(path, body).status, 204)
        story.expect("left over", service.leftovers(), [])
        for path in (_ALIVE, _READY):
            story.expect_status(service, path, "afterwards", 200)
    return story


def _ask_with_few_left(service: Service, story: Story, bodies: dict[str, bytes], spare: int) -> None:
    """Many clients at once, while a worker may open ``spare`` files more than it had open at rest."""
    insist(lambda: service.raw("GET", _ALIVE))  # gunicorn replaces a worker that could not accept a connection
    (worker,) = service.workers()
    usual = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir(f"/proc/{worker}/fd")}
    # The number below which there are so many free ones: also between those that are taken.
    limit = next(islice((number for number in count() if number not in taken), spare, None))
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (limit, usual[1]))
    try:
        each = list(bodies.items())
        at_once(*(partial(_ask, service, story, each[number:]) for number in range(_CLIENTS)), seconds=_LONGEST)
    finally:
        with suppress(ProcessLookupError):  # the server may have replaced it
            resource.prlimit(worker, resource.RLIMIT_NOFILE, usual)


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


# A slow disk: whoever writes the same document waits, up to the deadline; nobody else notices.

_OLD, _NEW = b"<d>old</d>", b"<d>new</d>"
_TEXT = "text/plain; charset=utf-8"
_DEADLINE = 1.0
_LATENESS = 3.0
_IMPATIENCE = 0.5
_WORKERS, _THREADS = 2, 4
_SLOWEST, _WAITED = "slowest, ms", "refused after at most, ms"
_OTHERS, _READS = 20, 10
_HANGS = 600_000_000
"""Microseconds for which an fsync hangs: until strace lets go of the worker, in any case."""


def stall(directory: Path) -> Story:
    """Let the fsync of one document's directory hang: its writers are refused in time, and all else is served."""
    story = Story("an fsync that hangs", ("served", _SLOWEST, "refused", _WAITED))
    slow, *others = _paths(1 + _OTHERS)
    with _slow(directory, story, [slow, *others]) as (service, clients):
        with _hanging(service, directory, [slow]) as await_hanging:
            holder = clients.submit(service.put, slow, _NEW)
            await_hanging(1)
            writers = [clients.submit(_timed, partial(service.put, slow, b"<d>late</d>")) for _ in range(2)]
            for path in others:
                _serve(story, partial(service.put, path, _NEW), 204)
                _serve(story, partial(service.get, path), 200)
                _serve(story, partial(service.get, slow), 200)
            _serve(story, partial(service.raw, "GET", _READY), 200)
            for writer in writers:
                answer, seconds = writer.result()
                story.refuse(answer.status)
                story.expect("a second writer", answer.status, 503)
                story.expect("its Retry-After", (answer["Retry-After"] or "").isdigit(), True)
                story.expect("its answer, one line", (answer["Content-Type"], answer.body.count(b"\n")), (_TEXT, 1))
                story.expect("it had waited", _DEADLINE * 0.9 < seconds < _DEADLINE + _LATENESS, True)
                story[_WAITED] = max(story[_WAITED], round(seconds * 1000))
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
    paths, loads = _paths(_WORKERS * _THREADS), list[tuple[int, int, int]]()
    with _slow(directory, story, paths) as (service, clients):
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
                if len(holders) < _THREADS:
                    story.expect(f"reads answered while {len(holders)} writers hang", answered, _READS)
        for holder in holders:
            story.expect("a slow writer, let go", holder.result().status, 204)
        for path in paths[: len(holders)]:
            story.expect("what is read then", service.get(path).body, _NEW)
        story.expect_status(service, _READY, "then", 200)
    return loads


@contextmanager
def _slow(directory: Path, story: Story, paths: list[str]) -> Iterator[tuple[Service, ThreadPoolExecutor]]:
    """A service that has some documents, with all of its workers at work, and threads to ask it from."""
    env = {"PERSISTENCE_LOCK_TIMEOUT": str(_DEADLINE)}
    with (
        running(directory, workers=_WORKERS, threads=_THREADS, env=env) as service,
        ThreadPoolExecutor(_WORKERS * _THREADS + 1) as clients,
    ):
        while len(service.workers()) < _WORKERS:
            service.raw("GET", _ALIVE)
        for path in paths:
            story.expect("PUT before", service.put(path, _OLD).status, 201)
        yield service, clients


@contextmanager
def _hanging(service: Service, directory: Path, paths: list[str]) -> Iterator[Callable[[int], bool]]:
    """Let every fsync of the directories of some documents hang, in all workers, for the length of a block.

    The function given waits until so many hang, and says whether they do.
    """
    log = directory / "slow.log"
    options = [option for path in paths for option in ("-P", str((service.data / path).parent))]
    first, *others = service.workers()
    for worker in others:
        options += ["-p", str(worker)]
    inject = f"inject=fsync:delay_enter={_HANGS}"

    def await_hanging(number: int) -> bool:
        deadline = time.monotonic() + _LATENESS
        while log.read_text().count("fsync(") < number:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    with strikes.attached(first, log, "-f", "-e", "signal=none", "-e", "trace=fsync", "-e", inject, *options):
        yield await_hanging


def _paths(number: int) -> list[str]:
    """Documents no two of which share a lock."""
    by_stripe = {stripe(("app", "form", "data", str(name))): _document(name) for name in range(200)}
    return list(by_stripe.values())[:number]


def _timed(ask: Callable[[], Answer]) -> tuple[Answer, float]:
    began = time.monotonic()
    return ask(), time.monotonic() - began


def _serve(story: Story, ask: Callable[[], Answer], status: int) -> None:
    answer, seconds = _timed(ask)
    story.expect("another request meanwhile", answer.status, status)
    story.expect("another request meanwhile is answered before the deadline", seconds < _DEADLINE, True)
    story[_SLOWEST] = max(story[_SLOWEST], round(seconds * 1000))
    story["served"] += 1


def _is_answered(service: Service, path: str) -> bool:
    try:
        return service.get(path).status == 200
    except OSError:
        return False


STORIES: tuple[Callable[[Path], Story], ...] = (
    *(partial(fill_up, room) for room in ROOMS),
    partial(turn_read_only, disks.EXT4),
    *(partial(pass_the_floor, kind) for kind in (disks.EXT4, disks.TMPFS)),
    run_out,
)
