"""Odd requests, slow clients and a small throng: the long run does the same with more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import nginx
from tests.rigs.connections import slow, smuggling
from tests.rigs.connections.slow import Kind

needs_nginx = pytest.mark.skipif(nginx.NGINX is None, reason="nginx is not installed")


def test_no_request_hides_in_another(tmp_path: Path) -> None:
    """The issue: tricks with Transfer-Encoding and Content-Length, to gunicorn and through nginx where there is one.

    The controls among the cases are carried out, so a hidden request that is would be seen.
    """
    outcomes = smuggling.run(tmp_path)
    assert smuggling.faults(outcomes) == []
    assert {outcome.carried_out for outcome in outcomes if outcome.case.is_control} == {True}


@needs_nginx
def test_slow_clients_starve_gunicorn_and_not_nginx(tmp_path: Path) -> None:
    """The issue: slow clients. That they stop a bare gunicorn shows that they are slow enough."""
    scenes = list(slow.scenes(tmp_path, each=20, seconds=1.0, alone=False))
    assert [fault for scene in scenes for fault in scene.faults] == []
    assert {scene.through for scene in scenes if scene.beside.failures} == {smuggling.DIRECT}


@needs_nginx
def test_a_throng_leaves_room_for_others(tmp_path: Path) -> None:
    """The issue: many open connections behind nginx; everyone is answered, and nothing is left."""
    minute = slow.throng(tmp_path, seconds=2.0, mix={Kind.IDLE: 150, Kind.KEPT: 200, Kind.HEAD: 50, Kind.BODY: 100})
    assert minute.faults == []
