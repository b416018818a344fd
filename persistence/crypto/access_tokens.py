"""Signed access tokens: what one document lets its bearer do, until when (spec crud 6.6).

A token is ``<payload>.<signature>``, both in URL-safe Base64 without padding. The payload has no secrets: two times in
seconds since 1970 and the names of operations. Application, form, version and document are not in it: they are part of
the key that signs (HMAC-SHA-256), so that a token for another document has a wrong signature, as a forged one has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import msgspec
from itsdangerous import BadData, Signer
from itsdangerous.encoding import base64_decode, base64_encode

from persistence.errors import ForbiddenError
from persistence.limits import LONGEST_ACCESS_TOKEN
from persistence.model.addresses import TokenSubject

_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}", re.ASCII)


class TokenGrant(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The contents of a token: when it was issued, from when it has expired, both in seconds, and the operations."""

    issued: int
    expires: int
    operations: tuple[str, ...]


def sign(grant: TokenGrant, subject: TokenSubject, keys: Sequence[bytes]) -> str:
    """Return a token; the last of ``keys`` signs, of which there must be one."""
    return _signer(subject, keys).sign(base64_encode(msgspec.json.encode(grant))).decode("ascii")


def verify(token: str, subject: TokenSubject, keys: Sequence[bytes]) -> TokenGrant:
    """Return what a token grants on a document, signed by any of ``keys``; the caller compares times."""
    if not keys or len(token) > LONGEST_ACCESS_TOKEN or _SHAPE.fullmatch(token) is None:
        raise refused()
    try:
        payload = base64_decode(_signer(subject, keys).unsign(token))
        signature = token.rpartition(".")[2].encode("ascii")
        # The last of 43 digits has two bits too many, which decoding ignores: four texts would be one signature.
        if base64_encode(base64_decode(signature)) != signature:
            raise refused()
        return msgspec.json.decode(payload, type=TokenGrant)
    except (BadData, msgspec.DecodeError) as error:
        raise refused() from error


def refused() -> ForbiddenError:
    """Return the same error for every reason, which would only help to guess tokens."""
    return ForbiddenError("the access token is not valid here, or not any more")


def _signer(subject: TokenSubject, keys: Sequence[bytes]) -> Signer:
    form = subject.form
    salt = msgspec.json.encode(["access-token", form.app, form.name, subject.version, subject.document])
    return Signer(list(keys), salt=salt, key_derivation="hmac", digest_method=hashlib.sha256)
