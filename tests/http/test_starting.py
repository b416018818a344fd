"""Starting, reloading, exchanging and doubling a service, over real processes; its health, and what its log says."""

import fcntl
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from persistence import __version__
from persistence.http import logs
from persistence.http.logs import ServerLines, choose
from persistence.storage.locks import Lease, Machine, stripe
from tests.asking import Ask, Asking
from tests.cli.test_commands import persistence
from tests.in_process import serving
from tests.initialised import initialised
from tests.served import served
from tests.service import PUBLIC, V1, Service, running
from tests.sidecars import resealed
from tests.waiting import at_once, eventually

PATH = "hr/leave/data/D/data.xml"
SCRIPT = Path(sys.executable).parent / "persistence"


WITHOUT_KEY = "until there is an API key ('persistence api-key new NAME')"
TEXT = {"PERSISTENCE_LOG_FORMAT": "text", "PERSISTENCE_LOG_USERS": "true"}


@pytest.mark.parametrize("command", ["serve", "gunicorn"])
def test_the_first_lines_say_what_is_served_where_and_to_whom(tmp_path: Path, command: str) -> None:
    """As text, before gunicorn's lines; under gunicorn's own command after its first one."""
    with running(tmp_path, command=command, env=TEXT) as service:
        ask(service)
        lines = service.log.read_text().splitlines()
    own = [line for line in lines if line.startswith("persistence: ")]
    assert own[:3] == [
        f"persistence: version {__version__}, dialect svc",
        f"persistence: data directory {tmp_path}/data",
        f"persistence: may call: every program of this machine, {WITHOUT_KEY}",
    ]
    assert own[3].startswith("persistence: at ")
    assert re.fullmatch(
        r"persistence: pages for administrators: none until 'persistence password set NAME'; then (http:.*)?/admin/",
        own[4],
    )
    assert len(own) == 5
    (request,) = [line for line in lines if "id=r-1" in line]
    assert ("user=lea" in request, 'cause="a/b/data/1/data.xml does not exist"' in request) == (True, True)
    assert any("Listening at: http://127.0.0.1:" in line for line in lines)
    if command == "serve":
        assert lines[:5] == own
        assert [line for line in lines[5:] if not LINE.fullmatch(line)] == []


def ask(service: Service) -> None:
    """Requests that are told from others in the log, with what must not be there."""
    service.raw("GET", f"{PUBLIC}/crud/a/b/data/1/data.xml?token=x", {"Svc-Username": "lea", "X-Request-Id": "r-1"})
    service.put("a/b/data/D/data.xml?fr-access-token=secret", b"<d>private</d>", {"X-Request-Id": "put-1"}, **V1)
    service.raw("GET", "/crud/../x", {"X-Request-Id": "odd-1"})
    service.raw("GET", "/healthz")


def test_they_name_all_trees_and_who_may_call_and_the_last_of_them_where_the_pages_are(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "own.toml").write_text(
        'dialect = "orbeon"\ntrusted = ["127.0.0.1"]\nkeys = "keys.json"\nadministrators = ["runtime"]\n'
        '"oxf.fr.persistence.provider.*.*.*.attachments" = "big"\n"oxf.fr.persistence.big.base-path" = "big"\n'
        '[datasource.second]\ndata = "disk2"\n'
    )
    assert persistence("api-key", "new", "runtime", "--config", "own.toml", cwd=tmp_path).returncode == 0
    with running(tmp_path, options=("--config", "own.toml"), dialect="orbeon", env=TEXT) as service:
        lines = service.log.read_text().splitlines()
    assert lines[0].endswith(", dialect orbeon")
    assert lines[1:5] == [
        f"persistence: data directory {tmp_path}/data",
        f"persistence: data directory {tmp_path}/disk2 (datasource second)",
        f"persistence: attachments in {tmp_path}/big",
        "persistence: may call: callers with the API key, without a key 127.0.0.1",
    ]
    assert [line for line in lines if "/admin/" in line] == ["persistence: pages for administrators: /admin/"]


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    """Of gunicorn there would be eleven, over five seconds."""
    ways = "--bind HOST:PORT, PERSISTENCE_BIND or the setting bind"
    with running(tmp_path / "first") as service:
        bind = f"127.0.0.1:{service.port}"
        for command in ("serve", "gunicorn"):
            with pytest.raises(RuntimeError) as refused, running(tmp_path / command, bind=bind, command=command):
                pass
            said = [line for line in str(refused.value).splitlines()[1:] if '"level":"info"' not in line]
            assert said == [
                f"persistence: cannot serve on {bind}: another program serves there; another address: {ways}"
            ]
        assert service.get(PATH).status == 404


