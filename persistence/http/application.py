"""The Flask application and the WSGI middleware around it: callers, clean requests, two APIs, exact routes, and errors.

Callers are admitted (spec crud 6.1, 4.1) all, by trusted address, or by API key. That is decided before anything else
of a request is looked at, so that a stranger learns nothing of paths and documents. What a proxy says of the address
behind it (``X-Forwarded-For``) is not believed: the peer of the socket counts.

A web page of a third party must not act through a browser that may call. It reaches the service under a name of its
own, if the page's owner lets that name mean the service's address (DNS rebinding): so the service answers to its own
names only. Or it makes the browser send a request that needs no permission (a simple request of the Fetch standard):
browsers then name the page's origin in ``Origin`` and ``Sec-Fetch-Site``. Other clients send neither header.

The limits of API keys are checked when a request is routed, by the names in the path that its handler gets, too. A
route that does not say its scope is closed to limited keys: the pages for administrators are. No error is answered by a
page or a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote_to_bytes

from flask import Blueprint, Flask, Request, Response, g, request
from werkzeug.datastructures import Authorization
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.local import LocalProxy
from werkzeug.routing import Map, MapAdapter, Rule

from persistence import client_request, errors
from persistence.client_request import ClientRequest
from persistence.dialect import DIALECTS, Dialect
from persistence.http import logs
from persistence.http.audit import RequestAudit, note_in_audit
from persistence.http.logs import CALLER, REQUEST_ID, USER
from persistence.http.parsing import REQUEST_NAMES, UNCLEAR, RequestParser, environ_key, peer_of, reader_of_users
from persistence.http.responses import Contents, ResponseHeaders, headers_of, refusal
from persistence.keys import TRUSTED, Key, Keys, key_of, refusal_of, second_key_of
from persistence.limits import HOST_LENGTH
from persistence.model.addresses import DATA_XML, FORM_XHTML, Collection
from persistence.model.network_addresses import UNIX, Peer, Trusted, binds_everywhere, host_of, peer_address
from persistence.model.permissions import removing
from persistence.services.apis import Services
from persistence.services.changes import ChangeFeed
from persistence.services.definitions import Publishing
from persistence.services.documents import Documents
from persistence.services.exporting import Exporting
from persistence.services.forced_deletes import PurgeRequests
from persistence.services.importing import SpooledImports
from persistence.services.reencryption import ReencryptionJobs
from persistence.services.rules import Issuing
from persistence.services.transforms import Duplicating

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

RESOURCE_METHODS = ("GET", "HEAD", "PUT", "DELETE")
_READS = frozenset({"GET", "HEAD"})

IS_STRANGER = "persistence.is_stranger"  # Environ key: whether the caller would be refused everywhere else

LIMITED_KEY = "persistence.limited_key"
"""Environ key: the API key of the caller, where that has scopes or is for some forms only."""

HEALTH_PATHS = ("/healthz", "/readyz")  # The paths that a supervisor asks for; it has no key

ROOT_PATH = "/"  # The path that a person types

PAGES_PATH = "/admin"  # The path of the pages for administrators, which are below it

METRICS_PATH = "/metrics"  # The path that Prometheus asks for

SCHEMES = ("bearer", "basic")  # The schemes of ``Authorization`` in which a key is looked for, in small letters

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
    raise errors.StartupError(
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
    is_loopback = isinstance(peer, IPv4Address | IPv6Address) and peer.is_loopback
    if own.opens is Opens.ALWAYS or (own.opens is Opens.WHILE_KEYLESS and not keys and is_loopback):
        return None
    if keys and (secret := presented(authorization)) is not None:
        key = key_of(secret, keys)
        if key is None:
            raise errors.UnauthorizedError(refusal_of(secret, keys, retired()))
        return key
    if own.trusted.includes(peer):
        return TRUSTED
    if keys:
        raise errors.UnauthorizedError("this service asks for a key: Authorization: Bearer KEY, or KEY as the password")
    raise errors.ForbiddenError(f"this service is closed to {'this caller' if peer in (None, UNIX) else peer}")


def presented(authorization: str | None) -> str | None:
    """Return the key in an ``Authorization`` header (RFC 6750 2.1; RFC 7617, as the password beside any user name)."""
    # ``None`` where there is no header, or one of another scheme. One that cannot be decoded holds a wrong key.
    if authorization is None or authorization.partition(" ")[0].lower() not in SCHEMES:
        return None
    # Base64 is ASCII, and werkzeug does not catch other characters.
    sent = Authorization.from_header(authorization) if authorization.isascii() else None
    return (sent and (sent.token or sent.password)) or ""


class AllowedSites:
    """The names that the service answers to, and the origins whose pages may change something."""

    def __init__(self, binds: Iterable[str], hosts: Iterable[str], origins: Iterable[str]) -> None:
        own = tuple(binds)
        named = frozenset(host.lower().rstrip(".") for host in (*hosts, *map(host_of, own)) if host)
        self._hosts = named.union(filter(host_of, own))  # most clients send a name and its port as the settings do
        self._is_everywhere = any(map(binds_everywhere, own))
        self._origins = frozenset(origin.lower() for origin in origins)

    def check(self, environ: WSGIEnvironment, *, has_key: bool) -> None:
        """Check the name under which a caller without a key has reached the service, which a browser always sends."""
        # And check whose page has made a browser send a request that may change something.
        host = environ.get("HTTP_HOST")
        if not (has_key or not host or host in self._hosts or (len(host) <= HOST_LENGTH and self._is_own(host))):
            raise errors.MisdirectedError(
                f"the setting hosts, which has names without port, does not have this one: {host!r}"
            )
        if environ["REQUEST_METHOD"] in _READS:
            return
        origin, site = environ.get("HTTP_ORIGIN"), environ.get("HTTP_SEC_FETCH_SITE")
        if origin is not None:
            page, own = origin.lower(), (host or "").lower()
            if page not in self._origins and not (own and page in (f"http://{own}", f"https://{own}")):
                raise errors.ForbiddenError(
                    f"pages elsewhere may change nothing here, see the setting origins: {origin!r}"
                )
        elif site is not None and site not in _OWN_SITE:
            raise errors.ForbiddenError("pages elsewhere may change nothing here, and a browser says that this is one")

    def _is_own(self, host: str) -> bool:
        name = host_of(host).lower().rstrip(".")
        if name in self._hosts or name == "localhost" or "*" in self._hosts:
            return True
        found = peer_address(name)
        return found is not None and (found.is_loopback or self._is_everywhere)


@dataclass(slots=True)
class CallersOnly:
    """WSGI middleware that passes on the requests of those who may call, and records the caller for the log."""

    # A caller who has shown a key may reach the service under any name: no page of a third party has the key. The pages
    # for administrators, if it ``has_pages``, decide by their sessions who may see them. Where there is an
    # ``admin_bind``, they are there alone: what is stored has another origin for a browser. ``readers_of_metrics`` need
    # no key for ``/metrics``. ``used`` is called with the name of each key that opened something.
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
                raise errors.NotFoundError(
                    "there is nothing under this path at this address, see the setting admin_bind"
                )
        except errors.PersistenceError as error:
            if path not in (*HEALTH_PATHS, ROOT_PATH) or not is_here:
                # Callers may be anybody, and the cause tells how the file of the keys is made.
                less = "the keys of callers cannot be read: the log of the service says why"
                shown = less if isinstance(error, errors.DamagedError | errors.DiskError) else None
                answer = refusal(environ, errors.status_of(error), str(error), headers_of(error), shown=shown)
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
            except (errors.UnauthorizedError, errors.ForbiddenError):
                if not (self.readers_of_metrics.includes(peer) and path == METRICS_PATH):
                    raise
        self.sites.check(environ, has_key=isinstance(who, Key))
        return who


@dataclass(frozen=True, slots=True)
class SecondKeys:
    """WSGI middleware that lets requests with a second key remove revisions, where these are only added."""

    app: WSGIApplication
    header: str
    keys: Keys
    named: frozenset[str]

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        shown = environ.get(self.header)
        if shown is None:
            return self.app(environ, start_response)
        try:
            name = second_key_of(shown, self.keys.read(), self.named, environ.get(CALLER, ""))
        except errors.PersistenceError as error:
            return refusal(environ, errors.status_of(error), str(error))(environ, start_response)
        note_in_audit(environ, second_key=name)
        with removing():
            return self.app(environ, start_response)


@dataclass(frozen=True, slots=True)
class Forwarding:
    """WSGI middleware that keeps each request for the calls of other services, while it is served (spec crud 3)."""

    # They get no ``Authorization``, in which a key for this service may be, unless the caller is trusted without one.
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
        if not self._foreign.keys().isdisjoint(environ) and environ["PATH_INFO"] not in HEALTH_PATHS:
            sent, own = self._foreign[min(self._foreign.keys() & environ.keys())]
            raise ValueError(f"this service speaks dialect {self._dialect.name!r}: it reads {own}, not {sent}")


@dataclass(frozen=True, slots=True)
class KeySetting:
    """A setting that names API keys with a right of their own. With ``may_be_trusted`` it may name ``trusted``, too."""

    setting: str
    keys: frozenset[str]
    may_be_trusted: bool = False

    def require(self, environ: WSGIEnvironment, action: str) -> None:
        """Make sure that the setting has the caller's key, or ``trusted``: where anybody may call, too."""
        name: str = environ.get(CALLER, TRUSTED)
        if name not in self.keys or (name == TRUSTED and not self.may_be_trusted):
            raise errors.ForbiddenError(f"only callers with an API key of the setting {self.setting} may {action}")


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
    changing: Documents
    exporting: Exporting
    imports: SpooledImports
    issuing: Issuing
    publishing: Publishing
    duplicating: Duplicating
    reencrypts: ReencryptionJobs
    changes: ChangeFeed


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
            raise errors.BadRequestError(f"there is no datasource {name!r} here")
        return found


