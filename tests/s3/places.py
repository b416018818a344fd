"""A storage of records and a bucket, and both as one storage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from click.testing import CliRunner, Result

from persistence.cli import commands
from persistence.model.addresses import DATA_XML, Address, Collection, DocumentAddress
from persistence.model.network_addresses import parse_bucket
from persistence.s3.body_references import BodyReference, settle_notes
from persistence.s3.object_bodies import ObjectBodies, ObjectLimits, Objects
from persistence.services.moves import UnitState, state_of
from persistence.storage.reader import StoreReader
from persistence.storage.storage import KeepsHistory, Storage, keeps_all
from persistence.storage.store import Store
from tests.initialised import initialised
from tests.opened import opened
from tests.s3.server import BUCKET, S3Server, Stored
from tests.service import Service
from tests.services.transferring import addresses
from tests.storage.bodies_contract import CAT, Place

LIMITS = ObjectLimits(connect=0.3, timeout=0.5, calls=4)
_D = "attachments/pics/album/data/D"


def bodies_at(directory: Path, server: S3Server, keeps_history: KeepsHistory = keeps_all) -> ObjectBodies:
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
        prefix = f"attachments/pics/album/{address.collection.value}/{address.document}/{address.name}/"
        return {key.removeprefix(prefix) for key in self.server.keys_of(prefix)}

    def notes(self) -> list[str]:
        return os.listdir(self.root / ".bodies") if (self.root / ".bodies").exists() else []

    def sweep(self, age: float = -1) -> int:
        """Settle what crashes have left, however young it is."""
        return settle_notes(self.bodies, lambda _: self.store, age)  # type: ignore[arg-type]  # they are ``bodies_at``


# Moves whose attachments come to a bucket or leave one, by the command, and what there is of them afterwards.

V1 = {"Form_Definition_Version": 1}
D = "pics/album/data/D"
LARGE = b"0123456789abcdef" * (6 << 16)


def fill(service: Service) -> None:
    """Store a document of two revisions, attachments of two and of one, one that is deleted, and a draft with one."""
    for number in (b"1", b"2"):
        service.put(f"{D}/data.xml", b"<d>" + number + b"</d>", **V1)
        service.put(f"{D}/a.bin", b"a" + number, **V1)
    service.put(f"{D}/large.bin", LARGE, **V1)
    service.put(f"{D}/gone.bin", b"gone", **V1)
    service.delete(f"{D}/gone.bin", **V1)
    service.put("pics/album/draft/D/data.xml", b"<draft/>", **V1)
    service.put("pics/album/draft/D/a.bin", b"draft", **V1)


def settings_at(directory: Path, server: S3Server, data: Path | str, prefix: str = "", more: str = "") -> str:
    """A file of settings for a place, whose attachments are below a prefix of the bucket, if one is given."""
    name = f"{prefix or 'plain'}-{abs(hash(str(data)))}"
    bucket = f'"svc.persistence.big.base-path" = "s3://{BUCKET}/{prefix}"\n'
    bucket += f'"svc.persistence.big.endpoint" = "{server.url}"\n'
    bucket += '"svc.persistence.provider.*.*.data.attachments" = "big"\n'
    file = directory / f"{name}.toml"
    file.write_text(f'data = "{data}"\nlocal = "local"\nremote_timeout = 5.0\n{bucket if prefix else ""}{more}')
    return str(file)


def run(*arguments: str, config: str, status: int = 0) -> Result:
    result = CliRunner().invoke(commands, [*arguments, "--config", config])
    assert result.exit_code == status, (result.output, result.exception)
    return result


def move(there: Path | str, here: Path | str, attachments: str, *more: str, config: str, status: int = 0) -> Result:
    """Move from one place to another, and the attachments to a prefix of the bucket, or ``with-data``."""
    to = attachments if attachments == "with-data" else f"s3://{BUCKET}/{attachments}"
    options = ("--from", str(there), "--to", str(here), "--attachments", to, *more)
    return run("move", *options, config=config, status=status)


def swept(server: S3Server, prefix: str, home: Path, storage: Storage | StoreReader) -> int:
    """Settle the notes of a place, however young they are; return how many objects were removed."""
    bodies = ObjectBodies(Objects(parse_bucket(f"s3://{BUCKET}/{prefix}", server.url), LIMITS), str(home))
    return settle_notes(bodies, lambda _: storage, -1)


def named(root: Path | str) -> Iterator[tuple[str, int]]:
    """The keys below the prefix, and the sizes, of all bodies that the records of a tree name."""
    store = StoreReader(str(root))
    for address in addresses(store):
        for each in store.history(address).every():
            if each.sidecar.body is not None:
                assert isinstance(address, DocumentAddress)
                yield BodyReference(address, each.sidecar.id).key, each.sidecar.body.size


def inside(root: Path | str) -> list[str]:
    """The attachments of data of a tree that have bytes beside their records, older revisions too."""
    store, found = StoreReader(str(root)), list[str]()
    for address in addresses(store):
        is_attachment = isinstance(address, DocumentAddress) and not address.is_main
        for each in store.history(address).every() if is_attachment else ():
            if each.sidecar is not None and each.sidecar.size:
                found.append(f"{address} of {each.instant}")
    return found


def require_whole(server: S3Server, prefix: str, root: Path | str) -> None:
    """Every record of a tree has its object below the prefix, of its size, and every object has a record."""
    known = {f"{prefix}/{key}": size for key, size in named(root)}
    assert {key: len(server.objects[key].data) for key in server.keys_of(f"{prefix}/")} == known


def states(storage: Storage | StoreReader) -> dict[Address, UnitState]:
    """The states of all documents: instants, entity tags, sizes and digests of all revisions."""
    found = {}
    for form in storage.forms():
        for collection in Collection:
            for document in storage.documents(form, collection):
                main = DocumentAddress(form, Collection.DATA, document, DATA_XML)
                found[main] = state_of(storage, main)
    return found
