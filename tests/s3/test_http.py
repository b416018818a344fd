"""Attachments in a bucket over HTTP: what clients see is what they see of a tree."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from http.client import IncompleteRead
from pathlib import Path

import pytest

from persistence import settings as configuration
from persistence.crypto import MAGIC, EncryptionKeys
from persistence.dialect import DIALECTS
from persistence.keys import Keys
from persistence.model.addresses import Form
from persistence.providers.locations import open_encryption_keys
from persistence.providers.opened import Providers, unheard
from persistence.services.codec import EncryptionAtRest
from persistence.services.reencryption import Reencryption
from tests import service as services
from tests.encrypted_form import DEFINITION, data
from tests.encrypted_form import path as holder
from tests.in_process import serving
from tests.s3.server import BUCKET, SECRET_KEY, Fault, S3Server
from tests.service import PUBLIC, Service

FORM = "pics/album"
V1 = {"Form_Definition_Version": 1}
BYTES = os.urandom(700_000)


@pytest.fixture
def service(tmp_path: Path, server: S3Server) -> Iterator[Service]:
    """A service with a key, which has the attachments of all data in the bucket."""
    EncryptionKeys(str(tmp_path / "encryption.json"), trees=[str(tmp_path / "data")]).new()
    admin = Keys(f"{tmp_path}/keys.json", tree=f"{tmp_path}/data").add("admin")
    values = {"provider.*.*.data.attachments": "big", "big.base-path": f"s3://{BUCKET}/x", "big.endpoint": server.url}
    file = tmp_path / "settings.toml"
    file.write_text(
        'encryption_keys = "encryption.json"\nkeys = "keys.json"\nadministrators = ["admin"]\nremote_timeout = 0.5\n'
        + "".join(f'"svc.persistence.{name}" = "{value}"\n' for name, value in values.items())
    )
    with serving(tmp_path, options=("--config", str(file)), alone=True) as service:
        service.face = PUBLIC
        service.extra = {"Authorization": f"Bearer {admin}"}
        yield service


@pytest.fixture
def document(service: Service) -> str:
    assert service.put(f"{FORM}/data/D/data.xml", b"<d><a>a.bin</a></d>", **V1).status == 201
    return f"{FORM}/data/D"


def keys(server: S3Server, name: str = "") -> list[str]:
    return [key for key in server.keys_of("x/") if f"/{name}" in key]


@pytest.mark.parametrize("size", [0, 1, 70_000, 700_000])
def test_bytes_ranges_and_conditions(service: Service, document: str, server: S3Server, size: int) -> None:
    path, body = f"{document}/a.bin", BYTES[:size]
    assert service.put(path, body, **V1).status == 201
    read = service.get(path)
    assert (read.status, read["Content-Length"], read.body == body) == (200, str(size), True)
    head = service.head(path)
    assert (head.status, head["Content-Length"], head["Accept-Ranges"]) == (200, str(size), "bytes")
    assert len(keys(server, "a.bin")) == 1
    assert service.get(path, {"If-None-Match": read["ETag"] or ""}).status == 304
    assert service.put(path, b"x", {"If-Match": '"' + "0" * 40 + '"'}).status == 412
    assert len(keys(server, "a.bin")) == 1, "what was refused leaves nothing"
    for first, last in ((0, 0), (size // 2, size // 2 + 99), (size - 1, size + 99)):
        if 0 <= first < size:
            part = service.get(path, {"Range": f"bytes={first}-{last}"})
            assert (part.status, part.body) == (206, body[first : last + 1])
    assert service.get(path, {"Range": f"bytes={size}-"}).status == (416 if size else 200)


def test_encrypted_bodies_are_encrypted_in_the_bucket_and_reencrypted(
    service: Service, server: S3Server, tmp_path: Path
) -> None:
    form, name = "enc/f", "secret.bin"
    assert service.put(f"{form}/form/form.xhtml", DEFINITION).status == 201
    assert service.put(f"{form}/data/D/{name}", BYTES, **V1, Path_To_Holder="person/scan").status == 201
    assert service.put(f"{form}/data/D/data.xml", data(scan=holder(form, "D", name)), **V1).status == 201
    read = service.get(f"{form}/data/D/{name}", Decrypt="true")
    assert (read.status, read.body == BYTES) == (200, True)
    before = keys(server, name)
    assert [server.objects[key].data[: len(MAGIC)] for key in before] == [MAGIC]
    EncryptionKeys(str(tmp_path / "encryption.json"), trees=[str(tmp_path / "data")]).new()
    loaded = configuration.load(str(tmp_path / "settings.toml"), {"data": services.place_of(tmp_path / "data")}, {})
    with Providers(
        loaded.settings, loaded.properties, listener_at=unheard
    ) as offline:  # as the command, without an index
        keyring = open_encryption_keys(loaded.settings, loaded.properties)
        at_rest = EncryptionAtRest(offline.router, DIALECTS["svc"], keyring)
        storage = offline.at(loaded.settings.roots.default).storage
        job = Reencryption(storage, offline.bodies_by_form, at_rest)
        assert job.encrypt(Form(*form.split("/")), "D") == (2, [])
    assert len(keys(server, name)) == 1
    assert keys(server, name) != before
    again = service.get(f"{form}/data/D/{name}", Decrypt="true")
    assert (again.body == BYTES, again["ETag"]) == (True, read["ETag"])


def test_the_provider_face_keeps_bodies_in_its_tree(service: Service, document: str, server: S3Server) -> None:
    """There a proxy has chosen where attachments are."""
    service.face = ""
    assert service.put(f"{document}/b.bin", b"bytes", Username="lea", **V1).status == 201
    assert keys(server, "b.bin") == []


@pytest.mark.parametrize(
    ("fault", "status"), [(Fault(".", 503, "SlowDown"), 503), (Fault(".", 507, "StorageFull"), 507)]
)
def test_faults_are_statuses_with_one_line(
    service: Service, document: str, server: S3Server, fault: Fault, status: int
) -> None:
    path = f"{document}/a.bin"
    assert service.put(path, b"one", **V1).status == 201
    server.faults = [Fault(**vars(fault))]
    for answer in (service.put(f"{document}/b.bin", b"two", **V1), service.get(path)):
        assert answer.status == status, answer.cause
        assert (answer["Retry-After"] is not None) == (status == 503)
        assert answer.cause.startswith(("storing a body in", "reading a body")) or "s3://" in answer.cause
        assert SECRET_KEY not in answer.cause
    assert service.put(f"{document}/data.xml", b"<d>all the same</d>").status == 204
    server.faults = []
    assert service.get(path).body == b"one"
    assert service.get(f"{document}/b.bin").status == 404


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_lost_body_is_500_and_a_broken_download_breaks(service: Service, document: str, server: S3Server) -> None:
    path = f"{document}/a.bin"
    assert service.put(path, BYTES, **V1).status == 201
    server.faults = [Fault("^GET", is_cut=True, after=1)]
    with pytest.raises(IncompleteRead):
        service.get(path)
    server.faults = []
    stored = server.objects.pop(keys(server, "a.bin")[0])
    assert service.get(path).status == 500
    assert "missing" in service.get(path).cause
    assert stored.data == BYTES
    gc.collect()  # the connection that broke
