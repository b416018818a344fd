"""Commands on several trees and directories of attachments: what they change.

What they print is in ``golden/several.txt`` and, where definitions and data are apart, in ``golden/apart.txt``.
"""

import json
import os
import time
from pathlib import Path

import pytest

from tests import orders
from tests.cli.command_runner import Command
from tests.cli.several import BODY, HERE, SCAN, THERE, Several
from tests.sidecars import copied, resealed


@pytest.fixture
def place(tmp_path: Path, command: Command) -> Several:
    return Several(tmp_path, command)


def test_strays_in_a_directory_of_attachments_are_found_and_moved_to_its_quarantine(place: Several) -> None:
    directory = place.body(HERE).parent
    stray, older = directory / "other.bin", directory / ".history/2020-01-01T00-00-00.000Z.scan.bin"
    unfinished = directory / f".scan.bin.{'0' * 40}"
    unknown = place.directory / "big/hr/leave/data/gone/1/a.bin"
    unknown.parent.mkdir(parents=True)
    for directory_of_it in (unknown.parent, unknown.parent.parent):
        directory_of_it.chmod(0o750)
    for path in (stray, older, unfinished, unknown):
        path.write_bytes(b"stray")
        path.chmod(0o640)
    (directory / "linked").symlink_to(stray)
    spooled = place.directory / "big/.spool" / ("1" * 40)
    spooled.write_bytes(b"left")
    os.utime(spooled, (time.time() - 100,) * 2)
    done = place.run("check")
    assert done.status == 4
    found = {line.split(": ")[2]: line.split(": ")[3] for line in done.out.splitlines()}
    below = "hr/leave/data"
    assert found == {
        f"{below}/H/1/other.bin": "stray-file",
        f"{below}/H/1/.history/{older.name}": "stray-file",
        f"{below}/H/1/{unfinished.name}": "unfinished-write",
        f"{below}/H/1/linked": "foreign",
        f"{below}/gone/1/a.bin": "stray-file",
        f".spool/{spooled.name}": "stray-temporary",
    }
    assert place.run("check", "--repair").status == 3
    kept = [path.name for path in (place.directory / "big/.quarantine").rglob("*") if path.is_file()]
    assert sorted(kept) == sorted([stray.name, older.name, unknown.name, "reasons.jsonl"])
    assert not unfinished.exists()
    assert not spooled.exists()
    done = place.run("check", "--repair")  # directories that are empty now
    assert done.status in {0, 3}
    assert "foreign" in place.run("check").out
    assert place.body(HERE).read_bytes() == b"second scan"


def test_a_body_that_is_committed_and_has_not_its_name_yet_is_no_stray(place: Several) -> None:
    record = json.loads((place.directory / "data" / HERE / f"{SCAN}.json").read_text())
    body = place.body(HERE)
    body.rename(body.with_name(f".{SCAN}.{record['id']}"))
    done = place.run("check")
    assert "attachments/big: leftover: hr/leave/data/H/1/.scan.bin." in done.out
    assert "unfinished-commit" in done.out
    assert place.run("check", "--repair").status == 3
    assert body.read_bytes() == b"second scan"
    assert (place.run("check", "--deep").status, place.run("check").out) == (0, "")


def test_files_of_another_user_among_the_bodies_are_said(place: Several) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(place.body(HERE), 12345, 12345)
    done = place.run("check")
    assert done.status == 4
    assert "attachments/big: damage: hr/leave/data/H/1/scan.bin: wrong-owner" in done.out


def test_what_is_put_there_by_hand_gets_the_version_that_the_other_tree_has_published(place: Several) -> None:
    versions = place.directory / "data/acme/order/form"
    copied(versions / "1", versions / "2")
    resealed(versions / "2/form.xhtml.json", version=2)
    folder = place.directory / "disk2/acme/order/data/HAND"
    folder.mkdir()
    (folder / "data.xml").write_bytes(BODY)
    assert place.run("check", "--adopt", "--all", "--datasource", "disk2").status == 3
    assert '"version": 2' in (folder / "data.xml.json").read_text()


def test_what_the_other_tree_marks_is_reencrypted(place: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSISTENCE_ENCRYPTION_KEY", "one:" + "5" * 64)
    marked = orders.definition().replace(b"<fr:index>", b"<fr:encrypt/><fr:index>")
    (place.directory / "data/acme/order/form/1/form.xhtml").write_bytes(marked)
    stored = place.directory / "disk2" / THERE / "data.xml"
    assert place.run("check", "--adopt", "--all").status == 3
    assert b"Ann" in stored.read_bytes()
    assert place.run("reencrypt", "acme/order").status == 0
    assert b"Ann" not in stored.read_bytes()
