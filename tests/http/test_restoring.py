"""One document or form out of a backup, while the service runs: ``persistence restore SRC APP/FORM[/DOC]``."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persistence.cli import commands
from tests import orders
from tests import service as services
from tests.in_process import serving
from tests.orders import found
from tests.service import V1, Service

FORM = "acme/order"
DATA = f"{FORM}/data/D"
_REFERENCE = "/fr/service/persistence/crud/acme/order/data/D"


def order(name: str, *attachments: str) -> bytes:
    held = "".join(f"<email>{_REFERENCE}/{each}</email>" for each in attachments)
    return f"<form><customer><name>{name}</name>{held}</customer></form>".encode()


class Saved:
    """A service, and a backup of what it had: a document of two revisions with an attachment, and another one."""

    def __init__(self, service: Service, backups: Path) -> None:
        self.service = service
        self.backups = backups
        service.put(f"{FORM}/form/form.xhtml", orders.definition(), **V1)
        service.put(f"{DATA}/a.bin", b"first", **V1)
        service.put(f"{DATA}/data.xml", order("Ann", "a.bin"), **V1, Username="ann", Workflow_Stage="open")
        self.first = service.get(f"{DATA}/data.xml")["Svc-Last-Modified"]
        service.put(f"{DATA}/data.xml", order("Bea", "a.bin"), **V1, Username="bea")
        service.put(f"{FORM}/data/E/data.xml", order("Eve"), **V1)
        assert self.run("backup", str(backups)).exit_code == 0

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(commands, [*arguments, "--data", services.place_of(self.service.data)])

    def restore(self, *arguments: str) -> Result:
        return self.run("restore", str(self.backups), *arguments)

    def names(self) -> list[str]:
        query = '<search><query path="customer/name" summary-show="true"/></search>'
        answer = self.service.post(f"search/{FORM}", query)
        assert answer.status == 200, answer.cause
        values = [detail[0][1] for detail in orders.details(answer.body)]
        return [f"{name} {value}" for name, value in zip(found(answer.body), values, strict=True)]

    def modifier(self, document: str) -> list[str | None]:
        done = self.run("history", f"{FORM}/data/{document}", "--json")
        return [json.loads(line).get("modified_by") for line in done.stdout.splitlines()]


@pytest.fixture
def saved(tmp_path: Path) -> Iterator[Saved]:
    with serving(tmp_path / "service") as service:
        yield Saved(service, tmp_path / "backups")


def test_a_document_comes_back_as_a_new_revision_that_is_found(saved: Saved) -> None:
    service = saved.service
    service.put(f"{DATA}/a.bin", b"second", **V1)
    service.put(f"{DATA}/data.xml", order("Zoe", "a.bin"), **V1, Username="zoe")
    assert saved.names() == ["D Zoe", "E Eve"]
    done = saved.restore(f"{FORM}/D", "--as", "adm")
    assert done.exit_code == 0, done.output
    assert service.get(f"{DATA}/data.xml").body == order("Bea", "a.bin")
    assert service.get(f"{DATA}/a.bin").body == b"first"
    assert saved.names() == ["D Bea", "E Eve"]
    assert saved.modifier("D") == ["adm", "zoe", "bea", "ann"]
    assert saved.run("check", "--deep").exit_code == 0


def test_a_document_of_which_nothing_is_left_comes_back(saved: Saved, tmp_path: Path) -> None:
    service = saved.service
    assert saved.run("erase", DATA, "--certificate", str(tmp_path / "c.json"), "--yes").exit_code == 0
    assert saved.names() == ["E Eve"]
    assert saved.restore(f"{FORM}/D").exit_code == 0
    answer = service.get(f"{DATA}/data.xml")
    assert (answer.body, answer["Svc-Created"]) == (order("Bea", "a.bin"), saved.first)
    assert service.get(f"{DATA}/a.bin").body == b"first"
    assert saved.names() == ["D Bea", "E Eve"]
    assert saved.run("check", "--deep").exit_code == 0


def test_what_the_disk_has_changed_comes_back(saved: Saved) -> None:
    """Size and time are right, so that only the digest tells; it is not "as in the backup already"."""
    if services.is_proxied or not services.place_of(saved.service.data).startswith("/"):
        pytest.skip("it damages files: tests/cli/golden/database-upkeep.txt has a database")
    for name in ("data.xml", "a.bin"):
        file = saved.service.data / DATA / name
        before = file.stat()
        with file.open("r+b") as written:
            written.write(b"<g" if name == "data.xml" else b"F")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = saved.restore(f"{FORM}/D")
    assert done.exit_code == 0, done.output
    assert saved.service.get(f"{DATA}/data.xml").body == order("Bea", "a.bin")
    assert saved.service.get(f"{DATA}/a.bin").body == b"first"
    assert "nothing to do" in saved.restore(f"{FORM}/D").output


def test_a_document_comes_back_as_it_was_at_an_instant(saved: Saved) -> None:
    assert saved.first is not None
    done = saved.restore(f"{FORM}/D", "--at", saved.first)
    assert done.exit_code == 0, done.output
    answer = saved.service.get(f"{DATA}/data.xml")
    assert (answer.body, answer["Svc-Workflow-Stage"]) == (order("Ann", "a.bin"), "open")
    assert saved.names() == ["D Ann", "E Eve"]


def test_a_form_comes_back_with_its_definition_and_what_came_since_stays(saved: Saved) -> None:
    service = saved.service
    service.delete(f"{FORM}/form/form.xhtml", **V1)
    service.delete(f"{DATA}/data.xml", **V1)
    service.put(f"{FORM}/data/F/data.xml", order("Fay"), **V1)
    trial = saved.restore(FORM, "--dry-run")
    assert "1 document would come back, 1 as in the backup already" in trial.output
    assert service.get(f"{FORM}/form/form.xhtml", **V1).status == 404
    done = saved.restore(FORM)
    assert done.exit_code == 0, done.output
    assert "1 document came back, 1 as in the backup already" in done.output
    assert service.get(f"{FORM}/form/form.xhtml", **V1).body == orders.definition()
    assert saved.names() == ["D Bea", "F Fay", "E Eve"]
    again = saved.restore(FORM)
    assert "0 documents came back, 2 as in the backup already" in again.output


def test_what_is_damaged_in_the_backup_does_not_come_back(saved: Saved) -> None:
    backup = next(saved.backups.glob("2*Z"))
    path = next(path for path in backup.rglob("data.xml") if path.parent.name == "D")
    status = path.stat()
    content = path.read_bytes().replace(b"Bea", b"Bob")
    path.unlink()
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    saved.service.put(f"{DATA}/data.xml", order("Zoe", "a.bin"), **V1)
    done = saved.restore(f"{FORM}/D")
    assert done.exit_code == 1
    assert "is not what its sidecar says" in str(done.exception)
    assert saved.names() == ["D Zoe", "E Eve"]
    assert saved.restore(FORM).exit_code == 4


def test_what_cannot_be_restored_is_said(saved: Saved) -> None:
    """See ``golden/backup.txt``, too."""
    before = saved.service.get(f"{DATA}/data.xml")["ETag"]
    for arguments, cause in (
        (["acme"], "is not APP/FORM or APP/FORM/DOC"),
        ([f"{FORM}/data/D"], "is not APP/FORM or APP/FORM/DOC"),
        (["--at", "2025-03-04T05:06:07.089Z"], "options of a document or form"),
        ([f"{FORM}/D", "--keys"], "leave the other options out"),
    ):
        done = saved.restore(*arguments)
        assert (done.exit_code, cause in " ".join(done.output.split())) == (2, True), arguments
    done = saved.restore(f"{FORM}/D", "--at", "2001-02-03T04:05:06.789Z")
    assert (done.exit_code, "did not exist at 2001-02-03" in str(done.exception)) == (1, True)
    assert saved.service.get(f"{DATA}/data.xml")["ETag"] == before
