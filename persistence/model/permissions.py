"""Users, owners and permissions: who may do what, as pure functions of values (spec crud 6.1 to 6.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated
from urllib.parse import quote_plus, unquote_plus

import msgspec

from persistence.errors import BadRequestError, ForbiddenError
from persistence.limits import LONGEST_CREDENTIAL, MOST_LEVELS, MOST_ROLES
from persistence.model.addresses import Form
from persistence.model.texts import short

_MOST_QUOTED = 64  # Characters of a name that an error quotes

_ANY = "*"

_Text = Annotated[str, msgspec.Meta(max_length=LONGEST_CREDENTIAL)]


@dataclass(frozen=True, slots=True)
class Role:
    """A role, of everywhere or bound to one organization."""

    name: str
    organization: str | None = None


@dataclass(frozen=True, slots=True)
class User:
    """A caller or owner, anonymous without a ``name``; if ``is_nameless``, with a group or roles that do not count."""

    name: str | None = None
    group: str | None = None
    roles: tuple[Role, ...] = ()
    organization: tuple[str, ...] = ()
    is_nameless: bool = field(default=False, compare=False)


ANONYMOUS = User()
_NAMELESS = User(is_nameless=True)


@dataclass(frozen=True, slots=True)
class Bearer:
    """A caller and the access token of the request, which nobody has verified yet (spec crud 6.6)."""

    user: User = ANONYMOUS
    token: str | None = None


class _RoleJson(msgspec.Struct, omit_defaults=True):
    name: _Text
    organization: _Text | None = None


class _CredentialsJson(msgspec.Struct):
    username: _Text
    groups: list[_Text] = msgspec.field(default_factory=list)
    roles: list[_RoleJson] = msgspec.field(default_factory=list)
    organizations: list[list[_Text]] = msgspec.field(default_factory=list)


_credentials_decoder = msgspec.json.Decoder(_CredentialsJson)


def parse_credentials(text: str) -> User:
    """Read the JSON object of the credentials header; its texts may be form-URL-encoded."""
    try:
        raw = _credentials_decoder.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequestError(f"malformed credentials header: {error}") from error
    name = _decoded(raw.username)
    if name is None:
        return _NAMELESS if raw.groups or raw.roles else ANONYMOUS
    group = _decoded(raw.groups[0]) if raw.groups else None
    roles = _not_too_many(tuple(map(_role, raw.roles)))
    levels = raw.organizations[0] if raw.organizations else []
    if len(levels) > MOST_LEVELS:
        raise BadRequestError(f"an organization of more than {MOST_LEVELS} levels is not accepted")
    return User(name, group, roles, tuple(level for level in map(_decoded, levels) if level is not None))


def credentials_of(user: User) -> str:
    """Return the JSON object of the credentials header, in ASCII: any character can be in a name."""
    json: dict[str, object] = {
        "username": quote_plus(user.name or ""),
        "groups": [] if user.group is None else [quote_plus(user.group)],
        "roles": [
            _RoleJson(quote_plus(each.name), each.organization and quote_plus(each.organization)) for each in user.roles
        ],
    }
    if user.organization:
        json["organizations"] = [[quote_plus(level) for level in user.organization]]
    return msgspec.json.encode(json).decode()


def from_headers(name: str | None, group: str | None, roles: str | None) -> User:
    """Read the caller from the individual headers; without a name they count for nothing."""
    who = short(name, "user name")
    if who is None:
        return _NAMELESS if (group or "").strip() or (roles or "").strip() else ANONYMOUS
    words = tuple(Role(word) for each in (roles or "").replace("|", ",").split(",") if (word := each.strip()))
    return User(name=who, group=short(group, "group name"), roles=_not_too_many(words))


def _not_too_many(roles: tuple[Role, ...]) -> tuple[Role, ...]:
    if len(roles) > MOST_ROLES:
        raise BadRequestError(f"more than {MOST_ROLES} roles are not accepted")
    return roles


def _role(raw: _RoleJson) -> Role:
    if raw.organization is None:
        return Role(_unquoted(raw.name))
    organization = _unquoted(raw.organization).strip(" \t")
    if not organization:  # it would count everywhere
        raise BadRequestError("a role in the credentials header names an empty organization")
    return Role(_unquoted(raw.name), organization)


def _decoded(text: str) -> str | None:
    name = _unquoted(text)
    if name.strip() not in ("", name):  # blanks that HTTP or JSON put around it are not encoded
        raise BadRequestError(
            f"a name in the credentials header begins or ends with white space: {name[:_MOST_QUOTED]!r}"
        )
    return short(name, "user, group or organization name")


def _unquoted(text: str) -> str:
    """Remove the form-URL-encoding. Two names must not become one, so bytes that are not UTF-8 are refused."""
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        raise BadRequestError(f"a name in the credentials header is not UTF-8: {text[:_MOST_QUOTED]!r}") from None


@dataclass(frozen=True, slots=True)
class OwnerPattern:
    """The owners to whom all given values apply, with one organization of each of ``organizations``; empty is all."""

    creator: str | None = None
    group: str | None = None
    organizations: tuple[frozenset[str], ...] = ()

    def matches(self, owner: User) -> bool:
        return (
            (self.creator is None or self.creator == owner.name)
            and (self.group is None or self.group == owner.group)
            and not any(each.isdisjoint(owner.organization) for each in self.organizations)
        )


@dataclass(frozen=True, slots=True)
class OwnerSet:
    """The owners whose documents are seen: those whom one of the patterns matches."""

    holders: frozenset[OwnerPattern] = frozenset()

    def includes(self, owner: User) -> bool:
        return any(holder.matches(owner) for holder in self.holders)


EVERYBODY = OwnerSet(frozenset({OwnerPattern()}))  # Everybody's documents are seen
NOBODY = OwnerSet()  # Nobody's documents are seen

OwnerSets = frozenset[OwnerSet]
"""The owners whose documents of one version are visible: every set must include them; without a set, all owners are."""


class Admin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A role that administers a form; each of the three may be ``*`` for any."""

    role: str
    app: str
    form: str


