"""The commands with attachments in a bucket, whose records are in a tree or a database.

What a check and a backup say of bodies that are lost or stray is in ``bucket.txt`` of the golden transcripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.in_process import serving
from tests.postgresql.server import Server, fresh_schema
from tests.s3.places import V1, D, inside, require_whole, run, settings_at
from tests.s3.server import BUCKET, S3Server
from tests.service import PUBLIC, Service
from tests.services.transferring import tree


@contextmanager
def served(directory: Path, config: str, data: str) -> Iterator[Service]:
    with serving(directory, place=data, options=("--config", config), alone=True) as service:
        service.face = PUBLIC
        yield service


@pytest.fixture(params=["tree", "database"])
def data(request: pytest.FixtureRequest, tmp_path: Path, server: S3Server) -> str:
    """A place with a document and two revisions of its attachment, whose bodies are below ``x`` in the bucket."""
    place = str(tmp_path / "data")
    if request.param == "database":
        database: Server = request.getfixturevalue("database_server")
        place = database.uri(fresh_schema())
    with served(tmp_path, settings_at(tmp_path, server, place, "x"), place) as service:
        service.save("pics/album", body=b"<d><a>/fr/service/persistence/crud/pics/album/data/D/a.bin</a></d>")
        for body in (b"one", b"two"):
            assert service.put(f"{D}/a.bin", body, **V1).status in (201, 204)
    return place


in_a_tree = pytest.mark.parametrize("data", ["tree"], indirect=True)


def bodies(directory: Path, config: str, data: str) -> tuple[bytes, set[bytes]]:
    """The attachment as a service has it, and all its revisions."""
    with served(directory, config, data) as service:
        history = service.raw("GET", f"{PUBLIC}/history/pics/album/D/a.bin").body.decode()
        times = re.findall(r'modified-time="([^"]+)"', history)
        every = {service.get(f"{D}/a.bin?last-modified-time={each}").body for each in times}
        return service.get(f"{D}/a.bin").body, every


def test_a_backup_has_the_attachments_and_a_restore_needs_no_bucket(
    data: str, server: S3Server, tmp_path: Path
) -> None:
    backups, again, config = (
        str(tmp_path / "backups"),
        str(tmp_path / "again"),
        settings_at(tmp_path, server, data, "x"),
    )
    for _ in range(2):
        said = run("backup", backups, "--verify", config=config).output
    assert " 0 files copied" in said, "what the first one has is linked"
    run("check", "--data", str(next((tmp_path / "backups").rglob("layout.json")).parent), config=config)
    server.objects.clear()
    without, bucketed = settings_at(tmp_path, server, again), settings_at(tmp_path, server, again, "x")
    run("restore", backups, config=without)
    for each in (without, bucketed):
        assert bodies(tmp_path, each, again) == (b"two", {b"one", b"two"})
    with served(tmp_path, bucketed, again) as service:
        assert service.put(f"{D}/a.bin", b"three").status == 204
        assert service.get(f"{D}/a.bin").body == b"three"
    assert len(server.keys_of("x/")) == 1


@in_a_tree
def test_an_archive_with_attachments_is_imported(data: str, server: S3Server, tmp_path: Path) -> None:
    """Under the entity tags that they had: an object has the id of its upload."""
    archive, other, config = (
        str(tmp_path / "all.zip"),
        str(tmp_path / "other"),
        settings_at(tmp_path, server, data, "x"),
    )
    run("export", archive, "--history", "include", config=config)
    with served(tmp_path, config, data) as service:
        tag = service.get(f"{D}/a.bin")["ETag"]
    server.objects.clear()
    config = settings_at(tmp_path, server, other, "x")
    run("init", "--data", other, config=config)
    for said in ("attachments: 1 imported, 0 were there", "attachments: 0 imported, 1 were there"):
        assert said in run("import", archive, config=config).output
    with served(tmp_path, config, other) as service:
        answer = service.get(f"{D}/a.bin")
        assert (answer.status, answer.body, answer["ETag"]) == (200, b"two", tag)
    assert len(server.keys_of("x/")) == 2
    run("check", "--deep", config=config)


@in_a_tree
def test_a_backup_is_restored_with_its_attachments_in_a_bucket(data: str, server: S3Server, tmp_path: Path) -> None:
    """By the settings in force, and into a place that only the option names; and what was damaged is named."""
    config, backups = settings_at(tmp_path, server, data, "x"), tmp_path / "backups"
    run("backup", str(backups), config=config)
    server.objects.clear()

    def restore(prefix: str, to: Path, status: int = 0) -> str:
        options = ("--attachments", f"s3://{BUCKET}/{prefix}", "--data", str(to))
        done = run("restore", str(backups), *options, config=config, status=status)
        return f"{done.output}{done.exception}"

    for to, prefix in ((tmp_path / "again", "x"), (tmp_path / "other", "y")):
        restore(prefix, to)
        require_whole(server, prefix, to)
        assert (len(server.keys_of(f"{prefix}/")), inside(to)) == (2, [])
    next(backups.glob(f"2*/**/{D}/a.bin")).write_bytes(b"tw0")
    assert "pics/album/data/D: not restored" in restore("z", tmp_path / "third", 4)
    assert server.keys_of("z/") == []
    assert "not empty" in restore("x", tmp_path / "other", 1)


@in_a_tree
def test_attachments_stay_in_their_bucket_when_their_data_is_moved_there_and_back(
    data: str, server: S3Server, tmp_path: Path, database_server: Server
) -> None:
    before = {key: each.data for key, each in server.objects.items()}
    uri, back = database_server.uri(fresh_schema()), str(tmp_path / "back")
    config = settings_at(tmp_path, server, uri, "x")
    for _ in range(2):
        run("move", "--from", data, "--to", uri, config=config)
    assert bodies(tmp_path, config, uri) == (b"two", {b"one", b"two"})
    run("move", "--from", uri, "--to", back, config=config)
    assert tree(Path(back)) == tree(Path(data))
    assert {key: each.data for key, each in server.objects.items()} == before
    run("check", "--deep", config=config)
