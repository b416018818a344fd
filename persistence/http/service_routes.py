"""The routes about the service, and those of administrators: exports, imports, purges, owners, tokens, changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from http import HTTPStatus
from importlib.resources import files
from itertools import chain, islice
from string import Template
from urllib.parse import parse_qsl

import msgspec
from flask import Blueprint, Request, Response, redirect, request
from werkzeug.wrappers import Response as AnyResponse

from persistence import __version__, shipped
from persistence.dialect import Dialect
from persistence.errors import BadRequestError, EncodedBodyError, NotSupportedError, StartupError
from persistence.http import logs
from persistence.http.application import HEALTH_PATHS, IS_STRANGER, METRICS_PATH, ROOT_PATH, RouteScope, api
from persistence.http.audit import note_in_audit
from persistence.http.logs import REQUEST_ID
from persistence.http.parsing import body_of, drain
from persistence.http.responses import JSON, XLSX, BareResponse, Headers, empty, refusal, text, whole, xml
from persistence.limits import LARGEST_IMPORT, LARGEST_QUERY, MOST_CHANGED, MOST_EXPORT_PATTERNS
from persistence.metrics.service import CONTENT_TYPE, Metrics
from persistence.model.addresses import PUBLIC_PREFIX, Form
from persistence.model.permissions import User
from persistence.model.queries import (
    SINCE,
    UNTIL,
    ExportedContent,
    ExportQuery,
    parse_contents,
    parse_history,
    parse_range,
    patterns_of,
)
from persistence.model.texts import cutoff, duration, flag, known_parameters, next_after, short, word
from persistence.model.versions import number_only
from persistence.services.document_tables import TableExport
from persistence.services.documents import FactsChange
from persistence.services.exporting import parse_search
from persistence.services.import_plans import OnConflict
from persistence.services.import_sources import is_importable
from persistence.services.importing import ImportOptions
from persistence.services.purging import PurgeRules

administration = Blueprint("administration", __name__)

_FORM = "application/x-www-form-urlencoded"
_DRAFTS = {"exclude": False, "include": True}
_FORMATS = {"zip": "application/zip", "xlsx": XLSX, "parquet": "application/zip"}
_ONCE = ("content", "data-revision-history", SINCE, UNTIL, "drafts", "decrypt", "form-version", "format", "lang")
EXPORT_PARAMETERS = ("match", *_ONCE, "search")  # The parameters of an export

_DRY_RUN, _ON_CONFLICT = "dry-run", "on-conflict"
IMPORT_PARAMETERS = (_DRY_RUN, _ON_CONFLICT)  # The parameters of an import

CHANGES_PARAMETERS = ("since", "limit", "wait", "datasource")
"""The parameters of the feed of changes."""

FACTS_PARAMETERS = ("owner", "group", "no-owner", "stage", "owned-by", "dry-run")
"""The parameters of a change of owners and stages."""

_KINDS = ("revisions", "tombstones", "drafts", "orphans")
_OWN = frozenset({"older-than", "what"})
_REAL = frozenset({"match", "form-version", "data-revision-history", SINCE, UNTIL})


@administration.route("/export", methods=("GET", "POST"), scope=RouteScope.ALL, only_reads=True)
@administration.route("/export/<app>", methods=("GET", "POST"), scope=RouteScope.NAMED, only_reads=True)
@administration.route("/export/<app>/<form>", methods=("GET", "POST"), scope=RouteScope.NAMED, only_reads=True)
@administration.route(
    "/export/<app>/<form>/<document>", methods=("GET", "POST"), scope=RouteScope.NAMED, only_reads=True
)
def export(app: str | None = None, form: str | None = None, document: str | None = None) -> Response:
    """Answer ``/export/$app/$form/$document`` with an archive made while it is sent, or a table, without length."""
    number = request.environ.get(REQUEST_ID)
    api.shared.administrators.require(request.environ, "export")
    pairs = _parameters(request)
    once = known_parameters(pairs, EXPORT_PARAMETERS, "export", repeatable=("match",))
    matches = [value for name, value in pairs if name == "match"]
    since, until = parse_range(once.get(SINCE), once.get(UNTIL))
    patterns = patterns_of(app, form, once.get("form-version"), matches)
    contents, history = parse_contents(once.get("content")), parse_history(once.get("data-revision-history"))
    drafts = once.get("drafts") or "exclude"
    if drafts not in _DRAFTS:
        raise BadRequestError(f"drafts must be exclude or include, not {drafts[:60]!r}")
    decrypt = flag(once.get("decrypt") or None, "decrypt") is True
    search = parse_search(once.get("search"))
    query = ExportQuery(patterns, contents, history, since, until, _DRAFTS[drafts], decrypt, document, search)
    if search is not None and document is not None:
        raise BadRequestError("search is a parameter of an export of forms, not of one document")
    note_in_audit(request.environ, details=dict(pairs) | {"match": matches})

    def report(line: str) -> None:
        logs.write("not-exported", "error", id=number, cause=line)

    suffix = once.get("format") or "zip"
    if suffix not in _FORMATS:
        raise BadRequestError(f"format must be {' or '.join(_FORMATS)}, not {suffix[:60]!r}")
    is_table = suffix != "zip"
    if is_table and (once.get("content") or once.get("data-revision-history")):
        raise BadRequestError(f"content and data-revision-history are parameters of an archive, not of {suffix}")
    if once.get("lang") and not is_table:
        raise BadRequestError("lang is a parameter of a table, not of an archive")
    if is_table:
        table = TableExport(api.shared.exporting, query, once.get("lang") or None, has_all_controls=True)
        made = table.sheets(report, lambda: None, kind=suffix, lists_problems=True)
        try:
            made = chain(list(islice(made, 1)), made)  # an error before the first piece is still an answer
        except StartupError as error:  # a library that is not installed
            raise NotSupportedError(str(error)) from error
    else:
        made = api.shared.exporting(query).archive(report, lambda: None)
    pieces = logs.unbroken(made, number)
    extension = "xlsx" if suffix == "xlsx" else "zip"
    headers = [
        ("Content-Type", _FORMATS[suffix]),
        ("Content-Disposition", f'attachment; filename="export-{next_after(None)[:10]}.{extension}"'),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
        ("X-Accel-Buffering", "no"),  # nginx would write as much of it to its disk as comes before the client reads
    ]
    return BareResponse(pieces, HTTPStatus.OK, headers)


def _parameters(asked: Request) -> list[tuple[str, str]]:
    pairs = list(asked.args.items(multi=True))
    if asked.method == "POST":
        body = b"".join(body_of(asked.environ, LARGEST_QUERY))
        if body and asked.mimetype != _FORM:
            raise BadRequestError(f"the parameters of an export are sent as {_FORM}, not {asked.mimetype or 'nothing'}")
        most = MOST_EXPORT_PATTERNS + len(EXPORT_PARAMETERS)
        try:
            pairs += parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=most)
        except ValueError as error:  # bytes that are not ASCII, or percent-encoded ones that are not UTF-8; too many
            raise BadRequestError("the body must be a form-encoded list of parameters, and not too many") from error
    return pairs


@administration.post("/import", scope=RouteScope.ALL)
def receive() -> Response:
    api.shared.administrators.require(request.environ, "import")
    sent = known_parameters(request.args.items(multi=True), IMPORT_PARAMETERS, "import")
    is_dry = flag(sent.get(_DRY_RUN) or None, _DRY_RUN) is True
    on_conflict = word(OnConflict, sent.get(_ON_CONFLICT) or OnConflict.REFUSE.value, _ON_CONFLICT)
    kind = request.environ.get("CONTENT_TYPE")
    if not is_importable(kind):
        raise EncodedBodyError("the content type must be application/zip or application/jsonl")
    note_in_audit(request.environ, details={"dry_run": is_dry, "on_conflict": on_conflict.value})
    body = body_of(request.environ, LARGEST_IMPORT)
    return xml(api.shared.imports.run(kind, body, ImportOptions(is_dry, on_conflict)))


@administration.post("/purge", scope=RouteScope.NAMED)
@administration.post("/purge/<app>", scope=RouteScope.NAMED)
@administration.post("/purge/<app>/<form>", scope=RouteScope.NAMED)
@administration.post("/purge/<app>/<form>/<document>", scope=RouteScope.NAMED)
def purge(app: str | None = None, form: str | None = None, document: str | None = None) -> Response:
    # ``?what=revisions,drafts&older-than=30d&dry-run=false`` is the service's own, ``?data-revision-history=include``
    # with ``match``, ``form-version`` and dates the real system's (spec runtime 6).
    drain(request.environ)
    api.shared.administrators.require(request.environ, "purge")
    args = request.args
    names = set(args) - {"dry-run"}
    is_own = names <= _OWN
    if not names or not (is_own or names <= _REAL):
        own, real = ", ".join(sorted(_OWN)), ", ".join(sorted(_REAL))
        raise BadRequestError(f"a purge has either the parameters {own}, or some of {real}; and dry-run")
    trial = flag(args.get("dry-run") or None, "dry-run")
    is_dry = trial is not False if is_own else trial is True
    asked: dict[str, object] = {name.replace("-", "_"): ",".join(args.getlist(name)) for name in args}
    note_in_audit(request.environ, details=asked | {"dry_run": is_dry})
    if is_own:
        words = [each.strip() for each in (args.get("what") or "").split(",")]
        older_than = args.get("older-than") or ""
        if not older_than or not set(words) <= set(_KINDS):
            raise BadRequestError(f"older-than must say how old, and what a list of: {', '.join(_KINDS)}")
        rules = PurgeRules(**dict.fromkeys(words, cutoff(older_than, datetime.now(UTC))))
        return xml(api.shared.purges.purge(app, form, document, rules, dry=is_dry))
    since, until = parse_range(args.get(SINCE), args.get(UNTIL))
    patterns = patterns_of(app, form, args.get("form-version"), args.getlist("match"))
    history = parse_history(args.get("data-revision-history"))
    query = ExportQuery(patterns, frozenset({ExportedContent.DATA}), history, since, until)
    return xml(api.shared.purges.purge_data(query, document, api.parser.user(request), dry=is_dry))


@administration.post("/change/<app>/<form>", scope=RouteScope.NAMED)
@administration.post("/change/<app>/<form>/<document>", scope=RouteScope.NAMED)
def change(app: str, form: str, document: str | None = None) -> Response:
    drain(request.environ)
    api.shared.administrators.require(request.environ, "change owners and stages")
    asked = known_parameters(request.args.items(multi=True), FACTS_PARAMETERS, "change")
    owner = User(name=short(asked.get("owner") or None, "owner"), group=short(asked.get("group") or None, "group"))
    is_nobodys = flag(asked.get("no-owner") or None, "no-owner") is True
    stage = (short(asked["stage"], "stage") or "") if "stage" in asked else None
    owned_by = short(asked.get("owned-by") or None, "owner before")
    if (owner.name is None and not is_nobodys and stage is None) or (owner != User() and is_nobodys):
        raise BadRequestError("owner or no-owner=true, or stage, says what is changed")
    if owner.group is not None and owner.name is None:
        raise BadRequestError("a group needs an owner")
    if (document is None) == (owned_by is None):
        raise BadRequestError("owned-by says which documents of a form; one document has no such parameter")
    is_trial = flag(asked.get("dry-run") or None, "dry-run") is True
    note_in_audit(request.environ, details=dict(asked))
    wanted = FactsChange(api.parser.user(request), owner if owner.name or is_nobodys else None, stage)
    every = api.shared.changing.change_each(Form(app, form), document, owned_by, wanted, is_trial=is_trial)
    found = list(islice(every, MOST_CHANGED))
    changed = [
        {"document": name, "owner": before.creator, "group": before.group, "stage": before.stage}
        for name, before, _ in found
        if before is not None
    ]
    failed = [{"document": name, "cause": cause} for name, before, cause in found if before is None]
    return _json({"changed": changed, "failed": failed, "has_more": len(found) == MOST_CHANGED})


@administration.get("/reencrypt", scope=RouteScope.ALL)
def reencryption_status() -> Response:
    return xml(api.shared.reencrypts.status())


@administration.post("/reencrypt/<app>/<form>", scope=RouteScope.NAMED)
def reencrypt(app: str, form: str) -> Response:
    number = number_only(api.parser.version(request), "re-encryption")
    drain(request.environ)
    api.shared.reencrypts.begin(Form(app, form), number)
    return empty(HTTPStatus.OK, [])


# To callers whose API keys the settings name (spec crud 6.6).
@administration.post("/token/<app>/<form>/<document>", scope=RouteScope.NAMED)
def issue_token(app: str, form: str, document: str) -> Response:
    drain(request.environ)
    api.shared.token_issuers.require(request.environ, "issue access tokens")
    operations = (request.args.get("operations") or "").split(",")
    seconds = duration(request.args.get("expires") or "")
    asked = api.parser.version(request)
    wanted = filter(None, map(str.strip, operations))
    token = api.shared.issuing.issue(Form(app, form), document, asked, wanted, seconds)
    return text(HTTPStatus.OK, token, [("Cache-Control", "no-store")])


@administration.get("/changes", scope=RouteScope.ALL)
def follow() -> Response:
    api.shared.administrators.require(request.environ, "follow changes")
    asked = known_parameters(request.args.items(multi=True), CHANGES_PARAMETERS, "event feed")
    page = api.shared.changes.page(
        asked.get("datasource") or "", asked.get("since"), asked.get("limit"), asked.get("wait")
    )
    listed = [{"number": each.number, **msgspec.json.decode(each.body)} for each in page.changes]
    return _json({"changes": listed, "next": page.cursor, "has_more": page.has_more})


def _json(answer: dict[str, object]) -> Response:
    headers = [("Content-Type", JSON), ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")]
    return whole(msgspec.json.encode(answer), headers)


# The service about itself: ``/``, ``/version``, ``/openapi.yaml``, ``/api/``, ``/metrics``, and its health.
#
# Supervisors and load balancers ask whether the service runs (``/healthz``), and whether it can store (``/readyz``).
# A stranger gets ``/`` too, and learns there that this is a service which asks for a key: nothing of its data.


_NOT_STORED = ("Cache-Control", "no-store")
_CACHED = ("Cache-Control", "max-age=3600")
_HTML: Headers = [
    ("Content-Type", "text/html; charset=utf-8"),
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
]
_REFERENCE: Headers = [  # the page itself says what it may load
    _HTML[0],
    ("Content-Security-Policy", "frame-ancestors 'none'"),
    *_HTML[2:],
]
_TEXT: Headers = [("Content-Type", "text/plain; charset=utf-8")]
_VARIES = [_NOT_STORED, ("Vary", "Accept, Authorization")]

_HEALTH = [
    ("/admin/", "pages for administrators, once there is one"),
    ("/healthz", "is the process alive?"),
    ("/readyz", "can it store?"),
]
_TO_CALLERS = [
    ("", "It stores form definitions, form data, drafts and attachments."),
    (PUBLIC_PREFIX, "the interface for form runtimes, below this path"),
    ("/api/", "reference of the interface"),
    ("/openapi.yaml", "the same for programs"),
    *_HEALTH,
    (METRICS_PATH, "metrics for Prometheus"),
    ("/version", "version and dialect as JSON"),
    ("", "The documentation is in docs/index.md of the sources."),
]
_TO_STRANGERS = [
    ("", "persistence: a service that stores forms"),
    ("", "It answers callers that it knows: send an API key, as in Authorization: Bearer KEY."),
    *_HEALTH,
]  # Lines about the service: a path or nothing, and the text beside it


def about(dialect: Dialect, metrics: Metrics | None) -> Blueprint:
    blueprint = Blueprint("about", __name__)
    to_callers = [("", f"persistence {__version__}, dialect {dialect.name}"), *_TO_CALLERS]

    @blueprint.route(ROOT_PATH, methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def root() -> Response:
        lines = _TO_STRANGERS if request.environ.get(IS_STRANGER) else to_callers
        if request.accept_mimetypes.best_match(("text/plain", "text/html")) == "text/html":
            return whole(_page(lines).encode(), [*_HTML, *_VARIES])
        return whole(_text(lines).encode(), [*_TEXT, *_VARIES])

    @blueprint.route("/version", methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def version() -> Response:
        facts = {
            "version": __version__,
            "dialect": dialect.name,
            "interface": PUBLIC_PREFIX,
            "openapi": "/openapi.yaml",
        }
        return whole(json.dumps(facts).encode() + b"\n", [("Content-Type", "application/json"), _NOT_STORED])

    @blueprint.route("/openapi.yaml", methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def interface() -> Response:
        return whole(dialect.described(shipped("openapi.yaml").decode()).encode(), [*_TEXT])

    @blueprint.route("/api", methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def to_reference() -> AnyResponse:
        return redirect("api/")

    @blueprint.route("/api/", methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def reference() -> Response:
        return whole(_reference("index.html"), _REFERENCE)

    @blueprint.route("/api/redoc.standalone.js", methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    @blueprint.route("/api/theme.js", methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def script() -> Response:
        name = request.path.rpartition("/")[2]
        return whole(_reference(name), [("Content-Type", "text/javascript"), _CACHED])

    if metrics is not None:

        @blueprint.route(METRICS_PATH, methods=("GET", "HEAD"), scope=RouteScope.ALL)
        def show_metrics() -> Response:
            return whole(metrics.text(), [("Content-Type", CONTENT_TYPE), _NOT_STORED])

    return blueprint


def health(shortage: Callable[[], str | None], remark: Callable[[], str | None]) -> Blueprint:
    """Return ``/healthz`` and ``/readyz``. A stranger does not get the cause, which has paths and numbers."""
    blueprint = Blueprint("health", __name__)
    live, ready = HEALTH_PATHS

    @blueprint.route(live, methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def healthz() -> Response:
        return text(HTTPStatus.OK, "ok")

    @blueprint.route(ready, methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def readyz() -> Response:
        environ, cause = request.environ, shortage()
        is_stranger = bool(environ.get(IS_STRANGER))
        if cause is not None:
            shown = "not ready: the log of the service says why" if is_stranger else None
            return refusal(environ, HTTPStatus.SERVICE_UNAVAILABLE, cause, [("Retry-After", "5")], shown=shown)
        defect = None if is_stranger else remark()
        return text(HTTPStatus.OK, "ready" if defect is None else f"ready, but {defect}")

    return blueprint


def _reference(name: str) -> bytes:
    return (files("persistence.http") / "reference" / name).read_bytes()


def _text(lines: list[tuple[str, str]]) -> str:
    width = max(len(path) for path, _ in lines)
    return "".join(f"  {path:<{width}}  {text}\n" if path else f"{text}\n" for path, text in lines)


def _page(lines: list[tuple[str, str]]) -> str:
    remarks = "".join(f"<p>{escape(text)}</p>\n" for path, text in lines[1:] if not path)
    links = "".join(f"<dt>{_shown(path)}</dt><dd>{escape(text)}</dd>\n" for path, text in lines if path)
    page = Template(_reference("about.html").decode())
    return page.substitute(title=escape(lines[0][1]), remarks=remarks, links=links)


def _shown(path: str) -> str:
    return escape(path) if path == PUBLIC_PREFIX else f'<a href="{escape(path)}">{escape(path)}</a>'
