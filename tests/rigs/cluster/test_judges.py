"""The judges of the rig: interruptions, losses, histories. The rig itself is ``make test-cluster``."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from email.message import Message
from http.client import HTTPMessage
from pathlib import Path

import pytest

from tests.rigs.cluster import runs
from tests.rigs.cluster.database import EXAMPLE as PATRONI
from tests.rigs.cluster.faults import INSTANCE, PRIMARY, Fault, interruptions, summary
from tests.rigs.cluster.instances import EXAMPLE as HAPROXY
from tests.rigs.cluster.load import SHARED, Acknowledged
from tests.rigs.ledger import Revision, State
from tests.rigs.linear.checker import Kind, Operation
from tests.rigs.linear.client import Record
from tests.rigs.linear.runs import NOT_LINEAR
from tests.rigs.report import Tally
from tests.service import Answer


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


HEADERS = {
    "Content-Type": "application/xml",
    "Content-Length": "4",
    "ETag": '"tag"',
    "Svc-Created": "2026-01-01T00:00:00.000Z",
    "Svc-Last-Modified": "2026-01-01T00:00:00.000Z",
    "Svc-Last-Modified-By-Username": "ann",
    "Svc-Workflow-Stage": "t1",
    "Svc-Form-Definition-Version": "1",
    "Svc-Username": "ann",
}


def faults(document: str, status: int, headers: dict[str, str], body: bytes) -> list[str]:
    """What a judge says of an answer for a document that was acknowledged with ``HEADERS`` and four bytes."""
    message = HTTPMessage()
    for name, value in headers.items():
        Message.__setitem__(message, name, value)
    instant = "2026-01-01T00:00:00.000Z"
    digest = hashlib.sha256(b"<d/>").hexdigest()
    revision = Revision(digest, 4, "application/xml", "1", "t1", "ann", instant, "ann")
    return Acknowledged(document, "t1", State(revision, '"tag"', instant)).faults(Answer(status, message, body))


def test_a_whole_document_is_as_it_was_acknowledged() -> None:
    assert faults("d-1", 200, HEADERS, b"<d/>") == []
    assert faults(SHARED[0], 200, {**HEADERS, "Svc-Created": "before", "Svc-Username": "bob"}, b"<d/>") == []


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (404, HEADERS, b"<d/>"),
        (200, HEADERS, b"<e/>"),
        (200, HEADERS, b"<d/"),
        *((200, {**HEADERS, name: "other"}, b"<d/>") for name in HEADERS),
    ],
)
def test_a_loss_or_another_revision_is_found_out(status: int, headers: dict[str, str], body: bytes) -> None:
    assert faults("d-1", status, headers, body) != []


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
