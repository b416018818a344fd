"""``persistence search``: the hits of a search over HTTP, as a table or as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import click

from persistence.cli.options import (
    ChosenTree,
    choose_trees,
    form_and_version,
    form_names,
    managing,
    reader_of,
    tree_options,
    usage_errors,
    version_number,
)
from persistence.cli.terminal import json_option, print_table, progress, safe, say_json
from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, NotFoundError
from persistence.index.protocol import MaintainedIndex, RebuildAim
from persistence.maintenance import check
from persistence.maintenance.check import FormSearch
from persistence.model.addresses import Form
from persistence.model.search_query import ControlFilter, DraftFilter, Drafts, Field, Hit, Hits, Query, Sort, TextMatch
from persistence.model.versions import Searched
from persistence.providers.tree_provider import open_index
from persistence.storage.reader import StoreReader

_HEADINGS = ("DOCUMENT", "DRAFT", "VERSION", "CREATED", "BY", "MODIFIED", "BY", "STAGE")
_VERSION = 2
_SECOND = 19
_BETWEEN = ", "
_PATH = re.compile(r"(?:[^=\[]|\[[^\]]*\])+")
_FIELDS = {field.value: field for field in Field}


@click.command()
@click.argument("path", metavar="APP/FORM", shell_complete=form_names)
@click.argument("text", required=False, default="")
@click.option("--path", "paths", metavar="PATH[=TEXT]", multiple=True, help="A control that has TEXT; alone, a column.")
@click.option("--match", type=click.Choice([kind.value for kind in TextMatch]), default="substring", show_default=True)
@click.option("--sort", metavar="PATH|FIELD", help="A control, or one of: " + _BETWEEN.join(_FIELDS) + ".")
@click.option("--descending", is_flag=True, help="Sort from the highest to the lowest.")
@click.option("--version", metavar="N|all", help="Instead of the latest published version.")
@click.option("--drafts", type=click.Choice([kind.value for kind in Drafts]), default="include", show_default=True)
@click.option("--page-size", type=click.IntRange(1, 1_000_000), default=20, show_default=True)
@click.option("--page", type=click.IntRange(1, 1_000_000_000), default=1, show_default=True)
@json_option
@tree_options
def search(*, path: str, version: str | None, as_json: bool, **given: Any) -> None:
    """Find documents of a form, as a search over HTTP does.

    TEXT is looked for anywhere in the text of a document, --path in one indexed control. All conditions must hold.
    Permissions do not count: everything is found. Without --sort the last saved ones come first. The tree is that of
    the form's data, as persistence config route says.

    The service may run. A missing index is made.

    \b
    persistence search hr/leave
    persistence search hr/leave 'back pain' --drafts exclude
    persistence search hr/leave --path person/name=lea --path person/days
    persistence search hr/leave --path state=sent --match exact --sort created
    persistence search hr/leave --version all --page-size 1000 --json | jq .values
    """  # noqa: D301 - click's mark for lines that stay apart
    choice = choose_trees({name: given.pop(name) for name in ("file", "datasource", "data", "dialect")})
    drafts = DraftFilter(Drafts(given.pop("drafts")))
    query, columns = _query(**given)
    with usage_errors():
        (form, in_path), asked = form_and_version(path), _asked(version)
        if in_path is not None:
            raise BadRequestError(f"{safe(path)} is not APP/FORM; --version says which version")
    with _opened(choice.tree_of(form), form, asked) as (run, make_ready):
        by = query.sort.by
        run.require_controls(dict.fromkeys((*columns, *((by,) if isinstance(by, str) else ()))))
        make_ready()
        hits = run.run(query, drafts)
    if as_json:
        for hit in hits.page:
            say_json(_facts(hit))
    elif hits.page:
        rows = [(*_HEADINGS, *map(safe, columns)), *(_row(hit, columns) for hit in hits.page)]
        print_table(rows, right=(_VERSION,), flexible=len(rows[0]) - 1)
    click.echo(_counts(hits, query), err=True)


@contextmanager
def _opened(tree: ChosenTree, form: Form, version: int | Searched) -> Iterator[tuple[FormSearch, Callable[[], None]]]:
    dialect = DIALECTS[tree.settings.dialect]
    if tree.is_database:
        with managing(tree) as place:
            if form not in place.storage.forms(form.app):
                raise NotFoundError(f"{form} does not exist")
            with usage_errors():
                run = FormSearch(reader_of(tree, place), place.provider.index, dialect, form, version)
            yield run, lambda: None
        return
    with (
        check.writable_tree(tree.root) as view,
        open_index(tree.settings, tree.properties, tree.root) as index,
    ):
        with usage_errors():
            check.require_form(view, index, form)
            run = FormSearch(tree.reader(), index, dialect, form, version)
        yield run, partial(_make_ready, view, index, form)


def _make_ready(view: StoreReader, index: MaintainedIndex, form: Form) -> None:
    if not index.is_ready(form):
        job = check.plan(view, index, RebuildAim.READY, form)
        with progress("making the index", job.count) as bar:
            job.run(bar.step)


def _asked(version: str | None) -> int | Searched:
    if version is None:
        return Searched.LATEST
    if version == Searched.ALL.value:
        return Searched.ALL
    try:
        return version_number(version)
    except BadRequestError as error:
        raise BadRequestError(f"{error}, or all") from error


def _query(
    *, text: str, paths: Sequence[str], match: str, page_size: int, page: int, **order: Any
) -> tuple[Query, tuple[str, ...]]:
    conditions, columns = [], []
    for condition in paths:
        path, wanted = _path_and_text(condition)
        columns.append(path)
        if wanted:
            conditions.append(ControlFilter(path, TextMatch(match), wanted))
    by = order["sort"]
    sort = Sort() if by is None else Sort(_FIELDS.get(by, by), order["descending"])
    query = Query(text.strip(), tuple(conditions), sort=sort, offset=(page - 1) * page_size, size=page_size)
    return query, tuple(dict.fromkeys(columns))


def _path_and_text(condition: str) -> tuple[str, str]:
    found = _PATH.match(condition)
    path, rest = (found.group(), condition[found.end() :]) if found is not None else ("", condition)
    if not path or (rest and rest[0] != "="):
        raise click.UsageError(f"--path {safe(condition)} is not PATH or PATH=TEXT")
    return path.replace("[1]", ""), rest[1:].strip()


def _row(hit: Hit, columns: Sequence[str]) -> tuple[str, ...]:
    return (
        safe(hit.document),
        "draft" if hit.is_draft else "",
        str(hit.facts.version),
        f"{hit.facts.created[:_SECOND]}Z",
        safe(hit.facts.creator or ""),
        f"{hit.facts.modified[:_SECOND]}Z",
        safe(hit.facts.modifier or ""),
        safe(hit.facts.stage or ""),
        *(safe(_BETWEEN.join(hit.values.get(path, ()))) for path in columns),
    )


def _facts(hit: Hit) -> dict[str, object]:
    return {
        "document": hit.document,
        "draft": hit.is_draft,
        "version": hit.facts.version,
        "created": hit.facts.created,
        "creator": hit.facts.creator,
        "group": hit.facts.group,
        "modified": hit.facts.modified,
        "modifier": hit.facts.modifier,
        "stage": hit.facts.stage,
        "values": {path: list(texts) for path, texts in hit.values.items()},
    }


def _counts(hits: Hits, query: Query) -> str:
    if not hits.page:
        return f"{hits.total:,} found" + (", this page is empty" if hits.total else "")
    return f"{hits.total:,} found, {query.offset + 1:,} to {query.offset + len(hits.page):,} shown"
