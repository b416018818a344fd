"""Nothing acknowledged is lost when the clock is set back: drafts stay, and the newest backup is the newest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import findings, persistence
from tests.rigs.clock.skewed import Clock, refusal
from tests.service import Service, alone

pytestmark = pytest.mark.skipif(refusal() is not None, reason=refusal() or "")

_HOUR = 3600.0
_DRAFT = b"<d>a draft</d>"


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    return Clock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def clocked(clock: Clock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with alone(tmp_path_factory.mktemp("clocked"), workers=2, env=clock.environment) as service:
        yield service


@pytest.fixture(autouse=True)
def fast(clock: Clock) -> Iterator[None]:
    """A clock that is an hour fast, until a test corrects it."""
    clock.set(_HOUR)
    yield
    clock.set(0)


def stored(service: Service, path: str, body: bytes = b"<d/>") -> str:
    answer = service.put(path, body, Form_Definition_Version=1)
    assert answer.status in (201, 204), answer.cause
    return str(answer["Svc-Last-Modified"])


def test_the_clock_of_the_service_is_false(clocked: Service, clock: Clock, form: str) -> None:
    """Proof of the method: an hour of the clock is an hour of the instants, in every worker."""
    ahead = [stored(clocked, f"{form}/data/ahead-{number}/data.xml") for number in range(8)]
    clock.set(-_HOUR)
    behind = [stored(clocked, f"{form}/data/behind-{number}/data.xml") for number in range(8)]
    assert max(behind)[:13] < min(ahead)[:13]


@pytest.mark.parametrize("hours", [-1, 0])
def test_instants_of_revisions_increase(clocked: Service, clock: Clock, form: str, hours: int) -> None:
    path = f"{form}/data/document/data.xml"
    instants = [stored(clocked, path, b"<d>0</d>")]
    clock.set(hours * _HOUR)
    instants += [stored(clocked, path, f"<d>{number}</d>".encode()) for number in range(1, 4)]
    assert instants == sorted(set(instants))
    for number, instant in enumerate(instants):
        assert clocked.get(f"{path}?last-modified-time={instant}").body == f"<d>{number}</d>".encode()


@pytest.mark.parametrize("path", ["{}/data/document/data.xml", "{}/data/"], ids=["DELETE", "DELETE of all data"])
def test_a_draft_that_comes_after_a_deletion_stays(clocked: Service, clock: Clock, form: str, path: str) -> None:
    """The second deletion finds nothing that is older than the draft."""
    stored(clocked, f"{form}/data/document/data.xml")
    assert clocked.delete(f"{form}/data/document/data.xml").status == 204
    clock.set(0)
    stored(clocked, f"{form}/draft/document/data.xml", _DRAFT)
    clocked.delete(path.format(form))
    answer = clocked.get(f"{form}/draft/document/data.xml")
    assert (answer.status, answer.body) == (200, _DRAFT)


def test_check_leaves_a_draft_that_comes_after_a_save(clocked: Service, clock: Clock, form: str) -> None:
    stored(clocked, f"{form}/data/document/data.xml")
    clock.set(0)
    stored(clocked, f"{form}/draft/document/data.xml", _DRAFT)
    for options in ((), ("--repair",)):
        done = persistence("check", form, "--json", *options, data=clocked.data, env=clock.environment)
        assert [finding["kind"] for finding in findings(done)] == []
    clock.set(3 * _HOUR)
    persistence("check", form, "--repair", data=clocked.data, env=clock.environment)
    answer = clocked.get(f"{form}/draft/document/data.xml")
    assert (answer.status, answer.body) == (200, _DRAFT)


def test_a_draft_goes_with_the_next_save_all_the_same(clocked: Service, clock: Clock, form: str) -> None:
    """Either way: one that has the later instant, and one that has the earlier."""
    for hours in (1, -1, 0):
        stored(clocked, f"{form}/draft/document/data.xml", _DRAFT)
        clock.set(hours * _HOUR)
        stored(clocked, f"{form}/data/document/data.xml", b"<d>saved</d>")
        assert clocked.get(f"{form}/draft/document/data.xml").status == 404
        clock.set(-hours * _HOUR)


def test_restore_takes_the_backup_that_was_made_last(clock: Clock, tmp_path: Path) -> None:
    with alone(tmp_path / "service", env=clock.environment) as service:
        stored(service, "app/form/data/document/data.xml", b"<d>before</d>")
        first = persistence("backup", str(tmp_path / "backups"), data=service.data, env=clock.environment)
        clock.set(0)
        stored(service, "app/form/data/document/data.xml", b"<d>after</d>")
        second = persistence("backup", str(tmp_path / "backups"), data=service.data, env=clock.environment)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    empty = tmp_path / "restored" / "data"
    empty.parent.mkdir()
    restored = persistence("restore", str(tmp_path / "backups"), data=empty, env=clock.environment)
    assert restored.returncode == 0, restored.stderr
    with alone(empty.parent, data=empty, env=clock.environment) as service:
        assert service.get("app/form/data/document/data.xml").body == b"<d>after</d>"
