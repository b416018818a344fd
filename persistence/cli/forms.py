"""``persistence forms``: the published forms, and how many documents they have."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import click

from persistence.cli.options import tree_options
from persistence.cli.terminal import counted, safe, say, table, terminal_width
from persistence.cli.tree_choice import REMAINS, ChosenTree, choose_trees, on_each, worst
from persistence.errors import BadRequestError, NotFoundError, PersistenceError
from persistence.maintenance.tree_reader import FormSummary, Unreadable, VersionSummary, overview
from persistence.model.addresses import Form
from persistence.storage import owner

_HEADINGS = ("FORM", "VERSION", "TITLE", "MODIFIED", "BY", "DOCUMENTS", "DELETED", "DRAFTS", "TREE", "NOTES")
_NUMBERS = (1, 5, 6, 7)
_TITLE = 2
_ENGLISH = "en"
_SECOND = 19


@click.command()
@click.argument("app", metavar="[APP]", required=False)
@tree_options
def forms(*, app: str | None, **options: str | None) -> None:
    """List the published versions of all forms in all trees, or of those of the application APP.

    Documents, deleted documents and drafts are counted once for each form. Nothing is changed, and the service may
    run.

    \b
    Exit status: 0  all could be read
                 1  could not look: no such application, no data directory (or not in all of them)
                 2  wrong usage
                 4  a version is damaged, as its line says
    """  # noqa: D301 - click's mark for lines that stay apart
    trees = choose_trees(options).trees
    found = list[tuple[ChosenTree, FormSummary]]()
    unknown = list[NotFoundError]()

    def read(tree: ChosenTree, _prefix: str) -> int:
        try:
            found.extend((tree, summary) for summary in overview(tree.reader(), app))
        except BadRequestError as error:
            raise click.UsageError(str(error)) from error
        except NotFoundError as error:  # it may be in another tree
            unknown.append(error)
        return 0

    status = on_each(trees, read)
    if unknown and len(unknown) == len(trees):
        raise unknown[0]
    found.sort(key=lambda each: (each[1].form.app, each[1].form.name))  # equal names stay in the order of the trees
    rows = [row for tree, summary in found for row in _rows(summary, tree, several=len(trees) > 1)]
    if rows:
        for line in table((_HEADINGS, *rows), right=_NUMBERS, flexible=_TITLE, room=terminal_width()):
            say(line)
    summaries = [summary for _, summary in found]
    damaged = sum(isinstance(version, Unreadable) for summary in summaries for version in summary.versions)
    say(_counts(summaries, damaged))
    sys.exit(worst((status, REMAINS if damaged else 0)))


def _rows(summary: FormSummary, tree: ChosenTree, *, several: bool) -> Iterator[tuple[str, ...]]:
    form, where = safe(str(summary.form)), safe(tree.name) if several else ""
    counts = tuple(str(number) if number else "" for number in (summary.documents, summary.deleted, summary.drafts))
    if not summary.versions:
        yield form, "", "", "", "", *counts, where, _unpublished(summary.form, tree)
    for version in summary.versions:
        if isinstance(version, Unreadable):
            yield form, version.name, "", "", "", *counts, where, safe(f"damaged: {version.cause}")
        else:
            yield form, *_version(version), *counts, where, "; ".join(_notes(version))
        counts = "", "", ""


def _unpublished(form: Form, tree: ChosenTree) -> str:
    """Return the note on a form without a version in a tree."""
    try:
        with owner.acting(tree.root):
            is_elsewhere = next(iter(tree.reader().catalog_of(form).storage.versions(form)), None) is not None
    except PersistenceError:  # the form has no provider, or that tree cannot be used
        is_elsewhere = False
    return "published in another tree" if is_elsewhere else "nothing published"


def _version(summary: VersionSummary) -> tuple[str, str, str, str]:
    published = summary.published
    titles = published.metadata.titles
    title = titles.get(_ENGLISH, next(iter(titles.values()), ""))
    return str(published.version), safe(title), f"{published.modified[:_SECOND]}Z", safe(published.modifier or "")


def _notes(summary: VersionSummary) -> Iterator[str]:
    if not summary.published.metadata.available:
        yield "not available"
    if summary.is_singleton:
        yield "singleton"
    yield f"permissions: {summary.permissions.value}"


def _counts(found: Iterable[FormSummary], damaged: int) -> str:
    published = [summary for summary in found if summary.versions]
    counts = (
        counted(len({summary.form for summary in published}), "form"),
        counted(sum(len(summary.versions) for summary in published), "version"),
        counted(sum(summary.documents for summary in found), "document"),
        f"{sum(summary.deleted for summary in found)} deleted",
        counted(sum(summary.drafts for summary in found), "draft"),
    )
    return ", ".join(counts) + (f"; {counted(damaged, 'version')} damaged" if damaged else "")
