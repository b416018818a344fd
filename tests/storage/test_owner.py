"""As whom root works in a directory, and where it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from persistence.cli import commands
from persistence.errors import StartupError
from persistence.storage import owner
from persistence.storage.owner import Identity
from tests.encrypted_form import DEFINITION, UNMARKED, data, path
from tests.maintenance import outside
from tests.maintenance.workshop import DATA, Workshop, furnished

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be others")

NOBODY, OTHER = 65534, 54321
outside.load_commands()
KEY = {"PERSISTENCE_ENCRYPTION_KEY": f"k1:{'ab' * 32}"}


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may enter; pytest's own are closed."""
    directory = Path(tempfile.mkdtemp(prefix="owner-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def give(root: Path, user: int) -> Path:
    for each in (root, *root.rglob("*")):
        os.chown(each, user, user, follow_symlinks=False)
    return root


def owners(root: Path) -> set[int]:
    return {each.lstat().st_uid for each in (root, *root.rglob("*"))}


def directory(parent: Path, name: str, user: int, mode: int = 0o750) -> Path:
    made = parent / name
    made.mkdir()
    made.chmod(mode)
    os.chown(made, user, user)
    return made


def test_root_has_the_identity_of_the_owner_and_gets_its_own_back(place: Path) -> None:
    tree = directory(place, "tree", OTHER)
    before = Identity.current()
    with owner.acting(str(tree)):
        assert (os.getresuid(), os.getgroups()) == ((OTHER, OTHER, 0), [OTHER])
        (tree / "made").touch()
        with pytest.raises(PermissionError):
            (place / "made").touch()
        with owner.being(before):
            (place / "made").touch()
        assert os.geteuid() == OTHER
    assert Identity.current() == before
    assert (tree / "made").stat().st_uid == OTHER


def test_what_is_missing_is_made_by_whoever_the_directory_above_belongs_to(place: Path) -> None:
    assert owner.identity_of(str(directory(place, "theirs", OTHER) / "a/b")).user == OTHER
    assert owner.identity_of(str(place / "a")).user == 0


def test_a_link_or_a_second_name_of_roots_does_not_make_root_of_the_owner(place: Path) -> None:
    tree = directory(place, "tree", NOBODY)
    (place / "layout.json").write_text("{}")
    (tree / "layout.json").symlink_to(place / "layout.json")
    assert owner.identity_of(str(tree)).user == NOBODY
    assert owner.of(str(tree)) == NOBODY
    (tree / "layout.json").unlink()
    os.link(place / "layout.json", tree / "layout.json")
    assert owner.identity_of(str(tree)).user == NOBODY


def test_the_tree_of_a_disk_that_belongs_to_root_is_that_of_who_wrote_its_layout(place: Path) -> None:
    tree = directory(place, "tree", 0)
    (tree / "layout.json").write_text("{}")
    os.chown(tree / "layout.json", NOBODY, NOBODY)
    assert owner.identity_of(str(tree)).user == NOBODY == owner.of(str(tree))


def test_a_directory_is_that_of_its_owner_whoever_wrote_its_layout(place: Path) -> None:
    """Commands of root and of the user go by one rule: else what the one makes is closed to the other."""
    tree = directory(place, "tree", NOBODY)
    (tree / "layout.json").write_text("{}")
    os.chown(tree / "layout.json", OTHER, OTHER)
    assert owner.identity_of(str(tree)).user == NOBODY == owner.of(str(tree))


@pytest.mark.parametrize("mode", [0o757, 0o1777, 0o777])
def test_a_directory_that_strangers_may_write_to_is_refused_to_all(place: Path, mode: int) -> None:
    tree = directory(place, "tree", NOBODY, mode)
    for identity in (Identity.current(), Identity(NOBODY, NOBODY, (NOBODY,))):
        with owner.being(identity), pytest.raises(StartupError, match="every user of the machine may write"):
            owner.identity_of(str(tree))


def test_a_directory_that_a_group_may_write_to_is_refused_to_root(place: Path) -> None:
    tree = directory(place, "tree", NOBODY, 0o770)
    with pytest.raises(StartupError, match="a group may write"):
        owner.identity_of(str(tree))
    with owner.being(Identity(NOBODY, NOBODY, (NOBODY,))):
        assert owner.identity_of(str(tree)).user == NOBODY


@pytest.mark.parametrize(
    ("user", "mode", "is_refused"),
    [(0, 0o755, False), (0, 0o1777, False), (NOBODY, 0o755, False), (0, 0o777, True), (OTHER, 0o755, True)],
)
def test_root_does_not_work_where_others_may_put_another_directory(
    place: Path, user: int, mode: int, *, is_refused: bool
) -> None:
    tree = directory(directory(place, "above", user, mode), "tree", NOBODY)
    if is_refused:
        with pytest.raises(StartupError, match="on the way to"):
            owner.identity_of(str(tree))
    else:
        assert owner.identity_of(str(tree)).user == NOBODY


def test_a_link_to_a_tree_counts_only_where_the_owner_or_root_has_put_it(place: Path) -> None:
    """In a directory for all, anybody may make a link to somebody's tree."""
    tree, shared = directory(place, "tree", NOBODY), directory(place, "shared", 0, 0o1777)
    for user, is_refused in ((OTHER, True), (NOBODY, False), (0, False)):
        link = shared / f"link-{user}"
        link.symlink_to(tree)
        os.chown(link, user, user, follow_symlinks=False)
        if is_refused:
            with pytest.raises(StartupError, match="on the way to"):
                owner.identity_of(str(link))
        else:
            assert owner.identity_of(str(link)).user == NOBODY


def test_a_tree_stays_its_owners_whatever_root_runs_on_it(place: Path) -> None:
    """Documents that are re-encrypted became root's, and closed to the service."""
    with furnished(place / "data") as workshop:
        workshop.put("a/b/form/1/form.xhtml", UNMARKED)
        workshop.put("a/b/data/d/scan.bin", b"secret")
        workshop.put("a/b/data/d/data.xml", data(scan=path("a/b", "d", "scan.bin")))
        workshop.put("a/b/form/1/form.xhtml", DEFINITION)
    root = give(place / "data", NOBODY)
    for command in (("reencrypt",), ("reindex",), ("check", "--repair", "--deep"), ("search", "a/b"), ("upgrade",)):
        done = CliRunner().invoke(commands, [*command, "--data", str(root)], env=KEY)
        assert done.exit_code == 0, (command, done.output, done.exception)
        assert owners(root) == {NOBODY}, command
    backup = CliRunner().invoke(commands, ["backup", str(place / "backups"), "--data", str(root)])
    assert backup.exit_code == 0, backup.output
    assert owners(place / "backups") == {0}
    restored = directory(place, "restored", OTHER)
    done = CliRunner().invoke(commands, ["restore", str(place / "backups"), "--data", str(restored)])
    assert done.exit_code == 0, done.output
    assert owners(restored) == {OTHER}
    assert os.getresuid() == (0, 0, 0)


def test_init_makes_a_tree_of_the_owner_of_the_directory(place: Path) -> None:
    root = directory(place, "tree", NOBODY)
    assert CliRunner().invoke(commands, ["init", "--data", str(root)]).exit_code == 0
    assert owners(root) == {NOBODY}


def test_a_service_that_root_starts_is_the_owners(place: Path) -> None:
    """It cannot become root again, and empties nothing that a link leads to."""
    furnished(place / "data").close()
    (place / "victim").mkdir()
    (place / "victim/file").touch()
    root = give(place / "data", NOBODY)
    said = "import os, sys; from persistence.storage import owner; owner.become(sys.argv[1:]); print(os.getresuid())"
    done = subprocess.run([sys.executable, "-c", said, str(root)], capture_output=True, text=True, check=False)
    assert done.stdout == f"{(NOBODY,) * 3}\n", done.stderr
    shutil.rmtree(root / ".trash")
    (root / ".trash").symlink_to(place / "victim")
    served = subprocess.run(
        [sys.executable, "-m", "persistence.cli", "serve", "--data", str(root), "--bind", "127.0.0.1:0"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert served.returncode == 1
    assert "persistence check --repair" in served.stderr
    assert (place / "victim/file").exists()
    other = directory(place, "other", OTHER)
    with pytest.raises(StartupError, match="one service works as one user"):
        owner.become([str(root), str(other)])


def test_a_service_whose_trees_have_several_groups_works_as_their_user(place: Path) -> None:
    """As in a container, where the user has no name and no group of its own."""
    one, other = directory(place, "one", OTHER), directory(place, "other", OTHER)
    os.chown(other, OTHER, NOBODY)
    said = "import os, sys; from persistence.storage import owner; owner.become(sys.argv[1:]); print(os.getresuid())"
    asked = [sys.executable, "-c", said, str(one), str(other)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.stdout == f"{(OTHER,) * 3}\n", done.stderr


def test_a_store_that_root_opens_for_another_user_touches_nothing(place: Path) -> None:
    """As under gunicorn's own command, where nobody takes on the owner's identity."""
    furnished(place / "data").close()
    root = give(place / "data", NOBODY)
    (root / ".trash/left").touch()
    with pytest.raises(StartupError, match="belongs to user nobody"):
        Workshop(root).get(DATA)
    assert (root / ".trash/left").exists()


@pytest.mark.parametrize("missing", [ModuleNotFoundError("no module"), LookupError("unknown encoding")])
def test_a_python_that_the_owner_cannot_read_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, missing: Exception
) -> None:
    monkeypatch.setattr(owner.os, "access", lambda *_, **__: False)
    with (
        pytest.raises(StartupError, match="cannot read the Python of this command"),
        owner.being(Identity(NOBODY, NOBODY, (NOBODY,))),
    ):
        raise missing
    monkeypatch.setattr(owner.os, "access", lambda *_, **__: True)
    with pytest.raises(type(missing)), owner.being(Identity(NOBODY, NOBODY, (NOBODY,))):
        raise missing
