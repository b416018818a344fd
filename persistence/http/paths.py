"""Clean paths, before anything is routed (spec crud 2.1).

The segments are taken from the path as it was sent: after decoding, ``%2F`` would look like a separator. Doubled
slashes are collapsed (the runtime builds such paths); what could lead elsewhere is refused.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urlsplit

from persistence.errors import BadRequestError
from persistence.http.responses import refusal
from persistence.limits import LONGEST_NAME
from persistence.model.texts import require_plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_SENT = ("RAW_URI", "REQUEST_URI")


def clean(path: str) -> str:
    """The decoded path with single slashes, from one that is still percent-encoded.

    A slash at the end stays, because ``data/`` has a meaning of its own; several are refused, because they are what a
    client sends that has lost the document's id.

    Raises:
        ValueError, BadRequestError: says which segment is refused and why.
    """
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


def _check_query(query: str) -> None:
    """Refuse what would be decoded to U+FFFD, so that two texts became one.

    Raises:
        ValueError: it is not UTF-8.
    """
    for part in query.split("&") if "%" in query or not query.isascii() else ():
        try:
            unquote_to_bytes(part.encode("latin-1")).decode()
        except UnicodeError:
            raise ValueError(f"the parameter {part.partition('=')[0]!r} is not UTF-8") from None


class CleanPaths:
    """WSGI middleware that hands on clean paths only."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Clean ``PATH_INFO``, or answer 400 with the reason; also where the query cannot be decoded."""
        try:
            environ["PATH_INFO"] = clean(sent_path(environ)).encode().decode("latin-1")
            _check_query(environ.get("QUERY_STRING", ""))
        except (ValueError, BadRequestError) as error:
            return refusal(environ, HTTPStatus.BAD_REQUEST, str(error))(environ, start_response)
        return self._app(environ, start_response)


def sent_path(environ: WSGIEnvironment) -> str:
    """The path as it was sent, percent-encoded, below where the application is mounted.

    Raises:
        ValueError: there is none, or it has a fragment.
    """
    sent: str = next((environ[key] for key in _SENT if environ.get(key)), "")
    if "#" in sent:  # no part of a request (RFC 9112 3.2); a proxy in front may read the path as ending there
        raise ValueError("the path must not contain '#': it is %23 in a name, and a fragment is not sent")
    if sent.startswith("/"):
        path = sent.partition("?")[0]
    elif sent:
        path = urlsplit(sent).path
    else:
        raise ValueError("the server does not hand on the path as it was sent")
    return path.removeprefix(environ.get("SCRIPT_NAME", ""))
