"""What a process that has just started takes from what others have read: only what is still so (spec search 4)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from persistence.definitions import catalog
from persistence.definitions.catalog import Catalog
from persistence.definitions.summaries import FormsFile, StoredForm, StoredSummary
from persistence.model.addresses import FORM_XHTML, DefinitionAddress, Form
from persistence.model.instants import Instant
from persistence.model.versions import FormMetadata
from persistence.storage.store import Store
from persistence.storage.stored_revision import StoredRevision
from tests.opened import opened
from tests.published import PERMISSIONS, Planter, definition
from tests.service import Service, running
from tests.sidecars import resealed

WHEN = "2024-05-01T10:00:00.000Z"
LATER = "2024-06-01T10:00:00.000Z"
SOME = [
    StoredForm(
        "hr",
        "leave",
        [
            StoredSummary(
                1,
                ((1 << 63, 2, 3), None),
                Instant(WHEN),
                Instant(LATER),
                None,
                FormMetadata(titles={"": "Zusage ü"}, permissions=PERMISSIONS),
                deleted=True,
            )
        ],
    ),
    StoredForm("hr", "other", []),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A tree with three forms, one of them with two versions."""
    planter = Planter(tmp_path)
    for form, version in (("hr/leave", 1), ("hr/leave", 2), ("hr/travel", 1), ("it/desk", 1)):
        planter.publish(form, version, f"<title>{form} {version}</title>{PERMISSIONS}", WHEN, "fay")
    return tmp_path


def memory(data: Path) -> FormsFile:
    return FormsFile(str(data / ".index/.forms"))


def listed(data: Path, remembered: FormsFile) -> dict[str, str]:
    """The titles of all versions, as a process lists them that has just started."""
    with Store(str(data), lock_timeout=5) as store:
        versions = [found for _, form in Catalog(store, remembered).forms() for found in form]
    assert all(found.permissions for found in versions)
    return {f"{found.form} {found.version}": found.metadata.titles[""] for found in versions}


