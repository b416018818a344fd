"""The site below ``/admin/``: its administrators and sessions, pages, actions and errors, and the headers of pages."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from http import HTTPStatus
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

import msgspec
import nh3
from flask import Blueprint, Flask, Request, Response, current_app, g, redirect, render_template, request, url_for
from itsdangerous import BadData, URLSafeSerializer
from markupsafe import Markup, escape
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as AnyResponse

from persistence import __version__, errors, limits
from persistence import keys as passwords
from persistence.http import logs
from persistence.http.audit import RequestAudit, note_in_audit
from persistence.http.logs import CALLER, CAUSE, REQUEST_ID
from persistence.http.parsing import drain
from persistence.http.responses import Headers, headers_of, refusal
from persistence.keys import Key, Keys, key_of
from persistence.model.texts import Instant, from_datetime
from persistence.pages.languages import Translating, page_language, translated
from persistence.storage.layout import PAGES, Layout
from persistence.storage.root import KeyFile

# The administrators, who may see the pages, and the sessions of those who have logged in.
#
# An administrator is a caller with an API key that the setting ``administrators`` names, or with a password. While
# there is none the pages are off. A session is a signed cookie; it ends with the key or password that began it.


class TooManyLoginsError(errors.PersistenceError):
    """Logins failed too often within a minute; the next one is looked at in ``seconds``."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many logins have failed; try again in {seconds} seconds")
        self.seconds = seconds


class _Failed(msgspec.Struct, frozen=True, array_like=True):
    at: float
    peer: str


class _Ended(msgspec.Struct, frozen=True, array_like=True):
    id: str
    at: float


class _Logins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    failed: tuple[_Failed, ...] = ()
    ended: tuple[_Ended, ...] = ()


COOKIE = "persistence_session"


@dataclass(frozen=True, slots=True)
class LoginSession:
    """The login of an administrator, as the browser keeps it: it can read the cookie, and not change it.

    ``credential`` says which key or password began it (``credential_of``). ``began`` and ``seen`` are in seconds.
    ``csrf`` is in every form of its pages. ``is_secure`` says whether the browser has logged in through TLS.
    ``notice`` is shown on the next page, once.
    """

    id: str
    name: str
    credential: str
    began: int
    seen: int
    csrf: str
    is_secure: bool
    notice: str = ""


def serializer(*keys: bytes) -> URLSafeSerializer:
    """Return what signs cookies with the last key, and reads those that any of the keys has signed."""
    options = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    return URLSafeSerializer(keys, salt="session-of-the-pages", signer_kwargs=options)


def credential_of(digest: str, created: str, secret: bytes) -> str:
    """Return a text that is another one when a key or password is replaced; it says nothing of the digest."""
    return hmac.new(secret, f"{digest} {created}".encode(), hashlib.sha256).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Administrators:
    """The callers who may log in: the keys of the setting ``named``, and those with a password.

    A limited key (``Key.is_limited``) is not one of them: the pages show and change everything.
    """

    keys: Keys
    named: frozenset[str]

    def exist(self) -> bool:
        return bool(self.keys.passwords()) or bool(self._keys())

    def credential(self, name: str, secret: str) -> str | None:
        """Return the digest of the key or password with which somebody logs in; ``None`` where it is neither."""
        found = key_of(secret, self._keys())
        if found is not None and found.name == name:
            return self.credentials(name)[0]
        kept = {each.name: each for each in self.keys.passwords()}
        if not kept or not passwords.is_right_password(secret, kept.get(name)):
            return None
        return self.credentials(name)[1]

    def credentials(self, name: str) -> tuple[str | None, str | None]:
        secret = self.keys.ensured_session_secret()
        key = next((each for each in self._keys() if each.name == name), None)
        password = next((each for each in self.keys.passwords() if each.name == name), None)
        return (
            None if key is None else credential_of(key.sha256, key.created, secret),
            None if password is None else credential_of(password.scrypt, password.created, secret),
        )

    def _keys(self) -> tuple[Key, ...]:
        return tuple(
            key for key in self.keys.read() if key.name in self.named and not key.is_limited and not key.is_expired
        )


