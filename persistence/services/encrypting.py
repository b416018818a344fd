"""Encryption at rest: what is marked is encrypted before it is stored, and decrypted when it is shown (spec forms 4).

It is what a proxy does, so it is done for those who come to the service as one. Definitions and the designer's storage
are never encrypted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from operator import or_
from typing import BinaryIO, cast

import msgspec

from persistence.crypto import frames, legacy
from persistence.crypto.encryption_keys import EncryptionKeys, KeyRing
from persistence.crypto.frames import FileHeader, PlainFile
from persistence.crypto.value_cipher import ValueCipher
from persistence.definitions.catalog import Definition
from persistence.definitions.contents import EncryptedControls
from persistence.dialect import Dialect
from persistence.errors import (
    BadAddressError,
    BadRequestError,
    BodyTooLargeError,
    BusyError,
    ConfigurationError,
    DamagedError,
    ForbiddenError,
    MalformedXmlError,
    disk_errors,
)
from persistence.forms.data_marks import MARKER_WORD
from persistence.forms.encryption import Opening, Sealing
from persistence.forms.holders import ITEM
from persistence.keeping import Kept
from persistence.limits import LOOKED_AT, LOOKED_AT_BYTES, MOST_HOLDERS, MOST_SEALED
from persistence.model.addresses import (
    PUBLIC_PREFIX,
    AttachmentRef,
    DocumentAddress,
)
from persistence.model.sidecar import ClientHash, Sidecar
from persistence.providers.provider import Route
from persistence.providers.router import Router
from persistence.services.requests import Get
from persistence.services.results import Read
from persistence.services.rules import living
from persistence.services.vault import Incoming, Intake, as_received
from persistence.storage.stored_revision import StoredRevision
from persistence.xml.markup import may_mention

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Encrypting:
    """The vault of the public face (``Vault``)."""

    router: Router
    dialect: Dialect
    keys: EncryptionKeys
    _looked: Kept[bool] = field(default_factory=lambda: Kept(LOOKED_AT, LOOKED_AT_BYTES), init=False)

    def receive(self, intake: Intake, chunks: Iterable[bytes]) -> Incoming:
        """What is marked by the definition of the version is encrypted.

        An attachment that arrives encrypted, as somebody read it from another address who may read it there decrypted
        as well, is encrypted for its new address (spec forms 4.3, last paragraph).

        Raises:
            ConfigurationError: it must be encrypted and there is no key; or it replaces something encrypted, and the
                version that would say what to encrypt is not published.
        """
        address = intake.address
        if self.dialect.is_designer(address.form):
            return as_received(chunks)
        marked = self.marked(address, intake.definition, intake.over)
        if address.is_main:
            return _Data(self, address, marked, chunks)
        is_marked = _is_marked(intake.holder, marked)
        if is_marked:
            self.keys.ring().to_write()
        return _Attachment(self, intake, chunks, is_marked)

    def marked(
        self, address: DocumentAddress, definition: Definition, over: StoredRevision | None
    ) -> EncryptedControls | None:
        """What is marked by the definition of a version; raises as ``receive``.

        What belongs to a version that was never published is encrypted as any published version would have it.
        """
        found = definition.encrypted
        if found is not None:
            return found
        stored = living(over)
        if stored is not None and stored.sidecar.encrypted:
            raise ConfigurationError(
                f"{address} is encrypted, and the definition of version {definition.version}, which says what to"
                " encrypt, is gone"
            )
        return self._marked_by_others(definition)

    def _marked_by_others(self, definition: Definition) -> EncryptedControls | None:
        """What the published versions of a form mark, for one that is not published.

        Raises:
            ConfigurationError: it was published and has marked something; or no version is left, and one has.
        """
        form = definition.form
        route = self.router.of(form)
        every = [route.catalog.of(form, number) for number in route.definition.storage.versions(form)]
        published = [marked for each in every if (marked := each.encrypted) is not None]
        if any(_has_marked(route, each) for each in ((definition,) if published else every)):
            raise ConfigurationError(
                f"the definition of version {definition.version} of {form}, which would say what to encrypt, is gone"
            )
        return reduce(or_, published) if published else None

    def paths(self, address: DocumentAddress, marked: EncryptedControls | None) -> frozenset[tuple[str, ...]]:
        """The paths of what is marked, in the format of data at rest."""
        return frozenset() if marked is None else marked.paths[self.router.of(address.form).properties.data_format]

    def looks_inside(self, address: DocumentAddress, get: Get) -> bool:
        """How long it is decrypted, only the content tells."""
        return (address.is_main or get.decrypt) and not self.dialect.is_designer(address.form)

    def show(self, read: Read, address: DocumentAddress, get: Get) -> Read:
        """Form data decrypted, and an attachment if that is asked for (spec forms 4.3)."""
        if self.dialect.is_designer(address.form):
            return read
        try:
            read = self._with_plain_hash(read, address)
            return self._data(read, address) if address.is_main else self._attachment(read, address, get)
        except Exception:
            if read.found.file is not None:
                read.found.file.close()
            raise

    def is_encrypted(self, held: AttachmentRef, is_said: bool) -> bool:  # noqa: FBT001 - as ``IsEncrypted`` has it
        """Whether an attachment is stored encrypted.

        What is stored decides, and the holder only of what is not known here, or cannot be read now. A file that a
        proxy has encrypted has no mark in its sidecar: then it says so itself.
        """
        if held.collection is None:
            return False
        address = DocumentAddress(held.form, held.collection, held.document, held.name)
        try:
            storage = self.router.of(address.form).storage
            sidecar = storage.sidecar(address)
            if sidecar is None:
                return is_said
            if sidecar.encrypted or not is_said:
                return bool(sidecar.encrypted)
            found = storage.read(address, content=True)
            if found is None or found.file is None:
                return False
            with found.file:
                return self.plain_file(found, address) is not None
        except (BadAddressError, ConfigurationError, DamagedError):
            return is_said

    def cipher(self, address: DocumentAddress) -> ValueCipher:
        """What encrypts and decrypts the values of a document."""
        return ValueCipher(self.keys.ring(), address.form, address.document)

    def opening(self, address: DocumentAddress, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Stored form data with its values decrypted.

        Raises:
            DamagedError: it is not well-formed, or a value does not decrypt.
            ConfigurationError: the key to a value is not here.
        """
        cipher = self.cipher(address)
        try:
            with Opening(cipher.decrypt) as opening:
                yield from opening.edited(pieces)
        except MalformedXmlError as error:
            raise DamagedError(f"{address} cannot be decrypted: {error}") from error

    def plain_file(self, found: StoredRevision, address: DocumentAddress) -> PlainFile | None:
        """The plain content of an open attachment; ``None`` where it is not encrypted.

        The sidecar says whether it is. A file that was stored through the provider face, or put into the tree, says so
        itself: as one of this service if it is that of its address, as one of the real system's if a password decrypts
        it.

        Raises:
            DamagedError: it is encrypted, and does not decrypt.
            ConfigurationError: the key to it is not here.
            DiskError: it cannot be read.
        """
        file, size, ring = found.opened, found.size, self.keys.ring()
        if found.sidecar.encrypted or _is_framed_for(file, address, ring):
            return frames.open_file(file, size, address, ring)
        plain = legacy.open_file(file, size, ring)
        if plain is None:
            file.seek(0)
        return plain

    def as_encrypted(self, sidecar: Sidecar, address: DocumentAddress) -> Sidecar:
        """The sidecar of what is encrypted; the client's hash is encrypted too: it is of the plain content."""
        sealed = None
        if sidecar.client_hash is not None:
            text = msgspec.json.encode(sidecar.client_hash).decode()
            sealed = self.cipher(address).encrypt(text, _hash_place(address))
        return msgspec.structs.replace(sidecar, encrypted=True, client_hash=None, sealed_hash=sealed)

    def as_plain(self, sidecar: Sidecar, address: DocumentAddress) -> Sidecar:
        """The same sidecar where nothing is encrypted."""
        plain = sidecar if sidecar.sealed_hash is None else self._with_hash(sidecar, address)
        return msgspec.structs.replace(plain, encrypted=None, sealed_hash=None)

    def _with_plain_hash(self, read: Read, address: DocumentAddress) -> Read:
        if read.found.sidecar.sealed_hash is None:
            return read
        return replace(read, found=replace(read.found, sidecar=self._with_hash(read.found.sidecar, address)))

    def _data(self, read: Read, address: DocumentAddress) -> Read:
        file = read.found.file
        if file is None:
            return read
        with disk_errors("reading", address):
            has_marks = self._has_marks(read.found, file)
        return replace(read, decryption=partial(self.opening, address)) if has_marks else read

    def _has_marks(self, found: StoredRevision, file: BinaryIO) -> bool:
        """Whether something in form data may be marked as encrypted, by its sidecar where that is of this content.

        Sidecars of services before this note, and of contents that have the word somewhere else, do not say it. Such
        contents are read to see, once in each process: another content has another id.
        """
        if found.is_edited:
            return _mentions_encryption(file)
        if found.sidecar.encrypted is not None:
            return found.sidecar.encrypted
        return self._looked.of(found.sidecar.id, lambda: _mentions_encryption(file))

    def _attachment(self, read: Read, address: DocumentAddress, get: Get) -> Read:
        found = read.found
        plain = self.plain_file(found, address) if get.decrypt and found.file is not None else None
        if plain is None:
            return read
        return replace(read, found=replace(found, size=plain.size, file=cast("BinaryIO", plain)), is_decrypted=True)

    def _with_hash(self, sidecar: Sidecar, address: DocumentAddress) -> Sidecar:
        """The sidecar with the client's hash; without it where that cannot be read, for it is only a hint."""
        try:
            text = self.cipher(address).decrypt(sidecar.sealed_hash or "", _hash_place(address))
            return msgspec.structs.replace(sidecar, client_hash=msgspec.json.decode(text, type=ClientHash))
        except (ConfigurationError, DamagedError, msgspec.DecodeError):
            return sidecar


