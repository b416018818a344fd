"""Addresses of other servers: their one spelling, and whether an address is below another.

Publishers name the server that a form is published to (spec crud 8.3), and the settings say which servers that may be.
An address that could be read in two ways is refused, so that it means the same to the comparison and to the client.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv6Address

from persistence.errors import BadRequestError, ForbiddenError
from persistence.limits.requests import LONGEST_CREDENTIAL, LONGEST_PASSWORD, LONGEST_SERVER_URL

_AUTHORIZATION = re.compile(r"([A-Za-z]+) +[A-Za-z0-9._~+/-]+=*", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HIGHEST_PORT = 65535
_URL = re.compile(
    r"(?P<scheme>[A-Za-z]{4,5})://"
    r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:/[A-Za-z0-9._~-]*)*)"
)
"""No user, query, fragment, percent sign, backslash, or character outside of ASCII.

Internationalized names are written in their ASCII form (``xn--``).
"""


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """The address of a server: ``host`` in small letters, an IPv6 address in brackets; ``port`` is never left out."""

    scheme: str
    host: str
    port: int
    path: tuple[str, ...]

    def includes(self, other: ServerUrl) -> bool:
        """Return whether another address is this one, or below its path."""
        is_same_server = (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port)
        return is_same_server and other.path[: len(self.path)] == self.path

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}{''.join(f'/{segment}' for segment in self.path)}"


@dataclass(frozen=True, slots=True)
class RemoteTarget:
    """The server of a publication. ``authorization`` is the header of that name with which it is called.

    ``is_forced`` says that attachments are sent although the server has them.
    """

    server: ServerUrl
    authorization: str | None = field(default=None, repr=False)
    is_forced: bool = False


def parse(text: str) -> ServerUrl:
    """Read an address such as ``https://forms.example.org/runtime``, with or without a slash at its end."""
    found = _URL.fullmatch(text) if len(text) <= LONGEST_SERVER_URL else None
    scheme = found["scheme"].lower() if found else ""
    if found is None or scheme not in _DEFAULT_PORTS:
        raise BadRequestError(
            "the address of a server must be such as https://forms.example.org/runtime: http or https, a host, perhaps"
            " a port and a path of letters, digits and ._~-, and nothing else"
        )
    path = tuple(found["path"].removesuffix("/").split("/")[1:])
    if not {"", ".", ".."}.isdisjoint(path):
        raise BadRequestError("the address of a server must not have dots or nothing for a name in its path")
    port = int(found["port"]) if found["port"] else _DEFAULT_PORTS[scheme]
    if not 1 <= port <= _HIGHEST_PORT:
        raise BadRequestError(f"the port of a server must be between 1 and {_HIGHEST_PORT}")
    return ServerUrl(scheme, _host(found["host"].lower()), port, path)


def basic_authorization(name: str, password: str) -> str | None:
    """Return the header for a user and a password (RFC 7617); ``None`` where neither is given."""
    if not name and not password:
        return None
    if ":" in name or not (name + password).isprintable() or max(len(name), len(password)) > LONGEST_PASSWORD:
        raise BadRequestError(
            f"the username and the password for another server have at most {LONGEST_PASSWORD} characters each, no"
            " control characters, and the username has no colon"
        )
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def parse_authorization(text: str) -> str:
    """Read a header such as ``Bearer KEY`` that is meant for another server."""
    found = _AUTHORIZATION.fullmatch(text) if len(text) <= LONGEST_CREDENTIAL else None
    if found is None or found[1].lower() not in ("basic", "bearer"):
        raise BadRequestError("the header that ends in Remote-Authorization must be Basic or Bearer, and a token")
    return text


def require_allowed(text: str, allowed: Iterable[ServerUrl]) -> ServerUrl:
    """Read an address that must be one of those allowed, or below one of them."""
    url = parse(text)
    if not any(each.includes(url) for each in allowed):
        raise ForbiddenError(
            "publishing to that server is not allowed: no address in the setting publish_to includes it"
        )
    return url


def _host(text: str) -> str:
    if not text.startswith("["):
        if not (text[0].isalnum() and text[-1].isalnum()):
            raise BadRequestError("the host of a server must begin and end with a letter or a digit")
        return text
    try:
        return f"[{IPv6Address(text[1:-1]).compressed}]"
    except ValueError as error:
        raise BadRequestError("the address of a server has brackets around what is no IPv6 address") from error
