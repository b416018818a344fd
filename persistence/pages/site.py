"""The site below ``/admin/``: its pages and actions, who may see them, and the headers of every page."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Flask, Response, g, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from persistence import __version__
from persistence.errors import ForbiddenError, NotFoundError
from persistence.http.audit import note_in_audit
from persistence.http.logs import CALLER
from persistence.http.responses import refusal
from persistence.limits import LARGEST_FORM, LONGEST_DETAIL
from persistence.pages.actions import Action
from persistence.pages.error_pages import answer_errors_by_pages
from persistence.pages.rendering import FILTERS
from persistence.pages.sessions import Sessions, forget

NAME = "pages"
ROOT = "/admin/"
_OPEN = frozenset({f"{NAME}.login", f"{NAME}.asset"})
"""Endpoints that need no session."""

_POLICY = (
    "default-src 'none'",
    "style-src 'self'",
    "script-src 'self'",
    "connect-src 'self'",  # htmx asks for parts of pages
    "img-src 'self' data:",
    "form-action 'self'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
)
_HEADERS = {
    "Content-Security-Policy": "; ".join(_POLICY),
    "Referrer-Policy": "same-origin",  # with no-referrer a browser says that a form comes from the origin "null"
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_ASSETS = {"pages.css": "text/css; charset=utf-8", "htmx.min.js": "text/javascript; charset=utf-8"}
_UNCHANGING = "private, max-age=31536000, immutable"
"""``Cache-Control`` of what never changes under its address, which has a digest."""

View = Callable[..., str | AnyResponse]


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """An entry of the navigation; the pages below its path belong to it, too."""

    title: str
    endpoint: str
    path: str

    @property
    def is_here(self) -> bool:
        return request.path == self.path or (self.path != ROOT and request.path.startswith(f"{self.path}/"))


class Site:
    """Collects pages and actions, and adds them to an application."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self._navigation: list[NavigationItem] = []
        self._blueprint = Blueprint(NAME, __name__, template_folder="templates")
        self._assets = {name: files(__package__).joinpath("static", name).read_bytes() for name in _ASSETS}
        self._blueprint.context_processor(self._context)
        self._blueprint.before_request(self._identify)
        self._blueprint.after_request(self._finish)
        answer_errors_by_pages(self._blueprint)
        self._route("/admin/static/<name>", "asset", self._asset)

    def page(self, path: str, name: str, view: View, title: str = "", *, reads: str = "") -> None:
        """Add a page, whose endpoint is ``pages.NAME``; one with a ``title`` is in the navigation, in this order.

        A page that shows form data says in ``reads`` what the audit calls that.
        """

        def reading(**names: Any) -> str | AnyResponse:
            note_in_audit(request.environ, action=reads)
            return view(**names)

        self._route(path, name, reading if reads else view)
        if title:
            self._navigation.append(NavigationItem(title, f"{NAME}.{name}", path))

    def form(self, path: str, name: str, view: View) -> None:
        """Add a page that also receives a form: only for logins, everything else that is sent is an action."""
        self._route(path, name, view, "GET", "HEAD", "POST")

    def action(self, action: Action) -> None:
        """Add an action: GET asks its question, POST does it."""

        def view(**names: str) -> str | AnyResponse:
            sent = request.form if request.method == "POST" else request.args
            values = {**names, **{field: sent.get(field, "").strip() for field in action.fields}}
            if request.method == "POST":
                details = {field: values[field][:LONGEST_DETAIL] for field in action.fields}
                note_in_audit(request.environ, details=details)
            question = action.ask(values)
            if request.method != "POST":
                fields = {**{field: values[field] for field in action.fields}, **question.sent}
                return render_template("confirm.html", question=question, fields=fields)
            done = action.do(values, g.session.name)
            if done.secret:
                return render_template("secret.html", done=done)
            g.notice = done.notice
            return redirect(done.to, HTTPStatus.SEE_OTHER)

        self.form(action.path, action.name, view)

    def add_to(self, app: Flask) -> None:
        """Add everything to an application, a ``Dispatch``: the audit names the administrator."""
        self._route("/admin", "home", lambda: redirect(ROOT))
        self._route("/admin/<path:unknown>", "unknown", _unknown, "GET", "HEAD", "POST")
        app.jinja_env.filters.update(FILTERS)
        app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
        app.register_blueprint(self._blueprint)

    def _route(self, rule: str, name: str, view: View, *methods: str) -> None:
        allowed = methods or ("GET", "HEAD")
        self._blueprint.add_url_rule(rule, name, view, methods=allowed, provide_automatic_options=False)

    def _identify(self) -> str | AnyResponse | None:
        request.environ.pop(CALLER, None)  # a key that was sent counts for programs only
        if not self.sessions.administrators.exist():
            return refusal(request.environ, HTTPStatus.NOT_FOUND, "there is nothing under this path")
        request.max_content_length = LARGEST_FORM
        g.session = self.sessions.of(request)
        if request.endpoint in _OPEN:
            return None
        if g.session is None:
            asked = request.environ["RAW_URI"] if request.method == "GET" and request.path != ROOT else ""
            query = f"?{urlencode({'next': asked})}" if asked else ""
            return redirect(url_for(f"{NAME}.login") + query, HTTPStatus.SEE_OTHER)
        request.environ[CALLER] = g.session.name
        token = request.form.get("csrf", "") if request.method == "POST" else g.session.csrf
        if not hmac.compare_digest(token.encode(), g.session.csrf.encode()):
            raise ForbiddenError("this form is not from your session: go back, load the page again, and repeat it")
        return None

    def _context(self) -> dict[str, object]:
        session = g.get("session")
        return {
            "navigation": self._navigation,
            "session": session,
            "notice": session.notice if session else "",
            "csrf": session.csrf if session else "",
            "version": __version__,
            "asset": self._asset_path,
        }

    def _finish(self, response: Response) -> Response:
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        session = g.get("session")
        if session is None or request.endpoint in _OPEN:
            return response
        if "ended" in g:
            forget(response, request)
        else:
            was_shown = session.notice and response.status_code == HTTPStatus.OK and request.method != "HEAD"
            self.sessions.keep(response, request, session, g.get("notice", "" if was_shown else None))
        return response

    def _asset_path(self, name: str) -> str:
        version = hashlib.sha256(self._assets[name]).hexdigest()[:12]
        return url_for(f"{NAME}.asset", name=name, v=version)

    def _asset(self, name: str) -> AnyResponse:
        if name not in self._assets:
            raise NotFoundError("there is nothing under this path")
        return Response(self._assets[name], content_type=_ASSETS[name], headers={"Cache-Control": _UNCHANGING})


def _unknown(unknown: str) -> AnyResponse:
    raise NotFoundError(f"there is no page {unknown}")
