"""Trials of ``persistence move`` with a real store: 256 MiB in bounded memory, and kills on the way there and back."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from persistence.cli.declarations import REMAINS
from persistence.model.network_addresses import parse_bucket
from persistence.s3.body_references import settle_notes, stray_objects
from persistence.s3.object_bodies import ObjectBodies, ObjectLimits, Objects
from persistence.storage.findings import Severity
from persistence.storage.store import Store
from tests.imports.archives import tree
from tests.s3.gateway import Gateway
from tests.s3.moves import inside, named
from tests.s3.server import BUCKET
from tests.s3.trials import LARGE, V1, Outcome, Watch, upload
from tests.service import PUBLIC, running

_MEBIBYTE = 1 << 20
_DOCUMENTS = 120
_SEVERITIES = tuple(f"{each.value}: " for each in Severity)
_MOST_MEMORY = 48 << 20
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
    yield Outcome("256 MiB are moved to S3", seen, status == large == 0 and more < _MOST_MEMORY)
    back, most, status = _watched(places, places.out())
    more, is_same = max(0, most - grown), tree(places.back) == tree(start)
    seen = (
        f"status {status}, {'the same' if is_same else 'ANOTHER'} tree, {back:.1f} s, {more / _MEBIBYTE:.1f} MiB more"
    )
    yield Outcome("they are moved back", seen, status == 0 and is_same and more < _MOST_MEMORY)
    yield from _killed(_Places(gateway, directory / "killed", start), rounds, (usual + took, back))


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


def _killed(places: _Places, rounds: int, usual: tuple[float, float]) -> Iterator[Outcome]:
    """Move to the bucket and back, which take so many seconds in the ``usual`` case, killed again and again."""
    chance = random.Random(5)
    ways = (("to S3", places.into(), places.there), ("back", places.out(), places.back))
    for (name, arguments, root), seconds in zip(ways, usual, strict=True):
        killed = sum(_was_killed(places, arguments, seconds * chance.uniform(0.1, 0.4)) for _ in range(rounds))
        status = places.begin(arguments).wait()
        if root == places.there:
            good, seen = _swept(places)
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


def _swept(places: _Places) -> tuple[bool, str]:
    """Settle the notes, and compare the objects with the records."""
    os.environ.update(places.gateway.environment)
    place = parse_bucket(f"s3://{BUCKET}/{places.prefix}", places.gateway.url)
    bodies = ObjectBodies(Objects(place, ObjectLimits(5, 30, 4)), str(places.there))
    with Store(str(places.there), lock_timeout=5) as store:
        removed = settle_notes(bodies, lambda _: store, age=-1)
        left = sum(each is not None for each in stray_objects(bodies, lambda _: store, age=-1))
    lacking = {f"{places.prefix}/{key}" for key, _ in named(places.there)} - set(places.gateway.keys())
    found = places.checked()
    seen = f"{removed} objects without a record removed, {left} left, {len(lacking)} bodies lacking"
    is_good = not (left or lacking or found or inside(places.there) or os.listdir(places.there / ".bodies"))
    return is_good, f"{seen}; check --deep: {found[0] if found else 'all in order'}"
