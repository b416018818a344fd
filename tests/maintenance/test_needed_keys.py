"""A service says when it starts that an encryption key is missing; commands do in ``golden/lost-keys.txt``."""

from __future__ import annotations

from pathlib import Path

from persistence.crypto import EncryptionKeys
from persistence.maintenance import records
from tests.encrypted_form import DEFINITION, data
from tests.service import V1, running


def test_a_service_without_its_key_says_so_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    file, lost = tmp_path / "encryption-keys.json", tmp_path / "lost.json"
    (tmp_path / "own.toml").write_text(f'encryption_keys = "{file}"\n')
    EncryptionKeys(str(file), trees=[str(tmp_path / "data")]).new()
    (key,) = EncryptionKeys(str(file), trees=[str(tmp_path / "data")]).ring().keys
    options = ("--config", str(tmp_path / "own.toml"))
    with running(tmp_path, options=options) as service:
        assert service.put("hr/leave/form/form.xhtml", DEFINITION, **V1).status == 201
        assert service.put("hr/leave/data/d/data.xml", data(), **V1).status == 201
    file.rename(lost)
    with running(tmp_path, options=options) as service:
        line = f"the encryption key {key} is not in {file}: nobody can read what is encrypted with it"
        assert line in service.log.read_text()
        assert service.raw("GET", "/readyz").body.decode() == f"ready, but {line}\n"
        lost.rename(file)
        assert service.raw("GET", "/readyz").body == b"ready\n"
        assert service.get("hr/leave/data/d/data.xml").status == 200


def test_a_note_that_cannot_be_written_costs_only_itself(tmp_path: Path) -> None:
    records.note(str(tmp_path / "none/at/all"), ["k"])
    (tmp_path / "file").write_text("")
    records.note(str(tmp_path / "file"), ["k"])
    assert records.needed(str(tmp_path / "file")) == frozenset()
