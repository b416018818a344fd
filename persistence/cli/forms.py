"""``persistence forms``: the published forms, with the documents of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from persistence.cli.completion import form_names
from persistence.cli.managing import reading
from persistence.cli.options import ChosenTree, choose_trees, on_each, tree_options, usage_errors
from persistence.cli.report_facts import form_facts
from persistence.cli.statuses import REMAINS, worst
from persistence.cli.terminal import counted, json_option, print_table, safe, say, say_json
from persistence.errors import BadRequestError, NotFoundError, PersistenceError
from persistence.maintenance.counts import DocumentCounts
from persistence.maintenance.reports import FormSummary, Unreadable, VersionSummary, overview

_HEADINGS = (
    "FORM",
    "VERSION",
    "TITLE",
    "MODIFIED",
    "BY",
    "DOCUMENTS",
    "DELETED",
    "DRAFTS",
    "BYTES",
    "SAVED",
    "TREE",
    "NOTES",
)
_NUMBERS = (1, 5, 6, 7, 8)
_TITLE = 2
_ORDERS: dict[str, Callable[[DocumentCounts], Any]] = {
    "documents": lambda each: each.documents,
    "deleted": lambda each: each.deleted,
    "drafts": lambda each: each.drafts,
    "bytes": lambda each: each.size,
    "saved": lambda each: each.saved or "",
}
_ENGLISH = "en"
_SECOND = 19


@click.command(short_help="List the published versions of all forms.")
@click.argument("path", metavar="[APP[/FORM]]", required=False, shell_complete=form_names)
@click.option("--sort", type=click.Choice(tuple(_ORDERS)), help="Sort by a number or time, the highest first.")
@json_option
@tree_options
def forms(*, path: str | None, sort: str | None, as_json: bool, **options: str | None) -> None:
    """List the published versions of all forms in all trees, or of those of APP, or of APP/FORM.

    Documents, deleted documents, drafts and their bytes are counted once for each form. Nothing is changed, and the
    service may run.
    """
    with usage_errors():
        app, name = _app_and_name(path)
    trees = choose_trees(options).trees
    found = list[tuple[ChosenTree, FormSummary]]()
    unknown = list[NotFoundError]()

    def read(tree: ChosenTree, _prefix: str) -> int:
        try:
            with usage_errors(), reading(tree) as reader:
                found.extend((tree, summary) for summary in overview(reader, app, name))
        except NotFoundError as error:  # it may be in another tree
            unknown.append(error)
        return 0

    status = on_each(trees, read)
    if unknown and len(unknown) == len(trees):
        raise unknown[0]
    found.sort(key=lambda each: (each[1].form.app, each[1].form.name))  # a stable sort keeps the order of the trees
    if sort is not None:
        found.sort(key=lambda each: _ORDERS[sort](each[1].counts), reverse=True)
    summaries = [summary for _, summary in found]
    damaged = sum(isinstance(version, Unreadable) for summary in summaries for version in summary.versions)
    if as_json:
        for tree, summary in found:
            say_json(form_facts(summary, tree.name, published_elsewhere=_is_elsewhere(summary, tree)))
    else:
        rows = [row for tree, summary in found for row in _form_rows(summary, tree, with_tree=len(trees) > 1)]
        if rows:
            print_table((_HEADINGS, *rows), right=_NUMBERS, flexible=_TITLE, footer=_totals(summaries))
        say(_counts(summaries, damaged))
    sys.exit(worst((status, REMAINS if damaged else 0)))


def _app_and_name(path: str | None) -> tuple[str | None, str | None]:
    match [] if path is None else path.split("/"):
        case []:
            return None, None
        case [app]:
            return app, None
        case [app, name] if name:
            return app, name
        case _:
            raise BadRequestError(f"{safe(path or '')} is not APP or APP/FORM")


def _form_rows(summary: FormSummary, tree: ChosenTree, *, with_tree: bool) -> Iterator[tuple[str, ...]]:
    form, where = safe(str(summary.form)), safe(tree.name) if with_tree else ""
    found = summary.counts
    numbers = (found.documents, found.deleted, found.drafts, found.size)
    saved = "" if found.saved is None else f"{found.saved[:_SECOND]}Z"
    counts = (*(str(number) if number else "" for number in numbers), saved)
    if not summary.versions:
        note = "published in another tree" if _is_elsewhere(summary, tree) else "nothing published"
        yield form, "", "", "", "", *counts, where, note
    for version in summary.versions:
        if isinstance(version, Unreadable):
            yield form, version.name, "", "", "", *counts, where, safe(f"damaged: {version.cause}")
        else:
            yield form, *_version_cells(version), *counts, where, "; ".join(_notes(version))
        counts = ("",) * len(counts)


def _is_elsewhere(summary: FormSummary, tree: ChosenTree) -> bool:
    if summary.versions:
        return False
    try:
        with reading(tree) as reader:
            storage = reader.catalog_of(summary.form).storage
            return next(iter(storage.versions(summary.form)), None) is not None
    except PersistenceError:  # the form has no provider, or that tree cannot be used
        return False


def _version_cells(summary: VersionSummary) -> tuple[str, str, str, str]:
    published = summary.published
    titles = published.metadata.titles
    title = titles.get(_ENGLISH, next(iter(titles.values()), ""))
    return str(published.version), safe(title), f"{published.modified[:_SECOND]}Z", safe(published.modifier or "")


def _notes(summary: VersionSummary) -> Iterator[str]:
    if not summary.published.metadata.available:
        yield "not available"
    if summary.is_singleton:
        yield "singleton"
    yield f"permissions: {summary.permissions_source.value}"


def _totals(found: Iterable[FormSummary]) -> tuple[str, ...]:
    total = DocumentCounts()
    for summary in found:
        total.add(summary.counts)
    numbers = map(str, (total.documents, total.deleted, total.drafts, total.size))
    return ("TOTAL", "", "", "", "", *numbers, "" if total.saved is None else f"{total.saved[:_SECOND]}Z", "", "")


def _counts(found: Iterable[FormSummary], damaged: int) -> str:
    published = [summary for summary in found if summary.versions]
    counts = (
        counted(len({summary.form for summary in published}), "form"),
        counted(sum(len(summary.versions) for summary in published), "version"),
        counted(sum(summary.counts.documents for summary in found), "document"),
        f"{sum(summary.counts.deleted for summary in found)} deleted",
        counted(sum(summary.counts.drafts for summary in found), "draft"),
    )
    return ", ".join(counts) + (f"; {counted(damaged, 'version')} damaged" if damaged else "")
