"""How names of this service are said to another one, which may speak another dialect; and what is told of a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from persistence.client_request import ClientRequest
from persistence.dialect import DIALECTS, Dialect
from persistence.errors import BadRequestError
from persistence.model import users
from persistence.model.addresses import Address, DefinitionAddress, Form

Field = tuple[str, bytes]
Fields = Sequence[Field]
"""Header fields on their way out; values are bytes, because nobody needs to know their encoding."""

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""What says something of one connection (RFC 9110 7.6.1)."""

_OF_THE_PROXY = frozenset(
    {
        "accept-encoding",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "cookie2",
        "expect",
        "host",
    }
)
"""What is not handed on besides (spec crud 3), and what was done already when a body was received."""

_DECIDED_HERE = frozenset(
    {
        "origin",
        "sec-fetch-site",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "range",
    }
)
"""Conditions and ranges: they are judged by what this service sends itself."""

_OF_CLIENTS = frozenset({"create-flat-view", "credentials", "path-to-holder"})
"""Fields of the service's own, without prefix, that a client may say to a provider (spec crud 3, search 7).

The others say what this service has decided or alone may say, or are those of answers. A provider believes them.
"""

_NUMBER = "x-request-id"
"""The number of the request, which this service gives it."""

_USER = frozenset(("username", "group", "roles"))


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one provider: ``own`` is the dialect that is spoken here, ``theirs`` the one spoken there.

    ``mirrored`` are its properties as fields, without prefix (spec crud 10.3).
    """

    own: Dialect
    theirs: Dialect
    mirrored: tuple[tuple[str, str], ...] = ()

    def app(self, app: str) -> str:
        """The name there of an application here, and the other way round: the designers' two change places."""
        pair = {self.own.designer_app: self.theirs.designer_app, self.theirs.designer_app: self.own.designer_app}
        return pair.get(app, app)

    def form(self, form: Form) -> Form:
        """A form here as it is called there, and the other way round."""
        return replace(form, app=self.app(form.app))

    def path(self, address: Address) -> str:
        """The path of a resource below the base of the provider, percent-encoded."""
        form = self.form(address.form)
        if isinstance(address, DefinitionAddress):
            return path("crud", form.app, form.name, "form", address.name)
        return path("crud", form.app, form.name, address.collection.value, address.document, address.name)

    def field(self, name: str, value: str) -> Field:
        """A field of the service's own."""
        return self.theirs.header(name), value.encode()

    def told(self, request: ClientRequest) -> Fields:
        """What of a client's request every call for it says: who calls, other fields, and the provider's properties.

        Fields of the service's own get the prefix of the provider. Those of another dialect are left out: nobody has
        judged what they say.
        """
        mirrored = {name.lower() for name, _ in self.mirrored}
        user = list(self._user(request))
        may_say = (_OF_CLIENTS | (frozenset() if user else _USER)) - mirrored
        fields: list[Field] = []
        for name, value in self._handed_on(request):
            own = self._without_prefix(name)
            if own is None:
                fields.append((name, value.encode("latin-1")))
            elif own in may_say:
                fields.append((self.theirs.header(own.title()), value.encode("latin-1")))
        fields += user
        fields += (self.field(name, value) for name, value in self.mirrored)
        return fields

    def _handed_on(self, request: ClientRequest) -> Iterator[tuple[str, str]]:
        """The fields that go further than this service.

        What ``Connection`` names does not (RFC 9110 7.6.1), but for what was judged here: a client must not be
        another user there than here.
        """
        named = {word.strip().lower() for word in (request.field_of("Connection") or "").split(",")}
        left_out = _HOP_BY_HOP | _OF_THE_PROXY | _DECIDED_HERE
        others = tuple(each.header_prefix.lower() for each in DIALECTS.values() if each.name != self.own.name)
        for name, value in request.fields:
            is_taken_back = name.lower() in named and name.lower() != _NUMBER and self._without_prefix(name) is None
            if name.lower() not in left_out and not name.lower().startswith(others) and not is_taken_back:
                yield name, value

    def _without_prefix(self, name: str) -> str | None:
        prefix = self.own.header_prefix.lower()
        return name.lower().removeprefix(prefix) if name.lower().startswith(prefix) else None

    def _user(self, request: ClientRequest) -> Iterable[Field]:
        """The caller in fields of their own, where the request says it in one (spec forms 5.6)."""
        sent = request.field_of(self.own.header("Credentials"))
        if not sent or not sent.strip():
            return ()
        try:
            user = users.parse_credentials(sent.encode("latin-1").decode())
        except (BadRequestError, UnicodeError):  # refused by whoever needs to know the caller
            return ()
        said = (("Username", user.name), ("Group", user.group))
        roles = (("Roles", role.name) for role in user.roles if role.organization is None)
        return [self.field(name, value) for name, value in (*said, *roles) if value and value.isprintable()]


def path(*segments: str) -> str:
    """A path of names, each percent-encoded."""
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)
