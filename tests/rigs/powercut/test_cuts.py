"""A power cut loses nothing that was acknowledged; and the rig notices a missing protection.

Here on the file system with the most users; the long run takes all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.rigs.disks import CUT_EXT4, disk, refusal
from tests.rigs.powercut.commands import COMMANDS
from tests.rigs.powercut.rig import CAUGHT, Plan, Rig
from tests.rigs.weakened import DIRECTORY_FSYNC

pytestmark = pytest.mark.xdist_group("loop")  # there are few loop devices

_PLAN = Plan(at_rest=4, under_load=4, real_every=8)
_WEAKENED_PICTURES = 4


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory, pool: ProcessPoolExecutor) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp(CUT_EXT4.title)
    reason = refusal(CUT_EXT4, directory, is_to_cut=True)
    if reason is not None:
        pytest.skip(reason)
    with disk(CUT_EXT4, directory) as made:
        yield Rig(made, directory, pool)


def test_every_acknowledged_write_survives_a_power_cut(on_disk: Rig) -> None:
    """Whole, with its headers and its older revisions; the service starts, and works on."""
    outcome = on_disk.run(_PLAN)
    assert outcome.violations == []
    assert outcome["started for real"] == 1
    assert outcome["in flight at the cut"] > 0
    assert outcome["states read"] > outcome["snapshots"]
    assert outcome["older revisions read"] > 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_power_cut_under_a_command_loses_nothing(on_disk: Rig, command: str) -> None:
    """What is current stays, a second run completes it, and ``check --deep`` finds nothing then."""
    outcome = on_disk.run_command(command, 2)
    assert outcome.violations == []
    assert outcome["snapshots"] > 1
    assert outcome["states read"] > 0


def test_a_missing_fsync_of_names_is_noticed(on_disk: Rig) -> None:
    """The long run takes every protection away, one after the other; this is the one that is hidden most easily."""
    assert on_disk.run_without(DIRECTORY_FSYNC, _WEAKENED_PICTURES)[CAUGHT] > 0
