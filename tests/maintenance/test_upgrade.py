"""``persistence upgrade``: named steps, recorded and resumable. An old tree is upgraded in ``golden/upkeep.txt``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from persistence.errors import BusyError, DiskError, StartupError
from persistence.maintenance import upgrade as upgrades
from persistence.maintenance.upgrade import STEPS, UpgradeStep, add_checksums, steps_due, upgrade
from tests.failing import ending
from tests.maintenance.workshop import DATA, NEW, Workshop, furnished
from tests.sidecars import of_format_2, said


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A tree of format 1, as the first version made it."""
    root = tmp_path / "data"
    furnished(root)
    (root / "layout.json").write_text('{"format":1}\n')
    for sidecar in root.glob("app/**/*.json"):
        of_format_2(sidecar)
    (root / ".quarantine").rmdir()
    (root / ".locks/service").unlink()
    return root


def layout(root: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((root / "layout.json").read_text())
    return found


def test_an_interrupted_upgrade_goes_on_where_it_was(old: Path) -> None:
    """A recorded step is not repeated, and meanwhile nothing is served."""
    done: list[str] = []
    steps = tuple(
        UpgradeStep(name, 3, "", lambda _, name=name: done.append(name)) for name in ("first", "second", "third")
    )

    def fail(_root: str) -> None:
        raise OSError(5, "Input/output error")

    broken = (steps[0], UpgradeStep("second", 3, "", fail), steps[2])
    with pytest.raises(DiskError, match="Input/output error"):
        list(upgrade(str(old), broken))
    assert done == ["first"]
    with pytest.raises(StartupError, match="an upgrade has not finished"):
        Workshop(old).get(DATA)
    assert [step.name for step in steps_due(str(old), steps)] == ["second", "third"]
    assert [step.name for step in upgrade(str(old), steps)] == ["second", "third"]
    assert done == ["first", "second", "third"]
    assert layout(old)["format"] == 3
    assert list(layout(old)["steps"]) == ["first", "second", "third"]  # type: ignore[call-overload]


def test_steps_of_formats_that_the_tree_is_past_are_left_out(old: Path) -> None:
    steps = (UpgradeStep("ancient", 1, "", _never), *STEPS)
    assert [step.name for step in upgrade(str(old), steps)] == ["quarantine", "sidecars"]


def _never(_root: str) -> None:
    raise AssertionError("this step is of a format that the tree has")


def test_an_interrupted_upgrade_without_steps_left_is_finished(old: Path) -> None:
    steps = {"quarantine": "2026-01-01T00:00:00.000Z", "sidecars": "2026-01-01T00:00:00.001Z"}
    (old / "layout.json").write_text(json.dumps({"format": 3, "steps": steps, "upgrading_from": 1}))
    assert list(upgrade(str(old))) == []
    assert layout(old) == {"format": 3, "steps": steps}


def test_sidecars_that_were_written_aside_are_written_again(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run was killed between the files and their names: nothing is lost, whatever it had renamed."""
    with monkeypatch.context() as patch:
        patch.setattr(upgrades.files, "rename", ending(3, os.rename))
        with pytest.raises(KeyboardInterrupt):
            add_checksums(str(old))
    assert list(old.rglob(".*~sealed"))
    add_checksums(str(old))
    assert not list(old.rglob("*~sealed"))
    assert all(said(path)["schema"] == 2 for path in old.glob("app/**/*.json"))


def test_what_is_no_sidecar_is_not_upgraded(old: Path) -> None:
    """Any name that does not begin with a dot may be that of an attachment, also of a sidecar that is written aside."""
    folder = old / "app/form/data/document"
    names = ("report~sealed", "data.xml~sealed", "data.xml.json~sealed", "x.json~sealed", "notes.json", "data.xml.json")
    for name in names:
        (folder / name).write_text(f'{{"mine": "{name}')
    add_checksums(str(old))
    assert [(folder / name).read_text() for name in names] == [f'{{"mine": "{name}' for name in names]


def test_a_tree_in_use_is_not_upgraded(tmp_path: Path) -> None:
    root = tmp_path / "data"
    workshop = furnished(root)
    assert workshop.get(DATA) == (200, NEW)
    steps = (*STEPS, UpgradeStep("next", 4, "", _never))
    with pytest.raises(BusyError, match="stop the service first"):
        list(upgrade(str(root), steps))
    assert workshop.get(DATA) == (200, NEW)
