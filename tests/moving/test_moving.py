"""Moves between trees: what is replaced and removed in the destination, what is refused, and who may write."""

import os
from itertools import count
from pathlib import Path

import pytest

from persistence.errors import BusyError
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.services.transfers import TransferOutcome, TransferResult
from persistence.storage.store import Store, TreeArrivals
from tests import in_process
from tests.imports.archives import tree
from tests.imports.test_interrupted import counting
from tests.initialised import initialised
from tests.moving.moves import moved
from tests.served import served
from tests.service import Service

V1 = {"Form_Definition_Version": 1}
_apps = count()
MOVED, THERE, REMOVED, REFUSED = map(TransferResult, ("moved", "there", "removed", "refused"))


service = served(alone=True)


@pytest.fixture
def app(service: Service) -> str:
    """An application for one test, with a document of two revisions, an attachment and a draft."""
    app = f"app{next(_apps)}"
    for body in (b"<one/>", b"<two/>"):
        service.put(f"{app}/f/data/d/data.xml", body, **V1)
    service.put(f"{app}/f/data/d/scan.bin", b"scan", **V1)
    service.put(f"{app}/f/draft/d/data.xml", b"<draft/>", **V1)
    return app


def of_app(root: Path, app: str) -> dict[str, tuple[bytes, int]]:
    return {path: held for path, held in tree(root).items() if path.startswith(f"{app}/")}


def results(outcomes: list[TransferOutcome]) -> list[tuple[str, TransferResult]]:
    return [("/".join(each.name.split("/")[2:]), each.result) for each in outcomes]


def test_a_draft_that_was_discarded_since_the_first_pass_is_removed(service: Service, app: str, tmp_path: Path) -> None:
    service.put(f"{app}/f/draft/e/data.xml", b"<draft/>", **V1)

    def meanwhile() -> None:
        assert service.delete(f"{app}/f/draft/e/data.xml", **V1).status == 204
        assert service.put(f"{app}/f/data/d/data.xml", b"<three/>", **V1).status == 204  # which removes its draft

    outcomes = moved(service.data, tmp_path / "to", app, meanwhile)
    assert results(outcomes) == [("data/d", MOVED), ("data/e", REMOVED)]
    assert of_app(tmp_path / "to", app) == of_app(service.data, app)
    assert not TreeArrivals(str(tmp_path / "to")).begun(str(service.data))


def test_a_move_leaves_the_forms_alone_that_another_one_has_begun(service: Service, app: str, tmp_path: Path) -> None:
    other = f"{app}-other"
    service.put(f"{other}/f/data/d/data.xml", b"<other/>", **V1)
    to = tmp_path / "to"

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        moved(service.data, to, app, interrupted)
    before = of_app(to, app)
    moved(service.data, to, other)
    assert of_app(to, app) == before == of_app(service.data, app)
    assert TreeArrivals(str(to)).begun(str(service.data)) == {Form(app, "f")}
    moved(service.data, to, app)
    assert TreeArrivals(str(to)).begun(str(service.data)) == set()


def test_older_revisions_that_were_purged_since_are_removed(service: Service, app: str, tmp_path: Path) -> None:
    def meanwhile() -> None:
        data = DocumentAddress(Form(app, "f"), Collection.DATA, "d", DATA_XML)
        with Store(str(service.data), lock_timeout=5) as store, store.writing(data) as writer:
            assert writer.remove_older(data, store.revisions(data)) == 1

    assert results(moved(service.data, tmp_path / "to", app, meanwhile)) == [("data/d", MOVED)]
    assert of_app(tmp_path / "to", app) == of_app(service.data, app)


def test_a_second_move_finds_everything_there(service: Service, app: str, tmp_path: Path) -> None:
    moved(service.data, tmp_path / "to", app)
    assert results(moved(service.data, tmp_path / "to", app)) == [("data/d", THERE)]
    service.put(f"{app}/f/data/new/data.xml", b"<new/>", **V1)
    moved(service.data, tmp_path / "to", app)
    assert of_app(tmp_path / "to", app) == of_app(service.data, app)


