"""References to bodies in an object store: the names of an attachment with a content id, and the key of both.

::

    <prefix>/<app>/<form>/(data|draft)/<document>/<attachment>/<content id>

So a person finds the bodies of a document, and each revision has an object of its own, which never changes. Apart from
``object_bodies``, because checks need it where the library of the object store is not installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self

import msgspec

from persistence.errors import BadAddressError, DamagedError, PersistenceError
from persistence.limits import ABANDONED_OBJECT_AFTER, LONGEST_KEY
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.network_addresses import Bucket
from persistence.model.sidecar import fresh_id
from persistence.storage import files
from persistence.storage.commit import abandoned
from persistence.storage.layout import BODIES, NAMES, Layout, unescape
from persistence.storage.locks import try_lock
from persistence.storage.storage import Revisions

if TYPE_CHECKING:
    from persistence.s3.object_bodies import ObjectBodies


_ID = re.compile(r"[0-9a-f]{40}")
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
        paths = NAMES.paths(self.address)
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
        return any(each.sidecar is None or each.sidecar.id == self.id for each in history.every())


def require_short(place: Bucket, reference: BodyReference) -> str:
    key = reference.key
    if len(place.prefix.encode()) + 1 + len(key.encode()) > LONGEST_KEY:
        raise BadAddressError(f"too long together for a key in {place}: {reference.address}")
    return key


# Notes of bodies in an object store whose records are being changed, in files of this machine.
#
# A note is written before an object is stored, or before a change leaves it without a record, and removed after the
# commit. A killed process leaves it: the sweep then looks whether a record names the object, and need not list objects.
class BodyNotes:
    """The notes of a machine, below a root. Methods raise ``OSError``."""

    def __init__(self, root: str) -> None:
        self._directory = Layout(root).own(BODIES)

    def note(self) -> BodyNote:
        path = f"{self._directory}/{fresh_id()}"
        try:
            descriptor = files.open_new(path)
        except FileNotFoundError:
            files.ensure(self._directory)
            descriptor = files.open_new(path)
        try_lock(descriptor)  # tells ``left`` that its process lives
        return BodyNote(path, descriptor)

    def left(self, age: float) -> Iterator[str]:
        """Yield the paths of the notes of dead processes that are older than so many seconds."""
        with suppress(FileNotFoundError):
            yield from abandoned(self._directory, age)


class BodyNote:
    """One note. It stays when it is only closed."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def add(self, place: Bucket, reference: BodyReference) -> None:
        files.write_all(self._descriptor, msgspec.json.encode(_Noted(str(place), reference.key)) + b"\n")

    def remove(self) -> None:
        files.remove_quietly(self._path)
        self.close()

    def close(self) -> None:
        """Leave the note to the sweep."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


MainOf = Callable[[Form], Revisions | None]
"""Returns the main storage of a form's data, if its attachments are in the place."""


def settle_notes(bodies: ObjectBodies, main_of: MainOf, age: float = ABANDONED_OBJECT_AFTER) -> int:
    """Remove the objects that notes name and no record does; return how many. Raises ``OSError`` too."""
    count, place = 0, str(bodies.place)
    for path in bodies.notes.left(age):
        with suppress(PersistenceError, FileNotFoundError):
            lines = files.read_file(path)
            references = list[BodyReference]()
            for line in lines.splitlines():  # the last one may break off
                with suppress(msgspec.DecodeError):
                    noted = msgspec.json.decode(line, type=_Noted)
                    reference = BodyReference.of_key(noted.key)
                    if noted.place == place and reference is not None:
                        references.append(reference)
            if lines.strip() and not references:
                continue  # of another place
            unnamed = [each.key for each in references if _is_unnamed(each, main_of)]
            bodies.objects.remove(unnamed)
            files.remove_quietly(path)
            count += len(unnamed)
    return count


def _is_unnamed(reference: BodyReference, main_of: MainOf) -> bool:
    main = main_of(reference.address.form)
    return main is not None and not reference.is_named(main)


def stray_objects(
    bodies: ObjectBodies, main_of: MainOf, below: str = "", age: float = ABANDONED_OBJECT_AFTER
) -> Iterator[tuple[str, BodyReference | None] | None]:
    """Yield key and reference of objects older than ``age`` seconds without a record, ``None`` for each other."""
    limit = datetime.now(UTC) - timedelta(seconds=age)
    for found in bodies.objects.listed(below):
        reference = BodyReference.of_key(found.key)
        is_stray = found.stored < limit and (reference is None or _is_unnamed(reference, main_of))
        yield (found.key, reference) if is_stray else None