def test_the_socket_of_another_service_is_not_taken_away(tmp_path: Path) -> None:
    path = f"unix:{tmp_path}/socket"
    with running(tmp_path / "first", bind=path, env={"PERSISTENCE_TRUSTED": "unix"}):
        done = persistence("serve", "--init", "--data", "data", "--bind", path, "--insecure", cwd=tmp_path)
        assert (done.returncode, f"cannot serve on {path}: another program serves there" in done.stderr) == (1, True)
    (tmp_path / "left").write_text("")  # what a service that was killed leaves is no obstacle
    with running(tmp_path / "first", bind=path, env={"PERSISTENCE_TRUSTED": "unix"}):
        pass


UNSERVABLE = {
    "max_boddy = 1\n": "unknown setting 'max_boddy'",
    "not toml": "own.toml cannot be read",
    '[datasource.second]\ndata = "unmounted"\n': "unmounted is not a data directory",
    'gunicorn = "broken.py"\n': "is not acceptable",
}


def test_hangup_reads_the_settings_again(tmp_path: Path) -> None:
    """Those that cannot be served do not stop a service: the old ones count."""
    own, large = tmp_path / "own.toml", b"<d>" + b"x" * 2000 + b"</d>"
    own.write_text("max_body = 1000\n")
    (tmp_path / "broken.py").write_text("this is no Python")
    with running(tmp_path, options=("--config", "own.toml")) as service:

        def hang_up(settings: str, message: str, times: int) -> list[str]:
            before = service.workers()
            own.write_text(settings)
            service.process.send_signal(signal.SIGHUP)
            eventually(lambda: service.log.read_text().count(message) == times)
            eventually(lambda: not set(before) & set(service.workers()) and bool(service.workers()))
            return [line for line in service.log.read_text().splitlines() if message in line]

        for number, (settings, cause) in enumerate(UNSERVABLE.items(), 1):
            assert cause in hang_up(settings, "were read again and not taken", number)[-1]
            assert service.put(PATH, large, **V1).status == 413
        assert service.put(PATH, b"<d/>", **V1).status == 201
        hang_up('max_body = 100\n"svc.persistence.*.autosave" = false\n', '"message":"the settings were read again"', 1)
        assert service.put(PATH, b"<d>" + b"x" * 200 + b"</d>").status == 413
        assert service.put("hr/leave/draft/D/data.xml", **V1).status == 403
        assert service.get(PATH).status == 200


def saving_and_loading(port: int) -> Ask:
    service = Service(port, Path(), Path(), None)

    def ask(client: int, _number: int) -> str | None:
        path = f"/crud/hr/leave/data/of-{client}/data.xml"
        headers = {"Svc-Form-Definition-Version": "1", "Connection": "close"}
        statuses = [
            service.raw(method, path, headers, body).status for method, body in (("PUT", b"<d/>"), ("GET", None))
        ]
        return None if {*statuses} <= {200, 201, 204} else str(statuses)

    return ask


