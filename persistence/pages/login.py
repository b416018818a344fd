"""The login and the logout."""

from __future__ import annotations

from http import HTTPStatus

from flask import Response, current_app, g, make_response, redirect, render_template, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as AnyResponse

from persistence.errors import BadRequestError
from persistence.http.callers import peer_of
from persistence.http.logs import CALLER, CAUSE
from persistence.http.paths import clean
from persistence.limits import LONGEST_NEXT
from persistence.pages.logins import TooManyLoginsError
from persistence.pages.sessions import Sessions
from persistence.pages.site import NAME, ROOT, Site

_NOT_AFTER_A_LOGIN = frozenset({"asset", "home", "login", "logout", "unknown"})
_WRONG = "The name, or the key or password, is wrong."


class LoginPage:
    """The form and its target. No answer says whether a name is known."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add_to(self, site: Site) -> None:
        site.form("/admin/login", "login", self.log_in)
        site.form("/admin/logout", "logout", self.log_out)

    def log_in(self) -> str | AnyResponse:
        if request.method != "POST":
            return redirect(_target()) if g.session is not None else _form("")
        name, secret = request.form.get("name", "").strip(), request.form.get("secret", "")
        # A proxy may end TLS without saying so; then the browser does.
        is_secure = request.is_secure or request.headers.get("Origin", "").startswith("https://")
        try:
            session = self._sessions.log_in(name, secret, str(peer_of(request.environ) or ""), is_secure=is_secure)
        except TooManyLoginsError as error:
            return _refused(HTTPStatus.TOO_MANY_REQUESTS, f"{error}", {"Retry-After": str(error.seconds)})
        if session is None:
            return _refused(HTTPStatus.FORBIDDEN, _WRONG)
        request.environ[CALLER] = session.name
        answer = redirect(_target(), HTTPStatus.SEE_OTHER)
        self._sessions.keep(answer, request, session, "")
        return answer

    def log_out(self) -> AnyResponse:
        if request.method == "POST":
            self._sessions.end(g.session)
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
