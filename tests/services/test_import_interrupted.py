"""An import that was killed, or met a full disk, goes on when it is called again; nothing is half there."""

import errno
import io
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from persistence.errors import DiskFullError
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.queries import RevisionHistory
from persistence.services import importing
from persistence.services.import_sources import open_source
from persistence.services.transfers import TransferOutcome, TransferResult
from persistence.storage import files
from persistence.storage.store import Store
from tests.initialised import initialised
from tests.services.test_import_json_lines import T1, T2, T3, line
from tests.services.transferring import LARGEST, export_of, importer, lines_source, run, tree

STEPS = ((files, "rename"), (files, "sync"), (files, "link_descriptor"), (files, "keep_as"), (files, "sync_open"))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, tuple[bytes, int]]]:
    """An archive of a document with two revisions, an attachment and a draft, and the tree that it is of."""
    scan = [{"name": "scan.bin", "content": "AAAA"}]
    lines = line(document="d", data="<one/>", modified=T1, attachments=scan)
    lines += line(document="d", data="<two/>", modified=T2) + line(document="d", data="<x/>", draft=True, modified=T3)
    root = Path(initialised(tmp_path_factory.mktemp("from") / "data"))
    with Store(str(root), lock_timeout=5) as store:
        run(importer(store), lines_source(lines))
        return export_of(store, history=RevisionHistory.INCLUDE, with_drafts=True), tree(root)


def counting(stop_at: int, action: Callable[[], None]) -> Iterator[pytest.MonkeyPatch]:
    """Call ``action`` at the step of that number."""
    steps = 0
    with pytest.MonkeyPatch.context() as patch:
        for module, name in STEPS:
            own = getattr(module, name)

            def step(*arguments: object, _own: Callable[..., object] = own, **named: object) -> object:
                nonlocal steps
                steps += 1
                if steps == stop_at:
                    action()
                return _own(*arguments, **named)

            patch.setattr(module, name, step)
        yield patch


def killed(at: int, work: Callable[..., object], *arguments: object) -> bool:
    """Do something in a process that is killed at a step; ``False`` where it ended before."""
    child = os.fork()
    if child == 0:
        for _ in counting(at, lambda: os._exit(9)):
            work(*arguments)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def imported(root: str, archive: bytes) -> list[TransferOutcome]:
    with Store(root, lock_timeout=5) as store:
        return run(importer(store), open_source("x", io.BytesIO(archive), largest=LARGEST))


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
def test_an_import_that_is_killed_at_any_step_goes_on(
    archive: tuple[bytes, dict[str, tuple[bytes, int]]], tmp_path: Path, every: int
) -> None:
    content, expected = archive
    for at in count(1, every):
        root = initialised(tmp_path / str(at))
        was_killed = killed(at, imported, root, content)
        with Store(root, lock_timeout=5) as store:
            data = DocumentAddress(Form("a", "f"), Collection.DATA, "d", DATA_XML)
            there = store.read(data, content=True)
            if there is not None:
                with there.opened as file:
                    assert file.read() in (b"<one/>", b"<two/>")
                assert store.read(data.moved(Collection.DATA, "scan.bin"), content=False) is not None, at
        assert [each.cause for each in imported(root, content)] == [""], at
        with Store(root, lock_timeout=5) as store, store.writing(data) as writer:
            writer.finish(data)  # as the next writer of the file would
            writer.finish(data.moved(Collection.DRAFT))
        assert tree(root) == expected, at
        if not was_killed:
            break
    assert at > 20


@pytest.mark.parametrize("at", [2, 9, 16, 25])
def test_a_full_disk_ends_it_and_what_is_imported_stays(tmp_path: Path, at: int) -> None:
    lines = b"".join(line(document=f"d{number}", data="<d/>", modified=T1) for number in range(9))
    root = initialised(tmp_path / "data")

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    done = []
    with Store(root, lock_timeout=5) as store:
        into = importer(store)
        for _ in counting(at, full):
            with pytest.raises(DiskFullError, match="No space left"):
                done += run(into, lines_source(lines))
        whole = [path for path in tree(root) if path.endswith(DATA_XML)]
        outcomes = run(into, lines_source(lines))
        known = [each for each in outcomes if each.result is TransferResult.UNCHANGED]
        assert len(known) == len(whole)
        assert len([path for path in tree(root) if path.endswith(DATA_XML)]) == 9


def test_what_others_save_meanwhile_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the plan and the lock somebody saves: the document is refused, and theirs stays."""
    root = initialised(tmp_path / "data")
    with Store(root, lock_timeout=5) as store:
        own = importing.ImportWriter.write
        other = lines_source(line(document="d", data="<theirs/>", modified=T2))

        def saved_meanwhile(writer: importing.ImportWriter) -> None:
            monkeypatch.setattr(importing.ImportWriter, "write", own)
            run(importer(store), other)
            own(writer)

        monkeypatch.setattr(importing.ImportWriter, "write", saved_meanwhile)
        outcomes = run(importer(store), lines_source(line(document="d", data="<ours/>", modified=T3)))
        assert [each.result for each in outcomes] == [TransferResult.REFUSED]
        assert "meanwhile" in outcomes[0].cause
        assert tree(root)["a/f/data/d/data.xml"][0] == b"<theirs/>"
