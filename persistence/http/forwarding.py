"""What another service may be told of a request, kept while the request is served (spec crud 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from persistence.http.logs import CALLER, REQUEST_ID
from persistence.keys import TRUSTED
from persistence.remote import client_request
from persistence.remote.client_request import ClientRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_FIELD = "HTTP_"
_AUTHORIZATION = "HTTP_AUTHORIZATION"
_REQUEST_ID = "X-Request-Id"


class Forwarding:
    """WSGI middleware that takes down each request. The key with which a caller was let in stays here."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Take it down, and hand it on."""
        fields = tuple(_fields(environ))
        client_request.begin(ClientRequest(environ["REQUEST_METHOD"], environ.get("QUERY_STRING", ""), fields))
        return self._app(environ, start_response)


def _fields(environ: WSGIEnvironment) -> Iterator[tuple[str, str]]:
    is_by_key = environ.get(CALLER, TRUSTED) != TRUSTED
    for name, value in environ.items():
        if name.startswith(_FIELD) and not (is_by_key and name == _AUTHORIZATION):
            field = name.removeprefix(_FIELD).replace("_", "-").title()
            if field != _REQUEST_ID:
                yield field, value
    if REQUEST_ID in environ:
        yield _REQUEST_ID, environ[REQUEST_ID]