@contextmanager
def by_command(directory: Path, *command: str) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    """A service that is started as a person starts it; its first master, its port and its log."""
    log = directory / "service.log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERSISTENCE_")}
    own = ("--data", "data", "--bind", "127.0.0.1:0", "--workers", "2", "--threads", "4")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "serve", "--init", *own], cwd=directory, env=environment, stdout=output, stderr=output
        )
    masters = {process.pid}
    try:
        eventually(lambda: log.read_text().count("Booting worker") >= 2)
        port = re.search(r"Listening at: http://127\.0\.0\.1:(\d+)", log.read_text())
        yield process, int(port[1]), log
    finally:
        masters |= {int(pid) for pid in re.findall(r"Listening at: \S+ \((\d+)\)", log.read_text())}
        for pid in masters:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue
        process.wait(30)


@pytest.mark.parametrize(
    "command",
    [(str(SCRIPT),), pytest.param((sys.executable, "-m", "persistence.cli"), marks=pytest.mark.long)],
    ids=["script", "module"],
)
def test_a_service_is_exchanged_without_a_request_that_fails(tmp_path: Path, command: tuple[str, ...]) -> None:
    """docs/running.md, upgrading the software: SIGUSR2, then SIGTERM to the old one."""
    with by_command(tmp_path, *command) as (old, port, log), Asking(saving_and_loading(port), 3, 0.01) as asking:
        asking.go_on(10)
        old.send_signal(signal.SIGUSR2)
        eventually(lambda: log.read_text().count("Booting worker") >= 4)
        asking.go_on(10)
        assert old.poll() is None, "both serve"
        old.send_signal(signal.SIGTERM)
        assert old.wait(30) == 0
        asking.go_on(10)
    assert asking.failures == []
    assert "usr2" in log.read_text()


def test_two_services_serve_one_tree_of_one_machine(tmp_path: Path) -> None:
    """The issue: locks are between processes, and the index of one hears of what the other has stored."""
    with (
        running(tmp_path / "one", data=tmp_path / "tree") as one,
        running(tmp_path / "two", data=tmp_path / "tree") as two,
    ):
        assert one.put(PATH, b"<d>0</d>", **V1).status == 201
        counts = dict.fromkeys((one.port, two.port), 0)

        def count_up(service: Service, rounds: int) -> None:
            while counts[service.port] < rounds:
                read = service.get(PATH)
                value = int(read.body[3:-4])
                written = service.put(PATH, f"<d>{value + 1}</d>".encode(), {"If-Match": read["ETag"] or ""})
                assert written.status in {204, 412, 503}
                counts[service.port] += written.status == 204

        at_once(partial(count_up, one, 30), partial(count_up, two, 30), seconds=100)
        assert one.get(PATH).body == two.get(PATH).body == b"<d>60</d>", "an update was lost"
        for service, name in ((one, "by-one"), (two, "by-two")):
            path = f"hr/leave/data/{name}/data.xml"
            assert service.put(path, f"<d>{name}</d>".encode(), **V1).status == 201
            for asked in (one, two):
                found = asked.raw(
                    "POST", f"{asked.face}/search/hr/leave", body=f"<search><query>{name}</query></search>".encode()
                )
                assert (found.status, b'search-total="1"' in found.body) == (200, True)
        one.process.send_signal(signal.SIGTERM)
        one.process.wait(20)
        assert two.put(PATH).status == 204


@contextmanager
def another_machine(data: Path) -> Iterator[None]:
    other = Lease(str(data), machine=Machine("elsewhere", "2" * 32, "another-boot"), interval=0.2)
    try:
        yield
    finally:
        other.close()


