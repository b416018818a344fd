"""Applications of tests without what werkzeug prepares to build URLs: two thirds of the time to make one.

Only the pages build URLs. Werkzeug compiles two functions for it for every route, and tests make hundreds of
applications. So the functions of the pages' routes are compiled when they are first needed, and the others never.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from werkzeug.routing import Rule

Builder = Callable[..., tuple[str, str]]

_compile = Rule._compile_builder  # noqa: SLF001


def leave_out() -> None:
    """Let routes of this process be made without the functions that would build their URLs."""

    def postponed(rule: Rule, append_unknown: bool = True) -> Builder:  # noqa: FBT001, FBT002
        builder = cache(lambda: _compile(rule, append_unknown))
        return lambda own, **values: builder()(own, **values)  # noqa: PLW0108 - not called before it is needed

    Rule._compile_builder = postponed  # type: ignore[method-assign]  # noqa: SLF001
