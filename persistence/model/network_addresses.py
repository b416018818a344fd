"""Addresses of other machines: peers, servers that are published to, and buckets of object stores."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal
from urllib.parse import parse_qs, urlsplit

from persistence.errors import BadRequestError, ForbiddenError, StartupError
from persistence.limits import LONGEST_CREDENTIAL, LONGEST_PASSWORD, LONGEST_SERVER_URL

Unix = Literal["unix"]
Peer = IPv4Address | IPv6Address | Unix | None
"""The other end: its address, ``"unix"`` through a Unix socket, ``None`` where it is not known."""

UNIX: Unix = "unix"
_UNIX_BIND = "unix:"
_MAPPED = IPv6Network("::ffff:0:0/96")


@lru_cache(maxsize=1024)
def peer_address(text: str) -> IPv4Address | IPv6Address | None:
    """Read an address as sockets show it, an IPv4-mapped one as IPv4; return ``None`` for any other text."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return found if isinstance(found, IPv4Address) else found.ipv4_mapped or found


def binds_loopback(bind: str) -> bool:
    """Return whether only this machine reaches a service on ``bind``: ``HOST:PORT`` as in the settings."""
    # A Unix socket is not loopback: its users may stand for others, as a proxy does. Nor is a name other than
    # ``localhost``, which is not looked up.
    host = host_of(bind)
    found = peer_address(host)
    return host.lower() == "localhost" or (found is not None and found.is_loopback)


def binds_everywhere(bind: str) -> bool:
    found = peer_address(host_of(bind))
    return found is not None and found.is_unspecified


def host_of(text: str) -> str:
    """Return the name or address in ``HOST:PORT`` or ``HOST``, without brackets; empty of a Unix socket."""
    if text.startswith(_UNIX_BIND):
        return ""
    host, colon, port = text.rpartition(":")
    is_with_port = bool(colon) and "]" not in port and (host.startswith("[") or ":" not in host)
    return (host if is_with_port else text).strip("[]")


@dataclass(frozen=True, slots=True)
class Trusted:
    """The peers that may call without a key."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    unix: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.networks and not self.unix

    def includes(self, peer: Peer) -> bool:
        if isinstance(peer, IPv4Address | IPv6Address):
            return any(peer in network for network in self.networks)
        return self.unix and peer == UNIX


def parse_trusted(entries: Iterable[str]) -> Trusted:
    """Read the entries of the setting ``trusted``: addresses, networks such as 10.0.0.0/8, and the word ``unix``."""
    texts = list(entries)
    networks = []
    for text in (text for text in texts if text != UNIX):
        try:
            network = ip_network(text)
        except ValueError as error:
            raise StartupError(f"{error}; an entry is an IP address, a network or the word unix") from error
        if isinstance(network, IPv6Network):
            if "%" in text:  # networks are compared without it: more would be trusted than intended
                raise StartupError(f"{text!r} has a zone, which is not compared: leave it out")
            if network.subnet_of(_MAPPED):
                mapped = int(network.network_address) & 0xFFFFFFFF
                network = IPv4Network((mapped, network.prefixlen - _MAPPED.prefixlen))
        networks.append(network)
    return Trusted(tuple(networks), UNIX in texts)


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


def parse_server_url(text: str) -> ServerUrl:
    """Read an address such as ``https://forms.example.org/runtime``, with or without a slash at its end."""
    # One that could be read in two ways is refused: it must mean the same to the comparison and to the client.
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
    url = parse_server_url(text)
    if not any(each.includes(url) for each in allowed):
        raise ForbiddenError(
            "publishing to that server is not allowed: no address in the setting publish_to includes it"
        )
    return url


SCHEME = "s3"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,62}")
_NAME = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*")
_LONGEST_PREFIX = 256


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, and a ``prefix`` of keys; the environment has ``endpoint`` and ``region`` where they are empty."""

    name: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""

    def __str__(self) -> str:
        return f"{SCHEME}://{self.name}/{self.prefix}".rstrip("/")

    def holds(self, other: Bucket) -> bool:
        is_below = not self.prefix or f"{other.prefix}/".startswith(f"{self.prefix}/")
        return (self.name, self.endpoint) == (other.name, other.endpoint) and is_below

    def meets(self, other: Bucket) -> bool:
        """Return whether this and another place may have keys in common: one without an endpoint may be anywhere."""
        endpoint = self.endpoint if self.endpoint and other.endpoint else other.endpoint
        here, there = replace(self, endpoint=endpoint), replace(other, endpoint=other.endpoint or endpoint)
        return here.holds(there) or there.holds(here)


def is_bucket(text: str) -> bool:
    return text.strip().lower().startswith(f"{SCHEME}:")


def parse_bucket(text: str, endpoint: str = "", region: str = "") -> Bucket:
    name, _, prefix = text.strip().removeprefix(f"{SCHEME}://").partition("/")
    prefix = prefix.strip("/")
    names = prefix.split("/") if prefix else []
    if not _BUCKET.fullmatch(name) or len(prefix) > _LONGEST_PREFIX or not all(map(_NAME.fullmatch, names)):
        instead = "" if "@" in text else f", not {text!r}"
        raise BadRequestError(
            f"must be {SCHEME}://BUCKET/PREFIX, of letters, digits and the signs . _ = - (no user, no query){instead}"
        )
    return Bucket(name, prefix, endpoint, region)


def parse_addressed_bucket(text: str) -> Bucket:
    """Read an address ``s3://BUCKET/PREFIX?endpoint=URL&region=NAME``; both may be missing."""
    address, _, query = text.strip().partition("?")
    given = parse_qs(query, keep_blank_values=True)
    is_known = set(given) <= {"endpoint", "region"} and all(len(values) == 1 for values in given.values())
    if not is_bucket(address) or not is_known:
        raise BadRequestError(f"must be {SCHEME}://BUCKET/PREFIX?endpoint=URL&region=NAME, without anything else")
    endpoint, region = ("".join(given.get(name, ())) for name in ("endpoint", "region"))
    return parse_bucket(address, object_endpoint(endpoint), region)


def object_endpoint(text: str) -> str:
    """Read the address of a store that speaks S3; blank is empty."""
    given = text.strip()
    try:
        parts = urlsplit(given)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_address = False
    if given and (not is_address or "@" in given or parts.path.strip("/") or parts.query or parts.fragment):
        instead = "" if "@" in given else f", not {given!r}"
        raise BadRequestError(f"must be an address such as https://s3.example.org, without user or path{instead}")
    return given.rstrip("/")
