"""Contents on their way in and out: received, checked, encrypted at rest and decrypted (spec forms 4)."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import chain
from operator import or_
from typing import BinaryIO, cast

import msgspec

from persistence import crypto, errors, limits
from persistence.bounded_cache import BoundedCache
from persistence.catalog import NOTHING_ENCRYPTED, Definition, EncryptedControls
from persistence.crypto import DataCipher, EncryptionKeys, FileHeader, PlainFile, ValueCipher
from persistence.dialect import Dialect
from persistence.forms.controls import UnusableMark, unusable_marks
from persistence.forms.definition_metadata import MetadataReader
from persistence.forms.encryption import ValueDecrypter, ValueEncrypter
from persistence.forms.form_data import ITEM, MARKER_WORD
from persistence.model.addresses import PUBLIC_PREFIX, Address, AttachmentRef, DefinitionAddress, DocumentAddress, Form
from persistence.model.sidecar import ClientHash, Sidecar
from persistence.model.versions import Place
from persistence.providers.router import Router
from persistence.services.rules import Get, Read, Received, living
from persistence.storage.commit import Upload
from persistence.storage.storage import RevisionStorage
from persistence.storage.stored_revision import StoredRevision
from persistence.xml import Streaming, WordWatch, XmlCheck, may_mention

Path = tuple[str, ...]  # The names that lead to an element, from below the root element


# Definitions and the designer's storage are never encrypted.


@dataclass(frozen=True, slots=True)
class EncryptionAtRest:
    """Decides what to encrypt (spec forms 4), finds out what is encrypted, and decrypts it."""

    router: Router
    dialect: Dialect
    keys: EncryptionKeys

    def to_encrypt(
        self, address: DocumentAddress, definition: Definition, over: StoredRevision | None
    ) -> EncryptedControls | None:
        """Return the controls whose values will be encrypted in a content that replaces a revision."""
        # For a version that was never published, these are the encrypted controls of all published ones.
        encrypted = definition.encrypted
        if encrypted is not None:
            return encrypted
        stored = living(over)
        if stored is not None and stored.sidecar.encrypted:
            raise errors.ConfigurationError(
                f"{address} is encrypted, and the definition of version {definition.version}, with its encrypted"
                " controls, is gone"
            )
        form = definition.form
        route = self.router.of(form)
        every = [route.catalog.of(form, number) for number in route.definition.storage.versions(form)]
        published = [encrypted for each in every if (encrypted := each.encrypted) is not None]
        for each in (definition,) if published else every:
            sidecar = route.definition.storage.sidecar(each.address)
            if sidecar is not None and sidecar.metadata is not None and sidecar.metadata.encrypts:
                raise errors.ConfigurationError(
                    f"the definition of version {definition.version} of {form}, with its encrypted controls, is gone"
                )
        return reduce(or_, published) if published else None

    def is_encrypted(self, held: AttachmentRef, is_labelled: bool) -> bool:  # noqa: FBT001 - as ``IsEncrypted`` has it
        """Return whether an attachment is stored encrypted; its holder decides only where it is not known here."""
        # The sidecar of a file that a proxy has encrypted does not say so, but the file does.
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
        except (errors.BadAddressError, errors.ConfigurationError, errors.DamagedError):
            return is_labelled

    def plain_file(self, found: StoredRevision, address: DocumentAddress) -> PlainFile | None:
        """Return the plain content of an open attachment; ``None`` where it is not encrypted."""
        # A file that was stored by a proxy is recognized by its header, or, if of the real system, by its password.
        file, size, ring = found.opened, found.size, self.keys.ring()
        header = None if found.sidecar.encrypted else crypto.read_header(file)
        is_framed = header is not None and header.address == address and header.key_id in ring.keys
        if found.sidecar.encrypted or is_framed:
            return crypto.open_file(file, size, address, ring)
        plain = crypto.open_legacy_file(file, size, ring)
        if plain is None:
            file.seek(0)
        return plain

    def require_kept(self, key_id: str | None, address: DocumentAddress) -> None:
        """Refuse a content if the key with which it was encrypted was retired since."""
        if key_id not in self.keys.ring().keys:
            raise errors.BusyError(
                f"the key that {address} was encrypted with was retired while it was received: send it again"
            )

    def finds_values(self, form: Form) -> bool:
        return self.router.of(form).properties.finds_encrypted

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
        except errors.MalformedXmlError as error:
            raise errors.DamagedError(f"{address} cannot be decrypted: {error}") from error
        if must_have and not values.count:
            raise errors.DamagedError(f"{address} has no encrypted value, but its sidecar says that it has")

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
        except (errors.ConfigurationError, errors.DamagedError, msgspec.DecodeError):
            return sidecar


def _hash_place(address: DocumentAddress) -> Place:
    return ("", 1), (address.collection.value, 1), (address.name, 1)


XML = "application/xml"
XHTML = "application/xhtml+xml"
UNKNOWN = "application/octet-stream"

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE = re.compile(rf"({_WORD}/{_WORD})[ \t]*(?:;[\x20-\x7e\t]*)?", re.ASCII)


@contextmanager
def receiving(
    store: RevisionStorage,
    address: Address,
    content_type: str | None,
    chunks: Iterable[bytes],
    checking: Streaming | None = None,
) -> Iterator[tuple[Upload, Received]]:
    """Receive the whole body as an upload, for the length of a block; without a commit it is gone at the end."""
    # ``checking`` is the parser for form data, which also reads the values that an index needs.
    sent = content_type or ""
    kind = sent.strip() or UNKNOWN
    if address.is_main:  # XML resources are XML, even if another type is sent (spec crud 4.5)
        is_xhtml = isinstance(address, DefinitionAddress) and kind.partition(";")[0].strip().lower() == XHTML
        kind = XHTML if is_xhtml else XML
    elif sent.strip() and (len(sent) > limits.LONGEST_TEXT or not _MEDIA_TYPE.fullmatch(kind)):
        raise errors.BadRequestError(f"the content type is not a media type: {sent!r}")
    is_main = address.is_main
    reader = definition_reader(address)
    check = reader or checking or (XmlCheck() if is_main else None)
    watch = WordWatch(MARKER_WORD) if is_main and reader is None else None
    with store.upload(address) as upload, check or nullcontext():
        for chunk in chunks:
            try:
                upload.write(chunk)
            except OSError as error:
                raise errors.as_disk_error(error, "receiving", address) from error
            if watch is not None:
                watch.feed(chunk)
            if check is not None:
                check.feed(chunk)
        if check is not None:
            check.finish()
            check.keep(upload.id)
        metadata = None if reader is None else reader.metadata
        try:
            upload.flush()
        except OSError as error:
            raise errors.as_disk_error(error, "receiving", address) from error
        is_plain = watch is not None and not watch.may_be_there
        has_marks = reader is not None and reader.has_marks
        yield upload, Received(upload.id, upload.size, upload.digest, kind, metadata, is_plain, has_marks)


def marks_without_effect(upload: Upload, received: Received) -> tuple[UnusableMark, ...]:
    """Return the marks of a received definition that have no effect; none of other contents."""
    if not received.has_marks:
        return ()
    with errors.disk_errors("receiving"), upload.opened() as file:
        return unusable_marks(file.read(limits.LARGEST_TREE + 1), is_checked=True)


def definition_reader(address: Address) -> MetadataReader | None:
    """Return the parser that checks a ``form.xhtml`` and reads its metadata; ``None`` for other resources."""
    return MetadataReader(is_checked=True) if isinstance(address, DefinitionAddress) and address.is_main else None


def type_by_name(address: Address) -> str:
    if address.is_main:
        return XHTML if isinstance(address, DefinitionAddress) else XML
    return mimetypes.guess_type(address.name)[0] or UNKNOWN


# The codec between the bytes that a client sees and those that are stored.
#
# That of the public interface encrypts and decrypts encrypted controls, as the proxy of a form runtime does (spec forms
# 4).


@dataclass(frozen=True, slots=True)
class ReceivedContent:
    """A content as it is received; ``holder`` is as in ``Put``, and ``may_read`` is about another resource."""

    address: DocumentAddress
    definition: Definition
    over: StoredRevision | None
    holder: str | None
    may_read: Callable[[DocumentAddress], bool]
    chunks: Iterable[bytes]

    def described(self, sidecar: Sidecar, over: StoredRevision | None, definition: Definition) -> Sidecar:
        """Return the sidecar with the facts about the bytes, by the definition that is current under the lock."""
        del over, definition
        return sidecar


class Codec:
    """Stores and shows bytes as they are, which is the duty of a provider behind a proxy (spec crud 9, 11)."""

    def encode(self, content: ReceivedContent) -> EncodedContent:
        return content

    def needs_content(self, address: DocumentAddress, get: Get) -> bool:
        """Return whether a HEAD needs the content too."""
        del address, get
        return False

    def decode(self, read: Read, address: DocumentAddress, get: Get) -> Read:
        """Return the answer to a client for a revision; its open content is taken over."""
        del address, get
        return read


AS_STORED = Codec()


@dataclass(frozen=True, slots=True)
class EncryptionCodec(Codec):
    """Encrypts content that is stored, and decrypts content that is answered."""

    at_rest: EncryptionAtRest
    _mentions: BoundedCache[bool] = field(
        default_factory=lambda: BoundedCache(limits.LOOKED_AT, limits.LOOKED_AT_BYTES), init=False
    )

    def encode(self, content: ReceivedContent) -> EncodedContent:
        """Return a content in which the encrypted controls of the version's definition are encrypted."""
        # An attachment as it is stored at another address is encrypted for its new one (spec forms 4.3).
        address = content.address
        if self.at_rest.dialect.is_designer(address.form):
            return content
        controls = self.at_rest.to_encrypt(address, content.definition, content.over)
        if address.is_main:
            return _EncryptedData(self.at_rest, content, controls)
        is_encrypted_control = _is_encrypted_control(content.holder, controls)
        if is_encrypted_control:
            self.at_rest.keys.ring().to_write()
        return _EncryptedAttachment(self.at_rest, content, is_encrypted_control)

    def needs_content(self, address: DocumentAddress, get: Get) -> bool:
        """Return whether only the content may tell how long it is decrypted."""
        return (address.is_main or get.decrypt) and not self.at_rest.dialect.is_designer(address.form)

    def decode(self, read: Read, address: DocumentAddress, get: Get) -> Read:
        """Return form data decrypted, and an attachment if that is asked for (spec forms 4.3)."""
        found = read.found
        if self.at_rest.dialect.is_designer(address.form):
            return read
        try:
            if found.sidecar.sealed_hash is not None:
                found = replace(found, sidecar=self.at_rest.with_hash(found.sidecar, address))
                read = replace(read, found=found)
            file = found.file
            if file is None:
                return read
            if not address.is_main:
                plain = self.at_rest.plain_file(found, address) if get.decrypt else None
                if plain is None:
                    return read
                found = replace(found, size=plain.size, file=cast("BinaryIO", plain))
                return replace(read, found=found, is_decrypted=True)
            # Read once in each process where the sidecar does not say it, such as one of an older service.
            with errors.disk_errors("reading", address):
                if found.is_edited:
                    has_encrypted = _mentions_encryption(file)
                elif found.sidecar.encrypted is not None:
                    has_encrypted = found.sidecar.encrypted
                else:
                    has_encrypted = self._mentions.get(found.sidecar.id, partial(_mentions_encryption, file))
            # An adopted edit by hand may have none.
            must_have = bool(found.sidecar.encrypted) and not found.sidecar.adopted
            decryption = partial(self.at_rest.decrypted, address, must_have=must_have)
            return replace(read, decryption=decryption) if has_encrypted else read
        except Exception:
            found.close()
            raise


