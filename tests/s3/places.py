"""A tree and a bucket, and both as one storage."""

from __future__ import annotations

import os
from pathlib import Path

from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.network_addresses import parse_bucket
from persistence.model.sidecar import Sidecar
from persistence.s3.body_references import settle_notes
from persistence.s3.object_bodies import ObjectBodies, ObjectLimits, Objects
from persistence.storage.attachments import SplitStorage
from persistence.storage.storage import KeepsHistory, Storage, keeps_all
from persistence.storage.store import Store
from tests.initialised import initialised
from tests.opened import opened
from tests.s3.server import BUCKET, S3Server
from tests.storage.contract import put

FORM = Form("pics", "album")
CAT = DocumentAddress(FORM, Collection.DATA, "D", "cat.bin")
DRAFT = CAT.moved(Collection.DRAFT)
LIMITS = ObjectLimits(connect=0.3, timeout=0.5, calls=4)


class BucketPlace:
    """A tree, a place in the bucket of a server, and both as one storage. ``main`` is in place of the tree."""

    def __init__(
        self, directory: Path, server: S3Server, keeps_history: KeepsHistory = keeps_all, main: Storage | None = None
    ) -> None:
        self.server = server
        self.root = directory / "root"
        tree = opened(Store(initialised(self.root), lock_timeout=1, keeps_history=keeps_history))
        self.store: Storage = main or tree
        objects = Objects(parse_bucket(f"s3://{BUCKET}/attachments", server.url), LIMITS)
        self.bodies = ObjectBodies(objects, str(self.root), keeps_history)
        self.attached = SplitStorage(self.store, self.bodies)

    def write(self, body: bytes, address: DocumentAddress = CAT) -> Sidecar:
        return put(self.attached, address, body)

    def body(self, address: DocumentAddress = CAT) -> bytes:
        found = self.attached.read(address, content=True)
        assert found is not None
        with found.opened as file:
            return file.read()

    def ids(self, address: DocumentAddress = CAT) -> set[str]:
        """The content ids of the objects of an attachment."""
        prefix = f"attachments/pics/album/{address.collection.value}/{address.document}/{address.name}/"
        return {key.removeprefix(prefix) for key in self.server.keys_of(prefix)}

    def notes(self) -> list[str]:
        return os.listdir(self.root / ".bodies") if (self.root / ".bodies").exists() else []

    def sweep(self, age: float = -1) -> int:
        """Settle what crashes have left, however young it is."""
        return settle_notes(self.bodies, lambda _: self.store, age)
