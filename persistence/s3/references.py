"""References to bodies in an object store: the names of an attachment with a content id, and the key of both.

::

    <prefix>/<app>/<form>/(data|draft)/<document>/<attachment>/<content id>

So a person finds the bodies of a document, and each revision has an object of its own, which never changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

import msgspec

from persistence.errors import BadAddressError, DamagedError
from persistence.limits import LONGEST_KEY
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.object_places import Bucket
from persistence.storage.layout import Layout, unescape
from persistence.storage.storage import Revisions

_ID = re.compile(r"[0-9a-f]{40}")
_NAMES = Layout("")
_LEVELS = 6


class _Noted(msgspec.Struct, array_like=True):
    place: str
    key: str


@dataclass(frozen=True, slots=True)
class BodyReference:
    """The revision of an attachment that has the content id ``id``."""

    address: DocumentAddress
    id: str

    @property
    def key(self) -> str:
        """The key of the body, below the prefix."""
        paths = _NAMES.paths(self.address)
        return f"{paths.directory}/{paths.name}/{self.id}".lstrip("/")

    @classmethod
    def of_key(cls, key: str) -> Self | None:
        """Return the reference with a key; ``None`` where it is not such a key."""
        names = key.split("/")
        if len(names) != _LEVELS or not _ID.fullmatch(names[-1]) or names[2] not in {each.value for each in Collection}:
            return None
        app, form, collection, document, name = map(unescape, names[:-1])
        found = cls(DocumentAddress(Form(app, form), Collection(collection), document, name), names[-1])
        try:
            return found if found.key == key else None
        except BadAddressError:
            return None

    def is_named(self, main: Revisions) -> bool:
        """Return whether a revision in the main storage has this body, or cannot be read."""
        try:
            current = main.sidecar(self.address)
            if current is not None and current.id == self.id:
                return True
            history = main.history(self.address)
        except DamagedError:
            return True
        found = () if history is None else history.page(0, history.total)
        return any(each.sidecar is None or each.sidecar.id == self.id for each in found)


def require_short(place: Bucket, reference: BodyReference) -> str:
    """Return the key of a reference below the prefix of a place."""
    key = reference.key
    if len(place.prefix.encode()) + 1 + len(key.encode()) > LONGEST_KEY:
        raise BadAddressError(f"too long together for a key in {place}: {reference.address}")
    return key


def encode_reference(place: Bucket, reference: BodyReference) -> bytes:
    """Return a line that notes a body."""
    return msgspec.json.encode(_Noted(str(place), reference.key)) + b"\n"


def decode_references(place: Bucket, lines: bytes) -> list[BodyReference]:
    """Return the references of a place in lines that may break off."""
    found = list[BodyReference]()
    for line in lines.splitlines():
        try:
            noted = msgspec.json.decode(line, type=_Noted)
        except msgspec.DecodeError:
            continue
        reference = BodyReference.of_key(noted.key)
        if noted.place == str(place) and reference is not None:
            found.append(reference)
    return found
