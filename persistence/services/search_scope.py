"""The scope of a search: which versions of a form it looks at, and which documents of them its user may see.

Where the property restricts searches, these are the documents that a GET by the same user shows: each is judged by the
permissions of its own version. Otherwise they are those of spec search 1.8, by the permissions of one version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from persistence.definitions.catalog import Catalog, Definition
from persistence.dialect import Dialect
from persistence.errors import DamagedError
from persistence.forms.index_keys import DESIGNER_KEYS
from persistence.model import permissions
from persistence.model.addresses import DESIGNER_VERSION, Form
from persistence.model.permissions import FINDING, Operations
from persistence.model.search import DraftFilter, Drafts, Hit, Scope, VisibleOwners
from persistence.model.users import EVERYBODY, NOBODY, OwnerSet, OwnerSets, User
from persistence.model.versions import Searched, VersionRequest, only_first
from persistence.properties.properties import FormProperties
from persistence.providers.provider import Route
from persistence.services.access import permissions_on_data

_NOBODYS = VisibleOwners(lambda _: frozenset({NOBODY}))


@dataclass(frozen=True, slots=True)
class SearchedVersions:
    """The versions of a form that a search looks at, all of them where ``numbers`` is ``None``.

    ``definition`` is the one that counts for permissions, ``indexed`` the one by which the index reads its data.
    """

    catalog: Catalog
    configured: FormProperties
    numbers: tuple[int, ...] | None
    definition: Definition
    indexed: Definition
    is_designer: bool

    @property
    def index_paths(self) -> tuple[str, ...] | None:
        """Return the paths of the indexed controls, in the order of the index.

        Those of the designer's own form are built in. Return ``None`` where the version is not published, or its
        definition cannot be read.
        """
        if self.is_designer:
            return tuple(key.path for key in DESIGNER_KEYS)
        found = self.indexed.index_keys(self.configured.data_format)
        return tuple(key.path for key in found.keys) if found.is_published else None


def searched_versions(
    form: Form, configured: FormProperties, catalog: Catalog, asked: int | Searched, dialect: Dialect
) -> SearchedVersions:
    """Return the versions that a request means (spec search 1.4).

    Raises:
        VersionError: the form has version 1 only, and another was asked for.
        DamagedError, DiskError: a definition cannot be read.
    """
    is_designer = dialect.is_designer(form)

    def versions(numbers: tuple[int, ...] | None, number: int) -> SearchedVersions:
        definition = catalog.of(form, number)
        return SearchedVersions(catalog, configured, numbers, definition, definition, is_designer)

    if not is_designer and not configured.has_versions:
        if isinstance(asked, int):
            only_first(VersionRequest(number=asked))
        return versions((1,), 1)
    if isinstance(asked, int):
        return versions((asked,), asked)
    if is_designer:  # nothing is published of it
        return versions(None, DESIGNER_VERSION)
    latest = catalog.latest(form)
    if latest is None:
        # Deleted versions still say who may see their data: those count that say the same as the highest.
        same = catalog.same_permissions(form)
        return versions(same, same[0]) if same else versions(None, 1)
    numbers = None if asked is Searched.ALL else (latest.version,)
    return SearchedVersions(catalog, configured, numbers, latest, latest, is_designer)


def scope_of(searched: SearchedVersions, drafts: DraftFilter, user: User, any_of: tuple[str, ...] = FINDING) -> Scope:
    """Return the documents on which a user has one of the operations, as far as a search may show them.

    Raises:
        DamagedError: the definition that counts cannot be read.
    """
    seen = _seen(searched, user, any_of)
    configured = searched.configured
    if configured.restricts_searches and not configured.has_drafts:  # a GET of one is refused
        seen = _NOBODYS if drafts.kind is Drafts.ONLY else seen
        drafts = replace(drafts, kind=Drafts.EXCLUDE)
    return Scope(searched.numbers, drafts, seen, any_of)


def singleton_sight(route: Route, definition: Definition, user: User) -> OwnerSet:
    """Return the owners whose documents count as those that a user has of a singleton form (spec crud 4.12)."""
    defined = permissions_on_data(definition, route.properties)
    return (permissions.owners_with if route.properties.restricts_searches else permissions.searchable_owners)(
        defined, user, FINDING
    )


def operations_on(searched: SearchedVersions, hits: Iterable[Hit], user: User) -> Callable[[Hit], Operations]:
    """Return the operations of a user on each of the documents that were found."""
    configured, on_data_of = searched.configured, permissions.on_data_of
    if not configured.restricts_searches:
        by_owner = on_data_of(permissions_on_data(searched.definition, configured), user)
        return lambda hit: by_owner(hit.facts.owner)
    by_version = {
        number: on_data_of(permissions_on_data(_version(searched, number), configured), user)
        for number in {hit.facts.version for hit in hits}
    }
    return lambda hit: by_version[hit.facts.version](hit.saved_owner or hit.facts.owner)


def _version(searched: SearchedVersions, number: int) -> Definition:
    definition = searched.definition
    if number in (0, definition.version):
        return definition
    return searched.catalog.of(definition.form, number)


def _seen(searched: SearchedVersions, user: User, any_of: tuple[str, ...]) -> VisibleOwners:
    configured, definition = searched.configured, searched.definition
    defined = permissions_on_data(definition, configured)
    if not configured.restricts_searches:
        sights = frozenset({permissions.searchable_owners(defined, user, any_of)} - {EVERYBODY})
        return VisibleOwners(lambda _: sights)

    def of_version(version: int) -> OwnerSets:
        if version == definition.version:
            return permissions.readable_owners(defined, user, any_of)
        try:
            own = permissions_on_data(_version(searched, version), configured)
        except DamagedError:
            return frozenset({NOBODY})
        return permissions.readable_owners(own, user, any_of)

    return VisibleOwners(of_version, is_by_saved=True)
