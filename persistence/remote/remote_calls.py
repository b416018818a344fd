"""The calls of another service that is a provider, and the index that it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from itertools import count
from typing import TypeVar
from urllib.parse import quote

from persistence import client_request, wire
from persistence.catalog import Definition
from persistence.client_request import ClientRequest
from persistence.dialect import DIALECTS, Dialect
from persistence.errors import (
    STATUS,
    BadRequestError,
    BusyError,
    MalformedXmlError,
    NotSupportedError,
    RemoteError,
    RemoteFailureError,
    RemoteTimeoutError,
)
from persistence.forms import search_xml
from persistence.forms.messages import read_reindexing
from persistence.index.protocol import Budget, ReindexingState, ReindexingStatus
from persistence.limits import LARGEST_ANSWER
from persistence.model import permissions, texts
from persistence.model.addresses import Address, Collection, DefinitionAddress, Form
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
from persistence.model.sidecar import ClientHash, DocumentFacts
from persistence.model.texts import WHOLE, Instant, in_latin_1
from persistence.model.versions import VersionRequest
from persistence.storage.commit import OutgoingFile
from persistence.xml import Streaming, XmlCheck

EncodedField = tuple[str, bytes]  # A header field whose value is in the encoding that the other side reads

_NOT_FORWARDED = frozenset(
    {
        # Fields about one connection (RFC 9110 7.6.1).
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
        # Others that a proxy does not pass on (spec crud 3), and those about the body, which was received here.
        *("accept-encoding", "content-encoding", "content-length", "content-type", "expect", "host"),
        *("content-digest", "content-md5", "content-range", "repr-digest"),
        *("cookie", "cookie2"),
        # The address of a page, which may have an access token in it (spec crud 6.6).
        "referer",
        # Origins, conditions, ranges and lengths of leases: this service judges them itself.
        *("origin", "sec-fetch-site", "timeout", "if-match", "if-modified-since", "if-none-match", "if-range"),
        *("if-unmodified-since", "range"),
        # Another method or path than the one that was judged here, which some servers and frameworks obey.
        *("x-http-method", "x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url"),
    }
)

_OF_CLIENTS = frozenset({"create-flat-view", "credentials", "path-to-holder"})
"""Fields of the service's own, without prefix, that a client may send to a provider (spec crud 3, search 7).

