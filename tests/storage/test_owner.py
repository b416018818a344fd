"""Root is refused on the tree of another user, and where strangers may write."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

from persistence.cli import commands
from persistence.errors import PersistenceError, StartupError
from persistence.storage import owner
from persistence.storage.attachments import FileBodies
from tests import forkserver
from tests.maintenance import outside
from tests.maintenance.workshop import DATA, Workshop, furnished

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be others")

NOBODY, OTHER = outside.NOBODY, 54321
outside.load_commands()


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


def directory(parent: Path, name: str, user: int, mode: int = 0o750) -> Path:
    made = parent / name
    made.mkdir()
    made.chmod(mode)
    os.chown(made, user, user)
    return made


def test_a_directory_is_its_owners_and_one_of_roots_is_that_of_who_wrote_its_layout(place: Path) -> None:
    """A disk that is mounted may belong to root, and its tree to the service."""
    theirs, disk = directory(place, "theirs", NOBODY), directory(place, "disk", 0)
    assert owner.of(str(disk)) == 0
    for tree in (theirs, disk):
        (tree / "layout.json").write_text("{}")
        os.chown(tree / "layout.json", OTHER, OTHER)
    assert owner.of(str(theirs)) == NOBODY
    assert owner.of(str(disk)) == OTHER


def test_a_link_or_a_second_name_of_roots_does_not_make_root_the_owner(place: Path) -> None:
    tree = directory(place, "tree", NOBODY)
    (place / "layout.json").write_text("{}")
    (tree / "layout.json").symlink_to(place / "layout.json")
    assert owner.of(str(tree)) == NOBODY
    (tree / "layout.json").unlink()
    os.link(place / "layout.json", tree / "layout.json")
    assert owner.of(str(tree)) == NOBODY


@pytest.mark.parametrize("below", ["", "missing", "missing/below"])
def test_root_is_refused_in_a_directory_of_another_user_and_below_it(place: Path, below: str) -> None:
    theirs = directory(place, "theirs", NOBODY)
    with pytest.raises(StartupError, match=r"theirs belongs to user nobody: .*\(sudo -u nobody "):
        owner.refuse_root(str(theirs / below))
    with outside.user(NOBODY):
        owner.refuse_root(str(theirs / below))
    owner.refuse_root(str(place / below))


def test_the_refusal_has_the_command_to_type(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = place / "persistence"
    command.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(command), "check", "--data", "a b"])
    for user, shown in ((NOBODY, "nobody"), (OTHER, f"'#{OTHER}'")):
        with pytest.raises(StartupError) as refused:
            owner.refuse_root(str(directory(place, f"of-{user}", user)))
        assert str(refused.value).endswith(f"(sudo -u {shown} {command} check --data 'a b')")
    monkeypatch.setattr("sys.argv", ["/lib/persistence/cli/__main__.py", "check"])
    monkeypatch.setattr("sys.orig_argv", ["/bin/python", "-m", "persistence.cli", "check"])
    with pytest.raises(StartupError, match=r"\(sudo -u nobody /bin/python -m persistence.cli check\)"):
        owner.refuse_root(str(place / f"of-{NOBODY}"))


@pytest.mark.parametrize("mode", [0o757, 0o1777, 0o777])
def test_a_directory_that_strangers_may_write_to_is_refused_to_all(place: Path, mode: int) -> None:
    for user in (0, NOBODY):
        tree = directory(place, f"tree-{user}", user, mode)
        with (
            outside.user(user) if user else nullcontext(),
            pytest.raises(StartupError, match="every user of the machine may write"),
        ):
            owner.require_closed(str(tree))


def test_a_directory_that_a_group_may_write_to_is_refused_to_root(place: Path) -> None:
    tree = directory(place, "tree", 0, 0o770)
    os.chown(tree, 0, OTHER)
    with pytest.raises(StartupError, match="a group may write"):
        owner.require_closed(str(tree))
    os.chown(tree, NOBODY, OTHER)
    with outside.user(NOBODY):
        owner.require_closed(str(tree))


@pytest.mark.parametrize(
    ("user", "mode", "is_refused"), [(0, 0o755, False), (0, 0o1777, False), (0, 0o777, True), (OTHER, 0o755, True)]
)
def test_root_does_not_work_where_others_may_put_another_directory(
    place: Path, user: int, mode: int, *, is_refused: bool
) -> None:
    tree = directory(directory(place, "above", user, mode), "tree", 0)
    with pytest.raises(StartupError, match="on the way to") if is_refused else nullcontext():
        owner.require_closed(str(tree))


def test_a_link_to_a_tree_counts_only_where_root_has_put_it(place: Path) -> None:
    """In a directory for all, anybody may make a link to somebody's tree."""
    tree, shared = directory(place, "tree", 0), directory(place, "shared", 0, 0o1777)
    for user in (OTHER, 0):
        link = shared / f"link-{user}"
        link.symlink_to(tree)
        os.chown(link, user, user, follow_symlinks=False)
        with pytest.raises(StartupError, match="on the way to") if user else nullcontext():
            owner.require_closed(str(link))


