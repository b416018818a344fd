"""``persistence reindex``: make the search index anew."""

from __future__ import annotations

import sys
import time

import click

from persistence.cli.forms_and_versions import form_and_version
from persistence.cli.options import Chosen, chosen, tree_options
from persistence.cli.progress import progress
from persistence.cli.texts import counted
from persistence.cli.trees import each
from persistence.errors import BadRequestError
from persistence.index.protocol import RebuildAim
from persistence.maintenance import indexes
from persistence.model.addresses import Form
from persistence.providers.opening import open_index


@click.command()
@click.argument("path", metavar="[APP/FORM[/VERSION]]", required=False)
@click.option("--verify", is_flag=True, help="Only compare with the files, and take in what differs.")
@tree_options
def reindex(*, path: str | None, verify: bool, **options: str | None) -> None:
    """Make the search indexes of all forms in all trees anew, or that of one form.

    The service may run: it answers from the old index until the new one is complete. All processors are used. Of two
    that reindex at once, the second waits.

    Data of versions whose definition was deleted is found again. With VERSION only that of this one is, and the rest
    stays as it was. The rows of tables for reports are read anew, too, with VERSION those of this one.

    \b
    Exit status: 0  done
                 1  could not: no such form, no data directory, another user's
                 2  wrong usage
    """  # noqa: D301 - click's mark for lines that stay apart
    choice = chosen(options)
    try:
        form, version = (None, None) if path is None else form_and_version(path)
    except BadRequestError as error:
        raise click.UsageError(str(error)) from error
    if verify and version is not None:
        raise click.UsageError("--verify compares all versions of a form: leave the VERSION out")
    aim = RebuildAim.VERIFIED if verify else RebuildAim.REBUILT
    trees = choice.trees if form is None else (choice.with_data(form),)
    sys.exit(each(trees, lambda tree, prefix: _reindex(tree, prefix, aim, form, version)))


def _reindex(tree: Chosen, prefix: str, aim: RebuildAim, form: Form | None, version: int | None) -> int:
    """Make the indexes of a tree, or one of them; returns the exit status."""
    is_verified = aim is RebuildAim.VERIFIED
    with indexes.writable_tree(tree.root) as view, open_index(tree.settings, tree.properties, tree.root) as index:
        try:
            job = indexes.plan(view, index, aim, form, version)
        except BadRequestError as error:
            raise click.UsageError(str(error)) from error
        if index.is_rebuilding():
            click.echo(f"{prefix}waiting for another index that is being made", err=True)
        started, documents = time.monotonic(), 0
        with progress(f"{prefix}{'verifying' if is_verified else 'reindexing'}", job.count) as bar:

            def step(more: int) -> None:
                nonlocal documents
                documents += more
                bar.step(more)

            job.run(step)
        seconds = time.monotonic() - started
    did = "compared" if is_verified else "reindexed"
    click.echo(
        f"{prefix}{did} {documents:,} documents and drafts of {counted(job.forms, 'form')} in {seconds:.1f} s "
        f"({documents / max(seconds, 0.001):,.0f} a second)",
        err=True,
    )
    return 0
