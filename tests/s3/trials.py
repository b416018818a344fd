"""Trials of a service and of moves with a real store: 256 MiB, ranges, kills, and a store that goes away."""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from persistence.cli.declarations import REMAINS
from persistence.model.network_addresses import parse_bucket
from persistence.s3.body_references import settle_notes, stray_objects
from persistence.s3.object_bodies import ObjectBodies, ObjectLimits, Objects
from persistence.storage.findings import Severity
from persistence.storage.store import Store
from tests.s3.gateway import Gateway
from tests.s3.places import inside, named
from tests.s3.server import BUCKET
from tests.service import PUBLIC, Service, running
from tests.services.transferring import tree

V1 = {"Form_Definition_Version": 1}
LARGE = 256 << 20
_CHUNK = 1 << 20
_MOST_MEMORY = 16 << 20


@dataclass(frozen=True)
class Outcome:
    """A line of the table: what was tried, what was seen, and whether that is as it should be."""

    name: str
    seen: str
    is_good: bool


@contextmanager
def service_on(gateway: Gateway, directory: Path, workers: int = 1) -> Iterator[Service]:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "settings.toml"
    file.write_text(
        "remote_timeout = 3.0\nremote_connect = 2.0\nmax_body = 1000000000\n"
        '"svc.persistence.provider.*.*.data.attachments" = "big"\n'
        f'"svc.persistence.big.base-path" = "s3://{BUCKET}/{directory.name}"\n'
        f'"svc.persistence.big.endpoint" = "{gateway.url}"\n'
    )
    with running(
        directory, workers=workers, env=gateway.environment, options=("--config", str(file)), threads=4
    ) as service:
        service.face = PUBLIC
        assert service.put("big/f/data/D/data.xml", b"<d>a.bin</d>", **V1).status == 201
        yield service


class Watch:
    """The memory of a process while a block runs: how much it grew at most, in bytes."""

    def __init__(self, process: int) -> None:
        self._path = Path(f"/proc/{process}/status")
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._before = self._resident()
        self._most = self._before

    @property
    def grown(self) -> int:
        return self._most - self._before

    def _resident(self) -> int:
        """Return the memory that is the process's own: files that it reads are in the cache of the kernel."""
        with suppress(OSError):  # it has ended
            found = [line.split() for line in self._path.read_text().splitlines() if line.startswith("RssAnon")]
            return int(found[0][1]) << 10 if found else 0
        return 0

    def _run(self) -> None:
        while not self._ending.wait(0.01):
            self._most = max(self._most, self._resident())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()


