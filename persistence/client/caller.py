"""For whom a client calls: the headers of a user and of a version, and the paths of requests, in a dialect."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_plus

from persistence.client.connection import ServiceConnection
from persistence.dialect import Dialect
from persistence.errors import BadAddressError
from persistence.model.addresses import PUBLIC_PREFIX
from persistence.model.users import User

HeaderPairs = tuple[tuple[str, str], ...]
XML = ("Content-Type", "application/xml")
_SEPARATORS = {",", "|"}


@dataclass(frozen=True, slots=True)
class ServiceCaller:
    """The connection of a client, with the dialect of the service and the user of its requests."""

    connection: ServiceConnection
    dialect: Dialect
    user: User

    def path(self, api: str, *names: str) -> str:
        """Return the path of something below the public API.

        Raises ``BadAddressError`` for an empty name or one that begins with a dot, which would lead elsewhere.
        """
        for name in names:
            if not name or name.startswith("."):
                raise BadAddressError(f"a name in a path is empty or begins with a dot: {name!r}")
        return PUBLIC_PREFIX + "".join(f"/{part}" for part in (api, *(quote(name, safe="") for name in names)))

    def fields(self, version: int | str | None = None, **own: str | None) -> HeaderPairs:
        """Return the headers of a request: the user, the version, and the service's own that have a value.

        The names of these are without prefix, in small letters, with ``_`` for ``-``.
        """
        given = [("Form-Definition-Version", None if version is None else str(version))]
        given += [(name.replace("_", "-").title(), value) for name, value in own.items()]
        return self._identity() + tuple((self.dialect.header(name), text) for name, text in given if text is not None)

    def _identity(self) -> HeaderPairs:
        user, own = self.user, self.dialect.header
        if user.organization or any(_SEPARATORS & {*role.name} or role.organization for role in user.roles):
            return ((own("Credentials"), credentials_of(user)),)
        pairs = (("Username", user.name), ("Group", user.group), ("Roles", ",".join(role.name for role in user.roles)))
        return tuple((own(name), text) for name, text in pairs if text)


def credentials_of(user: User) -> str:
    """Return the user as a JSON object, with its texts form-URL-encoded: any character can be in a name."""
    values: dict[str, Any] = {"username": quote_plus(user.name or "")}
    if user.group is not None:
        values["groups"] = [quote_plus(user.group)]
    values["roles"] = [
        {"name": quote_plus(role.name)}
        | ({} if role.organization is None else {"organization": quote_plus(role.organization)})
        for role in user.roles
    ]
    if user.organization:
        values["organizations"] = [[quote_plus(level) for level in user.organization]]
    return json.dumps(values)
