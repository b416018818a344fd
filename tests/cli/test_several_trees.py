"""Every command works on all trees and directories of attachments of the settings, unless an option names one tree."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from tests.cli.several import HERE, SCAN, THERE, Several


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Several:
    return Several(tmp_path, monkeypatch, capsys)


def unmount(place: Several, name: str) -> None:
    """Take a tree away."""
    (place.directory / name).rename(place.directory / "unmounted")


def test_check_looks_at_all_trees_and_says_so_for_each(place: Several) -> None:
    done = place.run("check", "--deep")
    assert (done.status, done.out) == (0, ""), done
    assert [line.partition(": ")[0] for line in done.errors] == ["data", "datasource/disk2", "attachments/big"]
    assert all("0 damaged, 0 leftovers" in line for line in done.errors)


def test_findings_begin_with_the_name_of_the_tree_and_the_worst_status_counts(place: Several) -> None:
    (place.directory / "data/hr/leave/data/H/.data.xml.json").write_bytes(b"")  # a leftover, which is repaired
    (place.directory / "disk2" / THERE / "data.xml").unlink()
    done = place.run("check", "--repair")
    assert "data: leftover: hr/leave/data/H/.data.xml.json: unfinished-write" in done.out
    assert "datasource/disk2: damage: acme/order/data/D/data.xml: content-missing" in done.out
    assert done.status == 3
    body = place.body(THERE)
    body.unlink()
    done = place.run("check")
    assert "datasource/disk2: damage: acme/order/data/D/scan.bin: body-missing" in done.out
    assert done.status == 4


def test_json_names_the_tree_and_ends_with_one_summary_of_all(place: Several) -> None:
    (place.directory / "disk2" / THERE / "data.xml").unlink()
    done = place.run("check", "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["tree"] for line in lines[:-1]] == ["datasource/disk2"]
    assert lines[-1]["damage"] == 1
    assert lines[-1]["folders"] == 2 + 1 + 1 + 2  # two definitions and a document, a document, bodies of two documents


def test_one_tree_is_looked_after_where_an_option_says_so(place: Several) -> None:
    (place.directory / "disk2" / THERE / "data.xml").unlink()
    assert place.run("check", "--data", str(place.directory / "data")).status == 0
    done = place.run("check", "--datasource", "disk2")
    assert done.status == 4
    assert done.out.startswith("damage: acme/order/data/D/data.xml")


def test_a_path_is_looked_for_in_every_tree(place: Several) -> None:
    done = place.run("check", "acme/order/data/D")
    assert done.status == 0, done
    done = place.run("check", "acme/order/data/D", "no/such")
    assert done.status == 2
    assert "no/such: in no data directory" in done.errors[-1]


@pytest.mark.parametrize("command", ["check", "reindex", "forms", "upgrade"])
def test_an_unmounted_tree_is_said_and_the_others_are_looked_after(place: Several, command: str) -> None:
    done = place.run(command)
    assert done.status == 0, done
    unmount(place, "disk2")
    done = place.run(command)
    assert done.status == 1
    assert any(line.startswith("persistence: datasource/disk2: ") for line in done.errors), done
    assert "hr/leave" in done.out or "data: " in done.out + "\n".join(done.errors)


def test_reencryption_of_an_unmounted_tree_fails_and_that_of_the_others_goes_on(
    place: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSISTENCE_ENCRYPTION_KEY", "one:" + "5" * 64)
    done = place.run("reencrypt")
    assert done.status == 0, done
    assert [line.partition(": ")[0] for line in done.errors] == ["data", "datasource/disk2"]
    unmount(place, "disk2")
    done = place.run("reencrypt", "--dry-run")
    assert done.status == 1
    assert any(line.startswith("persistence: datasource/disk2: ") for line in done.errors), done
    assert any(line.startswith("data: 0 revisions of 2 forms") for line in done.errors), done
    assert not (place.directory / "disk2").exists()


def test_the_bodies_of_an_unmounted_tree_are_no_strays(place: Several) -> None:
    """Without their records all of them would look so, and a repair would move them away."""
    unmount(place, "disk2")
    (place.directory / "disk2").mkdir()  # where it was mounted
    assert place.run("check", "--repair").status == 1
    assert place.body(THERE).read_bytes() == b"second scan"
    assert not (place.directory / "big/.quarantine").exists()


def test_search_show_and_reindex_look_where_the_form_is(place: Several) -> None:
    done = place.run("search", "acme/order", "Ann")
    assert done.status == 0, done
    assert done.errors[-1] == "1 found, 1 to 1 shown"
    assert str(place.directory / "disk2" / THERE / "data.xml") in place.run("show", THERE).out
    assert str(place.directory / "data/acme/order/form/1/form.xhtml") in place.run("show", "acme/order").out
    assert "reindexed 1 documents" in place.run("reindex", "acme/order").errors[-1]


def test_a_form_without_data_until_now_is_searched_and_one_that_there_is_not_is_said(place: Several) -> None:
    (place.directory / "disk2/acme").rename(place.directory / "gone")
    done = place.run("search", "acme/order")
    assert (done.status, done.errors[-1]) == (0, "0 found"), done
    done = place.run("search", "acme/ordre")
    assert (done.status, done.errors) == (1, ["persistence: acme/ordre does not exist"])


def test_a_form_with_another_service_is_said_to_be_there(place: Several) -> None:
    text = place.file.read_text()
    place.file.write_text(
        '"svc.persistence.provider.far.*.*" = "central"\n"svc.persistence.central.uri" = "http://other:1"\n' + text
    )
    for arguments in (("search", "far/away"), ("show", "far/away/data/1"), ("reindex", "far/away")):
        done = place.run(*arguments)
        said = "persistence: the data of far/away is with another service, http://other:1: look there"
        assert (done.status, done.errors[-1]) == (1, said)


def test_forms_are_listed_with_the_tree_that_they_are_in(place: Several) -> None:
    lines = [" ".join(line.split()) for line in place.run("forms").out.splitlines()]
    assert lines[0] == "FORM VERSION TITLE MODIFIED DOCUMENTS BYTES SAVED TREE NOTES"
    rows = [line.split() for line in lines[1:-1]]
    assert [(row[0], "data" in row, "datasource/disk2" in row) for row in rows] == [
        ("acme/order", True, False),
        ("acme/order", False, True),
        ("hr/leave", True, False),
    ]
    assert re.fullmatch(r"acme/order 1 \d+ \S+Z datasource/disk2 published in another tree", lines[2])
    assert lines[-1] == "2 forms, 2 versions, 2 documents, 0 deleted, 0 drafts"
    assert "TREE" not in place.run("forms", "--datasource", "disk2").out
    assert place.run("forms", "acme").status == 0
    assert place.run("forms", "nobody").errors == ["persistence: nobody does not exist"]


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


def test_bodies_to_which_no_property_leads_are_left_alone(place: Several) -> None:
    text = place.file.read_text().replace("provider.*.*.data.attachments", "provider.acme.*.data.attachments")
    place.file.write_text(text)
    done = place.run("check", "--repair")
    assert "attachments/big: notice: hr/leave: foreign: no property leads here from this form" in done.out
    assert place.body(HERE).read_bytes() == b"second scan"