class _EncryptedData:
    """Form data with its encrypted controls encrypted; a key is looked up at the first value that needs one."""

    def __init__(self, at_rest: EncryptionAtRest, content: ReceivedContent, controls: EncryptedControls | None) -> None:
        self._at_rest = at_rest
        self._content = content
        self._controls = controls
        self._wanted = controls or NOTHING_ENCRYPTED
        self._values = self._holders = 0

    @property
    def chunks(self) -> Iterator[bytes]:
        paths = self._wanted.paths
        source, head = iter(self._content.chunks), bytearray()
        if not paths:
            for chunk in source:
                head += chunk
                if len(head) > limits.SEARCHED_AT_ONCE:
                    break
            else:
                watch = WordWatch(MARKER_WORD)
                watch.feed(bytes(head))
                if not (watch.may_be_there or PUBLIC_PREFIX.encode() in head):
                    yield bytes(head)  # as most data: nothing in it will be changed
                    return
        with ValueEncrypter(
            paths, self._wanted.values, self._encrypt, self._encrypting.seal, self._is_encrypted
        ) as sealing:
            yield from sealing.edited(chain((bytes(head),), source))

    def described(self, sidecar: Sidecar, over: StoredRevision | None, definition: Definition) -> Sidecar:
        address = self._content.address
        is_same = definition is self._content.definition and self._controls is not None
        if not is_same and self._at_rest.to_encrypt(address, definition, over) != self._controls:
            raise _published_meanwhile(address)
        if not self._values:
            return sidecar
        self._at_rest.require_kept(self._cipher.writing, address)
        return self._at_rest.as_encrypted(sidecar, address)

    @cached_property
    def _cipher(self) -> ValueCipher:
        return self._at_rest.cipher(self._content.address)

    @cached_property
    def _encrypting(self) -> DataCipher:
        indexed = self._wanted.indexed if self._at_rest.finds_values(self._content.address.form) else frozenset()
        return DataCipher(self._cipher, indexed)

    def _encrypt(self, text: str, place: Place) -> tuple[str, str | None]:
        self._values += 1
        if self._values > limits.MOST_ENCRYPTED:
            raise errors.BodyTooLargeError(f"the form data has more than {limits.MOST_ENCRYPTED} values to encrypt")
        return self._encrypting.encrypt(text, place)

    def _is_encrypted(self, held: AttachmentRef, is_labelled: bool) -> bool:  # noqa: FBT001 - as ``IsEncrypted`` has it
        self._holders += 1
        if self._holders > limits.MOST_HOLDERS:
            raise errors.BadRequestError(f"the form data names more than {limits.MOST_HOLDERS} attachments")
        return self._at_rest.is_encrypted(held, is_labelled)


