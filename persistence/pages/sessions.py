"""The administrators, who may see the pages, and the sessions of those who have logged in.

An administrator is a caller with an API key that the setting ``administrators`` names, or with a password. While there
is none the pages are off. A session is a signed cookie; it ends with the key or password that began it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import astuple, dataclass, replace

import msgspec
from flask import Request
from itsdangerous import BadData, URLSafeSerializer
from werkzeug.wrappers import Response

from persistence import keys as passwords
from persistence.errors import PersistenceError
from persistence.keys import Key, Keys, key_of
from persistence.limits import (
    ENDED_SESSIONS,
    FAILED_LOGINS,
    FAILED_LOGINS_OF_ALL,
    LOGIN_WINDOW,
    LONGEST_IDLE,
    LONGEST_NOTICE,
    LONGEST_SESSION,
    SESSION_RENEWED,
)
from persistence.storage.layout import PAGES, Layout
from persistence.storage.root import KeyFile


class TooManyLoginsError(PersistenceError):
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


class LoginRecord:
    """The file in a home directory. Methods raise ``DiskError``, ``DamagedError`` and ``BusyError`` as ``KeyFile``."""

    def __init__(self, home: str) -> None:
        path = f"{Layout(home).own(PAGES)}/logins.json"
        self._file = KeyFile(path, tree=home, what="failed logins", nothing=_Logins())

    def begin(self, peer: str) -> None:
        """Count a login as failed before it is looked at: many at once must not all be tried."""
        with self._file.changing() as known:
            now = time.time()  # read under the lock: an earlier login is not in the future
            recent = [each for each in known.failed if now - each.at < LOGIN_WINDOW]
            failed = tuple(_Failed(min(each.at, now), each.peer) for each in recent)
            own = [each.at for each in failed if each.peer == peer]
            for times, most in ((own, FAILED_LOGINS), ([each.at for each in failed], FAILED_LOGINS_OF_ALL)):
                if len(times) >= most:
                    if failed != known.failed:
                        self._file.write(msgspec.structs.replace(known, failed=failed))
                    raise TooManyLoginsError(max(1, round(LOGIN_WINDOW - (now - times[-most]))))
            self._file.write(msgspec.structs.replace(known, failed=(*failed, _Failed(now, peer))))

    def succeeded(self, peer: str) -> None:
        with self._file.changing() as known:
            failed = tuple(each for each in known.failed if each.peer != peer)
            self._file.write(msgspec.structs.replace(known, failed=failed))

    def end(self, session: str) -> None:
        """Remember that a session was ended: its cookie may still be somewhere."""
        now = time.time()
        with self._file.changing() as known:
            ended = tuple(each for each in known.ended if now - each.at < LONGEST_SESSION)
            kept = (*ended, _Ended(session, now))[-ENDED_SESSIONS:]
            self._file.write(msgspec.structs.replace(known, ended=kept))

    def has_ended(self, session: str) -> bool:
        return any(each.id == session for each in self._file.read().ended)


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


@dataclass(frozen=True, slots=True)
class Sessions:
    """Begins, finds, renews and ends sessions, as signed cookies."""

    administrators: Administrators
    record: LoginRecord

    def log_in(self, name: str, secret: str, peer: str, *, is_secure: bool) -> LoginSession | None:
        """Return a new session; ``None`` if the name has neither that API key nor that password."""
        self.record.begin(peer)
        credential = self.administrators.credential(name, secret)
        if credential is None:
            return None
        self.record.succeeded(peer)
        now = int(time.time())
        return LoginSession(secrets.token_hex(16), name, credential, now, now, secrets.token_hex(16), is_secure)

    def of(self, request: Request) -> LoginSession | None:
        secret = self.administrators.keys.session_secret()
        if not secret:
            return None
        try:
            found = LoginSession(*serializer(secret).loads(request.cookies.get(COOKIE, "")))
        except (BadData, TypeError):  # another signature, or the fields of another version
            return None
        now = time.time()
        is_young = now - found.began < LONGEST_SESSION and now - found.seen < LONGEST_IDLE
        known = self.administrators.credentials(found.name)
        is_valid = any(each is not None and hmac.compare_digest(each, found.credential) for each in known)
        return found if is_young and is_valid and not self.record.has_ended(found.id) else None

    def keep(self, response: Response, request: Request, session: LoginSession, notice: str | None = None) -> None:
        """Renew the cookie where that is due, or set it with a notice for the next page; "" is none."""
        now = int(time.time())
        kept = replace(session, seen=now)
        if notice is not None:
            kept = replace(kept, notice=notice[:LONGEST_NOTICE])
        elif now - session.seen < SESSION_RENEWED:
            return
        cookie = serializer(self.administrators.keys.ensured_session_secret()).dumps(astuple(kept))
        response.set_cookie(
            COOKIE,
            str(cookie),
            path=_path(request),
            secure=session.is_secure,
            httponly=True,
            samesite="Strict",
            max_age=LONGEST_SESSION,
        )


def forget(response: Response, request: Request) -> None:
    response.delete_cookie(COOKIE, path=_path(request), httponly=True, samesite="Strict")


def _path(request: Request) -> str:
    return f"{request.script_root}/admin/"
