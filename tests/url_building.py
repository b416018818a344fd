"""Applications of tests without what werkzeug prepares to build URLs: two thirds of the time to make one.

The service builds no URL. Werkzeug compiles two functions for it for every route, and tests make hundreds of
applications.
"""

from __future__ import annotations

from collections.abc import Callable

from werkzeug.routing import Rule


def leave_out() -> None:
    """Let routes of this process be made without the functions that would build their URLs."""

    def compiled(_rule: Rule, append_unknown: bool = True) -> Callable[..., None]:  # noqa: ARG001, FBT001, FBT002
        return _unknown

    Rule._compile_builder = compiled  # type: ignore[method-assign]  # noqa: SLF001


def _unknown(*_: object) -> None:
    raise NotImplementedError("applications of tests build no URLs")
