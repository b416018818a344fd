"""``@command``: one declaration of a command, with the place that it opens, its audit and its exit statuses."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any

import click

from persistence.cli.terminal import json_option, quiet_option

FAILED = 1
"""Exit status: the work could not be done. Status 2 is for wrong usage."""
USAGE = 2
"""Exit status: the command line is wrong."""
REPAIRED = 3
"""Exit status: all findings are repaired."""
REMAINS = 4
"""Exit status: damage remains."""
EDITED = 5
"""Exit status: the worst findings are edits by hand that nobody has adopted."""

_FROM_BEST = (0, REPAIRED, EDITED, REMAINS, FAILED)
_STATED = "__statuses__"
_TITLE = "Exit status: "
_WIDTH = 76

Params = Mapping[str, Any]
Statuses = Mapping[int, str]
Callback = Callable[..., int | None]
"""Does what a command is for; returns its exit status, ``None`` for 0."""
Option = Callable[[Any], Any]
"""A decorator of click, for a function or a command that is made already."""

STATUSES: dict[str, Statuses] = {}
"""The exit statuses of each command that is loaded."""
GROUPS: dict[str, click.Group] = {}
"""The groups of commands that are loaded."""
PLACES = ("file", "data", "datasource", "dialect")
"""The parameters that choose settings, trees and databases."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A kind of place: its ``options``, and the ``argument`` as which a command gets what ``read`` returns for them.

    The command is run within what ``around`` returns for that.
    """

    argument: str
    options: Sequence[Option]
    read: Callable[..., Any]
    around: Callable[[Any], AbstractContextManager[object]] = nullcontext


def always(_: Params) -> bool:
    return True


def unless_dry(params: Params) -> bool:
    return not params.get("dry_run")


def if_yes(params: Params) -> bool:
    return bool(params.get("yes")) and unless_dry(params)


def exits(  # noqa: PLR0913 - one for each status
    done: str,
    failed: str = "",
    *,
    usage: str = "wrong usage",
    repaired: str = "",
    remains: str = "",
    edited: str = "",
    others: Statuses | None = None,
) -> Callable[[Callback], Callback]:
    """State what each exit status of a command means; empty for one that it does not have."""
    known = {0: done, FAILED: failed, USAGE: usage, REPAIRED: repaired, REMAINS: remains, EDITED: edited}
    statuses = {status: text for status, text in {**known, **(others or {})}.items() if text}

    def state(callback: Callback) -> Callback:
        setattr(callback, _STATED, dict(sorted(statuses.items())))
        return callback

    return state


def command(  # noqa: PLR0913 - each is a part of the declaration
    name: str,
    short_help: str | None = None,
    place: Opened | None = None,
    *,
    audits: Callable[[Params], bool] | None = None,
    subject: str = "",
    has_json: bool = True,
    is_quiet: bool = False,
) -> Callable[[Callback], click.Command]:
    """Make a function with its ``exits`` the command ``name``, such as ``purge`` or ``api-key new``.

    The options of ``place`` are read, and what they choose is an argument of the function. ``has_json`` and
    ``is_quiet`` add the options of these names. ``audits`` says whether a run has a line of the audit, which is about
    the form or the document that the parameter ``subject`` names.
    """
    options = [*[json_option] * has_json, *[quiet_option] * is_quiet, *(place.options if place is not None else ())]
    above, _, word = name.rpartition(" ")

    def declare(callback: Callback) -> click.Command:
        def run(*arguments: Any, **params: Any) -> None:
            if audits is None or not audits(params):
                _end(callback, arguments, params, place)
                return
            from persistence.cli.auditing import auditing  # noqa: PLC0415 - most commands have no line

            with auditing(name, params, subject):
                _end(callback, arguments, params, place)

        epilog = stated(name, getattr(callback, _STATED))
        made = click.command(word, short_help=short_help, epilog=epilog)(update_wrapper(run, callback))
        for option in options:
            option(made)
        if above in GROUPS:
            GROUPS[above].add_command(made)
        return made

    return declare


def group(name: str, **attributes: Any) -> Callable[[Callable[..., Any]], click.Group]:
    """Make a function the group ``name``, to which the commands of such names belong."""

    def declare(callback: Callable[..., Any]) -> click.Group:
        if hasattr(callback, _STATED):  # it does something without a command of it
            attributes["epilog"] = stated(name, getattr(callback, _STATED))
        declared: Callable[..., click.Group] = click.group(name, **attributes)
        GROUPS[name] = declared(callback)
        return GROUPS[name]

    return declare


def _end(callback: Callback, arguments: tuple[Any, ...], params: dict[str, Any], place: Opened | None) -> None:
    around: AbstractContextManager[object] = nullcontext()
    if place is not None:
        given = {name: params[name] for name in PLACES if name in params}
        rest = {name: value for name, value in params.items() if name not in given}
        params = {**rest, place.argument: place.read(**given)}
        around = place.around(params[place.argument])
    with around:
        status = callback(*arguments, **params)
    if status:
        sys.exit(status)


def worst(statuses: Iterable[int]) -> int:
    """Return the worst exit status; a tree that could not be read is worse than damage."""
    return max(statuses, key=_FROM_BEST.index, default=0)


def stated(name: str, statuses: Statuses) -> str:
    """Note the exit statuses of a command, and return the end of its help, which states them."""
    STATUSES[name] = statuses
    lines, title = ["\b"], _TITLE
    for status, meaning in statuses.items():
        indent = f"{title}{status}  "
        lines += textwrap.wrap(meaning, _WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent))
        title = " " * len(_TITLE)
    return "\n".join(lines)