class Sessions:
    """Begins, finds, renews and ends sessions, as signed cookies.

    A file in a home directory has the logins that have failed and the sessions that were ended. Methods raise
    ``DiskError``, ``DamagedError`` and ``BusyError`` as ``KeyFile``.
    """

    def __init__(self, administrators: Administrators, home: str) -> None:
        self.administrators = administrators
        path = f"{Layout(home).own(PAGES)}/logins.json"
        self._file = KeyFile(path, tree=home, what="failed logins", nothing=_Logins())

    def log_in(self, name: str, secret: str, peer: str, *, is_secure: bool) -> LoginSession | None:
        """Return a new session; ``None`` if the name has neither that API key nor that password."""
        self._begin(peer)
        credential = self.administrators.credential(name, secret)
        if credential is None:
            return None
        with self._file.changing() as known:
            failed = tuple(each for each in known.failed if each.peer != peer)
            self._file.write(msgspec.structs.replace(known, failed=failed))
        now = int(time.time())
        return LoginSession(secrets.token_hex(16), name, credential, now, now, secrets.token_hex(16), is_secure)

    def _begin(self, peer: str) -> None:
        """Count a login as failed before it is looked at: many at once must not all be tried."""
        with self._file.changing() as known:
            now = time.time()  # read under the lock: an earlier login is not in the future
            recent = [each for each in known.failed if now - each.at < limits.LOGIN_WINDOW]
            failed = tuple(_Failed(min(each.at, now), each.peer) for each in recent)
            own = [each.at for each in failed if each.peer == peer]
            for times, most in (
                (own, limits.FAILED_LOGINS),
                ([each.at for each in failed], limits.FAILED_LOGINS_OF_ALL),
            ):
                if len(times) >= most:
                    if failed != known.failed:
                        self._file.write(msgspec.structs.replace(known, failed=failed))
                    raise TooManyLoginsError(max(1, round(limits.LOGIN_WINDOW - (now - times[-most]))))
            self._file.write(msgspec.structs.replace(known, failed=(*failed, _Failed(now, peer))))

    def end(self, session: str) -> None:
        """Remember that a session was ended: its cookie may still be somewhere."""
        now = time.time()
        with self._file.changing() as known:
            ended = tuple(each for each in known.ended if now - each.at < limits.LONGEST_SESSION)
            kept = (*ended, _Ended(session, now))[-limits.ENDED_SESSIONS :]
            self._file.write(msgspec.structs.replace(known, ended=kept))

    def of(self, request: Request) -> LoginSession | None:
        secret = self.administrators.keys.session_secret()
        if not secret:
            return None
        try:
            found = LoginSession(*serializer(secret).loads(request.cookies.get(COOKIE, "")))
        except (BadData, TypeError):  # another signature, or the fields of another version
            return None
        now = time.time()
        is_young = now - found.began < limits.LONGEST_SESSION and now - found.seen < limits.LONGEST_IDLE
        known = self.administrators.credentials(found.name)
        is_valid = any(each is not None and hmac.compare_digest(each, found.credential) for each in known)
        if not (is_young and is_valid) or any(each.id == found.id for each in self._file.read().ended):
            return None
        return found

    def keep(self, response: AnyResponse, request: Request, session: LoginSession, notice: str | None = None) -> None:
        """Renew the cookie where that is due, or set it with a notice for the next page; "" is none."""
        now = int(time.time())
        kept = replace(session, seen=now)
        if notice is not None:
            kept = replace(kept, notice=notice[: limits.LONGEST_NOTICE])
        elif now - session.seen < limits.SESSION_RENEWED:
            return
        cookie = serializer(self.administrators.keys.ensured_session_secret()).dumps(astuple(kept))
        response.set_cookie(
            COOKIE,
            str(cookie),
            path=_path(request),
            secure=session.is_secure,
            httponly=True,
            samesite="Strict",
            max_age=limits.LONGEST_SESSION,
        )


