"""Actions of administrators: ``GET /admin/actions/NAME`` asks and says what it will do, ``POST`` does it.

The audit calls it NAME, and its line has the names ``app``, ``form``, ``document`` and ``name`` of the path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Values = Mapping[str, str]
"""The values of an action by name: those of its path and its ``fields``. One that was not sent is empty."""


@dataclass(frozen=True, slots=True)
class Question:
    """The page before an action, with a link ``back``.

    ``sent`` are fields of its form that replace those of the request, such as the entity tag of the revision.
    """

    title: str
    effects: tuple[str, ...]
    button: str
    back: str
    is_dangerous: bool = False
    sent: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """The result: a notice, which the page ``to`` shows, and a ``secret`` that is shown only once."""

    notice: str
    to: str
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """An action. ``ask`` is called again before ``do``, which also gets the administrator's name.

    ``subject`` is the rest of the path, such as ``/<app>/<form>``. ``fields`` names the other values.
    """

    name: str
    ask: Callable[[Values], Question]
    do: Callable[[Values, str], Done]
    fields: tuple[str, ...] = ()
    subject: str = ""

    @property
    def path(self) -> str:
        return f"/admin/actions/{self.name}{self.subject}"
