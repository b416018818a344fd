"""Access tokens: which are issued, for how long, and which operations a token grants (spec crud 6.6).

The operations of a token count only as far as a permission for ``anyone-with-token`` has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from persistence.crypto import access_tokens
from persistence.crypto.access_tokens import TokenGrant
from persistence.errors import BadRequestError, ConfigurationError
from persistence.model import versions
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form, TokenSubject
from persistence.model.permissions import DELETE, READ, UPDATE
from persistence.model.versions import VersionRequest
from persistence.providers.router import Router
from persistence.services.rules import must_live

GRANTABLE = (READ, UPDATE, DELETE)
"""The operations that a token can grant: they are about one document that exists."""

_MINUTE = 60


@dataclass(frozen=True, slots=True)
class AccessTokens:
    """Issues and verifies tokens. ``keys`` returns the secrets that sign, the newest last; ``clock`` is in seconds."""

    keys: Callable[[], Sequence[bytes]]
    clock: Callable[[], float] = time.time

    def issue(self, subject: TokenSubject, operations: Iterable[str], seconds: float, validity: int) -> str:
        """Return a token that expires in so many seconds; ``validity`` is the property, in minutes."""
        wanted = frozenset(operations)
        for name in sorted(wanted.difference(GRANTABLE)):
            raise BadRequestError(f"a token cannot grant {name!r}, only {', '.join(GRANTABLE)}")
        if not wanted:
            raise BadRequestError(f"a token needs operations: some of {', '.join(GRANTABLE)}")
        if not 0 < seconds <= validity * _MINUTE:
            allowed = f"are valid for at most {validity} minutes" if validity else "are not issued"
            raise BadRequestError(f"access tokens of {subject.form} {allowed}: the property access-token.validity")
        keys = self.keys()
        if not keys:
            raise ConfigurationError("there is no key that signs tokens: make one with persistence signing-key new")
        now = int(self.clock())
        granted = tuple(name for name in GRANTABLE if name in wanted)
        return access_tokens.sign(TokenGrant(now, now + int(seconds), granted), subject, keys)

    def operations(self, token: str, subject: TokenSubject, validity: int) -> frozenset[str]:
        """Return the operations of a token for a document.

        It also expires ``validity`` minutes after it was issued: a property that was lowered counts at once. A token
        from the future is refused, because it would outlive that.
        """
        grant = access_tokens.verify(token, subject, self.keys())
        now = self.clock()
        if not grant.issued <= now < min(grant.expires, grant.issued + validity * _MINUTE):
            raise access_tokens.refused()
        return frozenset(grant.operations).intersection(GRANTABLE)


@dataclass(frozen=True, slots=True)
class Issuing:
    """Issues tokens for documents that exist."""

    router: Router
    tokens: AccessTokens

    def issue(self, form: Form, document: str, asked: VersionRequest, operations: Iterable[str], seconds: float) -> str:
        """Return a token for a saved document in the version that it has."""
        address = DocumentAddress(form, Collection.DATA, document, DATA_XML)
        route = self.router.of(form)
        number = versions.number_only(asked, "an access token")
        version = must_live(route.storage.read(address, content=False), address).sidecar.version
        versions.must_equal(number, version, address)
        subject = TokenSubject(form, version, document)
        return self.tokens.issue(subject, operations, seconds, route.properties.token_validity)
