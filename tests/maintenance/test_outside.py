"""No command and no request leaves the tree: not through a link, and not as root; nothing hangs or fills the memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

from persistence.cli import commands
from persistence.errors import PersistenceError, StartupError
from persistence.maintenance.backup import Backup
from persistence.storage.stored_revision import Integrity
from tests import forkserver
from tests.maintenance import outside
from tests.maintenance.outside import NOBODY, TRAPS, planted
from tests.maintenance.workshop import ATTACHMENT, DATA, DOCUMENT, DRAFT, Workshop, furnished

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be others")

CHANGING = (("check", "--repair", "--adopt", "--all", "--deep"), ("reindex",), ("reencrypt",), ("upgrade",))
LOOKING = (("check", "--deep"), ("forms",), ("show", "app/form/data/document"), ("search", "app/form"))
_ROOM = 400 << 20

outside.load_commands()


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
    return outside.user(NOBODY) if really else nullcontext()


def run(root: Path, *arguments: str) -> int:
    """Return the exit status of a command; it raises nothing but the service's own errors, of one line."""
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


def everything(source: Path, directory: Path, planting: tuple[str, str], who: str, *, least: bool = False) -> None:
    """Do all that commands and requests do, or the ``least``, each on a tree in which the same was planted."""
    plant, name = planting
    as_user = who == "the user"
    user = NOBODY if as_user else 0
    for arguments in CHANGING[:1] if least else (*CHANGING, *LOOKING):
        with planted(source, directory, plant, name, user) as site, as_nobody(really=as_user), little_memory():
            run(site.root, *arguments)
            check_owners(site.root, user)
    with planted(source, directory, plant, name, user) as site, as_nobody(really=as_user), little_memory():
        saved = directory / "backups"
        run(site.root, "backup", str(saved), "--verify")
        assert not any(path.is_symlink() for path in saved.rglob("*"))
        small = [path for path in saved.rglob("*") if path.is_file() and path.stat().st_size < 1 << 20]
        assert not any(b"important" in path.read_bytes() for path in small)
    with planted(source, directory, plant, name, user) as site, as_nobody(really=as_user), little_memory():
        ask(site.root)
    if least:
        return
    with planted(source, directory, plant, name, user) as site, as_nobody(really=as_user):
        run(site.root, "check")
        run(site.root, "check", "--repair", "--adopt", "--all")


def check_owners(root: Path, user: int) -> None:
    assert {path.lstat().st_uid for path in (root, *root.rglob("*"))} == {user}


@pytest.mark.long
@pytest.mark.parametrize("who", ["root", "the user"])
@pytest.mark.parametrize(
    ("plant", "name"), [pytest.param(*each, marks=pytest.mark.xdist_group(f"outside-{each[0]}")) for each in TRAPS]
)
def test_nothing_leaves_the_tree(source: Path, open_directory: Path, plant: str, name: str, who: str) -> None:
    everything(source, open_directory / "case", (plant, name), who)


@pytest.mark.parametrize(
    ("plant", "name", "who"),
    [
        ("link to a directory", ".trash", "root"),
        ("link to the same", ".locks", "root"),
        ("link to the same", ".index/app/form", "root"),
        ("link to the same", "app/form/data/document/.history", "root"),
        ("link to the same", "app/form/data", "the user"),
        ("link to the same", "layout.json", "root"),
        ("pipe", "app/form/data/document/scan.bin.json", "the user"),
        ("pipe", ".locks/service", "root"),
        ("zeros", "app/form/data/document/data.xml.json", "root"),
        ("sparse", "app/form/data/document/scan.bin.json", "the user"),
        ("hard link", "app/form/data/document/.data.xml.json", "root"),
    ],
)
def test_what_is_planted_leads_nowhere(source: Path, open_directory: Path, plant: str, name: str, who: str) -> None:
    """A few of the cases of ``test_nothing_leaves_the_tree``."""
    everything(source, open_directory / "case", (plant, name), who, least=True)


def test_what_is_in_the_way_of_the_services_own_is_found_and_taken_out_of_it(tmp_path: Path) -> None:
    workshop = furnished(tmp_path / "data")
    workshop.close()
    (tmp_path / "victim").mkdir()
    for name in (".trash", ".quarantine"):
        shutil.rmtree(workshop.file(name))
        workshop.file(name).symlink_to(tmp_path / "victim")
    os.unlink(workshop.file(".locks/00"))
    os.mkfifo(workshop.file(".locks/00"))
    found = {(".trash", "not-a-file"), (".quarantine", "not-a-file"), (".locks/00", "not-a-file")}
    with pytest.raises(StartupError, match="'persistence check --repair' moves it away"):
        workshop.get(DATA)
    assert found <= {(path, kind) for kind, path in workshop.check().kinds}
    assert workshop.check("--repair").status == 3
    assert list((tmp_path / "victim").iterdir()) == []
    workshop.put(DATA, b"<d>next</d>")
    assert workshop.check().status == 0


SECRET = b"what lies outside of the backup"


