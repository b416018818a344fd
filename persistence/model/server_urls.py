"""Addresses of servers that forms are published to (spec crud 8.3): their one spelling, and which are allowed."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv6Address

from persistence.errors import BadRequestError, ForbiddenError
from persistence.limits import LONGEST_CREDENTIAL, LONGEST_PASSWORD, LONGEST_SERVER_URL

_AUTHORIZATION = re.compile(r"([A-Za-z]+) +[A-Za-z0-9._~+/-]+=*", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HIGHEST_PORT = 65535
_URL = re.compile(
    r"(?P<scheme>[A-Za-z]{4,5})://"
    r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:/[A-Za-z0-9._~-]*)*)"
)
"""No user, query, fragment, percent sign, backslash, or character outside of ASCII (``xn--`` for other names)."""


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
    """The server of a publication and its ``Authorization`` header; ``is_forced`` sends attachments that it has."""

    server: ServerUrl
    authorization: str | None = field(default=None, repr=False)
    is_forced: bool = False


def parse(text: str) -> ServerUrl:
    """Read an address such as ``https://forms.example.org/runtime``, with or without a slash at its end.

    One that could be read in two ways is refused: it must mean the same to the comparison and to the client.
    """
    found = _URL.fullmatch(text) if len(text) <= LONGEST_SERVER_URL else None
    scheme = found["scheme"].lower() if found else ""
    if found is None or scheme not in _DEFAULT_PORTS:
        raise BadRequestError(
            "the address of a server must be such as https://forms.example.org/runtime: http or https, a host, perhaps"
            " a port and a path of letters, digits and ._~-, and nothing else"
        )
    path = tuple(found["path"].removesuffix("/").split("/")[1:])
    if not {"", ".", ".."}.isdisjoint(path):
        raise BadRequestError("the address of a server must not have empty names, . or .. in its path")
    port = int(found["port"]) if found["port"] else _DEFAULT_PORTS[scheme]
    if not 1 <= port <= _HIGHEST_PORT:
        raise BadRequestError(f"the port of a server must be between 1 and {_HIGHEST_PORT}")
    host = found["host"].lower()
    if host.startswith("["):
        try:
            host = f"[{IPv6Address(host[1:-1]).compressed}]"
        except ValueError as error:
            raise BadRequestError("the address of a server has brackets around an invalid IPv6 address") from error
    elif not (host[0].isalnum() and host[-1].isalnum()):
        raise BadRequestError("the host of a server must begin and end with a letter or a digit")
    return ServerUrl(scheme, host, port, path)


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
