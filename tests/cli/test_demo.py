"""``persistence demo``: a sample application that is whole, always the same, and can be looked at at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from persistence.cli.service_directory import COUNT, all_claims
from tests.cli.test_commands import persistence


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("demo")
    done = persistence("demo", cwd=directory)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("demo/expense-claim: 200 documents, 1 of them deleted, 8 drafts, in ")
    assert "Serve it:     persistence serve --config " in done.stdout
    return directory / "demo"


def run(root: Path, *arguments: str) -> list[str]:
    done = persistence(*arguments, "--config", str(root / "config/persistence.toml"), cwd=root)
    assert done.returncode == 0, done.stderr
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def test_check_finds_nothing(root: Path) -> None:
    assert run(root, "check", "--deep")[-1:] == []


def test_forms_and_searches_find_what_is_there(root: Path) -> None:
    assert run(root, "forms", "demo")[-1] == "1 form, 1 version, 199 documents, 1 deleted, 8 drafts"
    assert len(run(root, "search", "demo/expense-claim", "Lisbon")) > 20
    shown = "\n".join(run(root, "show", "demo/expense-claim"))
    assert "Spesenabrechnung (de)" in shown
    assert "role accountant: read update delete list" in shown


def test_documents_have_a_history_attachments_and_encrypted_values(root: Path) -> None:
    claims = list(all_claims())
    assert len({claim.document for claim in claims}) == COUNT
    document = root / "var/data/demo/expense-claim/data" / claims[19].document
    assert len(list((document / ".history").glob("*.data.xml"))) == 2
    assert (document / claims[19].receipt_name).read_bytes().startswith(b"%PDF-1.4\n")
    assert "keep this between us" not in (document / "data.xml").read_text()
    assert b"keep this between us" in claims[19].xml(0)
    assert (root / "var/encryption-keys.json").stat().st_mode & 0o777 == 0o600


def test_it_leaves_alone_what_is_there(root: Path) -> None:
    done = persistence("demo", str(root), cwd=root.parent)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not empty" in done.stderr