def _path(request: Request) -> str:
    return f"{request.script_root}/admin/"


Values = Mapping[str, str]
"""The values of an action by name: those of its path and its ``fields``. One that was not sent is empty."""


# Actions of administrators: GET /admin/actions/NAME asks and says what it will do, POST does it.
#
# The audit calls it NAME, and its line has the names app, form, document and name of the path.


@dataclass(frozen=True, slots=True)
class Done:
    """The result: a notice, which the page ``to`` shows, else that of the question, and a ``secret``, shown once."""

    notice: str
    secret: str = ""
    to: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """The page before an action, with a link ``back``; ``do`` does it in the name of an administrator.

    ``sent`` are fields that replace those of the request.
    """

    title: str
    effects: tuple[str, ...]
    button: str
    back: str
    do: Callable[[str], Done]
    is_dangerous: bool = False
    sent: Values = field(default_factory=dict)


_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")
_STEP = 1000
_WHOLE = 100
_LENGTHS = (
    (86_400, "1 day", "{count} days"),
    (3600, "1 hour", "{count} hours"),
    (60, "1 minute", "{count} minutes"),
    (1, "1 second", "{count} seconds"),
)
_SECOND = 19
_SCHEMES = ("https://", "http://", "mailto:")
_RICH_TAGS = frozenset(
    {
        *("a", "b", "blockquote", "br", "code", "del", "div", "em", "hr", "i", "ins", "li", "ol", "p", "pre", "s"),
        *("small", "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "u", "ul"),
    }
)  # The elements of rich text that are shown; the others leave their content
_NOTHING = "\u2013"  # The dash in place of a missing value


def bytes_of(count: float | None) -> str:
    """Return a number of bytes in the unit that suits it: ``12.4 MB``."""
    if count is None:
        return _NOTHING
    value, unit = float(count), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    if unit == 0:
        return translated("1 byte" if value == 1 else "{count} bytes", count=int(value))
    return f"{value:.0f} {_UNITS[unit]}" if value >= _WHOLE else f"{value:.1f} {_UNITS[unit]}"


def number(count: float | None) -> str:
    return _NOTHING if count is None else f"{count:,}".replace(",", "\u202f")


def cut(text: str) -> str:
    """Return a text for a cell of a table, on one line and shortened."""
    short = text if len(text) <= limits.LONGEST_CELL else f"{text[: limits.LONGEST_CELL]}…"
    return " ".join(short.split())


def time_zone() -> tzinfo | None:
    """Return the time zone of the pages; ``None`` for that of the machine."""
    zone: tzinfo | None = current_app.config["TIME_ZONE"]
    return zone


def midnight(day: str, days_later: int = 0) -> Instant:
    """Return the beginning of a day such as ``2026-03-04``, or of one after it, in the zone of the pages."""
    try:
        wanted = date.fromisoformat(day) + timedelta(days=days_later)
        return from_datetime(datetime(wanted.year, wanted.month, wanted.day, tzinfo=time_zone()))
    except (ValueError, OverflowError) as error:
        raise errors.BadRequestError(f"a day is such as 2026-03-04, not {day[:60]!r}") from error


def instant(text: str | None) -> Markup:
    """Return an instant in the zone of the pages to the second, with UTC behind it; it may wrap after the date."""
    if not text:
        return escape(_NOTHING)
    try:
        local = datetime.fromisoformat(text).astimezone(time_zone()).isoformat()
    except (ValueError, OverflowError):  # of a sidecar that somebody has written by hand
        local = text
    date, _, clock = local[:_SECOND].partition("T")
    utc = text[:_SECOND].replace("T", " ")
    return Markup('<time datetime="{}" title="{} UTC"><span>{}</span> <span>{}</span></time>').format(
        text, utc, date, clock
    )


def rich_text(text: str) -> Markup:
    """Return rich text with an allow-list of elements: without scripts, styles, images, and other addresses."""

    def kept(_tag: str, name: str, value: str) -> str | None:
        """Keep the address of a link, unless it leads to these pages."""
        return value if name != "href" or value.startswith(_SCHEMES) else None

    cleaned = nh3.clean(text, tags=set(_RICH_TAGS), attributes={"a": {"href"}}, attribute_filter=kept)
    return Markup(cleaned)  # noqa: S704 - nh3 has cleaned it


def moment(seconds: float | None) -> Markup:
    return instant(None if seconds is None else f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:_SECOND]}Z")


