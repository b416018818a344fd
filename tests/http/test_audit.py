"""The audit of requests: which have a line, what it says, and what happens if it cannot be written."""

import errno
import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from persistence.audit.verification import verify
from persistence.dialect import DIALECTS
from persistence.errors import StartupError
from persistence.keys import Keys
from persistence.storage import files
from tests.http.test_documents import SINGLETON
from tests.http.test_leases import lock, unlock
from tests.http.test_permissions import definition
from tests.in_process import serving
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service, running
from tests.waiting import at_once

CONTENT = "confidential-content"
FORM = "hr/leave"
DATA = f"<d>{CONTENT}</d>".encode()


@contextmanager
def audited(
    directory: Path,
    dialect: str = "svc",
    more: str = "",
    *,
    reads: bool = False,
    is_real: bool = False,
    alone: bool = False,
    **env: object,
) -> Iterator[Service]:
    """A service with an audit, and a form whose data only its owner may read."""
    prefix = DIALECTS[dialect].property_prefix
    directory.mkdir(parents=True, exist_ok=True)
    permissions = '{"owner": ["create", "read", "update", "delete", "list"]}'
    settings = f"""keys = "keys.json"\naudit = "file"\naudit_file = "audit/audit.jsonl"\n{more}
"{prefix}permissions.hr.*" = '{permissions}'
"{prefix}persistence.*.enforce-lease" = true
"{prefix}audit.reads.hr.*" = {str(reads).lower()}
"""
    start: Callable[..., AbstractContextManager[Service]] = running if is_real else serving
    if alone:  # the service behind another one would have to be told of the same properties
        start = partial(serving, alone=True)
    variables = {f"PERSISTENCE_{name.upper()}": str(value) for name, value in env.items()}
    with start(directory, dialect=dialect, settings=settings, env=variables) as service:
        yield service


def path_of(directory: Path) -> str:
    return f"{directory}/audit/audit.jsonl"


def lines(directory: Path) -> list[dict[str, object]]:
    """The lines of the audit, which is in order."""
    assert verify(path_of(directory), lambda _: None, must_be_sealed=False).findings == []
    return [json.loads(line) for line in Path(path_of(directory)).read_text().splitlines()]


def last(directory: Path, *names: str) -> tuple[object, ...]:
    line = lines(directory)[-1]
    return tuple(line.get(name) for name in names)


@pytest.mark.parametrize("face", [PUBLIC, PROVIDER], ids=["public", "provider"])
@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_every_change_has_a_line(tmp_path: Path, dialect: str, face: str) -> None:
    with audited(tmp_path, dialect) as service:
        service.face = face
        sent = {"X-Request-Id": "r-1", "X-Forwarded-For": "192.0.2.7, 10.1.1.1"}
        stored = service.put(f"{FORM}/data/A/data.xml", DATA, sent, **V1, Username="lea")
        assert stored.status == 201
        line = lines(tmp_path)[-1]
        for name in ("at", "prev", "digest"):
            line.pop(name)
        assert line == {
            "n": 1,
            "action": "create",
            "id": "r-1",
            "app": "hr",
            "form": "leave",
            "collection": "data",
            "document": "A",
            "name": "data.xml",
            "version": 1,
            "revision": (stored["ETag"] or "").strip('"'),
            "status": 201,
            "user": "lea",
            "peer": "127.0.0.1",
            "forwarded": "192.0.2.7, 10.1.1.1",
        }
        is_proxied = (dialect, face) == ("orbeon", PROVIDER)  # there a proxy says whether there is something
        what = ("action", "collection", "document", "name", "status")
        for method, name, body, expected in (
            ("PUT", "data/A/data.xml", DATA, ("update", "data", "A", "data.xml", 204)),
            ("PUT", "data/A/scan.pdf", DATA, ("create", "data", "A", "scan.pdf", 201)),
            ("PUT", "draft/A/data.xml", DATA, ("create", "draft", "A", "data.xml", 201)),
            ("PUT", "form/logo.png", DATA, ("create", "form", None, "logo.png", 201)),
            ("DELETE", "data/A/scan.pdf", None, ("delete", "data", "A", "scan.pdf", 204)),
            ("DELETE", "data/A/data.xml", None, ("delete", "data", "A", "data.xml", 204)),
        ):
            own: dict[str, object] = dict(V1) if method == "PUT" or is_proxied else {}
            if is_proxied and expected[0] == "update":
                own["Created_Existing"] = "2025-03-04T05:06:07.089Z"
            answer = service.ask(method, f"{FORM}/{name}", body, Username="lea", **own)
            assert answer.status == expected[-1], answer.cause
            assert last(tmp_path, *what) == expected
        if not is_proxied:  # which has no such request
            service.put(f"{FORM}/data/B/data.xml", DATA, **V1, Username="lea")
            service.delete(f"{FORM}/data/", **V1, Username="lea")
            assert last(tmp_path, "action", "collection", "documents", "status") == ("delete", "data", 1, 200)


