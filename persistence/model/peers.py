"""Peers: the address at the other end of a connection, and the ones that may call without a key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

from persistence.errors import StartupError

Unix = Literal["unix"]
Peer = IPv4Address | IPv6Address | Unix | None
"""The other end: its address, ``"unix"`` through a Unix socket, ``None`` where it is not known."""

UNIX: Unix = "unix"
_UNIX_BIND = "unix:"
_MAPPED = IPv6Network("::ffff:0:0/96")


@lru_cache(maxsize=1024)
def address(text: str) -> IPv4Address | IPv6Address | None:
    """Read an address as sockets show it, an IPv4-mapped one as IPv4; return ``None`` for any other text."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return found if isinstance(found, IPv4Address) else found.ipv4_mapped or found


def is_loopback(peer: Peer) -> bool:
    return isinstance(peer, IPv4Address | IPv6Address) and peer.is_loopback


def binds_loopback(bind: str) -> bool:
    """Return whether only this machine reaches a service on ``bind``: ``HOST:PORT`` as in the settings.

    A Unix socket is not loopback: its users may stand for others, as a proxy does. Nor is a name other than
    ``localhost``, which is not looked up.
    """
    host = host_of(bind)
    return host.lower() == "localhost" or is_loopback(address(host))


def binds_everywhere(bind: str) -> bool:
    """Return whether a service on ``bind`` is reached under every address of this machine."""
    found = address(host_of(bind))
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


def parse(entries: Iterable[str]) -> Trusted:
    """Read the entries of the setting ``trusted``: addresses, networks such as 10.0.0.0/8, and the word ``unix``."""
    texts = list(entries)
    return Trusted(tuple(_network(text) for text in texts if text != UNIX), UNIX in texts)


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        network = ip_network(text)
    except ValueError as error:
        raise StartupError(f"{error}; an entry is an IP address, a network or the word unix") from error
    if isinstance(network, IPv4Network):
        return network
    if "%" in text:  # networks are compared without it: more would be trusted than intended
        raise StartupError(f"{text!r} has a zone, which is not compared: leave it out")
    if network.subnet_of(_MAPPED):
        return IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - _MAPPED.prefixlen))
    return network
