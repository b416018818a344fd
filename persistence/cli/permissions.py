"""Permissions in words, one rule a line."""

from __future__ import annotations

from collections.abc import Iterator

from persistence.model.permissions import OPERATIONS, GrantCondition, Permission, Permissions, UserRole

_WORDS = {
    GrantCondition.AUTHENTICATED: "whoever has a name",
    GrantCondition.OWNER: "owner",
    GrantCondition.GROUP_MEMBER: "group member",
    GrantCondition.TOKEN: "anyone with a token, which is not known here",
    GrantCondition.UNKNOWN: "nobody, for the condition is not known here",
}


def in_words(permissions: Permissions | None) -> Iterator[str]:
    """Who may do what; ``list`` is among the operations also where a definition only implies it (spec crud 6.2)."""
    if permissions is None:
        yield "everyone may do everything"
    elif not permissions:
        yield "nobody may do anything"
    for permission in permissions or ():
        yield f"{_who(permission)}: {_what(permission)}"


def _who(permission: Permission) -> str:
    return " and ".join(_condition(each) for each in permission.conditions) or "anyone"


def _condition(condition: GrantCondition | UserRole) -> str:
    if isinstance(condition, GrantCondition):
        return _WORDS[condition]
    return f"role {' or '.join(sorted(condition.any_of))}" if condition.any_of else "nobody, for no role is named"


def _what(permission: Permission) -> str:
    known = [name for name in OPERATIONS if name in permission.operations]
    unknown = [f"{name} (not known here)" for name in sorted(permission.operations - frozenset(OPERATIONS))]
    return " ".join([*known, *unknown]) or "nothing"
