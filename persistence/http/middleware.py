"""WSGI middleware that refuses requests: of strangers, and those that are not clean.

Callers are admitted (spec crud 6.1, 4.1) all, by trusted address, or by API key. That is decided before anything else
of a request is looked at, so that a stranger learns nothing of paths and documents. What a proxy says of the address
behind it (``X-Forwarded-For``) is not believed: the peer of the socket counts.

A web page of a third party must not act through a browser that may call. It reaches the service under a name of its
own, if the page's owner lets that name mean the service's address (DNS rebinding): so the service answers to its own
names only. Or it makes the browser send a request that needs no permission (a simple request of the Fetch standard):
browsers then name the page's origin in ``Origin`` and ``Sec-Fetch-Site``. Other clients send neither header.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from werkzeug.datastructures import Authorization

from persistence import client_request
from persistence.client_request import ClientRequest
from persistence.dialect import DIALECTS, Dialect
from persistence.errors import (
    DamagedError,
    DiskError,
    ForbiddenError,
    MisdirectedError,
    NotFoundError,
    PersistenceError,
    StartupError,
    UnauthorizedError,
    status_of,
)
from persistence.http.application import HEALTH_PATHS, IS_STRANGER, LIMITED_KEY, METRICS_PATH, PAGES_PATH, ROOT_PATH
from persistence.http.logs import CALLER, REQUEST_ID
from persistence.http.parsing import REQUEST_NAMES, UNCLEAR, environ_key, peer_of
from persistence.http.responses import headers_of, refusal
from persistence.keys import TRUSTED, Key, Keys, key_of, refusal_of
from persistence.limits import HOST_LENGTH
from persistence.model.network_addresses import (
    UNIX,
    Peer,
    Trusted,
    binds_everywhere,
    host_of,
    is_loopback,
    peer_address,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

SCHEMES = ("bearer", "basic")  # The schemes of ``Authorization`` in which a key is looked for, in small letters

_READS = frozenset({"GET", "HEAD"})
_OWN_SITE = frozenset({"same-origin", "none"})
"""Values of ``Sec-Fetch-Site`` for requests by the service's own pages, and by the user of a browser."""


class Opens(Enum):
    """When every caller is admitted; decided once, at the start, so that keys that vanish open nothing."""

    NEVER = "never"
    WHILE_KEYLESS = "on loopback, while there is no key"
    ALWAYS = "insecure"


@dataclass(frozen=True, slots=True)
class Policy:
    """The callers that are let in without a key."""

    opens: Opens
    trusted: Trusted


def policy(trusted: Trusted, *, insecure: bool, on_loopback: bool, has_keys: bool) -> Policy:
    if insecure:
        return Policy(Opens.ALWAYS, trusted)
    if has_keys or not trusted.is_empty:
        return Policy(Opens.NEVER, trusted)
    if on_loopback:
        return Policy(Opens.WHILE_KEYLESS, trusted)
    raise StartupError(
        "bind is not a loopback address, and nobody may call: make a key (persistence api-key new NAME), "
        "name addresses, or unix for the Unix socket, in the setting trusted, or let everybody in (--insecure)"
    )


def caller(
    own: Policy,
    keys: tuple[Key, ...],
    peer: Peer,
    authorization: str | None,
    retired: Callable[[], Iterable[Key]] = tuple,
) -> Key | str | None:
    """Return who calls: a key, ``trusted``, or ``None`` for anybody; ``authorization`` is the header."""
    # Under gunicorn's own command another address may be bound than in the settings: the peer shows it.
    if own.opens is Opens.ALWAYS or (own.opens is Opens.WHILE_KEYLESS and not keys and is_loopback(peer)):
        return None
    if keys and (secret := presented(authorization)) is not None:
        key = key_of(secret, keys)
        if key is None:
            raise UnauthorizedError(refusal_of(secret, keys, retired()))
        return key
    if own.trusted.includes(peer):
        return TRUSTED
    if keys:
        raise UnauthorizedError("this service asks for a key: Authorization: Bearer KEY, or KEY as the password")
    raise ForbiddenError(f"this service is closed to {'this caller' if peer in (None, UNIX) else peer}")