The others are decisions of this service, which a provider believes, or belong to answers.
"""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")

_USER = frozenset(("username", "group", "roles"))

_NUMBER = "x-request-id"  # The id of the request, which is this service's


@dataclass(frozen=True, slots=True)
class ProviderNames:
    """Names in calls of a provider: ``own`` is the dialect here, ``theirs`` the one there.

    ``mirrored`` are properties of the provider as fields, without prefix (spec crud 10.3). One that is no provider, but
    a server that a client has named, gets only the id of the request: other headers may hold a key or a cookie that is
    meant for this service.
    """

    own: Dialect
    theirs: Dialect
    mirrored: tuple[tuple[str, str], ...] = ()
    is_provider: bool = True

    def app(self, app: str) -> str:
        """Translate the name of an application, in either direction: the two designers change places."""
        pair = {self.own.designer.app: self.theirs.designer.app, self.theirs.designer.app: self.own.designer.app}
        return pair.get(app, app)

    def of_form(self, api: str, form: Form, *rest: str) -> str:
        return wire.path_of(api, self.app(form.app), form.name, *rest)

    def path(self, address: Address) -> str:
        if isinstance(address, DefinitionAddress):
            return self.of_form("crud", address.form, "form", address.name)
        return self.of_form("crud", address.form, address.collection.value, address.document, address.name)

    def field(self, name: str, value: str) -> EncodedField:
        return self.theirs.header(name), self._bytes(value)

    def texts(self, **texts: str | None) -> Sequence[EncodedField]:
        """Return fields of the service's own, and again, whole, those with characters that the other side may lose."""
        given = [(name.replace("_", "-"), text) for name, text in texts.items() if text is not None]
        beyond = [(name, text) for name, text in given if self.theirs.has_proxy and in_latin_1(text) != text]
        whole = [self.field(name + WHOLE, quote(text, safe="")) for name, text in beyond]
        return [*(self.field(name, text) for name, text in given), *whole]

    def version(self, version: int | str) -> EncodedField:
        return self.field("Form-Definition-Version", str(version))

    def forwarded(self, request: ClientRequest) -> Sequence[EncodedField]:
        """Return the headers of every call for a client's request: the caller, other fields, the provider's properties.

        Fields of the service's own get the prefix of the provider; those of another dialect, which nobody has checked,
        are left out, and those that ``Connection`` names (RFC 9110 7.6.1), but not those that were judged here: a
        client must not be another user there than here.
        """
        if not self.is_provider:
            return [(name, value.encode("latin-1")) for name, value in request.fields if name.lower() == _NUMBER]
        user = self._user(request)
        may_say = (_OF_CLIENTS | (frozenset() if user else _USER)) - {name.lower() for name, _ in self.mirrored}
        named = {word.strip().lower() for word in (request.field_of("Connection") or "").split(",")} - {_NUMBER}
        prefix = self.own.header_prefix.lower()
        foreign = tuple(each.header_prefix.lower() for each in DIALECTS.values() if each.name != self.own.name)
        fields: list[EncodedField] = []
        for name, value in request.fields:
            lower = name.lower()
            own = lower.removeprefix(prefix)
            if own != lower:
                if own in may_say:
                    fields.append((self.theirs.header(own.title()), self._passed_on(own, value)))
            elif lower == "accept" and "json" in value:
                continue  # a provider sends what is stored, and this service makes JSON of that
            elif lower not in _NOT_FORWARDED and lower not in named and not lower.startswith(foreign):
                fields.append((name, value.encode("latin-1")))
        return [*fields, *user, *(self.field(name, value) for name, value in self.mirrored)]

    def _bytes(self, value: str) -> bytes:
        """Return a value as the other side reads it: Latin-1 behind the proxy of a runtime (spec runtime 3)."""
        return in_latin_1(value).encode("latin-1") if self.theirs.has_proxy else value.encode()

    def _passed_on(self, name: str, sent: str) -> bytes:
        if sent.isascii() or not self.theirs.has_proxy:
            return sent.encode("latin-1")
        text = _decoded(sent)
        if name == "credentials":  # its texts may be percent-encoded, which keeps all characters
            return _NOT_ASCII.sub(lambda found: quote(found[0]), text).encode()
        return self._bytes(text)

    def _user(self, request: ClientRequest) -> Sequence[EncodedField]:
        """Return the caller in fields of their own, where the request has credentials (spec forms 5.6).

        A caller whose characters plain fields may lose gets credentials, which keep them.
        """
        sent = (request.field_of(self.own.header("Credentials")) or "").strip()
        plain = [request.field_of(self.own.header(name)) or "" for name in ("Username", "Group", "Roles")]
        if not sent and (not self.theirs.has_proxy or "".join(plain).isascii()):
            return ()
        try:
            user = (
                permissions.parse_credentials(_decoded(sent))
                if sent
                else permissions.from_headers(*map(_decoded, plain))
            )
        except BadRequestError:  # refused where the caller must be known
            return ()
        roles = (("Roles", role.name) for role in user.roles if role.organization is None)
        pairs = (("Username", user.name), ("Group", user.group), *roles)
        fields = [self.field(name, value) for name, value in pairs if value and value.isprintable()]
        return fields if sent else [*fields, self.field("Credentials", permissions.credentials_of(user))]


def _decoded(sent: str) -> str:
    with suppress(UnicodeError):
        return sent.encode("latin-1").decode()
    return sent


DONE = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT)  # The statuses of changes that were done

_PASSED_ON = {status: kind for kind, status in STATUS if status in {400, 403, 404, 409, 410, 412, 413, 423, 501, 507}}
"""Refusals that concern the client, as the errors of this service (spec crud 13)."""


