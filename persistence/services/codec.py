"""The codec between the bytes that a client sees and those that are stored.

That of the public interface encrypts and decrypts encrypted controls, as the proxy of a form runtime does (spec forms
4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import BinaryIO, Protocol, cast

from persistence.bounded_cache import BoundedCache
from persistence.crypto import frames
from persistence.crypto.frames import FileHeader
from persistence.crypto.value_cipher import DataCipher, ValueCipher
from persistence.definitions.catalog import Definition
from persistence.definitions.contents import NOTHING_ENCRYPTED, EncryptedControls
from persistence.errors import BadRequestError, BodyTooLargeError, BusyError, DamagedError, ForbiddenError, disk_errors
from persistence.forms.encryption import ValueEncrypter
from persistence.forms.form_data import ITEM, MARKER_WORD
from persistence.limits import CHUNK, LOOKED_AT, LOOKED_AT_BYTES, MOST_ENCRYPTED, MOST_HOLDERS, SEARCHED_AT_ONCE
from persistence.model.addresses import PUBLIC_PREFIX, AttachmentRef, DocumentAddress
from persistence.model.sidecar import Sidecar
from persistence.model.versions import Place
from persistence.services.encryption_at_rest import EncryptionAtRest
from persistence.services.rules import Get, Read
from persistence.storage.stored_revision import StoredRevision
from persistence.xml.markup import WordWatch, may_mention


class EncodedContent(Protocol):
    """A content on its way in, as it will be stored."""

    @property
    def chunks(self) -> Iterable[bytes]:
        """The bytes, which are read once."""

    def described(self, sidecar: Sidecar, over: StoredRevision | None, definition: Definition) -> Sidecar:
        """Return the sidecar with the facts about the bytes, by the definition that is current under the lock.

        Raises:
            BusyError: the definition or the key was replaced since the bytes were encrypted.
        """


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
        """Return the sidecar as it is."""
        del over, definition
        return sidecar


class Codec:
    """Stores and shows bytes as they are, which is the duty of a provider behind a proxy (spec crud 9, 11)."""

    def encode(self, content: ReceivedContent) -> EncodedContent:
        """Return the bytes to store of a content."""
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
    _mentions: BoundedCache[bool] = field(default_factory=lambda: BoundedCache(LOOKED_AT, LOOKED_AT_BYTES), init=False)

    def encode(self, content: ReceivedContent) -> EncodedContent:
        """Return a content in which the encrypted controls of the version's definition are encrypted.

        An attachment that is received as it is stored at another address is encrypted for its new one (spec forms 4.3).
        """
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
        if address.is_main and found.sidecar.encrypted is False and not found.is_edited:
            return read  # nothing in it is encrypted: that was noted when it was stored
        if self.at_rest.dialect.is_designer(address.form):
            return read
        try:
            if found.sidecar.sealed_hash is not None:
                found = replace(found, sidecar=self.at_rest.with_hash(found.sidecar, address))
                read = replace(read, found=found)
            if found.file is None:
                return read
            if not address.is_main:
                return self._decoded_attachment(read, address) if get.decrypt else read
            with disk_errors("reading", address):
                has_encrypted = self._may_have_encrypted(found, found.file)
            # An adopted edit by hand may have none.
            must_have = bool(found.sidecar.encrypted) and not found.sidecar.adopted
            decryption = partial(self.at_rest.decrypted, address, must_have=must_have)
            return replace(read, decryption=decryption) if has_encrypted else read
        except Exception:
            found.close()
            raise

    def _may_have_encrypted(self, found: StoredRevision, file: BinaryIO) -> bool:
        """Return whether a value in form data may be encrypted. Raises ``OSError``.

        The content is read once in each process where the sidecar does not say it, such as one of an older service.
        """
        if found.is_edited:
            return _mentions_encryption(file)
        if found.sidecar.encrypted is not None:
            return found.sidecar.encrypted
        return self._mentions.get(found.sidecar.id, lambda: _mentions_encryption(file))

    def _decoded_attachment(self, read: Read, address: DocumentAddress) -> Read:
        plain = self.at_rest.plain_file(read.found, address)
        if plain is None:
            return read
        found = replace(read.found, size=plain.size, file=cast("BinaryIO", plain))
        return replace(read, found=found, is_decrypted=True)


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
                if len(head) > SEARCHED_AT_ONCE:
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
        return DataCipher(self._cipher)

    def _encrypt(self, text: str, place: Place) -> str:
        self._values += 1
        if self._values > MOST_ENCRYPTED:
            raise BodyTooLargeError(f"the form data has more than {MOST_ENCRYPTED} values to encrypt")
        return self._encrypting.encrypt(text, place)

    def _is_encrypted(self, held: AttachmentRef, is_labelled: bool) -> bool:  # noqa: FBT001 - as ``IsEncrypted`` has it
        self._holders += 1
        if self._holders > MOST_HOLDERS:
            raise BadRequestError(f"the form data names more than {MOST_HOLDERS} attachments")
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
            if len(begin) > frames.LONGEST_BEGINNING or not frames.may_begin(begin):
                break
        head = bytes(begin)
        header = frames.authentic_header(head, self.at_rest.keys.ring()) if frames.may_begin(head) else None
        if header is None:
            plain: Iterable[bytes] = chain((head,), source)
        elif self.content.may_read(header.address):
            plain = self._decrypted(chain((head[len(header.raw) :],), source), header)
        else:
            raise ForbiddenError("the body is an encrypted attachment of a document that you may not read")
        self.is_encrypted = self.is_encrypted_control or header is not None
        if self.is_encrypted:
            ring = self.at_rest.keys.ring()
            self.key_id = ring.writing
            return frames.encrypted(plain, self.content.address, ring)
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
            yield from frames.decrypted(chunks, header, self.at_rest.keys.ring())
        except DamagedError as error:
            raise BadRequestError("the body is an encrypted attachment that was changed") from error


def _is_encrypted_control(holder: str | None, controls: EncryptedControls | None) -> bool:
    """Return whether the header of an attachment names an encrypted control, or an item of one (spec forms 4.2)."""
    if holder is None or controls is None:
        return False
    path = tuple(holder.strip().strip("/").split("/"))
    return path in controls.paths or (path[-1] == ITEM and path[:-1] in controls.paths)


def _mentions_encryption(file: BinaryIO) -> bool:
    mentions = may_mention(iter(partial(file.read, CHUNK), b""), MARKER_WORD)
    file.seek(0)
    return mentions


def _published_meanwhile(address: DocumentAddress) -> BusyError:
    return BusyError(f"the form of {address} was published again while this was received: send it again")
