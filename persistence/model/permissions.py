"""Permissions: who may do what, as pure functions of values (spec crud 6.2 to 6.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import msgspec

from persistence.errors import BadRequestError
from persistence.model.users import EVERYBODY, OwnerPattern, OwnerSet, OwnerSets, User

CREATE, READ, UPDATE, DELETE, LIST = OPERATIONS = ("create", "read", "update", "delete", "list")
"""The names on the wire, in the order in which they are written."""

FINDING = (READ, UPDATE, DELETE)
"""Who has one of these finds a document in a search that does not say otherwise (spec search 1.1)."""


@dataclass(frozen=True, slots=True)
class Operations:
    """The allowed operations in their fixed order, or ``None`` where no permissions are defined."""

    allowed: tuple[str, ...] | None

    def allows(self, *any_of: str) -> bool:
        """Whether one of the operations is allowed."""
        return self.allowed is None or any(name in self.allowed for name in any_of)

    def __str__(self) -> str:
        return "*" if self.allowed is None else " ".join(self.allowed)


UNRESTRICTED = Operations(None)
"""No permissions are defined: everything is allowed."""


@lru_cache(256)
def in_order(names: frozenset[str]) -> Operations:
    """Exactly the named operations; a name that is none is left out."""
    return Operations(tuple(name for name in OPERATIONS if name in names))


class GrantCondition(Enum):
    """A condition of a permission, by its name in a form definition.

    ``UNKNOWN`` stands for what this service does not know; like a token, which no request of this service bears, it
    never holds.
    """

    AUTHENTICATED = "any-authenticated-user"
    OWNER = "owner"
    GROUP_MEMBER = "group-member"
    TOKEN = "anyone-with-token"  # noqa: S105 - the name of an element
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class UserRole:
    """The condition that the caller has one of the named roles."""

    any_of: frozenset[str]


@dataclass(frozen=True, slots=True)
class Permission:
    """Operations for those for whom all the conditions hold; without a condition, for anyone."""

    operations: frozenset[str]
    conditions: tuple[GrantCondition | UserRole, ...] = ()


Permissions = tuple[Permission, ...]
"""Everyone gets the operations of all permissions that apply; of an empty tuple, nobody gets any."""


def on_data(permissions: Permissions | None, user: User, owner: User) -> Operations:
    """What a user may do with data that ``owner`` has created (spec crud 6.4, existing data).

    What is granted without looking at the data is granted here as well, so it is not looked for again.
    """
    if permissions is None:
        return UNRESTRICTED
    return in_order(_with_create(permissions, user, _granted(permissions, user, owner)))


def on_data_of(permissions: Permissions | None, user: User) -> Callable[[User], Operations]:
    """The operations of a user on data, by its owner: the same as ``on_data``, for the many documents of a list.

    What does not depend on the owner is decided once: a user may have hundreds of roles, a form as many permissions.
    """
    if permissions is None:
        return lambda _: UNRESTRICTED
    names: dict[str, set[str | None]] = {}
    for role in user.roles:
        names.setdefault(role.name, set()).add(role.organization)
    creating = tuple(each for each in permissions if CREATE in each.operations)
    always = frozenset({CREATE}) if _granted(creating, user, user) else frozenset[str]()
    depending: dict[tuple[frozenset[str], _OfOwner], None] = {}
    for permission in permissions:
        conditions = _OfOwner.of(permission.conditions, user, names)
        if conditions == _OfOwner():
            always |= permission.operations
        elif conditions is not None:
            depending[permission.operations, conditions] = None

    def judged(owner: User) -> Operations:
        granted = always
        for operations, conditions in depending:
            if not operations <= granted and conditions.hold(user, owner):
                granted |= operations
        return in_order(granted)

    return judged


@dataclass(frozen=True, slots=True)
class _OfOwner:
    """The conditions of a permission that depend on the owner: to be the owner, or in the group or organizations."""

    owner: bool = False
    group: bool = False
    organizations: frozenset[frozenset[str]] = frozenset()

    @classmethod
    def of(
        cls, conditions: Iterable[GrantCondition | UserRole], user: User, names: Mapping[str, set[str | None]]
    ) -> _OfOwner | None:
        """Keep those of some conditions, by the names of the user's roles; ``None`` where another one does not hold."""
        owner = group = False
        organizations = set()
        for condition in conditions:
            if isinstance(condition, UserRole):
                found = {each for name in names.keys() & condition.any_of for each in names[name]}
                if not found:
                    return None
                if None not in found:
                    organizations.add(frozenset(each for each in found if each is not None))
            elif condition is GrantCondition.OWNER and user.name is not None:
                owner = True
            elif condition is GrantCondition.GROUP_MEMBER and user.group is not None:
                group = True
            elif condition is not GrantCondition.AUTHENTICATED or user.name is None:
                return None
        return cls(owner, group, frozenset(organizations))

    def hold(self, user: User, owner: User) -> bool:
        """Whether they hold for the data of an owner."""
        return (
            (not self.owner or user.name == owner.name)
            and (not self.group or user.group == owner.group)
            and all(not each.isdisjoint(owner.organization) for each in self.organizations)
        )


