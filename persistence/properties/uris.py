"""The property ``uri``: whether a provider is a tree of this service, or another service, and where that is."""

from __future__ import annotations

from urllib.parse import urlsplit

from persistence.errors import BadRequestError

_REMOTE = ("http", "https")
_TREE = "file:"


def remote_address(uri: str) -> str:
    """What the property ``uri`` says: the base of another service, without a slash at its end; empty for a tree.

    Raises:
        BadRequestError: it is neither.
    """
    said = uri.strip()
    if said in ("", _TREE):
        return ""
    if said.startswith(_TREE):
        raise BadRequestError(f"{_TREE} stands alone: the property datasource names the root of a tree, not {said!r}")
    try:
        parts = urlsplit(said)
        is_address = parts.scheme in _REMOTE and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment:
        raise BadRequestError(f"must be {_TREE}, or the address of a service that begins with http://, not {said!r}")
    return said.rstrip("/")
