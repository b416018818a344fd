"""``persistence backup``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from io import FileIO

import click

from persistence.cli.options import TreeChoice, allow_open_files, choose_trees, tree_options
from persistence.cli.statuses import FAILED, REMAINS, worst
from persistence.cli.terminal import follow, json_option, quiet_option, say_json, shown_path, summarize
from persistence.errors import StartupError, disk_errors
from persistence.maintenance import manifest, needed_keys
from persistence.maintenance.backup import Backup, Sources
from persistence.maintenance.last_runs import LastBackup, record
from persistence.maintenance.tree import FolderTree
from persistence.model.instants import next_after
from persistence.providers.locations import open_encryption_keys
from persistence.providers.opened import readable_bodies
from persistence.providers.places import open_place
from persistence.providers.trees import integrity_of
from persistence.storage import nofollow
from persistence.storage.integrity import HandEdits, Integrity
from persistence.storage.managed import MaintainedDatabase

MEBIBYTE = 1 << 20


@click.command(short_help="Save all trees into a new directory.")
@click.argument("destination", metavar="DEST")
@click.option("--keys", is_flag=True, help="Save the API keys and the encryption keys, too: they open the data.")
@click.option("--verify", is_flag=True, help="Read the finished backup from the disk, and compare the digests.")
@json_option
@quiet_option
@tree_options
def backup(*, destination: str, keys: bool, verify: bool, as_json: bool, **options: str | None) -> None:
    """Save all trees and directories of attachments into a new directory in DEST.

    The service may run. Files that have not changed since the last backup in DEST become hard links to it, where the
    file system has them. Each backup is whole: remove old ones with rm -r. The settings file is saved, too.
    """
    if "://" in destination:
        raise click.UsageError("DEST is a directory, and not an address")
    choice = choose_trees(options)
    allow_open_files()
    timeout = choice.settings.lock_timeout
    trees = {t.name: FolderTree(t.root, lock_timeout=timeout) for t in choice.trees if not t.is_database}
    bodies_of = readable_bodies(choice.settings, choice.properties, Integrity(HandEdits.ALL))
    extra = dict(_extra_to_save(choice, keys=keys))
    needed, saved = _encryption_keys(choice, keys=keys)
    started = time.monotonic()
    with ExitStack() as opened:
        databases = dict(_databases(choice, opened))
        integrity = integrity_of(choice.settings)
        run = Backup(Sources(trees, choice.bases, bodies_of, integrity, extra, databases, needed, saved), destination)
        problems = follow("saving", lambda: sum(tree.count() for tree in trees.values()), run.run(), as_json=as_json)
    if verify:
        problems += follow("verifying", run.total, run.verify(), as_json=as_json)
    for name, cause in run.missing.items():
        click.echo(f"persistence: {name} is not saved: {cause}", err=True)
    _say_saved(run, problems, time.monotonic() - started, as_json=as_json)
    if lacking := [each for each in needed if each not in saved]:
        where = "of the environment" if choice.settings.encryption_key else f"in {choice.settings.encryption_keys}"
        summarize(
            f"the encryption keys {where} are not in the backup, and nobody can read encrypted data without them: "
            f"keep a copy of them, or save them with --keys ({', '.join(lacking)})"
        )
    if not choice.is_named:
        record(choice.settings.home, LastBackup(next_after(None), run.path, run.folders, problems, len(run.missing)))
    sys.exit(worst((REMAINS if problems else 0, FAILED if run.missing else 0)))


def _say_saved(run: Backup, problems: int, seconds: float, *, as_json: bool) -> None:
    count = run.count
    if as_json:
        say_json(
            {
                "backup": shown_path(run.path),
                "folders": run.folders,
                "files_copied": count.copied,
                "bytes_copied": count.copied_bytes,
                "files_linked": count.linked,
                "problems": problems,
                "missing": dict(run.missing),
                "seconds": round(seconds, 3),
            }
        )
        return
    summarize(
        f"{run.path}: {run.folders} documents, drafts and form versions; "
        f"{count.copied} files copied ({count.copied_bytes / MEBIBYTE:.1f} MiB), {count.linked} linked; "
        f"{seconds:.1f} s"
    )


def _encryption_keys(choice: TreeChoice, *, keys: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    settings = choice.settings
    try:
        known = open_encryption_keys(settings, choice.properties)
    except StartupError:  # no service starts with such a file, and says why
        return tuple(sorted(needed_keys.needed(settings.home))), ()
    needed_keys.note_all(settings.home, known)
    needed = needed_keys.needed(settings.home)
    lacking = needed_keys.missing(needed, known)
    return tuple(sorted(needed)), tuple(sorted(needed.difference(lacking))) if keys and not known.are_given else ()


def _databases(choice: TreeChoice, opened: ExitStack) -> Iterator[tuple[str, MaintainedDatabase]]:
    for chosen in choice.trees:
        if chosen.is_database:
            place = opened.enter_context(open_place(choice.settings, choice.properties, chosen.place))
            if place.database is not None:
                yield chosen.name, place.database


def _extra_to_save(choice: TreeChoice, *, keys: bool) -> Iterator[tuple[str, bytes]]:
    settings = choice.settings
    if choice.file:
        yield manifest.SETTINGS, _read(choice.file)
    if not keys:
        return
    if settings.encryption_key:
        click.echo("the encryption keys of the environment are not saved: they are in no file", err=True)
    there = {name: path for name, path in key_files(choice).items() if os.path.exists(path)}
    for name, path in there.items():
        yield name, _read(path)
    has_keys = "the backup holds keys: everybody who can read it can read all data"
    click.echo(has_keys if there else "there are no files of keys to save", err=True)


def key_files(choice: TreeChoice) -> dict[str, str]:
    """Return the paths of the files of keys by their paths in a backup."""
    return {manifest.API_KEYS: choice.settings.keys, manifest.ENCRYPTION_KEYS: choice.settings.encryption_keys}


def _read(path: str) -> bytes:
    with disk_errors(f"reading {path}"), FileIO(nofollow.open_linked(path)) as file:
        return nofollow.read_small(file.fileno())
