"""The maintenance commands on the tree of a datasource whose definitions are in another tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from persistence.app import create_app
from persistence.providers.opened import init_places
from persistence.settings import load
from tests import orders
from tests.cli.command_runner import PREFIX, Ended, ended
from tests.opened import opened
from tests.sidecars import copied, resealed

CONFIG = """
data = "{0}/data"
"svc.persistence.provider.acme.*.data" = "orders"
"svc.persistence.orders.datasource" = "disk2"
[datasource.disk2]
data = "{0}/disk2"
"""
_BODY = b"<form><customer><name>Ann</name></customer></form>"

Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command on a tree that has the data of a form whose definition is in the default one."""
    file = tmp_path / "own.toml"
    file.write_text(CONFIG.format(tmp_path))
    effective = load(str(file), environment={})
    init_places(effective.settings, effective.properties)
    client = opened(create_app(effective.settings, effective.properties)).test_client()
    for path, body in (("form/form.xhtml", orders.definition()), ("data/D/data.xml", _BODY)):
        assert client.put(f"{PREFIX}acme/order/{path}", data=body).status_code == 201

    def command(*arguments: str, datasource: str | None = "disk2") -> Ended:
        chosen = () if datasource is None else ("--datasource", datasource)
        return ended([*arguments, "--config", str(file), *chosen], monkeypatch, capsys)

    return command


def test_check_finds_nothing_to_say_of_either_tree(run: Run) -> None:
    for datasource in (None, "disk2"):
        done = run("check", "--deep", datasource=datasource)
        assert (done.status, done.out) == (0, ""), done


def test_searches_know_the_controls_of_the_other_tree(run: Run) -> None:
    assert run("reindex").status == 0
    done = run("search", "acme/order", "--path", "customer/name=Ann")
    assert done.status == 0
    assert "Ann" in done.out
    assert run("search", "acme/order", "--path", "customer/nam").status == 1
    assert run("reindex", "acme/order", "--verify").status == 0


def test_show_and_forms_look_at_the_tree(run: Run, tmp_path: Path) -> None:
    assert str(tmp_path / "disk2/acme/order/data/D/data.xml") in run("show", "acme/order/data/D").out
    assert str(tmp_path / "disk2/acme/order") in run("show", "acme/order/data/D", datasource=None).out
    assert "acme/order" in run("forms").out


def test_what_is_put_there_by_hand_gets_the_version_that_the_other_tree_has_published(run: Run, tmp_path: Path) -> None:
    copied(tmp_path / "data/acme/order/form/1", tmp_path / "data/acme/order/form/2")
    resealed(tmp_path / "data/acme/order/form/2/form.xhtml.json", version=2)
    folder = tmp_path / "disk2/acme/order/data/HAND"
    folder.mkdir()
    (folder / "data.xml").write_bytes(_BODY)
    assert run("check", "--adopt", "--all").status == 3
    assert '"version": 2' in (folder / "data.xml.json").read_text()


def test_a_backup_is_of_one_tree(run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert run("backup", str(copy)).status == 0
    assert [path.read_bytes() for path in copy.rglob("data.xml") if ".history" not in path.parts] == [_BODY]
    assert list(copy.rglob("form.xhtml")) == []


def test_what_the_other_tree_marks_is_reencrypted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSISTENCE_ENCRYPTION_KEY", "one:" + "5" * 64)
    marked = orders.definition().replace(b"<fr:index>", b"<fr:encrypt/><fr:index>")
    for path in (tmp_path / "data/acme/order/form/1").glob("form.xhtml"):
        path.write_bytes(marked)
    stored = tmp_path / "disk2/acme/order/data/D/data.xml"
    assert run("check", "--adopt", "--all", datasource=None).status == 3
    assert b"Ann" in stored.read_bytes()
    assert run("reencrypt", "acme/order").status == 0
    assert b"Ann" not in stored.read_bytes()


def test_a_service_does_not_start_where_a_provider_has_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f'data = "{tmp_path}/data"\n"svc.persistence.files.datasource" = "disk3"\n')
    done = ended(["serve", "--config", str(file)], monkeypatch, capsys)
    cause = "persistence: provider 'files' has the datasource 'disk3'; the settings have none"
    assert (done.status, done.errors) == (1, [cause])
    assert not (tmp_path / "data").exists()
