"""Who administers which forms: entries of the settings (spec search 4.4, "Admin")."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from persistence.model.addresses import Form
from persistence.model.users import User

ANY = "*"


class Admin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A role that administers a form; each of the three may be ``*`` for any."""

    role: str
    app: str
    form: str


def entries_of(admins: Iterable[Admin], user: User) -> tuple[Admin, ...]:
    """The entries that apply to a user.

    A role that is bound to an organization does not count, because a form belongs to none (as without data, spec crud
    6.4).
    """
    names = {role.name for role in user.roles if role.organization is None} | {ANY}
    return tuple(entry for entry in admins if entry.role in names)


def is_admin(entries: Iterable[Admin], form: Form) -> bool:
    """Whether one of the entries names a form."""
    return any(entry.app in (ANY, form.app) and entry.form in (ANY, form.name) for entry in entries)
