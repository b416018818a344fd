"""``persistence leases``, and what check, backup and restore make of leases."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persistence.cli import commands
from persistence.errors import LockedError, NotFoundError
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.versions import LeaseHolder
from persistence.storage import commit
from persistence.storage.document_leases import listed
from persistence.storage.layout import UNFINISHED_LEASE, Layout
from persistence.storage.store import Store
from tests.initialised import initialised


def address(document: str) -> DocumentAddress:
    return DocumentAddress(Form("a", "b"), Collection.DATA, document, "data.xml")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A service that runs: two documents are leased, and a third was."""
    with Store(initialised(tmp_path / "data"), lock_timeout=1) as store:
        store.leases.lock(address("D"), LeaseHolder("lea", "staff"), 600)
        store.leases.lock(address("\u202eE"), LeaseHolder("bob\x9b"), 60)
        store.leases.lock(address("F"), LeaseHolder("cat"), 600)
        store.leases.unlock(address("F"), LeaseHolder("cat"))
        yield store


def run(store: Store, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(commands, [command, "--data", store.root, *arguments])


def test_one_is_broken_while_the_service_runs(store: Store) -> None:
    with pytest.raises(LockedError):
        store.leases.lock(address("D"), LeaseHolder("bob"), 600)
    done = run(store, "leases", "--break", "D")
    assert (done.exit_code, done.stdout) == (0, "the lease of D by lea is broken\n")
    store.leases.lock(address("D"), LeaseHolder("bob"), 600)
    again = run(store, "leases", "--break", "F")
    assert isinstance(again.exception, NotFoundError)
    assert str(again.exception) == "nobody has leased the document F"


def test_a_link_among_leases_is_found(store: Store, tmp_path: Path) -> None:
    path = Path(Layout(store.root).lease("D"))
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert "not-a-file" in run(store, "check").stdout


def test_they_are_not_in_a_backup(store: Store, tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    assert run(store, "backup", str(tmp_path / "backups")).exit_code == 0
    restored = CliRunner().invoke(
        commands, ["restore", str(tmp_path / "backups"), "--data", str(tmp_path / "restored")]
    )
    assert restored.exit_code == 0, restored.output
    assert list(listed(str(tmp_path / "restored"))) == []
    names = [path.name for path in (tmp_path / "backups").rglob("*")]
    assert "layout.json" in names
    assert [name for name in names if name == ".leases" or len(name) == 64] == []


def test_what_a_killed_lock_left_is_removed_when_it_is_nobodys_work_any_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Path(Layout(store.root).lease("D") + UNFINISHED_LEASE)
    left.write_bytes(b'{"docu')
    assert run(store, "check", "--repair").exit_code == 0
    assert left.exists()
    monkeypatch.setattr(commit, "ABANDONED_AFTER", -1.0)
    assert "stray-temporary" in run(store, "check").stdout
    assert run(store, "check", "--repair").exit_code == 3
    assert not left.exists()
    assert run(store, "check").exit_code == 0
    with pytest.raises(LockedError):
        store.leases.lock(address("D"), LeaseHolder("bob"), 600)
