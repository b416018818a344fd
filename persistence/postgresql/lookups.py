"""The current sidecars that a decision about an address asks for, found by one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from persistence.errors import DamagedError
from persistence.limits import DEFINITIONS_FORESEEN
from persistence.model.addresses import FORM_XHTML, Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.sidecar import Sidecar
from persistence.postgresql.places import DATA, DEFINITION, DRAFT, folder_of

_decoder = msgspec.json.Decoder(Sidecar)

_OF_DOCUMENT = f"""
SELECT kind, folder, name, id, sidecar FROM revision
WHERE form = %s AND kind = 0 AND folder = %s AND name IN (%s, %s) AND is_current
UNION ALL SELECT kind, folder, name, id, sidecar FROM revision
WHERE form = %s AND kind = 1 AND folder = %s AND is_current
UNION ALL (
    SELECT kind, folder, name, id, CASE name WHEN '{FORM_XHTML}' THEN sidecar END FROM revision
    WHERE form = %s AND kind = 2 AND is_current LIMIT {DEFINITIONS_FORESEEN + 1}
)
"""
_OF_DEFINITION = """
SELECT kind, folder, name, id, sidecar FROM revision
WHERE form = %s AND kind = 2 AND folder = %s AND name IN (%s, %s) AND is_current
"""

LookupRow = tuple[int, str, str, str, bytes | None]
"""Kind, folder, name, content id and sidecar."""


class _FormXhtml(NamedTuple):
    id: str
    sidecar: bytes


def select_sidecars(number: int, address: Address) -> tuple[str, tuple[object, ...]]:
    """Return the statement and parameters that find the current sidecars of an address and its main one.

    For a document, also those of its whole draft, and the definitions of its form, if they are few.
    """
    folder = folder_of(address)
    values = (number, folder, address.main.name, address.name)
    if isinstance(address, DefinitionAddress):
        return _OF_DEFINITION, values
    return _OF_DOCUMENT, (*values, number, folder, number)


def decoded(data: bytes, address: object) -> Sidecar:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DamagedError(f"the sidecar of {address} cannot be read: {error}") from error


class Lookup:
    """The current sidecars that were found, and the definitions of forms, while they decide something.

    ``drafts`` are the documents whose whole draft is known.
    """

    def __init__(self) -> None:
        self.sidecars: dict[Address, Sidecar | None] = {}
        self.drafts = set[tuple[Form, str]]()
        self._definitions: dict[Form, dict[int, _FormXhtml | None]] = {}

    def add(self, address: Address, rows: Sequence[LookupRow]) -> None:
        """Know what ``select_sidecars`` has found, and that there is nothing else."""
        if isinstance(address, DocumentAddress):
            definitions = [row for row in rows if row[0] == DEFINITION]
            rows = [row for row in rows if row[0] != DEFINITION]
            self.drafts.add((address.form, address.document))
            if len(definitions) <= DEFINITIONS_FORESEEN:
                self._definitions[address.form] = dict.fromkeys((int(row[1]) for row in definitions), None) | {
                    int(folder): _FormXhtml(content, data)
                    for _, folder, _, content, data in definitions
                    if data is not None
                }
        found: dict[Address, bytes | None]
        asked: list[Address]
        if isinstance(address, DefinitionAddress):
            found = {DefinitionAddress(address.form, address.version, row[2]): row[4] for row in rows}
            asked = [address, address.main]
        else:
            collections = {DATA: Collection.DATA, DRAFT: Collection.DRAFT}
            found = {address.moved(collections[kind], name): data for kind, _, name, _, data in rows}
            asked = [each.moved(collection) for collection in Collection for each in (address, address.main)]
        for each in {*asked, *found}:
            data = found.get(each)
            self.sidecars[each] = None if data is None else decoded(data, each)

    def sidecar(self, address: Address) -> tuple[Sidecar | None] | None:
        """Return a tuple of the current sidecar; ``None`` where it was not looked up."""
        if address not in self.sidecars:
            if not isinstance(address, DefinitionAddress) or not address.is_main or self._unknown(address):
                return None
            row = self._definitions[address.form].get(address.version)
            self.sidecars[address] = None if row is None else decoded(row.sidecar, address)
        return (self.sidecars[address],)

    def content_id(self, address: Address) -> tuple[str | None] | None:
        """Return a tuple of the content id of a ``form.xhtml``; ``None`` where it was not looked up."""
        if not isinstance(address, DefinitionAddress) or not address.is_main or self._unknown(address):
            return None
        row = self._definitions[address.form].get(address.version)
        return (None if row is None else row.id,)

    def versions(self, form: Form) -> list[tuple[int, str | None]] | None:
        """Return the known versions of a form, highest first, each with its content id."""
        found = self._definitions.get(form)
        if found is None:
            return None
        return sorted(((version, None if row is None else row.id) for version, row in found.items()), reverse=True)

    def note(self, address: Address, sidecar: Sidecar | None) -> None:
        """Record the sidecar that is current now."""
        self.sidecars[address] = sidecar
        if isinstance(address, DefinitionAddress):
            self._definitions.pop(address.form, None)

    def _unknown(self, address: DefinitionAddress) -> bool:
        return address.form not in self._definitions
