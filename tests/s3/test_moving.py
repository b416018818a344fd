"""``persistence move`` with attachments that come to a bucket, or leave one, of trees and databases.

What is refused, and what is said of bodies that are lost, is in ``bucket-move.txt`` of the golden transcripts.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persistence.model.texts import LAST
from persistence.services.purging import PurgeRules, StoragePurge
from persistence.storage.reader import StoreReader
from persistence.storage.store import Store
from tests import forkserver, in_process
from tests.examples import examples
from tests.postgresql.server import Server, fresh_schema
from tests.postgresql.storages import storage_at
from tests.s3.places import V1, D, fill, inside, move, named, require_whole, run, settings_at, states, swept
from tests.s3.server import BUCKET, Fault, S3Server, serving_objects
from tests.served import served
from tests.service import Service
from tests.services.test_import_any_tree import DATA, FORMS, Requests, send
from tests.services.test_import_interrupted import counting
from tests.services.transferring import tree
from tests.storage.bodies_contract import FORM

_apps = count()


service = served(alone=True)


@settings(max_examples=examples(24), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(DATA | FORMS, min_size=1, max_size=12), st.integers(0, 12))
def test_whatever_is_stored_comes_to_the_bucket_and_back_byte_for_byte(
    service: Service, server: S3Server, requests: Requests, pause: int
) -> None:
    """Some requests come between the first pass and the last."""
    app = f"app{next(_apps)}"
    send(service, app, [("PUT", "data/first/data.xml", b"<d/>", {"Form_Definition_Version": 1}), *requests[:pause]])
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        there, other, back = (directory / each for each in ("there", "other", "back"))
        config = settings_at(directory, server, service.data)
        only = ("--match", f"{app}/f")
        move(service.data, there, app, *only, "--prepare", config=config)
        send(service, app, requests[pause:])
        move(service.data, there, app, *only, config=config)
        require_whole(server, app, there)
        assert inside(there) == []
        move(there, other, f"{app}-2", config=settings_at(directory, server, there, app))
        require_whole(server, f"{app}-2", other)
        require_whole(server, app, there)
        assert states(StoreReader(str(other))) == states(StoreReader(str(there)))
        move(other, back, "with-data", config=settings_at(directory, server, other, f"{app}-2"))
        expected = {path: held for path, held in tree(service.data).items() if path.startswith(f"{app}/")}
        assert tree(back) == expected
        assert not any(
            (directory / each / ".bodies").exists() and list((directory / each / ".bodies").iterdir())
            for each in ("there", "other", "back")
        )


@pytest.mark.parametrize("kind", ["tree", "database"])
def test_a_service_on_the_destination_has_the_attachments(
    plain: Service, server: S3Server, tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    """A large one too; the draft is gone since the first pass."""
    is_tree, config = kind == "tree", settings_at(tmp_path, server, plain.data)
    to = str(tmp_path / "to") if is_tree else request.getfixturevalue("database_server").uri(fresh_schema())
    move(plain.data, to, "x", "--prepare", config=config)
    plain.delete("pics/album/draft/D/data.xml", **V1)
    said = move(plain.data, to, "x", config=config).output
    assert f"the properties must lead attachments to s3://{BUCKET}/x" in said
    config = settings_at(tmp_path, server, to, "x")
    run("check", "--deep", config=config)
    with in_process.serving(tmp_path, place=to, options=("--config", config), alone=True) as service:
        for name in ("a.bin", "large.bin", "gone.bin"):
            answer, before = service.get(f"{D}/{name}"), plain.get(f"{D}/{name}")
            assert (answer.status, answer.body, answer["ETag"]) == (before.status, before.body, before["ETag"])
        assert service.put(f"{D}/a.bin", b"a3", **V1).status == 204
    assert (len(server.keys_of("x/")), len(server.keys_of(f"x/{D}/a.bin/"))) == (5, 3)
    if is_tree:
        require_whole(server, "x", to)


def test_what_is_gone_since_the_first_pass_has_no_object_left(plain: Service, server: S3Server, tmp_path: Path) -> None:
    for path in ("pics/album/data/E/data.xml", "pics/album/data/E/e.bin", f"{D}/a.bin"):
        plain.put(path, b"<e/>", **V1)
    to, config = tmp_path / "to", settings_at(tmp_path, server, plain.data)
    move(plain.data, to, "x", "--prepare", config=config)
    assert len(server.keys_of("x/")) == 7
    plain.delete("pics/album/data/E/data.xml", **V1)
    plain.put(f"{D}/data.xml", b"<three/>", **V1)
    purge(plain.data)
    move(plain.data, to, "x", config=config)
    require_whole(server, "x", to)
    assert len(server.keys_of("x/")) == 2
    assert states(StoreReader(str(to))) == states(StoreReader(str(plain.data)))


def purge(root: Path) -> None:
    """Remove older revisions and what is deleted, for good."""
    with Store(str(root), lock_timeout=5) as store:
        for document in list(store.documents(FORM)):
            StoragePurge(store, lambda _: None).purge(FORM, document, PurgeRules(revisions=LAST, tombstones=LAST))


@pytest.mark.parametrize(("first", "then"), [("x", "with-data"), ("with-data", "x"), ("x", "y")])
def test_an_interrupted_move_may_go_on_to_another_place(
    plain: Service, server: S3Server, tmp_path: Path, first: str, then: str
) -> None:
    to, config = tmp_path / "to", settings_at(tmp_path, server, plain.data)
    move(plain.data, to, first, "--prepare", config=config)
    move(plain.data, to, then, config=config)
    if then == "with-data":
        assert tree(to) == tree(plain.data)
    else:
        assert inside(to) == []
        require_whole(server, then, to)


def test_objects_that_are_lost_are_stored_again_until_the_move_has_ended(
    plain: Service, server: S3Server, tmp_path: Path
) -> None:
    to, config = tmp_path / "to", settings_at(tmp_path, server, plain.data)
    move(plain.data, to, "x", "--prepare", config=config)
    del server.objects[server.keys_of("x/")[0]]
    move(plain.data, to, "x", config=config)
    require_whole(server, "x", to)
    seen = len(server.seen)
    assert "1 there already" in move(plain.data, to, "x", config=config).output
    assert not [each for each in server.seen[seen:] if each.startswith(("PUT", "DELETE", "POST"))]
    del server.objects[server.keys_of(f"x/{D}/a.bin")[0]]
    said = move(plain.data, to, "x", config=config, status=4).output
    assert "is not in its place" in said
    said = move(plain.data, to, "with-data", config=config, status=4).output
    assert "is not in its place" in said


def test_a_store_that_cannot_be_used_ends_the_move_which_goes_on_later(
    plain: Service, server: S3Server, tmp_path: Path
) -> None:
    to, config = tmp_path / "to", settings_at(tmp_path, server, plain.data)
    assert "the bucket others does not exist" in str(
        run("move", "--to", str(to), "--attachments", "s3://others/x", config=config, status=1).exception
    )
    assert not to.exists()
    server.faults = [Fault("^(PUT|POST)", 503, "SlowDown", after=1)]
    move(plain.data, to, "x", config=config, status=1)
    server.faults = []
    move(plain.data, to, "x", config=config)
    swept(server, "x", to, StoreReader(str(to)))
    require_whole(server, "x", to)


def test_another_endpoint_is_in_the_address(plain: Service, server: S3Server, tmp_path: Path) -> None:
    with serving_objects() as other:
        place = f"s3://{BUCKET}/x?endpoint={other.url}&region=eu-central-1"
        config = settings_at(tmp_path, server, plain.data, "x")
        run("move", "--to", str(tmp_path / "to"), "--attachments", place, config=config)
        require_whole(other, "x", tmp_path / "to")
    assert server.keys_of() == []


def test_attachments_go_through_databases_and_buckets_and_back(
    plain: Service, server: S3Server, tmp_path: Path, database_server: Server
) -> None:
    first, second = (database_server.uri(fresh_schema()) for _ in range(2))
    there, back = tmp_path / "there", tmp_path / "back"
    move(plain.data, first, "x", config=settings_at(tmp_path, server, plain.data))
    config = settings_at(tmp_path, server, first, "x")
    assert run("check", "--deep", config=config).exit_code == 0
    assert len(server.keys_of("x/")) == 5
    move(first, there, "y", config=config)
    require_whole(server, "y", there)
    assert states(storage_at(first, tmp_path / "local")) == states(StoreReader(str(plain.data)))
    move(there, second, "with-data", config=settings_at(tmp_path, server, there, "y"))
    assert run("check", "--deep", config=settings_at(tmp_path, server, second)).exit_code == 0
    move(second, back, "with-data", config=settings_at(tmp_path, server, second))
    assert tree(back) == tree(plain.data)


def test_a_backup_of_a_database_is_restored_into_another_bucket(
    plain: Service, server: S3Server, tmp_path: Path, database_server: Server
) -> None:
    first, second = (database_server.uri(fresh_schema()) for _ in range(2))
    move(plain.data, first, "x", config=settings_at(tmp_path, server, plain.data))
    config, backups = settings_at(tmp_path, server, first, "x"), str(tmp_path / "backups")
    run("backup", backups, config=config)
    server.objects.clear()
    config = settings_at(tmp_path, server, second, "z")
    run("restore", backups, "--attachments", "s3://forms/z", config=config)
    assert run("check", "--deep", config=config).exit_code == 0
    assert len(server.keys_of("z/")) == 5
    move(second, tmp_path / "back", "with-data", config=config)
    assert inside(tmp_path / "back") == inside(plain.data)
    assert tree(tmp_path / "back") == tree(plain.data)


# A move into a bucket that is killed, or interrupted: no record is without its object, and it goes on afterwards.

_LATE = 0.2
"""Seconds by which the request is late in which the process is killed: the store carries it out all the same."""


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A tree that has its attachments itself; no service has it open, whose threads could be interrupted, too."""
    with in_process.serving(tmp_path / "from", alone=True) as service:
        fill(service)
    return service.data


