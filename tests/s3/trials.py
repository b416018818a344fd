"""Trials of a real service with a real store: 256 MiB up and down, ranges, kills in uploads, a store that goes away."""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.network_addresses import parse_bucket
from persistence.s3.body_references import BodyReference, settle_notes, stray_objects
from persistence.s3.object_bodies import ObjectBodies, ObjectLimits, Objects
from persistence.storage.store import Store
from tests.s3.gateway import Gateway
from tests.s3.server import BUCKET
from tests.service import PUBLIC, Service, running

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
    """A service whose attachments are in the bucket of the gateway."""
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


def _swept(gateway: Gateway, directory: Path) -> Outcome:
    """Settle the notes, however young they are, and compare the objects with the records."""
    os.environ.update(gateway.environment)
    place = parse_bucket(f"s3://{BUCKET}/{directory.name}", gateway.url, "us-east-1")
    data = directory / "data"
    with Store(str(data), lock_timeout=5) as store:
        bodies = ObjectBodies(Objects(place, ObjectLimits(5, 30, 4)), str(data))
        before = sum(each is not None for each in stray_objects(bodies, lambda _: store, age=-1))
        removed = settle_notes(bodies, lambda _: store, age=-1)
        left = [each for each in stray_objects(bodies, lambda _: store, age=-1) if each is not None]
        form = Form("big", "f")
        document = DocumentAddress(form, Collection.DATA, "D", "data.xml")
        records = [document.moved(Collection.DATA, name) for name in store.names(document) if name != "data.xml"]
        known = {
            f"{directory.name}/{BodyReference(each, found.id).key}"
            for each in records
            if (found := store.sidecar(each))
        }
        lacking = known - set(gateway.keys())
        notes = len(os.listdir(data / ".bodies"))
    parts = f"{gateway.uploads()} uploads are left to the bucket's own rule"
    seen = f"{before} objects without a record, {removed} removed, {len(left)} left, {notes} notes; {parts}"
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