def without_data(permissions: Permissions | None, user: User) -> Operations:
    """What a user may do whatever the data: as if it were somebody else's (spec crud 6.4, "pessimistic")."""
    if permissions is None:
        return UNRESTRICTED
    return in_order(_with_create(permissions, user, _granted(permissions, user, None)))


def on_creation(permissions: Permissions | None, user: User) -> Operations:
    """What a user may do with data that does not exist yet, and would be the user's own (spec crud 6.4)."""
    if permissions is None:
        return UNRESTRICTED
    granted = _with_create(permissions, user, _granted(permissions, user, None))
    if CREATE in granted:
        own = {GrantCondition.OWNER} if user.name is not None else set()
        if user.group is not None:
            own.add(GrantCondition.GROUP_MEMBER)
        granted = granted.union(*(each.operations for each in permissions if own.intersection(each.conditions)))
    return in_order(granted)


def readable(permissions: Permissions | None, user: User, any_of: Iterable[str] = FINDING) -> OwnerSets:
    """Owners whose documents a user may read and has one of the operations on, exactly as ``on_data`` says."""
    asked = frozenset(any_of)
    sights = {having(permissions, user, (READ,))}
    if READ not in asked:
        sights.add(having(permissions, user, asked))
    return frozenset(sights - {EVERYBODY})


def having(permissions: Permissions | None, user: User, any_of: Iterable[str]) -> OwnerSet:
    """Owners on whose documents a user has one of the operations, as ``on_data`` says."""
    asked = frozenset(any_of)
    if permissions is None or (CREATE in asked and CREATE in _with_create(permissions, user, frozenset())):
        return EVERYBODY
    found = {
        holder
        for each in permissions
        if not asked.isdisjoint(each.operations) and (holder := _holder(each.conditions, user)) is not None
    }
    return EVERYBODY if OwnerPattern() in found else OwnerSet(_united(found))


def _holder(conditions: Iterable[GrantCondition | UserRole], user: User) -> OwnerPattern | None:
    """The owners for whom all conditions hold, as ``_holds`` says; ``None`` where there can be none."""
    own: dict[str, str] = {}
    organizations: set[frozenset[str]] = set()
    for condition in conditions:
        if isinstance(condition, UserRole):
            bound = {role.organization for role in user.roles if role.name in condition.any_of}
            if not bound:
                return None
            if None not in bound:
                organizations.add(frozenset(each for each in bound if each is not None))
        elif condition is GrantCondition.OWNER and user.name is not None:
            own["creator"] = user.name
        elif condition is GrantCondition.GROUP_MEMBER and user.group is not None:
            own["group"] = user.group
        elif condition is not GrantCondition.AUTHENTICATED or user.name is None:
            return None
    return OwnerPattern(**own, organizations=tuple(sorted(organizations, key=sorted)))


def _united(found: Iterable[OwnerPattern]) -> frozenset[OwnerPattern]:
    """The same holders, those as one that differ only in an organization, of which a user may have hundreds."""
    united: dict[tuple[str | None, str | None], frozenset[str]] = {}
    left = set()
    for each in found:
        if len(each.organizations) == 1:
            key = each.creator, each.group
            united[key] = united.get(key, frozenset()) | each.organizations[0]
        else:
            left.add(each)
    return frozenset(left | {OwnerPattern(*key, (organizations,)) for key, organizations in united.items()})


def sight(permissions: Permissions | None, user: User, any_of: Iterable[str]) -> OwnerSet:
    """Whose documents a search for those on which the user has one of the operations finds (spec search 1.8).

    Not the same as having the operation: a permission for owners who also have a role counts for every owner, and one
    for a role in an organization whatever was asked for.
    """
    asked = frozenset(any_of)
    if without_data(permissions, user).allows(*asked):
        return EVERYBODY
    granted = permissions or ()
    row_tests = {
        condition for each in granted if not asked.isdisjoint(each.operations) for condition in each.conditions
    }
    named = {
        role
        for each in granted
        if not each.operations.isdisjoint(FINDING)
        for condition in each.conditions
        if isinstance(condition, UserRole)
        for role in condition.any_of
    }
    organizations = frozenset(
        role.organization for role in user.roles if role.organization is not None and role.name in named
    )
    tests = {
        OwnerPattern(creator=user.name if GrantCondition.OWNER in row_tests else None),
        OwnerPattern(group=user.group if GrantCondition.GROUP_MEMBER in row_tests else None),
        OwnerPattern(organizations=(organizations,) if organizations else ()),
    }
    return OwnerSet(frozenset(tests - {OwnerPattern()}))


