"""``persistence reindex``: the index is rebuilt, with the service running or not; see ``golden/reindex.txt``, too."""

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from persistence.errors import StartupError
from persistence.index.protocol import reported
from persistence.index.sqlite.tables import Generations
from persistence.index.sync.rebuild import rebuild_record
from persistence.storage.layout import Layout
from tests import orders
from tests.cli.command_runner import Place
from tests.commands import persistence
from tests.maintenance.workshop import Workshop
from tests.orders import ORDER
from tests.published import Planter
from tests.service import PUBLIC, Service, running
from tests.sidecars import copied

COMMAND = (sys.executable, "-m", "persistence.cli")
MANY = 1_100
_STEP = 0.002
"""Seconds between two looks at a process: without a pause the test would take the processor from it."""

WRITTEN = b"<search><query>written</query></search>"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The tree of the vectors, without an index."""
    orders.plant(Planter(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def many(root: Path) -> Path:
    """A tree whose index is not made at once."""
    for number in range(MANY):
        copied(root / "acme/order/data/d-1", root / f"acme/order/data/c-{number}")
    return root


def current(root: Path) -> str | None:
    return Generations(Layout(str(root)), ORDER).current()


def found(service: Service) -> list[str]:
    headers = {"Svc-Form-Definition-Version": "all", "Svc-Username": "bob"}
    answer = service.raw("POST", f"{PUBLIC}/search/acme/order", headers, b"<search/>")
    assert answer.status == 200, answer.cause
    return orders.found(answer.body)


EVERY = ["d-4°", "d-3°", "d-2", "d-3", "d-1"]


def test_one_form_is_rebuilt_and_another_left_as_it_is(root: Path) -> None:
    Planter(root).save("acme/other", "d", b"<d/>", "2024-05-06T08:00:00.000Z")
    done = persistence("reindex", "acme/order", data=root)
    assert "5 documents and drafts of 1 form " in done.stderr
    assert not (root / ".index/acme/other").exists()
    before = current(root)
    assert persistence("reindex", "acme/order", data=root).returncode == 0
    assert current(root) not in {None, before}
    assert sum(path.suffix == ".sqlite" for path in (root / ".index/acme/order").iterdir()) == 1


def test_verifying_takes_in_what_differs_and_rebuilds_nothing(root: Path, tmp_path: Path) -> None:
    with running(tmp_path) as service:
        assert found(service) == EVERY
        before = current(root)
        shutil.rmtree(root / "acme/order/data/d-1")
        copied(root / "acme/order/data/d-2", root / "acme/order/data/d-9")
        done = persistence("reindex", "--verify", data=root)
        assert re.match(r"compared \d documents and drafts of 1 form in ", done.stderr)
        assert current(root) == before
        assert sorted(found(service)) == ["d-2", "d-3", "d-3°", "d-4°", "d-9"]


def test_verifying_makes_an_index_where_there_is_none(root: Path) -> None:
    assert persistence("reindex", "--verify", data=root).returncode == 0
    assert current(root) is not None
    assert Workshop(root).check("--deep").findings == []


def test_the_service_answers_and_stores_meanwhile(many: Path, tmp_path: Path) -> None:
    """All that is acknowledged is found afterwards, and the old index answers until then."""
    assert persistence("reindex", data=many).returncode == 0
    with running(tmp_path, threads=4) as service:
        command = [*COMMAND, "reindex", "--data", str(many)]
        stored, states = 0, set()
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None:
                body = b"<form><customer><name>Written</name></customer></form>"
                headers = {"Form_Definition_Version": 1}
                assert service.put(f"acme/order/data/w-{stored}/data.xml", body, **headers).status == 201
                stored += 1
                said = service.raw("POST", f"{PUBLIC}/search/acme/order", {}, WRITTEN)
                assert said.status == 200, said.cause
                assert f'search-total="{stored}"'.encode() in said.body
                status = service.raw("GET", f"{PUBLIC}/reindex/status")
                states.add(b'"indexing"' in status.body)
                time.sleep(10 * _STEP)
            assert process.returncode == 0
        assert stored > 2
        assert True in states
        said = service.raw("POST", f"{PUBLIC}/search/acme/order", {}, WRITTEN)
        assert f'search-total="{stored}"'.encode() in said.body
    assert Workshop(many).check("--deep").findings == []


def test_the_second_of_two_waits(root: Path) -> None:
    with contextlib.ExitStack() as stack:
        (root / ".index").mkdir(exist_ok=True)
        stack.enter_context(reported(rebuild_record(str(root)), lambda: 0))
        command = [*COMMAND, "reindex", "--data", str(root)]
        with subprocess.Popen(command, cwd=root.parent, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr.readline() == "waiting for another index that is being made\n"
            assert process.poll() is None
            assert current(root) is None
            stack.close()
            assert process.wait(30) == 0
    assert current(root) is not None


def in_the_middle(root: Path) -> subprocess.Popen[str]:
    """A command that has begun to make an index, and stands still; one that was quicker is called again."""
    command = [*COMMAND, "reindex", "--data", str(root)]

    def is_begun() -> bool:
        return len(list((root / ".index/acme/order").glob("*.sqlite"))) > 1

    while True:
        before = current(root)
        process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # Where the tests run in the background, it would be ignored; there are no other threads.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        while process.poll() is None:
            if is_begun():
                process.send_signal(signal.SIGSTOP)
                if is_begun() and current(root) == before:
                    return process
                process.send_signal(signal.SIGCONT)
                break
            time.sleep(_STEP)
        process.communicate()


@pytest.mark.parametrize(
    "sign", [signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.long) for each in (signal.SIGINT, signal.SIGTERM))]
)
def test_one_that_is_interrupted_leaves_the_old_index_in_use_and_no_process(many: Path, sign: signal.Signals) -> None:
    assert persistence("reindex", data=many).returncode == 0
    before = current(many)
    with in_the_middle(many) as process:
        if sign is signal.SIGINT:
            os.killpg(process.pid, sign)  # as a terminal does
        else:
            process.send_signal(sign)
        process.send_signal(signal.SIGCONT)
        said = process.stderr.read()  # ends when the last process has that has it open
        assert process.wait(30) != 0
    assert "Traceback" not in said
    assert current(many) == before
    assert [kind for kind, _ in Workshop(many).check("--repair").kinds] in ([], ["stray-temporary"])
    assert Workshop(many).check("--deep").findings == []
    assert persistence("reindex", data=many).returncode == 0


def test_a_terminal_gets_a_progress_bar(many: Path) -> None:
    terminal, theirs = pty.openpty()
    command = [*COMMAND, "reindex", "--data", str(many)]
    with subprocess.Popen(command, cwd=many.parent, stderr=theirs):
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal ends
            while chunk := os.read(terminal, 4096):
                shown += chunk
    os.close(terminal)
    total = str(MANY + 5).encode()
    assert b"reindexing" in shown
    assert total + b"/" + total in shown
    assert b"reindexed 1,105 documents" in shown


def test_only_the_owner_of_the_tree_may(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(root)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(root).st_uid + 1)
    for command in (("reindex",), ("search", "acme/order")):
        done = place.run(*command)
        assert isinstance(done.exception, StartupError)
        assert "run this as that user" in str(done.exception)


def test_what_lies_where_flat_views_are_kept_is_said_in_one_line(root: Path) -> None:
    (root / ".index").mkdir(exist_ok=True)
    os.mkfifo(root / ".index" / ".flat")
    command = [*COMMAND, "reindex", "--data", str(root)]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("persistence: looking at the tables of flat views: Not a directory")
    assert "Traceback" not in done.stderr
