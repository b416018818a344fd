"""Searches, distinct values and lists of forms: requests, and the XML of another service (spec search 1, 3 and 4)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from xml.etree import ElementTree as ET

from persistence.errors import BadRequestError
from persistence.forms.messages import LANGUAGE, Vocabulary, attribute, element, read_each, read_request, text, text_in
from persistence.limits import LONGEST_SEARCHED, MOST_FILTERS, MOST_SEARCHED, MOST_TOKENS
from persistence.model.addresses import Form
from persistence.model.permissions import FINDING, OPERATIONS, User
from persistence.model.queries import (
    DEFAULT_LANGUAGE,
    VALUE_TOKEN,
    Comparison,
    ControlFilter,
    DraftFilter,
    Drafts,
    Field,
    FieldFilter,
    FormField,
    FormFilter,
    FormMatch,
    FormQuery,
    FormSort,
    FoundDocuments,
    ListedVersion,
    Query,
    Scope,
    SearchRequest,
    SearchResult,
    SentQuery,
    Sort,
    TextMatch,
    Wanted,
)
from persistence.model.sidecar import PageRequest
from persistence.model.texts import Instant, count, first_from, from_datetime, is_descending, parse_time, word

_QUERY, _DRAFTS, _OPERATIONS, _PAGE_SIZE, _PAGE_NUMBER = "query", "drafts", "operations", "page-size", "page-number"
_SEARCHED = (_QUERY, _DRAFTS, _OPERATIONS, _PAGE_SIZE, _PAGE_NUMBER)
_OF_QUERY = frozenset(
    {
        *("path", "metadata", "match", "control", "sort", "or", "tokens"),
        *("name", "type", "summary-show", "statically-required", "html-label"),  # a runtime says them (spec search 0.2)
    }
)
_VERSION = re.compile(r"[0-9]{1,9}", re.ASCII)
_SEARCH = Vocabulary(
    "search",
    frozenset({"return-all-indexed-fields"}),
    {
        _QUERY: _OF_QUERY,
        _DRAFTS: frozenset({"for-document-id", "for-never-saved-document"}),
        _OPERATIONS: frozenset({"any-of"}),
        _PAGE_SIZE: frozenset(),
        _PAGE_NUMBER: frozenset(),
        "lang": frozenset(),  # without a meaning since long (spec search 1.1)
    },
)
_DISTINCT = Vocabulary("request for distinct values", frozenset(), {_QUERY: _OF_QUERY})

_MOST_ROWS = 1 << 53  # Larger than any number of documents: larger offsets and sizes mean the same

_TIMES = (Field.CREATED, Field.LAST_MODIFIED)
_TEXTS = (Field.CREATED_BY, Field.LAST_MODIFIED_BY, Field.WORKFLOW_STAGE)
_COMPARISONS: Mapping[Field, tuple[Comparison, ...]] = {
    **dict.fromkeys(_TIMES, (Comparison.GTE, Comparison.LT)),
    **dict.fromkeys((*_TEXTS, Field.LEASED_BY), (Comparison.EXACT,)),
}
_MATCH_OF_CONTROL = {**dict.fromkeys(("input", "textarea", "output"), TextMatch.SUBSTRING), "select": TextMatch.TOKEN}


# Requests, read.


def read_search_request(sent: SentQuery, user: User, *, is_strict: bool = False) -> SearchRequest:
    """Read a search of a user; unknown markup is refused if ``is_strict``, and anonymous users find no drafts (1.5)."""
    document = read_request(sent, _SEARCHED, _SEARCH, is_strict=is_strict)
    queries = document.findall(_QUERY)
    of_controls = [(_path(each), each) for each in queries if "path" in each.attrib]
    of_fields = [(_field(each), each) for each in queries if "metadata" in each.attrib]
    size, page = (
        default if (found := document.find(name)) is None else count(text_in(found), name, default)
        for name, default in ((_PAGE_SIZE, 10), (_PAGE_NUMBER, 1))
    )
    free = (_bounded(text_in(each).strip()) for each in queries if not {"path", "metadata"} & each.attrib.keys())
    return SearchRequest(
        query=Query(
            text=next(free, ""),
            controls=_control_filters(of_controls),
            fields=tuple(_field_filter(field, each) for field, each in of_fields if text_in(each).strip()),
            sort=_sort([*of_controls, *of_fields]),
            offset=min((page - 1) * size, _MOST_ROWS),
            size=min(size, _MOST_ROWS),
        ),
        paths=tuple(path for path, _ in of_controls),
        drafts=_drafts(document.find(_DRAFTS)) if user.name is not None else DraftFilter(Drafts.EXCLUDE),
        any_of=FINDING if (found := document.find(_OPERATIONS)) is None else _any_of(found),
        all_indexed=document.get("return-all-indexed-fields") == "true",
    )


def read_distinct_request(sent: SentQuery, *, is_strict: bool = False) -> tuple[Field | str, ...]:
    """Read the control paths and fields whose values are requested, in the order of the answer (spec search 3)."""
    queries = read_request(sent, (_QUERY,), _DISTINCT, is_strict=is_strict).findall(_QUERY)
    fields = tuple(_field(each) for each in queries if "metadata" in each.attrib)
    for each in fields:
        if each not in _TEXTS:
            raise BadRequestError(f"distinct values of {each.value} are not available, only of {_names(_TEXTS)}")
    return (*(_path(each) for each in queries if "path" in each.attrib), *fields)


def _path(query: ET.Element) -> str:
    return query.attrib["path"].replace("[1]", "")


def _control_filters(queries: Iterable[tuple[str, ET.Element]]) -> tuple[ControlFilter, ...]:
    filters = []
    tokens = characters = 0
    for path, query in queries:
        term = text_in(query).strip()
        if not term:
            continue
        given, control = query.get("match"), query.get("control", "")
        if given is not None:
            match = word(TextMatch, given, "match")
        else:
            match = TextMatch.TOKEN if control.endswith("-select") else _MATCH_OF_CONTROL.get(control, TextMatch.EXACT)
        if match is not TextMatch.EXACT:
            characters += len(_bounded(term) if match is TextMatch.SUBSTRING else term)
            if characters > MOST_SEARCHED:
                raise BadRequestError(f"queries of more than {MOST_SEARCHED} characters together are not accepted")
        if match is TextMatch.TOKEN:
            tokens += len(term.split())
            if tokens > MOST_TOKENS:
                raise BadRequestError(f"more than {MOST_TOKENS} tokens in one search are not accepted")
        # Another service sends them, which has encrypted the values that are here (its ``ControlFilter``).
        sent = filter(VALUE_TOKEN.fullmatch, query.get("tokens", "").split())
        filters.append(ControlFilter(path, match, term, query.get("or", ""), tuple(sent)))
    return tuple(filters)


def _bounded(term: str) -> str:
    if len(term) > LONGEST_SEARCHED:
        raise BadRequestError(f"a text of more than {LONGEST_SEARCHED} characters is not searched inside others")
    return term


def _field(query: ET.Element) -> Field:
    return word(Field, query.attrib["metadata"], "metadata")


def _field_filter(field: Field, query: ET.Element) -> FieldFilter:
    given = query.get("match")
    if given is None:
        raise BadRequestError(f"{field.value} needs a match where it has text: {_names(_COMPARISONS[field])}")
    comparison = word(Comparison, given, f"match of {field.value}")
    if comparison not in _COMPARISONS[field]:
        raise BadRequestError(f"{field.value} has no match {comparison.value!r}; it has {_names(_COMPARISONS[field])}")
    value = text_in(query).strip()
    if field not in _TIMES:
        return FieldFilter(field, comparison, value, query.get("or", ""))
    try:
        return FieldFilter(field, comparison, first_from(parse_time(value, field.value)), query.get("or", ""))
    except OverflowError as error:
        raise BadRequestError(f"{field.value} is after the last day of the calendar: {value!r}") from error


def _sort(queries: Iterable[tuple[Field | str, ET.Element]]) -> Sort:
    sorts = [Sort(by, is_descending(query.attrib["sort"])) for by, query in queries if "sort" in query.attrib]
    if len(sorts) > 1:
        raise BadRequestError(f"one query may have a sort, not {len(sorts)}")
    if sorts and sorts[0].by is Field.LEASED_BY:
        raise BadRequestError("documents cannot be sorted by leased-by")
    return sorts[0] if sorts else Sort()


def _drafts(found: ET.Element | None) -> DraftFilter:
    if found is None:
        return DraftFilter()
    kind = word(Drafts, text_in(found), "drafts")
    if kind is not Drafts.ONLY:
        return DraftFilter(kind)
    document = found.get("for-document-id")
    return DraftFilter(kind, document, document is None and "for-never-saved-document" in found.attrib)


def _any_of(found: ET.Element) -> tuple[str, ...]:
    words = found.get("any-of", "").split()
    for each in words:
        if each not in OPERATIONS:
            raise BadRequestError(f"{each!r} is not a valid operation: it must be one of {', '.join(OPERATIONS)}")
    return tuple(name for name in OPERATIONS if name in words)


def _names(words: Iterable[Field | Comparison | FormMatch]) -> str:
    return ", ".join(each.value for each in words)


# Requests, written for another service.


def write_search_request(scope: Scope, query: Query, *, all_indexed: bool = False) -> bytes:
    """Write a search with a detail for each of the query's ``paths`` and its sort, or with ``all_indexed`` of all."""
    queries = [element(_QUERY, content=text(query.text))] if query.text else []
    for of_field in query.fields:
        about = attribute("metadata", of_field.field.value) + attribute("match", of_field.comparison.value)
        about += attribute("or", of_field.alternative) if of_field.alternative else ""
        queries.append(element(_QUERY, about, text(of_field.value)))
    sort = attribute("sort", "desc" if query.sort.is_descending else "asc")
    sorted_by = (query.sort.by,) if isinstance(query.sort.by, str) else ()
    if isinstance(query.sort.by, Field):
        queries.append(element(_QUERY, _about(query.sort.by) + sort))
    paths = dict.fromkeys((*(query.paths or ()), *sorted_by))
    queries += [element(_QUERY, _about(path) + (sort if path == query.sort.by else "")) for path in paths]
    for control in query.controls:
        about = _about(control.path) + attribute("match", control.match.value)
        about += attribute("or", control.alternative) if control.alternative else ""
        about += attribute("tokens", " ".join(control.tokens)) if control.tokens else ""
        queries.append(element(_QUERY, about, text(control.text)))
    drafts, about = scope.drafts, ""
    if drafts.kind is Drafts.ONLY and drafts.for_document is not None:
        about = attribute("for-document-id", drafts.for_document)
    elif drafts.kind is Drafts.ONLY and drafts.never_saved:
        about = attribute("for-never-saved-document", "true")
    others = (
        element(_DRAFTS, about, drafts.kind.value),
        element(_OPERATIONS, attribute("any-of", " ".join(scope.any_of))),
        element(_PAGE_SIZE, content=str(query.size)),
        element(_PAGE_NUMBER, content=str(query.offset // query.size + 1)),
    )
    root = attribute("return-all-indexed-fields", "true") if all_indexed else ""
    return element("search", root, "".join((*queries, *others))).encode()


def write_distinct_request(*by: Field | str) -> bytes:
    return element("distinct-values", content="".join(element(_QUERY, _about(each)) for each in by)).encode()


def _about(by: Field | str) -> str:
    return attribute("metadata", by.value) if isinstance(by, Field) else attribute("path", by)


# Answers of another service, read.


def read_search_answer(pieces: Iterable[bytes]) -> FoundDocuments:
    """Read the answer of a search; of several details of one path the first counts."""

    def read(document: ET.Element) -> SearchResult:
        values: dict[str, str] = {}
        for detail in document.iterfind("*/*"):
            values.setdefault(detail.get("path", ""), text_in(detail))
        return SearchResult(
            document=document.get("name", ""),
            is_draft=document.get("draft") == "true",
            created=Instant(document.get("created", "")),
            modified=Instant(document.get("last-modified", "")),
            creator=document.get("created-by"),
            group=document.get("created-by-groupname"),
            modifier=document.get("last-modified-by"),
            stage=document.get("workflow-stage"),
            operations=frozenset(document.get("operations", "").split()),
            values=values,
            form=Form(document.get("app", ""), document.get("form", "")) if "form" in document.attrib else None,
        )

    answer, documents = read_each(pieces, read)
    return FoundDocuments(answer.get("search-total", ""), documents)


def read_distinct_answer(pieces: Iterable[bytes]) -> list[str]:
    _, queries = read_each(pieces, lambda query: list(map(text_in, query)))
    return list(chain.from_iterable(queries))


_LATEST = "latest"
_FILTER, _SORT, _PAGINATION = "filter", "sort", "pagination"
_ABOUT = frozenset({"metadata", "combinator", "url"})
_FORMS = Vocabulary(
    "query for forms",
    frozenset({"all-forms", "ignore-admin-permissions"}),
    {
        _FILTER: _ABOUT | {"match"},
        _SORT: _ABOUT | {"direction"},
        _PAGINATION: frozenset({"page-number", "page-size"}),
        "remote-server": frozenset({"url", "username", "password"}),  # accepted and ignored (spec search 4.2)
    },
)

_TEXT_FIELDS = (FormField.APPLICATION_NAME, FormField.FORM_NAME, FormField.LAST_MODIFIED_BY, FormField.TITLE)
_TIME_FIELDS = (FormField.CREATED, FormField.LAST_MODIFIED)
_ORDERED = (FormMatch.EXACT, FormMatch.GTE, FormMatch.GT, FormMatch.LTE, FormMatch.LT)
_MATCHES: Mapping[FormField, tuple[FormMatch, ...]] = {
    **dict.fromkeys(_TEXT_FIELDS, (FormMatch.EXACT, FormMatch.SUBSTRING)),
    **dict.fromkeys((FormField.FORM_VERSION, *_TIME_FIELDS), _ORDERED),
    FormField.AVAILABLE: (FormMatch.EXACT,),
    FormField.OPERATIONS: (FormMatch.EXACT, FormMatch.TOKEN),
}
_COMBINATORS: Mapping[FormField, tuple[str, ...]] = {
    **dict.fromkeys(_TIME_FIELDS, ("min", "max")),
    **dict.fromkeys((FormField.AVAILABLE, FormField.OPERATIONS), ("or", "and")),
}
_LOOKED_UP = (FormField.APPLICATION_NAME, FormField.FORM_NAME, FormField.FORM_VERSION)
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def read_form_query(sent: SentQuery, *, is_strict: bool = False) -> FormQuery:
    """Read a request; unknown markup is refused if ``is_strict``."""
    # The first exact filters of application, form and version are look-ups: of exactly that name, and of ``latest``.
    root = read_request(sent, (_FILTER, _SORT, _PAGINATION), _FORMS, is_strict=is_strict)
    sort, page = root.find(_SORT), root.find(_PAGINATION)
    language = root.get(LANGUAGE, DEFAULT_LANGUAGE)
    looked_up, filters = _conditions(root.iterfind(_FILTER), language)
    order, part = FormSort(language=language), None
    if sort is not None:
        order = FormSort(_form_field(sort), is_descending(_value(sort, "direction")), sort.get(LANGUAGE, language))
    if page is not None:
        number = count(_value(page, "page-number"), "page-number", 1)
        part = PageRequest(number, count(_value(page, "page-size"), "page-size", 10))
    return FormQuery(
        app=looked_up.get(FormField.APPLICATION_NAME),
        form=looked_up.get(FormField.FORM_NAME),
        latest_only=looked_up.get(FormField.FORM_VERSION) == _LATEST,
        all_forms=root.get("all-forms") == "true",
        ignore_admin=root.get("ignore-admin-permissions") == "true",
        filters=filters,
        sort=order,
        page=part,
    )


def _conditions(conditions: Iterable[ET.Element], language: str) -> tuple[dict[FormField, str], tuple[FormFilter, ...]]:
    looked_up: dict[FormField, str] = {}
    filters: list[FormFilter] = []
    for condition in conditions:
        about, value = _form_field(condition), text_in(condition).strip()
        match = word(FormMatch, _value(condition, "match").lower(), "match")
        if match is FormMatch.EXACT and about in _LOOKED_UP and about not in looked_up:
            looked_up[about] = value
            if about is not FormField.FORM_VERSION or value == _LATEST:
                continue
        if match not in _MATCHES[about]:
            allowed = _names(_MATCHES[about])
            raise BadRequestError(f"a filter of {about.value} has no match {match.value!r}; it has {allowed}")
        filters.append(FormFilter(about, match, _wanted(about, value), condition.get(LANGUAGE, language)))
        if len(filters) > MOST_FILTERS:
            raise BadRequestError(f"more than {MOST_FILTERS} filters in one request are not accepted")
    return looked_up, tuple(filters)


def _wanted(about: FormField, value: str) -> Wanted:
    if about is FormField.FORM_VERSION:
        if not _INTEGER.fullmatch(value):
            raise BadRequestError(f"form-version must be an integer, or {_LATEST} in its first exact filter: {value!r}")
        return int(value)
    if about in _TIME_FIELDS:
        return parse_time(value, about.value)
    if about is FormField.AVAILABLE:
        if value not in ("true", "false"):
            raise BadRequestError(f"available must be 'true' or 'false', not {value!r}")
        return value == "true"
    return tuple(value.split()) if about is FormField.OPERATIONS else value.casefold()


def _form_field(condition: ET.Element) -> FormField:
    about = word(FormField, _value(condition, "metadata").lower(), "metadata")
    combinator = _value(condition, "combinator")
    if _value(condition, "url"):
        raise BadRequestError("a filter or sort cannot have a url: this server has no remote ones")  # spec search 4.2
    if combinator and combinator not in _COMBINATORS.get(about, ()):
        raise BadRequestError(f"{about.value} has no combinator {combinator!r}")
    return about


def _value(element: ET.Element, name: str) -> str:
    return element.get(name, "").strip()


def read_form_list(pieces: Iterable[bytes]) -> list[ListedVersion]:
    """Read the versions in the list of another service, in its order, without those that are not valid."""

    def read(form: ET.Element) -> ListedVersion | None:
        parts = ("application-name", "form-name", "form-version", "last-modified-time")
        app, name, version, modified = (text_in(form.find(part)).strip() for part in parts)
        form.attrib.clear()  # the operations depend on the caller
        inside = [(each.tag, sorted(each.items()), each.text, each.tail) for each in form.iter()]
        checksum = zlib.crc32(repr(inside).encode(errors="replace"))
        if app and name and _VERSION.fullmatch(version) and int(version):
            with suppress(BadRequestError):
                instant = from_datetime(parse_time(modified, parts[-1]))
                return ListedVersion(Form(app, name), int(version), instant, checksum)
        return None

    return [each for each in read_each(pieces, read)[1] if each is not None]
