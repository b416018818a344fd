"""An overview of the forms of a tree: which versions are published, and how many documents there are."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from persistence.errors import DamagedError, DiskError, NotFoundError, disk_errors
from persistence.maintenance.sight import Faulty, Origin, Sight
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.form_versions import PublishedVersion
from persistence.storage.layout import is_escaped, unescape


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """A published version, and who defines its permissions."""

    published: PublishedVersion
    is_singleton: bool
    permissions: Origin


@dataclass(frozen=True, slots=True)
class FormSummary:
    """A form: its published versions, lowest first, and how many documents, deleted documents and drafts it has.

    A document that cannot be read is none of the deleted ones.
    """

    form: Form
    versions: tuple[VersionSummary | Faulty, ...]
    documents: int
    deleted: int
    drafts: int


def overview(sight: Sight, app: str | None = None) -> Iterator[FormSummary]:
    """All forms, or those of one application, that have anything; sorted.

    Raises:
        NotFoundError: there is no such application.
        BadAddressError: its name cannot be a directory.
        DiskError: the tree cannot be listed.
    """
    if app is not None and not os.path.isdir(sight.layout.application(app)):
        raise NotFoundError(f"{app} does not exist")
    for form in sorted(sight.store.forms(app), key=lambda form: (form.app, form.name)):
        documents = Counter(_is_deleted(sight, form, each) for each in _documents(sight, form, Collection.DATA))
        summary = FormSummary(
            form,
            tuple(_versions(sight, form)),
            documents=documents[False],
            deleted=documents[True],
            drafts=sum(1 for _ in _documents(sight, form, Collection.DRAFT)),
        )
        if summary.versions or documents or summary.drafts:
            yield summary


def _versions(sight: Sight, form: Form) -> Iterator[VersionSummary | Faulty]:
    for number in sorted(set(sight.store.versions(form))):
        try:
            published = sight.catalog_of(form).of(form, number).published
        except (DamagedError, DiskError) as error:
            yield Faulty(str(number), str(error))
            continue
        if published is not None:
            yield VersionSummary(published, sight.is_singleton(published), sight.origin(published))


def _documents(sight: Sight, form: Form, collection: Collection) -> Iterator[str]:
    """The documents that have a directory, whatever is in it: there may be very many."""
    with disk_errors(f"counting the documents of {form}"):
        try:
            entries = os.scandir(sight.layout.documents(form, collection))
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            yield from (unescape(entry.name) for entry in entries if entry.is_dir() and is_escaped(entry.name))


def _is_deleted(sight: Sight, form: Form, document: str) -> bool:
    """Whether a document was deleted: only its sidecar tells."""
    try:
        sidecar = sight.store.sidecar(DocumentAddress(form, Collection.DATA, document, DATA_XML))
    except DamagedError:
        return False
    return sidecar is not None and sidecar.deleted
