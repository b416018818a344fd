"""The headers of calls to another service, which may speak another dialect (spec crud 3, 11)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote

from persistence.client_request import ClientRequest
from persistence.dialect import DIALECTS, Dialect
from persistence.errors import BadRequestError
from persistence.model import users
from persistence.model.addresses import Address, DefinitionAddress, Form
from persistence.model.texts import WHOLE, in_latin_1

HeaderField = tuple[str, bytes]
HeaderFields = Sequence[HeaderField]
"""Values are bytes, because their encoding does not matter."""

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

_NUMBER = "x-request-id"
"""The id of the request, which is this service's."""


@dataclass(frozen=True, slots=True)
class ProviderNames:
    """Names in calls of a provider: ``own`` is the dialect here, ``theirs`` the one there.

    ``mirrored`` are properties of the provider as fields, without prefix (spec crud 10.3).
    """

    own: Dialect
    theirs: Dialect
    mirrored: tuple[tuple[str, str], ...] = ()

    def app(self, app: str) -> str:
        """Translate the name of an application, in either direction: the two designers change places."""
        pair = {self.own.designer_app: self.theirs.designer_app, self.theirs.designer_app: self.own.designer_app}
        return pair.get(app, app)

    def of_form(self, api: str, form: Form, *rest: str) -> str:
        """Return a percent-encoded path about a form, below the base of the provider."""
        return path(api, self.app(form.app), form.name, *rest)

    def path(self, address: Address) -> str:
        """Return the percent-encoded path of a resource, below the base of the provider."""
        if isinstance(address, DefinitionAddress):
            return self.of_form("crud", address.form, "form", address.name)
        return self.of_form("crud", address.form, address.collection.value, address.document, address.name)

    def field(self, name: str, value: str) -> HeaderField:
        """Return a field of the service's own."""
        return self.theirs.header(name), self._bytes(value)

    def texts(self, **texts: str | None) -> HeaderFields:
        """Return fields of the service's own, and again, whole, those with characters that the other side may lose."""
        given = [(name.replace("_", "-"), text) for name, text in texts.items() if text is not None]
        beyond = [(name, text) for name, text in given if self.theirs.has_proxy and in_latin_1(text) != text]
        whole = [self.field(name + WHOLE, quote(text, safe="")) for name, text in beyond]
        return [*(self.field(name, text) for name, text in given), *whole]

    def version(self, version: int | str) -> HeaderField:
        return self.field("Form-Definition-Version", str(version))

    def forwarded(self, request: ClientRequest) -> HeaderFields:
        """Return the headers of every call for a client's request: the caller, other fields, the provider's properties.

        Fields of the service's own get the prefix of the provider; those of another dialect, which nobody has checked,
        are left out, and those that ``Connection`` names (RFC 9110 7.6.1), but not those that were judged here: a
        client must not be another user there than here.
        """
        user = self._user(request)
        may_say = (_OF_CLIENTS | (frozenset() if user else _USER)) - {name.lower() for name, _ in self.mirrored}
        named = {word.strip().lower() for word in (request.field_of("Connection") or "").split(",")} - {_NUMBER}
        prefix = self.own.header_prefix.lower()
        foreign = tuple(each.header_prefix.lower() for each in DIALECTS.values() if each.name != self.own.name)
        fields: list[HeaderField] = []
        for name, value in request.fields:
            lower = name.lower()
            own = lower.removeprefix(prefix)
            if own != lower:
                if own in may_say:
                    fields.append((self.theirs.header(own.title()), self._passed_on(own, value)))
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

    def _user(self, request: ClientRequest) -> HeaderFields:
        """Return the caller in fields of their own, where the request has credentials (spec forms 5.6).

        A caller whose characters plain fields may lose gets credentials, which keep them.
        """
        sent = (request.field_of(self.own.header("Credentials")) or "").strip()
        plain = [request.field_of(self.own.header(name)) or "" for name in ("Username", "Group", "Roles")]
        if not sent and (not self.theirs.has_proxy or "".join(plain).isascii()):
            return ()
        try:
            user = users.parse_credentials(_decoded(sent)) if sent else users.from_headers(*map(_decoded, plain))
        except BadRequestError:  # refused where the caller must be known
            return ()
        roles = (("Roles", role.name) for role in user.roles if role.organization is None)
        pairs = (("Username", user.name), ("Group", user.group), *roles)
        fields = [self.field(name, value) for name, value in pairs if value and value.isprintable()]
        return fields if sent else [*fields, self.field("Credentials", users.credentials_of(user))]


@dataclass(frozen=True, slots=True)
class NothingForwarded(ProviderNames):
    """The names of a server that a client has named: it gets only the id of the request.

    Other headers may hold a key or a cookie that is meant for this service.
    """

    def forwarded(self, request: ClientRequest) -> HeaderFields:
        return [(name, value.encode("latin-1")) for name, value in request.fields if name.lower() == _NUMBER]


def _decoded(sent: str) -> str:
    with suppress(UnicodeError):
        return sent.encode("latin-1").decode()
    return sent


def path(*segments: str) -> str:
    """Return a path of percent-encoded names."""
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)
