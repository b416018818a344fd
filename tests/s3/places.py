"""A storage of records and a bucket, and both as one storage."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from persistence.model.addresses import DocumentAddress
from persistence.model.network_addresses import parse_bucket
from persistence.s3.body_references import settle_notes
from persistence.s3.object_bodies import ObjectBodies, ObjectLimits, Objects
from persistence.storage.storage import KeepsHistory, Storage, keeps_all
from persistence.storage.store import Store
from tests.initialised import initialised
from tests.opened import opened
from tests.s3.server import BUCKET, S3Server, Stored
from tests.storage.bodies_contract import CAT, Place

LIMITS = ObjectLimits(connect=0.3, timeout=0.5, calls=4)
_D = "attachments/pics/album/data/D"


def bodies_at(directory: Path, server: S3Server, keeps_history: KeepsHistory = keeps_all) -> ObjectBodies:
    """The place in the bucket of a server, with its notes in a directory."""
    objects = Objects(parse_bucket(f"s3://{BUCKET}/attachments", server.url), LIMITS)
    return ObjectBodies(objects, str(directory), keeps_history)


class BucketPlace(Place):
    """A tree, or ``main`` in place of it, and a bucket."""

    def __init__(
        self, directory: Path, server: S3Server, keeps_history: KeepsHistory = keeps_all, main: Storage | None = None
    ) -> None:
        self.server = server
        self.root = directory / "root"
        tree = opened(Store(initialised(self.root), lock_timeout=1, keeps_history=keeps_history))
        super().__init__(main or tree, bodies_at(self.root, server, keeps_history))

    def apart(self) -> list[bytes]:
        return sorted(each.data for each in self.server.objects.values())

    def spoil(self, change: Callable[[bytes], bytes] | None) -> None:
        (key,) = self.server.objects
        stored = self.server.objects.pop(key)
        if change is not None:
            self.server.objects[key] = Stored(change(stored.data))

    def leave(self) -> set[str]:
        self.server.objects[f"{_D}/cat.bin/stray"] = Stored(b"stray")
        return {"stray", *self.ids()}

    def ids(self, address: DocumentAddress = CAT) -> set[str]:
        """The content ids of the objects of an attachment."""
        prefix = f"attachments/pics/album/{address.collection.value}/{address.document}/{address.name}/"
        return {key.removeprefix(prefix) for key in self.server.keys_of(prefix)}

    def notes(self) -> list[str]:
        return os.listdir(self.root / ".bodies") if (self.root / ".bodies").exists() else []

    def sweep(self, age: float = -1) -> int:
        """Settle what crashes have left, however young it is."""
        return settle_notes(self.bodies, lambda _: self.store, age)  # type: ignore[arg-type]  # they are ``bodies_at``
