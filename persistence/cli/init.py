"""``persistence init``: make a tree, which no other command does."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click

from persistence.cli.options import chosen, tree_options
from persistence.cli.texts import safe
from persistence.providers.trees import init_trees
from persistence.storage import owner, root


@click.command()
@click.argument("directory", metavar="[DIR]", required=False)
@tree_options
def init(*, directory: str | None, **options: str | None) -> None:
    """Make a data directory of DIR, which must be empty or missing.

    Without DIR those of the settings: the default one and that of each datasource, or the one of --datasource. A
    data directory that is there already is left as it is. Run it as the user of the service.

    \b
    Exit status: 0  there is a data directory now, or was before
                 1  could not: the directory holds something else, or belongs to another user
                 2  wrong usage
    """  # noqa: D301 - click's mark for lines that stay apart
    for path, is_new in _made(directory, options):
        click.echo(f"{safe(path)} {'is a data directory now' if is_new else 'is a data directory already'}")


def _made(directory: str | None, options: Mapping[str, str | None]) -> list[tuple[str, bool]]:
    is_one = options["data"] is not None or options["datasource"] is not None
    if directory is not None and is_one:
        raise click.UsageError("DIR, --data and --datasource exclude each other")
    if directory is not None:
        path = os.path.realpath(directory)
        return [_one(path)]
    choice = chosen(options)
    if is_one:
        return [_one(choice.trees[0].root)]
    return init_trees(choice.settings, choice.properties)


def _one(path: str) -> tuple[str, bool]:
    with owner.acting(path):
        return path, root.init(path)