def test_the_outcome_is_there_where_a_request_was_refused(tmp_path: Path) -> None:
    path = f"{FORM}/data/A/data.xml"
    outcome = ("action", "document", "user", "status")
    with audited(tmp_path, alone=True) as service:
        assert service.put(path, DATA, **V1, Username="lea").status == 201
        for answer, status, action, user in (
            (lambda: service.put(path, DATA, **V1, Username="bob"), 403, "write", "bob"),
            (lambda: service.put(path, DATA, {"If-Match": '"x"'}, Username="lea"), 412, "write", "lea"),
            (lambda: service.put(path, b"<d>", Username="lea"), 400, "write", "lea"),
            (lambda: service.delete(path, Username="bob"), 403, "delete", "bob"),
            (lambda: lock(service, path, "cat"), 403, "lease", None),
            (lambda: lock(service, path, "cat", Username="lea"), 200, "lease", "cat"),
            (lambda: service.put(path, DATA, Username="lea"), 423, "write", "lea"),
            (lambda: service.delete(path, Username="lea"), 423, "delete", "lea"),
            (lambda: unlock(service, path, "cat", Username="lea"), 200, "release", "cat"),
        ):
            assert answer().status == status
            assert last(tmp_path, *outcome) == (action, "A", user, status)
        assert service.delete(f"{FORM}/data/NONE/data.xml", Username="lea").status == 404
        assert last(tmp_path, *outcome) == ("delete", "NONE", "lea", 404)
        assert service.put("one/of/form/form.xhtml", SINGLETON).status == 201
        assert service.put("one/of/data/A/data.xml", DATA, **V1).status == 201
        assert service.put("one/of/data/B/data.xml", DATA, **V1).status == 409
        assert last(tmp_path, "action", "app", "document", "status") == ("write", "one", "B", 409)
        assert lock(service, "one/of/data/L/data.xml", "cat").status == 200
        assert lock(service, "one/of/data/L/data.xml", "bob").status == 423
        assert last(tmp_path, "action", "document", "status") == ("lease", "L", 423)


