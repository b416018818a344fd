"""The XML of the form metadata API: requests for a list of forms, and the list (spec search 4.2 and 4.3)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from xml.etree import ElementTree as ET

from persistence.errors import BadRequestError
from persistence.forms.messages import (
    LANGUAGE,
    Vocabulary,
    attribute,
    element,
    read_children,
    read_request,
    text,
    text_in,
)
from persistence.limits import MOST_FILTERS, MOST_WRITTEN_LIST
from persistence.model.instants import parse_time, shortest
from persistence.model.search import (
    DEFAULT_LANGUAGE,
    FormField,
    FormFilter,
    FormMatch,
    FormPage,
    FormQuery,
    FormSort,
    ListedVersion,
    Wanted,
)
from persistence.model.texts import count, is_descending, word
from persistence.model.versions import PublishedVersion

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

_STRING = (FormMatch.EXACT, FormMatch.SUBSTRING)
_ORDERED = (FormMatch.EXACT, FormMatch.GTE, FormMatch.GT, FormMatch.LTE, FormMatch.LT)
_MATCHES: Mapping[FormField, tuple[FormMatch, ...]] = {
    FormField.APPLICATION_NAME: _STRING,
    FormField.FORM_NAME: _STRING,
    FormField.FORM_VERSION: _ORDERED,
    FormField.CREATED: _ORDERED,
    FormField.LAST_MODIFIED: _ORDERED,
    FormField.LAST_MODIFIED_BY: _STRING,
    FormField.TITLE: _STRING,
    FormField.AVAILABLE: (FormMatch.EXACT,),
    FormField.OPERATIONS: (FormMatch.EXACT, FormMatch.TOKEN),
}
_TIME_FIELDS = (FormField.CREATED, FormField.LAST_MODIFIED)
_COMBINATORS: Mapping[FormField, tuple[str, ...]] = {
    **dict.fromkeys(_TIME_FIELDS, ("min", "max")),
    **dict.fromkeys((FormField.AVAILABLE, FormField.OPERATIONS), ("or", "and")),
}
_LOOKED_UP = (FormField.APPLICATION_NAME, FormField.FORM_NAME, FormField.FORM_VERSION)
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)

_KEPT_PARTS = ("application-name", "form-name", "form-version", "last-modified-time")


def read_form_query(pieces: Iterable[bytes], *, is_strict: bool = False) -> FormQuery:
    """Read a request; unknown markup is refused if ``is_strict``.

    The first exact filters of application, form and version are look-ups: of exactly that name, and of ``latest``.
    """
    root = read_request(pieces, (_FILTER, _SORT, _PAGINATION), _FORMS if is_strict else None)
    sort, page = root.find(_SORT), root.find(_PAGINATION)
    language = root.get(LANGUAGE, DEFAULT_LANGUAGE)
    looked_up, filters = _conditions(root.iterfind(_FILTER), language)
    return FormQuery(
        app=looked_up.get(FormField.APPLICATION_NAME),
        form=looked_up.get(FormField.FORM_NAME),
        latest_only=looked_up.get(FormField.FORM_VERSION) == _LATEST,
        all_forms=root.get("all-forms") == "true",
        ignore_admin=root.get("ignore-admin-permissions") == "true",
        filters=filters,
        sort=FormSort(language=language)
        if sort is None
        else FormSort(_form_field(sort), is_descending(_value(sort, "direction")), sort.get(LANGUAGE, language)),
        page=None
        if page is None
        else FormPage(
            count(_value(page, "page-number"), "page-number", 1), count(_value(page, "page-size"), "page-size", 10)
        ),
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
            allowed = ", ".join(each.value for each in _MATCHES[about])
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


class FormListWriter:
    """A writer of lists, which caches the part of a version that does not depend on the caller."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[PublishedVersion, bytes]] = {}
        self._kept = 0

    def write(self, total: int, forms: Iterable[tuple[PublishedVersion, str]]) -> bytes:
        """Write a page of the list; ``total`` counts all pages, and each form comes with the text of its operations."""
        known = self._known
        pieces = [b'<forms search-total="%d">' % total]
        for published, operations in forms:
            kept = known.get(id(published))
            # A value that is kept is alive, so that no other can have its id.
            written = kept[1] if kept is not None else self._written(published)
            pieces += (b'<form operations="', operations.encode(), b'">', written)
        pieces.append(b"</forms>")
        return b"".join(pieces)

    def _written(self, published: PublishedVersion) -> bytes:
        written = "".join(_children(published)).encode() + b"</form>"
        if self._kept + len(written) > MOST_WRITTEN_LIST:
            self._known.clear()
            self._kept = 0
        self._known[id(published)] = published, written
        self._kept += len(written)
        return written


def _children(published: PublishedVersion) -> Iterator[str]:
    metadata = published.metadata
    yield (
        f"<application-name>{text(published.form.app)}</application-name>"
        f"<form-name>{text(published.form.name)}</form-name>"
        f"<form-version>{published.version}</form-version>"
        f"<last-modified-time>{shortest(published.modified)}</last-modified-time>"
    )
    if published.modifier is not None:
        yield element("last-modified-by", content=text(published.modifier))
    yield f"<created>{shortest(published.created)}</created>"
    for language, title in metadata.titles.items():
        yield element("title", attribute("xml:lang", language) if language else "", text(title))
    yield f"<available>{'true' if metadata.available else 'false'}</available>"
    if metadata.permissions is not None:
        permissions = metadata.permissions
        if "<?" in permissions or "<!" in permissions:
            root = ET.fromstring(permissions)  # noqa: S314 - it was parsed when it was read
            permissions = ET.tostring(root, encoding="unicode")
        yield permissions


def read_form_list(pieces: Iterable[bytes]) -> list[ListedVersion]:
    """Read the versions in the list of another service, in its order."""
    versions: list[ListedVersion] = []

    def take(form: ET.Element) -> None:
        app, name, version, modified = (text_in(form.find(part)).strip() for part in _KEPT_PARTS)
        form.attrib.clear()  # the operations depend on the caller
        inside = [(each.tag, sorted(each.items()), each.text, each.tail) for each in form.iter()]
        checksum = zlib.crc32(repr(inside).encode(errors="replace"))
        versions.append(ListedVersion(app, name, version, modified, checksum))

    read_children(pieces, take)
    return versions