_HEADER = {
    GrantCondition.AUTHENTICATED: "Username",
    GrantCondition.OWNER: "Username",
    GrantCondition.GROUP_MEMBER: "Group",
}
_NEVER = frozenset({GrantCondition.TOKEN, GrantCondition.UNKNOWN})


def unsaid(permissions: Permissions | None, user: User, any_of: Iterable[str]) -> tuple[str, ...]:
    """The headers, without prefix, that were not sent and that a permission for one of the operations asks for.

    A group and roles count only beside a user name, so that without one it is the only answer.
    """
    asked = frozenset(any_of)
    needed = {
        "Roles" if isinstance(condition, UserRole) else _HEADER[condition]
        for each in permissions or ()
        if not asked.isdisjoint(each.operations) and not _NEVER.intersection(each.conditions)
        for condition in each.conditions
    }
    if user.name is None:
        return ("Username",) if needed else ()
    sent = {"Username", *(("Group",) if user.group else ()), *(("Roles",) if user.roles else ())}
    return tuple(name for name in ("Group", "Roles") if name in needed - sent)


def _granted(permissions: Permissions, user: User, owner: User | None) -> frozenset[str]:
    granted: frozenset[str] = frozenset()
    for permission in permissions:
        if all(_holds(condition, user, owner) for condition in permission.conditions):
            granted |= permission.operations
    return granted


def _with_create(permissions: Permissions, user: User, granted: frozenset[str]) -> frozenset[str]:
    """The granted operations; to create, the user counts as the owner of what is to be created."""
    if CREATE in granted:
        return granted
    creating = tuple(permission for permission in permissions if CREATE in permission.operations)
    return granted | {CREATE} if creating and _granted(creating, user, user) else granted


def _holds(condition: GrantCondition | UserRole, user: User, owner: User | None) -> bool:
    if isinstance(condition, UserRole):
        levels = owner.organization if owner is not None else ()
        return any(
            role.name in condition.any_of and (role.organization is None or role.organization in levels)
            for role in user.roles
        )
    if condition is GrantCondition.AUTHENTICATED:
        return user.name is not None
    if condition is GrantCondition.OWNER:
        return owner is not None and user.name is not None and user.name == owner.name
    if condition is GrantCondition.GROUP_MEMBER:
        return owner is not None and user.group is not None and user.group == owner.group
    return False


_Operation = str
_JSON_CONDITIONS: dict[str, tuple[GrantCondition, ...]] = {
    "anyone": (),
    "anyone-with-token": (GrantCondition.TOKEN,),
    "any-authenticated-user": (GrantCondition.AUTHENTICATED,),
    "owner": (GrantCondition.OWNER,),
    "group-member": (GrantCondition.GROUP_MEMBER,),
}


class _PermissionsJson(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    anyone: list[_Operation] = []
    anyone_with_token: list[_Operation] = []
    any_authenticated_user: list[_Operation] = []
    owner: list[_Operation] = []
    group_member: list[_Operation] = []
    roles: dict[str, list[_Operation]] = {}


_decoder = msgspec.json.Decoder(_PermissionsJson)


def from_json(text: str) -> Permissions:
    """Read the JSON of the property; here ``list`` is not implied (spec crud 6.3).

    Raises:
        BadRequestError: it is not the JSON object of the specification, or names an unknown operation.
    """
    try:
        raw = _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BadRequestError(f"malformed permissions: {error}") from error
    found = [
        Permission(_known(getattr(raw, name.replace("-", "_"))), conditions)
        for name, conditions in _JSON_CONDITIONS.items()
    ]
    found += [Permission(_known(names), (UserRole(frozenset({role})),)) for role, names in raw.roles.items()]
    return tuple(permission for permission in found if permission.operations)


def _known(names: Iterable[str]) -> frozenset[str]:
    operations = frozenset(names)
    for name in operations - frozenset(OPERATIONS):
        raise BadRequestError(f"malformed permissions: {name!r} is no operation; there are {', '.join(OPERATIONS)}")
    return operations
