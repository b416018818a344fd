"""Upgrades of the tree's format: named steps, each recorded in ``layout.json`` when it is done.

The new format's number is written first, so that no version that does not know it serves the tree meanwhile. The next
run goes on after an interrupted one and leaves out the recorded steps; a step can be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from io import FileIO
from itertools import islice

import msgspec

from persistence.errors import DamagedError, disk_errors
from persistence.maintenance.tree_walk import Folder, FolderTree
from persistence.model.texts import next_after
from persistence.storage import files, owner, root, stored_revision
from persistence.storage.layout import LAYOUT, LOCKS, SERVICE, SIDECAR_SUFFIX, FilePaths, Layout
from persistence.storage.locks import Lease, LockFile
from persistence.storage.root import FORMAT, LayoutFile

_AT_ONCE = 500  # Folders whose sidecars are made durable together
_ASIDE = "~sealed"
"""Ends the name of a sidecar that is written aside. It begins with a dot, as no name of a resource does."""


def add_checksums(path: str) -> None:
    """Give every sidecar in the tree of a root a checksum and an address (format 3); leave other files alone."""
    # A sidecar is written aside, made durable and renamed over the old one: an interruption leaves each old or new, and
    # the next run goes through all of them again.
    folders = (item.path for item in FolderTree(path, lock_timeout=0).walk() if isinstance(item, Folder))
    while some := list(islice(folders, _AT_ONCE)):
        with files.synced(path):
            written = [
                sidecar
                for folder in some
                for directory in (folder, FilePaths(folder, "").history)
                for sidecar in _write_aside(directory)
            ]
        with files.synced(path):
            for sidecar in written:
                files.rename(_aside(sidecar), sidecar)


def _write_aside(directory: str) -> Iterator[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        names = os.listdir(directory)
        for name in names:
            if name.startswith(".") and name.endswith(_ASIDE):
                files.remove(f"{directory}/{name}")  # from a run that was interrupted
        for name in names:
            path = f"{directory}/{name}"
            if name.endswith(SIDECAR_SUFFIX) and (upgraded := _upgraded(path)) is not None:
                with files.written(_aside(path), upgraded):
                    yield path


def _aside(sidecar: str) -> str:
    directory, _, name = sidecar.rpartition("/")
    return f"{directory}/.{name}{_ASIDE}"


def _upgraded(path: str) -> bytes | None:
    directory, _, name = path.rpartition("/")
    content = name.removesuffix(SIDECAR_SUFFIX).removeprefix(".")  # an uncommitted sidecar begins with a dot
    try:
        files.require_file(os.lstat(path), path)
    except OSError:
        return None
    with FileIO(files.open_file(path)) as file, suppress(DamagedError):
        sidecar = stored_revision.decode_before(files.read_small(file.fileno()), path)
        return stored_revision.encode(sidecar, FilePaths(directory, content).address)
    return None


@dataclass(frozen=True, slots=True)
class UpgradeStep:
    """One change on the way to a format: its name for the record, what it does, and a function of the root."""

    name: str
    format: int
    does: str
    run: Callable[[str], None]


STEPS = (
    UpgradeStep("quarantine", 2, "makes .quarantine, and .locks/service for whoever uses the tree", root.make_own),
    UpgradeStep("sidecars", 3, "gives every sidecar a checksum of itself and the path of its content", add_checksums),
)  # All steps that there ever were, in their order


def steps_due(path: str, steps: Sequence[UpgradeStep] = STEPS) -> list[UpgradeStep]:
    """Return the steps that a tree still needs; nothing is changed."""
    with disk_errors(f"data directory {path}"):
        return _due(_read(path), steps)


def upgrade(path: str, steps: Sequence[UpgradeStep] = STEPS) -> Iterator[UpgradeStep]:
    """Run the steps that a tree still needs; yield each when it is done and recorded."""
    with disk_errors(f"data directory {path}"):
        found, layout = _read(path), Layout(path)
        file, service = layout.own(LAYOUT), layout.own(SERVICE)
        due = _due(found, steps)
        if not due and found.format == FORMAT and not found.upgrading_from:
            return
        owner.require(path)
        files.make(layout.own(LOCKS))
        files.ensure_file(service)
        in_use = "the data directory is in use: stop the service first"
        with LockFile(service).exclusive(in_use), closing(Lease(path)):
            began = LayoutFile(FORMAT, found.steps, upgrading_from=found.upgrading_from or found.format)
            root.write_layout(file, began)
            done = dict(found.steps)
            for step in due:
                step.run(path)
                done[step.name] = next_after(None)
                root.write_layout(file, msgspec.structs.replace(began, steps=done))
                yield step
            root.write_layout(file, LayoutFile(FORMAT, done))


def _read(path: str) -> LayoutFile:
    file = Layout(path).own(LAYOUT)
    found = root.read_layout(file)
    if found is None:
        raise root.missing(path)
    if found.format > FORMAT or found.restoring:
        root.check_layout(file, found)
    return found


def _due(layout: LayoutFile, steps: Sequence[UpgradeStep]) -> list[UpgradeStep]:
    since = layout.upgrading_from or layout.format
    return [step for step in steps if step.format > since and step.name not in layout.steps]
