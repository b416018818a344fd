"""The URI of a request as it was sent, under a server that hands on only its decoded path: granian.

After decoding, ``%2F`` looks like a separator. So a proxy in front says in a header which URI it has received. The
header is believed only of a proxy that the settings name, and only if it decodes to the path and query of the request:
who could set it might say which slashes were encoded, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

from persistence.http.parsing import environ_key, peer_of
from persistence.http.paths import UNCLEAR

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from persistence.model.peers import Trusted

SENT_URI = "X-Sent-Uri"
"""The header in which a proxy says the URI of a request."""

_KEY = environ_key(SENT_URI)
_SCHEME_KEY = "HTTP_X_FORWARDED_PROTO"
_INSIGNIFICANT = frozenset({"HTTP_HOST", "HTTP_COOKIE", "HTTP_USER_AGENT", "HTTP_REFERER"})
"""Headers that may be empty: no rule takes an empty one for another."""


class SentUris:
    """WSGI middleware that sets ``RAW_URI``, or the reason why the URI is not known: then the request is refused.

    A proxy of ``proxies`` may also say that it was reached through TLS. Under a server that sets ``RAW_URI`` itself,
    nothing is changed.
    """

    def __init__(self, app: WSGIApplication, proxies: Trusted) -> None:
        self._app = app
        self._proxies = proxies

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        said = environ.pop(_KEY, None)
        if "RAW_URI" not in environ:
            is_proxy = self._proxies.includes(peer_of(environ))
            if is_proxy and environ.get(_SCHEME_KEY) == "https":
                environ["wsgi.url_scheme"] = "https"
            try:
                _require_significant(environ)
                environ["RAW_URI"] = sent_uri(environ["PATH_INFO"], environ["QUERY_STRING"], said, is_proxy=is_proxy)
            except ValueError as error:
                environ[UNCLEAR] = str(error)
        return self._app(environ, start_response)


def sent_uri(path: str, query: str, said: str | None, *, is_proxy: bool) -> str:
    """Return the URI of a request: of its decoded ``path``, in Latin-1, its ``query``, and what the header says."""
    if said is None:
        if path.startswith("/") and path.count("/") == 1:  # the slash at the beginning cannot have been encoded
            return f"{quote(path.encode('latin-1'))}?{query}"
        raise ValueError(f"the path as it was sent is known only through a proxy that says it in {SENT_URI}")
    if not is_proxy:
        raise ValueError(f"{SENT_URI} is believed only from the addresses of the setting proxies")
    sent, _, rest = said.partition("?")
    if unquote_to_bytes(sent).decode("latin-1") != path or rest != query:
        raise ValueError(f"{SENT_URI} is not the URI of this request, or not ASCII")
    return said


def _require_significant(environ: WSGIEnvironment) -> None:
    for key, value in environ.items():
        if value == "" and key not in _INSIGNIFICANT and (key.startswith("HTTP_") or key == "CONTENT_TYPE"):
            name = key.removeprefix("HTTP_").replace("_", "-").title()
            raise ValueError(f"the header {name} is empty, or not ASCII")
