"""Flask without the parts of its dispatch that no request of this service uses, and a short way to documents.

Flask and werkzeug took half of the time of a GET: for signals and coroutines, which nobody uses here, for an adapter
that looks for the host's name in five places, and for a state machine with a step for each name of a path. Without
them a GET in the process takes 160 instead of 210 µs of processor time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from flask import Flask, Request, Response
from werkzeug.routing import Map, MapAdapter, Rule

from persistence.http.scopes import LIMITED_KEY, require_within

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_NAMES = 6
"""Names that the path of a document ends with: ``crud/APP/FORM/COLLECTION/DOCUMENT/NAME``."""


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
        """Return the answer to the request of the context."""
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
