"""``persistence restore``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping

import click

from persistence.cli.options import Choice, chosen, tree_options
from persistence.cli.progress import follow
from persistence.cli.status import REMAINS
from persistence.errors import StartupError
from persistence.maintenance import manifest
from persistence.maintenance import restore as restores
from persistence.maintenance.manifest import Manifest
from persistence.maintenance.restore import Restore
from persistence.storage import owner

_MEBIBYTE = 1 << 20
_SECRET = 0o600


@click.command()
@click.argument("source", metavar="SRC")
@click.option("--to", metavar="NAME=DIR", multiple=True, help="Restore this part of the backup to DIR.")
@click.option("--leave-out", metavar="NAME", multiple=True, help="Do not restore this part of the backup.")
@click.option("--keys", is_flag=True, help="Restore the files of keys, too, where there are none.")
@click.option("--settings", "settings_to", metavar="DIR", help="Put the settings file of the backup into DIR.")
@tree_options
def restore(
    *,
    source: str,
    to: tuple[str, ...],
    leave_out: tuple[str, ...],
    keys: bool,
    settings_to: str | None,
    **options: str | None,
) -> None:
    """Restore a backup, or the newest one in SRC.

    Each tree and directory of attachments goes to where the settings in force say; with --data or --datasource only one
    tree. They must be empty, and the service must not run. Every file is compared with its digest; one that is not what
    it was goes to .quarantine. A restore that was interrupted goes on when it is called again.

    NAME is data, datasource/NAME or attachments/PROVIDER, as the settings and properties call them.

    \b
    Exit status: 0  restored
                 1  could not restore
                 2  wrong usage
                 4  restored, but some files were damaged, or the backup lacks a part; the lines say which
    """  # noqa: D301 - click's mark for lines that stay apart
    choice = chosen(options)
    backup = restores.choose(source)
    roots = _roots(backup.manifest, choice, _given(to, leave_out, backup.manifest))
    run = Restore(backup, roots, dict(_own(choice, backup.path, settings_to, keys=keys)))
    started = time.monotonic()
    problems = follow("restoring", run.total, run.run())
    count = run.count
    click.echo(
        f"{run.source} restored to {', '.join(roots.values())}: {count.files} files ({count.bytes / _MEBIBYTE:.1f} MiB)"
        f", {count.known} were there already; {time.monotonic() - started:.1f} s",
        err=True,
    )
    if problems:
        click.echo("next: persistence check --repair", err=True)
    lacking = [part for part in backup.manifest.parts if part.missing and part.name in roots]
    for part in lacking:
        click.echo(f"{part.name} is not in this backup, because it could not be saved: {part.missing}", err=True)
    sys.exit(REMAINS if problems or lacking else 0)


def _given(to: tuple[str, ...], leave_out: tuple[str, ...], held: Manifest) -> dict[str, str | None]:
    """What the options say of parts: the directory that one goes to, or ``None`` for one that is left out.

    Raises:
        click.UsageError: one names no part of the backup.
    """
    given: dict[str, str | None] = dict.fromkeys(leave_out)
    for each in to:
        name, _, path = each.rpartition("=")
        if not name or not path:
            raise click.UsageError(f"--to {each} is not NAME=DIR")
        given[name] = path
    for name in given:
        if held.part(name) is None:
            known = ", ".join(part.name for part in held.parts)
            raise click.UsageError(f"the backup has no {name}; it has {known}")
    return given


def _roots(held: Manifest, choice: Choice, given: Mapping[str, str | None]) -> dict[str, str]:
    """Where the parts of a backup go; what is left out is not in it.

    Raises:
        StartupError: the settings in force do not name a part, or two would go to one directory.
    """
    known = _known(held, choice)
    roots: dict[str, str] = {}
    for part in held.parts:
        path = given[part.name] if part.name in given else known.get(part.name)
        if path is not None:
            roots[part.name] = os.path.realpath(path)
        elif part.name not in given and choice.is_told:
            click.echo(f"{part.name} is left out: --to {part.name}=DIR restores it", err=True)
        elif part.name not in given:
            raise StartupError(
                f"the backup has {part.name}, which the settings do not name: --to {part.name}=DIR says where it goes, "
                f"--leave-out {part.name} leaves it out"
            )
    for name, root in roots.items():
        for other, there in roots.items():
            if other != name and os.path.commonpath((root, there)) == root:
                raise StartupError(f"{name} would be restored to {root}, and {other} into it, to {there}")
    if not roots:
        raise StartupError("the backup has nothing that is to be restored")
    return roots


def _known(held: Manifest, choice: Choice) -> dict[str, str]:
    """Where the settings in force have the parts; the only tree of a backup goes to the one that an option names."""
    named = dict(choice.bases_by_name)
    trees = [part.name for part in held.parts if part.kind == "tree"]
    if not choice.is_told:
        roots = choice.settings.roots
        named |= {manifest.tree_name(name): path for name, path in roots.named.items()}
        named[manifest.tree_name("")] = roots.default
        return named
    told = choice.trees[0]
    if len(trees) == 1:
        return {**named, trees[0]: told.root}
    if told.name not in trees:
        raise StartupError(f"the backup has no {told.name}; it has {', '.join(trees)}")
    return {told.name: told.root}


def _own(choice: Choice, source: str, settings_to: str | None, *, keys: bool) -> Iterator[tuple[str, tuple[str, int]]]:
    """The files of the backup's own that are wanted, and where they go.

    Raises:
        StartupError: there are none.
    """
    if settings_to is not None:
        yield manifest.SETTINGS, (f"{os.path.realpath(settings_to)}/persistence.toml", _SECRET)
    if not keys:
        return
    there = {manifest.API_KEYS: choice.settings.keys, manifest.ENCRYPTION_KEYS: choice.settings.encryption_keys}
    with owner.being(owner.identity_of(source, trusting=True)):
        held = {name: path for name, path in there.items() if os.path.lexists(f"{source}/{name}")}
    if not held:
        raise StartupError(f"{source} holds no keys: it was made without --keys")
    for name, path in held.items():
        yield name, (os.path.abspath(path), _SECRET)
