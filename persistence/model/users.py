"""Users: the caller by the request headers, owners of documents, administrators of forms (spec crud 6.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import quote_plus, unquote_plus

import msgspec

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_CREDENTIAL, MOST_LEVELS, MOST_ROLES
from persistence.model.addresses import Form
from persistence.model.texts import short

_MOST_QUOTED = 64
"""Characters of a name that an error quotes."""

_ANY = "*"

_Text = Annotated[str, msgspec.Meta(max_length=LONGEST_CREDENTIAL)]


@dataclass(frozen=True, slots=True)
class Role:
    """A role, of everywhere or bound to one organization."""

    name: str
    organization: str | None = None


@dataclass(frozen=True, slots=True)
class User:
    """A caller or owner; without a ``name`` it is anonymous.

    ``is_nameless`` says that a group or roles were sent without a name: they count for nothing.
    """

    name: str | None = None
    group: str | None = None
    roles: tuple[Role, ...] = ()
    organization: tuple[str, ...] = ()
    is_nameless: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Bearer:
    """A caller and the access token of the request, which nobody has verified yet (spec crud 6.6)."""

    user: User
    token: str | None = None


ANONYMOUS = User()
_NAMELESS = User(is_nameless=True)


class _RoleJson(msgspec.Struct):
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
    return User(
        name=name,
        group=_decoded(raw.groups[0]) if raw.groups else None,
        roles=_not_too_many(tuple(map(_role, raw.roles))),
        organization=_levels(raw.organizations[0]) if raw.organizations else (),
    )


def credentials_of(user: User) -> str:
    """Return the JSON object of the credentials header, in ASCII."""
    json = {
        "username": quote_plus(user.name or ""),
        "groups": [] if user.group is None else [quote_plus(user.group)],
        "roles": [{"name": quote_plus(role.name)} for role in user.roles if role.organization is None],
    }
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
    if not organization:
        raise BadRequestError(
            "a role in the credentials header names an empty organization"
        )  # it would count everywhere
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


def _levels(texts: list[str]) -> tuple[str, ...]:
    if len(texts) > MOST_LEVELS:
        raise BadRequestError(f"an organization of more than {MOST_LEVELS} levels is not accepted")
    return tuple(level for level in map(_decoded, texts) if level is not None)


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
        """Return whether documents that ``owner`` has created are seen."""
        return any(holder.matches(owner) for holder in self.holders)


EVERYBODY = OwnerSet(frozenset({OwnerPattern()}))
"""Everybody's documents are seen."""
NOBODY = OwnerSet()
"""Nobody's documents are seen."""

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
