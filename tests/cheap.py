"""Cheap applications and services for tests, which make hundreds.

Only the pages build URLs. Werkzeug compiles two functions for it for every route, which is two thirds of the time to
make an application. So these functions are compiled when they are first needed. What a route is parsed to is the same
in every application: each is parsed once. So is what a template is compiled to.

A service starts an interpreter to see whether locks lock out a second process. Here ``flock`` does, where there is one.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterable
from types import CodeType
from typing import NamedTuple

from jinja2 import Environment
from werkzeug.routing import BaseConverter, Rule
from werkzeug.routing.rules import RulePart

from persistence.storage import root

Builder = Callable[..., tuple[str, str]]

_compile = Rule._compile_builder  # noqa: SLF001
_parse = Rule._parse_rule  # noqa: SLF001

CONTEND = root._contend  # noqa: SLF001
"""The function by which a service looks for locks."""

_FLOCK = shutil.which("flock")


class _Parsed(NamedTuple):
    parts: list[RulePart]
    trace: list[tuple[bool, str]]
    converters: dict[str, BaseConverter]


_parsed: dict[str, _Parsed] = {}
"""By the text of a route. No application has converters of its own."""


_compiled: dict[tuple[str, str | None], CodeType] = {}
"""By the text and name of a template. All environments have the same syntax."""


def leave_out() -> None:
    """Let applications and services of this process be made without what they do not need."""

    def postponed(rule: Rule, append_unknown: bool = True) -> Builder:  # noqa: FBT001, FBT002
        def build(own: Rule, **values: object) -> tuple[str, str]:
            builder = _compile(rule, append_unknown).__get__(own, None)
            setattr(own, "_build_unknown" if append_unknown else "_build", builder)
            return builder(**values)  # type: ignore[no-any-return]

        return build

    def parsed(rule: Rule, text: str) -> Iterable[RulePart]:
        known = _parsed.get(text)
        if known is None:
            before = len(rule._trace)  # noqa: SLF001
            parts = list(_parse(rule, text))
            _parsed[text] = _Parsed(parts, rule._trace[before:], dict(rule._converters))  # noqa: SLF001
            return parts
        rule._trace += known.trace  # noqa: SLF001
        rule._converters |= known.converters  # noqa: SLF001
        rule.arguments |= known.converters.keys()
        return known.parts

    compile_anew = Environment.compile

    def compiled(own: Environment, source: str, name: str | None = None, *more: object, **named: object) -> CodeType:
        if (source, name) not in _compiled:
            _compiled[source, name] = compile_anew(own, source, name, *more, **named)  # type: ignore[call-overload]
        return _compiled[source, name]

    Environment.compile = compiled  # type: ignore[assignment, method-assign]
    Rule._compile_builder = postponed  # type: ignore[method-assign]  # noqa: SLF001
    Rule._parse_rule = parsed  # type: ignore[method-assign]  # noqa: SLF001
    if _FLOCK is not None:
        locked = root._LOCKED  # noqa: SLF001
        contender = (_FLOCK, "--nonblock", "--conflict-exit-code", str(locked))
        root._contend = lambda path: subprocess.run([*contender, path, "true"], check=False).returncode  # noqa: SLF001