@dataclass(slots=True)
class _Data:
    """Form data on its way in; ``count`` are the values that were encrypted, when it has been read."""

    vault: Encrypting
    address: DocumentAddress
    marked: EncryptedControls | None
    source: Iterable[bytes]
    count: int = 0
    holders: int = 0

    @property
    def chunks(self) -> Iterator[bytes]:
        """The data with what is marked encrypted."""
        paths = self.vault.paths(self.address, self.marked)
        source = iter(self.source)
        head = _head(source, lambda so_far: len(so_far) <= _CHUNK)
        if not paths and len(head) <= _CHUNK and not _may_concern_us(head):
            yield head  # most data that is saved: nothing in it is to be changed
            return
        values = frozenset[tuple[str, ...]]() if self.marked is None else self.marked.values
        with Sealing(paths, values, _Seal(self.vault, self.address), self._is_encrypted) as sealing:
            yield from sealing.edited(itertools.chain((head,), source))
        self.count = sealing.count

    def noted(self, sidecar: Sidecar, over: StoredRevision | None, definition: Definition) -> Sidecar:
        """Whether there are encrypted values; then the client's hash is encrypted too."""
        if self.vault.marked(self.address, definition, over) != self.marked:
            raise _published_anew(self.address)
        return self.vault.as_encrypted(sidecar, self.address) if self.count else sidecar

    def _is_encrypted(self, held: AttachmentRef, is_said: bool) -> bool:  # noqa: FBT001 - as ``IsEncrypted`` has it
        self.holders += 1
        if self.holders > MOST_HOLDERS:
            raise BadRequestError(f"the form data names more than {MOST_HOLDERS} attachments")
        return self.vault.is_encrypted(held, is_said)