def presented(authorization: str | None) -> str | None:
    """Return the key in an ``Authorization`` header (RFC 6750 2.1; RFC 7617, as the password beside any user name).

    ``None`` where there is no header, or one of another scheme. One that cannot be decoded holds a wrong key.
    """
    if authorization is None or authorization.partition(" ")[0].lower() not in SCHEMES:
        return None
    # Base64 is ASCII, and werkzeug does not catch other characters.
    sent = Authorization.from_header(authorization) if authorization.isascii() else None
    return (sent and (sent.token or sent.password)) or ""


class AllowedSites:
    """The names that the service answers to, and the origins whose pages may change something."""

    def __init__(self, binds: Iterable[str], hosts: Iterable[str], origins: Iterable[str]) -> None:
        own = tuple(binds)
        self._hosts = frozenset(host.lower().rstrip(".") for host in (*hosts, *map(host_of, own)) if host)
        self._is_everywhere = any(map(binds_everywhere, own))
        self._origins = frozenset(origin.lower() for origin in origins)

    def check(self, environ: WSGIEnvironment, *, has_key: bool) -> None:
        """Check the name under which a caller without a key has reached the service, which a browser always sends.

        And check whose page has made a browser send a request that may change something.
        """
        host = environ.get("HTTP_HOST")
        if not has_key and host and not (len(host) <= HOST_LENGTH and self._is_own(host)):
            raise MisdirectedError(f"the setting hosts, which has names without port, does not have this one: {host!r}")
        if environ["REQUEST_METHOD"] in _READS:
            return
        origin, site = environ.get("HTTP_ORIGIN"), environ.get("HTTP_SEC_FETCH_SITE")
        if origin is not None:
            page, own = origin.lower(), (host or "").lower()
            if page not in self._origins and not (own and page in (f"http://{own}", f"https://{own}")):
                raise ForbiddenError(f"pages elsewhere may change nothing here, see the setting origins: {origin!r}")
        elif site is not None and site not in _OWN_SITE:
            raise ForbiddenError("pages elsewhere may change nothing here, and a browser says that this is one")

    def _is_own(self, host: str) -> bool:
        name = host_of(host).lower().rstrip(".")
        if name in self._hosts or name == "localhost" or "*" in self._hosts:
            return True
        found = peer_address(name)
        return is_loopback(found) or (self._is_everywhere and found is not None)


@dataclass(slots=True)
class CallersOnly:
    """WSGI middleware that passes on the requests of those who may call, and records the caller for the log.

    A caller who has shown a key may reach the service under any name: no page of a third party has the key. The pages
    for administrators decide by their sessions who may see them.

    ``has_pages`` returns whether the pages are on; like ``keys`` it raises ``DiskError`` and ``DamagedError``.
    ``readers_of_metrics`` may read ``/metrics`` without a key, and nothing else. Where there is an ``admin_bind``, the
    pages are there alone: what is stored has another origin for a browser. ``used`` is called with the name of each key
    that opened something.
    """

    app: WSGIApplication
    policy: Policy
    keys: Keys
    sites: AllowedSites
    readers_of_metrics: Trusted
    admin_bind: str
    has_pages: Callable[[], bool]
    used: Callable[[str], None]
    _of_pages: str | int = field(init=False)

    def __post_init__(self) -> None:
        path = self.admin_bind.removeprefix(f"{UNIX}:")
        self._of_pages = path if path != self.admin_bind else int(self.admin_bind.rpartition(":")[2] or 0)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = "" if UNCLEAR in environ else environ["PATH_INFO"]
        is_page = f"{path}/".startswith(f"{PAGES_PATH}/")
        is_here = True
        if self._of_pages and path not in HEALTH_PATHS:
            reached = environ["gunicorn.socket"].getsockname()  # of a Unix socket its path, else with the port
            is_here = ((reached if isinstance(reached, str) else reached[1]) == self._of_pages) is is_page
        try:
            if is_page and is_here and self.has_pages():
                self.sites.check(environ, has_key=False)
                return self.app(environ, start_response)
            who = self._caller(environ, path)
            if not is_here:
                raise NotFoundError("there is nothing under this path at this address, see the setting admin_bind")
        except PersistenceError as error:
            if path not in (*HEALTH_PATHS, ROOT_PATH) or not is_here:
                # Callers may be anybody, and the cause tells how the file of the keys is made.
                less = "the keys of callers cannot be read: the log of the service says why"
                shown = less if isinstance(error, DamagedError | DiskError) else None
                answer = refusal(environ, status_of(error), str(error), headers_of(error), shown=shown)
                return answer(environ, start_response)
            environ[IS_STRANGER] = True
        else:
            if isinstance(who, Key):
                environ[CALLER] = who.name
                if who.is_limited:
                    environ[LIMITED_KEY] = who
                self.used(who.name)
            elif who is not None:
                environ[CALLER] = who
        return self.app(environ, start_response)

    def _caller(self, environ: WSGIEnvironment, path: str) -> Key | str | None:
        who, peer = None, peer_of(environ)
        if self.policy.opens is not Opens.ALWAYS:
            try:
                who = caller(self.policy, self.keys.read(), peer, environ.get("HTTP_AUTHORIZATION"), self.keys.retired)
            except (UnauthorizedError, ForbiddenError):
                if not (self.readers_of_metrics.includes(peer) and path == METRICS_PATH):
                    raise
        self.sites.check(environ, has_key=isinstance(who, Key))
        return who


