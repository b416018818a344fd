"""Searches and distinct values (spec search 1, 3), lists of forms (search 4), and the index behind them (search 5).

The bodies of requests that rebuild an index have no meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from flask import Blueprint, Response, request

from persistence.errors import BadRequestError
from persistence.http.application import LIMITED_KEY, RouteScope, api
from persistence.http.parsing import body_of, drain
from persistence.http.responses import JSON, WrittenAnswer, answered, empty, xml
from persistence.keys import Key
from persistence.limits import LARGEST_QUERY
from persistence.model.addresses import Form
from persistence.model.queries import FormField, FormFilter, FormMatch, FormQuery, SentQuery
from persistence.model.texts import flag, parse_time
from persistence.model.versions import Searched, parse_reindexed, parse_searched
from persistence.services.reencryption import reindexing_xml
from persistence.services.searching import Searcher, Searching

search = Blueprint("search", __name__)
forms = Blueprint("forms", __name__)
reindex = Blueprint("reindex", __name__)
reindex_by_get = Blueprint("reindex_by_get", __name__)
reindex_status = Blueprint("reindex_status", __name__)
"""``GET /reindex`` in dialects whose runtimes send it: it rebuilds on the provider API only."""

_IGNORE_ADMIN = "ignore-admin-permissions"


@search.post("/search/<app>/<form>", scope=RouteScope.NAMED, only_reads=True)
def documents(app: str, form: str) -> Response:
    return _answered(Searching.search, Form(app, form))


@search.post("/search", scope=RouteScope.ALL, only_reads=True)
@search.post("/search/<app>", scope=RouteScope.NAMED, only_reads=True)
def documents_of_all_forms(app: str | None = None) -> Response:
    searcher = Searcher(api.parser.user(request), api.parser.is_administrator(request))
    if isinstance(parse_searched(api.parser.version_header(request)), int):
        raise BadRequestError("a search of several forms has all versions of each, not one")
    answer, notice = api.services.searching.search_all(app, _sent(), searcher)
    return answered(request.environ, answer, api.headers.of_notice(notice))


@search.post("/distinct-values/<app>/<form>", scope=RouteScope.NAMED, only_reads=True)
def distinct_values(app: str, form: str) -> Response:
    return _answered(Searching.distinct, Form(app, form))


def _answered(
    ask: Callable[[Searching, Form, int | Searched, SentQuery, Searcher], tuple[WrittenAnswer, str | None]], form: Form
) -> Response:
    searcher = Searcher(api.parser.user(request), api.parser.is_administrator(request))
    version = parse_searched(api.parser.version_header(request))
    answer, notice = ask(api.services.searching, form, version, _sent(), searcher)
    key: Key | None = request.environ.get(LIMITED_KEY)
    # It may name the nearest of all forms, also to a key that is for some of them only.
    notice = None if key is not None and key.forms else notice
    return answered(request.environ, answer, api.headers.of_notice(notice))


def _sent() -> SentQuery:
    return SentQuery(body_of(request.environ, LARGEST_QUERY), is_json=request.mimetype == JSON)


@forms.get("/form", scope=RouteScope.NAMED)
@forms.get("/form/<app>", scope=RouteScope.NAMED)
@forms.get("/form/<app>/<form>", scope=RouteScope.NAMED)
def listed(app: str | None = None, form: str | None = None) -> Response:
    """Answer ``GET /form/$app/$form``; its parameters are in any letter case (spec search 4.1)."""
    user = api.parser.user(request)
    since = request.args.get("modified-since")
    all_versions = flag(request.args.get("all-versions"), "all-versions", has_any_case=True)
    filters = []
    if since is not None:
        filters.append(FormFilter(FormField.LAST_MODIFIED, FormMatch.GT, parse_time(since, "modified-since")))
    query = FormQuery(
        app=app,
        form=form,
        latest_only=None if all_versions is None else not all_versions,
        all_forms=flag(request.args.get("all-forms"), "all-forms", has_any_case=True) is True,
        ignore_admin=flag(request.args.get(_IGNORE_ADMIN), _IGNORE_ADMIN, has_any_case=True) is True,
        filters=tuple(filters),
    )
    return answered(request.environ, api.services.forms.find(query, user))


@forms.post("/form", scope=RouteScope.ALL, only_reads=True)
@forms.post("/form/<app>", scope=RouteScope.ALL, only_reads=True)
@forms.post("/form/<app>/<form>", scope=RouteScope.ALL, only_reads=True)
def queried(app: str | None = None, form: str | None = None) -> Response:  # noqa: ARG001 - the query is in the body
    """Answer ``POST /form/$app/$form``, whose query is in its body only."""
    user = api.parser.user(request)
    return answered(request.environ, api.services.forms.search(_sent(), user))


@reindex.post("/reindex", scope=RouteScope.ALL)
def all_forms() -> Response:
    drain(request.environ)
    api.services.router.reindex_all()
    return empty(HTTPStatus.OK, [])


@reindex.post("/reindex/<app>/<form>", scope=RouteScope.NAMED)
def version(app: str, form: str) -> Response:
    number = parse_reindexed(api.parser.version_header(request))
    drain(request.environ)
    api.services.router.reindex(Form(app, form), number)
    return empty(HTTPStatus.OK, [])


@reindex.get("/reindex/status", scope=RouteScope.ALL)
@reindex_status.get("/reindex", scope=RouteScope.ALL)
def status() -> Response:
    return xml(reindexing_xml(api.services.router.reindexing_status()))


@reindex_by_get.get("/reindex", scope=RouteScope.ALL, only_reads=False)
def all_forms_by_get() -> Response:
    """Answer ``GET /reindex`` of 2023.1 and 2024.1 (spec runtime 8); a browser, which follows links, gets a status."""
    return status() if "HTTP_SEC_FETCH_SITE" in request.environ else all_forms()