def ago(seconds: float | None) -> str:
    """Return the age of a time in seconds since 1970: ``3 hours ago``."""
    if seconds is None:
        return translated("never")
    return translated("{duration} ago", duration=duration(max(0.0, time.time() - seconds)))


def duration(seconds: float) -> str:
    size, one, several = next((each for each in _LENGTHS if seconds >= each[0]), _LENGTHS[-1])
    count = int(seconds // size)
    return translated(one if count == 1 else several, count=count)


def page(status: int, cause: str, headers: Headers | None = None, *, is_damaged: bool = False) -> Response:
    """Return the page of an error, and hand its cause to the log."""
    request.environ[CAUSE] = errors.one_line(cause)
    if status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:  # that body is not worth waiting for
        drain(request.environ)
    g.setdefault("session", None)
    title, number = HTTPStatus(status).phrase, request.environ.get(REQUEST_ID, "")
    facts = {"status": status, "cause": request.environ[CAUSE], "request_id": number, "is_damaged": is_damaged}
    return Response(render_template("error.html", title=title, **facts), status, headers)


def _error(error: Exception) -> Response:
    if isinstance(error, errors.PersistenceError):
        return page(
            errors.status_of(error), str(error), headers_of(error), is_damaged=isinstance(error, errors.DamagedError)
        )
    if isinstance(error, HTTPException):
        return page(error.code or HTTPStatus.INTERNAL_SERVER_ERROR, error.description or error.name)
    logs.write("unexpected", "error", id=request.environ.get(REQUEST_ID, ""), exception=error)
    return page(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the log has the details under this request's id")


NAME = "pages"
ROOT = "/admin/"
_OPEN = frozenset({f"{NAME}.login", f"{NAME}.asset"})  # Endpoints that need no session

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
_SCRIPT = "text/javascript; charset=utf-8"
_ASSETS = {"pages.css": "text/css; charset=utf-8", "htmx.min.js": _SCRIPT, "pages.js": _SCRIPT}
View = Callable[..., str | AnyResponse]


class Site:
    """Collects pages and actions, and adds them to an application."""

    def __init__(self, sessions: Sessions, audit: RequestAudit) -> None:
        self.sessions = sessions
        self._navigation = list[tuple[str, str, str]]()  # Title, endpoint and path of each entry
        self._blueprint = Blueprint(NAME, __name__, template_folder="templates")
        self._assets = {name: files(__package__).joinpath("static", name).read_bytes() for name in _ASSETS}
        self._digests = {name: hashlib.sha256(asset).hexdigest()[:12] for name, asset in self._assets.items()}
        self._blueprint.context_processor(self._context)
        self._blueprint.before_request(self._identify)
        audit.look_before(self._blueprint)
        self._blueprint.after_request(self._finish)
        self._blueprint.register_error_handler(Exception, _error)
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
            self._navigation.append((title, f"{NAME}.{name}", path))

    def form(self, path: str, name: str, view: View) -> None:
        """Add a page that also receives a form: only for logins, everything else that is sent is an action."""
        self._route(path, name, view, "GET", "HEAD", "POST")

    def action(
        self, name: str, ask: Callable[[Values], Question], *fields: str, subject: str = "", several: str = ""
    ) -> None:
        """Add an action, which ``ask`` prepares, also before it is done; ``fields`` are the names of its values.

        ``subject`` is the rest of the path, such as ``/<app>/<form>``. The values of ``several``, one of the fields,
        have slashes between them.
        """

        def view(**names: str) -> str | AnyResponse:
            sent = request.form if request.method == "POST" else request.args
            values = {**names, **{field: sent.get(field, "").strip() for field in fields}}
            if several:
                values[several] = "/".join(sent.getlist(several))
            if request.method == "POST":
                details: dict[str, object] = {field: values[field][: limits.LONGEST_DETAIL] for field in fields}
                if several:
                    details[several] = [each[: limits.LONGEST_DETAIL] for each in values[several].split("/")]
                note_in_audit(request.environ, details=details)
            question = ask(values)
            if request.method != "POST":
                shown = {**{field: values[field] for field in fields}, **question.sent}
                return render_template("confirm.html", question=question, fields=shown)
            done = question.do(g.session.name)
            if done.secret:
                return render_template("secret.html", done=done, back=question.back)
            g.notice = done.notice
            return redirect(done.to or question.back, HTTPStatus.SEE_OTHER)

        self.form(f"/admin/actions/{name}{subject}", name, view)

    def add_to(self, app: Flask, zone: tzinfo | None) -> None:
        app.config["TIME_ZONE"] = zone
        self._route("/admin", "home", lambda: redirect(ROOT))
        self._route("/admin/<path:unknown>", "unknown", _unknown, "GET", "HEAD", "POST")
        app.jinja_env.add_extension(Translating)
        app.jinja_env.globals.update(translated=translated, page_language=page_language)
        filters = (translated, number, cut, instant, moment, ago, duration, rich_text)
        app.jinja_env.filters.update({each.__name__: each for each in filters}, bytes=bytes_of)
        app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
        app.register_blueprint(self._blueprint)

    def _route(self, rule: str, name: str, view: View, *methods: str) -> None:
        self._blueprint.add_url_rule(rule, name, view, methods=methods or ("GET", "HEAD"))

    def _identify(self) -> str | AnyResponse | None:
        request.environ.pop(CALLER, None)  # a key that was sent counts for programs only
        if not self.sessions.administrators.exist():
            return refusal(request.environ, HTTPStatus.NOT_FOUND, "there is nothing under this path")
        request.max_content_length = limits.LARGEST_FORM
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
            raise errors.ForbiddenError(
                "this form is not from your session: go back, load the page again, and repeat it"
            )
        return None

    def _context(self) -> dict[str, object]:
        session = g.get("session")
        return {
            "navigation": self._navigation,
            "root": ROOT,
            "session": session,
            "notice": session.notice if session else "",
            "csrf": session.csrf if session else "",
            "version": __version__,
            "zone": datetime.now(UTC).astimezone(time_zone()).tzname(),
            "asset": lambda name: url_for(f"{NAME}.asset", name=name, v=self._digests[name]),
        }

    def _finish(self, response: Response) -> Response:
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        session = g.get("session")
        if session is None or request.endpoint in _OPEN:
            return response
        if "ended" in g:
            response.delete_cookie(COOKIE, path=_path(request), httponly=True, samesite="Strict")
        else:
            was_shown = session.notice and response.status_code == HTTPStatus.OK and request.method != "HEAD"
            self.sessions.keep(response, request, session, g.get("notice", "" if was_shown else None))
        return response

    def _asset(self, name: str) -> AnyResponse:
        if name not in self._assets:
            raise errors.NotFoundError("there is nothing under this path")
        unchanging = {"Cache-Control": "private, max-age=31536000, immutable"}  # the address has a digest
        return Response(self._assets[name], content_type=_ASSETS[name], headers=unchanging)


def _unknown(unknown: str) -> AnyResponse:
    raise errors.NotFoundError(f"there is no page {unknown}")
