"""Sidecars as bytes: small JSON in a stable order, readable and diffable."""

from __future__ import annotations

import msgspec

from persistence.errors import DamagedError
from persistence.model.instants import epoch_seconds
from persistence.model.sidecar import SCHEMA, Sidecar

_LAST_YEAR = "9999"
_LARGEST = 1 << 20
_decoder = msgspec.json.Decoder(Sidecar)


def encode(sidecar: Sidecar) -> bytes:
    """The file's content: one field a line, in the order of ``Sidecar``."""
    return msgspec.json.format(msgspec.json.encode(sidecar), indent=2) + b"\n"


def decode(data: bytes, path: str) -> Sidecar:
    """Read a sidecar; of ``path`` the last names are for the message, because the first are nobody's business.

    Raises:
        DamagedError: the bytes are no sidecar of a known schema. Damage is never taken for absence.
    """
    try:
        sidecar = _decoder.decode(data)
        epoch_seconds(sidecar.modified)
        epoch_seconds(sidecar.created)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: a day that is in no calendar
        raise DamagedError(f"the sidecar {last_names(path)} cannot be read: {error}") from error
    if sidecar.modified.startswith(_LAST_YEAR):
        raise DamagedError(f"the sidecar {last_names(path)} cannot be read: nothing can come after the year 9999")
    if sidecar.schema != SCHEMA:
        raise DamagedError(f"the sidecar {last_names(path)} has schema {sidecar.schema}; this service knows {SCHEMA}")
    return sidecar


def is_other_json(path: str) -> bool:
    """Whether a file is JSON that was never a sidecar; raises ``OSError``."""
    with open(path, "rb") as file:
        data = file.read(_LARGEST + 1)
    try:
        return len(data) <= _LARGEST and "schema" not in msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return True  # a list, or a text
    except (msgspec.DecodeError, RecursionError):
        return False


def last_names(path: str) -> str:
    """The end of a path: enough to find the file below the root, without saying where the root is."""
    return "/".join(path.rsplit("/", 5)[1:])