class _KilledError(BaseException):
    """As if the process ended."""


def _arguments(there: Path, here: Path, config: str) -> list[str]:
    return ["move", "--from", str(there), "--to", str(here), "--attachments", f"s3://{BUCKET}/x", "--config", config]


def _killed(server: S3Server, arguments: list[str], directory: Path, at: int) -> bool:
    """Run a command that is killed in its request of that number; return whether it came so far."""
    fault = Fault(".", seconds=_LATE, after=at, times=1)
    server.faults = [fault]
    with open(os.devnull, "wb") as nowhere:
        streams = {"stdout": nowhere.fileno(), "stderr": nowhere.fileno()}
        process = forkserver.start("persistence.cli", arguments, cwd=directory, env=os.environ, **streams)
    while fault.times and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    process.wait()
    server.faults = []
    if not fault.times:
        time.sleep(1.5 * _LATE)
    return not fault.times


def _require_bodies(server: S3Server, root: Path) -> None:
    """No record is without its object."""
    for key, size in named(root) if (root / "layout.json").exists() else ():
        assert len(server.objects[f"x/{key}"].data) == size


def _require_goes_on(filled: Path, server: S3Server, to: Path, config: str) -> None:
    _require_bodies(server, to)
    move(filled, to, "x", config=config)
    swept(server, "x", to, StoreReader(str(to)))
    require_whole(server, "x", to)
    assert not list((to / ".bodies").iterdir())
    run("check", "--deep", config=settings_at(to.parent, server, to, "x"))
    assert states(StoreReader(str(to))) == states(StoreReader(str(filled)))


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.long)])
def test_a_move_that_is_killed_in_any_request_goes_on(
    filled: Path, server: S3Server, tmp_path: Path, step: int
) -> None:
    config, at = settings_at(tmp_path, server, filled), 0
    while _killed(server, _arguments(filled, tmp_path / str(at), config), tmp_path, at):
        _require_goes_on(filled, server, tmp_path / str(at), config)
        server.objects.clear()
        at += step
    assert at > 8