def drafts_come_and_go(service: Service, app: str) -> None:
    """Save and discard drafts that a move has seen, and store others."""
    assert service.put(f"{app}/f/data/saved/data.xml", b"<saved/>", **V1).status == 201
    assert service.delete(f"{app}/f/draft/discarded/data.xml", **V1).status == 204
    assert service.delete(f"{app}/f/draft/d/data.xml", **V1).status in (204, 404)
    for path in ("draft/again/data.xml", "draft/new/data.xml", "data/d/data.xml", "draft/d/data.xml"):
        assert service.put(f"{app}/f/{path}", b"<again/>", **V1).status in (201, 204)


def before_drafts_come_and_go(service: Service, app: str) -> None:
    for name in ("saved", "discarded", "again", "d"):
        service.put(f"{app}/f/draft/{name}/scan.bin", b"scan", **V1)
        assert service.put(f"{app}/f/draft/{name}/data.xml", b"<draft/>", **V1).status in (201, 204)


@pytest.mark.parametrize("is_killed", [False, True])
def test_drafts_that_an_earlier_move_has_stored_do_not_keep_a_later_one_from_its_end(
    service: Service, app: str, tmp_path: Path, *, is_killed: bool
) -> None:
    """The destination is not the move's own any more after the first, but these drafts are."""

    def killed() -> None:
        raise KeyboardInterrupt

    moved(service.data, tmp_path / "to", app)
    before_drafts_come_and_go(service, app)
    if is_killed:
        with pytest.raises(KeyboardInterrupt):
            moved(service.data, tmp_path / "to", app, killed)
    else:
        moved(service.data, tmp_path / "to", app)
    drafts_come_and_go(service, app)
    assert not [each.cause for each in moved(service.data, tmp_path / "to", app) if each.cause]
    assert of_app(tmp_path / "to", app) == of_app(service.data, app)


def test_a_draft_that_somebody_else_has_changed_in_the_destination_stays(
    service: Service, app: str, tmp_path: Path
) -> None:
    before_drafts_come_and_go(service, app)
    with in_process.serving(tmp_path / "to", alone=True) as other:
        moved(service.data, other.data, app)
        assert other.put(f"{app}/f/draft/discarded/data.xml", b"<theirs/>", **V1).status == 204
        assert other.put(f"{app}/f/draft/again/other.bin", b"theirs", **V1).status == 201
        drafts_come_and_go(service, app)
        causes = [each.cause for each in moved(service.data, other.data, app) if each.cause]
        assert causes == [f"{app}/f/data/again has a draft in the destination that would be lost"]
        assert other.get(f"{app}/f/draft/discarded/data.xml").body == b"<theirs/>"
        assert other.get(f"{app}/f/draft/again/other.bin").body == b"theirs"


def test_drafts_from_another_source_stay(service: Service, app: str, tmp_path: Path) -> None:
    """Two places are collected in one: what the second lacks came from the first."""
    service.put(f"{app}/f/draft/first/data.xml", b"<first/>", **V1)
    with in_process.serving(tmp_path / "second", alone=True) as second:
        second.put(f"{app}/g/draft/second/data.xml", b"<second/>", **V1)
        for source in (service.data, second.data, service.data):
            assert not [each.cause for each in moved(source, tmp_path / "to", app) if each.cause]
    for path in ("f/draft/first", "g/draft/second"):
        assert f"{path}/data.xml" in " ".join(of_app(tmp_path / "to", app)), path


def test_what_others_have_stored_in_the_destination_stays(service: Service, app: str, tmp_path: Path) -> None:
    """After a whole move the destination is not the move's own any more."""
    with in_process.serving(tmp_path / "to", alone=True) as other:
        moved(service.data, other.data, app)
        assert other.put(f"{app}/f/data/d/data.xml", b"<theirs/>", **V1).status == 204
        assert other.put(f"{app}/f/data/theirs/data.xml", b"<theirs/>", **V1).status == 201
        service.put(f"{app}/f/data/d/data.xml", b"<ours/>", **V1)
        outcomes = moved(service.data, other.data, app)
        assert [(each.result, each.cause) for each in outcomes] == [
            (REFUSED, f"{app}/f/data/d has other revisions in the destination")
        ]
        assert other.get(f"{app}/f/data/d/data.xml").body == b"<theirs/>"
        assert other.get(f"{app}/f/data/theirs/data.xml").status == 200


