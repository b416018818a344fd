"""Traps in a tree: at every name that the service uses, something that leads out of it or never ends.

Beside the tree lies a canary: a directory of which nothing may change, whatever is run on the tree.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from persistence.cli import commands
from persistence.storage.locks import stripe
from tests.maintenance.workshop import furnished

NOBODY = 65534
_ROOT = 0
_SPARSE = 1 << 29  # more than the memory that commands have here
_DOCUMENT = "app/form/data/document"

OWN_DIRECTORIES = (
    *(".trash", ".spool", ".serve", ".quarantine", ".index", ".locks", ".locks/creations", ".locks/elsewhere"),
    *(".leases", ".locks/leases"),
    *(".index/.pending", ".index/app", ".index/app/form"),
)
TREE_DIRECTORIES = ("app", "app/form", "app/form/data", _DOCUMENT, f"{_DOCUMENT}/.history", "app/form/form/1")
OWN_FILES = (
    *("layout.json", ".checked.json", ".locks/service", ".locks/lease", ".index/.reindexing"),
    *(f".locks/{stripe(('app', 'form', 'data', 'document')):02x}", ".index/app/form/current"),
)
TREE_FILES = (
    *(f"{_DOCUMENT}/data.xml", f"{_DOCUMENT}/data.xml.json", f"{_DOCUMENT}/scan.bin", f"{_DOCUMENT}/scan.bin.json"),
    *(f"{_DOCUMENT}/.data.xml.json", "app/form/form/1/form.xhtml", "app/form/form/1/form.xhtml.json"),
)
DIRECTORIES = (*OWN_DIRECTORIES, *TREE_DIRECTORIES)
FILES = (*OWN_FILES, *TREE_FILES)


@dataclass(frozen=True)
class Site:
    root: Path
    canary: Path

    def place(self, name: str) -> Path:
        """Return the path of one of the service's names, after removing what is there."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        return path


def link_to_the_same(site: Site, name: str) -> None:
    """Move a directory outside and link to it: whoever follows the link finds everything in order."""
    path, outside = site.root / name, site.canary / "moved"
    if path.exists():
        path.rename(outside)
    elif name in FILES:
        outside.write_bytes(b"{}")
    else:
        outside.mkdir()
        (outside / "important").write_bytes(b"important")
    _age(outside)
    site.place(name).symlink_to(outside)


def listening_socket(site: Site, name: str) -> None:
    path = site.place(name)
    before = Path.cwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def sparse(site: Site, name: str) -> None:
    path = site.place(name)
    path.touch(mode=0o640)
    os.truncate(path, _SPARSE)


def hard_link(site: Site, name: str) -> None:
    path, outside = site.root / name, site.canary / "linked"
    if path.is_file():
        shutil.copy2(path, outside)
    else:
        outside.write_bytes(b"important")
    outside.chmod(0o640)
    os.link(outside, site.place(name))


PLANTS: dict[str, Callable[[Site, str], object]] = {
    "link to the same": link_to_the_same,
    "link to a directory": lambda site, name: site.place(name).symlink_to(site.canary / "directory"),
    "link to a file": lambda site, name: site.place(name).symlink_to(site.canary / "file"),
    "link to nothing": lambda site, name: site.place(name).symlink_to(site.canary / "missing"),
    "link to itself": lambda site, name: site.place(name).symlink_to(Path(name).name),
    "pipe": lambda site, name: os.mkfifo(site.place(name)),
    "socket": listening_socket,
    "zeros": lambda site, name: os.mknod(site.place(name), stat.S_IFCHR | 0o640, os.makedev(1, 5)),
    "sparse": sparse,
    "hard link": hard_link,
}
IN_DIRECTORIES = ("link to the same", "link to a directory", "link to nothing", "link to itself", "pipe")
TRAPS = (
    *((plant, name) for plant in IN_DIRECTORIES for name in DIRECTORIES),
    *((plant, name) for plant in PLANTS if plant != "link to a directory" for name in FILES),
)
"""All traps and their names."""


def load_commands() -> None:
    """Import what Python loads lazily: the user as whom root works may be unable to read it."""
    for module in ("popen_fork", "popen_spawn_posix", "synchronize", "queues", "pool"):
        importlib.import_module(f"multiprocessing.{module}")
    context = click.Context(commands)
    for name in commands.list_commands(context):
        commands.get_command(context, name)


def template(directory: Path) -> Path:
    """Make a sample tree with an index, without the many lock files, which the service makes again."""
    root = directory / "template"
    with furnished(root) as workshop:
        workshop.client.post("/fr/service/persistence/search/app/form", data=b"<search/>")
    shutil.rmtree(root / ".locks")
    return root


@contextmanager
def user(number: int) -> Iterator[None]:
    """Be a user in a block, which root only can; the saved id brings root back."""
    groups = os.getgroups()
    os.setgroups([number])
    os.setresgid(number, number, _ROOT)
    os.setresuid(number, number, _ROOT)
    try:
        yield
    finally:
        os.setresuid(_ROOT, _ROOT, _ROOT)
        os.setresgid(_ROOT, _ROOT, _ROOT)
        os.setgroups(groups)


@contextmanager
def planted(source: Path, directory: Path, plant: str, name: str, user: int) -> Iterator[Site]:
    """Copy a tree, plant a trap in it and give all of it to a user; fail if the canary changes."""
    site = Site(directory / "data", directory / "canary")
    directory.mkdir()
    directory.chmod(0o755)
    shutil.copytree(source, site.root)
    (site.canary / "directory/below").mkdir(parents=True)
    for path in (site.canary / "file", site.canary / "directory/file", site.canary / "directory/below/file"):
        path.write_bytes(b"important")
    PLANTS[plant](site, name)
    for each in (directory, *directory.rglob("*")):
        os.chown(each, user, user, follow_symlinks=False)
    _age(site.canary)
    before = looks(site.canary)
    try:
        yield site
        assert looks(site.canary) == before
    finally:
        shutil.rmtree(directory)


def looks(directory: Path) -> dict[str, tuple[object, ...]]:
    """Return everything below a directory: mode, owner, time and content."""
    found = dict[str, tuple[object, ...]]()
    for path in (directory, *sorted(directory.rglob("*"))):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else ""
        found[str(path)] = (status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, content)
    return found


def _age(path: Path) -> None:
    """Make everything so old that no writer can be at work on it."""
    for each in (path, *path.rglob("*")):
        os.utime(each, (1, 1), follow_symlinks=False)
