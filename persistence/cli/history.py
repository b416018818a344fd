"""``persistence history``: the revisions of a document or an attachment, as the files of its tree have them."""

from __future__ import annotations

import sys

import click

from persistence.cli.managing import reading
from persistence.cli.options import choose_trees, data_address, tree_options, usage_errors
from persistence.cli.report_facts import content_size, revision_facts
from persistence.cli.statuses import REMAINS
from persistence.cli.terminal import counted, json_option, print_table, safe, say, say_json
from persistence.errors import NotFoundError
from persistence.model.history import ListedRevision

_HEADINGS = ("MODIFIED", "BY", "OWNER", "GROUP", "STAGE", "VERSION", "BYTES", "NOTES")
_NUMBERS = (5, 6)


@click.command(short_help="List the revisions of a document or an attachment.")
@click.argument("path")
@json_option
@tree_options
def history(*, path: str, as_json: bool, **options: str | None) -> None:
    """List the revisions of a document or an attachment, newest first.

    \b
    PATH is one of  APP/FORM/data/DOCUMENT        a document
                    APP/FORM/data/DOCUMENT/FILE   an attachment of it

    A time in the first column is the last-modified-time with which a GET reads that revision. Permissions do not
    count, and revisions of earlier owners are listed, too. The tree or database is that of the form's data, as
    persistence config route says. Nothing is changed, and the service may run.
    """  # noqa: D301 - click's mark for lines that stay apart
    choice = choose_trees(options)
    with usage_errors():
        address = data_address(path)
        tree = choice.tree_of(address.form)
        with reading(tree) as reader:
            found = reader.store.history(address)
            if found is None:
                raise NotFoundError(f"{safe(path)} does not exist")
            revisions = found.page(0, found.total)
    if as_json:
        for revision in revisions:
            say_json(revision_facts(revision.instant, revision.sidecar))
    else:
        print_table((_HEADINGS, *map(_row, revisions)), right=_NUMBERS)
        deleted = sum(revision.sidecar is not None and revision.sidecar.deleted for revision in revisions)
        say(counted(len(revisions), "revision") + (f", {counted(deleted, 'deletion')}" if deleted else ""))
    if any(revision.sidecar is None for revision in revisions):
        sys.exit(REMAINS)


def _row(revision: ListedRevision) -> tuple[str, ...]:
    sidecar = revision.sidecar
    if sidecar is None:
        return revision.instant, "", "", "", "", "", "", "damaged: persistence check says more"
    names = (sidecar.modifier, sidecar.creator, sidecar.group, sidecar.stage)
    size = "" if sidecar.deleted else str(content_size(sidecar))
    notes = [name for name in ("deleted", "adopted", "encrypted") if getattr(sidecar, name)]
    notes += [] if sidecar.restored is None else [f"restored {sidecar.restored}"]
    return revision.instant, *(safe(name or "") for name in names), str(sidecar.version), size, ", ".join(notes)