def test_a_body_with_a_wrong_digest_is_refused_and_the_rest_goes_on(service: Service, app: str, tmp_path: Path) -> None:
    for name in ("a", "z"):
        service.put(f"{app}/f/data/{name}/data.xml", b"<d/>", **V1)
    content = service.data / app / "f/data/d/scan.bin"
    before = content.stat()
    with content.open("r+b") as file:
        file.write(b"sc4n")
    os.utime(content, ns=(before.st_atime_ns, before.st_mtime_ns))
    outcomes = moved(service.data, tmp_path / "to", app)
    assert sorted(results(outcomes)) == [("data/a", THERE), ("data/d", REFUSED), ("data/z", THERE)]
    cause = next(each.cause for each in outcomes if each.cause)
    assert cause.startswith(f"{app}/f/data/d/scan.bin of ")
    assert "does not have the digest of its sidecar" in cause
    assert {path.split("/")[3] for path in of_app(tmp_path / "to", app)} == {"a", "z"}
    with content.open("r+b") as file:
        file.write(b"scan")
    os.utime(content, ns=(before.st_atime_ns, before.st_mtime_ns))
    moved(service.data, tmp_path / "to", app)
    assert of_app(tmp_path / "to", app) == of_app(service.data, app)


def test_an_edit_by_hand_is_refused(service: Service, app: str, tmp_path: Path) -> None:
    (service.data / app / "f/data/d/data.xml").write_bytes(b"<by-hand/>")
    (outcome,) = moved(service.data, tmp_path / "to", app)
    assert "edited by hand" in outcome.cause


def test_nobody_writes_while_writers_are_kept_out(service: Service, app: str) -> None:
    with Store(str(service.data), lock_timeout=5) as store, store.keeping_writers_out():
        for refused in (
            service.put(f"{app}/f/data/d/data.xml", b"<three/>", **V1),
            service.delete(f"{app}/f/data/d/scan.bin", **V1),
            service.put(f"{app}/f/form/form.xhtml", b"<html/>", **V1),
        ):
            assert refused.status in {400, 503}
            assert refused.status == 400 or refused["Retry-After"]
        assert service.put(f"{app}/f/data/d/data.xml", b"<three/>", **V1).cause.endswith("can only be read for now")
        assert service.get(f"{app}/f/data/d/data.xml").body == b"<two/>"
        with (
            Store(str(service.data), lock_timeout=0.1) as other,
            pytest.raises(BusyError, match="somebody else"),
            other.keeping_writers_out(),
        ):
            pass
    assert service.put(f"{app}/f/data/d/data.xml", b"<three/>", **V1).status == 204


def test_a_lock_file_that_was_removed_ends_the_move(service: Service) -> None:
    with Store(str(service.data), lock_timeout=5) as store, store.keeping_writers_out() as require:
        require()
        (service.data / ".locks/read-only").unlink()
        with pytest.raises(BusyError, match="removed meanwhile"):
            require()


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
def test_a_move_that_is_killed_at_any_step_goes_on(service: Service, app: str, tmp_path: Path, every: int) -> None:
    expected, at = of_app(service.data, app), 1
    while True:
        root = Path(initialised(tmp_path / str(at)))
        was_killed = _killed(service.data, root, app, at)
        moved(service.data, root, app)
        data = DocumentAddress(Form(app, "f"), Collection.DATA, "d", DATA_XML)
        with Store(str(root), lock_timeout=5) as store, store.writing(data) as writer:
            writer.finish(data)  # as the next writer of the file would
            writer.finish(data.moved(Collection.DRAFT))
        assert of_app(root, app) == expected, at
        with Store(str(service.data), lock_timeout=5) as store, store.writing(data):
            pass  # it keeps nobody out any more
        if not was_killed:
            break
        at += every
    assert at > 20


def _killed(there: Path, here: Path, app: str, at: int) -> bool:
    """Move in a process that is killed at a step; ``False`` where it ended before."""
    child = os.fork()
    if child == 0:
        for _ in counting(at, lambda: os._exit(9)):
            moved(there, here, app)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
