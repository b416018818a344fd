"""``check``, ``backup``, ``restore`` and ``move`` of a database whose attachments are in a bucket."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persistence.cli import commands
from tests.imports.archives import tree
from tests.in_process import serving
from tests.postgresql.server import Server, fresh_schema
from tests.s3.server import BUCKET, S3Server, Stored
from tests.s3.test_commands import D, fill
from tests.service import PUBLIC


class Places:
    """A tree and a database of which the attachments are in one bucket, and the settings of both."""

    def __init__(self, directory: Path, uri: str, server: S3Server) -> None:
        self.directory = directory
        self.uri = uri
        self._server = server
        self.database = self.settings("database", uri)
        self.tree = self.settings("tree", str(directory / "data"))

    def settings(self, name: str, data: str, *, has_bucket: bool = True) -> str:
        file = self.directory / f"{name}.toml"
        bucket = f'"svc.persistence.big.base-path" = "s3://{BUCKET}/x"\n'
        bucket += f'"svc.persistence.big.endpoint" = "{self._server.url}"\n'
        bucket += '"svc.persistence.provider.*.*.data.attachments" = "big"\n'
        file.write_text(f'data = "{data}"\nlocal = "local"\nremote_timeout = 5.0\n{bucket if has_bucket else ""}')
        return str(file)

    def run(self, *arguments: str, config: str | None = None) -> Result:
        return CliRunner().invoke(commands, [*arguments, "--config", config or self.database])

    def fill(self, config: str, data: str) -> None:
        with serving(self.directory, place=data, options=("--config", config), alone=True) as service:
            fill(service)

    def bodies(self, config: str, data: str) -> tuple[bytes, set[bytes]]:
        """The attachment as a service has it, and all its revisions."""
        with serving(self.directory, place=data, options=("--config", config), alone=True) as service:
            service.face = PUBLIC
            history = service.raw("GET", f"{PUBLIC}/history/pics/album/D/a.bin").body.decode()
            times = re.findall(r'modified-time="([^"]+)"', history)
            every = {service.get(f"{D}/a.bin?last-modified-time={each}").body for each in times}
            return service.get(f"{D}/a.bin").body, every


@pytest.fixture
def places(tmp_path: Path, server: S3Server, database_server: Server) -> Places:
    return Places(tmp_path, database_server.uri(fresh_schema()), server)


@pytest.fixture
def filled(places: Places) -> Places:
    """With a document and two revisions of its attachment in the database."""
    places.fill(places.database, places.uri)
    return places


def test_a_bucket_in_order_is_in_order(filled: Places) -> None:
    for options in ((), ("--deep",), ("--repair",), ("pics/album", "pics/album/data/D/a.bin")):
        result = filled.run("check", *options)
        assert result.exit_code == 0, result.output


def test_a_lost_and_a_changed_body_are_found(filled: Places, server: S3Server) -> None:
    changed, lost = server.keys_of("x/")
    del server.objects[lost]
    server.objects[changed] = Stored(b"ONE")
    result = filled.run("check")
    assert (result.exit_code, result.output.count("body-missing")) == (4, 1), result.output
    assert f"is not in s3://{BUCKET}/x" in result.output
    assert "body-damaged" not in result.output
    assert "body-damaged" in filled.run("check", "--deep").output
    assert filled.run("check", "pics/album/data/D/data.xml").exit_code == 0
    assert filled.run("check", "pics/album/data/D", "pics/album").output.count("body-missing") == 1


def test_bodies_without_a_property_that_leads_to_them_are_named(filled: Places) -> None:
    alone = filled.settings("alone", filled.uri, has_bucket=False)
    result = filled.run("check", config=alone)
    assert (result.exit_code, result.output.count("no property leads to its body")) == (4, 2), result.output
    result = filled.run("backup", str(filled.directory / "backups"), config=alone)
    assert (result.exit_code, result.output.count("no property leads to it")) == (4, 2), result.output


def test_strays_are_removed_but_not_those_of_unknown_forms(filled: Places, server: S3Server) -> None:
    stray, other = f"x/{D}/a.bin/{'0' * 40}", f"x/hr/leave/data/D/a.bin/{'0' * 40}"
    before = server.keys_of()
    server.objects |= {key: Stored(b"x", time.time() - 4000) for key in (stray, other)}
    result = filled.run("check")
    assert f"s3://{BUCKET}/{stray}: stray-object: a body that no record names" in result.output
    assert f"s3://{BUCKET}/{other}: foreign: there are no records of hr/leave" in result.output
    assert filled.run("check", "--repair").exit_code == 3
    assert server.keys_of() == sorted([*before, other])


def test_a_backup_has_the_attachments_and_needs_no_bucket(filled: Places, server: S3Server) -> None:
    backups = str(filled.directory / "backups")
    for _ in range(2):
        result = filled.run("backup", backups, "--verify")
        assert result.exit_code == 0, result.output
    assert " 0 files copied" in result.output, "what the first one has is linked"
    server.objects.clear()
    alone = filled.settings("alone", str(filled.directory / "restored"), has_bucket=False)
    assert filled.run("restore", backups, config=alone).exit_code == 0
    assert filled.bodies(alone, str(filled.directory / "restored")) == (b"two", {b"one", b"two"})


def test_a_backup_says_which_bodies_are_lost(filled: Places, server: S3Server) -> None:
    del server.objects[server.keys_of("x/")[0]]
    result = filled.run("backup", str(filled.directory / "backups"))
    assert result.exit_code == 4
    assert f"is missing in s3://{BUCKET}/x" in result.output


def test_attachments_stay_in_their_bucket_when_their_data_is_moved_there_and_back(
    places: Places, server: S3Server
) -> None:
    places.fill(places.tree, str(places.directory / "data"))
    before = {key: each.data for key, each in server.objects.items()}
    there, back = str(places.directory / "data"), str(places.directory / "back")
    for _ in range(2):
        result = places.run("move", "--from", there, "--to", places.uri)
        assert result.exit_code == 0, result.output
    assert places.bodies(places.database, places.uri) == (b"two", {b"one", b"two"})
    result = places.run("move", "--from", places.uri, "--to", back)
    assert result.exit_code == 0, result.output
    assert tree(Path(back)) == tree(Path(there))
    assert {key: each.data for key, each in server.objects.items()} == before
    assert places.run("check", "--deep").exit_code == 0
