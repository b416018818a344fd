"""``persistence leases``: who has leased which document, and for how long; and breaking a lease."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from persistence.cli.managing import managing
from persistence.cli.options import ChosenTree, choose_trees, on_each, tree_options
from persistence.cli.statuses import REMAINS
from persistence.cli.terminal import counted, json_option, print_table, safe, say, say_json
from persistence.errors import DamagedError, NotFoundError, disk_errors
from persistence.model import instants
from persistence.model.leases import DocumentLease, Moment
from persistence.storage import root
from persistence.storage.document_leases import listed, moment

_HEADINGS = ("DOCUMENT", "HOLDER", "GROUP", "SECONDS LEFT", "TREE")
_SECONDS = 3


@click.command(short_help="List the documents that are leased, and break leases.")
@json_option
@click.option("--break", "document", metavar="DOC", help="End the lease of this document.")
@tree_options
def leases(*, as_json: bool, document: str | None, **options: str | None) -> None:
    """List the documents that somebody has leased with LOCK, in all trees.

    A lease belongs to the id of a document, whatever its form. Expired ones are left out. Another service has the
    leases of its documents. Nothing is changed without --break, and the service may run.
    """
    trees = choose_trees(options).trees
    if document is not None:
        _break(trees, document, as_json=as_json)
        return
    found = list[tuple[ChosenTree, DocumentLease]]()
    damaged = list[str]()

    def read(tree: ChosenTree, prefix: str) -> int:
        for lease in _listed(tree):
            if isinstance(lease, DamagedError):
                damaged.append(f"{prefix}{lease}")
            else:
                found.append((tree, lease))
        return REMAINS if damaged else 0

    status, now = on_each(trees, read), moment()
    living = [(tree, lease) for tree, lease in found if lease.remaining(now)]
    living.sort(key=lambda each: (each[1].document, each[0].name))
    if as_json:
        for tree, lease in living:
            say_json(_facts(tree, lease, now))
    else:
        _say(living, now, with_tree=len(trees) > 1)
    for cause in damaged:
        click.echo(safe(cause), err=True)
    sys.exit(status)


def _listed(tree: ChosenTree) -> Iterator[DocumentLease | DamagedError]:
    if tree.is_database:
        with managing(tree) as place:
            yield from place.storage.leases.listed()
        return
    with disk_errors(f"data directory {tree.root}"):
        root.require(tree.root)
        yield from (lease for _, lease in listed(tree.root))


def _break(trees: tuple[ChosenTree, ...], document: str, *, as_json: bool) -> None:
    unknown = list[NotFoundError]()

    def end(tree: ChosenTree, prefix: str) -> int:
        with managing(tree) as place:
            try:
                lease = place.storage.leases.broken(document)
            except NotFoundError as error:  # it may be in another tree
                unknown.append(error)
                return 0
        if as_json:
            say_json({"document": lease.document, "user": lease.user, "broken": True, "tree": tree.name})
        else:
            say(safe(f"{prefix}the lease of {lease.document} by {lease.user} is broken"))
        return 0

    status = on_each(trees, end)
    if unknown and len(unknown) == len(trees):
        raise unknown[0]
    sys.exit(status)


def _say(living: list[tuple[ChosenTree, DocumentLease]], now: Moment, *, with_tree: bool) -> None:
    rows = [
        (safe(lease.document), safe(lease.user), safe(lease.group or ""), str(lease.remaining(now)), safe(tree.name))
        for tree, lease in living
    ]
    if rows:
        shown = rows if with_tree else [(*row[:-1], "") for row in rows]
        print_table((_HEADINGS, *shown), right=(_SECONDS,))
    say(f"{counted(len(rows), 'document')} leased")


def _facts(tree: ChosenTree, lease: DocumentLease, now: Moment) -> dict[str, object]:
    left = lease.remaining(now)
    return {
        "document": lease.document,
        "user": lease.user,
        "group": lease.group,
        "seconds": left,
        "until": instants.from_datetime(datetime.fromtimestamp(now.wall + left, UTC)),
        "tree": tree.name,
    }
