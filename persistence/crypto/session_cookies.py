"""Signed cookies: the session of an administrator, which the browser keeps and cannot change.

A cookie is no secret to whoever has it: it says who has logged in, and when. The service keeps the secret that signs.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec
from itsdangerous import BadData, Signer
from itsdangerous.encoding import base64_decode, base64_encode

from persistence.limits import LONGEST_COOKIE

_PURPOSE = b"session-of-the-pages"


class LoginSession(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The login of an administrator.

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


_decode = msgspec.json.Decoder(LoginSession).decode


def encode(session: LoginSession, secret: bytes) -> str:
    return _signer(secret).sign(base64_encode(msgspec.json.encode(session))).decode("ascii")


def decode(cookie: str, secret: bytes) -> LoginSession | None:
    """Return the session of a cookie; ``None`` where it has another signature, or is none."""
    if not secret or len(cookie) > LONGEST_COOKIE or not cookie.isascii():
        return None
    try:
        return _decode(base64_decode(_signer(secret).unsign(cookie)))
    except (BadData, msgspec.DecodeError):
        return None


def credential_of(digest: str, created: str, secret: bytes) -> str:
    """Return a text that is another one when a key or password is replaced; it says nothing of the digest."""
    return hmac.new(secret, f"{digest} {created}".encode(), hashlib.sha256).hexdigest()[:32]


def _signer(secret: bytes) -> Signer:
    return Signer(secret, salt=_PURPOSE, key_derivation="hmac", digest_method=hashlib.sha256)
