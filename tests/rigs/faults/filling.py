"""A disk that fills up under PUTs: refusals with the cause, nothing lost or left, and with room again all is well."""

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
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from itertools import count, islice
from pathlib import Path

from tests.rigs import disks
from tests.rigs.report import Tally, prefixed
from tests.service import Answer, Service, running
from tests.waiting import at_once

_MOST_WRITES = 600
_REFUSALS = 20
_PATIENCE = 20.0
NO_ROOM = ("ENOSPC", "EDQUOT")
"""The errors of a disk without room: 507, and 500 for all others."""
_LONGEST_LINE = 400
SETTINGS = {"PERSISTENCE_MIN_FREE": str(1 << 20)}


@dataclass(slots=True)
class Story(Tally):
    headings: Sequence[str] = ("served", "refused")
    refusals: Counter[int] = field(default_factory=Counter)

    def refuse(self, status: int, times: int = 1) -> None:
        self.refusals[status] += times
        self["refused"] += times

    def expect(self, what: str, found: object, *expected: object) -> None:
        if found not in expected:
            self.violations.append(f"{what}: {found!r}, not {' or '.join(map(repr, expected))}")


class Filler:
    def __init__(self, service: Service, story: Story, errors: tuple[str, ...], size: int) -> None:
        self.service = service
        self._story = story
        self._errors = errors
        self._size = size
        self._stored: dict[str, tuple[bytes, str | None]] = {}
        self._refused: dict[str, bytes] = {}

    def fill(self) -> None:
        number = 0
        while sum(self._story.refusals.values()) < _REFUSALS and number < _MOST_WRITES:
            is_stored = self.put(f"app/form/data/{number}/data.xml", number).status == HTTPStatus.CREATED
            self.put("app/form/data/0/data.xml", number)
            # What the index gives back may make room again: an attachment is read only beside its document.
            self.put(f"app/form/data/{number if is_stored else 0}/{number}.bin", number)
            number += 1
        self._story.expect("refusals", sum(self._story.refusals.values()) >= _REFUSALS, True)

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

    def be_refused(self, times: int) -> None:
        """Write new documents on a full disk: of those refused, no name may be left."""
        before = set(self._names())
        for number in range(times):
            self.put(f"app/form/data/more-{number}/data.xml", number)
        stored = {path.split("/")[3] for path in self._stored}
        left = [name for name in set(self._names()) - before if Path(name).parts[3] not in stored]
        self._story.expect("names left by refused writes", left, [])

    def write_until_refused(self) -> None:
        for number in range(_MOST_WRITES):
            if self.put(f"app/form/data/{number % 5}/data.xml", number).status not in (201, 204):
                return
        self._story.violations.append("nothing was refused")

    def check(self, when: str) -> None:
        self.check_contents(when)
        if left := [path for path in self.service.leftovers() if _awaits_its_name(path) is None]:
            self._story.violations.append(f"{when}: left over: {[path.name for path in left[:3]]}")

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
                continue
            if (answer.status, answer.body, answer["ETag"]) != (200, body, tag):
                self._story.violations.append(f"{when}: {path} is answered {answer.status} {answer.cause[:80]}")

    def _names(self) -> list[str]:
        data = self.service.data
        return [str(path.relative_to(data)) for path in data.glob("app/**/*") if ".history" not in path.parts]


@dataclass(frozen=True, slots=True)
class Room:
    """How a disk fills up: the error that says so, the size of each content, and whether ``/readyz`` can see it."""

    kind: disks.Kind
    error: str
    size: int
    is_seen: bool


FULL = Room(disks.EXT4, "ENOSPC", 120_000, is_seen=True)
FULL_MEMORY = Room(disks.TMPFS, "ENOSPC", 120_000, is_seen=True)
NO_INODES = Room(disks.FEW_INODES, "ENOSPC", 300, is_seen=True)
OVER_QUOTA = Room(disks.BTRFS_QUOTA, "EDQUOT", 120_000, is_seen=False)
ROOMS = (FULL, FULL_MEMORY, NO_INODES, OVER_QUOTA)


