"""The documents of a form, or of one version, as a table: searched, filtered, sorted, and with columns to choose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from urllib.parse import quote

from flask import Response, render_template, request
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response as AnyResponse

from persistence.errors import BadRequestError, BusyError
from persistence.http.logs import REQUEST_ID, Unbroken
from persistence.limits import (
    COLUMNS_SHOWN,
    CONTROLS_SHOWN,
    LONGEST_SEARCHED,
    MOST_OPTIONS,
    MOST_SEARCHED,
    ROWS_SHOWN,
    STORED_LISTED,
)
from persistence.maintenance.reports import last_days
from persistence.model.queries import Comparison, ControlFilter, Drafts, Field, FieldFilter, Hits, Query, Sort
from persistence.pages.languages import page_language, translated
from persistence.pages.served_forms import ShownVersion
from persistence.pages.service_pages import bar_plot
from persistence.pages.site import midnight
from persistence.services.document_tables import DocumentTable

_CONTROL = "c."  # The beginning of a parameter that is about the control whose path follows

_FACTS = {
    "saved": "Saved",
    "by": "Saved by",
    "stage": "Stage",
    "owner": "Owner",
    "created": "Created",
    "version": "Version",
    "id": "Document",
}
_EXACT = {"owner": Field.CREATED_BY, "by": Field.LAST_MODIFIED_BY, "stage": Field.WORKFLOW_STAGE}
_PARAMETERS = ("q", "from", "to", "drafts", "sort", "order", "page", "lang")
_SORTED = {"saved": Field.LAST_MODIFIED, "created": Field.CREATED, **_EXACT}
"""The facts by which documents are sorted, by their names in links."""

_MOST_PAGES = 1_000_000_000
_LONGEST_NUMBER = 10


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The parameters that are known, each with a value, and what they mean; ``columns`` are the chosen ones."""

    parameters: Mapping[str, str]
    columns: tuple[str, ...]
    query: Query
    drafts: Drafts
    page: int
    sort: str

    @property
    def is_descending(self) -> bool:
        return self.query.sort.is_descending

    @property
    def has_filters(self) -> bool:
        """Tell whether anything but the search box narrows the table down."""
        return bool(self.parameters.keys() - {"q", "sort", "order", "page", "lang"})

    @property
    def is_plain(self) -> bool:
        """Tell whether it lists all documents, the last saved first, without a search."""
        return not self.parameters.keys() - {"page", "lang"}

    def linked(self, **changed: object) -> dict[str, object]:
        """Return the parameters of a link to the same table with others; a page is left out, unless it is given."""
        given: dict[str, object] = {name: value for name, value in self.parameters.items() if name != "page"}
        given |= {name: str(value) for name, value in changed.items() if value}
        return given | ({"col": list(self.columns)} if self.columns else {})


def table_query(given: MultiDict[str, str], table: DocumentTable) -> TableQuery:
    by_path = {column.path: column for column in table.columns}
    names = (*_PARAMETERS, *_EXACT, *(_CONTROL + path for path in by_path))
    known = {name: value for name in names if (value := given.get(name, "").strip())}
    if any(len(value) > LONGEST_SEARCHED for value in known.values()) or sum(map(len, known.values())) > MOST_SEARCHED:
        raise BadRequestError(f"a text that is searched has {LONGEST_SEARCHED} characters at most")
    page = page_number(known.get("page", "1"))
    sort = known.get("sort", "saved")
    if sort not in _SORTED and sort not in by_path:
        raise BadRequestError(f"documents are sorted by {', '.join(_SORTED)} or an indexed control, not {sort[:60]!r}")
    is_descending = known.get("order", "desc" if sort in {"saved", "created"} else "asc") == "desc"
    filters = tuple(
        ControlFilter(path, column.match, known[f"{_CONTROL}{path}"])
        for path, column in by_path.items()
        if f"{_CONTROL}{path}" in known
    )
    by = _SORTED.get(sort, sort)
    columns = tuple(dict.fromkeys(each for each in given.getlist("col") if each in _FACTS or each in by_path))
    query = Query(
        text=known.get("q", ""),
        controls=filters,
        fields=_fields(known),
        sort=Sort(by, is_descending),
        offset=(page - 1) * ROWS_SHOWN,
        size=ROWS_SHOWN,
    )
    drafts = known.get("drafts", Drafts.EXCLUDE.value)
    if drafts not in {each.value for each in Drafts}:
        raise BadRequestError(f"drafts must be exclude, include or only, not {drafts[:60]!r}")
    return TableQuery(known, columns, query, Drafts(drafts), page, sort)


def _fields(known: Mapping[str, str]) -> tuple[FieldFilter, ...]:
    found = [FieldFilter(field, Comparison.EXACT, known[name]) for name, field in _EXACT.items() if name in known]
    if "from" in known:
        found.append(FieldFilter(Field.LAST_MODIFIED, Comparison.GTE, midnight(known["from"])))
    if "to" in known:
        found.append(FieldFilter(Field.LAST_MODIFIED, Comparison.LT, midnight(known["to"], 1)))
    return tuple(found)


def page_number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else 0
    if not 1 <= number <= _MOST_PAGES:
        raise BadRequestError(f"the page must be a number from 1, not {text[:60]!r}")
    return number


def _filters(shown: ShownVersion, table: DocumentTable) -> Iterator[tuple[str, str, str, Mapping[str, str]]]:
    """Yield the name, label and hint of each filter, and labels by value: none where the value is typed."""
    for column in table.columns[:COLUMNS_SHOWN]:
        options = column.choices if column.has_options else {}
        yield f"{_CONTROL}{column.path}", column.label, "contains", options
    counts = shown.counts
    for name, found in (
        ("stage", counts.stages if counts else ()),
        ("owner", counts.owners if counts else ()),
        ("by", counts.modifiers if counts else ()),
    ):
        options = {each: each for each in sorted(found)} if 0 < len(found) <= MOST_OPTIONS else {}
        yield name, translated(_FACTS[name]), "exactly", options


