"""Moves between trees and databases whose attachments are in buckets."""

from __future__ import annotations

from pathlib import Path

from persistence.storage.reader import StoreReader
from tests import in_process
from tests.imports.archives import tree
from tests.postgresql.server import Server, fresh_schema
from tests.postgresql.storages import storage_at
from tests.s3.moves import D, inside, move, require_whole, run, settings_at, states
from tests.s3.server import S3Server
from tests.service import Service


def test_attachments_go_through_databases_and_buckets_and_back(
    plain: Service, server: S3Server, tmp_path: Path, database_server: Server
) -> None:
    first, second = (database_server.uri(fresh_schema()) for _ in range(2))
    there, back = tmp_path / "there", tmp_path / "back"
    move(plain.data, first, "x", config=settings_at(tmp_path, server, plain.data))
    config = settings_at(tmp_path, server, first, "x")
    assert run("check", "--deep", config=config).exit_code == 0
    assert len(server.keys_of("x/")) == 5
    move(first, there, "y", config=config)
    require_whole(server, "y", there)
    assert states(storage_at(first, tmp_path / "local")) == states(StoreReader(str(plain.data)))
    move(there, second, "with-data", config=settings_at(tmp_path, server, there, "y"))
    assert run("check", "--deep", config=settings_at(tmp_path, server, second)).exit_code == 0
    move(second, back, "with-data", config=settings_at(tmp_path, server, second))
    assert tree(back) == tree(plain.data)


def test_a_service_on_the_database_has_the_attachments(
    plain: Service, server: S3Server, tmp_path: Path, database_server: Server
) -> None:
    uri = database_server.uri(fresh_schema())
    move(plain.data, uri, "x", "--prepare", config=settings_at(tmp_path, server, plain.data))
    plain.delete("pics/album/draft/D/data.xml", Form_Definition_Version=1)
    said = move(plain.data, uri, "x", config=settings_at(tmp_path, server, plain.data)).output
    assert "the properties must lead attachments to" in said
    assert len(server.keys_of("x/")) == 4
    config = settings_at(tmp_path, server, uri, "x")
    with in_process.serving(tmp_path, place=uri, options=("--config", config), alone=True) as service:
        for name in ("a.bin", "large.bin", "gone.bin"):
            answer, before = service.get(f"{D}/{name}"), plain.get(f"{D}/{name}")
            assert (answer.status, answer.body, answer["ETag"]) == (before.status, before.body, before["ETag"])
    assert run("check", "--deep", config=config).exit_code == 0


def test_a_backup_of_a_database_is_restored_into_another_bucket(
    plain: Service, server: S3Server, tmp_path: Path, database_server: Server
) -> None:
    first, second = (database_server.uri(fresh_schema()) for _ in range(2))
    move(plain.data, first, "x", config=settings_at(tmp_path, server, plain.data))
    config, backups = settings_at(tmp_path, server, first, "x"), str(tmp_path / "backups")
    run("backup", backups, config=config)
    server.objects.clear()
    config = settings_at(tmp_path, server, second, "z")
    run("restore", backups, "--attachments", "s3://forms/z", config=config)
    assert run("check", "--deep", config=config).exit_code == 0
    assert len(server.keys_of("z/")) == 5
    move(second, tmp_path / "back", "with-data", config=config)
    assert inside(tmp_path / "back") == inside(plain.data)
    assert tree(tmp_path / "back") == tree(plain.data)
