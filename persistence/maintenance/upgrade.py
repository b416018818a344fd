"""Upgrades of the tree's format: named steps, each recorded in ``layout.json`` when it is done.

The new format's number is written first, so that no version that does not know it serves the tree meanwhile. A run
that was interrupted is taken up by the next one, which leaves out what is recorded; a step itself can be done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from persistence.errors import disk_errors
from persistence.maintenance.sealing import seal_sidecars
from persistence.model.instants import next_after
from persistence.storage import directories, files, formats, lease, locks, owner, root
from persistence.storage.formats import FORMAT, LayoutFile
from persistence.storage.layout import LAYOUT, LOCKS, SERVICE


@dataclass(frozen=True, slots=True)
class Step:
    """One change on the way to a format: its name for the record, what it does, and how, given the root's path."""

    name: str
    format: int
    does: str
    run: Callable[[str], None]


STEPS = (
    Step("quarantine", 2, "makes .quarantine, and .locks/service for whoever uses the tree", root.make_own),
    Step("sidecars", 3, "gives every sidecar a checksum of itself and the path of its content", seal_sidecars),
)
"""All steps that there ever were, in their order."""


def pending(path: str, steps: Sequence[Step] = STEPS) -> list[Step]:
    """The steps that a tree still needs; nothing is changed.

    Raises:
        StartupError: there is no tree, it was written by a newer version, or it is being restored.
        DiskError: it cannot be read.
    """
    with disk_errors(f"data directory {path}"):
        return _pending(_layout(path), steps)


def upgrade(path: str, steps: Sequence[Step] = STEPS) -> Iterator[Step]:
    """Run the steps that a tree still needs; each is yielded when it is done and recorded.

    Raises:
        StartupError: as ``pending``.
        BusyError: a service uses the tree.
        DiskError: the disk refused; a later run goes on from there.
    """
    with disk_errors(f"data directory {path}"):
        layout = _layout(path)
        due = _pending(layout, steps)
        if not due and layout.format == FORMAT and not layout.upgrading_from:
            return
        owner.require(path)
        directories.make(f"{path}/{LOCKS}")
        files.ensure_file(f"{path}/{SERVICE}")
        in_use = "the data directory is in use: stop the service first"
        with locks.alone(f"{path}/{SERVICE}", in_use), lease.held(path):
            began = LayoutFile(FORMAT, layout.steps, upgrading_from=layout.upgrading_from or layout.format)
            formats.write(f"{path}/{LAYOUT}", began)
            done = dict(layout.steps)
            for step in due:
                step.run(path)
                done[step.name] = next_after(None)
                formats.write(f"{path}/{LAYOUT}", msgspec.structs.replace(began, steps=done))
                yield step
            formats.write(f"{path}/{LAYOUT}", LayoutFile(FORMAT, done))


def _layout(path: str) -> LayoutFile:
    layout = formats.read(f"{path}/{LAYOUT}")
    if layout is None:
        raise root.missing(path)
    if layout.format > FORMAT or layout.restoring:
        formats.check(f"{path}/{LAYOUT}", layout)
    return layout


def _pending(layout: LayoutFile, steps: Sequence[Step]) -> list[Step]:
    since = layout.upgrading_from or layout.format
    return [step for step in steps if step.format > since and step.name not in layout.steps]