@dataclass(slots=True)
class _EncryptedAttachment:
    """An attachment, encrypted if it must be; ``is_encrypted`` and ``key_id`` are set when its chunks are read."""

    at_rest: EncryptionAtRest
    content: ReceivedContent
    is_encrypted_control: bool
    is_encrypted: bool = False
    key_id: str | None = None

    @property
    def chunks(self) -> Iterable[bytes]:
        source, begin = iter(self.content.chunks), bytearray()
        for chunk in source:
            begin += chunk
            if len(begin) > crypto.LONGEST_BEGINNING or not crypto.may_begin(begin):
                break
        head = bytes(begin)
        header = crypto.authentic_header(head, self.at_rest.keys.ring()) if crypto.may_begin(head) else None
        if header is None:
            plain: Iterable[bytes] = chain((head,), source)
        elif self.content.may_read(header.address):
            plain = self._decrypted(chain((head[len(header.raw) :],), source), header)
        else:
            raise errors.ForbiddenError("the body is an encrypted attachment of a document that you may not read")
        self.is_encrypted = self.is_encrypted_control or header is not None
        if self.is_encrypted:
            ring = self.at_rest.keys.ring()
            self.key_id = ring.writing
            return crypto.encrypted(plain, self.content.address, ring)
        return plain

    def described(self, sidecar: Sidecar, over: StoredRevision | None, definition: Definition) -> Sidecar:
        address = self.content.address
        controls = self.at_rest.to_encrypt(address, definition, over)
        if _is_encrypted_control(self.content.holder, controls) is not self.is_encrypted_control:
            raise _published_meanwhile(address)
        if not self.is_encrypted:
            return sidecar
        self.at_rest.require_kept(self.key_id, address)
        return self.at_rest.as_encrypted(sidecar, address)

    def _decrypted(self, chunks: Iterable[bytes], header: FileHeader) -> Iterator[bytes]:
        try:
            yield from crypto.decrypted(chunks, header, self.at_rest.keys.ring())
        except errors.DamagedError as error:
            raise errors.BadRequestError("the body is an encrypted attachment that was changed") from error


EncodedContent = ReceivedContent | _EncryptedData | _EncryptedAttachment
"""A content on its way in, as it will be stored; its chunks are read once."""


def _is_encrypted_control(holder: str | None, controls: EncryptedControls | None) -> bool:
    """Return whether the header of an attachment names an encrypted control, or an item of one (spec forms 4.2)."""
    if holder is None or controls is None:
        return False
    path = tuple(holder.strip().strip("/").split("/"))
    return path in controls.paths or (path[-1] == ITEM and path[:-1] in controls.paths)


def _mentions_encryption(file: BinaryIO) -> bool:
    mentions = may_mention(iter(partial(file.read, limits.CHUNK), b""), MARKER_WORD)
    file.seek(0)
    return mentions


def _published_meanwhile(address: DocumentAddress) -> errors.BusyError:
    return errors.BusyError(f"the form of {address} was published again while this was received: send it again")
