"""Singleton forms: a form whose definition says so has one document (spec crud 4.12).

What the definition says is kept in its sidecar when it is published, so that no definition is parsed on a PUT of data.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from persistence.errors import ConflictError
from persistence.model.addresses import DATA_XML, FORM_XHTML, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.store.store import Store


@contextmanager
def only_one(store: Store, address: DocumentAddress, version: int, *, creates: bool) -> Iterator[None]:
    """Let a PUT go on in the block, and nobody else create a document meanwhile if the form has only one.

    Replacing a document, attachments and drafts (spec crud 16, D17) are never refused.

    Raises:
        ConflictError: the form has its one document already.
    """
    if not (creates and address.is_main and not address.is_draft and _is_singleton(store, address.form, version)):
        yield
        return
    with store.creating(address.form):
        if _has_document(store, address.form, version):
            raise ConflictError(f"{address.form} version {version} has only one document, and it exists already")
        yield


def _is_singleton(store: Store, form: Form, version: int) -> bool:
    definition = store.sidecar(DefinitionAddress(form, version, FORM_XHTML))
    metadata = definition.metadata if definition is not None else None
    return metadata is not None and metadata.singleton is True


def _has_document(store: Store, form: Form, version: int) -> bool:
    saved = (store.sidecar(DocumentAddress(form, Collection.DATA, name, DATA_XML)) for name in store.documents(form))
    return any(sidecar is not None and not sidecar.deleted and sidecar.version == version for sidecar in saved)
