"""Requests that a web page makes a browser send: a page of somebody else must not act through a browser that may call.

A page reaches the service under a name of its own, if the page's owner lets it mean the service's address (DNS
rebinding): so the service answers to its own names only. Or it sends a request that needs no leave (a simple request of
the Fetch standard): browsers say then, in ``Origin`` and ``Sec-Fetch-Site``, whose page it is. Neither is said by
clients that are no browsers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from persistence.errors import ForbiddenError, MisdirectedError
from persistence.limits import HOST_LENGTH, HOSTS_KEPT
from persistence.model.peers import address, binds_everywhere, host_of, is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import WSGIEnvironment

_ANY = "*"
_READS = frozenset({"GET", "HEAD"})
_OWN_SITE = frozenset({"same-origin", "none"})
"""Values of ``Sec-Fetch-Site`` for requests by the service's own pages, and by the user of a browser."""


class Names:
    """The names that the service answers to, and the origins whose pages may change something."""

    def __init__(self, bind: str, hosts: Iterable[str], origins: Iterable[str]) -> None:
        """``bind`` is the address that is served on; ``hosts`` and ``origins`` are those of the settings."""
        self._hosts = frozenset(host.lower().rstrip(".") for host in (*hosts, host_of(bind)) if host)
        self._is_everywhere = binds_everywhere(bind)
        self._origins = frozenset(origin.lower() for origin in origins)
        self._is_own = lru_cache(HOSTS_KEPT)(self._look_up)

    def require_own(self, environ: WSGIEnvironment) -> None:
        """Look at the name under which a caller without a key has reached the service.

        A browser always sends one.

        Raises:
            MisdirectedError: it is none of the service's.
        """
        host = environ.get("HTTP_HOST")
        if host and not (len(host) <= HOST_LENGTH and self._is_own(host)):
            raise MisdirectedError(
                f"this is no name of the service, whose setting hosts has them without port: {host!r}"
            )

    def require_own_page(self, environ: WSGIEnvironment) -> None:
        """Look whose page has made a browser send a request that may change something.

        Raises:
            ForbiddenError: it is somebody else's.
        """
        if environ["REQUEST_METHOD"] in _READS:
            return
        origin, site = environ.get("HTTP_ORIGIN"), environ.get("HTTP_SEC_FETCH_SITE")
        if origin is not None:
            if not self._is_own_origin(origin.lower(), environ.get("HTTP_HOST", "").lower()):
                raise ForbiddenError(f"pages elsewhere may change nothing here, see the setting origins: {origin!r}")
        elif site is not None and site not in _OWN_SITE:
            raise ForbiddenError("pages elsewhere may change nothing here, and a browser says that this is one")

    def _is_own_origin(self, origin: str, host: str) -> bool:
        """Whether an origin is that of the name under which the service was reached, or one of the settings."""
        return origin in self._origins or (host != "" and origin in (f"http://{host}", f"https://{host}"))

    def _look_up(self, host: str) -> bool:
        """Whether a ``Host`` header, with or without port, is a name of the service."""
        name = host_of(host).lower().rstrip(".")
        found = address(name)
        return (
            name in self._hosts
            or name == "localhost"
            or _ANY in self._hosts
            or is_loopback(found)
            or (self._is_everywhere and found is not None)
        )