REFUSED = (
    *("check", "check --repair --adopt --all --deep", "reindex", "reencrypt", "upgrade", "forms", "leases"),
    *("show app/form/data/document", "history app/form/data/document", "search app/form", "export EMPTY/x.zip"),
    *(
        "backup EMPTY/backups",
        "import EMPTY",
        "purge --yes",
        "erase app/form/data/document --yes --certificate EMPTY/c",
    ),
    *("revert app/form/data/document", "init", "serve", "serve --init", "api-key new x", "encryption-key new"),
    *("api-key list", "encryption-key list"),
)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of another user, which no test changes."""
    root = tmp_path_factory.mktemp("theirs") / "data"
    furnished(root).close()
    return give(root, NOBODY)


@pytest.mark.parametrize("line", REFUSED)
def test_every_command_refuses_root_on_the_tree_of_another_user(place: Path, theirs: Path, line: str) -> None:
    empty = directory(place, "empty", 0)
    before = outside.looks(theirs)
    name, *arguments = shlex.split(line.replace("EMPTY", str(empty)))
    split = 1 if name.endswith("-key") else 0
    done = CliRunner().invoke(commands, [name, *arguments[:split], "--data", str(theirs), *arguments[split:]])
    assert isinstance(done.exception, PersistenceError), done.output
    assert "belongs to user nobody: run this as that user (sudo -u nobody " in str(done.exception)
    assert list(empty.iterdir()) == []
    assert outside.looks(theirs) == before


def test_root_is_refused_where_a_backup_a_restore_or_a_move_would_write_for_another(place: Path) -> None:
    furnished(place / "data").close()
    theirs = directory(place, "theirs", OTHER)
    run = CliRunner()
    assert run.invoke(commands, ["backup", str(place / "backups"), "--data", str(place / "data")]).exit_code == 0
    for arguments in (
        ("backup", str(theirs), "--data", str(place / "data")),
        ("restore", str(place / "backups"), "--data", str(theirs)),
        ("move", "--from", str(place / "data"), "--to", str(theirs / "moved"), "--prepare"),
        ("init", str(theirs)),
        ("demo", str(theirs / "demo")),
    ):
        done = run.invoke(commands, arguments)
        assert isinstance(done.exception, StartupError), (arguments, done.output)
        assert f"{theirs} belongs to user {OTHER}" in str(done.exception)
    assert list(theirs.iterdir()) == []


def test_what_only_looks_at_settings_runs_as_root(place: Path) -> None:
    furnished(place / "data").close()
    root = give(place / "data", NOBODY)
    assert CliRunner().invoke(commands, ["config", "--data", str(root)]).exit_code == 0


def test_root_is_told_the_command_where_the_settings_are_the_users(place: Path) -> None:
    furnished(place / "data").close()
    (place / "persistence.toml").write_text('data = "data"\n')
    give(place, NOBODY)
    done = forkserver.run("persistence.cli", ["check", "--config", str(place / "persistence.toml")])
    assert done.returncode == 1
    assert done.stderr.startswith(f"persistence: {place}/data belongs to user nobody: run this as that user (sudo -u ")
    assert done.stderr.count("\n") == 1


def test_a_store_that_root_opens_for_another_user_touches_nothing(place: Path) -> None:
    """As under gunicorn's own command."""
    furnished(place / "data").close()
    root = give(place / "data", NOBODY)
    (root / ".trash/left").touch()
    with pytest.raises(StartupError, match="belongs to user nobody"):
        Workshop(root).get(DATA)
    assert (root / ".trash/left").exists()


def test_bodies_in_a_directory_of_another_user_are_refused_to_root(place: Path) -> None:
    theirs = directory(place, "bodies", OTHER)
    with pytest.raises(StartupError, match=f"belongs to user {OTHER}"):
        FileBodies(str(theirs))
    assert list(theirs.iterdir()) == []
