"""Backups of a database are those of the tree that it would be: restored into a tree or a database, and linked.

What the commands say and do is in ``golden/database.txt``, ``database-upkeep.txt`` and ``database-damage.txt``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from persistence.maintenance.backup import Backup
from persistence.maintenance.restore import Restore, StorageRestore, choose, source_in
from persistence.maintenance.tree_walk import FolderTree
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.postgresql.database_check import maintained
from persistence.services.moves import MoveTarget
from persistence.storage.storage import MaintainedDatabase
from persistence.storage.stored_revision import Integrity
from tests import in_process
from tests.cli.command_runner import Command
from tests.http.test_export import Archive, real_archive
from tests.maintenance.test_backup import is_as_listed
from tests.postgresql.server import fresh_schema, prepared
from tests.postgresql.storages import storage_at
from tests.services.test_moving import V1
from tests.services.transferring import moved, tree

_LARGE = b"0123456789abcdef" * 40_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with in_process.serving(tmp_path_factory.mktemp("backup") / "from", alone=True) as service:
        for body in (b"<one/>", b"<two/>"):
            service.put("hr/leave/data/d/data.xml", body, **V1)
            service.put("hr/leave/data/d/large.bin", body + _LARGE, **V1)
        service.put("hr/leave/draft/d/data.xml", b"<draft/>", **V1)
        service.put("hr/leave/form/logo.png", b"logo", **V1)
        service.put("hr/leave/data/gone/data.xml", b"<gone/>", **V1)
        service.delete("hr/leave/data/gone/data.xml", **V1)
        yield service.data


@pytest.fixture
def database(database_uri: str, tmp_path: Path, root: Path) -> MaintainedDatabase:
    found = maintained(storage_at(database_uri, tmp_path / "local"))
    assert [each.cause for each in moved(root, found) if each.cause] == []
    return found


def saved(database: MaintainedDatabase, destination: Path) -> tuple[Backup, list[str]]:
    run = Backup(str(destination), {}, {}, lambda _: None, Integrity(), {}, {"data": database})
    return run, [line for line in run.run() if line is not None]


def restored(backup: str, roots: Mapping[str, str]) -> list[str]:
    run = Restore(choose(backup), roots, {})
    problems = [line for line in run.run() if line is not None]
    run.end()
    return problems


def test_a_second_backup_reads_and_copies_only_what_is_new(
    database: MaintainedDatabase, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = saved(database, tmp_path / "backups")
    data = DocumentAddress(Form("hr", "leave"), Collection.DATA, "gone", DATA_XML)
    with database.storage.writing(data) as writer:
        writer.discard_document(data.form, "gone")
    own = database.storage.read

    def read(*arguments: object, content: bool) -> object:
        assert not (content and arguments[1:])  # of an instant
        return own(*arguments, content=content)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(database.storage, "read", read)
    second, problems = saved(database, tmp_path / "backups")
    assert (first.folders, first.missing) == (4, {})
    assert (problems, second.count.copied, second.count.linked) == ([], 0, first.count.copied - 3)
    assert restored(second.path, {"data": str(tmp_path / "to")}) == []
    assert tree(tmp_path / "to") == {path: held for path, held in tree(root).items() if "/gone/" not in path}


def test_what_is_stored_meanwhile_is_not_in_it(
    database: MaintainedDatabase, root: Path, database_uri: str, tmp_path: Path
) -> None:
    """All of it is of one moment, although it is made step by step."""
    run = Backup(str(tmp_path / "backups"), {}, {}, lambda _: None, Integrity(), {}, {"data": database})
    lines = run.run()
    next(lines)
    data = DocumentAddress(Form("hr", "leave"), Collection.DATA, "gone", DATA_XML)
    other = maintained(storage_at(database_uri, tmp_path / "local"))
    with other.storage.writing(data) as writer:
        writer.discard_document(data.form, "gone")
        writer.discard_document(data.form, "d")
    assert list(filter(None, lines)) == []
    assert restored(run.path, {"data": str(tmp_path / "to")}) == []
    assert tree(tmp_path / "to") == tree(root)


def _into_database(backup: str, target: MaintainedDatabase) -> tuple[StorageRestore, list[str]]:
    chosen = choose(backup)
    (part,) = chosen.manifest.parts
    run = StorageRestore(chosen, part, source_in(chosen, part, lambda _: None), MoveTarget(target.storage))
    return run, [line for line in run.run() if line is not None]


@pytest.fixture
def other(tmp_path: Path, database_uri: str) -> MaintainedDatabase:
    uri = prepared(f"{database_uri.partition('?')[0]}?schema={fresh_schema()}")
    return maintained(storage_at(uri, tmp_path / "local"))


@pytest.mark.parametrize("is_of_tree", [False, True], ids=["of a database", "of a tree"])
def test_a_backup_is_restored_into_a_database(
    database: MaintainedDatabase, other: MaintainedDatabase, root: Path, tmp_path: Path, *, is_of_tree: bool
) -> None:
    if is_of_tree:
        run = Backup(
            str(tmp_path / "backups"), {"data": FolderTree(str(root), lock_timeout=1)}, {}, lambda _: None, Integrity()
        )
        assert list(filter(None, run.run())) == []
    else:
        run, problems = saved(database, tmp_path / "backups")
        assert (problems, tree(Path(run.path) / "data")) == ([], tree(root))
        assert is_as_listed(Path(run.path))
    restoring, problems = _into_database(run.path, other)
    assert (problems, restoring.report.refused) == ([], 0)
    assert [each.cause for each in moved(other, tmp_path / "back") if each.cause] == []
    assert tree(tmp_path / "back") == tree(root)


def test_an_archive_of_the_real_system_goes_round(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_uri: str
) -> None:
    """Imported, exported, and imported into an empty database, whose export is equal."""
    monkeypatch.chdir(tmp_path)
    other = f"{database_uri.partition('?')[0]}?schema={fresh_schema()}"
    archives = [str(tmp_path / f"{number}.zip") for number in range(3)]
    Path(archives[0]).write_bytes(real_archive("include"))
    assert command("init", other).status == 0
    for dry in (["--dry-run"], []):
        done = command("import", archives[0], *dry, "--data", database_uri)
        assert done.out == "a/f/data/e: imported: came without an owner\n"
    assert command("export", archives[1], "--history", "include", "--data", database_uri).status == 0
    assert command("import", archives[1], "--data", other)[:2] == (0, "")
    assert command("export", archives[2], "--history", "include", "--data", other).status == 0
    first, second = (Archive(Path(name).read_bytes()) for name in archives[1:])
    assert (first.contents, first.metadata) == (second.contents, second.metadata)
    newest = max(name for name in first.contents if "/d/" in name and name.endswith("/data.xml"))
    found = first.sidecar(newest)
    assert (found.creator, found.group, found.modifier, found.stage) == ("ann", "staff", "bob", "started")
