"""A command that is killed, or that the disk refuses, leaves the state before or after; a second run completes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.maintenance import kills
from tests.maintenance.rounds import SCENARIOS, Inflict, Round, Scenario, directory
from tests.maintenance.workshop import furnished

_SOME = SCENARIOS[4::7]
_EVERY = 7


@pytest.mark.parametrize(("scenario", "inflict"), _SOME, ids=[each.name for each, _ in _SOME])
def test_a_killed_command_leaves_nothing_half_done(tmp_path: Path, scenario: Scenario, inflict: Inflict) -> None:
    """At every seventh call, of every seventh scenario; the long run takes all."""
    with furnished(tmp_path / "pristine") as workshop:
        pristine = workshop.root
    round_ = Round(directory(pristine, tmp_path, inflict), tmp_path, scenario)
    outcomes = dict(round_.faults(kills.kill, every=_EVERY))
    assert outcomes
    assert {at: faults for at, faults in outcomes.items() if faults} == {}
