"""``persistence check`` finds every kind of damage, changes nothing on its own, and repairs without losing content.

Its output, adoption and what it leaves alone are in ``check.txt``, ``adoption.txt`` and ``damage.txt`` of the golden
transcripts.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from persistence import crypto
from persistence.cli import commands
from persistence.crypto import KeyRing
from persistence.dialect import SVC
from persistence.errors import StartupError
from persistence.maintenance import check as checking
from persistence.maintenance.check import ALL_SLICES, Slices, TreeCheck, within
from persistence.maintenance.reports import TreeReader
from persistence.maintenance.tree_walk import FolderTree
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.sidecar import fresh_id
from persistence.properties.properties import Properties
from persistence.providers.opened import open_index
from persistence.settings import Settings
from persistence.storage import owner
from persistence.storage.attachments import BodiesReader
from persistence.storage.findings import Treatment
from persistence.storage.layout import CHECKED
from persistence.storage.locks import STRIPES
from persistence.storage.stored_revision import Integrity
from tests.cli.test_commands import persistence
from tests.maintenance.cases import (
    HISTORY,
    IMPOSSIBLE,
    REPAIRED,
    UNREADABLE,
    Case,
    garble_sidecar,
    lose_content,
    lose_first_content,
    rewrite,
)
from tests.maintenance.workshop import ATTACHMENT, DATA, DELETED, DOCUMENT, DRAFT, FORM, NEW, XHTML, Workshop
from tests.opened import opened
from tests.sidecars import resealed
from tests.storage.test_split_attachments import DirectoryPlace


@pytest.mark.parametrize("case", [*REPAIRED, *IMPOSSIBLE], ids=str)
def test_damage_is_found_and_mended_without_loss(workshop: Workshop, case: Case) -> None:
    """A check changes nothing. After the repair there is nothing to find, all is served and can be written."""
    case.inflict(workshop)
    before, contents = workshop.state(), workshop.contents()
    checked = workshop.check()
    assert [(case.kind, True)] == [(kind, path.startswith(case.path)) for kind, path in checked.kinds]
    (finding,) = checked.findings
    assert (finding["severity"], finding["remedy"], finding["outcome"]) == (case.severity, "--repair", "found")
    assert checked.status == (0 if case.severity == "notice" else 4)
    assert workshop.state() == before
    if case.kind == UNREADABLE:
        assert (workshop.get(case.read)[0], workshop.try_put(case.read, b"<d/>")) == (500, 500)
    checked = workshop.check("--repair")
    assert {finding["outcome"] for finding in checked.findings} == {"mended"}, checked.findings
    assert checked.status == 3
    after = workshop.check("--deep")
    assert (after.findings, after.status) == ([], 0)
    assert not case.keeps or contents <= workshop.contents()
    assert workshop.get(case.read) == case.after
    others = {DATA: NEW, ATTACHMENT: b"scanned", DRAFT: b"<d>draft</d>", FORM: XHTML, DELETED: b""}
    others.pop(case.read, None)
    if workshop.get(DATA)[0] == 404:
        del others[ATTACHMENT]
    assert {path: workshop.get(path)[1] for path in others} == others
    for path in (DATA, ATTACHMENT, DELETED, DRAFT, FORM):
        workshop.put(path, b"<d>next</d>")
        assert workshop.get(path) == (200, b"<d>next</d>")
    assert workshop.check("--deep").findings == []


def test_a_rebuilt_sidecar_has_what_is_surely_known(workshop: Workshop) -> None:
    """Owner and version come from the older revision; validity and stage are not known."""
    before = workshop.sidecar(DATA)
    garble_sidecar(workshop)
    workshop.check("--repair")
    after = workshop.sidecar(DATA)
    assert {name: after.get(name) for name in ("version", "creator", "created", "size", "digest", "content_type")} == {
        name: before[name] for name in ("version", "creator", "created", "size", "digest", "content_type")
    }
    assert after["id"] != before["id"]
    assert str(after["modified"]) > str(before["modified"])
    assert "stage" not in after


def test_a_changed_owner_opens_nothing_until_it_is_adopted_by_name(workshop: Workshop) -> None:
    path = workshop.file(f"{DATA}.json")
    path.write_text(json.dumps(workshop.sidecar(DATA) | {"creator": "mallory"}))
    assert workshop.get(DATA) == (500, b"")
    for flags in ((), ("--repair",), ("--adopt", "--all"), ("--adopt", DOCUMENT)):
        checked = workshop.check(*flags)
        assert (checked.kinds, checked.status) == ([("sidecar-changed", f"{DATA}.json")], 4)
    assert workshop.check("--adopt", f"{DATA}.json", "--as", "mia").status == 3
    assert workshop.get(DATA) == (200, NEW)
    assert workshop.sidecar(DATA)["creator"] == "mallory"
    assert workshop.check("--deep").findings == []


def test_a_wrong_version_is_found_and_left_to_a_person(workshop: Workshop) -> None:
    rewrite(workshop, ATTACHMENT, version=3)
    rewrite(workshop, FORM, version=2)
    checked = workshop.check("--repair", "--adopt", "--all")
    assert set(checked.kinds) == {("version-wrong", f"{ATTACHMENT}.json"), ("version-wrong", f"{FORM}.json")}
    assert checked.status == 4


def test_any_name_can_be_shown(workshop: Workshop) -> None:
    """Names that are no UTF-8, or hold line breaks, are foreign and stay on their line."""
    for name in (b"\xff\xfe.txt", b"two\nlines", b"esc\x1b[31m", "ünïcödé~".encode()):
        with open(os.fsencode(workshop.file(DOCUMENT)) + b"/" + name, "wb"):
            pass
    checked = workshop.check()
    assert {kind for kind, _ in checked.kinds} == {"foreign"}
    assert len(checked.kinds) == 4
    done = persistence("check", "--data", str(workshop.root), cwd=workshop.root)
    assert len(done.stdout.splitlines()) == 4


def test_permissions_in_the_history_count_too(workshop: Workshop) -> None:
    workshop.root.chmod(0o755)
    workshop.history(DATA)[0].chmod(0o644)
    workshop.file(HISTORY).chmod(0o755)
    assert [kind for kind, _ in workshop.check("--repair").kinds] == ["open-access"] * 2
    assert workshop.check().findings == []


def test_only_the_owner_of_the_tree_changes_it(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that another user writes would be closed to the service: also locks, and what was looked at deeply."""
    lose_content(workshop)
    for lock in workshop.file(".locks").glob("??"):
        lock.unlink()
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(workshop.root).st_uid + 1)
    before = workshop.state()
    assert workshop.check("--deep").status == 4
    assert not workshop.file(CHECKED).exists()
    for flags in (("--repair",), ("--adopt", "--all")):
        done = CliRunner().invoke(commands, ["check", "--data", str(workshop.root), *flags])
        assert isinstance(done.exception, StartupError)
        assert "run this as that user" in str(done.exception)
    assert workshop.state() == before