def listed(saved: Path, path: str, content: bytes) -> None:
    """Let the list of a backup have a path, with the right digest."""
    before = (saved / "SHA256SUMS").read_text().splitlines(keepends=True)
    lines = [line for line in before if not line.endswith(f"  {path}\n")]
    (saved / "SHA256SUMS").write_text("".join([*lines, f"{hashlib.sha256(content).hexdigest()}  {path}\n"]))


MANIFEST, SUMS = ".backup/backup.json", "SHA256SUMS"


def replaced(name: str, make: Callable[[Path, Path], object]) -> Callable[[Path, Path], None]:
    """Let something else be in the place of a file of a backup."""

    def spoil(saved: Path, canary: Path) -> None:
        (saved / name).unlink()
        make(saved / name, canary)

    return spoil


def link(saved: Path, canary: Path) -> None:
    replaced(ATTACHMENT, lambda path, canary: path.symlink_to(canary / "secret"))(saved, canary)
    listed(saved, ATTACHMENT, SECRET)


def linked_directory(saved: Path, canary: Path) -> None:
    (saved / "e").symlink_to(canary)
    listed(saved, "e/secret", SECRET)


def hook(saved: Path, canary: Path) -> None:
    """Not outside, and the same: what git runs in the tree."""
    (saved / ".git/hooks").mkdir(parents=True)
    shutil.copy(canary / "secret", saved / ".git/hooks/post-commit")
    listed(saved, ".git/hooks/post-commit", SECRET)


def list_is_a_link(saved: Path, canary: Path) -> None:
    (saved / SUMS).rename(canary / "list")
    (saved / SUMS).symlink_to(canary / "list")


SPOILT = {
    "unlisted link": lambda saved, canary: (saved / DOCUMENT / "extra.bin").symlink_to(canary / "secret"),
    "link": link,
    "linked directory": linked_directory,
    "parent": lambda saved, canary: listed(saved, f"../../{canary.name}/secret", SECRET),
    "absolute": lambda saved, canary: listed(saved, f"{canary}/secret", SECRET),
    "hook": hook,
    "endless": replaced(ATTACHMENT, lambda path, _: os.mknod(path, 0o020640, os.makedev(1, 5))),
    "nobody writes": replaced(ATTACHMENT, lambda path, _: os.mkfifo(path)),
    "huge manifest": lambda saved, _: os.truncate(saved / MANIFEST, 1 << 30),
    "manifest is a pipe": replaced(MANIFEST, lambda path, _: os.mkfifo(path)),
    "huge list": lambda saved, _: os.truncate(saved / SUMS, 1 << 30),
    "list is a link": list_is_a_link,
    "list is a pipe": replaced(SUMS, lambda path, _: os.mkfifo(path)),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_backup_is_read_as_whatever_somebody_has_made_of_it(
    tmp_path: Path, spoil: Callable[[Path, Path], None]
) -> None:
    furnished(tmp_path / "data").close()
    assert run(tmp_path / "data", "backup", str(tmp_path / "backups")) == 0
    (saved,) = (tmp_path / "backups").glob("2*")
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "secret").write_bytes(SECRET)
    spoil(saved, canary)
    before = outside.looks(canary)
    with little_memory():
        assert run(tmp_path / "restored", "restore", str(saved)) in {1, 4}
        backup = Backup(str(tmp_path / "others"), {}, {}, lambda _: None, Integrity())
        backup.path = str(saved)
        with contextlib.suppress(PersistenceError):
            list(backup.verify())
    assert outside.looks(canary) == before
    for path in (tmp_path / "restored").rglob("*"):
        assert not path.is_symlink()
        assert not path.is_file() or path.read_bytes() != SECRET
    assert {path.name for path in tmp_path.iterdir()} <= {"data", "backups", "canary", "restored"}


def test_a_backup_copies_no_file_that_a_link_leads_to(tmp_path: Path) -> None:
    workshop = furnished(tmp_path / "data")
    workshop.close()
    (tmp_path / "secret").write_bytes(SECRET)
    for path in (ATTACHMENT, f"{DATA}.json"):
        workshop.file(path).unlink()
        workshop.file(path).symlink_to(tmp_path / "secret")
    assert run(tmp_path / "data", "backup", str(tmp_path / "backups")) == 4
    assert not any(path.read_bytes() == SECRET for path in (tmp_path / "backups").rglob("*") if path.is_file())


def test_a_process_that_root_starts_as_a_user_is_that_users(open_directory: Path) -> None:
    """The tests' own way of starting processes does as ``Popen``: what a user has started, the user can end."""
    forkserver.run("persistence.cli", ["--version"])
    waited_for, _ = pipe = os.pipe()
    with as_nobody(really=True), open(os.devnull, "wb") as nowhere:
        streams = {"stdin": waited_for, "stdout": nowhere.fileno(), "stderr": nowhere.fileno()}
        process = forkserver.start("persistence.index", (), cwd=open_directory, env=os.environ, **streams)
        users = re.findall(r"^[UG]id:(.*)$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
        assert {int(user) for line in users for user in line.split()} == {NOBODY}
        process.terminate()
        assert process.wait(10) in {-signal.SIGTERM, 143}  # before the process handles the signal itself, or after
    for end in pipe:
        os.close(end)
