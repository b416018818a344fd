"""Actions: what changes something. Each is asked for on a page of its own, which names what it will do, and then done.

``GET /admin/actions/NAME`` is that page, and its form sends the same values by POST. The last word of the path is the
action in the audit, and the names ``app``, ``form``, ``document`` and ``name`` of a path are fields of its line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Values = Mapping[str, str]
"""The values of an action by name: those of its path and its ``fields``. One that was not sent is empty."""


@dataclass(frozen=True, slots=True)
class Question:
    """The page that is shown before: a ``title`` that names the thing, what the action will do, and its button.

    ``back`` is the path of the page to which a change of mind leads. ``sent`` are fields of its form that replace those
    of the request, such as the entity tag of the revision that it is about.
    """

    title: str
    effects: tuple[str, ...]
    button: str
    back: str
    is_dangerous: bool = False
    sent: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """The result: a notice, which is shown on the page ``to``.

    A ``secret`` is shown at once, and never again.
    """

    notice: str
    to: str
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """An action. ``ask`` and ``do`` raise ``PersistenceError`` where it cannot be done.

    ``ask`` is called again before ``do``, which also gets the administrator's name. ``subject`` is the rest of the
    path, such as ``/<app>/<form>``. ``fields`` names the other values.
    """

    name: str
    ask: Callable[[Values], Question]
    do: Callable[[Values, str], Done]
    fields: tuple[str, ...] = ()
    subject: str = ""

    @property
    def path(self) -> str:
        return f"/admin/actions/{self.name}{self.subject}"
