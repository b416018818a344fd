"""Encryption keys that are needed and missing: everything that looks after the service says so, and which."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persistence.cli import commands
from persistence.crypto.encryption_keys import EncryptionKeys
from persistence.maintenance import records
from tests.encrypted_form import DEFINITION, data
from tests.service import Service, running

V1 = {"Form_Definition_Version": 1}


class Vault:
    """A directory of a service whose form has encrypted controls, and whose keys can be lost."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "var/encryption-keys.json"
        self.config = directory / "settings.toml"
        self.config.write_text('data = "data"\nlocal = "local"\nencryption_keys = "var/encryption-keys.json"\n')
        assert self.run("init", "--data", str(directory / "data"), config=False).exit_code == 0
        assert self.run("encryption-key", "new").exit_code == 0
        (self.key,) = EncryptionKeys(str(self.file), trees=[str(directory / "data")]).ring().keys

    def run(self, *arguments: str, config: bool = True) -> Result:
        own = ["--config", str(self.config)] if config else []
        return CliRunner().invoke(commands, [*arguments, *own])

    @contextmanager
    def serving(self) -> Iterator[Service]:
        with running(self.directory, options=("--config", str(self.config))) as service:
            yield service

    def fill(self) -> None:
        with self.serving() as service:
            assert service.put("hr/leave/form/form.xhtml", DEFINITION, **V1).status == 201
            assert service.put("hr/leave/data/d/data.xml", data("4.0.0"), **V1).status == 201

    @property
    def line(self) -> str:
        return f"the encryption key {self.key} is not in {self.file}: nobody can read what is encrypted with it"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    vault.fill()
    return vault


def said(done: Result) -> str:
    return " ".join(f"{done.output} {done.exception}".split())


def test_with_its_keys_nothing_is_said(vault: Vault) -> None:
    done = vault.run("check", "--deep")
    assert (done.exit_code, "encryption key" in said(done)) == (0, False)
    with vault.serving() as service:
        assert service.raw("GET", "/readyz").body == b"ready\n"
        assert b"persistence_encryption_keys_missing 0.0" in service.raw("GET", "/metrics").body


def test_a_service_without_its_key_says_so_everywhere(vault: Vault) -> None:
    vault.file.rename(vault.directory / "lost.json")
    done = vault.run("check")
    assert (done.exit_code, f"key-missing: {vault.line}" in said(done)) == (4, True)
    assert vault.line in vault.run("reencrypt", "--dry-run").stderr
    with vault.serving() as service:
        assert vault.line in service.log.read_text()
        ready = service.raw("GET", "/readyz")
        assert (ready.status, ready.body.decode()) == (200, f"ready, but {vault.line}\n")
        assert b"persistence_encryption_keys_missing 1.0" in service.raw("GET", "/metrics").body
        (vault.directory / "lost.json").rename(vault.file)
        assert service.raw("GET", "/readyz").body == b"ready\n"
        assert service.get("hr/leave/data/d/data.xml").status == 200


def test_a_new_key_in_place_of_a_missing_one_wants_a_yes(vault: Vault) -> None:
    vault.file.rename(vault.directory / "lost.json")
    done = vault.run("encryption-key", "new")
    assert (done.exit_code, vault.line in said(done), vault.file.exists()) == (1, True, False)
    assert vault.run("encryption-key", "new", "--yes").exit_code == 0
    assert vault.line in said(vault.run("check")), "another key is not the one that is needed"


def test_a_key_that_nothing_needs_is_forgotten_when_it_is_retired(vault: Vault) -> None:
    vault.run("encryption-key", "new")
    assert vault.run("encryption-key", "retire", vault.key).exit_code == 4
    assert vault.run("reencrypt").exit_code == 0
    assert vault.run("encryption-key", "retire", vault.key).exit_code == 0
    assert vault.run("check").exit_code == 0


def test_a_lost_key_that_nothing_needs_is_forgotten(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.file.unlink()
    assert vault.run("check").exit_code == 4
    assert vault.run("encryption-key", "retire", vault.key).exit_code == 0
    assert vault.run("check").exit_code == 0
    assert vault.run("encryption-key", "new").exit_code == 0


def test_a_backup_without_keys_says_so_and_its_restore_too(vault: Vault) -> None:
    done = vault.run("backup", str(vault.directory / "backups"))
    assert "are not in the backup" in done.stderr.splitlines()[-1]
    assert vault.key in done.stderr.splitlines()[-1]
    backup = next((vault.directory / "backups").glob("2*Z"))
    manifest = json.loads((backup / ".backup/backup.json").read_text())
    assert (manifest["needed_keys"], manifest.get("saved_keys", [])) == ([vault.key], [])
    other = vault.directory / "other"
    other.mkdir()
    (other / "settings.toml").write_text('data = "data"\nencryption_keys = "var/encryption-keys.json"\n')
    config = ["--config", str(other / "settings.toml")]
    done = vault.run("restore", str(backup), *config, config=False)
    assert (done.exit_code, f"{vault.key} is not in {other}/var/encryption-keys.json" in said(done)) == (4, True)
    done = vault.run("check", "--deep", *config, config=False)
    assert (done.exit_code, vault.key in said(done)) == (4, True)


def test_a_backup_with_keys_lacks_nothing(vault: Vault) -> None:
    done = vault.run("backup", str(vault.directory / "backups"), "--keys")
    assert "are not in the backup" not in done.stderr
    other = vault.directory / "other"
    other.mkdir()
    (other / "settings.toml").write_text('data = "data"\nkeys = "k"\nencryption_keys = "var/encryption-keys.json"\n')
    config = ["--config", str(other / "settings.toml")]
    done = vault.run("restore", str(vault.directory / "backups"), "--keys", *config, config=False)
    assert done.exit_code == 0, said(done)
    assert vault.run("check", "--deep", *config, config=False).exit_code == 0


def test_a_note_that_cannot_be_written_costs_only_itself(tmp_path: Path) -> None:
    records.note(str(tmp_path / "none/at/all"), ["k"])
    (tmp_path / "file").write_text("")
    records.note(str(tmp_path / "file"), ["k"])
    assert records.needed(str(tmp_path / "file")) == frozenset()


def test_a_check_of_one_tree_says_it_and_finds_nothing(vault: Vault) -> None:
    """The settings of the tree may be others, with another file of keys."""
    vault.file.rename(vault.directory / "lost.json")
    done = vault.run("check", "--data", str(vault.directory / "data"))
    assert (done.exit_code, vault.line in done.stderr) == (0, True)
