"""Decisions about a write by what one statement has found, however many definitions a form has."""

from __future__ import annotations

from pathlib import Path

import pytest

from persistence.limits import DEFINITIONS_FORESEEN
from persistence.model.addresses import FORM_XHTML, Address, Collection, DefinitionAddress, DocumentAddress, Form
from tests.postgresql.storages import storage_at
from tests.storage.contract import write

FORM = Form("hr", "leave")
DATA, DRAFT = (DocumentAddress(FORM, each, "D", "data.xml") for each in (Collection.DATA, Collection.DRAFT))


@pytest.mark.parametrize("versions", [0, 1, DEFINITIONS_FORESEEN, DEFINITIONS_FORESEEN + 1])
def test_a_decision_knows_what_is_stored_when_it_begins(storage_uri: str, tmp_path: Path, versions: int) -> None:
    storage = storage_at(storage_uri, tmp_path / "local")
    definitions = [DefinitionAddress(FORM, version + 1, FORM_XHTML) for version in range(versions)]
    for address in (DRAFT, *definitions):
        write(storage, address, "one")
    asked: list[Address] = [DATA, DRAFT, *definitions, DefinitionAddress(FORM, 99, FORM_XHTML)]
    stored = [(storage.sidecar(each), storage.fingerprint(each)) for each in asked]
    listed = list(storage.fingerprints(FORM))
    with storage.deciding(DATA):
        assert [(storage.sidecar(each), storage.fingerprint(each)) for each in asked] == stored
        assert (list(storage.fingerprints(FORM)), list(storage.versions(FORM))) == (listed, [at for at, _ in listed])
    write(storage, DATA, "two")
    with storage.deciding(DATA):
        assert storage.sidecar(DATA) is not None


def test_a_publication_is_seen_in_its_own_block(storage_uri: str, tmp_path: Path) -> None:
    storage, definition = storage_at(storage_uri, tmp_path / "local"), DefinitionAddress(FORM, 1, FORM_XHTML)
    write(storage, definition, "one")
    with storage.deciding(DATA):
        before = storage.fingerprint(definition)
    write(storage, definition, "two")
    with storage.deciding(DATA):
        assert storage.fingerprint(definition) != before