class _Seal:
    """Encrypts values; keys are looked for at the first one, because without values none is needed."""

    def __init__(self, vault: Encrypting, address: DocumentAddress) -> None:
        self._vault = vault
        self._address = address
        self._count = 0

    @cached_property
    def _cipher(self) -> ValueCipher:
        return self._vault.cipher(self._address)

    def __call__(self, text: str, place: tuple[str, ...]) -> str:
        self._count += 1
        if self._count > MOST_SEALED:
            raise BodyTooLargeError(f"the form data has more than {MOST_SEALED} values that are to be encrypted")
        return self._cipher.encrypt(text, place)


@dataclass(slots=True)
class _Attachment:
    """An attachment on its way in; ``is_encrypted`` when it has been read."""

    vault: Encrypting
    intake: Intake
    source: Iterable[bytes]
    is_marked: bool
    is_encrypted: bool = False

    @property
    def chunks(self) -> Iterable[bytes]:
        """The file, encrypted if it is marked, or was already.

        Raises:
            ForbiddenError: it is the encrypted file of a document that the caller may not read: as a copy it would be
                shown to him.
            BadRequestError: it is an encrypted file, and not whole.
        """
        source = iter(self.source)
        head = _head(source, _may_be_framed)
        header = frames.authentic_header(head, self.vault.keys.ring()) if frames.may_begin(head) else None
        if header is None:
            plain: Iterable[bytes] = itertools.chain((head,), source)
        elif self.intake.may_read(header.address):
            plain = _opened(itertools.chain((head[len(header.raw) :],), source), header, self.vault.keys.ring())
        else:
            raise ForbiddenError(
                "the body is an encrypted attachment of a document that you may not read or that is gone"
            )
        self.is_encrypted = self.is_marked or header is not None
        if self.is_encrypted:
            return frames.encrypted(plain, self.intake.address, self.vault.keys.ring())
        return plain

    def noted(self, sidecar: Sidecar, over: StoredRevision | None, definition: Definition) -> Sidecar:
        """Whether it is encrypted; then the client's hash is too, which is of the plain content."""
        address = self.intake.address
        if _is_marked(self.intake.holder, self.vault.marked(address, definition, over)) is not self.is_marked:
            raise _published_anew(address)
        return self.vault.as_encrypted(sidecar, address) if self.is_encrypted else sidecar


