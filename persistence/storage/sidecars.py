"""Sidecars as bytes: small JSON in a stable order, readable and diffable, which show changes.

Each has a checksum of itself and the path of the content that it belongs to. A flipped bit in an owner would otherwise
change who may read a document, and a file that was moved between documents would be served as another's.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec

from persistence.errors import DamagedError
from persistence.limits import LARGEST_SMALL_FILE
from persistence.model.instants import epoch_nanoseconds
from persistence.model.sidecar import SCHEMA, Sidecar
from persistence.storage import nofollow

_LAST_YEAR = "9999"
_CHECKSUM = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
_SCHEMA_BEFORE = 1
"""The schema without checksum and address, which ``persistence upgrade`` reads."""


class ChangedSidecarError(DamagedError):
    """A sidecar that can be read, but was changed since it was written, or belongs to another content.

    ``sidecar`` is its content, ``cause`` is the last part of the text, and ``is_misplaced`` says that it is whole.
    """

    def __init__(self, path: str, cause: str, sidecar: Sidecar, *, is_misplaced: bool = False) -> None:
        super().__init__(f"the sidecar {last_names(path)} {cause}")
        self.sidecar = sidecar
        self.cause = cause
        self.is_misplaced = is_misplaced


class _CheckedSidecar(Sidecar, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """A sidecar as its file holds it.

    ``address`` is the path of the content below the root, also for an older revision. ``checksum`` is
    the SHA-256, in hex digits, of the compact JSON of everything before it.
    """

    address: str
    checksum: _CHECKSUM


class _SummedSidecar(_CheckedSidecar, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """The fields that the checksum is of: all but an ``encrypted`` that is false.

    Earlier services do not distinguish it from its absence: they compute this checksum, and accept the sidecar.
    """

    encrypted: bool = False


class _Schema(msgspec.Struct, frozen=True):
    schema: int


_summed_decoder = msgspec.json.Decoder(_SummedSidecar)
_decoder = msgspec.json.Decoder(Sidecar)
_schema_decoder = msgspec.json.Decoder(_Schema)
_encoder = msgspec.json.Encoder()
_FIELDS = Sidecar.__struct_fields__
_NO_CHECKSUM = "0" * 64
_TAIL = len(f',"checksum":"{_NO_CHECKSUM}"}}')


def encode(sidecar: Sidecar, address: str) -> bytes:
    """Return the file's content: one field a line, in the order of ``Sidecar``, then the address and the checksum."""
    fields = {name: getattr(sidecar, name) for name in _FIELDS} | {"schema": SCHEMA}
    summed = fields | {"encrypted": bool(sidecar.encrypted)}
    checksum = _checksum(_encoder.encode(_SummedSidecar(**summed, address=address, checksum=_NO_CHECKSUM)))
    checked = _CheckedSidecar(**fields, address=address, checksum=checksum)
    return msgspec.json.format(_encoder.encode(checked), indent=2) + b"\n"


def decode(data: bytes, path: str, address: str) -> Sidecar:
    """Read a sidecar of the content at ``address``; of ``path``, its own, the last names are for the message."""
    try:
        summed = _summed_decoder.decode(data)
        sidecar = _decoder.decode(data)
        _check_instants(sidecar)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: a day that is in no calendar
        raise _unreadable(data, path, error) from error
    if summed.schema != SCHEMA:
        raise _of_schema(summed.schema, path)
    if summed.checksum != _checksum(_encoder.encode(summed)):
        raise ChangedSidecarError(path, "was changed since it was written: it has not the checksum it says", sidecar)
    if summed.address != address:
        raise ChangedSidecarError(path, f"belongs to {summed.address}", sidecar, is_misplaced=True)
    return sidecar


def decode_before(data: bytes, path: str) -> Sidecar:
    """Read a sidecar of the schema before this one."""
    try:
        sidecar = _decoder.decode(data)
        _check_instants(sidecar)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DamagedError(f"the sidecar {last_names(path)} cannot be read: {error}") from error
    if sidecar.schema != _SCHEMA_BEFORE:
        raise _of_schema(sidecar.schema, path)
    return sidecar


def _checksum(compact: bytes) -> str:
    return hashlib.sha256(compact[:-_TAIL]).hexdigest()


def _check_instants(sidecar: Sidecar) -> None:
    epoch_nanoseconds(sidecar.modified)
    epoch_nanoseconds(sidecar.created)
    if sidecar.restored is not None:
        epoch_nanoseconds(sidecar.restored)
    if sidecar.modified.startswith(_LAST_YEAR):
        raise ValueError("nothing can come after the year 9999")


def _unreadable(data: bytes, path: str, error: Exception) -> DamagedError:
    try:
        schema = _schema_decoder.decode(data).schema
    except (msgspec.DecodeError, RecursionError):
        schema = SCHEMA
    if schema == _SCHEMA_BEFORE:
        try:
            before = decode_before(data, path)
        except DamagedError as worse:
            return worse
        return ChangedSidecarError(path, f"has schema {schema}: it is of a tree of an older format", before)
    if schema != SCHEMA:
        return _of_schema(schema, path)
    return DamagedError(f"the sidecar {last_names(path)} cannot be read: {error}")


def _of_schema(schema: int, path: str) -> DamagedError:
    whose = "a newer version of the service wrote it" if schema > SCHEMA else "it is of a tree of an older format"
    return DamagedError(f"the sidecar {last_names(path)} cannot be read: its schema is {schema}, not {SCHEMA}: {whose}")


def is_other_json(path: str) -> bool:
    """Return whether a file is JSON that was never a sidecar; raises ``OSError``."""
    with open(nofollow.open_file(path), "rb") as file:
        data = file.read(LARGEST_SMALL_FILE + 1)
    try:
        return len(data) <= LARGEST_SMALL_FILE and "schema" not in msgspec.json.decode(
            data, type=dict[str, msgspec.Raw]
        )
    except msgspec.ValidationError:
        return True  # a list, or a text
    except (msgspec.DecodeError, RecursionError):
        return False


def last_names(path: str) -> str:
    """Return the end of a path: enough to find the file below the root, without saying where the root is."""
    return "/".join(path.rsplit("/", 5)[1:])
