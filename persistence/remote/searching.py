"""Searches that another service answers (spec search 1 and 3). It judges by its definitions what a user may see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import count

from persistence.errors import BadRequestError, MalformedXmlError, NotSupportedError, RemoteError
from persistence.forms.found_documents import FoundDocument, FoundDocuments, read_found, read_values
from persistence.forms.search_request import distinct_request, search_request
from persistence.index.budget import Budget
from persistence.index.sources import DefinitionState, Source
from persistence.model import instants
from persistence.model.addresses import Collection, Form
from persistence.model.instants import Instant
from persistence.model.search import (
    NOTHING,
    Comparison,
    Drafts,
    Field,
    FieldFilter,
    Hit,
    Hits,
    Holder,
    Query,
    Scope,
    Sight,
    Sights,
    Sort,
    WhichDrafts,
)
from persistence.remote.caller import Caller
from persistence.remote.client import Call
from persistence.remote.names import path
from persistence.xml.streaming import Streaming

_PAGE = 100
_SOURCES = 256
"""Forms of which the definitions that were read are kept."""


class RemoteIndex:
    """What searches the data of a provider. Methods raise ``RemoteError``, ``BusyError``, and what refusals mean.

    ``source_of`` leads to the definitions of a form, wherever they are, and ``is_judged_there`` says whether the
    provider has them too. Where it has not, it would find documents that the user may not see. ``is_exact`` says
    whether a provider that has them finds only what a GET shows; another one goes by spec search 1.8.
    """

    def __init__(
        self,
        caller: Caller,
        source_of: Callable[[Form], Source],
        is_judged_there: Callable[[Form], bool],
        *,
        is_exact: bool,
    ) -> None:
        self._caller = caller
        self._is_exact = is_exact
        # One for each form, so that what was read of a definition is kept until its mark tells of another.
        self._source_of = lru_cache(_SOURCES)(source_of)
        self._is_judged_there = is_judged_there

    def checking(self, form: Form, version: int) -> Streaming:  # noqa: ARG002 - other indexes look at them
        """As ``SearchIndex`` says: nothing is taken from what streams by."""
        return Streaming()

    def search(self, form: Form, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:
        """As ``SearchIndex`` says; the time of the other service is its own."""
        sights = self._sights(form, scope)
        if NOTHING in sights:
            return Hits()
        owner = _owner(form, sights)
        if owner is not None:
            own = FieldFilter(Field.CREATED_BY, Comparison.EXACT, owner)
            query = replace(query, fields=(*query.fields, own))
        if owner is not None and scope.seen.is_by_saved:
            if scope.drafts.kind is Drafts.ONLY:
                return Hits()
            scope = replace(scope, drafts=WhichDrafts(Drafts.EXCLUDE))  # it may be of what somebody else has saved
        found = _asked(self._caller, form, scope, query)
        version = scope.versions[0] if scope.versions else 0
        hits = (_hit(each, version) for each in found.documents)
        page = tuple(hit for hit in hits if owner is None or hit.creator == owner)
        if budget is not None:
            for hit in page:
                budget.hold(hit, query.paths or ())
        return Hits(_total(found), page)

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:
        """As ``SearchIndex`` says, drafts being found as the provider does."""
        sights = self._sights(form, scope)
        if NOTHING in sights:
            return iter(())
        if sights:
            raise NotSupportedError(f"distinct values of {form} are known to a provider that has not its permissions")
        names = self._caller.names
        asked = path("distinct-values", names.app(form.app), form.name)
        fields = [names.field("Form-Definition-Version", _version(scope))]
        body = self._caller.ask_with(Call("POST", asked, fields), distinct_request(by))
        try:
            values = read_values([body])
        except MalformedXmlError as error:
            raise _no_answer(self._caller) from error
        if budget is not None:
            for value in values:
                budget.hold_value(value)
        return iter(sorted(set(values), key=lambda value: (value.casefold(), value)))

    def keys(self, form: Form, version: int) -> tuple[str, ...] | None:
        """As ``SearchIndex`` says."""
        definition = self._source_of(form).definition(version)
        return definition.paths if definition.state is DefinitionState.PUBLISHED else None

    def _sights(self, form: Form, scope: Scope) -> Sights:
        """Owners whose documents may be seen, as far as the provider cannot be left to judge.

        Raises:
            NotSupportedError: others' in one version than in another.
        """
        if self._is_judged_there(form) and (self._is_exact or not scope.seen.is_by_saved):
            return frozenset()
        versions = tuple(self._source_of(form).versions()) if scope.versions is None else scope.versions
        found = {scope.seen.of_version(version) for version in versions or (1,)}
        if all(NOTHING in each for each in found):
            return frozenset({NOTHING})
        if len(found) > 1:
            raise NotSupportedError(f"versions of {form} differ in permissions: its provider searches one at a time")
        return found.pop()


def _owner(form: Form, sights: Sights) -> str | None:
    """The one user whose documents may be seen; ``None`` where everybody's may.

    Raises:
        NotSupportedError: others' may, of whom a search cannot be told.
    """
    owners = {holder.creator for sight in sights for holder in sight.holders}
    owner = owners.pop() if len(owners) == 1 else None
    if sights and (owner is None or sights != {Sight(frozenset({Holder(creator=owner)}))}):
        raise NotSupportedError(f"{form} is searched by a provider that has not the permissions of groups there")
    return owner


class DocumentIds:
    """The ids of documents, by searches: in the order of their creation, so that deleting some changes no page."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def of(self, form: Form, collection: Collection) -> Iterator[str]:
        """The ids of the documents of a form that the client who asks may find, each once."""
        drafts = Drafts.ONLY if collection is Collection.DRAFT else Drafts.EXCLUDE
        scope = Scope(drafts=WhichDrafts(drafts))
        since: Instant | None = None
        known: set[str] = set()
        while True:
            page: list[Hit] = []
            for number in count():  # further pages only where so many were created in one instant
                page = self._page(form, scope, since, number)
                if len(page) < _PAGE or page[-1].created != since:
                    break
                yield from _new(page, known)
            yield from _new(page, known)
            if len(page) < _PAGE:
                return
            known = {hit.document for hit in page if hit.created == page[-1].created}
            since = page[-1].created

    def _page(self, form: Form, scope: Scope, since: Instant | None, number: int) -> list[Hit]:
        later = () if since is None else (FieldFilter(Field.CREATED, Comparison.GTE, since),)
        order = Sort(Field.CREATED, is_descending=False)
        query = Query(fields=later, sort=order, offset=number * _PAGE, size=_PAGE, paths=())
        return [_hit(each, 1) for each in _asked(self._caller, form, scope, query).documents]


