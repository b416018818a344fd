"""``persistence revert``: bring back an older revision of a document or an attachment, or a deleted one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from persistence.cli.managing import managing
from persistence.cli.options import ChosenTree, Time, choose_trees, data_address, tree_options, usage_errors
from persistence.cli.terminal import counted, json_option, print_table, safe, say, say_json
from persistence.dialect import DIALECTS
from persistence.errors import PersistenceError
from persistence.model.instants import Instant
from persistence.model.texts import short
from persistence.model.users import User
from persistence.providers.trees import open_index
from persistence.services.access import as_administrator
from persistence.services.documents import Documents
from persistence.services.reverting import RestorePlan, Reverting, before_current
from persistence.services.rules import Revert


@click.command(short_help="Bring back an older revision, or what was deleted.")
@click.argument("path")
@click.argument("instant", type=Time(), required=False)
@click.option("--as", "user", metavar="USER", help="The last modifier of the new revision.")
@click.option("--dry-run", is_flag=True, help="Only say what would come back.")
@json_option
@tree_options
def revert(
    *, path: str, instant: Instant | None, user: str | None, dry_run: bool, as_json: bool, **options: str | None
) -> None:
    """Make an older revision of a document the current one again, as a new revision.

    \b
    PATH is one of  APP/FORM/data/DOCUMENT       a document and its attachments
                    APP/FORM/data/DOCUMENT/FILE  one attachment

    INSTANT is the time of a revision, as persistence history lists it. Without it, the revision before the
    current one comes back, and of something deleted the last one that was not.

    Only attachments that the revision names come back with a document, and one attachment alone only if its
    document is not deleted. Attachments that were deleted or replaced since come back as they were then. The current
    revision stays in the history, and the draft of the document is removed, as with a save. Permissions do not count,
    leases do where the property enforce-lease is set. The service may run. The next run completes one that was
    interrupted.
    """  # noqa: D301 - click's mark for lines that stay apart
    choice = choose_trees(options)
    with usage_errors():
        address, by = data_address(path), User(name=short(user, "user name"))
    tree = choice.tree_of(address.form)
    with opened_documents(tree) as documents:
        reverting = Reverting(documents)
        asked = Revert(instant=instant or before_current(documents, address), user=by)
        plan = reverting.plan(address, asked)
        if not dry_run:
            reverting.restore(plan)
    if as_json:
        say_json(restored_facts(plan, dry_run=dry_run))
    else:
        say_restored(plan, dry_run=dry_run)


@contextmanager
def opened_documents(tree: ChosenTree) -> Iterator[Documents]:
    """Open the documents of a place, as they are stored, for a block; the index hears of changes."""
    settings, dialect = tree.settings, DIALECTS[tree.settings.dialect]
    with managing(tree) as place:
        yield Documents(place.providers.router, dialect, as_administrator(dialect))
        place.leave()
    if tree.is_database:
        return
    with suppress(OSError, PersistenceError), open_index(settings, tree.properties, tree.root) as index:
        index.recover()  # or the next search reads the journal


def restored_facts(plan: RestorePlan, *, dry_run: bool) -> dict[str, object]:
    files = [
        {
            "file": each.address.name,
            "comes_back": each.older.modified,
            "by": each.older.modifier,
            "size": each.older.size,
            "instead_of": None if each.replaced is None else each.replaced.modified,
            "was_deleted": each.is_deleted,
        }
        for each in (*plan.attachments, plan.file)
    ]
    return {"files": files, "missing": plan.missing, "dry_run": dry_run}


def say_restored(plan: RestorePlan, *, dry_run: bool) -> None:
    rows = [("FILE", "COMES BACK", "BY", "BYTES", "INSTEAD OF")]
    for each in (*plan.attachments, plan.file):
        older, replaced = each.older, each.replaced
        instead = "" if replaced is None else f"{replaced.modified}{', deleted' if replaced.deleted else ''}"
        rows.append((safe(each.address.name), older.modified, safe(older.modifier or ""), str(older.size), instead))
    print_table(rows, right=(3,))
    if plan.notice is not None:
        say(safe(plan.notice))
    say(f"{counted(len(rows) - 1, 'file')} {'would come' if dry_run else 'came'} back")
