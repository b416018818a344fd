"""``persistence init`` and ``persistence upgrade``: make data directories, and bring them to this version's format."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import click

from persistence.cli.options import tree_options
from persistence.cli.terminal import safe
from persistence.cli.tree_choice import ChosenTree, choose_trees, on_each
from persistence.maintenance import upgrade as upgrades
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
    for path, is_new in _make(directory, options):
        click.echo(f"{safe(path)} is a data directory {'now' if is_new else 'already'}")


def _make(directory: str | None, options: Mapping[str, str | None]) -> list[tuple[str, bool]]:
    is_named = options["data"] is not None or options["datasource"] is not None
    if directory is not None and is_named:
        raise click.UsageError("DIR, --data and --datasource exclude each other")
    if directory is not None:
        path = os.path.realpath(directory)
    else:
        choice = choose_trees(options)
        if not is_named:
            return init_trees(choice.settings, choice.properties)
        path = choice.trees[0].root
    with owner.acting(path):
        return [(path, root.init(path))]


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@tree_options
def upgrade(*, dry_run: bool, **options: str | None) -> None:
    """Bring all trees to the format of this version.

    The service must not run. Each step is recorded in layout.json when it is done; an upgrade that was interrupted
    goes on when it is called again.

    \b
    Exit status: 0  done, or nothing to do
                 1  could not upgrade a tree, as its line says
                 2  wrong usage
    """  # noqa: D301 - click's mark for lines that stay apart

    def work(tree: ChosenTree, prefix: str) -> int:
        steps = upgrades.pending(tree.root) if dry_run else upgrades.upgrade(tree.root)
        is_current = True
        for step in steps:
            is_current = False
            click.echo(f"{prefix}{'to do' if dry_run else 'done'}: {step.name}: {step.does}")
        if is_current:
            click.echo(f"{prefix}{tree.root} has the format of this version: nothing to do")
        return 0

    sys.exit(on_each(choose_trees(options).trees, work))
