"""What a power cut could do to a tree, done by hand: the judge says so, and of an untouched tree nothing."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.rigs.clients import Writer
from tests.rigs.disks import CUT_EXT4, disk, refusal
from tests.rigs.judging import WITH_EVENTS, FeedChange, Verdict, changes, check_and_repair, start_and_judge
from tests.rigs.ledger import Change, Cut, Expected, Ledger, Resource, Revision, State, expected
from tests.rigs.powercut.runs import CAUGHT, COMMANDS, Plan, Rig, judges
from tests.rigs.weakened import DIRECTORY_FSYNC
from tests.service import running
from tests.waiting import eventually

_SAVES = 6
Judged = Callable[..., Verdict]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Expected], list[FeedChange]]:
    """A tree with two documents of several revisions, what is expected of it, and the changes that it shows."""
    directory = tmp_path_factory.mktemp("stored")
    ledger = Ledger()
    with running(directory, env=WITH_EVENTS) as service:
        client = Writer(service, ledger, 0, large=0)
        for _ in range(_SAVES):
            client.save_shared()
        eventually(lambda: len(changes(service)) == _SAVES)
        shown = changes(service)
    return directory / "data", ledger.at(Cut(ledger.tick(), ledger.tick())), shown


@pytest.fixture
def judged(stored: tuple[Path, list[Expected], list[FeedChange]], tmp_path: Path, pool: ProcessPoolExecutor) -> Judged:
    """Do something to a copy of the document with the most revisions, and judge the tree."""
    tree, expected, shown = stored
    data = tmp_path / "data"
    shutil.copytree(tree, data)
    most = max(expected, key=lambda each: len(each.states))

    def judge(tamper: Callable[[Path], None], *, are_shown: bool = True) -> Verdict:
        tamper((data / most.resource.path).parent)
        return pool.submit(start_and_judge, data, expected, shown if are_shown else []).result()

    return judge


def another_stage(document: Path) -> None:
    sidecar = document / "data.xml.json"
    sidecar.write_text(sidecar.read_text().replace('"stage', '"stages'))


def rolled_back(document: Path) -> None:
    last = max((document / ".history").glob("*.data.xml"))
    shutil.copy2(last, document / "data.xml")
    shutil.copy2(last.with_name(f"{last.name}.json"), document / "data.xml.json")


def forgotten(document: Path) -> None:
    for suffix in ("", ".json"):
        min((document / ".history").glob(f"*.data.xml{suffix}")).unlink()


def half_forgotten(document: Path) -> None:
    min((document / ".history").glob("*.data.xml")).unlink()


def in_outbox(document: Path, *statements: str) -> None:
    """Run statements; ``:own`` is the key of the document."""
    own = json.dumps([*document.parts[-4:-2], "data", document.name], separators=(",", ":"))
    with closing(sqlite3.connect(document.parents[3] / ".events/outbox-1.sqlite")) as connection, connection:
        for statement in statements:
            assert connection.execute(statement, {"own": own}).rowcount > 0


def without_an_event(document: Path) -> None:
    in_outbox(document, "DELETE FROM outbox_event WHERE number = 2")


def with_an_event_of_nothing(document: Path) -> None:
    in_outbox(
        document,
        "INSERT INTO outbox_event (recorded, body, number) SELECT recorded, CAST(replace(body, 'hr', 'it') AS blob), 99"
        " FROM outbox_event WHERE number = 2",
    )


def with_other_numbers(document: Path) -> None:
    in_outbox(document, "UPDATE outbox_event SET number = -number", "UPDATE outbox_event SET number = 9 - number * -1")


def as_after_a_power_cut(document: Path) -> None:
    """Only the first event of the document was durable."""
    in_outbox(
        document,
        "DELETE FROM outbox_event WHERE json_extract(body, '$.data.document') = json_extract(:own, '$[3]')"
        " AND json_extract(body, '$.type') != 'document.created'",
        "UPDATE latest SET modified = (SELECT json_extract(body, '$.timestamp') FROM outbox_event"
        " WHERE json_extract(body, '$.data.document') = json_extract(:own, '$[3]')) WHERE address = :own",
    )


def test_what_a_power_cut_takes_of_the_events_is_recorded_again(judged: Judged) -> None:
    """Of each revision, also of those that were replaced before events were durable."""
    assert judged(as_after_a_power_cut, are_shown=False).violations == []


def test_of_an_untouched_tree_there_is_nothing_to_say(
    judged: Judged, tmp_path: Path, pool: ProcessPoolExecutor
) -> None:
    verdict = judged(lambda _: None)
    assert verdict.violations == []
    assert verdict.states >= 2
    assert verdict.older >= _SAVES - 2
    assert pool.submit(check_and_repair, tmp_path / "data").result() == []


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (lambda document: os.truncate(document / "data.xml", 10), "is damaged"),
        (lambda document: (document / "data.xml.json").unlink(), "nothing is there"),
        (lambda document: os.truncate(document / "data.xml.json", 10), "is answered 500"),
        (another_stage, "unknown field `stages`"),
        (rolled_back, "is there; acknowledged was state"),
        (forgotten, "is answered 404"),
        (half_forgotten, "is answered 500"),
        (without_an_event, "the events are"),
        (with_an_event_of_nothing, "'it', 'leave'"),
        (with_other_numbers, "which a follower has seen, is"),
    ],
)
def test_what_a_power_cut_could_do_is_noticed(tamper: Callable[[Path], None], says: str, judged: Judged) -> None:
    assert says in "\n".join(judged(tamper).violations)


def test_the_check_notices_damage_too(judged: Judged, tmp_path: Path, pool: ProcessPoolExecutor) -> None:
    judged(half_forgotten)
    assert pool.submit(check_and_repair, tmp_path / "data").result() != []


# What may be read after a cut follows from what was acknowledged, and from what was in flight.

DATA = Resource("hr/leave/data/D/data.xml")


def change(begun: int, acknowledged: int, tag: str, *, gone: bool = False) -> Change:
    revision = None if gone else Revision(tag, 1, "application/xml", "1", "", f"user-{tag}")
    return Change(DATA, begun, acknowledged, State(revision, tag, f"instant-{tag}"))


def test_the_last_acknowledged_change_and_those_in_flight_are_possible() -> None:
    """A cut between two numbers; what began after it is impossible, and what was replaced before it is older."""
    changes = [change(1, 2, "a"), change(3, 4, "b"), change(5, 9, "c"), change(12, 13, "d")]
    (each,) = expected(changes, Cut(began=6, ended=7))
    assert [each.current(tag) for tag in ("a", "b", "c", "d", None)] == [None, 2, 3, None, None]
    assert [state.etag for state in each.older(2)] == ["a"]
    assert [state.etag for state in each.older(3)] == ["a", "b"]


def test_nothing_read_promises_the_least_of_what_it_may_mean() -> None:
    """Stored and deleted while the picture was taken: nothing to be read may be that neither is on the disk."""
    (each,) = expected([change(5, 6, "a"), change(7, 8, "b", gone=True)], Cut(began=4, ended=9))
    assert each.current(None) == 0
    (each,) = expected([change(1, 2, "a"), change(7, 8, "b", gone=True)], Cut(began=4, ended=9))
    assert each.current(None) == 2
    assert [state.etag for state in each.older(2)] == ["a"]


def test_the_order_among_clients_is_that_of_instants() -> None:
    """The one that began first may have been stored last."""
    (each,) = expected([change(1, 4, "b"), change(2, 3, "a")], Cut(began=5, ended=6))
    assert [each.current(tag) for tag in ("a", "b")] == [None, 2]


# A power cut loses nothing that was acknowledged; and the rig notices a missing protection. Here on the file system
# with the most users; the long run takes all of them.

pytestmark = pytest.mark.xdist_group("loop")  # there are few loop devices

_PLAN = Plan(at_rest=4, under_load=4, real_every=8)
_WEAKENED_PICTURES = 4


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory, pool: ProcessPoolExecutor) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp(CUT_EXT4.title)
    reason = refusal(CUT_EXT4, directory, is_to_cut=True)
    if reason is not None:
        pytest.skip(reason)
    with disk(CUT_EXT4, directory) as made:
        yield Rig(made, directory, pool)


def test_every_acknowledged_write_survives_a_power_cut(on_disk: Rig) -> None:
    """Whole, with its headers and its older revisions; the service starts, and works on."""
    outcome = on_disk.run(_PLAN)
    assert outcome.violations == []
    assert outcome["started for real"] == 1
    assert outcome["in flight at the cut"] > 0
    assert outcome["states read"] > outcome["snapshots"]
    assert outcome["older revisions read"] > 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_power_cut_under_a_command_loses_nothing(on_disk: Rig, command: str) -> None:
    """What is current stays, a second run completes it, and ``check --deep`` finds nothing then."""
    outcome = on_disk.run_command(command, 2)
    assert outcome.violations == []
    assert outcome["snapshots"] > 1
    assert outcome["states read"] > 0


def test_a_missing_fsync_of_names_is_noticed(on_disk: Rig) -> None:
    """The long run takes every protection away, one after the other; this is the one that is hidden most easily."""
    assert on_disk.run_without(DIRECTORY_FSYNC, _WEAKENED_PICTURES)[CAUGHT] > 0


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessPoolExecutor]:
    with judges(tmp_path_factory.mktemp("judges")) as made:
        yield made
