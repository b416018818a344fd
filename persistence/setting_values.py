"""Values that settings may have: their types and forms, and how they are read from texts and paths."""

from __future__ import annotations

import os
from typing import Annotated, Any, cast, get_origin

import msgspec

from persistence.errors import BadRequestError, StartupError
from persistence.limits import LEAST_WORKER_MEMORY
from persistence.model import peers, server_urls
from persistence.properties.property_table import full_address, is_database, resolved_place

_PORT = "([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_BIND = rf"^(unix:/.+|(\[[0-9a-fA-F:.]+\]|[^:\s/]+):{_PORT})$"
_ACCEPTABLE = {
    "bind": "HOST:PORT, or unix: and an absolute path",
    "admin_bind": "HOST:PORT with a port other than 0, or unix: and an absolute path",
    "hosts": "a list of names and addresses, without port and brackets, or of *",
    "origins": "a list of origins such as https://forms.example.org, without a path",
    "audit_syslog": "the absolute path of a socket, or HOST:PORT",
    "worker_memory": f"0, or at least {LEAST_WORKER_MEMORY} bytes: one that needs more when idle is replaced for ever",
}
"""Descriptions of values of a certain form, for messages instead of the pattern."""

Syslog = Annotated[str, msgspec.Meta(pattern=rf"^(/.+|(\[[0-9a-fA-F:.]+\]|[^:\s/]+):{_PORT})\Z")]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[^\s\x00-\x1f\x7f]+\Z")]
Host = Annotated[str, msgspec.Meta(pattern=r"^(\*|[^\s/:\[\]*]+|[0-9a-fA-F]*:[0-9a-fA-F:.]*)\Z")]
Origin = Annotated[str, msgspec.Meta(pattern=r"^https?://[^\s/]+\Z")]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]
Bytes = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
Bind = Annotated[str, msgspec.Meta(pattern=_BIND)]
AdminBind = Annotated[str, msgspec.Meta(pattern=rf"^$|(?!unix://|.*:0+$){_BIND}")]

PATHS = frozenset({"data", "local", "gunicorn", "keys", "encryption_keys", "audit_file", "log_file"})
"""Settings that are paths; of ``data``, an address of a database is none."""


class Datasource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place of forms that properties name: ``data`` is the directory of a tree, or the address of a database."""

    data: Annotated[str, msgspec.Meta(min_length=1)]


def converted(name: str, value: object, kind: object, origin: str, *, is_text: bool) -> object:
    """Return the value of a setting in its type, ``kind``; ``is_text`` says that its origin has nothing but texts."""
    if get_origin(kind) is tuple and is_text:
        value = [part.strip() for part in str(value).split(",") if part.strip()]
    try:
        # A file that says workers = "2" is a mistake.
        found: Any = msgspec.convert(value, kind, strict=not is_text)
        if name in {"trusted", "metrics_from"}:
            peers.parse(found)
        if name == "publish_to":
            for url in found:
                server_urls.parse(url)
        if name == "worker_memory" and 0 < found < LEAST_WORKER_MEMORY:
            raise StartupError("it is too little")  # noqa: TRY301 - as the other values are refused
    except (msgspec.ValidationError, StartupError, BadRequestError) as error:
        may_be_secret = "@" in str(value) or "password" in str(value)
        given = "" if may_be_secret else f" = {value!r}"
        if name in _ACCEPTABLE:
            raise StartupError(f"{origin}: {name}{given} is not {_ACCEPTABLE[name]}") from error
        raise StartupError(f"{origin}: {name}{given} is not acceptable: {error}") from error
    return found


def absolute(name: str, value: object, directory: str) -> object:
    """Return the value of a setting, a path made absolute from a directory; an empty path says nothing, and stays."""
    if name == "data" and is_database(str(value)):
        return resolved_place(full_address(value))
    if name == "data":
        resolved_place(str(value))  # refuses what joined to a directory would be a path
    if name in PATHS and value:
        return os.path.abspath(os.path.join(directory, str(value)))
    if name == "datasource" and isinstance(value, dict):
        return {key: Datasource(cast("str", absolute("data", each.data, directory))) for key, each in value.items()}
    return value