@dataclass(frozen=True, slots=True)
class Client:
    """Calls the provider ``who``, empty for a server that is no provider, for the client whose request is served.

    Methods raise ``RemoteTimeoutError``, ``RemoteError``, and ``BusyError`` where too many calls wait already.
    """

    who: str
    names: ProviderNames
    connection: wire.Connection

    @property
    def label(self) -> str:
        """The other side in the words of an error."""
        return f"provider {self.who!r}" if self.who else "the other server"

    def send(self, call: wire.Call) -> wire.Answer:
        """Return the answer to a call, with any status; its content is not read yet."""
        forwarded = self.names.forwarded(client_request.current())
        peer = wire.Peer(self.label, f"{self.label} gives no proper answer", "the end of an answer")
        answer = self.connection.call(replace(call, fields=(*forwarded, *call.fields)), peer)
        answer.require_uncoded()
        if self.names.theirs.has_proxy:
            answer.headers.encoding = "latin-1"  # httpx would guess
        return answer

    def change(self, call: wire.Call, *also: int) -> wire.Answer:
        """Return the answer to a change that was done, or with one of these statuses, closed; raise for a refusal."""
        answer = self.send(call)
        self.require(answer, call.label, *DONE, *also)
        answer.close()
        return answer

    def ask(self, call: wire.Call) -> bytes:
        """Return the content of the answer to a call; raise the error for a refusal."""
        answer = self.send(call)
        self.require(answer, call.label, HTTPStatus.OK)
        return answer.whole(LARGEST_ANSWER)

    def require(self, answer: wire.Answer, action: str, *statuses: int) -> None:
        """Close an answer with any other status, and raise ``RemoteError`` if it does not concern the client."""
        if answer.status in statuses:
            return
        line = answer.line()
        message = f"{self.label} says: {line}" if line else f"{self.label} answers {action} with {answer.status}"
        if answer.status in (429, 503):
            seconds = wire.whole_number(answer.headers.get("Retry-After", "")) or 1
            raise BusyError(message, min(seconds, 60))
        if answer.status in _PASSED_ON:
            raise _PASSED_ON[answer.status](message)
        failed = RemoteFailureError if answer.status == HTTPStatus.INTERNAL_SERVER_ERROR else RemoteError
        raise failed(f"{message} ({answer.status})" if line else message)

    def own(self, answer: wire.Answer) -> wire.OwnFields:
        return wire.OwnFields(answer.headers, self.names.theirs)


# Publishing on another server: its CRUD API is called as the designer calls it there (spec crud 5.1, 8.3).
_HASH_ALGORITHM, _HASH_VALUE = "Hash-Algorithm", "Hash-Value"
_SHA_256 = "SHA-256"
_VERSION = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RemotePublisher:
    """Publishes a form on another server. ``source`` is the unpublished one; ``is_forced`` sends all attachments."""

    client: Client
    form: Form
    fields: wire.HeaderFields
    source: str | None
    flat_view: bool
    is_forced: bool

    def publish(self, asked: VersionRequest, attachments: Sequence[OutgoingFile], main: OutgoingFile) -> int:
        """Store attachments, again if ``next`` became another version, and ``form.xhtml``; return its version."""
        sent_to: list[int | None] = []
        for file in attachments:
            with _after(f"after {len(sent_to)} of {len(attachments)} attachments"):
                sent_to.append(self._attachment(file, asked))
        with _after(f"after all {len(attachments)} attachments" if attachments else "without attachments"):
            flat_view = (self.client.names.field("Create-Flat-View", "true"),) if self.flat_view else ()
            version = self._put(main, asked, *flat_view)
            if version is None:
                raise RemoteError("the other server has stored form.xhtml, but does not say as which version")
        with _after(f"form.xhtml is version {version} on the other server, and lacks attachments"):
            for file, number in zip(attachments, sent_to, strict=True):
                if number not in (version, None):
                    self._attachment(file, VersionRequest(number=version))
        return version

    def _attachment(self, file: OutgoingFile, asked: VersionRequest) -> int | None:
        pair = file.client_hash or ClientHash(_SHA_256, _digest(file))
        if not self.is_forced and not asked.wants_next:
            with self.client.send(self._call("HEAD", file, asked)) as answer:
                own = self.client.own(answer)
                there = ClientHash(own.text(_HASH_ALGORITHM) or "", own.text(_HASH_VALUE) or "")
                is_ours = pair.algorithm == _SHA_256 and pair.value.lower() == _digest(file)
                if answer.status == HTTPStatus.OK and (file.may_stay or (there == pair and is_ours)):
                    return self._version(answer)
        field = self.client.names.field
        return self._put(file, asked, field(_HASH_ALGORITHM, pair.algorithm), field(_HASH_VALUE, pair.value))

    def _put(self, file: OutgoingFile, asked: VersionRequest, *more: wire.HeaderField) -> int | None:
        query = (("document", self.source),) if self.source else ()
        call = self._call("PUT", file, asked, ("Content-Type", file.content_type.encode("latin-1")), *more)
        with file.upload.opened() as content:
            answer = self.client.send(replace(call, query=query, content=wire.OutgoingContent(content)))
        if answer.status not in DONE:
            line = answer.line()
            raise RemoteError(f"{self.client.label} answers {answer.status} to {call.label}{line and f': {line}'}")
        answer.close()
        return self._version(answer)

    def _call(self, method: str, file: OutgoingFile, asked: VersionRequest, *more: wire.HeaderField) -> wire.Call:
        names, number = self.client.names, "next" if asked.wants_next else asked.number
        version = () if number is None else (names.version(number),)
        path = names.path(DefinitionAddress(self.form, 1, file.name))
        return wire.Call(method, path, (*self.fields, *version, *more))

    def _version(self, answer: wire.Answer) -> int | None:
        text = self.client.own(answer).text("Form-Definition-Version") or ""
        return int(text) if _VERSION.fullmatch(text) else None


