"""Completion of arguments by the shell: the names of forms. docs/cli.md says how a shell is told to ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click

from persistence.cli.managing import reading
from persistence.cli.options import choose_trees
from persistence.errors import PersistenceError

_MOST_OFFERED = 1000
"""Nobody reads more names."""
_TREE_OPTIONS = ("data", "datasource", "file", "dialect")


def form_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the forms, as APP/FORM, that begin with the typed text; empty if they cannot be read."""
    options = {name: context.params.get(name) for name in _TREE_OPTIONS}
    try:
        fitting = (name for name in _names(options) if name.startswith(incomplete))
        return sorted(set(islice(fitting, _MOST_OFFERED)))
    except (PersistenceError, click.ClickException, OSError):  # the command itself will say so
        return []


def _names(options: dict[str, str | None]) -> Iterator[str]:
    for tree in choose_trees(options).trees:
        if not tree.is_database:
            with reading(tree) as reader:
                yield from map(str, reader.store.forms())
