"""``persistence health``: what containers and monitoring look at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command_runner import ended
from tests.in_process import serving
from tests.providers import dripping
from tests.service import running


def test_a_service_that_can_store_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, alone=True) as service:
        url = f"http://127.0.0.1:{service.port}"
        assert ended(["health", "--url", url], monkeypatch, capsys)[:2] == (0, f"ready: {url}\n")
        (tmp_path / "settings.toml").write_text(f'bind = "0.0.0.0:{service.port}"\n')
        assert ended(["health", "--config", str(tmp_path / "settings.toml")], monkeypatch, capsys).out.startswith(
            "ready"
        )
        status, out, _ = ended(["health", "--url", url, "--json"], monkeypatch, capsys)
        assert (status, json.loads(out)) == (0, {"url": url, "alive": True, "ready": True, "cause": ""})


def test_one_that_cannot_store_is_not_ready_and_one_that_is_gone_not_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, env={"PERSISTENCE_MIN_FREE": str(1 << 60)}, alone=True) as service:
        url = f"http://127.0.0.1:{service.port}"
        status, out, errors = ended(["health", "--url", url], monkeypatch, capsys)
        assert (status, out) == (1, "")
        assert errors[-1].startswith(f"persistence: {url} is alive, but not ready: ")
        assert "the floor is" in errors[-1]
    status, _, errors = ended(["health", "--url", url], monkeypatch, capsys)
    assert status == 1
    assert errors[0].startswith(f"persistence: {url} is not alive: the service cannot be reached")


def test_a_service_on_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bind = f"unix:{tmp_path}/s"
    monkeypatch.setenv("PERSISTENCE_BIND", bind)
    with running(tmp_path, bind=bind, env={"PERSISTENCE_TRUSTED": "unix"}):
        lines = "persistence: there was no {0} of everything yet: persistence {0} makes a note of it"
        never = [lines.format(run) for run in ("backup", "check")]
        assert ended(["health"], monkeypatch, capsys) == (0, f"ready: {bind}\n", never)
        monkeypatch.setenv("PERSISTENCE_DATA", str(tmp_path / "data"))
        assert ended(["backup", str(tmp_path / "backups")], monkeypatch, capsys).status == 0
        assert ended(["check"], monkeypatch, capsys).status == 0
        assert ended(["health"], monkeypatch, capsys) == (0, f"ready: {bind}\n", [])


@pytest.mark.parametrize("first", ["HTTP/1.1 200 OK\r\nX: ", "HTTP/1.1 503 X\r\nContent-Type: text/plain\r\n\r\n"])
def test_a_service_that_never_comes_to_an_end_is_not_alive(
    first: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is never silent for long."""
    with dripping(first.encode(), b"x") as url:
        status, _, errors = ended(["health", "--url", url, "--timeout", "0.1"], monkeypatch, capsys)
    assert (status, errors) == (1, [f"persistence: {url} is not alive: the service does not finish its answer"])


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--url", "forms:8080"], 1, "'forms:8080' is not a valid address of a service"),
        (["--timeout", "x"], 2, "not a valid float"),
    ],
)
def test_a_wrong_address_is_one_line(
    arguments: list[str], status: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ended(["health", *arguments], monkeypatch, capsys)
    assert found.status == status
    assert text in found.errors[-1]


def test_a_port_that_the_system_chooses_is_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERSISTENCE_BIND", "127.0.0.1:0")
    assert "name the address with --url" in ended(["health"], monkeypatch, capsys).errors[-1]
