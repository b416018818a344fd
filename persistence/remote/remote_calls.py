"""Calls to another service, which may speak another dialect: names, headers and refusals (spec crud 2, 3, 11)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from urllib.parse import quote

from persistence import client_request
from persistence.client_request import ClientRequest
from persistence.dialect import DIALECTS, Dialect
from persistence.errors import STATUS, BadRequestError, BusyError, RemoteError, RemoteFailureError, RemoteTimeoutError
from persistence.limits import LARGEST_ANSWER
from persistence.model import permissions
from persistence.model.addresses import Address, DefinitionAddress, Form
from persistence.model.sidecar import ClientHash
from persistence.model.texts import WHOLE, in_latin_1
from persistence.model.versions import VersionRequest
from persistence.storage.commit import OutgoingFile
from persistence.wire import (
    Answer,
    Call,
    Connection,
    HeaderField,
    HeaderFields,
    OutgoingContent,
    OwnFields,
    Peer,
    path_of,
    whole_number,
)

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
        pair = {self.own.designer_app: self.theirs.designer_app, self.theirs.designer_app: self.own.designer_app}
        return pair.get(app, app)

    def of_form(self, api: str, form: Form, *rest: str) -> str:
        return path_of(api, self.app(form.app), form.name, *rest)

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
    connection: Connection

    @property
    def label(self) -> str:
        """The other side in the words of an error."""
        return f"provider {self.who!r}" if self.who else "the other server"

    def send(self, call: Call) -> Answer:
        """Return the answer to a call, with any status; its content is not read yet."""
        forwarded = self.names.forwarded(client_request.current())
        peer = Peer(self.label, f"{self.label} gives no proper answer", "the end of an answer")
        answer = self.connection.call(replace(call, fields=(*forwarded, *call.fields)), peer)
        answer.require_uncoded()
        if self.names.theirs.has_proxy:
            answer.headers.encoding = "latin-1"  # httpx would guess
        return answer

    def change(self, call: Call, *also: int) -> Answer:
        """Return the answer to a change that was done, or with one of these statuses, closed; raise for a refusal."""
        answer = self.send(call)
        self.require(answer, call.label, *DONE, *also)
        answer.close()
        return answer

    def ask(self, call: Call) -> bytes:
        """Return the content of the answer to a call; raise the error for a refusal."""
        answer = self.send(call)
        self.require(answer, call.label, HTTPStatus.OK)
        return answer.whole(LARGEST_ANSWER)

    def require(self, answer: Answer, action: str, *statuses: int) -> None:
        """Close an answer with any other status, and raise ``RemoteError`` if it does not concern the client."""
        if answer.status in statuses:
            return
        line = answer.line()
        message = f"{self.label} says: {line}" if line else f"{self.label} answers {action} with {answer.status}"
        if answer.status in (429, 503):
            seconds = whole_number(answer.headers.get("Retry-After", "")) or 1
            raise BusyError(message, min(seconds, 60))
        if answer.status in _PASSED_ON:
            raise _PASSED_ON[answer.status](message)
        failed = RemoteFailureError if answer.status == HTTPStatus.INTERNAL_SERVER_ERROR else RemoteError
        raise failed(f"{message} ({answer.status})" if line else message)

    def own(self, answer: Answer) -> OwnFields:
        return OwnFields(answer.headers, self.names.theirs)


# Publishing on another server: its CRUD API is called as the designer calls it there (spec crud 5.1, 8.3).
_HASH_ALGORITHM, _HASH_VALUE = "Hash-Algorithm", "Hash-Value"
_SHA_256 = "SHA-256"
_VERSION = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RemotePublisher:
    """Publishes a form on another server. ``source`` is the unpublished one; ``is_forced`` sends all attachments."""

    client: Client
    form: Form
    fields: HeaderFields
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
            with self.client.send(Call("HEAD", self._path(file), (*self.fields, *self._asked(asked)))) as answer:
                own = self.client.own(answer)
                there = ClientHash(own.text(_HASH_ALGORITHM) or "", own.text(_HASH_VALUE) or "")
                is_ours = pair.algorithm == _SHA_256 and pair.value.lower() == _digest(file)
                if answer.status == HTTPStatus.OK and (file.may_stay or (there == pair and is_ours)):
                    return self._version(answer)
        field = self.client.names.field
        return self._put(file, asked, field(_HASH_ALGORITHM, pair.algorithm), field(_HASH_VALUE, pair.value))

    def _put(self, file: OutgoingFile, asked: VersionRequest, *more: HeaderField) -> int | None:
        query = (("document", self.source),) if self.source else ()
        fields = (*self.fields, *self._asked(asked), ("Content-Type", file.content_type.encode("latin-1")), *more)
        with file.upload.opened() as content:
            call = Call("PUT", self._path(file), fields, query, OutgoingContent(content))
            answer = self.client.send(call)
        if answer.status not in DONE:
            line = answer.line()
            raise RemoteError(f"{self.client.label} answers {answer.status} to {call.label}{line and f': {line}'}")
        answer.close()
        return self._version(answer)

    def _path(self, file: OutgoingFile) -> str:
        return self.client.names.path(DefinitionAddress(self.form, 1, file.name))

    def _asked(self, asked: VersionRequest) -> HeaderFields:
        number = "next" if asked.wants_next else asked.number
        return () if number is None else (self.client.names.version(number),)

    def _version(self, answer: Answer) -> int | None:
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