def _chosen(shown: ShownVersion, table: DocumentTable, asked: TableQuery) -> tuple[str, ...]:
    """Return the names of the columns that are shown: those chosen, else the first controls and the usual facts."""
    if asked.columns:
        return asked.columns[:COLUMNS_SHOWN]
    paths = tuple(column.path for column in table.columns[:CONTROLS_SHOWN])
    has_versions = shown.version is None and len(shown.numbers) > 1
    return (*paths, "saved", "by", "stage", *(("version",) if has_versions else ()), "id")


def _language() -> str:
    return request.args.get("lang") or page_language()


def table_of(shown: ShownVersion) -> DocumentTable:
    if shown.is_designer:
        return DocumentTable.of_designer(shown.route)
    return DocumentTable.of(shown.route, shown.version, shown.numbers or (1,), _language())


def documents(shown: ShownVersion) -> str:
    table = table_of(shown)
    asked = table_query(request.args, table)
    columns = _chosen(shown, table, asked)
    hits, problem = _found(table, asked, columns)
    plot, days = "", last_days()
    if (counts := shown.counts) is not None:
        title = translated("New documents a day, last {count} days", count=len(days))
        labels = [days[0], days[len(days) // 2], days[-1]]
        plot = bar_plot(title, [counts.created[day] for day in days], labels)
    controls = {column.path: column for column in table.columns}
    return render_template(
        "version.html",
        shown=shown,
        columns=columns,
        controls=controls,
        labels={each: translated(_FACTS[each]) for each in _FACTS} | {each: controls[each].label for each in controls},
        sorts=_SORTED.keys() | controls.keys(),
        filters=list(_filters(shown, table)),
        asked=asked,
        hits=hits,
        problem=problem,
        most=ROWS_SHOWN,
        pages=max(1, -(-hits.total // ROWS_SHOWN)),
        plot=plot,
    )


def _found(table: DocumentTable, asked: TableQuery, columns: Sequence[str]) -> tuple[Hits, str]:
    if table.route.data.storage.is_remote:
        name = table.route.properties.route.data.name
        return Hits(), translated("The service {name} has the documents: look at its pages.", name=name)
    paths = {column.path for column in table.columns}
    read = tuple(each for each in dict.fromkeys((*columns, asked.sort)) if each in paths)
    query = replace(asked.query, paths=read, needs_total=False)
    try:
        return table.find(query, asked.drafts), ""
    except BusyError as error:
        problem = translated("The documents cannot be searched now: {cause}.", cause=translated(str(error)))
        if not asked.is_plain:
            return Hits(), f"{problem} {translated('Load the page again in a moment.')}"
        hits = table.stored(asked.query.offset, asked.query.size)
        again = translated("Load the page again in a moment to see values of controls, too.")
        part = "The documents are listed of the first {count} that are stored."
        listed = translated(
            part if hits.has_more else "The documents are listed as they are stored.", count=STORED_LISTED
        )
        return replace(hits, has_more=False), f"{problem} {again} {listed}"


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")  # in the name of a file that is downloaded, for old browsers
_NOT_IN_NAMES = re.compile(r'[\\/:*?"<>|]')
_LONGEST_SUFFIX = 20  # characters
_LONGEST_FILE_NAME = 200  # bytes: a file system takes 255, some browsers less; proxies refuse long headers


def file_name(name: str) -> str:
    """Return a name that any system can give a file, without characters that hide what it is, shortened in its stem."""
    plain = "".join(each if each.isprintable() else "_" for each in _NOT_IN_NAMES.sub("_", name))
    stem, dot, suffix = plain.rpartition(".")
    end = f"{dot}{suffix}" if stem and len(suffix) <= _LONGEST_SUFFIX else ""
    most = _LONGEST_FILE_NAME - len(end.encode())
    return plain.removesuffix(end).encode()[:most].decode(errors="ignore") + end


def disposition(name: str, *, is_shown: bool = False) -> str:
    """Return the ``Content-Disposition`` of a download under a name, of any characters (RFC 6266)."""
    name = file_name(name)
    kind, plain = "inline" if is_shown else "attachment", _UNSAFE.sub("_", name)
    return f'{kind}; filename="{plain}"' + (f"; filename*=UTF-8''{quote(name, safe='')}" if plain != name else "")


def csv(shown: ShownVersion) -> AnyResponse:
    table = table_of(shown)
    asked = table_query(request.args, table)
    return _file(shown, "csv", "text/csv; charset=utf-8", table.csv(asked.query, asked.drafts))


def xlsx(shown: ShownVersion) -> AnyResponse:
    table = table_of(shown)
    asked = table_query(request.args, table)
    pieces = table.xlsx(asked.query, asked.drafts, _language())
    return _file(shown, "xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", pieces)


def _file(shown: ShownVersion, suffix: str, content_type: str, pieces: Iterator[bytes]) -> AnyResponse:
    version = "" if shown.version is None else f"-{shown.version}"
    headers = {
        "Content-Disposition": disposition(f"{shown.form.app}-{shown.form.name}{version}.{suffix}"),
        "X-Accel-Buffering": "no",
    }
    begun = list(islice(pieces, 2))  # an error at the beginning is still an answer
    body = Unbroken(chain(begun, pieces), request.environ.get(REQUEST_ID))
    return Response(body, content_type=content_type, headers=headers)
