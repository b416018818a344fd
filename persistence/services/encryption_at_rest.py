"""Encryption at rest: the values of encrypted controls are encrypted where they are stored (spec forms 4).

Definitions and the designer's storage are never encrypted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_

import msgspec

from persistence.crypto import frames
from persistence.crypto.encryption_keys import EncryptionKeys
from persistence.crypto.frames import PlainFile
from persistence.crypto.value_cipher import DataCipher, ValueCipher
from persistence.definitions.catalog import Definition
from persistence.definitions.contents import EncryptedControls
from persistence.dialect import Dialect
from persistence.errors import BadAddressError, BusyError, ConfigurationError, DamagedError, MalformedXmlError
from persistence.forms.encryption import ValueDecrypter
from persistence.model.addresses import AttachmentRef, DocumentAddress
from persistence.model.sidecar import ClientHash, Sidecar
from persistence.model.versions import Place
from persistence.providers.router import Router
from persistence.services.rules import living
from persistence.storage.stored_revision import StoredRevision

Path = tuple[str, ...]
"""The names that lead to an element, from below the root element."""


@dataclass(frozen=True, slots=True)
class EncryptionAtRest:
    """Decides what to encrypt, finds out what is encrypted, and decrypts it."""

    router: Router
    dialect: Dialect
    keys: EncryptionKeys

    def to_encrypt(
        self, address: DocumentAddress, definition: Definition, over: StoredRevision | None
    ) -> EncryptedControls | None:
        """Return the controls whose values will be encrypted in a content that replaces a revision.

        For a version that was never published, these are the encrypted controls of all published ones.
        """
        encrypted = definition.encrypted
        if encrypted is not None:
            return encrypted
        stored = living(over)
        if stored is not None and stored.sidecar.encrypted:
            raise ConfigurationError(
                f"{address} is encrypted, and the definition of version {definition.version}, with its encrypted"
                " controls, is gone"
            )
        return self._encrypted_by_others(definition)

    def _encrypted_by_others(self, definition: Definition) -> EncryptedControls | None:
        form = definition.form
        route = self.router.of(form)
        every = [route.catalog.of(form, number) for number in route.definition.storage.versions(form)]
        published = [encrypted for each in every if (encrypted := each.encrypted) is not None]
        for each in (definition,) if published else every:
            sidecar = route.definition.storage.sidecar(each.address)
            if sidecar is not None and sidecar.metadata is not None and sidecar.metadata.encrypts:
                raise ConfigurationError(
                    f"the definition of version {definition.version} of {form}, with its encrypted controls, is gone"
                )
        return reduce(or_, published) if published else None

    def is_encrypted(self, held: AttachmentRef, is_labelled: bool) -> bool:  # noqa: FBT001 - as ``IsEncrypted`` has it
        """Return whether an attachment is stored encrypted; its holder decides only where it is not known here.

        The sidecar of a file that a proxy has encrypted does not say so, but the file does.
        """
        if held.collection is None:
            return False
        address = DocumentAddress(held.form, held.collection, held.document, held.name)
        try:
            storage = self.router.of(address.form).storage
            sidecar = storage.sidecar(address)
            if sidecar is None:
                return is_labelled
            if sidecar.encrypted or not is_labelled:
                return bool(sidecar.encrypted)
            found = storage.read(address, content=True)
            if found is None or found.file is None:
                return False
            with found.file:
                return self.plain_file(found, address) is not None
        except (BadAddressError, ConfigurationError, DamagedError):
            return is_labelled

    def plain_file(self, found: StoredRevision, address: DocumentAddress) -> PlainFile | None:
        """Return the plain content of an open attachment; ``None`` where it is not encrypted.

        A file that was stored by a proxy is recognized by its header, or, if of the real system, by its password.
        """
        file, size, ring = found.opened, found.size, self.keys.ring()
        header = None if found.sidecar.encrypted else frames.read_header(file)
        is_framed = header is not None and header.address == address and header.key_id in ring.keys
        if found.sidecar.encrypted or is_framed:
            return frames.open_file(file, size, address, ring)
        plain = frames.open_legacy_file(file, size, ring)
        if plain is None:
            file.seek(0)
        return plain

    def require_kept(self, key_id: str | None, address: DocumentAddress) -> None:
        """Refuse a content if the key with which it was encrypted was retired since."""
        if key_id not in self.keys.ring().keys:
            raise BusyError(
                f"the key that {address} was encrypted with was retired while it was received: send it again"
            )

    def cipher(self, address: DocumentAddress) -> ValueCipher:
        return ValueCipher(self.keys.ring(), address.form, address.document)

    def decrypted(
        self, address: DocumentAddress, pieces: Iterable[bytes], *, must_have: bool = False
    ) -> Iterator[bytes]:
        """Yield stored form data with its values decrypted; with ``must_have``, without any it is damaged."""
        values = DataCipher(self.cipher(address))
        try:
            with ValueDecrypter(values.decrypt) as opening:
                yield from opening.edited(pieces)
                values.verify(opening.seal)
        except MalformedXmlError as error:
            raise DamagedError(f"{address} cannot be decrypted: {error}") from error
        if must_have and not values.count:
            raise DamagedError(f"{address} has no encrypted value, but its sidecar says that it has")

    def as_encrypted(self, sidecar: Sidecar, address: DocumentAddress) -> Sidecar:
        """Return the sidecar of an encrypted content; the client's hash of the plain content is encrypted too."""
        encrypted = None
        if sidecar.client_hash is not None:
            text = msgspec.json.encode(sidecar.client_hash).decode()
            encrypted = self.cipher(address).encrypt(text, _hash_place(address))
        return msgspec.structs.replace(sidecar, encrypted=True, client_hash=None, sealed_hash=encrypted)

    def as_plain(self, sidecar: Sidecar, address: DocumentAddress) -> Sidecar:
        return msgspec.structs.replace(self.with_hash(sidecar, address), encrypted=None, sealed_hash=None)

    def with_hash(self, sidecar: Sidecar, address: DocumentAddress) -> Sidecar:
        """Return the sidecar with the client's hash; without it if it cannot be decrypted: it is only a hint."""
        if sidecar.sealed_hash is None:
            return sidecar
        try:
            text = self.cipher(address).decrypt(sidecar.sealed_hash, _hash_place(address))
            return msgspec.structs.replace(sidecar, client_hash=msgspec.json.decode(text, type=ClientHash))
        except (ConfigurationError, DamagedError, msgspec.DecodeError):
            return sidecar


def _hash_place(address: DocumentAddress) -> Place:
    return ("", 1), (address.collection.value, 1), (address.name, 1)