def sent(size: int, seed: int = 1) -> Iterator[bytes]:
    chance = random.Random(seed)
    for _ in range(size // _CHUNK):
        yield chance.randbytes(_CHUNK)


def upload(service: Service, path: str, size: int, seed: int = 1) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    headers = {"Content-Length": str(size), "Svc-Form-Definition-Version": "1"}
    connection.request("PUT", f"{PUBLIC}/crud/{path}", sent(size, seed), headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def downloaded(service: Service, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    connection.request("GET", f"{PUBLIC}/crud/{path}")
    answer, hashing = connection.getresponse(), hashlib.sha256()
    while piece := answer.read(_CHUNK):
        hashing.update(piece)
    connection.close()
    return hashing.hexdigest()


def large(gateway: Gateway, directory: Path) -> Iterator[Outcome]:
    """256 MiB up and down, with the memory of the worker, and ranges of it."""
    hashing = hashlib.sha256()
    for piece in sent(LARGE):
        hashing.update(piece)
    with service_on(gateway, directory) as service:
        (worker,) = service.workers()
        upload(service, "big/f/data/D/first.bin", 8 << 20)  # what is made once
        downloaded(service, "big/f/data/D/first.bin")
        began = time.monotonic()
        with Watch(worker) as up:
            status = upload(service, "big/f/data/D/a.bin", LARGE)
        took = time.monotonic() - began
        seen = f"{status}, {took:.1f} s, {up.grown / _CHUNK:.1f} MiB more"
        yield Outcome("256 MiB up", seen, status == 201 and up.grown < _MOST_MEMORY)
        began = time.monotonic()
        with Watch(worker) as down:
            is_same = downloaded(service, "big/f/data/D/a.bin") == hashing.hexdigest()
        took = time.monotonic() - began
        yield Outcome(
            "256 MiB down",
            f"{'the same' if is_same else 'OTHER'} bytes, {took:.1f} s, {down.grown / _CHUNK:.1f} MiB more",
            is_same and down.grown < _MOST_MEMORY,
        )
        yield _ranges(service)


def _ranges(service: Service) -> Outcome:
    chance, wrong = random.Random(7), 0
    for _ in range(20):
        at = chance.randrange(LARGE // _CHUNK)
        expected = next(piece for number, piece in enumerate(sent(LARGE)) if number == at) if at < 20 else None
        first, length = at * _CHUNK, chance.randrange(1, _CHUNK)
        answer = service.get("big/f/data/D/a.bin", {"Range": f"bytes={first}-{first + length - 1}"})
        is_right = answer.status == 206 and len(answer.body) == length
        wrong += not (is_right and (expected is None or answer.body == expected[:length]))
    return Outcome("20 ranges of it", f"{wrong} wrong", wrong == 0)


def kills(gateway: Gateway, directory: Path, rounds: int) -> Iterator[Outcome]:
    """Kill the worker in uploads; then every record has its body, and after the sweep every body a record."""
    chance, acknowledged, size = random.Random(11), dict[str, int](), 48 << 20
    with service_on(gateway, directory) as service:
        began = time.monotonic()
        upload(service, "big/f/data/D/k.bin", size)
        usual = time.monotonic() - began
        for number in range(rounds):
            path = f"big/f/data/D/k{number}.bin"
            thread = threading.Thread(target=_try_upload, args=(service, path, size, number, acknowledged))
            thread.start()
            time.sleep(usual * chance.uniform(0.3, 1.6))
            for worker in service.workers():
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            thread.join()
            _wait_until_served(service)
        lost = [path for path in acknowledged if not _is_whole(service, path, size, acknowledged[path])]
        paths = {number: f"big/f/data/D/k{number}.bin" for number in range(rounds)}
        half = [number for number, path in paths.items() if not _is_absent_or_whole(service, path, size, number)]
    yield Outcome(
        f"{rounds} kills in uploads",
        f"{len(acknowledged)} acknowledged, {len(lost)} of them lost, {len(half)} half there",
        not lost and not half,
    )
    yield _swept(gateway, directory)


def _try_upload(service: Service, path: str, size: int, seed: int, acknowledged: dict[str, int]) -> None:
    with suppress(OSError, http.client.HTTPException):
        if upload(service, path, size, seed) == 201:
            acknowledged[path] = seed


def _wait_until_served(service: Service) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(OSError, http.client.HTTPException):
            if service.get("big/f/data/D/data.xml").status == 200:
                return
        time.sleep(0.1)
    raise TimeoutError("no worker serves")


def _digest(size: int, seed: int) -> str:
    hashing = hashlib.sha256()
    for piece in sent(size, seed):
        hashing.update(piece)
    return hashing.hexdigest()


def _is_whole(service: Service, path: str, size: int, seed: int) -> bool:
    return downloaded(service, path) == _digest(size, seed)


def _is_absent_or_whole(service: Service, path: str, size: int, seed: int) -> bool:
    return service.head(path).status == 404 or _is_whole(service, path, size, seed)


def settled(gateway: Gateway, data: Path, prefix: str) -> tuple[int, int, set[str]]:
    """Settle the notes of a tree, however young they are: objects removed and left, and bodies that records lack."""
    os.environ.update(gateway.environment)
    place = parse_bucket(f"s3://{BUCKET}/{prefix}", gateway.url, "us-east-1")
    bodies = ObjectBodies(Objects(place, ObjectLimits(5, 30, 4)), str(data))
    with Store(str(data), lock_timeout=5) as store:
        removed = settle_notes(bodies, lambda _: store, age=-1)
        left = sum(each is not None for each in stray_objects(bodies, lambda _: store, age=-1))
    return removed, left, {f"{prefix}/{key}" for key, _ in named(data)} - set(gateway.keys())


def _swept(gateway: Gateway, directory: Path) -> Outcome:
    removed, left, lacking = settled(gateway, directory / "data", directory.name)
    notes = len(os.listdir(directory / "data/.bodies"))
    parts = f"{gateway.uploads()} uploads are left to the bucket's own rule"
    seen = f"{removed} objects without a record removed, {left} left, {notes} notes; {parts}"
    return Outcome("the sweep after it", f"{seen}; {len(lacking)} bodies lacking", not (left or notes or lacking))


def outages(gateway: Gateway, directory: Path) -> Iterator[Outcome]:
    """Kill the gateway, and then let it hang: 503 within the deadlines, and everything again when it is back."""
    with service_on(gateway, directory) as service:
        assert upload(service, "big/f/data/D/a.bin", 8 << 20) == 201
        gateway.kill()
        yield _refused("the store is killed", service)
        gateway.start()
        yield _back("it is back", service)
        gateway.process.send_signal(signal.SIGSTOP)
        yield _refused("the store hangs", service)
        gateway.process.send_signal(signal.SIGCONT)
        yield _back("it goes on", service)


def _refused(name: str, service: Service) -> Outcome:
    began = time.monotonic()
    read = service.get("big/f/data/D/a.bin")
    put = service.put("big/f/data/D/b.bin", b"bytes", **V1)
    took = time.monotonic() - began
    saved = service.put("big/f/data/D/data.xml", b"<d>a.bin</d>").status
    seen = f"GET {read.status}, PUT {put.status} in {took:.1f} s ({put.cause}); form data {saved}"
    return Outcome(name, seen, (read.status, put.status, saved) == (503, 503, 204) and took < 20)


def _back(name: str, service: Service) -> Outcome:
    deadline = time.monotonic() + 30
    while (status := service.get("big/f/data/D/a.bin").status) != 200 and time.monotonic() < deadline:
        time.sleep(0.2)
    put = service.put("big/f/data/D/b.bin", b"bytes", **V1).status
    return Outcome(name, f"GET {status}, PUT {put}", status == 200 and put in (201, 204))


# Trials of ``persistence move`` with a real store: 256 MiB in bounded memory, and kills on the way there and back.

_MEBIBYTE = 1 << 20
_DOCUMENTS = 120
_SEVERITIES = tuple(f"{each.value}: " for each in Severity)
_MOST_FOR_MOVES = 48 << 20
"""Four documents at once, each with a piece of 4 MiB that is read, and a part of 5 MiB that is sent."""


class _Places:
    """A tree with its attachments inside, a tree with them in the bucket, and a tree that is moved back."""

    def __init__(self, gateway: Gateway, directory: Path, start: Path) -> None:
        directory.mkdir(parents=True)
        self.gateway = gateway
        self.prefix = directory.name
        self.start, self.there, self.back = start, directory / "there", directory / "back"
        self._plain, self._big = directory / "plain.toml", directory / "big.toml"
        self._plain.write_text(f'data = "{self.start}"\n')
        self._big.write_text(
            f'data = "{self.there}"\n"svc.persistence.provider.*.*.data.attachments" = "big"\n'
            f'"svc.persistence.big.base-path" = "s3://{BUCKET}/{self.prefix}"\n'
            f'"svc.persistence.big.endpoint" = "{gateway.url}"\n'
        )

    def into(self, *more: str) -> list[str]:
        place = f"s3://{BUCKET}/{self.prefix}?endpoint={self.gateway.url}"
        return ["move", "--to", str(self.there), "--attachments", place, "--config", str(self._plain), *more]

    def out(self) -> list[str]:
        return ["move", "--to", str(self.back), "--attachments", "with-data", "--config", str(self._big)]

    def checked(self) -> list[str]:
        """Check the tree in the bucket; return what is wrong, but notes for the index, which the service takes in."""
        done = subprocess.run(
            [sys.executable, "-m", "persistence.cli", "check", "--deep", "--config", str(self._big)],
            env={**os.environ, **self.gateway.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        found = [line for line in done.stdout.splitlines() if line.startswith(_SEVERITIES)]
        if done.returncode != (REMAINS if found else 0):
            return [f"status {done.returncode}: {done.stderr}"]
        return [line for line in found if ": index-notes: " not in line]

    def begin(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "persistence.cli", *arguments],
            env={**os.environ, **self.gateway.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def moves(gateway: Gateway, directory: Path, rounds: int) -> Iterator[Outcome]:
    """Move a tree to the bucket and back; then do it again under kills, until it comes to its end."""
    start = directory / "from/data"
    _fill(start.parent)
    places = _Places(gateway, directory / "moved", start)
    usual, grown, status = _watched(places, places.into("--match", "a-small"))
    took, most, large = _watched(places, places.into("--match", "big"))
    more = max(0, most - grown)
    seen = f"status {status} and {large}, {took:.1f} s, {more / _MEBIBYTE:.1f} MiB more than for small ones"
    yield Outcome("256 MiB are moved to S3", seen, status == large == 0 and more < _MOST_FOR_MOVES)
    back, most, status = _watched(places, places.out())
    more, is_same = max(0, most - grown), tree(places.back) == tree(start)
    seen = (
        f"status {status}, {'the same' if is_same else 'ANOTHER'} tree, {back:.1f} s, {more / _MEBIBYTE:.1f} MiB more"
    )
    yield Outcome("they are moved back", seen, status == 0 and is_same and more < _MOST_FOR_MOVES)
    yield from _moved_and_killed(_Places(gateway, directory / "killed", start), rounds, (usual + took, back))


def _fill(directory: Path) -> None:
    """Store a large body, and documents with attachments, older revisions, deletions and drafts."""
    with running(directory, threads=4, env={"PERSISTENCE_MAX_BODY": "1000000000"}) as service:
        service.face = PUBLIC
        service.put("big/f/data/D/data.xml", b"<d/>", **V1)
        assert upload(service, "big/f/data/D/a.bin", LARGE) == 201
        for number in range(_DOCUMENTS):
            path = f"a-small/f/data/D{number}"
            for revision in range(3):
                service.put(f"{path}/data.xml", f"<d>{revision}</d>".encode(), **V1)
                service.put(f"{path}/a.bin", os.urandom(1 << (8 + number % 14)), **V1)
            service.put(f"{path}/gone.bin", b"gone", **V1)
            service.delete(f"{path}/gone.bin", **V1)
            service.put(f"a-small/f/draft/D{number}/data.xml", b"<draft/>", **V1)
            service.put(f"a-small/f/draft/D{number}/a.bin", b"draft", **V1)


def _watched(places: _Places, arguments: Sequence[str]) -> tuple[float, int, int]:
    """Run a command; return its seconds, by how much its memory grew at most, and its status."""
    began = time.monotonic()
    process = places.begin(arguments)
    with Watch(process.pid) as watch:
        status = process.wait()
    return time.monotonic() - began, watch.grown, status


def _moved_and_killed(places: _Places, rounds: int, usual: tuple[float, float]) -> Iterator[Outcome]:
    """Move to the bucket and back, which take so many seconds in the ``usual`` case, killed again and again."""
    chance = random.Random(5)
    ways = (("to S3", places.into(), places.there), ("back", places.out(), places.back))
    for (name, arguments, root), seconds in zip(ways, usual, strict=True):
        killed = sum(_was_killed(places, arguments, seconds * chance.uniform(0.1, 0.4)) for _ in range(rounds))
        status = places.begin(arguments).wait()
        if root == places.there:
            good, seen = _moved_and_swept(places)
        else:
            good = tree(root) == tree(places.start)
            seen = "the same tree" if good else "ANOTHER tree"
        yield Outcome(f"{killed} kills on the way {name}", f"then status {status}; {seen}", good and not status)


def _was_killed(places: _Places, arguments: Sequence[str], seconds: float) -> bool:
    process = places.begin(arguments)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def _moved_and_swept(places: _Places) -> tuple[bool, str]:
    """Settle the notes, and compare the objects with the records."""
    removed, left, lacking = settled(places.gateway, places.there, places.prefix)
    found = places.checked()
    seen = f"{removed} objects without a record removed, {left} left, {len(lacking)} bodies lacking"
    is_good = not (left or lacking or found or inside(places.there) or os.listdir(places.there / ".bodies"))
    return is_good, f"{seen}; check --deep: {found[0] if found else 'all in order'}"
