"""All pages of a service, with the objects that each of them shows and changes, and the login."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from flask import Flask, Response, current_app, g, make_response, redirect, render_template, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as AnyResponse

from persistence.crypto import EncryptionKeys
from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError
from persistence.http.audit import RequestAudit
from persistence.http.logs import CALLER, CAUSE
from persistence.http.parsing import clean, peer_of
from persistence.limits import LONGEST_NEXT
from persistence.metrics.service import Metrics
from persistence.pages import service_pages
from persistence.pages.document_pages import DocumentPages
from persistence.pages.form_pages import FormPages, ServedForms
from persistence.pages.health_page import BackgroundCommand, HealthPage
from persistence.pages.site import NAME, ROOT, Administrators, Sessions, Site, TooManyLoginsError
from persistence.providers.opened import Providers
from persistence.services.changes import ChangeFeed
from persistence.services.documents import Documents
from persistence.services.reencryption import ReencryptionJobs
from persistence.services.rules import AdministratorAccess
from persistence.settings import Effective, zone_of

_NOT_AFTER_A_LOGIN = frozenset({"asset", "home", "login", "logout", "unknown"})
_WRONG = "The name, or the key or password, is wrong."


def _log_in(sessions: Sessions) -> str | AnyResponse:
    """Answer with the form, or to it. No answer says whether a name is known."""
    if request.method != "POST":
        return redirect(_target()) if g.session is not None else _form("")
    name, secret = request.form.get("name", "").strip(), request.form.get("secret", "")
    # A proxy may end TLS without saying so; then the browser does.
    is_secure = request.is_secure or request.headers.get("Origin", "").startswith("https://")
    try:
        session = sessions.log_in(name, secret, str(peer_of(request.environ) or ""), is_secure=is_secure)
    except TooManyLoginsError as error:
        return _refused(HTTPStatus.TOO_MANY_REQUESTS, f"{error}", {"Retry-After": str(error.seconds)})
    if session is None:
        return _refused(HTTPStatus.FORBIDDEN, _WRONG)
    request.environ[CALLER] = session.name
    answer = redirect(_target(), HTTPStatus.SEE_OTHER)
    sessions.keep(answer, request, session, "")
    return answer


def _log_out(sessions: Sessions) -> AnyResponse:
    if request.method == "POST":
        sessions.end(g.session.id)
        g.ended = True
    return redirect(ROOT, HTTPStatus.SEE_OTHER)


def _form(problem: str) -> str:
    name = request.form.get("name", "")[:64]
    return render_template("login.html", problem=problem, name=name, next=_target())


def _refused(status: int, problem: str, headers: dict[str, str] | None = None) -> Response:
    request.environ[CAUSE] = problem
    answer = make_response(_form(problem), status)
    answer.headers.update(headers or {})
    return answer


def _target() -> str:
    asked = request.values.get("next", "")
    path, _, query = asked.partition("?")
    if len(asked) > LONGEST_NEXT or not (query.isascii() and query.isprintable()):
        return ROOT
    try:
        endpoint, _ = current_app.url_map.bind("").match(clean(path), "GET")
    except (ValueError, BadRequestError, HTTPException):
        return ROOT
    blueprint, _, name = endpoint.partition(".")
    return asked if blueprint == NAME and name not in _NOT_AFTER_A_LOGIN else ROOT


def add_pages(  # noqa: PLR0913, PLR0917 - each is a thing that some page shows or changes
    app: Flask,
    administrators: Administrators,
    effective: Effective,
    providers: Providers,
    metrics: Metrics | None,
    errors: service_pages.RecentErrors,
    key_uses: service_pages.KeyUses,
    at_rest: EncryptionKeys,
    reencrypts: ReencryptionJobs,
    request_audit: RequestAudit,
    changes: ChangeFeed,
) -> None:
    """Add every page, in the order of the navigation. They read ``errors`` and ``key_uses``."""
    keys = administrators.keys
    sessions = Sessions(administrators, effective.settings.home)
    site = Site(sessions, request_audit)
    site.form("/admin/login", "login", partial(_log_in, sessions))
    site.form("/admin/logout", "logout", partial(_log_out, sessions))
    dialect = DIALECTS[effective.settings.dialect]
    forms = ServedForms(providers, dialect)
    health = HealthPage(effective, providers.router, reencrypts)
    service_pages.OverviewPage(
        effective, providers, keys, metrics, errors, at_rest, forms.routes, health.last_check
    ).add_to(site)
    documents = Documents(providers.router, dialect, AdministratorAccess(dialect))
    FormPages(forms, documents).add_to(site)
    DocumentPages(forms, documents).add_to(site)
    health.add_to(site)
    service_pages.AuditPage(effective.settings, keys, BackgroundCommand("audit", effective)).add_to(site)
    if effective.settings.events:
        service_pages.EventsPage(changes, effective.settings.webhook).add_to(site)
    service_pages.KeysPage(keys, administrators.named, key_uses, at_rest).add_to(site)
    site.page("/admin/settings", "settings", partial(service_pages.settings_page, effective), "Settings")
    site.add_to(app, zone_of(effective.settings.time_zone))