api = cast("ServedApi", LocalProxy(partial(getattr, g, "api")))  # That of the current request


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
    """A route for the methods that it names: werkzeug would add HEAD wherever there is a GET (spec crud 2.1)."""

    # ``scope`` is ``None`` for routes that no limited key may call. ``only_reads`` says whether it changes nothing by
    # whatever method; ``None`` that GET and HEAD do not.
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
    """Finds the route of a request: that of a file in a document in one step, and others as werkzeug does."""

    # Werkzeug takes a step for each of its eleven names: 28 µs, a tenth of a GET of 5 KB in process.
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
    """A Flask application that routes exactly, and answers errors by the statuses of a dialect."""

    # It sends no redirects, which would lose the body of a PUT, and has no methods that its routes do not name.
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
        self.register_error_handler(errors.PersistenceError, self._refused)
        self.register_error_handler(HTTPException, _http_error)
        self.register_error_handler(Exception, _unexpected)

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """Return what finds the route of a request, whatever ``Host`` and ``Upgrade`` it has."""
        # Flask answers 404 to a host that IDNA cannot encode, and 400 to the opening of a web socket.
        if request is None:
            return None
        return RouteFinder(
            self.url_map, "", request.root_path, "", request.scheme, request.path, request.method, query_args=None
        )

    def _refused(self, error: errors.PersistenceError) -> Response:
        status = errors.status_of(error)
        if isinstance(error, errors.DeletedError) and request.method in _READS:
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
    if names[-5:-4] == ["crud"] and names[-2] in {each.value for each in Collection}:
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
        with suppress(errors.BadRequestError):
            request.environ[USER] = user_of(request).name
        return response


def _require_within_limits() -> None:
    key: Key | None = request.environ.get(LIMITED_KEY)
    if key is None or (route := request.url_rule) is None:  # 404 and 405 touch nothing
        return
    if not isinstance(route, ScopedRoute) or route.scope is None:
        raise errors.ForbiddenError(f"the API key {key.name} is limited, and this is for none of the limited keys")
    if route.scope is RouteScope.NOTHING:
        return
    only_reads = request.method in _READS if route.only_reads is None else route.only_reads
    if key.scopes and not only_reads:
        raise errors.ForbiddenError(f"the API key {key.name} may only read")
    names = request.view_args or {}
    app, form = names.get("app"), names.get("form")
    is_covered = app in key.forms or (form is not None and f"{app}/{form}" in key.forms)
    if key.forms and not (route.scope is RouteScope.NAMED and is_covered):
        raise errors.ForbiddenError(
            f"the API key {key.name} is for {', '.join(key.forms)} only, and this is about more"
        )