def admin_entries(admins: Iterable[Admin], user: User) -> tuple[Admin, ...]:
    """Return the entries that apply to a user; a role in an organization does not (as without data, spec crud 6.4)."""
    names = {role.name for role in user.roles if role.organization is None} | {_ANY}
    return tuple(entry for entry in admins if entry.role in names)


def is_admin(entries: Iterable[Admin], form: Form) -> bool:
    return any(entry.app in (_ANY, form.app) and entry.form in (_ANY, form.name) for entry in entries)


CREATE, READ, UPDATE, DELETE, LIST = OPERATIONS = ("create", "read", "update", "delete", "list")
"""The names on the wire, in the order in which they are written."""

FINDING = (READ, UPDATE, DELETE)
"""A user with one of these finds a document in a search that does not say otherwise (spec search 1.1)."""


@dataclass(frozen=True, slots=True)
class Operations:
    """The allowed operations in order, or ``None`` where no permissions are defined; ``text`` is for responses."""

    allowed: tuple[str, ...] | None
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", "*" if self.allowed is None else " ".join(self.allowed))

    def allows(self, *any_of: str) -> bool:
        return self.allowed is None or any(name in self.allowed for name in any_of)


UNRESTRICTED = Operations(None)  # No permissions are defined: everything is allowed


def in_order(names: frozenset[str]) -> Operations:
    """Return exactly the named operations; other names are left out."""
    return Operations(tuple(name for name in OPERATIONS if name in names))


class GrantCondition(Enum):
    """A condition of a permission, by its name in a form definition."""

    AUTHENTICATED = "any-authenticated-user"
    OWNER = "owner"
    GROUP_MEMBER = "group-member"
    TOKEN = "anyone-with-token"  # noqa: S105 - the name of an element; holds in ``by_token`` only
    UNKNOWN = ""  # Any condition that this service does not know; it never holds


@dataclass(frozen=True, slots=True)
class UserRole:
    """The condition that the caller has one of the named roles."""

    any_of: frozenset[str]


@dataclass(frozen=True, slots=True)
class Permission:
    """Operations for the users for whom all the conditions hold; without a condition, for anyone."""

    operations: frozenset[str]
    conditions: tuple[GrantCondition | UserRole, ...] = ()


Permissions = tuple[Permission, ...]
"""Everyone gets the operations of all permissions that apply; with an empty tuple, nobody gets any."""


def on_data(permissions: Permissions | None, user: User, owner: User) -> Operations:
    """Return what a user may do with data that ``owner`` has created (spec crud 6.4, existing data)."""
    return on_data_of(permissions, user)(owner)


def on_data_of(permissions: Permissions | None, user: User) -> Callable[[User], Operations]:
    """Return the operations of a user on data, by its owner, for the many documents of a list."""
    # What does not depend on the owner is decided once: a user may have hundreds of roles, a form as many permissions.
    if permissions is None:
        return lambda _: UNRESTRICTED
    always, by_owner = _grants(permissions, user)

    def judged(owner: User) -> Operations:
        granted = always
        for operations, owners in by_owner:
            if not operations <= granted and owners.matches(owner):
                granted |= operations
        return in_order(granted)

    return judged