def _digest(file: OutgoingFile) -> str:
    return file.upload.digest.partition(":")[2]


@contextmanager
def _after(before: str) -> Iterator[None]:
    try:
        yield
    except RemoteError as error:
        kind = RemoteTimeoutError if isinstance(error, RemoteTimeoutError) else RemoteError
        raise kind(f"{before}: {error}") from error


# Another service as an index: searches (spec search 1 and 3), and rebuilding (spec search 5).


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
        total = wire.whole_number(found.total)
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
        body = search_xml.write_distinct_request(by)
        values = _answer(self.client, "distinct-values", form, scope, body, search_xml.read_distinct_answer)
        if budget is not None:
            budget.hold_texts(values)
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
            for document in (hit.document for hit in page if hit.document not in known):
                known.add(document)
                yield document
            if len(page) < _PAGE or page[-1].facts.created != since:
                break
        if len(page) < _PAGE:
            return
        known = {hit.document for hit in page if hit.facts.created == page[-1].facts.created}
        since = page[-1].facts.created


def _asked(client: Client, form: Form, scope: Scope, query: Query) -> FoundDocuments:
    return _answer(
        client, "search", form, scope, search_xml.write_search_request(scope, query), search_xml.read_search_answer
    )


def _answer(  # noqa: PLR0913, PLR0917 - the parts of a request, and how its answer is read
    client: Client, api: str, form: Form, scope: Scope, body: bytes, read: Callable[[list[bytes]], T]
) -> T:
    if scope.versions is not None and len(scope.versions) != 1:
        raise NotSupportedError("another service searches only one deleted version of a form at a time")
    version = "all" if scope.versions is None else scope.versions[0]
    fields = (client.names.version(version), wire.XML)
    call = wire.Call("POST", client.names.of_form(api, form), fields, content=wire.OutgoingContent(body))
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
        answer = self.client.send(wire.Call("GET", "/reindex/status"))
        if answer.status != HTTPStatus.OK:
            answer.close()
            return ReindexingStatus()
        try:
            found = read_reindexing([answer.whole(LARGEST_ANSWER)])
            return ReindexingStatus(ReindexingState(found.state), found.current, found.total)
        except (MalformedXmlError, ValueError) as error:
            raise RemoteError(f"provider {self.client.who!r} does not say how far its index is") from error

    def _make(self, path: str, *fields: wire.HeaderField) -> None:
        self.client.change(wire.Call("POST", path, fields, silence=_LONGEST), *_NO_PART)
