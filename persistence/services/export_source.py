"""The revisions that an export contains, found document by document, with only the facts of one document in memory.

Documents in a range of dates are found by their sidecars, of which some 30,000 are read in a second: no index is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

from persistence.errors import (
    BadRequestError,
    BusyError,
    ConfigurationError,
    DamagedError,
    NotFoundError,
    NotSupportedError,
    PersistenceError,
    RemoteError,
)
from persistence.model.addresses import DATA_XML, FORM_XHTML, Address, Collection, DefinitionAddress, DocumentAddress
from persistence.model.archives import ArchiveEntry, entry_of
from persistence.model.exports import ExportedContent, ExportQuery, RevisionHistory, VersionFilter
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.providers.provider import Route
from persistence.providers.router import Router
from persistence.storage.storage import Revisions
from persistence.storage.stored_revision import StoredRevision

_ATTEMPTS = 20

LEFT_OUT = (
    BadRequestError,
    BusyError,
    ConfigurationError,
    DamagedError,
    NotFoundError,
    NotSupportedError,
    RemoteError,
)
"""Errors of one revision, which is left out and named. Others end the export: a disk that refuses."""


@dataclass(frozen=True, slots=True)
class ExportedRevision:
    """A revision to export, as it was when its document was read."""

    storage: Revisions
    address: Address
    sidecar: Sidecar
    is_current: bool
    has_history: bool

    @property
    def entry(self) -> ArchiveEntry:
        sidecar, options = self.sidecar, {"is_current": self.is_current, "has_history": self.has_history}
        return entry_of(self.address, sidecar.version, sidecar.modified, **options)

    def opened(self) -> StoredRevision:
        """Return this revision with its content open, also if it has become an older one meanwhile."""
        read = partial(self.storage.read_revision, self.address, self.sidecar.modified, content=True)
        found = self.storage.read(self.address, content=True) if self.is_current else read()
        if found is not None and not self._is_same(found):
            found.close()
            found = read()
        if found is None or not self._is_same(found):
            if found is not None:
                found.close()
            raise BusyError(f"{self.address} of {self.sidecar.modified} was replaced while it was exported")
        return found

    def _is_same(self, found: StoredRevision) -> bool:
        return found.sidecar.modified == self.sidecar.modified and found.file is not None


Found = ExportedRevision | PersistenceError
"""A revision, or the reason why one is left out."""


@dataclass(frozen=True, slots=True)
class SelectedForm:
    """A form, and the versions of it to export."""

    route: Route
    query: ExportQuery
    versions: VersionFilter

    def groups(self) -> Iterator[Iterator[Found]]:
        """Yield what belongs together: a version of the definition, a document, or a draft."""
        contents = self.query.contents
        if ExportedContent.DEFINITIONS in contents:
            storage = self.route.definition.storage
            for version in filter(self.versions.__contains__, storage.versions(self.route.form)):
                main = DefinitionAddress(self.route.form, version, FORM_XHTML)
                yield _left_out(_Folder(storage, main, self.query, self.versions).found())
        if ExportedContent.DATA in contents:
            for address in self.documents():
                yield _left_out(_Folder(self.route.storage, address, self.query, self.versions).found())

    def documents(self) -> Iterator[DocumentAddress]:
        """Yield the documents and drafts that are read, of all versions."""
        collections = tuple(Collection) if self.query.with_drafts else (Collection.DATA,)
        for collection in collections:
            storage, named = self.route.data.storage, self.query.document
            for document in storage.documents(self.route.form, collection) if named is None else (named,):
                yield DocumentAddress(self.route.form, collection, document, DATA_XML)

    def of_document(self) -> SelectedForm:
        """Return the form in the version of the document that the query names."""
        known = [self.route.storage.sidecar(address) for address in self.documents()]
        is_old_wanted = self.query.history is not RevisionHistory.EXCLUDE
        found = {each.version for each in known if each is not None and (is_old_wanted or not each.deleted)}
        numbers = frozenset(each for each in found if each in self.versions)
        if not numbers:
            raise NotFoundError(f"{self.route.form} has no document {self.query.document} of such a version")
        return replace(self, versions=VersionFilter(numbers))


def select_forms(router: Router, query: ExportQuery) -> list[SelectedForm]:
    """Return the forms that a query names, in order. What a wildcard finds may be nothing."""
    apps = {pattern.app for pattern in query.patterns}
    every = {form for app in ({None} if None in apps else apps) for form in router.forms(app)}
    for form in filter(None, (pattern.form for pattern in query.patterns)):
        if form not in every:
            router.of(form)
            raise NotFoundError(f"there is no form {form}")
    selected = []
    for form in sorted(every, key=lambda each: (each.app, each.name)):
        route = router.of(form)
        versions = query.versions(form, cache(lambda route=route: route.catalog.latest_version(route.form) or 1))
        if versions is not None:
            selected.append(SelectedForm(route, query, versions))
    return selected


@dataclass(frozen=True, slots=True)
class _Folder:
    """A ``data.xml`` or ``form.xhtml``, with all files beside it."""

    storage: Revisions
    main: Address
    query: ExportQuery
    versions: VersionFilter

    def found(self) -> Iterator[Found]:
        known = self._stable()
        own = known.pop(self.main.name, None)
        if isinstance(own, PersistenceError):
            raise own
        version = next((each.version for each in (own, *known.values()) if isinstance(each, Sidecar)), None)
        is_gone = own is not None and own.deleted and not self._has_history
        if version is None or version not in self.versions or is_gone:
            return
        is_wanted = own is None and not (
            self._is_data and (self.query.since is not None or self.query.until is not None)
        )
        for revision in () if own is None else self._revisions(self.main, own):
            if isinstance(revision, PersistenceError) or self._is_chosen(revision):
                is_wanted = True
                yield revision
        for name, sidecar in known.items() if is_wanted else ():
            if isinstance(sidecar, PersistenceError):
                yield sidecar
            else:
                yield from self._revisions(replace(self.main, name=name), sidecar)

    @property
    def _is_data(self) -> bool:
        return isinstance(self.main, DocumentAddress)

    @property
    def _has_history(self) -> bool:
        return self.query.history is not RevisionHistory.EXCLUDE and self.main.keeps_history

    def _is_chosen(self, revision: ExportedRevision) -> bool:
        is_older_only = self.query.history is RevisionHistory.ONLY and self._is_data and self._has_history
        is_in_range = not self._is_data or self.query.is_in_range(revision.sidecar.modified)
        return is_in_range and not (is_older_only and revision.is_current)

    def _stable(self) -> dict[str, Sidecar | PersistenceError]:
        known = self._sidecars()
        for _ in range(_ATTEMPTS):
            again = known if len(known) <= 1 else self._sidecars()
            if _states(again) == _states(known):
                return again
            known = again
        raise BusyError(f"{self.main} is being written too often to be exported")

    def _sidecars(self) -> dict[str, Sidecar | PersistenceError]:
        known: dict[str, Sidecar | PersistenceError] = {}
        for name in self.storage.names(self.main):
            try:
                sidecar = self.storage.sidecar(replace(self.main, name=name))
            except LEFT_OUT as error:
                known[name] = error
            else:
                if sidecar is not None:
                    known[name] = sidecar
        return known

    def _revisions(self, address: Address, current: Sidecar) -> Iterator[Found]:
        if not current.deleted or self._has_history:
            yield ExportedRevision(self.storage, address, current, is_current=True, has_history=self._has_history)
        if self._has_history:
            yield from _left_out(self._older(address, current.modified))

    def _older(self, address: Address, current: Instant) -> Iterator[Found]:
        revisions = self.storage.history(address)
        for position in range(0 if revisions is None else revisions.total):
            if revisions is None or revisions.instant(position) >= current:
                continue
            found = revisions.revision(position)
            if found is not None and found.sidecar is not None:
                yield ExportedRevision(self.storage, address, found.sidecar, is_current=False, has_history=True)
            elif found is not None:
                yield DamagedError(f"the sidecar of {address} of {found.instant} is damaged")


def _states(known: dict[str, Sidecar | PersistenceError]) -> dict[str, Instant | str]:
    return {name: each.modified if isinstance(each, Sidecar) else str(each) for name, each in known.items()}


def _left_out(revisions: Iterator[Found]) -> Iterator[Found]:
    try:
        yield from revisions
    except LEFT_OUT as error:
        yield error
