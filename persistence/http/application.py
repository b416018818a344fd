"""The Flask application: its two APIs, exact routes, the limits of API keys, and one line of text for every error.

No error is answered by a page or a traceback. The limits of API keys are checked when a request is routed, before
anything else of it is looked at, by the names in the path that its handler gets, too. A route that does not say its
scope is closed to limited keys: the pages for administrators are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from flask import Blueprint, Flask, Request, Response, g, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.local import LocalProxy
from werkzeug.routing import Map, MapAdapter, Rule

from persistence.dialect import Dialect
from persistence.errors import BadRequestError, DeletedError, ForbiddenError, PersistenceError, status_of
from persistence.http import logs
from persistence.http.audit import RequestAudit
from persistence.http.logs import CALLER, REQUEST_ID, USER
from persistence.http.parsing import RequestParser, reader_of_users
from persistence.http.responses import Contents, ResponseHeaders, headers_of, refusal
from persistence.keys import TRUSTED
from persistence.model.addresses import DATA_XML, FORM_XHTML, Collection
from persistence.services.access import Issuing
from persistence.services.apis import Services
from persistence.services.definitions import Publishing
from persistence.services.exporting import Exporting
from persistence.services.forced_deletes import PurgeRequests
from persistence.services.importing import SpooledImports
from persistence.services.reencryption import ReencryptionJobs
from persistence.services.transforms import Duplicating

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

    from persistence.keys import Key

RESOURCE_METHODS = ("GET", "HEAD", "PUT", "DELETE")
_READS = ("GET", "HEAD")

IS_STRANGER = "persistence.is_stranger"  # Environ key: whether the caller would be refused everywhere else

LIMITED_KEY = "persistence.limited_key"
"""Environ key: the API key of the caller, where that has scopes or is for some forms only."""

HEALTH_PATHS = ("/healthz", "/readyz")  # The paths that a supervisor asks for; it has no key

ROOT_PATH = "/"  # The path that a person types

PAGES_PATH = "/admin"  # The path of the pages for administrators, which are below it

METRICS_PATH = "/metrics"  # The path that Prometheus asks for

_OF_DOCUMENTS = frozenset(each.value for each in Collection)


@dataclass(frozen=True, slots=True)
class KeySetting:
    """A setting that names API keys with a right of their own. With ``may_be_trusted`` it may name ``trusted``, too."""

    setting: str
    keys: frozenset[str]
    may_be_trusted: bool = False

    def require(self, environ: WSGIEnvironment, action: str) -> str:
        """Return the name of the key that the caller of a request has shown.

        A trusted address is enough only if the setting names ``trusted``, which no key can be called. So it is where
        everybody is let in, and nobody has shown a key.
        """
        name: str = environ.get(CALLER, TRUSTED)
        if name not in self.keys or (name == TRUSTED and not self.may_be_trusted):
            raise ForbiddenError(f"only callers with an API key of the setting {self.setting} may {action}")
        return name


@dataclass(frozen=True, slots=True)
class Shared:
    """Services and settings for the handlers of both APIs; ``max_body`` and ``max_xml`` are in bytes."""

    dialect: Dialect
    contents: Contents
    max_body: int
    max_xml: int
    administrators: KeySetting
    token_issuers: KeySetting
    purges: PurgeRequests
    exporting: Exporting
    imports: SpooledImports
    issuing: Issuing
    publishing: Publishing
    duplicating: Duplicating
    reencrypts: ReencryptionJobs


@dataclass(frozen=True, slots=True)
class ServedApi:
    """Services, parser and headers of an API. ``named`` are services by data source; ``None`` if none can be named."""

    shared: Shared
    parser: RequestParser
    headers: ResponseHeaders
    default: Services
    named: Mapping[str, Services] | None = None

    @property
    def services(self) -> Services:
        if self.named is None or not (name := self.parser.datasource(request)):
            return self.default
        found = self.named.get(name)
        if found is None:
            raise BadRequestError(f"there is no datasource {name!r} here")
        return found


api = cast("ServedApi", LocalProxy(lambda: g.api))  # That of the current request


def api_blueprint(
    name: str, prefix: str, own: ServedApi, audit: RequestAudit, children: Iterable[Blueprint]
) -> Blueprint:
    parent = Blueprint(name, __name__, url_prefix=prefix or None)

    @parent.before_request
    def choose_api() -> None:
        g.api = own

    audit.look_before(parent)
    for child in children:
        parent.register_blueprint(child)
    return parent


class RouteScope(Enum):
    """The forms whose data or definitions a request may read or change."""

    NOTHING = "nothing that is stored"
    NAMED = "the form or application in the path, and all where it names none"
    ALL = "any form: the path does not say which"


class ScopedRoute(Rule):
    """A route for the methods that it names: werkzeug would add HEAD wherever there is a GET (spec crud 2.1).

    ``scope`` is ``None`` for routes that no limited key may call. ``only_reads`` says whether it changes nothing by
    whatever method; ``None`` that GET and HEAD do not.
    """

    def __init__(
        self, string: str, *args: Any, scope: RouteScope | None = None, only_reads: bool | None = None, **options: Any
    ) -> None:
        super().__init__(string, *args, **options)
        self.methods = set(options["methods"])
        self.scope = scope
        self.only_reads = only_reads


_NAMES = 6  # Names that the path of a document ends with: ``crud/APP/FORM/COLLECTION/DOCUMENT/NAME``


class Routes(Map):
    """The routes of the service."""

    @cached_property
    def of_documents(self) -> dict[tuple[str, str, str], Rule]:
        every = ((rule, rule.rule.rsplit("/", _NAMES)) for rule in self.iter_rules())
        return {
            (parts[0], parts[4], method): rule
            for rule, parts in every
            if parts[1:4] == ["crud", "<app>", "<form>"] and parts[5:] == ["<document>", "<name>"]
            for method in rule.methods or ()
        }


class RouteFinder(MapAdapter):
    """Finds the route of a request: that of a file in a document in one step, and others as werkzeug does.

    Werkzeug takes a step for each of its eleven names: 28 µs, a tenth of a GET of 5 KB in process.
    """

    map: Routes

    def match(self, *args: Any, **options: Any) -> tuple[Any, Mapping[str, Any]]:
        parts = self.path_info.rsplit("/", _NAMES)
        if len(parts) > _NAMES and parts[1] == "crud" and all(parts[2:]):
            prefix, _, app, form, collection, document, name = parts
            rule = self.map.of_documents.get((prefix, collection, self.default_method))
            if rule is not None:
                names = {"app": app, "form": form, "document": document, "name": name}
                return rule, names | dict(rule.defaults or {})
        return super().match(*args, **options)


class ExactFlask(Flask):
    """A Flask application that routes exactly, and answers errors by the statuses of a dialect.

    It sends no redirects, which would lose the body of a PUT, and has no methods that its routes do not name.
    """

    url_map: Routes
    url_map_class = Routes
    url_rule_class = ScopedRoute

    def __init__(self, dialect: Dialect) -> None:
        super().__init__("persistence", static_folder=None)
        self._dialect = dialect
        self.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
        self.url_map.merge_slashes = False  # the path has been cleaned
        self.url_map.redirect_defaults = False
        self.before_request(_require_within_limits)
        self.register_error_handler(PersistenceError, self._refused)
        self.register_error_handler(HTTPException, _http_error)
        self.register_error_handler(Exception, _unexpected)

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """Return what finds the route of a request, whatever ``Host`` and ``Upgrade`` it has.

        Flask answers 404 to a host that IDNA cannot encode, and 400 to the opening of a web socket.
        """
        if request is None:
            return None
        return RouteFinder(
            self.url_map, "", request.root_path, "", request.scheme, request.path, request.method, query_args=None
        )

    def _refused(self, error: PersistenceError) -> Response:
        status = status_of(error)
        if isinstance(error, DeletedError) and request.method in _READS:
            status = self._dialect.deleted_read_status
        return refusal(request.environ, status, str(error), headers_of(error))


def _http_error(error: HTTPException) -> Response:
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        cause = f"{request.method} is not allowed here; allowed: {allowed}"
        return refusal(request.environ, HTTPStatus.METHOD_NOT_ALLOWED, cause, [("Allow", allowed)])
    status = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
    if status != HTTPStatus.NOT_FOUND:
        return refusal(request.environ, status, error.description or error.name)
    cause = "there is nothing under this path"
    # The directory of a document or definition was asked for, perhaps.
    own = request.path.removesuffix("/")
    names = own.split("/")
    if names[-5:-4] == ["crud"] and names[-2] in _OF_DOCUMENTS:
        cause += f"; the document is {own}/{DATA_XML}"
    elif names[-4:-3] == ["crud"] and names[-1] == "form":
        cause += f"; the definition is {own}/{FORM_XHTML}"
    return refusal(request.environ, status, cause)


def _unexpected(error: Exception) -> Response:
    logs.write("unexpected", "error", id=request.environ.get(REQUEST_ID), exception=error)
    return refusal(request.environ, 500, "internal error; the log has the details under this request's id")


def note_users(app: Flask, dialect: Dialect) -> None:
    """Let the log name the user of each request that is routed; one whose headers cannot be read names nobody."""
    user_of = reader_of_users(dialect)

    @app.after_request
    def note(response: Response) -> Response:
        with suppress(BadRequestError):
            request.environ[USER] = user_of(request).name
        return response


def _require_within_limits() -> None:
    """Make sure that a request is one that the key of its caller may send, if that is limited."""
    key: Key | None = request.environ.get(LIMITED_KEY)
    if key is None or (route := request.url_rule) is None:  # 404 and 405 touch nothing
        return
    if not isinstance(route, ScopedRoute) or route.scope is None:
        raise ForbiddenError(f"the API key {key.name} is limited, and this is for none of the limited keys")
    if route.scope is RouteScope.NOTHING:
        return
    only_reads = request.method in _READS if route.only_reads is None else route.only_reads
    if key.scopes and not only_reads:
        raise ForbiddenError(f"the API key {key.name} may only read")
    names = request.view_args or {}
    app, form = names.get("app"), names.get("form")
    is_covered = app in key.forms or (form is not None and f"{app}/{form}" in key.forms)
    if key.forms and not (route.scope is RouteScope.NAMED and is_covered):
        raise ForbiddenError(f"the API key {key.name} is for {', '.join(key.forms)} only, and this is about more")
