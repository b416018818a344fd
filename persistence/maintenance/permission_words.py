"""Permissions in words, for people: whom each is for, and what these may do."""

from __future__ import annotations

from collections.abc import Iterator

from persistence.maintenance.reports import PermissionsSource
from persistence.model.permissions import OPERATIONS, GrantCondition, Permission, Permissions, UserRole

SOURCES = {
    PermissionsSource.NOBODY: "neither the definition nor a property defines any",
    PermissionsSource.DEFINITION: "by the definition",
    PermissionsSource.PROPERTY: "by property, because the definition has none",
    PermissionsSource.SWITCHED_OFF: "switched off by property",
}
_CONDITIONS = {
    GrantCondition.AUTHENTICATED: "whoever has a name",
    GrantCondition.OWNER: "owner",
    GrantCondition.GROUP_MEMBER: "group member",
    GrantCondition.TOKEN: "anyone with an access token",
    GrantCondition.UNKNOWN: "nobody, for the condition is not known here",
}


def in_words(permissions: Permissions | None) -> Iterator[str]:
    """Yield one rule a line; ``list`` is shown also if a definition only implies it (spec crud 6.2)."""
    if permissions is None:
        yield "everyone may do everything"
    elif not permissions:
        yield "nobody may do anything"
    for permission in permissions or ():
        yield f"{whom(permission)}: {_operations(permission)}"


def whom(permission: Permission) -> str:
    return " and ".join(_condition(each) for each in permission.conditions) or "anyone"


def unknown_operations(permission: Permission) -> list[str]:
    """Return the operations of a permission that the service does not know, sorted."""
    return sorted(permission.operations - frozenset(OPERATIONS))


def _condition(condition: GrantCondition | UserRole) -> str:
    if isinstance(condition, GrantCondition):
        return _CONDITIONS[condition]
    return f"role {' or '.join(sorted(condition.any_of))}" if condition.any_of else "nobody, for no role is named"


def _operations(permission: Permission) -> str:
    known = [name for name in OPERATIONS if name in permission.operations]
    unknown = [f"{name} (not known here)" for name in unknown_operations(permission)]
    return " ".join([*known, *unknown]) or "nothing"
