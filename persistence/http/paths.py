"""The path of a request: found once, for the gate, the router, the limits of API keys, the pages and the log.

The names are taken from the path as it was sent: after decoding, ``%2F`` would look like a separator. A path must be
canonical, so that a proxy in front reads the same path as the service: no empty name, no ``.`` and ``..``, no letter or
digit that is percent-encoded. Below ``crud/`` alone doubled slashes count as one (spec crud 2.1: the runtime builds
such paths), and characters may be encoded that need not be.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_NAME
from persistence.model.addresses import PUBLIC_PREFIX
from persistence.model.texts import require_plain

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

UNCLEAR = "persistence.unclear"
"""Environ key: why a request has no path that is served. Such a request is refused."""

_CLEAN = re.compile(rf"(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9._~!$&'()*+,;=:@-]{{1,{LONGEST_NAME}}})+")
"""Paths without a slash at their end that need no decoding: nearly all that are sent."""

_RESOURCES = ("/crud/", f"{PUBLIC_PREFIX}/crud/")
_NEEDLESS = re.compile("%(?:2[DEde]|3[0-9]|4[1-9A-Fa-f]|5[0-9AFaf]|6[1-9A-Fa-f]|7[0-9Aa])")
"""Encoded letters, digits, ``-``, ``.`` and ``_``. Not ``~``, which clients in Java encode."""


def find_path(environ: WSGIEnvironment) -> None:
    """Set ``PATH_INFO`` to the decoded path of a request, or ``UNCLEAR`` to the reason why it has none."""
    try:
        path = clean(sent_path(environ))
    except (ValueError, BadRequestError) as error:
        environ[UNCLEAR] = str(error)
        environ["PATH_INFO"] = (environ.get("RAW_URI") or environ["PATH_INFO"]).partition("?")[0]  # for the log
    else:
        environ["PATH_INFO"] = path if path.isascii() else path.encode().decode("latin-1")


def clean(path: str) -> str:
    """Return the decoded path of one that is percent-encoded.

    A slash at the end stays, because ``data/`` has a meaning of its own; several are refused, because they are what a
    client sends that has lost the document's id.
    """
    if _CLEAN.fullmatch(path.removesuffix("/")):
        return path
    if not path.startswith(_RESOURCES):
        if not path.startswith("/"):
            raise ValueError("the path does not begin with a slash")
        if "//" in path:
            raise ValueError("the path contains '//'")
        if needless := _NEEDLESS.search(path):
            raise ValueError(f"the path contains {needless[0]!r}, which must be sent as {unquote(needless[0])!r}")
    segments = [_segment(part) for part in path.split("/") if part]
    if segments and path.endswith("//"):
        raise ValueError("the path ends with an empty name")
    return "/" + "/".join(segments) + ("/" if segments and path.endswith("/") else "")


def _segment(part: str) -> str:
    try:
        # Bytes above ASCII arrive as Latin-1 characters (PEP 3333).
        text = part if part.isascii() and "%" not in part else unquote_to_bytes(part.encode("latin-1")).decode()
    except UnicodeError:
        raise ValueError(f"a name in the path is not UTF-8: {part!r}") from None
    if text in (".", ".."):
        raise ValueError(f"the path must not contain {text!r}")
    if "/" in text or "\\" in text:
        raise ValueError(f"a name in the path holds a character that is not allowed: {text!r}")
    require_plain(text)
    if len(text.encode()) > LONGEST_NAME:  # below, names are keys of caches
        raise ValueError(f"a name in the path is too long: {LONGEST_NAME} bytes are allowed")
    return text


def sent_path(environ: WSGIEnvironment) -> str:
    """Return the path as it was sent, percent-encoded, below where the application is mounted."""
    sent: str = environ.get("RAW_URI") or environ.get("REQUEST_URI") or ""
    if "#" in sent:  # no part of a request (RFC 9112 3.2); a proxy in front may read the path as ending there
        raise ValueError("the path must not contain '#': it is %23 in a name, and a fragment is not sent")
    if sent.startswith("/"):
        path = sent.partition("?")[0]
    elif sent:
        path = urlsplit(sent).path or "/"
    else:
        raise ValueError(environ.get(UNCLEAR, "the server does not hand on the path as it was sent"))
    return path.removeprefix(environ.get("SCRIPT_NAME", ""))
