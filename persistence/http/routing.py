"""Routing: the checks of a request before it, and the handler to which its path leads.

Checked are the path, the query, and headers of another dialect.

The handler is found and called by Flask without the parts of it that no request of this service uses: signals and
coroutines, hooks at the end of a request, an adapter that looks for the host's name in five places, and a state machine
with a step for each name of a path. They took a third of the time of a GET.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote_to_bytes

from flask import Flask, Request, Response
from werkzeug.routing import Map, MapAdapter, Rule

from persistence.dialect import DIALECTS, Dialect
from persistence.errors import BadRequestError
from persistence.http.application import HEALTH_PATHS
from persistence.http.parsing import REQUEST_NAMES, environ_key
from persistence.http.paths import UNCLEAR
from persistence.http.responses import refusal
from persistence.http.scopes import LIMITED_KEY, require_within

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_NAMES = 6
"""Names that the path of a document ends with: ``crud/APP/FORM/COLLECTION/DOCUMENT/NAME``."""


def _check_query(query: str) -> None:
    """Refuse what would be decoded to U+FFFD: two different texts would become one."""
    for part in query.split("&"):
        try:
            unquote_to_bytes(part.encode("latin-1")).decode()
        except UnicodeError:
            raise ValueError(f"the parameter {part.partition('=')[0]!r} is not UTF-8") from None


class CleanRequests:
    """WSGI middleware that passes on clean requests and answers all others with 400 and the reason.

    Headers that this service would read under the prefix of its own dialect are refused under that of another one
    unless ``accepts_foreign``: a user who is named in them would be ignored.
    """

    def __init__(self, app: WSGIApplication, dialect: Dialect, *, accepts_foreign: bool) -> None:
        self._app = app
        self._dialect = dialect
        others = [other for other in DIALECTS.values() if other != dialect and not accepts_foreign]
        self._foreign = {
            environ_key(other.header(name)): (other.header(name), dialect.header(name))
            for other in others
            for name in REQUEST_NAMES
        }
        self._foreign_keys = frozenset(self._foreign)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if UNCLEAR in environ:
            return refusal(environ, HTTPStatus.BAD_REQUEST, environ[UNCLEAR])(environ, start_response)
        try:
            query = environ.get("QUERY_STRING", "")
            if "%" in query or not query.isascii():
                _check_query(query)
            if not self._foreign_keys.isdisjoint(environ):
                self._refuse_foreign(environ)
        except (ValueError, BadRequestError) as error:
            return refusal(environ, HTTPStatus.BAD_REQUEST, str(error))(environ, start_response)
        return self._app(environ, start_response)

    def _refuse_foreign(self, environ: WSGIEnvironment) -> None:
        if environ["PATH_INFO"] not in HEALTH_PATHS:
            sent, own = self._foreign[min(self._foreign_keys.intersection(environ))]
            raise BadRequestError(f"this service speaks dialect {self._dialect.name!r}: it reads {own}, not {sent}")


class Routes(Map):
    """The routes of the service, which has no host names, subdomains and web sockets."""

    @cached_property
    def of_documents(self) -> dict[tuple[str, str, str], Rule]:
        """Return the routes of resources in documents by prefix, collection and method."""
        every = ((rule, rule.rule.rsplit("/", _NAMES)) for rule in self.iter_rules())
        return {
            (parts[0], parts[4], method): rule
            for rule, parts in every
            if parts[1:4] == ["crud", "<app>", "<form>"] and parts[5:] == ["<document>", "<name>"]
            for method in rule.methods or ()
        }


class RouteFinder(MapAdapter):
    """Finds the route of a request; that of a document, as nearly all are, without werkzeug."""

    map: Routes

    def match(self, *args: Any, **options: Any) -> tuple[Any, Mapping[str, Any]]:
        """Return the route and the names in the path, as werkzeug does; raises its exceptions."""
        parts = self.path_info.rsplit("/", _NAMES)
        if len(parts) > _NAMES and parts[1] == "crud" and all(parts[2:]):
            prefix, _, app, form, collection, document, name = parts
            rule = self.map.of_documents.get((prefix, collection, self.default_method))
            if rule is not None:
                return rule, {"app": app, "form": form, "document": document, "name": name}
        return super().match(*args, **options)


class Dispatch(Flask):
    """A Flask application that sends no signals, has no coroutines for views, and is reached under any name.

    What a blueprint does before its requests comes first: the pages find out who calls before the audit names them.
    """

    url_map: Routes
    url_map_class = Routes

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """Return what finds the route of a request."""
        if request is None:
            return None
        environ = request.environ
        return RouteFinder(
            self.url_map,
            environ.get("HTTP_HOST", ""),
            environ.get("SCRIPT_NAME", ""),
            "",
            request.scheme,
            request.path,
            request.method,
            request.query_string.decode("latin-1"),
        )

    def wsgi_app(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request, in a context of its own."""
        context = self.request_context(environ)
        context.push()
        try:
            try:
                response = self._answered(context.request)
            except Exception as error:  # noqa: BLE001 - one of what comes after a view, or of a handler of errors
                response = self.handle_exception(error)
            return response(environ, start_response)
        finally:
            context.pop(None)

    def do_teardown_request(self, *_: object) -> None:
        """Do nothing at the end of a request: nobody has asked to be called."""

    def do_teardown_appcontext(self, *_: object) -> None:
        """Do nothing at the end of its context either."""

    def _answered(self, request: Request) -> Response:
        names = (*request.blueprints, None)
        try:
            if LIMITED_KEY in request.environ:
                require_within(request.environ[LIMITED_KEY], request)
            if request.url_rule is None:
                self.raise_routing_exception(request)
            hooks = (hook for name in names for hook in self.before_request_funcs.get(name, ()))
            result: Any = next((found for hook in hooks if (found := hook()) is not None), None)
            if result is None:
                result = self.view_functions[request.url_rule.endpoint](**request.view_args or {})
        except Exception as error:  # noqa: BLE001 - the handlers of errors know what to do with each
            result = self.handle_user_exception(error)
        response = self.make_response(result)
        for name in names:
            for hook in reversed(self.after_request_funcs.get(name, ())):
                response = cast("Response", hook(response))
        return response