def test_temporary_files_of_killed_workers_are_found_when_they_are_old(workshop: Workshop) -> None:
    long_ago = time.time() - 3600
    spooled, unfinished = workshop.file(f".spool/{fresh_id()}"), workshop.file("layout.json.12345")
    for path in (spooled, unfinished):
        path.write_bytes(b"half")
        os.utime(path, (long_ago, long_ago))
    old_links = workshop.file(".serve/1")
    old_links.mkdir()
    workshop.file(f".spool/{fresh_id()}").write_bytes(b"just being received")
    checked = workshop.check("--repair")
    assert [kind for kind, _ in checked.kinds] == ["stray-temporary"] * 2
    assert not spooled.exists()
    assert not old_links.exists()
    assert len(list(workshop.file(".spool").iterdir())) == 1


def test_others_may_look_at_what_lies_in_a_closed_directory(workshop: Workshop) -> None:
    """Editors and checkouts give every file a 644; with the root closed to others that lets nobody in."""
    workshop.file(DATA).chmod(0o644)
    assert workshop.check().findings == []


def test_files_of_another_user_are_said_once_for_a_folder(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair cannot give them back: only root can."""
    monkeypatch.setattr(owner, "of", lambda _: 65534)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    checked = workshop.check()
    assert {kind for kind, _ in checked.kinds} == {"wrong-owner"}
    assert len(checked.kinds) == checked.summary["folders"]
    assert "chown" in checked.findings[0]["does"]


def test_a_copy_with_the_time_of_another_revision_is_not_given_its_sidecar(workshop: Workshop) -> None:
    """A copying tool reads the new content and sets the time it saw before: the digest decides."""
    workshop.put(DATA, b"<d>one</d>")
    older = workshop.history(DATA)[0]
    workshop.put(DATA, b"<d>two</d>")
    workshop.file(DATA).write_bytes(b"<d>6xx</d>")
    os.utime(workshop.file(DATA), ns=(older.stat().st_mtime_ns,) * 2)
    assert workshop.check("--repair").kinds == [("edited", DATA)]


@pytest.mark.parametrize("closed", ["app/form", "app/form/data", DOCUMENT, HISTORY])
def test_a_closed_directory_is_opened_again(workshop: Workshop, monkeypatch: pytest.MonkeyPatch, closed: str) -> None:
    """Also one on the way to the documents; what is in it is looked at by the next check."""
    scandir = os.scandir

    def refuse(path: str) -> object:  # as any user but root is refused
        if os.stat(path).st_mode & 0o700 != 0o700:
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    workshop.file(closed).chmod(0)
    assert workshop.check().kinds == [("no-access", closed)]
    assert workshop.check("--repair").status == 3
    assert workshop.check().findings == []


def test_a_path_limits_the_check(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths may be relative to the root or to where one is, and as deep as a file."""
    lose_first_content(workshop)
    workshop.file("app/form/data/empty").mkdir(mode=0o750)
    monkeypatch.chdir(workshop.file("app"))
    for path in (DOCUMENT, "form/data/document", f"{DATA}", str(workshop.file(DOCUMENT))):
        checked = workshop.check(path)
        assert [kind for kind, _ in checked.kinds] == ["content-missing"]
        assert checked.summary["folders"] == 1
    assert workshop.check("app/form/form").findings == []
    assert len(workshop.check("app").findings) == 2


def test_a_terminal_gets_a_progress_bar_beside_the_lines(workshop: Workshop) -> None:
    lose_content(workshop)
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-m", "persistence.cli", "check", "--data", str(workshop.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal ends
            while chunk := os.read(terminal, 4096):
                shown += chunk
        assert process.stdout.read().startswith(f"damage: {DATA}: content-missing")
    os.close(terminal)
    assert b"checking" in shown
    assert b"4/4" in shown


# --- headers of encrypted attachments, verified without any key -------------------------------------------------------

RING = KeyRing("a", {"a": bytes(32)})


def encrypted(path: str) -> bytes:
    """Return a file encrypted for a place in the tree."""
    app, form, collection, document, name = path.split("/")
    address = DocumentAddress(Form(app, form), Collection(collection), document, name)
    return b"".join(crypto.encrypted([b"content"], address, RING))


def test_an_attachment_that_is_said_to_be_encrypted_and_is_not_is_damage(workshop: Workshop) -> None:
    resealed(workshop.file(f"{ATTACHMENT}.json"), encrypted=True)
    checked = workshop.check()
    assert (checked.status, checked.kinds) == (4, [("encryption-wrong", ATTACHMENT)])


@pytest.mark.parametrize("is_own", [True, False])
def test_an_encrypted_file_that_is_taken_in_stays_encrypted_in_its_own_place(
    workshop: Workshop, *, is_own: bool
) -> None:
    workshop.file(ATTACHMENT).unlink()
    workshop.file(ATTACHMENT).write_bytes(encrypted(ATTACHMENT if is_own else f"{ATTACHMENT}x"))
    workshop.check("--adopt", ATTACHMENT)
    assert workshop.sidecar(ATTACHMENT).get("encrypted", False) is is_own
    assert workshop.check("--deep").status == 0


# Deep checks in slices: what is looked at, how old the oldest look is, and that every part has its turn.


def test_a_budget_that_is_over_leaves_the_rest_to_the_next_run_the_oldest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least one slice is looked at, whatever it takes, so that every one has its turn."""
    clock = iter(range(0, 10**9, 100))
    monkeypatch.setattr(checking.time, "monotonic", lambda: next(clock))
    seen: list[frozenset[int]] = []

    def check(batch: frozenset[int]):  # type: ignore[no-untyped-def]
        seen.append(batch)
        yield None

    for number in range(1, STRIPES + 1):
        list(within(50, Slices(str(tmp_path)), check))
        coverage = Slices(str(tmp_path)).coverage()
        assert (coverage.never, coverage.oldest is None) == (STRIPES - number, False)
    assert frozenset().union(*seen) == ALL_SLICES
    assert [len(batch) for batch in seen] == [1] * STRIPES
    list(within(50, Slices(str(tmp_path)), check))
    assert seen[-1] == seen[0]


def test_a_batch_that_does_not_come_to_its_end_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(checking.time, "monotonic", lambda: now[0])
    sizes: list[int] = []

    def check(batch: frozenset[int]):  # type: ignore[no-untyped-def]
        sizes.append(len(batch))
        for _ in range(10):
            now[0] += 0.1 if len(sizes) == 1 else 100
            yield None

    list(within(60, Slices(str(tmp_path)), check))
    assert sizes[0] == 1
    assert sizes[1] > 1
    assert Slices(str(tmp_path)).coverage().never == STRIPES - 1


def test_a_file_that_says_nothing_is_as_none(tmp_path: Path) -> None:
    for text in (b"", b"{", b"[]", b'{"slices":["2026-01-01T00:00:00.000Z"]}'):
        (tmp_path / CHECKED).write_bytes(text)
        assert Slices(str(tmp_path)).coverage().oldest is None


def test_a_body_that_waits_for_its_last_name_is_not_missed(tmp_path: Path) -> None:
    place = DirectoryPlace(tmp_path)
    stored = place.write(b"body")
    body = place.base / "pics/album/data/D/1/cat.bin"
    body.rename(body.with_name(f".cat.bin.{stored.id}"))
    tree, properties = FolderTree(place.root, lock_timeout=1), Properties.load({}, SVC.property_prefix)
    index = opened(open_index(Settings(data=tree.root), properties, tree.root))
    view, reader = BodiesReader(str(place.base)), partial(TreeReader.of, tree.root, properties)
    check = TreeCheck(tree, index, SVC, Integrity(), lambda _: view, reader, Treatment(), deep=True)
    assert [each for each in check.findings() if each is not None] == []
