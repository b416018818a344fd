"""Re-encrypting what is stored: by other marks, with another key, under load, and after a kill (spec forms 4.5)."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from lxml import etree

from persistence.app import create_app
from persistence.crypto import MAGIC
from persistence.index.sync.rebuild import IndexJob, JobProcesses
from persistence.settings import Settings
from persistence.storage.locks import LockFile
from tests.asking import Asking
from tests.commands import persistence
from tests.encrypted_form import DEFINITION, OPEN, SECRETS, UNMARKED, data, path, traces
from tests.http.dying import DEFECT
from tests.http.test_encryption import CONTENT, FR, attach, keys_of, raw, save, texts
from tests.in_process import serving
from tests.initialised import initialised
from tests.opened import opened
from tests.served import served
from tests.service import PROVIDER, PUBLIC, Service
from tests.waiting import eventually

REENCRYPT = f"{PUBLIC}/reencrypt"


service = served(has_keys=True)


def plain_form(service: Service, form: str) -> dict[str, str]:
    """A form that marks nothing, with a document of two revisions, its draft, and attachments; the tags by path."""
    assert service.put(f"{form}/form/form.xhtml", UNMARKED).status in (201, 204)
    attach(service, f"{form}/data/1/scan.bin", Hash_Algorithm="A", Hash_Value="hash-of-plain")
    attach(service, f"{form}/data/1/scan.bin", body=CONTENT[::-1])
    attach(service, f"{form}/data/1/photo.bin", "person/photo")
    holders = {name: path(form, "1", f"{name}.bin") for name in ("scan", "photo")}
    save(service, form, body=data(scan=holders["scan"]), Hash_Algorithm="A", Hash_Value="hash-of-data")
    save(service, form, body=data(scan=holders["scan"], photo=holders["photo"]))
    save(service, form, body=data(scan=holders["scan"]), collection="draft")
    return {name: service.head(f"{form}/{name}")["ETag"] or "" for name in NAMES}


NAMES = ("data/1/data.xml", "draft/1/data.xml", "data/1/scan.bin", "data/1/photo.bin")


def reencrypted(service: Service, form: str) -> None:
    report = service.data / ".index/.reencrypted"
    before = report.stat().st_mtime_ns if report.exists() else 0
    started = service.raw("POST", f"{REENCRYPT}/{form}")
    assert (started.status, started.body) == (200, b"")

    def is_done() -> bool:
        if not report.exists() or report.stat().st_mtime_ns == before:
            return False
        status = etree.fromstring(service.raw("GET", REENCRYPT).body)
        found = [each for each in status if f"{each.findtext('application-name')}/{each.findtext('form-name')}" == form]
        return any(each.findtext("current") == each.findtext("total") for each in found)

    eventually(is_done, 60)


def test_what_was_plain_is_encrypted_when_the_form_marks_it_and_back(service: Service, form: str) -> None:
    tags = plain_form(service, form)
    instants = {name: service.head(f"{form}/{name}")["Svc-Last-Modified"] for name in NAMES}
    first = service.raw("GET", f"{PUBLIC}/crud/{form}/data/1/data.xml").headers["Svc-Created"]
    assert len(traces(service.data / form, SECRETS[0])) == 3
    assert service.put(f"{form}/form/form.xhtml", DEFINITION).status == 204
    reencrypted(service, form)
    assert traces(service.data / form, *SECRETS, CONTENT[:50], CONTENT[::-1][:50], "hash-of-plain", "hash-of-data") == [
        (f"data/1/{name}", CONTENT[:50]) for name in ("photo.bin",)
    ]
    for name in NAMES:
        head = service.head(f"{form}/{name}")
        assert (head["ETag"], head["Svc-Last-Modified"]) == (tags[name], instants[name])
    for collection in ("data", "draft"):
        got = etree.fromstring(service.get(f"{form}/{collection}/1/data.xml").body)
        assert texts(etree.tostring(got)) == [SECRETS[0], OPEN, *SECRETS[1:]]
        assert [each.get(f"{FR}attachment-encrypted") for each in got.iter("scan", "photo")] == ["true", None]
    older = service.get(f"{form}/data/1/data.xml?last-modified-time={first}")
    assert (texts(older.body)[0], older["Svc-Hash-Value"]) == (SECRETS[0], "hash-of-data")
    assert service.get(f"{form}/data/1/scan.bin", Decrypt="true").body == CONTENT[::-1]
    assert service.get(f"{form}/data/1/scan.bin").body.startswith(MAGIC)
    assert service.put(f"{form}/data/1/data.xml", data(), {"If-Match": tags["data/1/data.xml"]}).status == 204
    assert service.put(f"{form}/form/form.xhtml", UNMARKED).status == 204
    reencrypted(service, form)
    assert service.get(f"{form}/data/1/scan.bin").body == CONTENT[::-1]
    oldest = min((service.data / form / "data/1/.history").glob("2*scan.bin"))
    assert oldest.read_bytes() == CONTENT
    assert "hash-of-plain" in oldest.with_name(f"{oldest.name}.json").read_text()
    assert traces(service.data / form / "data/1/.history", "hash-of-data")
    assert not traces(service.data / form, "enc2:", MAGIC)


def test_a_value_that_looks_like_the_path_of_an_attachment_is_reencrypted(service: Service, form: str) -> None:
    assert service.put(f"{form}/form/form.xhtml", UNMARKED).status == 201
    looks = path(form, "1", "SECRET-7")
    save(service, form, body=f"<form><person><ssn>{looks}</ssn></person></form>".encode())
    assert service.put(f"{form}/form/form.xhtml", DEFINITION).status == 204
    reencrypted(service, form)
    assert not traces(service.data / form / "data", "SECRET-7")
    assert looks.encode() in service.get(f"{form}/data/1/data.xml").body


def test_a_new_key_takes_over_all_that_the_old_one_has_encrypted(tmp_path: Path) -> None:
    keys = keys_of(tmp_path)
    old = keys.new()
    with serving(tmp_path) as service:
        plain_form(service, "a/b")
        assert service.put("a/b/form/form.xhtml", DEFINITION).status == 204
        reencrypted(service, "a/b")
        new = keys.new()
        assert traces(service.data, old)
        tried = persistence("reencrypt", "--dry-run", "a/b", data=service.data)
        assert (tried.returncode, "5 revisions of 1 form would be re-encrypted" in tried.stderr) == (0, True), tried
        assert traces(service.data, old)
        done = persistence("reencrypt", data=service.data)
        assert (done.returncode, "5 revisions of 1 form re-encrypted" in done.stderr) == (0, True), done
        assert not traces(service.data / "a", old)
        assert traces(service.data / "a", new)
        again = persistence("reencrypt", "a/b", data=service.data)
        assert "0 revisions" in again.stderr
        assert service.get("a/b/data/1/scan.bin", Decrypt="true").body == CONTENT[::-1]
        assert texts(service.get("a/b/data/1/data.xml").body)[0] == SECRETS[0]
        check = persistence("check", "--deep", data=service.data)
        assert check.returncode == 0, check.stdout


def test_the_index_forgets_what_is_encrypted_now(service: Service, form: str) -> None:
    plain_form(service, form)
    assert service.put(f"{form}/form/form.xhtml", UNMARKED, Create_Flat_View="true").status == 204
    assert traces(service.data / ".index/.flat", SECRETS[0])
    query = f"<search><query>{SECRETS[0]}</query><page-size>9</page-size><page-number>1</page-number></search>".encode()

    def hits() -> str | None:
        found = service.raw("POST", f"{PUBLIC}/search/{form}", {"Content-Type": "application/xml"}, query)
        return etree.fromstring(found.body).get("search-total")

    assert hits() == "1"
    assert service.put(f"{form}/form/form.xhtml", DEFINITION).status == 204
    reencrypted(service, form)
    assert hits() == "0"
    assert not traces(service.data / ".index/.flat", *SECRETS)


def test_what_the_real_system_has_encrypted_or_a_proxy_has_stored_is_left_readable(service: Service, form: str) -> None:
    """Without a definition nothing says what to encrypt: what is encrypted stays so, and plain data plain."""
    assert service.put(f"{form}/form/form.xhtml", DEFINITION).status == 201
    save(service, form)
    stored = raw(service, f"{form}/data/1/data.xml").body
    assert service.delete(f"{form}/form/form.xhtml").status == 204
    reencrypted(service, form)
    assert raw(service, f"{form}/data/1/data.xml").body == stored
    keys_of(service.data.parent).new()
    reencrypted(service, form)
    assert raw(service, f"{form}/data/1/data.xml").body != stored
    assert texts(service.get(f"{form}/data/1/data.xml").body)[0] == SECRETS[0]
    assert not traces(service.data / form / "data", *SECRETS)


def test_documents_are_read_and_saved_while_they_are_reencrypted(service: Service, form: str) -> None:
    plain_form(service, form)
    service.publish(form, DEFINITION)
    for document in range(2, 6):
        save(service, form, str(document))

    def use(client: int, _: int) -> str | None:
        path = f"{form}/data/{client + 1}/data.xml"
        got = service.get(path)
        is_right = got.status == 200 and texts(got.body)[0] == SECRETS[0]
        put, file = service.put(path, got.body), service.get(f"{form}/data/1/photo.bin", Decrypt="true")
        is_right = is_right and put.status == 204 and file.body == CONTENT
        return None if is_right else f"{got.status} {got.body!r} {put.cause} {file.status}"

    with Asking(use, 2, 0.02) as asking:  # two clients at full speed would only slow down what they meet
        for _ in range(3):
            keys_of(service.data.parent).new()
            reencrypted(service, form)
    assert asking.failures == []
    reencrypted(service, form)
    assert not traces(service.data / form / "data", *SECRETS)


def older_scan(service: Service, form: str) -> bytes:
    """The first content of the scan."""
    (record,) = (service.data / form / "data/1/.history").glob("2*.scan.bin.json")
    instant = re.sub(r"T(\d\d)-(\d\d)-", r"T\1:\2:", record.name[:24])
    got = service.get(f"{form}/data/1/scan.bin?last-modified-time={instant}", Decrypt="true")
    assert got.status == 200, got.cause
    return got.body


@pytest.mark.parametrize("after", [9, *(pytest.param(after, marks=pytest.mark.long) for after in (1, 2, 5, 14, 20))])
def test_a_kill_leaves_every_document_readable_and_the_next_run_goes_on(tmp_path: Path, after: int) -> None:
    keys_of(tmp_path).new()
    with serving(tmp_path) as service:
        tags = plain_form(service, "a/b")
        assert service.put("a/b/form/form.xhtml", DEFINITION).status == 204
        dying = {"module": "tests.http.dying", "env": {DEFECT: f"rename-{after}"}}  # a rename is a step of a commit
        killed = persistence("reencrypt", "a/b", data=service.data, **dying)
        assert killed.returncode in (-signal.SIGKILL, 0), killed
        for _ in range(2):
            for name in NAMES:
                assert service.head(f"a/b/{name}")["ETag"] == tags[name], name
                got = service.get(f"a/b/{name}", Decrypt="true")
                assert got.status == 200, name
                wanted = {"scan.bin": CONTENT[::-1], "photo.bin": CONTENT}.get(name.split("/")[-1])
                assert got.body == wanted if wanted else texts(got.body)[0] == SECRETS[0]
            assert older_scan(service, "a/b") == CONTENT
            assert persistence("reencrypt", "a/b", data=service.data).returncode == 0
        assert not traces(service.data, *SECRETS)
        assert not [each for each in (service.data / "a").rglob(".*") if each.name != ".history"]


def test_a_run_that_was_killed_is_not_said_to_go_on(service: Service, form: str) -> None:
    app, name = form.split("/")
    report = service.data / ".index/.reencrypted"
    lock = service.data / ".index/.reencrypting"

    def states() -> dict[str | None, str | None]:
        status = etree.fromstring(service.raw("GET", REENCRYPT).body)
        return {each.findtext("form-name"): each.get("state") for each in status}

    def progress(name: str, current: int) -> dict[str, object]:
        return {"app": app, "name": name, "version": None, "current": current, "total": 100}

    before = report.read_bytes() if report.exists() else b"[]"
    report.write_text(json.dumps([progress("before", 7), progress("done", 100), progress(name, 0)]))
    lock.touch()
    try:
        assert states() == {"before": "stopped", "done": "finished", name: "stopped"}
        with LockFile(str(lock)).exclusive("busy"):
            assert states() == {"before": "stopped", "done": "finished", name: "encrypting"}
        assert states()[name] == "stopped"
    finally:
        report.write_bytes(before)


def test_a_form_that_waits_is_not_said_to_be_finished(service: Service, form: str) -> None:
    """Who has asked again must not take the run before for the new one, whichever process answers."""
    assert service.put(f"{form}/form/form.xhtml", DEFINITION).status == 201
    lock = service.data / ".index/.reencrypting"

    def state() -> str | None:
        status = etree.fromstring(service.raw("GET", REENCRYPT).body)
        return next((each.get("state") for each in status if each.findtext("form-name") == form.split("/")[1]), None)

    assert service.raw("POST", f"{REENCRYPT}/{form}").status == 200
    eventually(lambda: state() == "finished")
    with LockFile(str(lock)).exclusive("busy", timeout=10):
        assert service.raw("POST", f"{REENCRYPT}/{form}").status == 200
        assert state() == "waiting"
    eventually(lambda: state() == "finished")


def test_without_a_key_and_for_unknown_forms_nothing_is_begun(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        assert service.raw("POST", f"{REENCRYPT}/a/b").refuses(501, "persistence encryption-key new")
        keys_of(tmp_path).new()
        assert service.put("svc/builder/data/d/data.xml", data()).status == 201
        for form in ("a/b", "svc/builder"):
            assert service.raw("POST", f"{REENCRYPT}/{form}").status == 200
        assert service.raw("GET", REENCRYPT).body == b"<forms/>"
        assert service.raw("POST", f"{REENCRYPT}/a/b", {"Svc-Form-Definition-Version": "next"}).status == 400
        assert service.raw("GET", f"{REENCRYPT}/a/b").status == 405
        assert service.raw("GET", f"{PROVIDER}/reencrypt").status == 404
        done = persistence("reencrypt", "a/b", data=service.data)
        assert (done.returncode, done.stderr.strip()) == (1, "persistence: a/b does not exist")
        assert os.listdir(service.data.parent)


@pytest.mark.parametrize("links", [1, 2])
def test_the_second_name_that_a_killed_write_has_left_goes_with_the_first(tmp_path: Path, links: int) -> None:
    """Killed between the two links of the revision that it was to replace, or after both (found by a crash rig)."""
    keys = keys_of(tmp_path)
    keys.new()
    with serving(tmp_path) as service:
        assert service.put("hr/leave/form/form.xhtml", DEFINITION).status == 201
        save(service, "hr/leave", body=data())
        body = service.get("hr/leave/data/1/data.xml").body
        folder = service.data / "hr/leave/data/1"
        modified = json.loads((folder / "data.xml.json").read_text())["modified"].replace(":", "-")
        (folder / ".history").mkdir(exist_ok=True)
        for name in ("data.xml.json", "data.xml")[:links]:
            os.link(folder / name, folder / ".history" / f"{modified}.{name}")
        keys.new()
        done = persistence("reencrypt", data=service.data)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert list((folder / ".history").iterdir()) == []
        assert service.get("hr/leave/data/1/data.xml").body == body
        save(service, "hr/leave", body=data())
        assert not [path.name for path in (folder / ".history").iterdir() if "~" in path.name]
        checked = persistence("check", "--deep", data=service.data)
        assert checked.returncode == 0, checked.stdout


def test_the_index_is_rebuilt_once_for_all_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rebuilt, run = [], JobProcesses.run

    def counted(processes: JobProcesses, job: IndexJob) -> bool:
        rebuilt.append(job)
        return run(processes, job)

    monkeypatch.setattr(JobProcesses, "run", counted)
    keys = keys_of(tmp_path)
    keys.new()
    settings = Settings(data=initialised(tmp_path / "data"), encryption_keys=str(tmp_path / "var/encryption-keys.json"))
    client = opened(create_app(settings)).test_client()
    for version in "123":
        asked = {"Svc-Form-Definition-Version": version, "Content-Type": "application/xml"}
        assert client.put(f"{PUBLIC}/crud/hr/leave/form/form.xhtml", data=DEFINITION, headers=asked).status_code == 201
        put = client.put(f"{PUBLIC}/crud/hr/leave/data/{version}/data.xml", data=data(), headers=asked)
        assert put.status_code == 201
    keys.new()
    assert client.post(f"{REENCRYPT}/hr/leave").status_code == 200
    eventually(lambda: b'state="finished"' in client.get(REENCRYPT).data, 60)
    assert len(rebuilt) == 1


# Attachments whose bodies have a directory of their own (spec forms 5.5).


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("apart")
    keys_of(directory).new()
    (directory / "big").mkdir()
    settings = (
        'encryption_keys = "var/encryption-keys.json"\n'
        '"svc.persistence.provider.*.*.data.attachments" = "big"\n'
        f'"svc.persistence.big.base-path" = "{directory}/big"\n'
    )
    with serving(directory, settings=settings) as apart:
        yield apart


def reencrypt(apart: Service, *arguments: str) -> str:
    done = persistence("reencrypt", "--config", str(apart.data.parent / "settings.toml"), *arguments, data=apart.data)
    assert done.returncode == 0, done
    return done.stderr


def bodies(apart: Service, form: str) -> list[Path]:
    found = (apart.data.parent / f"big/{form}/data/1").rglob("*")
    return sorted(path for path in found if path.is_file())


def test_bodies_elsewhere_are_reencrypted_with_their_history_and_opened_again(apart: Service, form: str) -> None:
    tags = plain_form(apart, form)
    keys, big = keys_of(apart.data.parent), apart.data.parent / "big"
    old = keys.ring().to_write()
    assert apart.put(f"{form}/form/form.xhtml", DEFINITION).status == 204
    assert "5 revisions" in reencrypt(apart, form, "--dry-run")
    assert not traces(big, MAGIC)
    reencrypted(apart, form)
    assert not traces(apart.data / form, *SECRETS)
    assert [body.read_bytes().startswith(MAGIC) for body in bodies(apart, form)] == [True, False, True]
    assert traces(big, old)
    for name in NAMES:
        assert apart.head(f"{form}/{name}")["ETag"] == tags[name]
    assert apart.get(f"{form}/data/1/scan.bin", Decrypt="true").body == CONTENT[::-1]
    assert older_scan(apart, form) == CONTENT

    keys.new()
    assert "5 revisions" in reencrypt(apart, form)
    assert not traces(big, old)
    assert "0 revisions" in reencrypt(apart, form)
    assert apart.get(f"{form}/data/1/scan.bin", Decrypt="true").body == CONTENT[::-1]

    assert apart.put(f"{form}/form/form.xhtml", UNMARKED).status == 204
    reencrypted(apart, form)
    assert [body.read_bytes() for body in bodies(apart, form)] == [CONTENT, CONTENT, CONTENT[::-1]]
    attach(apart, f"{form}/data/1/scan.bin", body=b"next")
    assert len(bodies(apart, form)) == 4
