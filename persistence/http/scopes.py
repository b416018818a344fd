"""The limits of API keys: what each route touches, and which requests a limited key may send.

They are checked when a request is routed, before anything else of it is looked at, by the names in the path that its
handler gets, too. A route that does not say what it touches is closed to such keys: the pages for administrators are.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from werkzeug.routing import Rule

from persistence.errors import ForbiddenError

if TYPE_CHECKING:
    from flask import Request

    from persistence.keys import Key

LIMITED_KEY = "persistence.limited_key"
"""Environ key: the API key of the caller, where that has scopes or is for some forms only."""

_READS = frozenset({"GET", "HEAD"})


class Touches(Enum):
    """The forms whose data or definitions a request may read or change."""

    NOTHING = "nothing that is stored"
    NAMED = "the form or application in the path, and all where it names none"
    ALL = "any form: the path does not say which"


class ScopedRoute(Rule):
    """A route for the methods that it names: werkzeug would add HEAD wherever there is a GET (spec crud 2.1).

    ``touches`` is ``None`` for routes that no limited key may call. ``only_reads`` says whether it changes nothing by
    whatever method; ``None`` that GET and HEAD do not.
    """

    def __init__(
        self, string: str, *args: Any, touches: Touches | None = None, only_reads: bool | None = None, **options: Any
    ) -> None:
        super().__init__(string, *args, **options)
        self.methods = set(options["methods"])
        self.touches = touches
        self.only_reads = only_reads


def require_within(key: Key, request: Request) -> None:
    """Make sure that a request is one that a limited key may send."""
    route = request.url_rule
    if route is None:  # 404 or 405, and nothing is touched
        return
    if not isinstance(route, ScopedRoute) or route.touches is None:
        raise ForbiddenError(f"the API key {key.name} is limited, and this is for none of the limited keys")
    if route.touches is Touches.NOTHING:
        return
    only_reads = request.method in _READS if route.only_reads is None else route.only_reads
    if key.scopes and not only_reads:
        raise ForbiddenError(f"the API key {key.name} may only read")
    if key.forms and not (route.touches is Touches.NAMED and _covers(key, **(request.view_args or {}))):
        raise ForbiddenError(f"the API key {key.name} is for {', '.join(key.forms)} only, and this is about more")


def is_for_some_forms(request: Request) -> bool:
    """Return whether the caller has shown a key that is for some forms only: then others are not even named."""
    key: Key | None = request.environ.get(LIMITED_KEY)
    return key is not None and bool(key.forms)


def _covers(key: Key, app: str | None = None, form: str | None = None, **_: object) -> bool:
    return app in key.forms or (form is not None and f"{app}/{form}" in key.forms)
