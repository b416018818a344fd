"""Who may call: everybody, trusted addresses, or whoever shows an API key (spec crud 6.1, 4.1).

Decided before anything else of a request is looked at, so that a stranger learns nothing of paths and documents. What a
proxy says of the address behind it (``X-Forwarded-For``) is not believed: the peer of the socket counts.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from werkzeug.datastructures import Authorization

from persistence.errors import ForbiddenError, PersistenceError, StartupError, UnauthorizedError, status_of
from persistence.http import health
from persistence.http.browsers import Names
from persistence.http.failures import headers_of
from persistence.http.logs import CALLER
from persistence.http.paths import sent_path
from persistence.http.responses import refusal
from persistence.keys import TRUSTED, Key, Keys, name_of
from persistence.model.peers import UNIX, Peer, Trusted, address, is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

SCHEMES = ("bearer", "basic")
"""The schemes of ``Authorization`` in which a key is looked for, in small letters."""


class Opens(Enum):
    """When everybody is let in; decided once, at the start, so that keys that vanish open nothing."""

    NEVER = "never"
    WHILE_KEYLESS = "on loopback, while there is no key"
    ALWAYS = "insecure"


@dataclass(frozen=True, slots=True)
class Policy:
    """Whom to let in without a key."""

    opens: Opens
    trusted: Trusted


def policy(trusted: Trusted, *, insecure: bool, on_loopback: bool, has_keys: bool) -> Policy:
    """The policy of a service that starts now.

    Raises:
        StartupError: nobody could call; its text says the ways out.
    """
    if insecure:
        return Policy(Opens.ALWAYS, trusted)
    if has_keys or not trusted.is_empty:
        return Policy(Opens.NEVER, trusted)
    if on_loopback:
        return Policy(Opens.WHILE_KEYLESS, trusted)
    raise StartupError(
        "bind is not a loopback address, and nobody may call: make a key (persistence key add NAME), "
        "name addresses, or unix for the Unix socket, in the setting trusted, or let everybody in (--insecure)"
    )


def caller(own: Policy, keys: tuple[Key, ...], peer: Peer, authorization: str | None) -> str | None:
    """Who calls, for the log: the name of a key, ``trusted``, or ``None`` where everybody is let in.

    ``authorization`` is the header of that name.

    Raises:
        UnauthorizedError: a key is missing or wrong.
        ForbiddenError: no key would help.
    """
    # Under gunicorn's own command another address may be bound than the settings say: the peer tells.
    if own.opens is Opens.ALWAYS or (own.opens is Opens.WHILE_KEYLESS and not keys and is_loopback(peer)):
        return None
    if keys and (secret := presented(authorization)) is not None:
        name = name_of(secret, keys)
        if name is None:
            raise UnauthorizedError("the key that was sent is not, or no longer, a key of this service")
        return name
    if own.trusted.includes(peer):
        return TRUSTED
    if keys:
        raise UnauthorizedError("this service asks for a key: Authorization: Bearer KEY, or KEY as the password")
    raise ForbiddenError(f"this service is closed to {'this caller' if peer in (None, UNIX) else peer}")


def presented(authorization: str | None) -> str | None:
    """The key in an ``Authorization`` header (RFC 6750 2.1; RFC 7617, as the password beside any user name).

    ``None`` where there is no header, or one of another scheme. One that cannot be decoded holds a key that is wrong.
    """
    if authorization is None or authorization.partition(" ")[0].lower() not in SCHEMES:
        return None
    # What is not ASCII is no Base64, and werkzeug does not catch that.
    sent = Authorization.from_header(authorization) if authorization.isascii() else None
    return (sent and (sent.token or sent.password)) or ""


def peer_of(environ: WSGIEnvironment) -> Peer:
    """The other end of the connection.

    Through a Unix socket gunicorn says ``REMOTE_ADDR`` is empty, or the path of the client's own socket, which the
    client chooses and may have called ``127.0.0.1``; so the socket is asked first.
    """
    connection = environ.get("gunicorn.socket")
    if connection is not None and connection.family == socket.AF_UNIX:
        return UNIX
    return address(environ.get("REMOTE_ADDR", ""))


class CallersOnly:
    """WSGI middleware that hands on the requests of those who may call, and tells the log who it is.

    A caller who has shown a key may reach the service under any name: no page of somebody else's has the key.
    """

    def __init__(self, app: WSGIApplication, own: Policy, keys: Keys, names: Names) -> None:
        self._app = app
        self._policy = own
        self._keys = keys
        self._names = names

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Hand a request on, or answer 401, 403 or 421; 500 where the keys cannot be read."""
        try:
            self._admit(environ)
        except PersistenceError as error:
            answer = refusal(environ, status_of(error), str(error), headers_of(error))
            return answer(environ, start_response)
        return self._app(environ, start_response)

    def _admit(self, environ: WSGIEnvironment) -> None:
        try:
            name = None
            if self._policy.opens is not Opens.ALWAYS:
                name = caller(self._policy, self._keys.read(), peer_of(environ), environ.get("HTTP_AUTHORIZATION"))
            if name in (None, TRUSTED):
                self._names.require_own(environ)
            self._names.require_own_page(environ)
        except PersistenceError:
            if _is_health(environ):
                environ[health.IS_STRANGER] = True
                return
            raise
        if name is not None:
            environ[CALLER] = name


def _is_health(environ: WSGIEnvironment) -> bool:
    """Whether a supervisor asks, who has no key: in the very words of these paths, in no other spelling."""
    try:
        return sent_path(environ) in health.PATHS
    except ValueError:
        return False
