"""The routes of form runtimes: contents, leases and histories, searches and lists of forms, and publishing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus

from flask import Blueprint, Request, Response, g, request

from persistence.errors import BadAddressError, BadRequestError, LockedError
from persistence.http.application import LIMITED_KEY, RESOURCE_METHODS, RouteScope, ServedApi, api
from persistence.http.audit import note_in_audit
from persistence.http.parsing import body_of, drain, instant_of, is_forced
from persistence.http.responses import (
    JSON,
    SHOWN_TYPES,
    WrittenAnswer,
    answered,
    empty,
    is_not_modified,
    locked,
    prefers_json,
    refusal,
    send_transformed,
    whole,
    xml,
)
from persistence.keys import Key
from persistence.limits import LARGEST_LOCK, LARGEST_QUERY, LARGEST_TREE, LONGEST_COMMENT
from persistence.model.addresses import DATA_XML, FORM_XHTML, Collection, DocumentAddress, Form
from persistence.model.network_addresses import RemoteTarget
from persistence.model.queries import FormField, FormFilter, FormMatch, FormQuery, SentQuery
from persistence.model.sidecar import page_request
from persistence.model.texts import count, flag, parse_time, short
from persistence.model.versions import Searched, parse, parse_reindexed, parse_searched, parse_timeout
from persistence.services.definitions import Publication, PublishedForm
from persistence.services.documents import holder_document
from persistence.services.histories import DiffOptions, RevisionPair
from persistence.services.reencryption import reindexing_xml
from persistence.services.rules import Read, Removed, Written
from persistence.services.searching import Searcher, Searching
from persistence.services.transforms import JsonDocuments, migrated, removes_nonrelevant, transformed

runtime = Blueprint("runtime", __name__)  # The routes of both APIs
behind_proxy = Blueprint("behind_proxy", __name__)  # Those that the proxy of a runtime has beside them
reindex_status = Blueprint("reindex_status", __name__)
"""``GET /reindex`` in dialects whose runtimes send it: it rebuilds on the provider API only."""
form_services = Blueprint("form_services", __name__)  # Publishing, duplicates and lists of attachments
designer = Blueprint("designer", __name__)  # Its prefix is the form in which definitions are drawn

_DEFINITION = "/crud/<app>/<form>/form/<name>"
_DATA, _DRAFT = "/crud/<app>/<form>/data/<document>/<name>", "/crud/<app>/<form>/draft/<document>/<name>"
_HISTORY = "/history/<app>/<form>/<document>"
_OF_DATA, _OF_DRAFTS = {"collection": Collection.DATA}, {"collection": Collection.DRAFT}


@runtime.route(_DEFINITION, methods=RESOURCE_METHODS, scope=RouteScope.NAMED)
def definition(app: str, form: str, name: str) -> Response:
    served: ServedApi = g.api
    target, parser = Form(app, form), served.parser
    if request.method == "PUT":
        put = parser.put(request)
        body = body_of(request.environ, served.shared.max_xml if name == FORM_XHTML else served.shared.max_body)
        return _written(served, served.services.definitions.write(target, name, put, body))
    if request.method == "DELETE":
        return _removed(served, served.services.definitions.delete(target, name, parser.delete(request)))
    if request.query_string and is_forced(request):
        raise BadRequestError("definitions are not purged (force-delete)")
    data_format = parser.definition_format(request) if request.query_string and name == FORM_XHTML else None
    read = served.services.definitions.read(target, name, parser.get(request))
    if data_format is None and prefers_json(request.environ, "application/xhtml+xml", JSON) and read.address.is_main:
        read = replace(read, is_json=True)
    return _read(served, read, data_format)


@runtime.route(_DATA, methods=RESOURCE_METHODS, defaults=_OF_DATA, scope=RouteScope.NAMED)
@runtime.route(_DRAFT, methods=RESOURCE_METHODS, defaults=_OF_DRAFTS, scope=RouteScope.NAMED)
def resource(collection: Collection, app: str, form: str, document: str, name: str) -> Response:
    served: ServedApi = g.api
    # Flask's documented way to the request itself: each use of the proxy looks it up, 12 of them are 4 % of a GET.
    current: Request = request._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001
    address = DocumentAddress(Form(app, form), collection, document, name)
    parser, shared = served.parser, served.shared
    if current.method == "PUT":
        put = parser.put(current)
        body = body_of(current.environ, shared.max_xml if address.is_main else shared.max_body)
        is_json = address.is_main and (put.content_type or "").partition(";")[0].strip().lower() == JSON
        if is_json and address.form != shared.dialect.designer:
            return _written(served, JsonDocuments(served.services.documents).write(address, put, body))
        return _written(served, served.services.documents.write(address, put, body))
    if current.query_string and is_forced(current):
        return _forced(served, address)
    if current.method == "DELETE":
        return _removed(served, served.services.documents.delete(address, parser.delete(current)))
    data_format, only_relevant = None, False
    if current.query_string:
        is_definition = address.is_main and address.form == shared.dialect.designer
        data_format = parser.definition_format(current) if is_definition else None
        only_relevant = removes_nonrelevant(parser.nonrelevant(current), address, shared.dialect)
    read = served.services.documents.read(address, parser.get(current))
    if address.is_main and prefers_json(current.environ, "application/xml", JSON):
        read = replace(read, is_json=address.form != shared.dialect.designer)
    return _read(served, read, data_format, only_relevant=only_relevant)


def _forced(served: ServedApi, address: DocumentAddress) -> Response:
    administrators, parser = served.shared.administrators, served.parser
    if not administrators.keys:
        raise BadRequestError("purging (force-delete) is not enabled on this service")
    administrators.require(request.environ, "purge")
    forced = served.services.forced_deletes
    if request.method == "DELETE":
        delete, instant = parser.forced_delete(request)
        note_in_audit(request.environ, details={"instant": instant})
        return _removed(served, forced.delete(address, delete, instant))
    return _read(served, forced.read(address, parser.get(request)), None)


# A draft alone is discarded by a service whose attachments are here.
@runtime.delete("/crud/<app>/<form>/draft/<document>", scope=RouteScope.NAMED)
def discard_draft(app: str, form: str, document: str) -> Response:
    documents, delete = api.services.documents, api.parser.delete(request)
    return _removed(api, documents.discard_draft(Form(app, form), document, delete))


@runtime.delete("/crud/<app>/<form>/data/", strict_slashes=False, scope=RouteScope.NAMED)
def delete_all(app: str, form: str) -> Response:
    documents = api.services.documents
    cleared = documents.delete_all(Form(app, form), api.parser.delete(request))
    headers = api.headers.of_clearing(cleared)
    if cleared.refused and not cleared.deleted:
        cause = f"none of {cleared.refused} documents was deleted: {cleared.refusal}"
        return refusal(request.environ, HTTPStatus.FORBIDDEN, cause, headers)
    return empty(HTTPStatus.OK, headers)


def _read(served: ServedApi, read: Read, data_format: str | None, *, only_relevant: bool = False) -> Response:
    environ, found, headers = request.environ, read.found, served.headers.of_read(read)
    is_navigation = environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
    if is_navigation and headers[0][1].partition(";")[0].strip().lower() not in SHOWN_TYPES:
        headers.append(("Content-Disposition", "attachment"))
    if is_not_modified(environ, read):
        found.close()
        return empty(HTTPStatus.NOT_MODIFIED, headers)
    is_changed = only_relevant or data_format is not None or read.decryption is not None or read.is_json
    if found.file is None:  # how long a changed content is, only the change would tell
        size = None if is_changed else read.size
        return empty(HTTPStatus.OK, headers, length=size)
    if read.is_json:
        body = JsonDocuments(served.services.documents).content(read, only_relevant=only_relevant)
        return whole(body, [*headers, ("Vary", "Accept")])
    if not is_changed:
        return served.shared.contents.send(environ, read, headers)
    if data_format is not None:
        return whole(migrated(read, data_format), headers)
    return send_transformed(environ, transformed(read, only_relevant=only_relevant), headers)


def _written(served: ServedApi, written: Written) -> Response:
    return empty(HTTPStatus.CREATED if written.created else HTTPStatus.NO_CONTENT, served.headers.of_write(written))


def _removed(served: ServedApi, removed: Removed) -> Response:
    return empty(HTTPStatus.NO_CONTENT, served.headers.of_removal(removed))


# A lease is of the id alone, which a document of another form may have.
@runtime.route(_DATA, methods=("LOCK", "UNLOCK"), defaults=_OF_DATA, scope=RouteScope.ALL)
@runtime.route(_DRAFT, methods=("LOCK", "UNLOCK"), defaults=_OF_DRAFTS, scope=RouteScope.ALL)
def lease(collection: Collection, app: str, form: str, document: str, name: str) -> Response:
    address = DocumentAddress(Form(app, form), collection, document, name)
    caller = api.parser.bearer(request)
    try:
        if request.method == "LOCK":
            seconds = parse_timeout(request.environ.get("HTTP_TIMEOUT"))
            body = body_of(request.environ, LARGEST_LOCK)
            holder = api.services.leasing.lock(address, caller, seconds, body)
        else:
            body = body_of(request.environ, LARGEST_LOCK)
            holder = api.services.leasing.unlock(address, caller, body)
    except LockedError as error:
        others = holder_document(error)
        if not others:
            raise
        return locked(request.environ, error, others)
    note_in_audit(request.environ, user=holder.user)
    return empty(HTTPStatus.OK, [])


@runtime.route(_DEFINITION, methods=("LOCK", "UNLOCK"), scope=RouteScope.ALL)
def no_lease(app: str, form: str, name: str) -> Response:
    raise BadAddressError(f"only form data can be leased, and {app}/{form}/form/{name} is a definition's")


# Answers 400 to the methods that resources have; to others it stays 405.
@behind_proxy.route("/crud", methods=RESOURCE_METHODS, scope=RouteScope.ALL)
@behind_proxy.route("/crud/", methods=RESOURCE_METHODS, scope=RouteScope.ALL)
@behind_proxy.route("/crud/<path:rest>", methods=RESOURCE_METHODS, scope=RouteScope.ALL)
def unknown(rest: str = "") -> Response:
    raise BadAddressError(f"there are no resources under the path {rest!r}")


@runtime.route(_HISTORY, methods=("GET", "HEAD"), scope=RouteScope.NAMED)
@runtime.route(_HISTORY + "/<name>", methods=("GET", "HEAD"), scope=RouteScope.NAMED)
def revisions(app: str, form: str, document: str, name: str = DATA_XML) -> Response:
    address = DocumentAddress(Form(app, form), Collection.DATA, document, name)
    asked = page_request(request.args.get("page-number"), request.args.get("page-size"))
    options = _diff_options(request)
    diffed = options if flag(request.args.get("include-diffs") or None, "include-diffs") else None
    answer, notice = api.services.histories.answer(address, asked, api.parser.bearer(request), diffed)
    return answered(request.environ, answer, api.headers.of_notice(notice))


@runtime.route(_HISTORY + "/diff", methods=("GET", "HEAD"), scope=RouteScope.NAMED)
def diff(app: str, form: str, document: str) -> Response:
    address = DocumentAddress(Form(app, form), Collection.DATA, document)
    version = count(request.args.get("form-version") or "", "form-version", 0)
    older = instant_of(request.args.get("older-modified-time"), "older-modified-time")
    newer = instant_of(request.args.get("newer-modified-time"), "newer-modified-time")
    if not version or older is None or newer is None:
        raise BadRequestError("send form-version, older-modified-time and newer-modified-time")
    options, reader = _diff_options(request), api.parser.bearer(request)
    answer = api.services.histories.diffs.between(RevisionPair(address, version, older, newer), reader, options)
    return answered(request.environ, answer)


@runtime.post(_HISTORY + "/restore", scope=RouteScope.NAMED)
@runtime.post(_HISTORY + "/<name>/restore", scope=RouteScope.NAMED)
def restore(app: str, form: str, document: str, name: str = DATA_XML) -> Response:
    drain(request.environ)
    address = DocumentAddress(Form(app, form), Collection.DATA, document, name)
    asked, precondition = api.parser.restore(request)
    note_in_audit(request.environ, details={"instant": asked.instant, "as_of": asked.as_of})
    reverting = api.services.reverting
    plan = reverting.plan(address, asked, precondition)
    written = reverting.restore(plan)
    status = HTTPStatus.CREATED if written.created else HTTPStatus.NO_CONTENT
    return empty(status, [*api.headers.of_write(written), *api.headers.of_notice(plan.notice)])


def _diff_options(asked: Request) -> DiffOptions:
    truncation = count(asked.args.get("truncation-size") or "", "truncation-size", 0)
    return DiffOptions(short(asked.args.get("lang"), "language"), truncation or None)


# Searches and distinct values (spec search 1, 3), lists of forms (search 4), and the index behind them (search 5).
#
# The bodies of requests that rebuild an index have no meaning.


_IGNORE_ADMIN = "ignore-admin-permissions"


@runtime.post("/search/<app>/<form>", defaults={"ask": Searching.search}, scope=RouteScope.NAMED, only_reads=True)
@runtime.post(
    "/distinct-values/<app>/<form>", defaults={"ask": Searching.distinct}, scope=RouteScope.NAMED, only_reads=True
)
def documents_or_values(
    ask: Callable[[Searching, Form, int | Searched, SentQuery, Searcher], tuple[WrittenAnswer, str | None]],
    app: str,
    form: str,
) -> Response:
    searcher = Searcher(api.parser.user(request), api.parser.is_administrator(request))
    version = parse_searched(request.environ.get(api.parser.version_key))
    answer, notice = ask(api.services.searching, Form(app, form), version, _sent(), searcher)
    key: Key | None = request.environ.get(LIMITED_KEY)
    # It may name the nearest of all forms, also to a key that is for some of them only.
    notice = None if key is not None and key.forms else notice
    return answered(request.environ, answer, api.headers.of_notice(notice))


@runtime.post("/search", scope=RouteScope.ALL, only_reads=True)
@runtime.post("/search/<app>", scope=RouteScope.NAMED, only_reads=True)
def documents_of_all_forms(app: str | None = None) -> Response:
    searcher = Searcher(api.parser.user(request), api.parser.is_administrator(request))
    if isinstance(parse_searched(request.environ.get(api.parser.version_key)), int):
        raise BadRequestError("a search of several forms has all versions of each, not one")
    answer, notice = api.services.searching.search_all(app, _sent(), searcher)
    return answered(request.environ, answer, api.headers.of_notice(notice))


def _sent() -> SentQuery:
    return SentQuery(body_of(request.environ, LARGEST_QUERY), is_json=request.mimetype == JSON)


@runtime.get("/form", scope=RouteScope.NAMED)
@runtime.get("/form/<app>", scope=RouteScope.NAMED)
@runtime.get("/form/<app>/<form>", scope=RouteScope.NAMED)
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


@runtime.post("/form", scope=RouteScope.ALL, only_reads=True)
@runtime.post("/form/<app>", scope=RouteScope.ALL, only_reads=True)
@runtime.post("/form/<app>/<form>", scope=RouteScope.ALL, only_reads=True)
def queried(app: str | None = None, form: str | None = None) -> Response:  # noqa: ARG001 - the query is in the body
    user = api.parser.user(request)
    return answered(request.environ, api.services.forms.search(_sent(), user))


@runtime.post("/reindex", scope=RouteScope.ALL)
def all_forms() -> Response:
    drain(request.environ)
    api.services.router.reindex_all()
    return empty(HTTPStatus.OK, [])


@runtime.post("/reindex/<app>/<form>", scope=RouteScope.NAMED)
def version(app: str, form: str) -> Response:
    number = parse_reindexed(request.environ.get(api.parser.version_key))
    drain(request.environ)
    api.services.router.reindex(Form(app, form), number)
    return empty(HTTPStatus.OK, [])


@runtime.get("/reindex/status", scope=RouteScope.ALL)
@reindex_status.get("/reindex", scope=RouteScope.ALL)
def status() -> Response:
    return xml(reindexing_xml(api.services.router.reindexing_status()))


@behind_proxy.get("/reindex", scope=RouteScope.ALL, only_reads=False)
def all_forms_by_get() -> Response:
    """Answer ``GET /reindex`` of 2023.1 and 2024.1 (spec runtime 8); a browser, which follows links, gets a status."""
    return status() if "HTTP_SEC_FETCH_SITE" in request.environ else all_forms()


# The public API alone: publishing, duplicates, lists of attachments.
#
# Publishing stores a definition with its attachments in one request (spec crud 8.3).


@form_services.post("/publish", scope=RouteScope.ALL)
def from_body() -> Response:
    publication = _publication(request.args.get("document-id"))
    body = body_of(request.environ, LARGEST_TREE)
    return _published(api.shared.publishing.from_body(body, publication))


@designer.post("/publish/<document>", scope=RouteScope.ALL)
def from_designer(document: str) -> Response:
    publication = _publication(document)
    drain(request.environ)
    return _published(api.shared.publishing.from_designer(document, publication))


def _published(done: PublishedForm) -> Response:
    form, version, answer = done
    note_in_audit(request.environ, app=form.app, form=form.name, collection="form", version=version)
    return xml(answer)


def _publication(source: str | None) -> Publication:
    # The parameter, else the header (spec crud 8.3).
    parameter = request.args.get("form-definition-version")
    version = parse(parameter, None, None) if parameter else api.parser.version(request)
    comment = (request.args.get("version-comment") or "").strip()
    if len(comment) > LONGEST_COMMENT:
        raise BadRequestError(f"a version comment is at most {LONGEST_COMMENT} characters long")
    return Publication(
        version=version,
        is_available=request.args.get("available") != "false",
        comment=comment or None,
        user=api.parser.user(request),
        source=short(source, "document id"),
        flat_view=api.parser.flat_view(request),
        lists_grids=request.args.get("upgrade-form-definition") != "false",
        target=_target(),
    )


def _target() -> RemoteTarget | None:
    url = request.args.get("remote-server-url")
    if not url:
        return None
    server = api.shared.publishing.servers.require_allowed(url)
    note_in_audit(request.environ, details={"server": str(server)})
    is_forced = flag(request.args.get("force-attachments") or None, "force-attachments") is True
    return RemoteTarget(server, api.parser.remote_authorization(request), is_forced)


@form_services.route("/<app>/<form>/attachments", methods=("GET", "HEAD"), scope=RouteScope.NAMED)
def attachments(app: str, form: str) -> Response:
    document = request.args.get("document")
    if not document:
        raise BadRequestError("the parameter document must name the document whose attachments are asked for")
    return xml(api.services.attachments.of_document(Form(app, form), document, api.parser.user(request)))


@form_services.post("/<app>/<form>/duplicate", scope=RouteScope.NAMED)
def duplicate(app: str, form: str) -> Response:
    user, body = api.parser.user(request), body_of(request.environ, LARGEST_QUERY)
    document, answer = api.shared.duplicating.duplicate(Form(app, form), body, user)
    note_in_audit(request.environ, collection="data", document=document)
    return xml(answer)
