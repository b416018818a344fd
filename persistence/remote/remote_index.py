"""Another service as an index: searches (spec search 1 and 3), and rebuilding (spec search 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from itertools import count
from typing import TypeVar

from persistence.catalog import Definition
from persistence.errors import BadRequestError, MalformedXmlError, NotSupportedError, RemoteError
from persistence.forms.messages import read_request
from persistence.forms.search_xml import (
    read_distinct_answer,
    read_search_answer,
    write_distinct_request,
    write_search_request,
)
from persistence.index.protocol import Budget, ReindexingState, ReindexingStatus
from persistence.limits import LARGEST_ANSWER
from persistence.model import texts
from persistence.model.addresses import Collection, Form
from persistence.model.permissions import NOBODY, OwnerPattern, OwnerSet, OwnerSets
from persistence.model.queries import (
    Comparison,
    DraftFilter,
    Drafts,
    Field,
    FieldFilter,
    FoundDocuments,
    Hit,
    Hits,
    Query,
    Scope,
    SearchResult,
    Sort,
)
from persistence.model.sidecar import DocumentFacts
from persistence.model.texts import Instant
from persistence.remote.remote_calls import Client
from persistence.wire import XML, Call, HeaderField, OutgoingContent, whole_number
from persistence.xml import Streaming, XmlCheck

_LONGEST = 24 * 3600.0  # Seconds without a byte while an index is rebuilt: the answer comes when it is done

_NO_PART = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)
_PAGE = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RemoteIndex:
    """Searches the data of a provider, which decides by its definitions what a user may see.

    ``versions_of`` gives the versions of a form that have definitions, wherever these are; ``is_judged_there`` says
    whether the provider has them too. Where it has not, it would find documents that the user may not see.
    ``is_exact``: a provider that has them finds only what a GET shows; others follow spec search 1.8.
    """

    client: Client
    versions_of: Callable[[Form], Iterable[int]]
    is_judged_there: Callable[[Form], bool]
    is_exact: bool

    def checking(self, definition: Definition) -> Streaming:  # noqa: ARG002 - other indexes look at it
        return XmlCheck()

    def search(self, form: Form, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:
        owners = self._owners(form, scope)
        if NOBODY in owners:
            return Hits()
        creators = {pattern.creator for each in owners for pattern in each.holders}
        owner = creators.pop() if len(creators) == 1 else None
        if owners and (owner is None or owners != {OwnerSet(frozenset({OwnerPattern(creator=owner)}))}):
            raise NotSupportedError(f"the provider that searches {form} does not have its permissions for groups")
        if owner is not None:
            own = FieldFilter(Field.CREATED_BY, Comparison.EXACT, owner)
            query = replace(query, fields=(*query.fields, own))
        if owner is not None and scope.seen.is_by_saved:
            if scope.drafts.kind is Drafts.ONLY:
                return Hits()
            scope = replace(scope, drafts=DraftFilter(Drafts.EXCLUDE))  # it may be another user's
        found = _asked(self.client, form, scope, query)
        version = scope.versions[0] if scope.versions else 0
        hits = (_hit(each, version) for each in found.documents)
        page = tuple(hit for hit in hits if owner is None or hit.facts.creator == owner)
        if budget is not None:
            for hit in page:
                budget.hold(hit, query.paths or ())
        total = whole_number(found.total)
        if total is None:
            raise RemoteError("the answer to a search does not say how much was found")
        return Hits(total, page)

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:
        owners = self._owners(form, scope)
        if NOBODY in owners:
            return iter(())
        if owners:
            raise NotSupportedError(
                f"the provider that knows the distinct values of {form} does not have its permissions"
            )
        body = write_distinct_request(by)
        values = _answer(self.client, "distinct-values", form, scope, body, read_distinct_answer)
        if budget is not None:
            for value in values:
                budget.hold_value(value)
        return iter(sorted(set(values), key=lambda value: (value.casefold(), value)))

    def _owners(self, form: Form, scope: Scope) -> OwnerSets:
        if self.is_judged_there(form) and (self.is_exact or not scope.seen.is_by_saved):
            return frozenset()
        versions = tuple(self.versions_of(form)) if scope.versions is None else scope.versions
        found = {scope.seen.of_version(version) for version in versions or (1,)}
        if all(NOBODY in each for each in found):
            return frozenset({NOBODY})
        if len(found) > 1:
            raise NotSupportedError(f"versions of {form} differ in permissions: its provider searches one at a time")
        return found.pop()


def document_ids(client: Client, form: Form, collection: Collection) -> Iterator[str]:
    """Yield the ids of the documents of a form that the client may find, each once, by searches.

    They are in the order of their creation, so that deleting some changes no page.
    """
    scope = Scope(drafts=DraftFilter(Drafts.ONLY if collection is Collection.DRAFT else Drafts.EXCLUDE))
    since: Instant | None = None
    known: set[str] = set()
    while True:
        page: list[Hit] = []
        for number in count():  # further pages only where so many were created in one instant
            later = () if since is None else (FieldFilter(Field.CREATED, Comparison.GTE, since),)
            order = Sort(Field.CREATED, is_descending=False)
            query = Query(fields=later, sort=order, offset=number * _PAGE, size=_PAGE, paths=())
            page = [_hit(each, 1) for each in _asked(client, form, scope, query).documents]
            if len(page) < _PAGE or page[-1].facts.created != since:
                break
            yield from _new(page, known)
        yield from _new(page, known)
        if len(page) < _PAGE:
            return
        known = {hit.document for hit in page if hit.facts.created == page[-1].facts.created}
        since = page[-1].facts.created


def _new(page: list[Hit], known: set[str]) -> Iterator[str]:
    for hit in page:
        if hit.document not in known:
            known.add(hit.document)
            yield hit.document


def _asked(client: Client, form: Form, scope: Scope, query: Query) -> FoundDocuments:
    return _answer(client, "search", form, scope, write_search_request(scope, query), read_search_answer)


def _answer(  # noqa: PLR0913, PLR0917 - the parts of a request, and how its answer is read
    client: Client, api: str, form: Form, scope: Scope, body: bytes, read: Callable[[list[bytes]], T]
) -> T:
    if scope.versions is not None and len(scope.versions) != 1:
        raise NotSupportedError("another service searches only one deleted version of a form at a time")
    version = "all" if scope.versions is None else scope.versions[0]
    fields = (client.names.version(version), XML)
    call = Call("POST", client.names.of_form(api, form), fields, content=OutgoingContent(body))
    try:
        return read([client.ask(call)])
    except MalformedXmlError as error:
        raise RemoteError(f"provider {client.who!r} gives no valid answer to a search") from error


def _hit(found: SearchResult, version: int) -> Hit:
    return Hit(
        document=found.document,
        is_draft=found.is_draft,
        facts=DocumentFacts(
            version=version,
            created=_instant(found.created),
            modified=_instant(found.modified),
            creator=found.creator or None,
            group=found.group or None,
            modifier=found.modifier or None,
            stage=found.stage or None,
        ),
        values={name: (text,) for name, text in found.values.items() if text},
    )


def _instant(text: str) -> Instant:
    try:
        return texts.from_datetime(texts.parse_time(text, "a time in the answer to a search"))
    except BadRequestError as error:
        raise RemoteError(f"the answer to a search has a time that is not valid: {text!r}") from error


@dataclass(frozen=True, slots=True)
class RemoteReindexing:
    """Passes requests on; a provider without indexes takes no part."""

    client: Client

    def all(self) -> None:
        self._make("/reindex")

    def version(self, form: Form, number: int | None) -> None:
        if number is None:
            self.all()
        else:
            self._make(self.client.names.of_form("reindex", form), self.client.names.version(number))

    def status(self) -> ReindexingStatus:
        answer = self.client.send(Call("GET", "/reindex/status"))
        if answer.status != HTTPStatus.OK:
            answer.close()
            return ReindexingStatus()
        try:
            attributes = read_request([answer.whole(LARGEST_ANSWER)], ()).attrib
            state = ReindexingState(attributes.get("state", ""))
            return ReindexingStatus(
                state, int(attributes.get("document-current", "0")), int(attributes.get("document-total", "0"))
            )
        except (MalformedXmlError, ValueError) as error:
            raise RemoteError(f"provider {self.client.who!r} does not say how far its index is") from error

    def _make(self, path: str, *fields: HeaderField) -> None:
        self.client.change(Call("POST", path, fields, silence=_LONGEST), *_NO_PART)
