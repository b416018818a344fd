"""The log: one format for the service, gunicorn and libraries, with or without users, from a level on."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from persistence.http import logs
from persistence.http.logs import ServerLines, choose
from tests.service import PUBLIC, V1, running

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (debug|info|warning|error) +\S.*")
DOCS = Path(__file__).parents[2] / "docs"
SOURCE = Path(__file__).parents[2] / "persistence"


@pytest.fixture(autouse=True)
def unchosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("format", "is_text", "level"):
        chosen = logs._Chosen  # noqa: SLF001 - there is one of each process
        monkeypatch.setattr(chosen, name, getattr(chosen, name))
    monkeypatch.setattr(logs, "apply", lambda: None)


def _lines(directory: Path, **settings: str) -> list[str]:
    env = {f"PERSISTENCE_LOG_{name.upper()}": value for name, value in settings.items()}
    with running(directory, env=env) as service:
        service.raw("GET", f"{PUBLIC}/crud/a/b/data/1/data.xml?token=x", {"Svc-Username": "lea", "X-Request-Id": "r-1"})
        service.raw("GET", "/healthz")
        return service.log.read_text().splitlines()


def test_every_line_is_json_where_nobody_looks_on(tmp_path: Path) -> None:
    """Findings of a newcomer: JSON mixed with gunicorn's text, and no user in it."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in _lines(tmp_path)]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    assert {line["event"] for line in lines} == {"service", "server", "request"}
    (request,) = [line for line in lines if line.get("id") == "r-1"]
    assert (request["status"], request["level"], "user" not in request) == (404, "info", True)
    assert "lea" not in str(lines)
    documented = re.findall(r"(?m)^\| `([^|]+)` \| [^|]+ \| [^|]+ \|$", (DOCS / "logging.md").read_text())
    known = {name for cell in documented for name in re.split("`, `", cell)}
    assert {name for line in lines for name in line} <= known


def test_text_is_for_people_and_users_are_named_if_the_setting_says_so(tmp_path: Path) -> None:
    lines = _lines(tmp_path, format="text", users="true")
    assert lines[0].startswith("persistence: version ")
    assert [line for line in lines if not (LINE.fullmatch(line) or line.startswith("persistence: "))] == []
    (request,) = [line for line in lines if "id=r-1" in line]
    assert ("user=lea" in request, 'cause="a/b/data/1/data.xml does not exist"' in request) == (True, True)
    assert any("Listening at: http://127.0.0.1:" in line for line in lines)


def test_the_level_leaves_lines_out(tmp_path: Path) -> None:
    env = {"PERSISTENCE_LOG_LEVEL": "debug"}
    with running(tmp_path, env=env) as service:
        assert service.put("a/b/data/1/data.xml", **V1).status == 201
        lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert {"debug", "info"} <= {line["level"] for line in lines}


@pytest.mark.parametrize(("level", "written"), [("info", True), ("warning", False), ("error", False)])
def test_lines_below_the_level_are_not_announced(
    capsys: pytest.CaptureFixture[str], level: logs.LogLevel, *, written: bool
) -> None:
    choose("text", level)
    logs.announce("the settings\nwere read")
    assert capsys.readouterr().err == ("persistence: the settings were read\n" if written else "")


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_nothing_that_is_sent_begins_a_line_or_reaches_the_terminal(log_format: logs.LogFormat) -> None:
    choose(log_format, "info")
    record = logging.LogRecord("x", logging.WARNING, "", 1, "odd \x1b[31m\n{} \x9b %s", ("\r\n",), None)
    for line in (
        ServerLines().format(record),
        logs.line({"timestamp": "t", "level": "info", "event": "request", "path": "/\x1b[31m\n\x85"}).decode(),
    ):
        assert line.isprintable()


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_traceback_of_the_server_is_in_its_line_or_below(log_format: logs.LogFormat) -> None:
    choose(log_format, "info")
    error = ValueError("here")
    info = (ValueError, error, error.__traceback__)
    line = ServerLines().format(logging.LogRecord("x", logging.ERROR, "", 1, "failed", (), info))
    assert ("ValueError: here" in line, "\n" in line) == (True, log_format == "text")


def test_every_event_is_documented() -> None:
    page = (DOCS / "logging.md").read_text()
    written = {
        event
        for file in SOURCE.rglob("*.py")
        for event in re.findall(r"(?:logs\.|\b)write\(\s*\"([a-z-]+)\", is_error", file.read_text())
    }
    assert len(written) > 5
    assert [event for event in sorted(written) if f"`{event}`" not in page] == []
