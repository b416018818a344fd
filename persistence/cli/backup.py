"""``persistence backup``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import click

from persistence.cli import descriptors
from persistence.cli.options import Choice, chosen, tree_options
from persistence.cli.progress import follow
from persistence.cli.status import FAILED, REMAINS, worst
from persistence.errors import disk_errors
from persistence.maintenance import manifest
from persistence.maintenance.backup import Backup, Sources
from persistence.maintenance.tree import Tree
from persistence.providers.opening import integrity_of
from persistence.providers.places import bodies_by_form
from persistence.storage import nofollow, owner
from persistence.storage.attachment_bodies import BodiesReader
from persistence.storage.integrity import HandEdits, Integrity

_MEBIBYTE = 1 << 20
_SECRET = 0o600


@click.command()
@click.argument("destination", metavar="DEST")
@click.option("--keys", is_flag=True, help="Save the API keys and the encryption keys, too: they open the data.")
@click.option("--verify", is_flag=True, help="Read the finished backup from the disk, and compare the digests.")
@tree_options
def backup(*, destination: str, keys: bool, verify: bool, **options: str | None) -> None:
    """Save all trees and directories of attachments into a new directory in DEST.

    The service may run. What has not changed since the last backup in DEST becomes a hard link to it, where the file
    system has them. Each backup is whole: remove old ones with rm -r. The settings file is saved with it.

    \b
    Exit status: 0  saved
                 1  could not save, or not all trees and directories; the lines say which
                 2  wrong usage
                 4  saved, but some files are damaged, or were written wrongly (--verify); the lines say which
    """  # noqa: D301 - click's mark for lines that stay apart
    choice = chosen(options)
    descriptors.allow_most()
    timeout = choice.settings.lock_timeout
    trees = {tree.name: Tree(tree.root, lock_timeout=timeout) for tree in choice.trees}
    anything = Integrity(HandEdits.ALL)
    bodies_of = bodies_by_form(choice.properties, lambda base: BodiesReader(base, anything))
    own = tuple(_own(choice, keys=keys))
    run = Backup(Sources(trees, choice.bases, bodies_of, integrity_of(choice.settings), own), destination)
    started = time.monotonic()
    problems = follow("saving", lambda: sum(map(_counted, trees.values())), run.run())
    if verify:
        problems += follow("verifying", run.total, run.verify())
    for name, cause in run.missing.items():
        click.echo(f"persistence: {name} is not saved: {cause}", err=True)
    count = run.count
    click.echo(
        f"{run.path}: {run.folders} documents, drafts and form versions; "
        f"{count.copied} files copied ({count.copied_bytes / _MEBIBYTE:.1f} MiB), {count.linked} linked; "
        f"{time.monotonic() - started:.1f} s",
        err=True,
    )
    sys.exit(worst((REMAINS if problems else 0, FAILED if run.missing else 0)))


def _counted(tree: Tree) -> int:
    with owner.acting(tree.root):
        return tree.count()


def _own(choice: Choice, *, keys: bool) -> Iterator[tuple[str, bytes, int]]:
    """The settings file, and the files of keys if they are wanted: readable for their user only, as both may open data.

    Raises:
        DiskError: one cannot be read.
    """
    if choice.file:
        yield manifest.SETTINGS, _bytes_of(choice.file), _SECRET
    if not keys:
        return
    settings = choice.settings
    if settings.encryption_key:
        click.echo("the encryption keys of the environment are not saved: they are in no file", err=True)
    there = [
        (name, path)
        for name, path in ((manifest.API_KEYS, settings.keys), (manifest.ENCRYPTION_KEYS, settings.encryption_keys))
        if os.path.exists(path)
    ]
    for name, path in there:
        with owner.being(owner.identity_for(path, settings.data)):
            content = _bytes_of(path)
        yield name, content, _SECRET
    if there:
        click.echo("the backup holds keys: whoever can read it can read all data", err=True)
    else:
        click.echo("there are no files of keys to save", err=True)


def _bytes_of(path: str) -> bytes:
    with disk_errors(f"reading {path}"):
        descriptor = nofollow.open_linked(path)
        try:
            return nofollow.read_small(descriptor)
        finally:
            os.close(descriptor)
