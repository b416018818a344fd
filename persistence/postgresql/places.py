"""The numbers of forms, and the key that leads to the revisions of an address."""

from __future__ import annotations

import hashlib
import threading
from typing import NamedTuple

from persistence.limits import FORMS_KEPT
from persistence.model.addresses import Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.postgresql.database import Database, Rows
from persistence.storage.layout import Layout

DATA, DRAFT, DEFINITION = range(3)
"""The kinds of resources, as rows have them."""

_LAYOUT = Layout("")
_FIND = "SELECT id FROM form WHERE app = %s AND name = %s"
_MAKE = "INSERT INTO form (app, name) VALUES (%s, %s) ON CONFLICT (app, name) DO NOTHING"


class ResourceKey(NamedTuple):
    """The key of a resource's revisions; ``folder`` is the id of a document, or a version."""

    form: int
    kind: int
    folder: str
    name: str


def kind_of(address: Address) -> int:
    if isinstance(address, DefinitionAddress):
        return DEFINITION
    return DRAFT if address.is_draft else DATA


def folder_of(address: Address) -> str:
    """Return the id of the document, or the version, that a resource belongs to."""
    return str(address.version) if isinstance(address, DefinitionAddress) else address.document


def key_of(form: int, address: Address) -> ResourceKey:
    return ResourceKey(form, kind_of(address), folder_of(address), address.name)


def check(address: Address) -> None:
    """Refuse names that a file tree cannot keep: what is here can be moved there."""
    _LAYOUT.paths(address)


def check_app(app: str) -> None:
    _LAYOUT.application(app)


def counterpart_of(address: Address) -> DocumentAddress | None:
    """Return the ``data.xml`` in the other collection, whose instant that of a save or of a draft comes after."""
    if not isinstance(address, DocumentAddress) or not (address.is_draft or address.is_main):
        return None
    return address.main.moved(Collection.DATA if address.is_draft else Collection.DRAFT)


def lock_key(schema: str, *scope: str) -> int:
    """Return the number of the lock of a scope. Scopes that share a number only wait for each other."""
    digest = hashlib.blake2b("\0".join((schema, *scope)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class FormNumbers:
    """The numbers of forms in a database, each made in a transaction of its own, and cached when that is committed.

    They are looked up again after each new connection: one that was not acknowledged may be another form's on the
    server that has taken over. So a statement that stores something checks the number again.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[Form, int] = {}
        self._generation = 0
        self._lock = threading.Lock()

    def find(self, form: Form) -> int | None:
        """Return the number of a form; ``None`` where nothing of it was ever stored."""
        known = self._known.get(form)
        if known is not None and self._generation == self._database.generation:
            return known
        _LAYOUT.form(form)
        with self._database.reading("looking for", form) as connection:
            return self._found(connection, form)

    def require(self, form: Form) -> int:
        """Return the number of a form, and give it one where it has none."""
        number = self.find(form)
        if number is not None:
            return number
        with self._database.apart("beginning", form) as connection:
            connection.execute(_MAKE, (form.app, form.name))
            made = self._found(connection, form)
        if made is None:
            raise LookupError(f"no number was made for {form}")
        return made

    def _found(self, connection: Rows, form: Form) -> int | None:
        generation = self._database.generation
        row = connection.execute(_FIND, (form.app, form.name)).fetchone()
        if row is None:
            return None
        number = int(row[0])
        with self._lock:
            if len(self._known) >= FORMS_KEPT or self._generation != generation:
                self._known.clear()
                self._generation = generation
            self._known[form] = number
        return number