def without_data(permissions: Permissions | None, user: User) -> Operations:
    """Return what a user may do with any data, as if another user owned it (spec crud 6.4, "pessimistic")."""
    return UNRESTRICTED if permissions is None else in_order(_grants(permissions, user)[0])


def by_token(permissions: Permissions, user: User, owner: User, granted: frozenset[str]) -> frozenset[str]:
    """Return the operations that a token adds on data that ``owner`` has created (spec crud 6.6)."""
    # The token has ``granted`` them, and a permission for bearers has them whose other conditions hold.
    of_bearers = tuple(
        Permission(
            each.operations & granted, tuple(other for other in each.conditions if other is not GrantCondition.TOKEN)
        )
        for each in permissions
        if GrantCondition.TOKEN in each.conditions
    )
    return granted.intersection(on_data(of_bearers, user, owner).allowed or ())


def on_creation(permissions: Permissions | None, user: User) -> Operations:
    """Return what a user may do with data that does not exist yet, and would be the user's own (spec crud 6.4)."""
    if permissions is None:
        return UNRESTRICTED
    granted, _ = _grants(permissions, user)
    if CREATE in granted:
        own = {GrantCondition.OWNER} if user.name is not None else set()
        if user.group is not None:
            own.add(GrantCondition.GROUP_MEMBER)
        granted = granted.union(*(each.operations for each in permissions if own.intersection(each.conditions)))
    return in_order(granted)


_ANY_OWNER = OwnerPattern()
_Grant = tuple[frozenset[str], OwnerPattern]


def _grants(permissions: Permissions, user: User) -> tuple[frozenset[str], tuple[_Grant, ...]]:
    """Return a user's operations on all data, and on that of some owners; of a creation, the user is the owner."""
    roles: dict[str, set[str | None]] = {}
    for role in user.roles:
        roles.setdefault(role.name, set()).add(role.organization)
    always: frozenset[str] = frozenset()
    by_owner: dict[_Grant, None] = {}
    for permission in permissions:
        owners = _owners(permission.conditions, user, roles)
        if owners == _ANY_OWNER:
            always |= permission.operations
        elif owners is not None:
            by_owner[permission.operations, owners] = None
    if any(CREATE in operations and owners.matches(user) for operations, owners in by_owner):
        always |= {CREATE}
    return always, tuple(by_owner)


def _owners(
    conditions: Iterable[GrantCondition | UserRole], user: User, roles: Mapping[str, set[str | None]]
) -> OwnerPattern | None:
    """Return the owners for whose data all conditions hold; ``None`` where one holds for none."""
    # ``roles`` are the organizations of the user's roles, by name; ``None`` is for a role of everywhere.
    own: dict[str, str] = {}
    organizations: set[frozenset[str]] = set()
    for condition in conditions:
        if isinstance(condition, UserRole):
            bound = {each for name in roles.keys() & condition.any_of for each in roles[name]}
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
    ordered = sorted(organizations, key=sorted) if len(organizations) > 1 else organizations
    return OwnerPattern(**own, organizations=tuple(ordered))


def readable_owners(permissions: Permissions | None, user: User, any_of: Iterable[str] = FINDING) -> OwnerSets:
    """Return owners whose documents a user may read and has one of the operations on, exactly as ``on_data`` says."""
    asked = frozenset(any_of)
    visible = {owners_with(permissions, user, (READ,))}
    if READ not in asked:
        visible.add(owners_with(permissions, user, asked))
    return frozenset(visible - {EVERYBODY})


def owners_with(permissions: Permissions | None, user: User, any_of: Iterable[str]) -> OwnerSet:
    """Return owners on whose documents a user has one of the operations, as ``on_data`` says."""
    asked = frozenset(any_of)
    if permissions is None:
        return EVERYBODY
    always, by_owner = _grants(permissions, user)
    if not asked.isdisjoint(always):
        return EVERYBODY
    united: dict[tuple[str | None, str | None], frozenset[str]] = {}
    left = set()
    for each in (owners for operations, owners in by_owner if not asked.isdisjoint(operations)):
        if len(each.organizations) == 1:
            key = each.creator, each.group
            united[key] = united.get(key, frozenset()) | each.organizations[0]
        else:
            left.add(each)
    return OwnerSet(frozenset(left | {OwnerPattern(*key, (each,)) for key, each in united.items()}))


