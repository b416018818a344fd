"""``persistence move --attachments DIR``: out of the tree into a directory, while the service runs."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from persistence.model.addresses import Collection, DocumentAddress
from persistence.model.texts import Instant
from persistence.storage.attachments import FileBodies, RevisionRewriter, SplitStorage
from persistence.storage.store import Store
from tests.cli.command_runner import PREFIX, Command, Place
from tests.cli.test_commands import persistence as in_directory
from tests.commands import findings, persistence
from tests.failing import refusing
from tests.maintenance import kills
from tests.service import Service, running

LARGE = bytes(range(256)) * 5000

Revision = tuple[str, str, bytes]
"""Instant, entity tag and content."""


def fill(place: Place) -> None:
    """Attachments with older revisions, of a draft, deleted, empty, of a definition, and of two versions of a form."""
    for number in range(3):
        place.put("a/f/data/1/scan.bin", b"scan %d" % number)
        place.put("a/f/data/1/data.xml", b"<d>%d</d>" % number)
    place.put("a/f/draft/1/scan.bin", b"of a draft")
    place.put("a/f/draft/1/data.xml", b"<draft/>")
    for content in (LARGE, b"later"):
        place.put("a/f/data/2/x y.png", content, Content_Type="image/png")
    nothing = {"headers": {"Svc-Form-Definition-Version": "1"}, "environ_overrides": {"CONTENT_LENGTH": "0"}}
    assert place.client.put(f"{PREFIX}a/f/data/2/empty.bin", **nothing).status_code == 201
    place.put("a/f/data/2/data.xml", b"<d/>")
    place.delete("a/f/data/2/x y.png")
    place.put("a/g/data/3/scan.bin", b"version 2", version=2)
    place.put("a/g/form/logo.bin", b"a logo")
    place.put("a/g/form/form.xhtml", b"<html/>")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A tree, an empty directory, and settings that lead attachments there."""
    fill(Place(tmp_path / "data"))
    (tmp_path / "big").mkdir()
    settings(tmp_path)
    return tmp_path


def settings(directory: Path, base: str = "big", forms: str = "a.*") -> None:
    (directory / "persistence.toml").write_text(
        f'data = "data"\n"svc.persistence.provider.{forms}.data.attachments" = "big"\n'
        f'"svc.persistence.big.base-path" = "{directory}/{base}"\n'
    )


def stored(directory: Path) -> dict[str, list[Revision]]:
    """Every living revision of every attachment, wherever its body is."""
    found: dict[str, list[Revision]] = {}
    with closing(Store(str(directory / "data"), lock_timeout=5)) as store:
        split = SplitStorage(store, FileBodies(str(directory / "big")))
        for form in sorted(store.forms()):
            for collection in Collection:
                for document in sorted(store.documents_and_drafts(form)):
                    main = DocumentAddress(form, collection, document, "data.xml")
                    for name in sorted(store.names(main)):
                        if name != "data.xml":
                            address = main.moved(collection, name)
                            found[str(address)] = list(_revisions(split, address))
    return found


def _revisions(split: SplitStorage, address: DocumentAddress) -> Iterator[Revision]:
    listed = split.history(address)
    for position in range(listed.total):
        revision = split.read(address, listed.instant(position), content=True)
        assert revision is not None
        if revision.sidecar.deleted:
            yield revision.sidecar.modified, "deleted", b""
            continue
        with revision.opened as file:
            yield revision.sidecar.modified, revision.etag, file.read()


def move(directory: Path, *options: str) -> tuple[int, Mapping[str, object]]:
    arguments = ("--config", str(directory / "persistence.toml"), "--json", *options)
    done = in_directory("move", "--attachments", str(directory / "big"), *arguments, cwd=directory)
    return done.returncode, json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"error": done.stderr}


def in_tree(directory: Path) -> list[str]:
    """The attachments of data whose bytes are in the tree."""
    files = [path for kind in ("data", "draft") for path in directory.glob(f"data/a/*/{kind}/**/*") if path.is_file()]
    others = (".json", ".xml")
    return sorted(str(path) for path in files if path.suffix not in others and path.stat().st_size)


