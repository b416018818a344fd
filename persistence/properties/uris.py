"""The property ``uri``: whether a provider is a tree of this service, or another service, and where that is."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from persistence.errors import BadRequestError

_REMOTE = ("http", "https")
_TREE = "file:"
_USER = re.compile(r"//(?:[^/?#@]*@)+")


def remote_address(uri: str) -> str:
    """What the property ``uri`` says: the base of another service, without a slash at its end; empty for a tree.

    Raises:
        BadRequestError: it is neither.
    """
    said = uri.strip()
    # Of what is no address nobody can tell which part is a password.
    instead = "" if "@" in said else f", not {said!r}"
    if said in ("", _TREE):
        return ""
    if said.startswith(_TREE):
        raise BadRequestError(f"{_TREE} stands alone: the property datasource names the root of a tree{instead}")
    try:
        parts = urlsplit(said)
        is_address = (
            parts.scheme in _REMOTE
            and bool(parts.hostname)
            and said.isprintable()
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment:
        raise BadRequestError(f"must be {_TREE}, or the address of a service that begins with http://{instead}")
    return said.rstrip("/")


def without_user(uri: str) -> str:
    """An address without the user and password that it may have, to be shown; any other text as it is."""
    return _USER.sub("//", uri)