def _new(page: list[Hit], known: set[str]) -> Iterator[str]:
    for hit in page:
        if hit.document not in known:
            known.add(hit.document)
            yield hit.document


def _asked(caller: Caller, form: Form, scope: Scope, query: Query) -> FoundDocuments:
    names = caller.names
    fields = [names.field("Form-Definition-Version", _version(scope))]
    call = Call("POST", path("search", names.app(form.app), form.name), fields)
    body = caller.ask_with(call, search_request(scope, query))
    try:
        return read_found([body])
    except MalformedXmlError as error:
        raise _no_answer(caller) from error


def _version(scope: Scope) -> str:
    if scope.versions is None:
        return "all"
    if len(scope.versions) != 1:
        raise NotSupportedError(
            "of several versions of a form that are deleted, another service searches one at a time"
        )
    return str(scope.versions[0])


def _total(found: FoundDocuments) -> int:
    if not (found.total.isascii() and found.total.isdigit() and len(found.total) < 19):  # noqa: PLR2004 - digits of 2**63
        raise RemoteError("the answer to a search does not say how much was found")
    return int(found.total)


def _hit(found: FoundDocument, version: int) -> Hit:
    said = found.attributes
    return Hit(
        document=said.get("name", ""),
        version=version,
        is_draft=said.get("draft") == "true",
        created=_instant(said.get("created", "")),
        modified=_instant(said.get("last-modified", "")),
        creator=said.get("created-by") or None,
        group=said.get("created-by-groupname") or None,
        modifier=said.get("last-modified-by") or None,
        stage=said.get("workflow-stage") or None,
        values={name: (text,) for name, text in found.details.items() if text},
    )


def _instant(text: str) -> Instant:
    try:
        return instants.from_datetime(instants.parse_time(text, "a time in the answer to a search"))
    except BadRequestError as error:
        raise RemoteError(f"the answer to a search has no time where one must be: {text!r}") from error


def _no_answer(caller: Caller) -> RemoteError:
    return RemoteError(f"provider {caller.who!r} answers a search with what is no answer")
