"""The start of a service: the lines about what it serves, to whom and where, and whether its address is free."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from persistence import __version__
from persistence.app import (
    open_settled_audit,
    policy_of,
    warn_of,
    warn_of_encryption_keys,
    warn_of_keys,
    warn_of_properties,
)
from persistence.errors import StartupError
from persistence.http.logs import choose
from persistence.http.middleware import Opens, Policy
from persistence.pages.sessions import Administrators
from persistence.properties.property_table import TREE, is_database
from persistence.providers.locations import bases_of, buckets_of, open_keys
from persistence.providers.opened import probe
from persistence.settings import Effective, Settings, inherits_socket

_UNIX = "unix:"
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared, not bound
_LONGEST_WAIT = 2.0


@dataclass(frozen=True, slots=True)
class Served:
    """The settings in force, with the policy of callers: a worker that is replaced must not decide otherwise."""

    effective: Effective
    policy: Policy

    @classmethod
    def of(cls, effective: Effective) -> Self:
        """Check whether everything can be served, and report shortcomings: once, not in every worker."""
        settings, properties = effective.settings, effective.properties
        choose(settings.log_format, settings.log_level)
        policy = policy_of(settings)
        warn_of_encryption_keys(settings, properties)
        open_settled_audit(settings, properties).close()
        warn_of_keys(settings)
        warn_of_properties(properties)
        warn_of(probe(settings, properties))
        return cls(effective, policy)

    @property
    def settings(self) -> Settings:
        return self.effective.settings


def lines(served: Served, bind: str | None = None) -> Iterator[str]:
    """The lines for the log of a service that starts; ``bind`` is its address where that is not the setting's."""
    settings, properties, policy = served.settings, served.effective.properties, served.policy
    yield f"version {__version__}, dialect {settings.dialect}"
    yield _place(settings.roots.default)
    for name, place in settings.roots.named.items():
        yield f"{_place(place)} (datasource {name})"
    for path in bases_of(properties):
        yield f"attachments in {path}"
    for bucket in buckets_of(properties):
        yield f"attachments in {bucket}"
    for provider in properties.form_providers:
        if provider.kind != TREE:
            yield f"forms of the provider {provider.name} with {provider.uri}"
    if settings.audit != "off":
        yield f"audit: {settings.audit_file if settings.audit == 'file' else settings.audit}"
    yield f"may call: {_callers(settings, policy)}"
    yield _address(bind or settings.bind)
    yield _pages(settings, settings.admin_bind or bind or settings.bind)


def _place(place: str) -> str:
    return place if is_database(place) else f"data directory {place}"


def _callers(settings: Settings, policy: Policy) -> str:
    if policy.opens is Opens.ALWAYS:
        return "everybody who reaches the address (insecure)"
    keys = len(open_keys(settings).read())
    if policy.opens is Opens.WHILE_KEYLESS and not keys:
        return "every program of this machine, until there is an API key ('persistence api-key new NAME')"
    who = [f"callers with one of {keys} API keys" if keys > 1 else "callers with the API key"] if keys else []
    if settings.trusted:
        who.append(f"without a key {', '.join(settings.trusted)}")
    return ", ".join(who) or "nobody: the API keys are gone"


def _address(bind: str) -> str:
    if bind.startswith(_UNIX):
        path = bind.removeprefix(_UNIX)
        return f"at {bind}; try: curl --unix-socket {path} http://localhost/readyz"
    url = url_of(bind)
    if url is None:
        return f"at {bind.rpartition(':')[0]}, on a port that is free: see the line 'Listening at'"
    return f"at http://{bind}; try: curl {url}/readyz"


def _pages(settings: Settings, bind: str) -> str:
    url = url_of(bind)
    path = f"{'' if url is None or url.startswith(_UNIX) else url}/admin/"
    if Administrators(open_keys(settings), frozenset(settings.administrators)).exist():
        return f"pages for administrators: {path}"
    return f"pages for administrators: none until 'persistence password set NAME'; then {path}"


def url_of(bind: str) -> str | None:
    """Return the URL to call a service on its machine; ``None`` for a port that the system chooses."""
    if bind.startswith(_UNIX):
        return bind
    host, _, port = bind.rpartition(":")
    return f"http://{_EVERYWHERE.get(host, host)}:{port}" if int(port) else None


def require_free(bind: str) -> None:
    """Make sure that an address can be served on: gunicorn tries for five seconds, with a line for each."""
    if inherits_socket():
        return
    try:
        if bind.startswith(_UNIX):
            _try_path(bind.removeprefix(_UNIX))
        else:
            host, _, port = bind.rpartition(":")
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, address = found[0]
            with socket.socket(family, kind, protocol) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(address)
    except OSError as error:
        cause = "another program serves there" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise StartupError(
            f"cannot serve on {bind}: {cause}; another address: --bind HOST:PORT, PERSISTENCE_BIND or the setting bind"
        ) from error


def _try_path(path: str) -> None:
    """Raise if a process answers at the path of a socket: gunicorn would take the socket away from it."""
    with socket.socket(socket.AF_UNIX) as tried:
        tried.settimeout(_LONGEST_WAIT)
        try:
            tried.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
