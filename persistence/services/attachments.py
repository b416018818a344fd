"""The list of a document's attachments (spec crud 8.2, spec forms 6.7)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from persistence.errors import DamagedError, MalformedXmlError, NotFoundError, disk_errors
from persistence.forms.controls import Control
from persistence.forms.form_data import ITEM, AttachmentHolder, HolderReader, write_attachment_list
from persistence.limits import CHUNK
from persistence.model.addresses import DATA_XML, AttachmentRef, Collection, DocumentAddress, Form
from persistence.model.users import User
from persistence.services.documents import Documents
from persistence.services.requests import Get


class Attachments:
    """Lists attachments. Methods raise the domain errors of ``persistence.errors``."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def of_document(self, form: Form, document: str, user: User) -> bytes:
        """Return the XML of the list: what saved data names of its own attachments, in controls of the form.

        The controls are those of the version that the data was made with, at their paths in the format of data at
        rest. The user must be allowed to read the document.
        """
        address = DocumentAddress(form, Collection.DATA, document, DATA_XML)
        read = self._documents.read(address, Get(user=user))
        holders = holders_in(address, read.found.opened)
        version = read.found.sidecar.version
        route = self._documents.router.of(form)
        controls = route.catalog.of(form, version).controls
        if controls is None:
            raise NotFoundError(f"version {version} of {form}, with which {address} was made, is not published")
        return write_attachment_list(_named(holders, controls, route.properties.data_format))


def holders_in(address: DocumentAddress, file: BinaryIO) -> list[AttachmentHolder]:
    """The holders of a document's own attachments in its open ``data.xml``, which is closed at the end.

    Raises:
        DamagedError: the data is not well-formed.
        BadRequestError: it names more attachments than anyone has.
        DiskError: it cannot be read.
    """

    def is_own(held: AttachmentRef) -> bool:
        return (held.form, held.collection, held.document) == (address.form, address.collection, address.document)

    try:
        with file, HolderReader(is_own) as reader, disk_errors(f"reading {address}"):
            return reader.read(iter(partial(file.read, CHUNK), b"")).holders
    except MalformedXmlError as error:
        raise DamagedError(f"{address} cannot be read: {error}") from error


def _named(
    holders: list[AttachmentHolder], controls: tuple[Control, ...], data_format: str
) -> Iterator[tuple[str, AttachmentHolder]]:
    """The holders that are controls, or items of one, each with the control's name."""
    names = {control.path(data_format): control.name for control in controls}
    for holder in holders:
        path = holder.path[:-1] if holder.path[-1:] == (ITEM,) and holder.path not in names else holder.path
        if path in names:
            yield names[path], holder