def test_every_revision_is_moved_once_and_stays_as_it_was(directory: Path) -> None:
    before = stored(directory)
    assert (len(in_tree(directory)), sum(map(len, before.values()))) == (7, 9)
    status, dry = move(directory, "--dry-run")
    assert (status, dry["revisions"], dry["bytes"], stored(directory)) == (
        0,
        7,
        3 * 6 + 10 + len(LARGE) + 5 + 9,
        before,
    )
    assert len(in_tree(directory)) == 7
    assert move(directory) == (0, {**dry, "dry_run": False, "seconds": pytest.approx(0, abs=30)})
    assert (in_tree(directory), stored(directory)) == ([], before)
    assert (directory / "big/a/f/data/1/1/scan.bin").read_bytes() == b"scan 2"
    assert (directory / "data/a/g/form/1/logo.bin").read_bytes() == b"a logo"
    assert move(directory)[1]["revisions"] == 0
    done = persistence(
        "check", "--deep", "--json", "--config", str(directory / "persistence.toml"), data=directory / "data"
    )
    assert findings(done) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_another_user_among_the_bodies_are_said(directory: Path, command: Command) -> None:
    assert move(directory)[0] == 0
    os.chown(directory / "big/a/f/data/1/1/scan.bin", 12345, 12345)
    done = command("check", "--config", f"{directory}/persistence.toml")
    assert (done.status, "attachments/big: damage: a/f/data/1/1/scan.bin: wrong-owner" in done.out) == (4, True)


def test_only_some_forms_are_moved_and_those_led_elsewhere_stay(directory: Path) -> None:
    assert move(directory, "--match", "a/g")[1]["revisions"] == 1
    settings(directory, forms="a.g")
    assert move(directory)[1]["revisions"] == 0
    assert len(in_tree(directory)) == 6


def test_an_unreadable_attachment_does_not_end_the_move(
    directory: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = RevisionRewriter.read

    def unreadable(rewriter: RevisionRewriter, address: DocumentAddress, instant: Instant | None) -> object:
        found = read(rewriter, address, instant)
        if found is not None and address.document == "3":
            monkeypatch.setattr(found.opened, "read", refusing())
        return found

    monkeypatch.setattr(RevisionRewriter, "read", unreadable)
    done = command("move", "--attachments", f"{directory}/big", "--config", f"{directory}/persistence.toml")
    assert (done.status, "a/g/data/3/scan.bin" in done.out, len(in_tree(directory))) == (4, True, 1), done


def test_a_directory_inside_the_tree_is_refused(directory: Path, command: Command) -> None:
    settings(directory, "data/inside")
    arguments = ["move", "--attachments", f"{directory}/data/inside", "--config", f"{directory}/persistence.toml"]
    done = command(*arguments)
    assert done.status == 1
    assert "lies within" in done.errors[0]
    for more in (["--to", f"{directory}/to"], ["--prepare"], ["--then", "true"], ["--from", "postgresql://x@y/z"]):
        assert command(*arguments, *more).status == 2
    assert command("move").status == 2


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_a_killed_move_loses_nothing_and_goes_on(directory: Path, tmp_path: Path, every: int) -> None:
    """At some calls that change something; what was stored is read before and after another move."""
    before, target = stored(directory), tmp_path / "round"
    for at in range(1, 1000, every):
        kills.copied(directory / "data", target / "data")
        shutil.rmtree(target / "big", ignore_errors=True)
        (target / "big").mkdir()
        settings(target)
        arguments = ("move", "--attachments", f"{target}/big", "--config", f"{target}/persistence.toml")
        ending = kills.run(arguments, tmp_path / "output", at=at)
        assert stored(target) == before, at
        status, _ = move(target)
        assert (status, in_tree(target), stored(target)) == (0, [], before), at
        bodies = [path for path in (target / "big").rglob("*") if path.is_file() and path.parent.name[0] != "."]
        assert len([path for path in bodies if path.name.startswith(".")]) == 0, at
        if not ending.struck:
            assert at > 50
            return
    raise AssertionError("the move never ended")


def test_clients_read_and_write_meanwhile(directory: Path) -> None:
    options = ("--config", str(directory / "persistence.toml"))
    with running(directory, options=options, data=directory / "data") as service:
        seen = {
            path: answer(service, path)
            for path in ("a/f/data/1/scan.bin", "a/g/data/3/scan.bin", "a/f/draft/1/scan.bin")
        }
        assert move(directory)[0] == 0
        assert {path: answer(service, path) for path in seen} == seen
        assert service.put("a/f/data/1/scan.bin", b"new", Form_Definition_Version="1").status == 204
        assert service.get("a/f/data/1/scan.bin").body == b"new"
    assert move(directory)[1]["revisions"] == 0


def answer(service: Service, path: str) -> tuple[object, ...]:
    found = service.get(path)
    return found.status, found.body, found["ETag"], found["Svc-Last-Modified"]