@dataclass(frozen=True, slots=True)
class Forwarding:
    """WSGI middleware that keeps each request for the calls of other services, while it is served (spec crud 3).

    They get no ``Authorization``, in which a key for this service may be, unless the caller is trusted without one.
    """

    app: WSGIApplication

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        fields = []
        for key, value in environ.items():
            if key == "HTTP_AUTHORIZATION" and environ.get(CALLER) != TRUSTED:
                continue
            if key.startswith("HTTP_") and key != "HTTP_X_REQUEST_ID":
                fields.append((key.removeprefix("HTTP_").replace("_", "-").title(), value))
        if REQUEST_ID in environ:
            fields.append(("X-Request-Id", environ[REQUEST_ID]))
        query = environ.get("QUERY_STRING", "")
        client_request.begin(ClientRequest(environ["REQUEST_METHOD"], query, tuple(fields)))
        return self.app(environ, start_response)


class CleanRequests:
    """WSGI middleware that answers 400 to unclean requests, and unless ``accepts_foreign`` to another dialect's."""

    def __init__(self, app: WSGIApplication, dialect: Dialect, *, accepts_foreign: bool) -> None:
        self._app = app
        self._dialect = dialect
        others = [other for other in DIALECTS.values() if other != dialect and not accepts_foreign]
        names = ((other.header(name), dialect.header(name)) for other in others for name in REQUEST_NAMES)
        self._foreign = {environ_key(sent): (sent, own) for sent, own in names}
        self._foreign_keys = frozenset(self._foreign)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            self._require_clean(environ)
        except ValueError as error:
            return refusal(environ, HTTPStatus.BAD_REQUEST, str(error))(environ, start_response)
        return self._app(environ, start_response)

    def _require_clean(self, environ: WSGIEnvironment) -> None:
        if UNCLEAR in environ:
            raise ValueError(environ[UNCLEAR])
        query = environ.get("QUERY_STRING", "")
        for part in query.split("&") if "%" in query or not query.isascii() else ():
            try:  # it would be decoded to U+FFFD: two different texts would become one
                unquote_to_bytes(part.encode("latin-1")).decode()
            except UnicodeError:
                raise ValueError(f"the parameter {part.partition('=')[0]!r} is not UTF-8") from None
        if not self._foreign_keys.isdisjoint(environ) and environ["PATH_INFO"] not in HEALTH_PATHS:
            sent, own = self._foreign[min(self._foreign_keys.intersection(environ))]
            raise ValueError(f"this service speaks dialect {self._dialect.name!r}: it reads {own}, not {sent}")
