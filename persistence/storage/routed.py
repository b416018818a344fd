"""Several storages as one: definitions and data of each form have theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import BinaryIO, Generic, TypeVar

from persistence.errors import ConfigurationError
from persistence.model.addresses import Address, Collection, DefinitionAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.storage.integrity import Integrity
from persistence.storage.reader import StoreReader
from persistence.storage.storage import Readable, Storage, Writing
from persistence.storage.stored_revision import Fingerprint, StoredRevision
from persistence.storage.uploads import Upload

R_co = TypeVar("R_co", bound=Readable, covariant=True)


@dataclass(frozen=True, slots=True)
class Where(Generic[R_co]):
    """Which storage has what: the definition and the data of a form.

    ``defining`` are all storages that are asked for definitions of an application, or of all of them, each once.
    """

    definition: Callable[[Form], R_co]
    data: Callable[[Form], R_co]
    defining: Callable[[str | None], Iterable[R_co]]

    def of(self, address: Address) -> R_co:
        """The storage of an address."""
        return self.definition(address.form) if isinstance(address, DefinitionAddress) else self.data(address.form)


class RoutedView(Readable):
    """Several storages, to be read as one. Methods raise ``ConfigurationError`` too, where a form has no provider."""

    def __init__(self, where: Where[Readable]) -> None:
        self._where = where

    def sidecar(self, address: Address) -> Sidecar | None:
        """As ``Readable`` says."""
        return self._where.of(address).sidecar(address)

    def read(self, address: Address, *, content: bool) -> StoredRevision | None:
        """As ``Readable`` says."""
        return self._where.of(address).read(address, content=content)

    def read_revision(self, address: Address, instant: Instant, *, content: bool) -> StoredRevision | None:
        """As ``Readable`` says."""
        return self._where.of(address).read_revision(address, instant, content=content)

    def content(self, address: Address) -> BinaryIO | None:
        """As ``Readable`` says."""
        return self._where.of(address).content(address)

    def fingerprint(self, address: Address) -> Fingerprint:
        """As ``Readable`` says."""
        return self._where.of(address).fingerprint(address)

    def fingerprints(self, form: Form) -> Iterator[tuple[int, Fingerprint]]:
        """As ``Readable`` says."""
        return self._where.definition(form).fingerprints(form)

    def forms(self, app: str | None = None) -> Iterator[Form]:
        """The forms whose definitions are asked for there where they are found: what lies elsewhere does not count."""
        for storage in self._where.defining(app):
            for form in storage.forms(app):
                with suppress(ConfigurationError):  # it has no provider, as whoever asks for it by name is told
                    if self._where.definition(form) is storage:
                        yield form

    def versions(self, form: Form) -> Iterator[int]:
        """As ``Readable`` says."""
        return self._where.definition(form).versions(form)

    def documents(self, form: Form, collection: Collection = Collection.DATA) -> Iterator[str]:
        """As ``Readable`` says."""
        return self._where.data(form).documents(form, collection)


class RoutedStorage(RoutedView, Storage):
    """The same, to be written too."""

    def __init__(self, where: Where[Storage]) -> None:
        super().__init__(where)
        self._storages = where

    def upload(self, address: Address) -> Upload:
        """As ``Storage`` says."""
        return self._storages.of(address).upload(address)

    def writing(self, address: Address) -> AbstractContextManager[Writing]:
        """As ``Storage`` says."""
        return self._storages.of(address).writing(address)

    def creating(self, form: Form) -> AbstractContextManager[None]:
        """As ``Storage`` says."""
        return self._storages.data(form).creating(form)


def apart(data: str, definitions: str, integrity: Integrity) -> Readable:
    """The tree of a root with the definitions of another, empty where they are its own.

    Raises:
        StartupError: there is none, it has another format, or it is not whole.
        DiskError: it cannot be looked at.
    """
    here = StoreReader(data, integrity)
    if not definitions:
        return here
    there = StoreReader(definitions, integrity)
    return RoutedView(Where(definition=lambda _: there, data=lambda _: here, defining=lambda _: (there,)))
