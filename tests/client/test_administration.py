"""The client: differences, deleting and purging, indexes, encryption and access tokens, over real requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from persistence.client import DeletedData, PersistenceClient, ReportedDifference
from persistence.errors import BadRequestError, ConflictError, ForbiddenError, NotFoundError, NotSupportedError
from persistence.keys import Keys
from tests.client.test_client import FORM, data
from tests.in_process import serving

TOKENS = (
    '<permissions><permission operations="create read update delete list"><owner/></permission>'
    '<permission operations="create"/>'
    '<permission operations="read -list"><anyone-with-token/></permission></permissions>'
)


@dataclass(frozen=True)
class Callers:
    """Clients of a service whose key may administer and issue tokens, and of one whose key may not."""

    boss: PersistenceClient
    clerk: PersistenceClient


@pytest.fixture(params=["svc", "orbeon"])
def callers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callers]:
    prefix = "svc" if request.param == "svc" else "oxf.fr"
    (tmp_path / "settings.toml").write_text(
        'keys = "keys.json"\nadministrators = ["boss"]\ntoken_issuers = ["boss"]\n'
        f'"{prefix}.access-token.validity.*.*" = 60\n'
    )
    keys = Keys(str(tmp_path / "keys.json"), tree=str(tmp_path / "data"))
    secrets = [keys.add(name) for name in ("boss", "clerk")]
    keys.ensured_signing_secrets()
    with serving(tmp_path, dialect=request.param, options=("--config", "settings.toml"), alone=True) as service:
        url = f"http://127.0.0.1:{service.port}"
        boss, clerk = (PersistenceClient(url, key=key, user="lea", dialect=request.param) for key in secrets)
        with boss, clerk:
            boss.form("hr", "trip").publish(FORM.format(TOKENS), 1)
            yield Callers(boss, clerk)


def test_differences_have_the_words_of_the_form(callers: Callers) -> None:
    trip = callers.boss.form("hr", "trip", 1)
    first = trip.save("a", data("Paris"))
    second = trip.save("a", data("Rome"))
    (found,) = trip.differences("a", first.modified, second.modified)
    assert found == ReportedDifference("value-changed", "city", "", "Paris", "Rome", 0)
    unversioned = callers.boss.form("hr", "trip")
    assert unversioned.differences("a", first.modified, second.modified) == [found]
    assert unversioned.differences(second, second.modified, second.modified) == []
    with pytest.raises(NotFoundError):
        unversioned.differences("none", first.modified, second.modified)
    with pytest.raises(BadRequestError):
        callers.boss.form("hr", "trip", 2).differences("a", first.modified, second.modified)


def test_all_data_is_deleted_and_can_be_brought_back(callers: Callers) -> None:
    trip = callers.boss.form("hr", "trip", 1)
    for name in ("a", "b"):
        trip.save(name, data(name))
    with pytest.raises(ForbiddenError):
        callers.boss.acting_as("bob").form("hr", "trip").delete_all()
    assert trip.delete_all(version=1) == DeletedData(2, 0)
    assert trip.delete_all() == DeletedData(0, 0)
    assert not trip.exists("a")
    (deletion, saved) = trip.history("a")
    assert deletion.is_deleted
    trip.revert("a", revision=saved.modified)
    assert trip.exists("a")


def test_revisions_and_attachments_are_purged_by_administrators(callers: Callers) -> None:
    trip = callers.boss.form("hr", "trip", 1)
    first, _ = trip.save("a", data("Paris")), trip.save("a", data("Rome"))
    trip.attach("a", b"any", "scan.bin")
    with pytest.raises(ForbiddenError):
        callers.clerk.form("hr", "trip").purge_revision("a", first.modified)
    trip.purge_revision("a", first.modified)
    assert len(list(trip.history("a"))) == 1
    with pytest.raises(ConflictError):
        trip.purge_revision("a", trip.load("a").modified)
    trip.purge_attachment("a", "scan.bin")
    assert list(trip.history("a", "scan.bin")) == []


def test_a_token_opens_one_document_for_those_who_may_not(callers: Callers) -> None:
    trip = callers.boss.form("hr", "trip", 1)
    trip.save("a", data("Paris"))
    trip.save("b", data("Rome"))
    with pytest.raises(ForbiddenError):
        callers.clerk.form("hr", "trip", 1).issue_token("a", ["read"], "1h")
    token = trip.issue_token("a", ["read"], "1h")
    stranger = callers.clerk.acting_as("bob")
    with pytest.raises(ForbiddenError):
        stranger.form("hr", "trip").load("a")
    bearer = stranger.with_token(token).form("hr", "trip", 1)
    assert bearer.load("a").xml == data("Paris").encode()
    for document, change in (("b", bearer.load), ("a", bearer.delete), ("b", bearer.delete)):
        with pytest.raises(ForbiddenError) as error:
            change(document)
        assert token not in str(error.value)
    with pytest.raises(ForbiddenError):
        stranger.form("hr", "trip").load("a")


def test_indexes_are_rebuilt(callers: Callers) -> None:
    trip = callers.boss.form("hr", "trip", 1)
    trip.save("a", data("Paris"))
    callers.boss.reindex()
    trip.reindex(1)
    progress = callers.boss.reindexing()
    assert (progress.is_running, progress.current, progress.total) == (False, 0, 0)
    assert [each.document for each in trip.search("paris")] == ["a"]


def test_encrypting_again_needs_a_key(callers: Callers) -> None:
    with pytest.raises(NotSupportedError):
        callers.boss.form("hr", "trip").reencrypt()
    assert callers.boss.reencryptions() == []


def test_the_progress_of_encrypting_again(tmp_path: Path) -> None:
    env = {"PERSISTENCE_ENCRYPTION_KEY": f"k1:{'0' * 64}"}
    with (
        serving(tmp_path, env=env, alone=True) as service,
        PersistenceClient(f"http://127.0.0.1:{service.port}", user="lea") as client,
    ):
        trip = client.form("hr", "trip", 1)
        trip.publish(FORM.format(""))
        trip.save("a", data("Paris"))
        trip.reencrypt(1)
        deadline = time.monotonic() + 30
        while [(each.state, each.current) for each in client.reencryptions()] != [("finished", 1)]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        (done,) = client.reencryptions()
        assert (str(done.form), done.version, done.total) == ("hr/trip", 1, 1)
