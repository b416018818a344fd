"""A service whose socket systemd opens: it starts at the first connection, and answers it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from persistence.client import PersistenceClient
from tests.initialised import initialised
from tests.waiting import eventually

ACTIVATE = shutil.which("systemd-socket-activate")


@pytest.mark.skipif(ACTIVATE is None, reason="systemd-socket-activate is not installed")
def test_the_first_connection_starts_the_service_and_is_answered(tmp_path: Path) -> None:
    initialised(tmp_path / "data")
    path = tmp_path / "socket"
    settings = {"DATA": str(tmp_path / "data"), "BIND": f"unix:{path}", "TRUSTED": "unix", "WORKERS": "1"}
    environment = {**os.environ, **{f"PERSISTENCE_{name}": value for name, value in settings.items()}}
    given = [f"--setenv={name}" for name in environment]  # it passes no other on
    command = [str(ACTIVATE), "--listen", str(path), *given, sys.executable, "-m", "persistence.cli", "serve"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        eventually(path.exists)
        assert b"gunicorn" not in (tmp_path / "log").read_bytes()
        with PersistenceClient(f"unix:{path}") as client:
            assert client.health().is_ready
            document = client.form("hr", "leave", 1).create("<form/>")
            assert client.form("hr", "leave", 1).load(document).xml == b"<form/>"
    finally:
        process.terminate()  # it became the service
        assert process.wait(20) == 0
    assert b"Listening at: unix:" in (tmp_path / "log").read_bytes()
    assert path.exists()  # the socket is systemd's, which listens on
