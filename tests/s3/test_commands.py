"""The commands with attachments in a bucket: they find what is lost there, and what nobody names."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persistence.cli import commands
from persistence.errors import BusyError
from tests.in_process import serving
from tests.s3.moves import inside, require_whole
from tests.s3.server import BUCKET, Fault, S3Server, Stored
from tests.service import PUBLIC, Service

V1 = {"Form_Definition_Version": 1}
D = "pics/album/data/D"


@pytest.fixture
def stored(tmp_path: Path, server: S3Server) -> Path:
    """A directory with settings, in which a service has stored a document with an attachment and its history."""
    file = tmp_path / "settings.toml"
    file.write_text(
        'data = "data"\nremote_timeout = 1.0\n"svc.persistence.provider.*.*.data.attachments" = "big"\n'
        f'"svc.persistence.big.base-path" = "s3://{BUCKET}/x"\n"svc.persistence.big.endpoint" = "{server.url}"\n'
    )
    with serving(tmp_path, options=("--config", str(file)), alone=True) as service:
        fill(service)
    return tmp_path


def fill(service: Service) -> None:
    service.face = PUBLIC
    assert (
        service.put(f"{D}/data.xml", b"<d><a>/fr/service/persistence/crud/pics/album/data/D/a.bin</a></d>", **V1).status
        == 201
    )
    for body in (b"one", b"two"):
        assert service.put(f"{D}/a.bin", body, **V1).status in (201, 204)


def run(stored: Path, *arguments: str) -> Result:
    return CliRunner().invoke(commands, [*arguments, "--config", str(stored / "settings.toml")])


def test_a_bucket_in_order_is_in_order(stored: Path) -> None:
    for arguments in (("check",), ("check", "--deep"), ("check", "--repair")):
        result = run(stored, *arguments)
        assert result.exit_code == 0, result.output


def test_a_lost_and_a_changed_body_are_found(stored: Path, server: S3Server) -> None:
    changed, *_, lost = server.keys_of("x/")
    del server.objects[lost]
    server.objects[changed] = Stored(b"ONE")
    result = run(stored, "check")
    assert result.exit_code == 4
    assert "body-missing: the body of" in result.output
    assert f"is not in s3://{BUCKET}/x" in result.output
    result = run(stored, "check", "--deep")
    assert "body-damaged" in result.output
    assert "digest" in result.output


def test_objects_without_a_record_are_found_and_removed_but_not_those_of_unknown_forms(
    stored: Path, server: S3Server
) -> None:
    stray, other, foreign = f"x/{D}/a.bin/{'0' * 40}", f"x/hr/leave/data/D/a.bin/{'0' * 40}", "x/mine.txt"
    young = f"x/{D}/a.bin/{'1' * 40}"
    before = server.keys_of()
    server.objects |= {key: Stored(b"x", time.time() - 4000) for key in (stray, other, foreign)}
    server.objects[young] = Stored(b"x")
    result = run(stored, "check")
    assert result.exit_code == 4, result.output
    assert f"s3://{BUCKET}/{stray}: stray-object: a body that no record names" in result.output
    assert f"s3://{BUCKET}/{other}: foreign: there are no records of hr/leave" in result.output
    assert f"s3://{BUCKET}/{foreign}: foreign: a key that the service does not give" in result.output
    assert run(stored, "check", "hr/leave").exit_code != 4
    assert run(stored, "check", "--repair", "--dry-run").exit_code == 4
    assert stray in server.objects
    assert run(stored, "check", "--repair").exit_code == 3
    assert server.keys_of() == sorted([*before, other, foreign, young])
    assert run(stored, "check").exit_code == 0


def test_a_store_that_is_down_fails_a_check_with_one_line(stored: Path, server: S3Server) -> None:
    server.faults = [Fault("^HEAD", 503, "SlowDown")]
    result = run(stored, "check")
    assert (result.exit_code, isinstance(result.exception, BusyError)) == (1, True)
    assert str(result.exception) == f"looking at a body in s3://{BUCKET}/x: the store answers 503"
    server.faults = [Fault("^GET", 503, "SlowDown")]
    result = run(stored, "check")
    assert result.exit_code == 1
    assert f"persistence: s3://{BUCKET}/x: listing bodies in s3://{BUCKET}/x: the store answers 503" in result.output


def test_a_backup_has_the_attachments_and_a_restore_needs_no_bucket(stored: Path, server: S3Server) -> None:
    for _ in range(2):
        result = run(stored, "backup", str(stored / "backups"))
        assert result.exit_code == 0, result.output
    assert " 0 files copied" in result.output, "what the first one has is linked"
    assert run(stored, "check", "--data", str(newest(stored))).exit_code == 0
    server.objects.clear()
    (stored / "again").mkdir()
    assert run(stored, "restore", str(stored / "backups"), "--data", str(stored / "again")).exit_code == 0
    with serving(stored, data=stored / "again", options=("--config", str(stored / "settings.toml"))) as service:
        service.face = PUBLIC
        answer = service.get(f"{D}/a.bin")
        assert (answer.status, answer.body) == (200, b"two")
        history = service.raw("GET", f"{PUBLIC}/history/pics/album/D/a.bin").body.decode()
        (first,) = re.findall(r'modified-time="([^"]+)"[^>]*/>\s*</', history)[:1]
        assert service.get(f"{D}/a.bin?last-modified-time={first}").body == b"one"
        assert service.put(f"{D}/a.bin", b"three").status == 204
        assert service.get(f"{D}/a.bin").body == b"three"
    assert len(server.keys_of("x/")) == 1


def test_an_archive_with_attachments_is_imported(stored: Path, server: S3Server) -> None:
    """Under the entity tags that they had: an object has the id of its upload."""
    archive = str(stored / "all.zip")
    result = run(stored, "export", archive, "--history", "include")
    assert result.exit_code == 0, result.output
    with serving(stored, options=("--config", str(stored / "settings.toml"))) as service:
        service.face = PUBLIC
        tag = service.get(f"{D}/a.bin")["ETag"]
    server.objects.clear()
    file = stored / "settings.toml"
    file.write_text(file.read_text().replace('data = "data"', 'data = "other"'))
    assert run(stored, "init", "--data", str(stored / "other")).exit_code == 0
    for said in ("3 new, 0 known", "0 new, 3 known"):
        result = run(stored, "import", archive)
        assert (result.exit_code, said in result.output) == (0, True), result.output
    with serving(stored, data=stored / "other", options=("--config", str(file))) as service:
        service.face = PUBLIC
        answer = service.get(f"{D}/a.bin")
        assert (answer.status, answer.body, answer["ETag"]) == (200, b"two", tag)
    assert len(server.keys_of("x/")) == 2
    assert run(stored, "check", "--deep").exit_code == 0


def newest(stored: Path) -> Path:
    return max(path for path in (stored / "backups").iterdir() if path.is_dir())


def test_a_backup_says_which_bodies_are_lost(stored: Path, server: S3Server) -> None:
    del server.objects[server.keys_of("x/")[0]]
    result = run(stored, "backup", str(stored / "backups"))
    assert result.exit_code == 4
    assert f"its body is missing in s3://{BUCKET}/x" in result.output
    server.faults = [Fault(".", 503, "SlowDown")]
    result = run(stored, "backup", str(stored / "more"))
    assert (result.exit_code, isinstance(result.exception, BusyError)) == (1, True)


def test_a_backup_is_restored_with_its_attachments_in_a_bucket(stored: Path, server: S3Server) -> None:
    """By the settings in force, and into a place that only the option names; and what was damaged is named."""
    assert run(stored, "backup", str(stored / "backups")).exit_code == 0
    server.objects.clear()
    (damaged,) = newest(stored).glob(f"**/{D}/a.bin")
    again, other = stored / "again", stored / "other"
    for to, prefix in ((again, "x"), (other, "y")):
        place = f"s3://{BUCKET}/{prefix}"
        result = run(stored, "restore", str(stored / "backups"), "--attachments", place, "--data", str(to))
        assert result.exit_code == 0, result.output
        require_whole(server, prefix, to)
        assert (len(server.keys_of(f"{prefix}/")), inside(to)) == (2, [])
    damaged.write_bytes(b"tw0")
    options = ("--attachments", f"s3://{BUCKET}/z", "--data", str(stored / "third"))
    result = run(stored, "restore", str(stored / "backups"), *options)
    assert result.exit_code == 4, result.output
    assert "pics/album/data/D: not restored" in result.output
    assert server.keys_of("z/") == []
    options = ("--attachments", f"s3://{BUCKET}/x", "--data", str(other))
    result = run(stored, "restore", str(stored / "backups"), *options)
    assert (result.exit_code, "not empty" in str(result.exception)) == (1, True)