def read_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, str], list[str]]:
    """What a process lists that has just started, and the versions whose files it has read for that."""
    read: list[str] = []
    real = Store.read

    def counted(self: Store, address: DefinitionAddress, *, content: bool) -> StoredRevision | None:
        read.append(f"{address.form} {address.version}")
        return real(self, address, content=content)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "read", counted)
        return listed(data, memory(data)), read


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    file = FormsFile(str(tmp_path / "forms"))
    assert file.read() == []
    file.write(SOME)
    assert file.read() == SOME
    file.write([])
    assert file.read() == []


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:0],
        lambda data: data[:30],
        lambda data: data[:-1],
        lambda data: data.replace(b"forms 1\n", b"forms 0\n"),
        lambda data: data.replace(b"leave", b"leavf"),
        lambda data: data + b"\0",
        lambda data: os.urandom(len(data)),
    ],
    ids=["empty", "cut", "shorter", "older", "garbled", "longer", "random"],
)
def test_a_file_that_is_not_as_it_was_written_tells_nothing(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "forms"
    file = FormsFile(str(path))
    file.write(SOME)
    path.write_bytes(change(path.read_bytes()))
    assert file.read() == []


def test_nobody_minds_where_it_cannot_be_written_or_read(data: Path) -> None:
    (data / ".index/.forms").mkdir()
    assert len(listed(data, memory(data))) == 4
    assert len(listed(data, FormsFile(str(data / "missing/forms")))) == 4


def test_a_process_reads_nothing_that_another_has_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, read = read_again(data, monkeypatch)
    assert sorted(read) == sorted(first)
    assert read_again(data, monkeypatch) == (first, [])


def test_what_has_changed_since_is_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published again, edited by hand, published for the first time, removed by hand, and left as it was."""
    before = listed(data, memory(data))
    Planter(data).publish("hr/leave", 1, f"<title>again</title>{PERMISSIONS}", LATER)
    (data / "hr/leave/form/2" / FORM_XHTML).write_bytes(definition(f"<title>by hand</title>{PERMISSIONS}"))
    Planter(data).publish("it/new", 1, f"<title>new</title>{PERMISSIONS}", LATER)
    (data / "hr/travel/form/1").rename(data / "hr/travel/form/elsewhere")
    found, read = read_again(data, monkeypatch)
    assert found == {
        "hr/leave 1": "again",
        "hr/leave 2": "by hand",
        "it/desk 1": before["it/desk 1"],
        "it/new 1": "new",
    }
    assert set(read) == set(found) - {"it/desk 1"}


def test_one_that_only_the_sidecar_of_another_time_knew_is_not_believed(data: Path) -> None:
    """The sidecar put back as it was, with its time: the file at its place is another one."""
    sidecar = data / "hr/travel/form/1/form.xhtml.json"
    before = sidecar.read_bytes(), sidecar.stat()
    listed(data, memory(data))
    other = data / "other"
    other.write_bytes(before[0])
    resealed(other, metadata={"titles": {"": "hr/travel 9"}, "permissions": PERMISSIONS})
    assert len(other.read_bytes()) == len(before[0])
    os.utime(other, ns=(before[1].st_atime_ns, before[1].st_mtime_ns))
    other.rename(sidecar)
    assert listed(data, memory(data))["hr/travel 1"] == "hr/travel 9"


def test_what_cannot_be_understood_is_read_from_the_files(data: Path) -> None:
    expected = listed(data, memory(data))
    kept = memory(data).read()
    for form in kept:
        for at, version in enumerate(form.versions):
            broken = msgspec.structs.replace(version.metadata, permissions="<permissions")
            form.versions[at] = msgspec.structs.replace(version, metadata=broken)
    memory(data).write(kept)
    assert listed(data, memory(data)) == expected


def test_it_is_written_when_more_than_a_few_are_not_in_it(tmp_path: Path) -> None:
    planter = Planter(tmp_path)
    for version in range(1, 42):
        planter.publish("hr/leave", version, f"<title>{version}</title>{PERMISSIONS}", WHEN)
    listed(tmp_path, memory(tmp_path))
    written = (tmp_path / ".index/.forms").stat().st_ino
    for publications in range(1, 4):
        planter.publish("hr/leave", publications, f"<title>again</title>{PERMISSIONS}", LATER)
        listed(tmp_path, memory(tmp_path))
        assert ((tmp_path / ".index/.forms").stat().st_ino == written) is (publications < 3)


@pytest.mark.parametrize(("limit", "most"), [("VERSIONS_KEPT", 3), ("MOST_CATALOG", 1_000)])
def test_more_than_is_kept_in_memory_is_not_written(
    data: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(catalog, limit, most)
    assert len(listed(data, memory(data))) == 4
    assert memory(data).read() == []


def test_to_look_at_one_form_is_not_to_read_or_write_it(data: Path) -> None:
    known = Catalog(opened(Store(str(data), lock_timeout=5)), memory(data))
    assert known.of(Form("hr", "leave"), 2).published
    assert [found.version for found in known.published(Form("hr", "leave"), skips_damaged=True)] == [2, 1]
    assert memory(data).read() == []


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Service]:
    """A service with two workers."""
    with running(tmp_path, workers=2) as service:
        yield service


def test_workers_old_and_new_list_what_is_published(crowd: Service) -> None:
    """Ten lists after each publication, and after a deletion, and by workers that have just started."""

    def titles() -> set[str]:
        lists = {crowd.raw("GET", "/form?all-versions=true").body.decode() for _ in range(10)}
        assert len(lists) == 1
        return {part.partition("</title>")[0] for part in lists.pop().split("<title>")[1:]}

    for number in range(6):
        crowd.put(f"app/form-{number % 3}/form/form.xhtml", definition(f"<title>T{number}</title>"))
        assert titles() == {f"T{shown}" for shown in range(max(0, number - 2), number + 1)}
        if number % 2:
            for worker in crowd.workers():
                os.kill(worker, signal.SIGKILL)
    crowd.delete("app/form-0/form/form.xhtml", Form_Definition_Version=1)
    assert titles() == {"T4", "T5"}
    assert (crowd.data / ".index/.forms").is_file()


def test_a_version_that_is_read_again_counts_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing one version again and again does not use up the bounds of the summaries."""
    monkeypatch.setattr(catalog, "VERSIONS_KEPT", 6)
    known = Catalog(opened(Store(str(data), lock_timeout=5)), memory(data))
    for minute in range(10):
        Planter(data).publish(
            "hr/leave", 1, f"<title>{minute}</title>{PERMISSIONS}", f"2024-06-01T10:{minute:02}:00.000Z"
        )
        assert len([version for _, versions in known.forms() for version in versions]) == 4
    assert len(memory(data).read()) == 3