def _has_marked(route: Route, definition: Definition) -> bool:
    """Return whether a version that was deleted had encrypted controls."""
    sidecar = route.definition.storage.sidecar(definition.address)
    return sidecar is not None and sidecar.metadata is not None and sidecar.metadata.encrypts


def _hash_place(address: DocumentAddress) -> tuple[str, ...]:
    """Where the client's hash of a resource belongs; no element has such a path."""
    return "", address.collection.value, address.name


def _is_marked(holder: str | None, marked: EncryptedControls | None) -> bool:
    """Whether the header of an attachment names a control that is marked, or an item of one (spec forms 4.2)."""
    if holder is None or marked is None:
        return False
    path = holder.strip().strip("/")
    return path in marked.holders or path.removesuffix(f"/{ITEM}") in marked.holders


def _head(source: Iterator[bytes], wants_more: Callable[[bytearray], bool]) -> bytes:
    """The beginning of a body: all of it, or as much as is wanted."""
    head = bytearray()
    for chunk in source:
        head += chunk
        if not wants_more(head):
            break
    return bytes(head)


def _may_be_framed(head: bytearray) -> bool:
    return len(head) <= frames.LONGEST_BEGINNING and frames.may_begin(head)


def _may_concern_us(data: bytes) -> bool:
    """Whether form data may say that something is encrypted, or name an attachment."""
    return may_mention((data,), MARKER_WORD) or PUBLIC_PREFIX.encode() in data


def _mentions_encryption(file: BinaryIO) -> bool:
    """Read an open content, and go back to its beginning. Raises ``OSError``."""
    mentions = may_mention(iter(partial(file.read, _CHUNK), b""), MARKER_WORD)
    file.seek(0)
    return mentions


def _opened(chunks: Iterable[bytes], header: FileHeader, ring: KeyRing) -> Iterator[bytes]:
    try:
        yield from frames.decrypted(chunks, header, ring)
    except DamagedError as error:
        raise BadRequestError("the body is an encrypted attachment, and not as it was written") from error


def _is_framed_for(file: BinaryIO, address: DocumentAddress, ring: KeyRing) -> bool:
    header = frames.read_header(file)
    return header is not None and header.address == address and header.key_id in ring.keys


def _published_anew(address: DocumentAddress) -> BusyError:
    return BusyError(f"the form of {address} was published anew while this was received: send it again")
