"""Visibility: which documents of a form a search by a user looks at.

Where the property restricts searches, these are the documents that a GET by the same user shows: each is judged by the
permissions of its own version. Otherwise they are those of spec search 1.8, by the permissions of one version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from persistence.errors import DamagedError
from persistence.model import permissions
from persistence.model.addresses import Form
from persistence.model.permissions import FINDING, Operations
from persistence.model.search import DraftFilter, Drafts, Hit, Scope, VisibleOwners
from persistence.model.users import EVERYBODY, NOBODY, OwnerSet, OwnerSets, User
from persistence.properties.properties import Properties
from persistence.services.rights import Rights
from persistence.services.searched import Versions

_NOBODYS = VisibleOwners(lambda _: frozenset({NOBODY}))


@dataclass(frozen=True, slots=True)
class Visibility:
    """Decides what searches show. Methods raise ``DamagedError`` where the definition that counts cannot be read."""

    rights: Rights
    properties: Properties

    def scope(
        self, form: Form, searched: Versions, drafts: DraftFilter, user: User, any_of: tuple[str, ...] = FINDING
    ) -> Scope:
        """The documents on which a user has one of the operations, as far as a search may show them."""
        seen = self._seen(form, searched.definition, user, any_of)
        configured = self.properties.of(form)
        if configured.restricts_searches and not configured.has_drafts:  # a GET of one is refused
            seen = _NOBODYS if drafts.kind is Drafts.ONLY else seen
            drafts = replace(drafts, kind=Drafts.EXCLUDE)
        return Scope(searched.versions, drafts, seen, any_of)

    def of_singleton(self, form: Form, version: int, user: User) -> OwnerSet:
        """Owners whose documents count as those that a user has of a singleton form (spec crud 4.12)."""
        defined = self.rights.of_data(form, version)
        is_exact = self.properties.of(form).restricts_searches
        return (permissions.owners_with if is_exact else permissions.searchable_owners)(defined, user, FINDING)

    def operations(self, form: Form, hits: Iterable[Hit], user: User, definition: int) -> Callable[[Hit], Operations]:
        """The operations of a user on each of the documents that were found."""
        of_data, on_data_of = self.rights.of_data, permissions.on_data_of
        if not self.properties.of(form).restricts_searches:
            by_owner = on_data_of(of_data(form, definition), user)
            return lambda hit: by_owner(hit.owner)
        versions = {hit.version for hit in hits}
        by_version = {number: on_data_of(of_data(form, number or definition), user) for number in versions}
        return lambda hit: by_version[hit.version](hit.saved_owner or hit.owner)

    def _seen(self, form: Form, definition: int, user: User, any_of: tuple[str, ...]) -> VisibleOwners:
        defined = self.rights.of_data(form, definition)
        if not self.properties.of(form).restricts_searches:
            sights = frozenset({permissions.searchable_owners(defined, user, any_of)} - {EVERYBODY})
            return VisibleOwners(lambda _: sights)

        def of_version(version: int) -> OwnerSets:
            try:
                own = defined if version == definition else self.rights.of_data(form, version)
            except DamagedError:
                return frozenset({NOBODY})
            return permissions.readable_owners(own, user, any_of)

        return VisibleOwners(of_version, is_by_saved=True)
