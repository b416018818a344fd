"""Doing the same on each of the trees that a command works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from persistence.cli.options import Chosen
from persistence.cli.status import FAILED, worst
from persistence.errors import PersistenceError, one_line
from persistence.storage import owner


def each(trees: Sequence[Chosen], work: Callable[[Chosen, str], int]) -> int:
    """Do ``work`` on each tree as its owner; returns the worst of the exit statuses that it returns.

    Where there are several, ``work`` is told what its lines begin with: the name of the tree. One that cannot be used
    is then said on standard error, and does not keep the others from being looked after.

    Raises:
        PersistenceError: what the work on a single tree raises.
    """
    if len(trees) == 1:
        with owner.acting(trees[0].root):
            return work(trees[0], "")
    statuses = []
    for tree in trees:
        try:
            with owner.acting(tree.root):
                statuses.append(work(tree, f"{tree.name}: "))
        except PersistenceError as error:
            failed(tree.name, error)
            statuses.append(FAILED)
    return worst(statuses)


def failed(name: str, error: PersistenceError) -> None:
    """Say that a tree, or a directory of attachments, could not be looked after."""
    click.echo(f"persistence: {name}: {one_line(str(error))}", err=True)