def test_a_tree_that_another_machine_has_open_is_refused(tmp_path: Path) -> None:
    initialised(tmp_path / "data")
    said = rf"^persistence: {tmp_path}/data is open on machine elsewhere since \S+Z, .* stop the service there first$"
    with another_machine(tmp_path / "data"):
        for command in (("serve", "--bind", "127.0.0.1:0"), ("check", "--repair"), ("reindex",), ("reencrypt",)):
            done = persistence(*command, "--data", "data", cwd=tmp_path)
            assert done.returncode == 1, command
            assert re.search(said, done.stderr, re.MULTILINE), done.stderr
        for reading in (("forms",), ("check",), ("backup", "backups")):
            assert persistence(*reading, "--data", "data", cwd=tmp_path).returncode == 0


def test_a_service_whose_tree_another_machine_has_taken_over_stops_writing(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        assert service.put(PATH, **V1).status == 201
        lease = service.data / ".locks/lease"
        assert b'"host"' in lease.read_bytes()
        before = lease.read_bytes()
        lease.write_bytes(b" " * 511 + b"\n")
        with another_machine(service.data):
            refused = service.put(PATH)
            assert (refused.status, refused["Retry-After"]) == (503, "60")
            assert "was taken over by machine elsewhere since" in refused.cause
            assert service.raw("GET", "/readyz").refuses(503, "was taken over by machine elsewhere")
            assert service.get(PATH).status == 200
        assert service.put(PATH).status == 503, "until it is started again"
        assert before != lease.read_bytes()
        lease.write_bytes(b" " * 511 + b"\n")  # the other machine has it no longer
    with running(tmp_path) as service:
        assert service.put(PATH).status == 204


@pytest.mark.long  # it waits for a lease to run out
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another machine in a mount namespace")
def test_a_real_process_with_another_boot_id_is_refused(tmp_path: Path) -> None:
    """The file of the boot id is replaced in a mount namespace of its own, as a second kernel would have it."""
    (tmp_path / "boot").write_text("0f0f0f0f-2f70-43fa-97da-000000000000\n")
    script = (
        f"mount --bind {tmp_path}/boot /proc/sys/kernel/random/boot_id && hostname second &&"
        f" exec {sys.executable} -m persistence.cli serve --data {tmp_path}/data --bind 127.0.0.1:0"
    )
    with running(tmp_path) as service:
        done = subprocess.run(
            ["unshare", "--mount", "--uts", "sh", "-c", script], capture_output=True, text=True, timeout=90, check=False
        )
        if "unshare" in done.stderr or "mount:" in done.stderr:
            pytest.skip(done.stderr)
        assert (done.returncode, "is open on machine" in done.stderr) == (1, True)
        assert service.put(PATH, **V1).status == 201


# The log: one format for the service, gunicorn and libraries, with or without users, from a level on.

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (info|warning|error) +\S.*")
DOCS = Path(__file__).parents[2] / "docs"
SOURCE = Path(__file__).parents[2] / "persistence"


@pytest.fixture(autouse=True)
def unchosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("format", "is_text", "level"):
        chosen = logs._Chosen  # noqa: SLF001 - there is one of each process
        monkeypatch.setattr(chosen, name, getattr(chosen, name))
    monkeypatch.setattr(logs, "apply", lambda: None)


def test_every_line_is_json_where_nobody_looks_on(tmp_path: Path) -> None:
    """Also those of gunicorn, from the level on that is set, and without users."""
    with running(tmp_path, env={"PERSISTENCE_LOG_LEVEL": "debug"}) as service:
        ask(service)
        lines: list[dict[str, Any]] = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    assert {line["event"] for line in lines} == {"service", "server", "request"}
    assert {"debug", "info"} <= {line["level"] for line in lines}
    read, put, odd = ([line for line in lines if line.get("id") == each] for each in ("r-1", "put-1", "odd-1"))
    assert [(each["status"], each["level"], "user" in each) for each in read] == [(404, "info", False)]
    assert read[0]["cause"] == "a/b/data/1/data.xml does not exist"
    path = f"{PUBLIC}/crud/a/b/data/D/data.xml"
    assert [(each["method"], each["status"], each["path"]) for each in put] == [("PUT", 201, path)]
    assert [each["status"] for each in odd] == [400]
    assert re.search(r"\blea\b|private|secret", str(lines)) is None
    documented = re.findall(r"(?m)^\| `([^|]+)` \| [^|]+ \| [^|]+ \|$", (DOCS / "metrics.md").read_text())
    known = {name for cell in documented for name in re.split("`, `", cell)}
    assert {name for line in lines for name in line} <= known


@pytest.mark.parametrize(("level", "written"), [("info", True), ("warning", False), ("error", False)])
def test_lower_levels_are_not_announced(
    capsys: pytest.CaptureFixture[str], level: logs.LogLevel, *, written: bool
) -> None:
    choose("text", level)
    logs.announce("the settings\nwere read")
    assert capsys.readouterr().err == ("persistence: the settings were read\n" if written else "")


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_nothing_that_is_sent_begins_a_line_or_reaches_the_terminal(log_format: logs.LogFormat) -> None:
    choose(log_format, "info")
    record = logging.LogRecord("x", logging.WARNING, "", 1, "odd \x1b[31m\n{} \x9b %s", ("\r\n",), None)
    for line in (
        ServerLines().format(record),
        logs.line({"timestamp": "t", "level": "info", "event": "request", "path": "/\x1b[31m\n\x85"}).decode(),
    ):
        assert line.isprintable()


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_traceback_of_the_server_is_in_its_line_or_below(log_format: logs.LogFormat) -> None:
    choose(log_format, "info")
    error = ValueError("here")
    info = (ValueError, error, error.__traceback__)
    line = ServerLines().format(logging.LogRecord("x", logging.ERROR, "", 1, "failed", (), info))
    assert ("ValueError: here" in line, "\n" in line) == (True, log_format == "text")


def test_every_event_is_documented() -> None:
    page = (DOCS / "metrics.md").read_text()
    written = {
        event
        for file in SOURCE.rglob("*.py")
        for event in re.findall(r"(?:logs\.|\b)write\(\s*\"([a-z-]+)\", \"[a-z]+\"", file.read_text())
    }
    assert len(written) > 5
    assert [event for event in sorted(written) if f"`{event}`" not in page] == []


# The running service: health, readiness, logs and limits of waiting.


def test_a_healthy_service_says_so_and_one_with_too_little_space_is_not_ready(svc: Service, tmp_path: Path) -> None:
    for path in ("/healthz", "/readyz"):
        answer = svc.raw("GET", path)
        assert (answer.status, answer["Content-Type"]) == (200, "text/plain; charset=utf-8")
    with serving(tmp_path, env={"PERSISTENCE_MIN_FREE": str(1 << 60)}) as service:
        assert service.raw("GET", "/readyz").refuses(503, "bytes are free")
        assert service.raw("GET", "/healthz").status == 200


def test_a_writer_that_waits_too_long_is_told_to_retry(tmp_path: Path) -> None:
    """Design, section 3: a deadline, 503 with Retry-After; readers and other documents go on."""
    with running(tmp_path, env={"PERSISTENCE_LOCK_TIMEOUT": "0.3"}) as service:
        service.put("a/b/data/D/data.xml", **V1)
        lock = service.data / ".locks" / f"{stripe(('a', 'b', 'data', 'D')):02x}"
        with lock.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            began = time.monotonic()
            busy = service.put("a/b/data/D/data.xml")
            assert (busy.status, busy["Retry-After"]) == (503, "1")
            assert 0.25 < time.monotonic() - began < 10
            assert service.get("a/b/data/D/data.xml").status == 200
            assert service.put("a/b/data/other/data.xml", **V1).status == 201
        assert service.put("a/b/data/D/data.xml").status == 204


def test_damage_is_said_and_not_taken_for_absence(svc: Service, form: str) -> None:
    """Design, section 3: 500 with a reason, on reading and on writing; other documents go on."""
    svc.put(f"{form}/data/D/data.xml", **V1)
    (svc.data / f"{form}/data/D/data.xml.json").write_text("{")
    for answer in (svc.get(f"{form}/data/D/data.xml"), svc.put(f"{form}/data/D/data.xml")):
        assert (answer.status, "data.xml.json cannot be read" in answer.cause) == (500, True)
    assert svc.put(f"{form}/data/E/data.xml", **V1).status == 201
    assert svc.delete(f"{form}/data/").status == 500
    assert svc.get(f"{form}/data/E/data.xml").status == 404


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("content_type", "a/b\r\nX: y"),
        ("content_type", "a/b; x=\0\u20ac"),
        ("id", "0" * 40 + "\n"),
        ("modified", "2025-03-04T05:06:07.089Z\n"),
        ("stage", "a\r\nX: y"),
    ],
)
def test_no_line_of_a_sidecar_becomes_a_header(svc: Service, form: str, field: str, value: str) -> None:
    """A sidecar edited by hand is damage, said in one line; once taken in, its texts go out as one line each."""
    svc.put(f"{form}/data/D/data.xml", **V1)
    path = svc.data / f"{form}/data/D/data.xml.json"
    whole = path.read_bytes()
    is_malformed = field in ("id", "modified")
    path.write_text(json.dumps(json.loads(whole) | {field: value}))
    answer = svc.get(f"{form}/data/D/data.xml")
    assert answer["X-Request-Id"]
    assert (answer.status, answer["X"], answer.body.count(b"\n")) == (500, None, 1)
    assert ("cannot be read" if is_malformed else "was changed since it was written") in answer.cause
    if not is_malformed:
        path.write_bytes(whole)
        resealed(path, **{field: value})
        answer = svc.get(f"{form}/data/D/data.xml")
        assert answer["X-Request-Id"]
        assert (answer.status, answer["X"]) == (200, None)


