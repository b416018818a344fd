"""The whole workflow by the client, through gunicorn with several workers, and then all of it in another service."""

from pathlib import Path
from tempfile import TemporaryFile

import pytest

from persistence.client import ControlFilter, FormClient, PersistenceClient, Query, Role, TextMatch, User
from persistence.errors import ForbiddenError, LockedError, PreconditionError
from persistence.keys import Keys
from tests.client.test_client import FORM, OWN, data
from tests.in_process import serving
from tests.service import Service, running

SETTINGS = """keys = "keys.json"
administrators = ["boss"]
"svc.persistence.files.lease" = true
"svc.persistence.files.enforce-lease" = true
"""
SCAN = bytes(range(256)) * 8000
OPTIONS = ("--config", "settings.toml")


def test_a_form_is_used_by_several_people_and_moves_to_another_service(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    keys = [_prepared(directory) for directory in (before, after)]
    with running(before, workers=2, options=OPTIONS) as service, _client(service, keys[0]) as boss:
        boss.form("hr", "trip").publish(FORM.format(OWN), "next")
        document = _used(boss.acting_as("lea").form("hr", "trip"))
        _edited_by_two(boss, document)
        with TemporaryFile() as archive:
            with boss.export("hr") as exported:
                archive.writelines(exported)
            archive.seek(0)
            with serving(after, options=OPTIONS, alone=True) as other, _client(other, keys[1]) as theirs:
                assert theirs.import_archive(archive).refused == 0
                _is_there(
                    boss.acting_as("lea").form("hr", "trip"), theirs.acting_as("lea").form("hr", "trip"), document
                )


def _prepared(directory: Path) -> str:
    directory.mkdir()
    (directory / "settings.toml").write_text(SETTINGS)
    return Keys(str(directory / "keys.json"), tree=str(directory / "data")).add("boss")


def _client(service: Service, key: str) -> PersistenceClient:
    return PersistenceClient(f"http://127.0.0.1:{service.port}", key=key)


def _used(mine: FormClient) -> str:
    """Lea makes a document with an attachment, drafts a change, and saves it."""
    made = mine.create(data("Rome"), stage="begun")
    scan = mine.attach(made, SCAN, content_type="image/png")
    changed = data("Ostia").replace("</city>", f"</city><scan>{scan.path}</scan>")
    mine.drafts.save(made.document, changed)
    saved = mine.save(made, mine.drafts.load(made.document).xml, stage="sent", valid=True)
    assert not mine.drafts.exists(made.document)
    with pytest.raises(PreconditionError):
        mine.save(made, changed)
    cities = ControlFilter("trip/city", TextMatch.SUBSTRING, "ost")
    assert [(each.document, each.stage) for each in mine.search(Query(controls=(cities,)))] == [(made.document, "sent")]
    with mine.attachment(saved, scan.address.name) as found:
        assert found.read() == SCAN
    return made.document


def _edited_by_two(boss: PersistenceClient, document: str) -> None:
    """A clerk may read, a stranger may not. While Lea has the lease, nobody else writes. What is deleted comes back."""
    clerk, stranger = User("cid", roles=(Role("desk"),)), User("sam")
    mine, theirs = (boss.acting_as(user).form("hr", "trip") for user in ("lea", clerk))
    with pytest.raises(ForbiddenError):
        boss.acting_as(stranger).form("hr", "trip").load(document)
    assert theirs.load(document).operations >= {"read"}
    assert theirs.search().total == 1
    with mine.lease(document, 60):
        with pytest.raises(ForbiddenError):  # where a lease keeps others from writing
            theirs.lease(document)
        with pytest.raises((LockedError, ForbiddenError)):
            theirs.save(document, data("Bari"))
        mine.delete(document)
    assert mine.search().total == 0
    newest = next(each.modified for each in mine.history(document) if not each.is_deleted)
    assert mine.revert(document, revision=newest).is_new
    assert "Ostia" in mine.load(document).xml.decode()


def _is_there(here: FormClient, there: FormClient, document: str) -> None:
    """What the other service has imported is the same: content, owner, stage, times."""
    mine, theirs = here.load(document), there.load(document)
    assert (mine.xml, mine.owner.name, mine.stage) == (theirs.xml, theirs.owner.name, theirs.stage)
    assert (mine.modified, mine.etag) == (theirs.modified, theirs.etag)
    name = mine.xml.decode().partition("<scan>")[2].partition("<")[0].rpartition("/")[2]
    with there.attachment(document, name) as found:
        assert found.read() == SCAN