@pytest.mark.parametrize("step", [59, pytest.param(1, marks=pytest.mark.long)])
def test_a_move_that_is_interrupted_at_any_step_on_the_disk_goes_on(
    filled: Path, server: S3Server, tmp_path: Path, step: int
) -> None:
    config = settings_at(tmp_path, server, filled)
    for at in count(1, step):
        to = tmp_path / str(at)
        if not _interrupted(at, lambda to=to: move(filled, to, "x", config=config)):  # type: ignore[misc]
            break
        _require_goes_on(filled, server, to, config)
        server.objects.clear()
    assert at > 20


def test_on_the_way_back_no_object_of_the_source_goes(filled: Path, server: S3Server, tmp_path: Path) -> None:
    there = tmp_path / "there"
    move(filled, there, "x", config=settings_at(tmp_path, server, filled))
    before, config = server.keys_of(), settings_at(tmp_path, server, there, "x")
    for at in count(1, 47):
        back = tmp_path / str(at)
        if not _interrupted(at, lambda back=back: move(there, back, "with-data", config=config)):  # type: ignore[misc]
            break
        move(there, back, "with-data", config=config)
        assert (tree(back), server.keys_of()) == (tree(filled), before)
    assert at > 20


def _interrupted(at: int, work: Callable[[], object]) -> bool:
    def end() -> None:
        raise _KilledError

    try:
        for _ in counting(at, end):
            work()
    except _KilledError:
        return True
    return False
