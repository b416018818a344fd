"""The commands with attachments in a bucket, whose records are in a tree or a database."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persistence.cli import commands
from persistence.errors import BusyError
from tests.imports.archives import tree
from tests.in_process import serving
from tests.postgresql.server import Server, fresh_schema
from tests.s3.places import V1, D, inside, require_whole
from tests.s3.server import BUCKET, Fault, S3Server, Stored
from tests.service import PUBLIC, Service

BUCKETED = f"s3://{BUCKET}/x"


class Places:
    """Data in a tree or a database, of which the attachments are in a bucket, and commands with settings of it."""

    def __init__(self, directory: Path, data: str, server: S3Server) -> None:
        self.directory = directory
        self.data = data
        self._server = server

    def settings(self, data: str | None = None, *, has_bucket: bool = True) -> str:
        data = data or self.data
        file = self.directory / f"{abs(hash(data))}-{has_bucket}.toml"
        bucket = f'"svc.persistence.big.base-path" = "{BUCKETED}"\n'
        bucket += f'"svc.persistence.big.endpoint" = "{self._server.url}"\n'
        bucket += '"svc.persistence.provider.*.*.data.attachments" = "big"\n'
        file.write_text(f'data = "{data}"\nlocal = "local"\nremote_timeout = 1.0\n{bucket if has_bucket else ""}')
        return str(file)

    def run(self, *arguments: str, config: str | None = None, status: int | None = None) -> Result:
        done = CliRunner().invoke(commands, [*arguments, "--config", config or self.settings()])
        assert status in (None, done.exit_code), done.output
        return done

    @contextmanager
    def served(self, data: str | None = None, *, has_bucket: bool = True) -> Iterator[Service]:
        config = self.settings(data, has_bucket=has_bucket)
        with serving(self.directory, place=data or self.data, options=("--config", config), alone=True) as service:
            service.face = PUBLIC
            yield service

    def bodies(self, data: str | None = None, *, has_bucket: bool = True) -> tuple[bytes, set[bytes]]:
        """The attachment as a service has it, and all its revisions."""
        with self.served(data, has_bucket=has_bucket) as service:
            history = service.raw("GET", f"{PUBLIC}/history/pics/album/D/a.bin").body.decode()
            times = re.findall(r'modified-time="([^"]+)"', history)
            every = {service.get(f"{D}/a.bin?last-modified-time={each}").body for each in times}
            return service.get(f"{D}/a.bin").body, every

    def backup(self) -> Path:
        return max(path for path in (self.directory / "backups").iterdir() if path.is_dir())


Make = Callable[[str], Places]


@pytest.fixture
def make(tmp_path: Path, server: S3Server, request: pytest.FixtureRequest) -> Make:
    """Makes places of a kind, with a document and two revisions of its attachment."""

    def made(kind: str) -> Places:
        data = str(tmp_path / "data")
        if kind == "database":
            database: Server = request.getfixturevalue("database_server")
            data = database.uri(fresh_schema())
        places = Places(tmp_path, data, server)
        with places.served() as service:
            service.save("pics/album", body=b"<d><a>/fr/service/persistence/crud/pics/album/data/D/a.bin</a></d>")
            for body in (b"one", b"two"):
                assert service.put(f"{D}/a.bin", body, **V1).status in (201, 204)
        return places

    return made


@pytest.fixture(params=["tree", "database"])
def places(request: pytest.FixtureRequest, make: Make) -> Places:
    return make(request.param)


def test_a_bucket_in_order_is_in_order(places: Places) -> None:
    for options in ((), ("--deep",), ("--repair",), ("pics/album", "pics/album/data/D/a.bin")):
        places.run("check", *options, status=0)


def test_a_lost_and_a_changed_body_are_found(places: Places, server: S3Server) -> None:
    changed, lost = server.keys_of("x/")
    del server.objects[lost]
    server.objects[changed] = Stored(b"ONE")
    said = places.run("check", status=4).output
    assert "body-missing: the body of" in said
    assert f"is not in {BUCKETED}" in said
    assert (said.count("body-missing"), "body-damaged" in said) == (1, False)
    said = places.run("check", "--deep", status=4).output
    assert ("body-damaged" in said, "digest" in said) == (True, True)


def test_a_part_of_a_database_is_checked_with_its_bodies(make: Make, server: S3Server) -> None:
    places = make("database")
    del server.objects[server.keys_of("x/")[0]]
    places.run("check", "pics/album/data/D/data.xml", status=0)
    assert places.run("check", "pics/album/data/D", "pics/album").output.count("body-missing") == 1


def test_bodies_without_a_property_that_leads_to_them_are_named(make: Make) -> None:
    places = make("database")
    alone = places.settings(has_bucket=False)
    said = places.run("check", config=alone, status=4).output
    assert said.count("no property leads to its body") == 2
    said = places.run("backup", str(places.directory / "backups"), config=alone, status=4).output
    assert said.count("no property leads to it") == 2


def test_objects_without_a_record_are_found_and_removed_but_not_those_of_unknown_forms(
    places: Places, server: S3Server
) -> None:
    stray, other, foreign = f"x/{D}/a.bin/{'0' * 40}", f"x/hr/leave/data/D/a.bin/{'0' * 40}", "x/mine.txt"
    young = f"x/{D}/a.bin/{'1' * 40}"
    before = server.keys_of()
    server.objects |= {key: Stored(b"x", time.time() - 4000) for key in (stray, other, foreign)}
    server.objects[young] = Stored(b"x")
    said = places.run("check", status=4).output
    assert f"s3://{BUCKET}/{stray}: stray-object: a body that no record names" in said
    assert f"s3://{BUCKET}/{other}: foreign: there are no records of hr/leave" in said
    assert f"s3://{BUCKET}/{foreign}: foreign: a key that the service does not give" in said
    assert places.run("check", "hr/leave").exit_code != 4
    places.run("check", "--repair", "--dry-run", status=4)
    assert stray in server.objects
    places.run("check", "--repair", status=3)
    assert server.keys_of() == sorted([*before, other, foreign, young])
    places.run("check", status=0)


def test_a_store_that_is_down_fails_a_check_with_one_line(make: Make, server: S3Server) -> None:
    places = make("tree")
    server.faults = [Fault("^HEAD", 503, "SlowDown")]
    result = places.run("check", status=1)
    assert isinstance(result.exception, BusyError)
    assert str(result.exception) == f"looking at a body in {BUCKETED}: the store answers 503"
    server.faults = [Fault("^GET", 503, "SlowDown")]
    said = places.run("check", status=1).output
    assert f"persistence: {BUCKETED}: listing bodies in {BUCKETED}: the store answers 503" in said


def test_a_backup_has_the_attachments_and_a_restore_needs_no_bucket(places: Places, server: S3Server) -> None:
    backups, again = str(places.directory / "backups"), str(places.directory / "again")
    for _ in range(2):
        said = places.run("backup", backups, "--verify", status=0).output
    assert " 0 files copied" in said, "what the first one has is linked"
    (layout,) = places.backup().rglob("layout.json")
    places.run("check", "--data", str(layout.parent), status=0)
    server.objects.clear()
    places.run("restore", backups, config=places.settings(again, has_bucket=False), status=0)
    assert places.bodies(again, has_bucket=False) == places.bodies(again) == (b"two", {b"one", b"two"})
    with places.served(again) as service:
        assert service.put(f"{D}/a.bin", b"three").status == 204
        assert service.get(f"{D}/a.bin").body == b"three"
    assert len(server.keys_of("x/")) == 1


def test_an_archive_with_attachments_is_imported(make: Make, server: S3Server) -> None:
    """Under the entity tags that they had: an object has the id of its upload."""
    places = make("tree")
    archive, other = str(places.directory / "all.zip"), str(places.directory / "other")
    places.run("export", archive, "--history", "include", status=0)
    with places.served() as service:
        tag = service.get(f"{D}/a.bin")["ETag"]
    server.objects.clear()
    config = places.settings(other)
    places.run("init", "--data", other, config=config, status=0)
    for said in ("attachments: 1 imported, 0 were there", "attachments: 0 imported, 1 were there"):
        assert said in places.run("import", archive, config=config, status=0).output
    with places.served(other) as service:
        answer = service.get(f"{D}/a.bin")
        assert (answer.status, answer.body, answer["ETag"]) == (200, b"two", tag)
    assert len(server.keys_of("x/")) == 2
    places.run("check", "--deep", config=config, status=0)


def test_a_backup_says_which_bodies_are_lost(places: Places, server: S3Server) -> None:
    del server.objects[server.keys_of("x/")[0]]
    said = places.run("backup", str(places.directory / "backups"), status=4).output
    assert f"is missing in {BUCKETED}" in said
    server.faults = [Fault(".", 503, "SlowDown")]
    result = places.run("backup", str(places.directory / "more"), status=1)
    assert isinstance(result.exception, BusyError)


def test_a_backup_is_restored_with_its_attachments_in_a_bucket(make: Make, server: S3Server) -> None:
    """By the settings in force, and into a place that only the option names; and what was damaged is named."""
    places = make("tree")
    backups, directory = str(places.directory / "backups"), places.directory
    places.run("backup", backups, status=0)
    server.objects.clear()
    (damaged,) = places.backup().glob(f"**/{D}/a.bin")

    def restore(prefix: str, to: Path, status: int) -> Result:
        options = ("--attachments", f"s3://{BUCKET}/{prefix}", "--data", str(to))
        return places.run("restore", backups, *options, status=status)

    for to, prefix in ((directory / "again", "x"), (directory / "other", "y")):
        restore(prefix, to, 0)
        require_whole(server, prefix, to)
        assert (len(server.keys_of(f"{prefix}/")), inside(to)) == (2, [])
    damaged.write_bytes(b"tw0")
    assert "pics/album/data/D: not restored" in restore("z", directory / "third", 4).output
    assert server.keys_of("z/") == []
    assert "not empty" in str(restore("x", directory / "other", 1).exception)


def test_attachments_stay_in_their_bucket_when_their_data_is_moved_there_and_back(
    make: Make, server: S3Server, database_server: Server
) -> None:
    places = make("tree")
    before = {key: each.data for key, each in server.objects.items()}
    uri, back = database_server.uri(fresh_schema()), str(places.directory / "back")
    config = places.settings(uri)
    for _ in range(2):
        places.run("move", "--from", places.data, "--to", uri, config=config, status=0)
    assert places.bodies(uri) == (b"two", {b"one", b"two"})
    places.run("move", "--from", uri, "--to", back, config=config, status=0)
    assert tree(Path(back)) == tree(Path(places.data))
    assert {key: each.data for key, each in server.objects.items()} == before
    places.run("check", "--deep", config=config, status=0)