by_gunicorn = served(start=running, command="gunicorn")


@pytest.mark.parametrize("served", ["svc", "by_gunicorn"])
def test_no_header_moves_the_path(request: pytest.FixtureRequest, served: str, form: str) -> None:
    """What gunicorn believes of a proxy by default; a path that does not begin with it would be answered 500."""
    service: Service = request.getfixturevalue(served)
    for name in ("SCRIPT_NAME", "PATH_INFO"):
        assert service.raw("GET", "/healthz", {name: "/crud"}).status == 200
        assert service.raw("GET", "/crud/healthz", {name: "/crud"}).status == 404
    assert service.put(f"{form}/data/D/data.xml", **V1).status == 201
    assert service.get(f"{form}/data/D/data.xml").status == 200


def test_nothing_is_made_in_the_place_of_a_disk_that_is_gone(tmp_path: Path) -> None:
    """An unmounted disk leaves an empty directory; what is written there would hide below the disk that comes back."""
    with running(tmp_path, workers=1) as service:
        assert service.put("hr/leave/data/d/data.xml", b"<d/>", **V1).status == 201
        shutil.rmtree(service.data / ".pages", ignore_errors=True)
        gone = service.data.rename(tmp_path / "gone")
        service.data.mkdir()
        for _ in range(5):
            assert service.get("hr/leave/data/d/data.xml").status >= 404
            assert service.put("hr/leave/data/e/data.xml", b"<d/>", **V1).status >= 500
            assert service.raw("GET", "/readyz").status == 503
            service.raw("GET", "/admin/")
            service.raw("POST", f"{PUBLIC}/search/hr/leave", {"Content-Type": "application/xml"}, b"<search/>")
        time.sleep(2.5)  # what is noted about once a second
        assert list(service.data.iterdir()) == []
        service.data.rmdir()
        gone.rename(service.data)
        assert service.get("hr/leave/data/d/data.xml").status == 200
        assert service.put("hr/leave/data/e/data.xml", b"<d/>", **V1).status == 201
