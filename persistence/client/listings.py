"""Searches and histories: lists whose pages are requested while they are iterated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from persistence.client.caller import XML, ServiceCaller
from persistence.client.connection import ServiceAnswer, ServiceCall, proper
from persistence.client.content import OutgoingContent
from persistence.client.refusals import whole_number
from persistence.client.values import HistoryEntry, SearchResult
from persistence.errors import BadRequestError
from persistence.forms.history_xml import read_history
from persistence.forms.search_xml import read_search_answer, write_search_request
from persistence.limits import LARGEST_HISTORY_PAGE
from persistence.model.addresses import Form
from persistence.model.instants import Instant
from persistence.model.search import FoundDocument, FoundDocuments, Query, Scope


class SearchResults:
    """The documents that a search finds. Pages are requested when they are needed, and only once.

    This is not a snapshot: changes meanwhile may move a document to a page that was read already, or is still to be
    read. A document is not found twice on neighbouring pages.

    Iterating, ``total`` and ``notice`` raise ``BadRequestError`` for a query that the service refuses, ``BusyError``
    while the index is being built, and ``RemoteError``.
    """

    def __init__(
        self, caller: ServiceCaller, form: Form, query: Query, scope: Scope, version: int | str | None
    ) -> None:
        if query.size < 1 or query.offset % query.size:
            raise BadRequestError("the offset of a search must be a multiple of the size of a page")
        self._caller = caller
        self._form = form
        self._query = query
        self._scope = scope
        self._version = version
        self._first: tuple[FoundDocuments, str | None] | None = None

    @property
    def total(self) -> int:
        """The number of all documents that match."""
        return whole_number(self._page().total) or 0

    @property
    def notice(self) -> str | None:
        """The line of the service about an unknown form, version or control, for which nothing can be found."""
        self._page()
        return None if self._first is None else self._first[1]

    def __iter__(self) -> Iterator[SearchResult]:
        before: set[tuple[str, str]] = set()
        page, query = self._page(), self._query
        while True:
            yield from (_result(each) for each in page.documents if _key(each) not in before)
            before, query = {_key(each) for each in page.documents}, replace(query, offset=query.offset + query.size)
            # Not the length of a page decides: the service may leave out documents that a provider has found.
            if query.offset >= (whole_number(page.total) or 0):
                return
            page = self._asked(query)[0]

    def _page(self) -> FoundDocuments:
        if self._first is None:
            self._first = self._asked(self._query)
        return self._first[0]

    def _asked(self, query: Query) -> tuple[FoundDocuments, str | None]:
        by, paths = query.sort.by, query.paths or ()
        with_sorted = replace(query, paths=paths if not isinstance(by, str) or by in paths else (*paths, by))
        body = write_search_request(self._scope, with_sorted, all_indexed=query.paths is None)
        answer = ask(self._caller, "search", self._form, body, self._version)
        with_notice = answer.headers.get(self._caller.dialect.header("Notice"))
        return proper(read_search_answer, answer), with_notice


def ask(caller: ServiceCaller, api: str, form: Form, body: bytes, version: int | str | None = None) -> ServiceAnswer:
    """Return the answer to a query, which is a POST and changes nothing."""
    fields = (XML, *caller.fields(version))
    path = caller.path(api, form.app, form.name)
    return caller.connection.read(ServiceCall("POST", path, fields, content=OutgoingContent(body), is_safe=True))


def _key(found: FoundDocument) -> tuple[str, str]:
    return found.attributes.get("name", ""), found.attributes.get("draft", "")


def _result(found: FoundDocument) -> SearchResult:
    get = found.attributes.get
    return SearchResult(
        document=get("name", ""),
        is_draft=get("draft") == "true",
        created=Instant(get("created", "")),
        modified=Instant(get("last-modified", "")),
        creator=get("created-by"),
        group=get("created-by-groupname"),
        modifier=get("last-modified-by"),
        stage=get("workflow-stage"),
        operations=frozenset(get("operations", "").split()),
        values=found.details,
    )


def history(caller: ServiceCaller, form: Form, *names: str) -> Iterator[HistoryEntry]:
    """Yield the revisions of a document or an attachment, newest first."""
    path, last = caller.path("history", form.app, form.name, *names), None
    for number in range(1, 1 << 31):
        query = (("page-number", str(number)), ("page-size", str(LARGEST_HISTORY_PAGE)))
        answer = caller.connection.read(ServiceCall("GET", path, caller.fields(), query, is_safe=True))
        page = proper(read_history, answer)
        for attributes in page.revisions:
            entry = _entry(dict(attributes))
            if last is None or entry.modified < last:  # a save meanwhile moves revisions to the next page
                yield entry
            last = entry.modified if last is None else min(last, entry.modified)
        size, total = (whole_number(page.attributes.get(name, "")) for name in ("page-size", "total"))
        if number * (size or LARGEST_HISTORY_PAGE) >= (total or 0):
            return


def _entry(attributes: dict[str, str]) -> HistoryEntry:
    restored = attributes.get("restored-time")
    return HistoryEntry(
        modified=Instant(attributes.get("modified-time", "")),
        modifier=attributes.get("modified-username") or None,
        owner=attributes.get("owner-username") or None,
        group=attributes.get("owner-group") or None,
        is_deleted=attributes.get("deleted") == "true",
        is_damaged=attributes.get("damaged") == "true",
        stage=attributes.get("stage"),
        restored=None if restored is None else Instant(restored),
    )
