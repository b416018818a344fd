"""Import: definitions first, then documents, one after the other; a refused one does not stop the others.

Permissions of forms and singleton forms do not count: an administrator imports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from persistence.dialect import DIALECTS
from persistence.errors import ConflictError, DiskFullError, NotSupportedError, PersistenceError, disk_errors
from persistence.index.protocol import Budget
from persistence.limits import CHUNK
from persistence.model.addresses import DocumentAddress, Form
from persistence.model.instants import Instant, from_datetime, next_after, to_datetime
from persistence.model.search import Query, Scope
from persistence.providers.provider import Route
from persistence.providers.router import Router
from persistence.services.codec import EncryptionCodec, ReceivedContent
from persistence.services.imports.placing import ImportWriter
from persistence.services.imports.planning import ImportPlan, OnConflict
from persistence.services.imports.revisions import (
    ImportedRevision,
    ImportOutcome,
    ImportResult,
    ImportSource,
    ImportUnit,
    refused,
)
from persistence.storage.storage import RevisionStorage
from persistence.storage.stored_revision import StoredRevision

_AHEAD = timedelta(days=1)
"""The clock of another machine may be ahead by this."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of an import: with ``is_dry`` nothing is stored."""

    is_dry: bool = False
    on_conflict: OnConflict = OnConflict.REFUSE


@dataclass(frozen=True, slots=True)
class Importer:
    """Imports into the providers of a router, of which ``calls_others`` admits other services.

    ``largest`` are the bytes of a content, ``largest_xml`` of data. With ``begins_indexes`` the index of a form is
    begun at its first document, so that the others go into it as they are stored.
    """

    router: Router
    codec: EncryptionCodec
    largest: int
    largest_xml: int
    calls_others: bool = True
    begins_indexes: bool = True

    def run(self, source: ImportSource, options: ImportOptions) -> Iterator[ImportOutcome]:
        """Import everything, and yield the outcome for each document and version."""
        latest, begun = from_datetime(to_datetime(next_after(None)) + _AHEAD), set[Form]()
        for units in (source.definitions(), source.documents()):
            for found in units:
                if not isinstance(found, ImportUnit):
                    yield found
                    continue
                outcome = self._import(found, options, latest)
                yield outcome
                form = None if options.is_dry or not self.begins_indexes else outcome.form
                if form is not None and form not in begun:
                    begun.add(form)
                    data = self.router.of(form).data
                    if data.managed is not None:
                        with suppress(PersistenceError):  # which the next search reports
                            data.index.search(form, Scope(), Query(size=0), Budget())

    def _import(self, unit: ImportUnit, options: ImportOptions, latest: Instant) -> ImportOutcome:
        unit = self._in_dialect(unit)
        try:
            return self._import_unit(unit, options, latest)
        except DiskFullError:
            raise
        except ConflictError as error:
            if options.on_conflict is OnConflict.SKIP:
                return ImportOutcome(unit.name, ImportResult.SKIPPED, unit.is_definition, cause=str(error))
            return refused(unit.name, error, is_definition=unit.is_definition)
        except PersistenceError as error:
            return refused(unit.name, error, is_definition=unit.is_definition)

    def _import_unit(self, unit: ImportUnit, options: ImportOptions, latest: Instant) -> ImportOutcome:
        route = self.router.of(unit.revisions[0].address.form)
        storage, is_exact = self._storage(route, unit)
        plan = ImportPlan(storage, self._has_same_content, options.on_conflict, is_exact)
        plan.add(unit)
        writer = ImportWriter(route, storage, self.codec, plan, latest, self.largest, self.largest_xml)
        count = len(plan.placed)
        if options.is_dry:
            writer.check()
        else:
            count = writer.write()
        notes = tuple(dict.fromkeys((*plan.notes, *writer.notes)))
        result = ImportResult.IMPORTED if count else ImportResult.UNCHANGED
        lacks_owner = result is ImportResult.IMPORTED and unit.lacks_owner
        form = route.form if count and not unit.is_definition else None
        return ImportOutcome(
            unit.name, result, unit.is_definition, count, plan.known, notes=notes, lacks_owner=lacks_owner, form=form
        )

    def _storage(self, route: Route, unit: ImportUnit) -> tuple[RevisionStorage, bool]:
        names = route.properties.route
        configured = names.definition if unit.is_definition else names.data
        apart = None if unit.is_definition else names.attachments
        for each in (configured, *(() if apart is None else (apart,))):
            if each.is_service and not self.calls_others:
                raise NotSupportedError(f"{each.name!r} is another service, {each.uri}: import it there, or over HTTP")
        provider = route.definition if unit.is_definition else route.data
        return provider.storage if unit.is_definition else route.storage, provider.managed is not None

    def _in_dialect(self, unit: ImportUnit) -> ImportUnit:
        """Return a unit with the name that the designer's storage has in this dialect."""
        form = unit.revisions[0].address.form
        own = self.codec.at_rest.dialect
        if unit.is_definition or own.is_designer(form) or not any(each.is_designer(form) for each in DIALECTS.values()):
            return unit
        form = Form(own.designer_app, form.name)
        return replace(
            unit,
            revisions=tuple(replace(each, address=replace(each.address, form=form)) for each in unit.revisions),
        )

    def _has_same_content(self, revision: ImportedRevision, found: StoredRevision) -> bool:
        """Compare an open revision, which is closed, with one in the source, decrypted as by an answer.

        Encryption changes the markup around a value.
        """
        address, at_rest = revision.address, self.codec.at_rest
        if revision.content is None:
            return False
        with found.opened as file, disk_errors("reading", address):
            stored: Iterable[bytes] = iter(lambda: file.read(CHUNK), b"")
            incoming: Iterable[bytes] = revision.content()
            if isinstance(address, DocumentAddress) and found.sidecar.encrypted:
                plain = None if address.is_main else at_rest.plain_file(found, address)
                stored = at_rest.decrypted(address, stored) if plain is None else iter(partial(plain.read, CHUNK), b"")
                if address.is_main:
                    definition = self.router.of(address.form).catalog.of(address.form, found.sidecar.version)
                    decrypted = at_rest.decrypted(address, incoming)
                    received = ReceivedContent(address, definition, found, None, lambda _: True, decrypted)
                    incoming = at_rest.decrypted(address, self.codec.encode(received).chunks)
            return _digest_of(stored) == _digest_of(incoming)


def _digest_of(pieces: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()
