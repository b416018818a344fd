"""No command and no request leaves the tree: not through a link, and not as root; nothing hangs or fills the memory."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from persistence.cli import commands
from persistence.errors import PersistenceError
from persistence.store import owner
from persistence.store.owner import Identity
from tests.upkeep import outside
from tests.upkeep.outside import NOBODY, PLANTS, Plant, planted
from tests.upkeep.workshop import ATTACHMENT, DATA, DRAFT, Workshop

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be others")

CHANGING = (("check", "--repair", "--adopt", "--all", "--deep"), ("reindex",), ("reencrypt",), ("upgrade",))
LOOKING = (("check", "--deep"), ("forms",), ("show", "app/form/data/document"), ("search", "app/form"))
_ROOM = 600 << 20

for _each in commands.list_commands(click.Context(commands)):  # before anybody works as another user
    commands.get_command(click.Context(commands), _each)


@pytest.fixture(scope="module")
def open_directory() -> Iterator[Path]:
    """A directory that every user may enter; pytest's own are closed."""
    directory = Path(tempfile.mkdtemp(prefix="outside-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def source(open_directory: Path) -> Path:
    return outside.template(open_directory)


@contextmanager
def little_memory() -> Iterator[None]:
    """Let a block have little more memory than there is in use."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + _ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def as_nobody(*, really: bool) -> AbstractContextManager[None]:
    return owner.being(Identity(NOBODY, NOBODY, (NOBODY,))) if really else nullcontext()


def run(root: Path, *arguments: str) -> int:
    """The exit status of a command; what it raises is one of the service's own errors, which is one line."""
    done = CliRunner().invoke(commands, [*arguments, "--data", str(root)])
    if done.exception is not None and not isinstance(done.exception, SystemExit | PersistenceError):
        raise done.exception
    return done.exit_code


def ask(root: Path) -> None:
    """Let the service, if it starts, read, write, delete and search."""
    with Workshop(root) as workshop:
        try:
            workshop.client.get("/healthz")
        except PersistenceError:
            return
        for path in (DATA, ATTACHMENT):
            status, body = workshop.get(path)
            assert b"important" not in body
            assert status in {200, 404, 500}
        for path in (DATA, ATTACHMENT, DRAFT):
            workshop.try_put(path, b"<d>put</d>")
        workshop.client.post("/fr/service/persistence/search/app/form", data=b"<search/>")
        workshop.client.get("/fr/service/persistence/form")
        workshop.client.delete(f"/crud/{DATA}")


def everything(source: Path, directory: Path, plant: Plant, name: str, user: int, *, as_user: bool) -> None:
    """Do all that commands and requests do, each on a tree in which the same was planted."""
    for arguments in (*CHANGING, *LOOKING):
        with planted(source, directory, plant, name, user) as site, as_nobody(really=as_user), little_memory():
            run(site.root, *arguments)
            check_owners(site.root, user)
    with planted(source, directory, plant, name, user) as site, as_nobody(really=as_user), little_memory():
        saved = directory / "backups"
        run(site.root, "backup", str(saved), "--verify")
        assert not any(path.is_symlink() for path in saved.rglob("*"))
        assert not any(b"important" in path.read_bytes() for path in saved.rglob("*") if path.is_file())
    if user == os.geteuid() or as_user:
        with planted(source, directory, plant, name, user) as site, as_nobody(really=as_user), little_memory():
            ask(site.root)
    with planted(source, directory, plant, name, user) as site, as_nobody(really=as_user):
        run(site.root, "check")
        run(site.root, "check", "--repair", "--adopt", "--all")


def check_owners(root: Path, user: int) -> None:
    assert {path.lstat().st_uid for path in (root, *root.rglob("*"))} == {user}


@pytest.mark.long
@pytest.mark.parametrize("who", ["root on its own", "root on another's", "the user"])
@pytest.mark.parametrize(("plant", "name"), PLANTS, ids=lambda each: each if isinstance(each, str) else each.__name__)
def test_nothing_leaves_the_tree(source: Path, open_directory: Path, plant: Plant, name: str, who: str) -> None:
    user = 0 if who == "root on its own" else NOBODY
    everything(source, open_directory / "case", plant, name, user, as_user=who == "the user")
