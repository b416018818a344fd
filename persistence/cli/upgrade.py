"""``persistence upgrade``: bring trees to the format of this version."""

from __future__ import annotations

import sys

import click

from persistence.cli.options import Chosen, chosen, tree_options
from persistence.cli.trees import each
from persistence.maintenance import upgrade as upgrades


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

    def work(tree: Chosen, prefix: str) -> int:
        steps = upgrades.pending(tree.root) if dry_run else upgrades.upgrade(tree.root)
        is_current = True
        for step in steps:
            is_current = False
            click.echo(f"{prefix}{'to do' if dry_run else 'done'}: {step.name}: {step.does}")
        if is_current:
            click.echo(f"{prefix}{tree.root} has the format of this version: nothing to do")
        return 0

    sys.exit(each(chosen(options).trees, work))