def searchable_owners(permissions: Permissions | None, user: User, any_of: Iterable[str]) -> OwnerSet:
    """Return the owners whose documents a search finds for a user with one of the operations (spec search 1.8)."""
    # Unlike in ``owners_with``, a permission for owners who also have a role counts for every owner, and one for a role
    # in an organization for every operation.
    asked = frozenset(any_of)
    if without_data(permissions, user).allows(*asked):
        return EVERYBODY
    granted = permissions or ()
    row_tests = _conditions(granted, asked)
    finding = _conditions(granted, frozenset(FINDING))
    named = {role for condition in finding if isinstance(condition, UserRole) for role in condition.any_of}
    organizations = frozenset(
        role.organization for role in user.roles if role.organization is not None and role.name in named
    )
    tests = {
        OwnerPattern(creator=user.name if GrantCondition.OWNER in row_tests else None),
        OwnerPattern(group=user.group if GrantCondition.GROUP_MEMBER in row_tests else None),
        OwnerPattern(organizations=(organizations,) if organizations else ()),
    }
    return OwnerSet(frozenset(tests - {OwnerPattern()}))


def _conditions(permissions: Permissions, any_of: frozenset[str]) -> set[GrantCondition | UserRole]:
    return {
        condition for each in permissions if not any_of.isdisjoint(each.operations) for condition in each.conditions
    }


_HEADER = {
    GrantCondition.AUTHENTICATED: "Username",
    GrantCondition.OWNER: "Username",
    GrantCondition.GROUP_MEMBER: "Group",
}


def missing_headers(permissions: Permissions | None, user: User, any_of: Iterable[str]) -> tuple[str, ...]:
    """Return the headers, without prefix, that a permission for one of the operations needs and that were not sent."""
    # A group and roles count only with a user name: without one, it is the only answer.
    asked = frozenset(any_of)
    needed = {
        "Roles" if isinstance(condition, UserRole) else _HEADER[condition]
        for each in permissions or ()
        if not asked.isdisjoint(each.operations)
        and not {GrantCondition.TOKEN, GrantCondition.UNKNOWN}.intersection(each.conditions)
        for condition in each.conditions
    }
    if user.name is None:
        return ("Username",) if needed else ()
    sent = {"Username", *(("Group",) if user.group else ()), *(("Roles",) if user.roles else ())}
    return tuple(name for name in ("Group", "Roles") if name in needed - sent)


class _PermissionsJson(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    anyone: list[str] = []
    anyone_with_token: list[str] = []
    any_authenticated_user: list[str] = []
    owner: list[str] = []
    group_member: list[str] = []
    roles: dict[str, list[str]] = {}


_permissions_decoder = msgspec.json.Decoder(_PermissionsJson)


def from_json(text: str) -> Permissions:
    """Read the JSON of the property; here ``list`` is not implied (spec crud 6.3)."""
    try:
        raw = _permissions_decoder.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BadRequestError(f"malformed permissions: {error}") from error
    rows: list[tuple[list[str], tuple[GrantCondition | UserRole, ...]]] = [
        (raw.anyone, ()),
        (raw.anyone_with_token, (GrantCondition.TOKEN,)),
        (raw.any_authenticated_user, (GrantCondition.AUTHENTICATED,)),
        (raw.owner, (GrantCondition.OWNER,)),
        (raw.group_member, (GrantCondition.GROUP_MEMBER,)),
        *((names, (UserRole(frozenset({role})),)) for role, names in raw.roles.items()),
    ]
    found = [Permission(_known(names), conditions) for names, conditions in rows]
    return tuple(permission for permission in found if permission.operations)


def _known(names: Iterable[str]) -> frozenset[str]:
    operations = frozenset(names)
    for name in operations - frozenset(OPERATIONS):
        raise BadRequestError(f"malformed permissions: {name!r} is not an operation, as {', '.join(OPERATIONS)} are")
    return operations


_may_remove: ContextVar[bool] = ContextVar("may_remove", default=False)


def require_second_key() -> None:
    """Refuse (``ForbiddenError``) where this thread may not delete, remove and rewrite: revisions are only added."""
    if not _may_remove.get():
        raise ForbiddenError("revisions are only added here (append_only): this needs a second key")


@contextmanager
def removing() -> Iterator[None]:
    """Let this thread do so for a block: a second key was shown."""
    before = _may_remove.set(True)
    try:
        yield
    finally:
        _may_remove.reset(before)