def test_reads_have_lines_only_where_a_property_asks(tmp_path: Path) -> None:
    for reads in (False, True):
        directory = tmp_path / str(reads)
        with audited(directory, reads=reads) as service:
            for form in (FORM, "other/form"):
                service.put(f"{form}/form/form.xhtml", SINGLETON.replace(b"true", b"false"))
                service.put(f"{form}/data/A/data.xml", DATA, **V1, Username="lea")
                service.put(f"{form}/data/A/a.bin", DATA, **V1, Username="lea")
            before = len(lines(directory))
            found = [outcome for form in (FORM, "other/form") for outcome in reading(service, form)]
            read = [(line["action"], line["app"], line["status"]) for line in lines(directory)[before:]]
            assert read == ([(action, "hr", status) for action, status in found[: len(found) // 2]] if reads else [])


def reading(service: Service, form: str) -> list[tuple[str, int]]:
    """All ways to read data, and what the audit should say of each."""
    search = f"<search><query>{CONTENT}</query></search>".encode()
    xml = {"Content-Type": "application/xml"}
    own = {f"{service.prefix}Username": "lea"}
    asked: list[tuple[str, Answer]] = [
        ("read", service.get(f"{form}/data/A/data.xml", Username="lea")),
        ("read", service.head(f"{form}/data/A/a.bin", Username="lea")),
        ("read", service.get(f"{form}/data/A/data.xml", Username="bob")),
        ("read", service.get(f"{form}/data/NONE/data.xml")),
        ("search", service.raw("POST", f"{PUBLIC}/search/{form}", {**xml, **own}, search)),
        ("history", service.raw("GET", f"{PUBLIC}/history/{form}/A", own)),
        ("attachments", service.raw("GET", f"/fr/service/{form}/attachments?document=A", own)),
    ]
    service.get(f"{form}/form/form.xhtml")
    service.raw("GET", f"{PUBLIC}/form/{form}")
    service.raw("GET", "/healthz")
    return [(action, answer.status) for action, answer in asked]


def test_pages_that_show_form_data_have_lines_where_reads_have_them(tmp_path: Path) -> None:
    secret = Keys(f"{tmp_path}/keys.json", tree=f"{tmp_path}/data").add("desk")
    with audited(tmp_path, more='administrators = ["desk"]', reads=True) as service:
        service.extra["Authorization"] = f"Bearer {secret}"
        for form in (FORM, "other/form"):
            service.put(f"{form}/form/form.xhtml", SINGLETON.replace(b"true", b"false"))
            service.put(f"{form}/data/A/a.bin", DATA, **V1, Username="lea")
            service.put(f"{form}/data/A/data.xml", DATA, **V1, Username="lea")
            service.put(f"{form}/data/A/data.xml", DATA, Username="lea")
        form_type = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = service.raw("POST", "/admin/login", form_type, f"name=desk&secret={secret}".encode())
        cookie = {"Cookie": str(answer.headers["Set-Cookie"]).partition(";")[0]}
        revisions = service.raw("GET", f"{PUBLIC}/history/{FORM}/A", {"Svc-Username": "lea"}).body.decode()
        newer, older = re.findall(r'modified-time="([^"]+)"', revisions)[:2]
        before = len(lines(tmp_path))
        service.raw("GET", f"/admin/forms/{FORM}/data/A")  # without a session
        for form in ("other/form", FORM):
            for path, status in (
                ("", 200),
                ("/documents.zip", 200),
                ("/1", 200),
                ("/1?q=confidential-search", 200),
                ("/1/documents.csv", 200),
                ("/1/definition", 200),
                ("/1/deleted", 200),
                ("/data/A", 200),
                ("/data/A/data.xml", 200),
                ("/data/A/attachments/a.bin", 200),
                (f"/data/A/changes?older={older}&newer={newer}", 200),
                ("/data/NONE", 404),
            ):
                found = service.raw("GET", f"/admin/forms/{form}{path}", cookie)
                assert found.status == status or form != FORM, (path, found.body)
        for path in ("", f"search?q={CONTENT}", "search?q=nothing", "forms", "health", "audit", "keys", "settings"):
            assert service.raw("GET", f"/admin/{path}", cookie).status == 200
        what = ("action", "app", "form", "collection", "document", "name", "version", "status", "key")
        assert [tuple(line.get(name) for name in what) for line in lines(tmp_path)[before:]] == [
            ("search", "hr", "leave", None, None, None, None, 200, "desk"),
            ("export", "hr", "leave", None, None, None, None, 200, "desk"),
            ("search", "hr", "leave", None, None, None, 1, 200, "desk"),
            ("search", "hr", "leave", None, None, None, 1, 200, "desk"),
            ("csv", "hr", "leave", None, None, None, 1, 200, "desk"),
            ("read", "hr", "leave", None, None, None, 1, 200, "desk"),
            ("read", "hr", "leave", "data", "A", None, None, 200, "desk"),
            ("read", "hr", "leave", "data", "A", None, None, 200, "desk"),
            ("read", "hr", "leave", "data", "A", "a.bin", None, 200, "desk"),
            ("history", "hr", "leave", "data", "A", None, None, 200, "desk"),
            ("read", "hr", "leave", "data", "NONE", None, None, 404, "desk"),
            ("search", None, None, None, None, None, None, 200, "desk"),
        ]
        assert lines(tmp_path)[-1]["details"] == {"forms": [FORM]}
    assert "confidential" not in Path(path_of(tmp_path)).read_text()


def test_what_administrators_do_has_lines(tmp_path: Path) -> None:
    keys = Keys(f"{tmp_path}/keys.json", tree=f"{tmp_path}/data")
    admin, other = keys.add("desk"), keys.add("runtime")
    keys.add_signing()
    more = 'administrators = ["desk"]\ntoken_issuers = ["desk"]\n"svc.access-token.validity.*.*" = 60'
    with audited(tmp_path, more=more) as service:
        if service.process is not None:
            pytest.skip("another service has the forms")
        own = {"Authorization": f"Bearer {admin}", "Svc-Username": "lea"}
        service.extra["Authorization"] = f"Bearer {admin}"
        path = f"{FORM}/data/A/data.xml"
        service.put(f"{FORM}/form/form.xhtml", definition(None))
        first = service.put(path, DATA, **V1, Username="lea")["Svc-Last-Modified"]
        service.put(path, b"<d/>", Username="lea")
        restore, erased = f"{PUBLIC}/history/{FORM}/A/restore", {"what": "drafts", "older_than": "1d", "dry_run": True}
        moment, exported = f"last-modified-time={first}", {"match": ["hr/leave"], "decrypt": "true"}
        done = [
            ("POST", f"{restore}?{moment}", "revert", 204, {"instant": first}),
            ("POST", restore, "revert", 400, None),
            ("DELETE", f"{PUBLIC}/crud/{path}?force-delete=true&{moment}", "purge", 204, {"instant": first}),
            ("POST", f"{PUBLIC}/purge?what=drafts&older-than=1d", "purge", 200, erased),
            ("POST", f"{PUBLIC}/reindex", "reindex", 200, None),
            ("GET", f"{PUBLIC}/export?match=hr/leave&decrypt=true", "export", 200, exported),
            ("POST", f"{PUBLIC}/import?dry-run=true", "import", 415, None),
            ("POST", f"{PUBLIC}/token/{FORM}/A?operations=read&expires=1h", "token", 200, None),
            ("POST", "/fr/service/publish", "publish", 400, None),
        ]
        for method, target, action, status, details in done:
            answer = service.raw(method, target, {**own, "Content-Type": "text/plain"}, b"")
            assert answer.status == status, (target, answer.cause)
            said = last(tmp_path, "action", "status", "key", "user", "details")
            assert said == (action, status, "desk", "lea", details)
        assert answer.body
        for _, target, action, _, _ in done[2:7]:
            method = "DELETE" if "crud" in target else "POST"
            if action != "reindex":
                service.extra["Authorization"] = f"Bearer {other}"
                assert service.raw(method, target, body=b"").status == 403
                assert last(tmp_path, "action", "status", "key") == (action, 403, "runtime")
        service.extra["Authorization"] = f"Bearer {admin}"
        form = definition(None).replace(b"</metadata>", b"<application-name>hr</application-name></metadata>")
        published = service.raw("POST", "/fr/service/publish", {"Content-Type": "application/xml"}, form)
        assert (published.status, last(tmp_path, "action", "status")) == (400, ("publish", 400))
        whole = form.replace(b"</metadata>", b"<form-name>trip</form-name></metadata>")
        assert service.raw("POST", "/fr/service/publish", {"Content-Type": "application/xml"}, whole).status == 200
        what = ("action", "app", "form", "collection", "version", "status")
        assert last(tmp_path, *what) == ("publish", "hr", "trip", "form", 1, 200)
        before = len(lines(tmp_path))
        for target in ("/crud", "/crud/x", "/nowhere", f"{PUBLIC}/crud/a/b/c/d/e/f"):
            service.raw("PUT", target, body=b"")
            service.raw("GET", target)
        assert len(lines(tmp_path)) == before, "there is nothing at these paths"


def test_nothing_of_content_and_no_secret_is_in_it(tmp_path: Path) -> None:
    tmp_path.mkdir(exist_ok=True)
    key = Keys(f"{tmp_path}/keys.json", tree=f"{tmp_path}/data").add("runtime")
    with audited(tmp_path, reads=True) as service:
        service.extra["Authorization"] = f"Bearer {key}"
        path = f"{FORM}/data/A/data.xml"
        service.put(path, DATA, **V1, Username="lea")
        assert last(tmp_path, "key", "user") == ("runtime", "lea")
        service.put(f"{path}?valid={CONTENT}", DATA, **V1)
        service.get(f"{path}?fr-access-token={CONTENT}")
        assert last(tmp_path, "token", "status") == (True, 403)
        service.get(f"{path}?last-modified-time={CONTENT}", Username="lea")
        service.put(path, f"<a>{CONTENT}".encode(), Username="lea", Workflow_Stage=CONTENT)
        reading(service, FORM)
        before = len(lines(tmp_path))
        service.extra["Authorization"] = f"Bearer {CONTENT}"
        assert service.put(path, DATA).status == 401
        service.extra.clear()
        assert service.raw("PUT", "/crud/a/../b", body=b"x").status == 401
        assert len(lines(tmp_path)) == before, "strangers do not fill the audit"
    text = Path(path_of(tmp_path)).read_text()
    assert (CONTENT not in text, key not in text) == (True, True)


def test_odd_names_make_one_line_each(tmp_path: Path) -> None:
    with audited(tmp_path) as service:
        names = ['a"b', "ü\u202e", "%E2%80%A8", "a%20b", "x" * 250]
        for name in names:
            quoted = name if name.isascii() and '"' not in name else "".join(f"%{byte:02X}" for byte in name.encode())
            service.put(f"{FORM}/data/{quoted}/data.xml", DATA, {"X-Forwarded-For": "y" * 5000}, **V1, Username="lea")
        found = lines(tmp_path)
        assert [line["document"] for line in found] == ['a"b', "ü\u202e", "\u2028", "a b", "x" * 250]
        assert {len(str(line["forwarded"])) for line in found} == {200}
        service.raw("PUT", f"{PUBLIC}/crud/{FORM}/data/C/data.xml", {"Svc-Username": "\xff", "Content-Length": "0"})
        assert last(tmp_path, "document", "user", "status") == ("C", None, 400)


def break_audit(directory: Path) -> None:
    """Put a directory where the file is to be: no line can be written."""
    os.rename(path_of(directory), f"{path_of(directory)}.1")
    os.mkdir(path_of(directory))


def mend_audit(directory: Path) -> None:
    os.rmdir(path_of(directory))
    os.rename(f"{path_of(directory)}.1", path_of(directory))


def test_without_the_setting_changes_go_on_and_lost_lines_are_counted(tmp_path: Path) -> None:
    path = f"{FORM}/data/A/data.xml"
    with audited(tmp_path) as service:
        assert service.put(path, DATA, **V1, Username="lea").status == 201
        break_audit(tmp_path)
        assert service.put(path, DATA, Username="lea").status == 204
        assert service.put(path, DATA, Username="bob").status == 403
        mend_audit(tmp_path)
        assert service.put(path, DATA, Username="lea").status == 204
        assert last(tmp_path, "n", "lost", "status") == (2, 2, 204)
    found = verify(path_of(tmp_path), lambda _: None, must_be_sealed=False)
    assert found.notes == ["2 lines could not be written, as later ones say"]


def test_with_the_setting_nothing_is_changed_without_a_line(tmp_path: Path) -> None:
    path = f"{FORM}/data/A/data.xml"
    with audited(tmp_path, reads=True, audit_required="true") as service:
        assert service.put(path, DATA, **V1, Username="lea").status == 201
        begin, end = lines(tmp_path)
        assert (begin["phase"], begin["action"], begin["document"], end["begun"]) == ("begin", "write", "A", begin["n"])
        break_audit(tmp_path)
        assert service.put(path, b"<d>new</d>", Username="lea").refuses(500, "writing the audit")
        assert service.delete(path, Username="lea").status == 500
        assert service.put(f"{FORM}/form/form.xhtml", SINGLETON).status == 500
        assert service.get(path, Username="lea").status == 500, "it must be read with a line only"
        assert service.get(f"{FORM}/form/form.xhtml").status == 404
        mend_audit(tmp_path)
        read = service.get(path, Username="lea")
        assert (read.status, read.body) == (200, DATA)
    assert verify(path_of(tmp_path), lambda _: None, must_be_sealed=False).notes == []


def test_what_is_stored_is_said_to_be_and_a_full_disk_is_507(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of an outcome that cannot be written: the change is there, and the audit has its beginning.

    A line that is refused in its middle: nothing is stored, and the next writer closes the piece.
    """
    path, whole = f"{FORM}/data/A/data.xml", files.write_all

    def refuse(descriptor: int, data: bytes) -> None:
        if b'"prev":"' in data:
            os.write(descriptor, data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(descriptor, data)

    with audited(tmp_path, audit_required="true") as service:
        if service.process is not None:
            pytest.skip("the failure is injected into this process")
        assert service.put(path, DATA, **V1, Username="lea").status == 201
        monkeypatch.setattr(files, "write_all", refuse)
        assert service.put(path, b"<d>new</d>", Username="lea").status == 507
        monkeypatch.undo()
        assert service.get(path, Username="lea").body == DATA
        assert service.put(path, b"<d>new</d>", Username="lea").status == 204
        found = verify(path_of(tmp_path), lambda _: None, must_be_sealed=False)
        assert (found.findings, found.lines) == ([], 5)
        monkeypatch.setattr("persistence.audit.audit_log.AuditLog.record", lambda *_: None)
        assert service.put(path, DATA, Username="lea").status == 204
    found = verify(path_of(tmp_path), lambda _: None, must_be_sealed=False)
    torn, begun = found.notes
    assert "torn a line" in torn
    assert begun == "1 changes were begun and have no outcome, lines 6"


def test_several_workers_write_one_chain(tmp_path: Path) -> None:
    with audited(tmp_path, is_real=True, audit_size=3000, workers=2) as service:
        assert b"audit: " in service.log.read_bytes()

        def save(client: int) -> None:
            for number in range(10):
                headers = {"X-Request-Id": f"{client}-{number}"}
                service.put(f"{FORM}/data/D{client}/data.xml", DATA, headers, **V1, Username="lea")

        at_once(*(partial(save, client) for client in range(8)))
    found = verify(path_of(tmp_path), lambda _: None, must_be_sealed=False)
    assert (found.lines, found.findings) == (80, [])
    assert len(list((tmp_path / "audit").iterdir())) > 4


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ('audit_file = "audit"', "directory"),
        ('audit = "syslog"\naudit_syslog = "/nowhere/log"', "cannot be reached"),
        ('audit_syslog = "nothing"', "the absolute path of a socket, or HOST:PORT"),
    ],
)
def test_a_service_does_not_start_with_an_audit_that_it_cannot_write(tmp_path: Path, more: str, cause: str) -> None:
    """What is no file, tests/audit/test_trail.py has in full."""
    (tmp_path / "audit").mkdir()
    with pytest.raises(StartupError, match=cause) as refused, audited_by(tmp_path, more):
        pass
    assert "\n" not in str(refused.value)


@contextmanager
def audited_by(directory: Path, more: str) -> Iterator[Service]:
    names = {line.partition(" ")[0] for line in more.splitlines()}
    shipped = {"audit": '"file"', "audit_file": '"audit/audit.jsonl"'}
    settings = "".join(f"{name} = {value}\n" for name, value in shipped.items() if name not in names) + more + "\n"
    with serving(directory, settings=settings, alone=True) as service:
        yield service


def test_lines_go_to_standard_output_and_to_syslog(tmp_path: Path) -> None:
    with audited(tmp_path, is_real=True, audit="stdout") as service:
        service.put(f"{FORM}/data/A/data.xml", DATA, **V1, Username="lea")
        text = service.log.read_text()
    found = [json.loads(line) for line in text.splitlines() if '"action":' in line]
    assert [(line["action"], line["document"], "n" in line) for line in found] == [("create", "A", False)]
    assert not (tmp_path / "audit").exists()
    short = Path(os.environ.get("TMPDIR", "/tmp")) / f"audit-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(10)
        receiver.bind(str(short))
        with audited(tmp_path, audit="syslog", audit_syslog=short) as service:
            service.put(f"{FORM}/data/B/data.xml", DATA, **V1, Username="lea")
            said = receiver.recv(10_000)
            assert said.startswith(b"<86>persistence: {")
            assert json.loads(said[said.index(b"{") :])["document"] == "B"
            receiver.close()
            assert service.put(f"{FORM}/data/B/data.xml", DATA, Username="lea").status == 204
    short.unlink()
