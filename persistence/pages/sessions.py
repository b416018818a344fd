"""The administrators, who may see the pages, and the sessions of those who have logged in.

An administrator is a caller with an API key that the setting ``administrators`` names, or with a password. While there
is none the pages are off. A session is a signed cookie; it ends with the key or password that began it.
"""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass

from flask import Request
from msgspec.structs import replace
from werkzeug.wrappers import Response

from persistence import passwords
from persistence.crypto import session_cookies
from persistence.crypto.session_cookies import LoginSession, credential_of
from persistence.keys import Key, Keys, key_of
from persistence.limits import LONGEST_IDLE, LONGEST_NOTICE, LONGEST_SESSION, SESSION_RENEWED
from persistence.pages.logins import LoginRecord

COOKIE = "persistence_session"


@dataclass(frozen=True, slots=True)
class Administrators:
    """The callers who may log in: the keys of the setting ``named``, and those with a password.

    A limited key (``Key.is_limited``) is not one of them: the pages show and change everything.

    Methods raise ``DiskError`` and ``DamagedError`` where the file of the keys cannot be read.
    """

    keys: Keys
    named: frozenset[str]

    def exist(self) -> bool:
        """Return whether anybody could log in."""
        return bool(self.keys.passwords()) or bool(self._keys())

    def credential(self, name: str, secret: str) -> str | None:
        """Return the digest of the key or password with which somebody logs in; ``None`` where it is neither."""
        found = key_of(secret, self._keys())
        if found is not None and found.name == name:
            return self.credentials(name)[0]
        kept = {each.name: each for each in self.keys.passwords()}
        if not kept or not passwords.is_right(secret, kept.get(name)):
            return None
        return self.credentials(name)[1]

    def credentials(self, name: str) -> tuple[str | None, str | None]:
        """Return what says which API key, and which password, a name has now."""
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
    """Begins, finds, renews and ends sessions."""

    def __init__(self, administrators: Administrators, record: LoginRecord) -> None:
        self.administrators = administrators
        self._record = record

    def log_in(self, name: str, secret: str, peer: str, *, is_secure: bool) -> LoginSession | None:
        """Return a new session; ``None`` if the name has neither that API key nor that password."""
        self._record.begin(peer)
        credential = self.administrators.credential(name, secret)
        if credential is None:
            return None
        self._record.succeeded(peer)
        now = int(time.time())
        return LoginSession(secrets.token_hex(16), name, credential, now, now, secrets.token_hex(16), is_secure)

    def of(self, request: Request) -> LoginSession | None:
        found = session_cookies.decode(request.cookies.get(COOKIE, ""), self.administrators.keys.session_secret())
        if found is None:
            return None
        now = time.time()
        is_young = now - found.began < LONGEST_SESSION and now - found.seen < LONGEST_IDLE
        known = self.administrators.credentials(found.name)
        is_valid = any(each is not None and hmac.compare_digest(each, found.credential) for each in known)
        return found if is_young and is_valid and not self._record.has_ended(found.id) else None

    def end(self, session: LoginSession) -> None:
        self._record.end(session.id)

    def keep(self, response: Response, request: Request, session: LoginSession, notice: str | None = None) -> None:
        """Renew the cookie where that is due, or set it with a notice for the next page; "" is none."""
        now = int(time.time())
        kept = replace(session, seen=now)
        if notice is not None:
            kept = replace(kept, notice=notice[:LONGEST_NOTICE])
        elif now - session.seen < SESSION_RENEWED:
            return
        cookie = session_cookies.encode(kept, self.administrators.keys.ensured_session_secret())
        response.set_cookie(
            COOKIE,
            cookie,
            path=_path(request),
            secure=session.is_secure,
            httponly=True,
            samesite="Strict",
            max_age=LONGEST_SESSION,
        )


def forget(response: Response, request: Request) -> None:
    """Let a browser forget its cookie."""
    response.delete_cookie(COOKIE, path=_path(request), httponly=True, samesite="Strict")


def _path(request: Request) -> str:
    return f"{request.script_root}/admin/"
