"""``persistence backup`` and ``persistence restore``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import click

from persistence.cli import descriptors
from persistence.cli.options import chosen, tree_options
from persistence.cli.progress import progress
from persistence.cli.status import REMAINS
from persistence.errors import one_line
from persistence.upkeep.backup import Backup
from persistence.upkeep.restore import Restore
from persistence.upkeep.tree import Tree

_MEBIBYTE = 1 << 20


@click.command()
@click.argument("destination", metavar="DEST")
@tree_options
def backup(*, destination: str, **options: str | None) -> None:
    """Save the tree into a new directory in DEST.

    The service may run. What has not changed since the last backup in DEST becomes a hard link to it, where the file
    system has them. Each backup is a whole tree of its own: remove old ones with rm -r.

    \b
    Exit status: 0  saved
                 1  could not save
                 2  wrong usage
                 4  saved, but some files are damaged; the lines say which
    """  # noqa: D301 - click's mark for lines that stay apart
    choice = chosen(options)
    descriptors.allow_most()
    tree = Tree(choice.root, lock_timeout=choice.settings.lock_timeout)
    run = Backup(tree, destination)
    started = time.monotonic()
    problems = _follow("saving", tree.count, run.run())
    count = run.count
    click.echo(
        f"{run.path}: {run.folders} documents, drafts and form versions; "
        f"{count.copied} files copied ({count.copied_bytes / _MEBIBYTE:.1f} MiB), {count.linked} linked; "
        f"{time.monotonic() - started:.1f} s",
        err=True,
    )
    sys.exit(REMAINS if problems else 0)


@click.command()
@click.argument("source", metavar="SRC")
@tree_options
def restore(*, source: str, **options: str | None) -> None:
    """Restore a backup, or the newest one in SRC.

    The data directory must be empty, and the service must not run. Every file is compared with its digest; one that
    is not what it was goes to .quarantine. A restore that was interrupted goes on when it is called again.

    \b
    Exit status: 0  restored
                 1  could not restore
                 2  wrong usage
                 4  restored, but some files were damaged; the lines say which
    """  # noqa: D301 - click's mark for lines that stay apart
    choice = chosen(options)
    run = Restore(source, choice.root)
    started = time.monotonic()
    problems = _follow("restoring", run.total, run.run())
    count = run.count
    click.echo(
        f"{run.source} restored to {choice.root}: {count.files} files ({count.bytes / _MEBIBYTE:.1f} MiB), "
        f"{count.known} were there already; {time.monotonic() - started:.1f} s",
        err=True,
    )
    if problems:
        click.echo("next: persistence check --repair", err=True)
    sys.exit(REMAINS if problems else 0)


def _follow(label: str, total: Callable[[], int], steps: Iterator[str | None]) -> int:
    """Run to the end, with a bar and a line for each problem; returns how many there were."""
    problems = 0
    with progress(label, total) as bar:
        for problem in steps:
            if problem is None:
                bar.step()
            else:
                problems += 1
                bar.say(one_line(problem))
    return problems
