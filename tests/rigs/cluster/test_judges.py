"""The judges of the rig: interruptions, losses, histories. The rig itself is ``make test-cluster``."""

from __future__ import annotations

import shutil
import subprocess
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.rigs.cluster import instances, runs
from tests.rigs.cluster.database import EXAMPLE as PATRONI
from tests.rigs.cluster.instances import EXAMPLE as HAPROXY
from tests.rigs.cluster.instances import BalancedLine
from tests.rigs.cluster.runs import INSTANCE, PRIMARY, Fault, interruptions, summary
from tests.rigs.linear.checker import Kind, Operation
from tests.rigs.linear.runs import NOT_LINEAR, Record
from tests.rigs.report import Tally
from tests.rigs.server import NoAnswerError
from tests.service import Answer, Service


@pytest.mark.parametrize(
    ("acknowledged", "seconds"),
    [
        ([9, 10.5, 12, 19, 20.5, 29], [7, 8.5]),
        ([9, 31], [10, 10]),
        ([], [10, 10]),
        ([10 + each / 10 for each in range(201)], [0.1, 0.1]),
    ],
)
def test_an_interruption_is_the_longest_time_without_an_acknowledgement(
    acknowledged: list[float], seconds: list[float]
) -> None:
    faults = [Fault(PRIMARY, "node1", 10.0), Fault(INSTANCE, "first", 20.0)]
    assert [round(each.seconds, 6) for each in interruptions(faults, acknowledged, [], 30.0)] == seconds


def test_interruptions_are_summed_up_by_kind() -> None:
    faults = [Fault(PRIMARY, "node1", 0.0), Fault(PRIMARY, "node2", 20.0), Fault(INSTANCE, "first", 30.0)]
    rows = list(summary(interruptions(faults, [18.0, 25.0, 31.0], [3.0, 22.0], 32.0)))
    assert rows == [(PRIMARY, 2, "5.0", "11.5", "18.0", 2), (INSTANCE, 1, "1.0", "1.0", "1.0", 0)]


@pytest.mark.parametrize("said", [502, 503, 504, ConnectionResetError(), HTTPException()])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_what_does_not_say_what_happened_is_no_answer(
    method: str, said: int | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even with Retry-After, after which other clients of the model know that nothing was done."""
    answers = iter((said, 204))
    monkeypatch.setattr(instances, "_SETTLING", 0.0)
    line = BalancedLine(cast("Service", SimpleNamespace(raw=lambda *_, **__: answered(next(answers)))))
    assert line.ask(method, "/") is None
    answer = line.ask(method, "/")
    assert answer is not None
    assert (answer.status, len(line.unanswered), line.unknown) == (204, 1, int(method == "PUT"))
    assert len(line.written) == int(method == "PUT")


def answered(said: int | Exception) -> Answer:
    if isinstance(said, Exception):
        raise said
    headers = HTTPMessage()
    headers["Retry-After"] = "1"
    return Answer(said, headers, b"")


def test_an_outage_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "_LONGEST_OUTAGE", 0.0)
    line = BalancedLine(cast("Service", SimpleNamespace(raw=lambda *_, **__: answered(503))))
    with pytest.raises(NoAnswerError):
        line.read("GET", "/")


@pytest.mark.parametrize("operations", [1_000, 2_000, 20_000])
def test_the_rounds_have_so_many_operations_on_few_documents(operations: int) -> None:
    named = runs.rounds(operations)
    assert len(named) * 40 == operations
    assert len(set(named)) == operations // 200


@pytest.mark.parametrize(("tag", "violations"), [('"a"', 0), ('"b"', 1)])
def test_a_write_that_was_taken_back_long_after_is_found_out(tag: str, violations: int) -> None:
    """The read at the end of a run belongs to the history: it sees the newest acknowledged revision, not an older."""
    first = Operation(Kind.PUT, 1, 2, 201, token="x", tag='"b"', instant="1")  # noqa: S106
    second = Operation(Kind.PUT, 3, 4, 204, token="y", tag='"a"', instant="2", if_match='"b"')  # noqa: S106
    token, instant = ("y", "2") if violations == 0 else ("x", "1")
    last = Operation(Kind.READ, 9, 10, 200, token=token, tag=tag, instant=instant)
    seen = Record(rounds=[[first, second], *([] for _ in range(4))])
    tally = Tally("long after")
    runs.judge_all(tally, [seen], Record(rounds=[[last]]), 200)
    assert (tally[NOT_LINEAR], tally["undecided"]) == (violations, 0)


def test_haproxy_takes_its_configuration() -> None:
    program = shutil.which("haproxy", path="/usr/sbin:/usr/bin")
    if program is None:
        pytest.skip("HAProxy is not installed")
    places = {
        "BIND": "127.0.0.1:8080",
        "NODE_A": "10.0.0.11:8080",
        "NODE_B": "10.0.0.12:8080",
        "ADMIN": "/run/admin.sock",
    }
    subprocess.run([program, "-c", "-f", str(HAPROXY)], env=places, check=True, capture_output=True)


def test_replication_is_synchronous_in_the_example() -> None:
    """A planted defect of the rig changes these lines."""
    lines = [line.strip() for line in Path(PATRONI).read_text().splitlines()]
    assert {"synchronous_mode: true", "synchronous_mode_strict: true"} <= set(lines)
