"""``persistence upgrade``: bring the tree to the format of this version."""

from __future__ import annotations

import os

import click

from persistence.cli.options import chosen, tree_options
from persistence.upkeep import upgrade as upgrades


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@tree_options
def upgrade(*, dry_run: bool, **options: str | None) -> None:
    """Bring the tree to the format of this version.

    The service must not run. Each step is recorded in layout.json when it is done; an upgrade that was interrupted
    goes on when it is called again.
    """
    root = os.path.abspath(chosen(options).root)
    steps = upgrades.pending(root) if dry_run else upgrades.upgrade(root)
    is_current = True
    for step in steps:
        is_current = False
        click.echo(f"{'to do' if dry_run else 'done'}: {step.name}: {step.does}")
    if is_current:
        click.echo(f"{root} has the format of this version: nothing to do")