def fill_up(room: Room, directory: Path) -> Story:
    """Fill a disk through the service, replace its worker, make room, and write on."""
    story = Story(f"full: {room.kind.title}")
    with disks.mounted(room.kind, directory) as disk:
        reserve = _reserve(disk)
        with running(disk, env=SETTINGS, log=directory / "service.log") as service:
            filler = Filler(service, story, (room.error,), room.size)
            story.expect("ready while there is room", service.raw("GET", "/readyz").status, 200)
            filler.fill()
            filler.check("on the full disk")
            if room.is_seen:
                story.expect("ready on the full disk", service.raw("GET", "/readyz").status, 503)
            story.expect("alive on the full disk", service.raw("GET", "/healthz").status, 200)
            filler.be_refused(_REFUSALS)
            replace_worker(service)
            filler.check("from a new worker on the full disk")
            for file in reserve:
                file.unlink()
            os.sync()
            for path in ("app/form/data/0/data.xml", "app/form/data/room/data.xml", "app/form/data/room/file.bin"):
                story.expect("PUT with room again", filler.put(path, 0).status, 201, 204)
            story.expect("ready with room again", service.raw("GET", "/readyz").status, 200)
            filler.check("with room again")
            filler.finish()
    return story


def turn_read_only(kind: disks.Kind, directory: Path) -> Story:
    """A disk turns read-only among writers: 500 with the cause, everything readable; mounted again, all is well."""
    story, log = Story(f"read-only: {kind.title}"), directory / "service.log"
    with disks.mounted(kind, directory) as disk:
        with running(disk, env=SETTINGS, log=log) as service:
            filler = Filler(service, story, ("EROFS", "EIO"), 300)  # that which makes it give up is the latter
            for number in range(5):
                filler.put(f"app/form/data/{number}/data.xml", number)
            writer = threading.Thread(target=filler.write_until_refused)
            writer.start()
            disks.turn_read_only(disk)
            writer.join()
            filler.check_contents("on the read-only disk")
            replace_worker(service)
            filler.check_contents("from a new worker on the read-only disk")
            story.expect("PUT to the new worker", filler.put("app/form/data/0/data.xml", 0).status, 500)
        insist(lambda: disks.remount(disk))
        with running(disk, env=SETTINGS, log=log) as service:
            filler.service = service
            for number in range(5):
                story.expect("PUT when writable again", filler.put(f"app/form/data/{number}/data.xml", 9).status, 204)
            filler.check("when writable again")
    return story


def pass_the_floor(kind: disks.Kind, directory: Path) -> Story:
    """Free space passes below ``min_free`` and above again: ``/readyz`` says so, and writes go on."""
    story = Story(f"min_free: {kind.title}")
    with (
        disks.mounted(kind, directory) as disk,
        running(disk, env={"PERSISTENCE_MIN_FREE": str(4 << 20)}, log=directory / "service.log") as service,
    ):
        filler = Filler(service, story, ("ENOSPC",), 300)
        weight = disk / "weight"
        for _ in range(2):
            story.expect("ready above the floor", service.raw("GET", "/readyz").status, 200)
            weight.write_bytes(bytes(shutil.disk_usage(disk).free - (3 << 20)))
            answer = service.raw("GET", "/readyz")
            story.expect("ready below the floor", answer.status, 503)
            story.expect("the cause", f"the floor is {4 << 20}" in answer.cause and answer.cause.count("\n") == 0, True)
            story.expect("PUT below the floor", filler.put("app/form/data/0/data.xml", 0).status, 201, 204)
            weight.unlink()
        story.expect("ready above the floor again", service.raw("GET", "/readyz").status, 200)
    return story


def replace_worker(service: Service) -> None:
    (worker,) = service.workers()
    os.kill(worker, signal.SIGKILL)
    insist(lambda: service.raw("GET", "/healthz"))


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


def _reserve(disk: Path) -> list[Path]:
    """Files to be removed later: room in bytes, and in inodes."""
    paths = [disk / f"reserve-{number}" for number in range(100)]
    for path in paths:
        path.write_bytes(os.urandom(40_000))
    return paths


# A worker that may open no more files: answers or refusals, and all is well when it may again.

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
