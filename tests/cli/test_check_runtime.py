"""``persistence check-runtime`` and ``health``: the sequences of each release, and a runtime's properties."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import httpx
import pytest

from persistence.cli import running_service
from persistence.client import runtime_sequences
from persistence.client.runtime_proxy import RELEASES, RuntimeProxy
from persistence.client.runtime_sequences import SEQUENCES, StepResult
from persistence.client.service_connection import ServiceAnswer, ServiceConnection
from persistence.errors import RemoteError
from persistence.limits import LARGEST_RUNTIME_PROPERTIES
from persistence.wire import Call
from tests.cli.command_runner import Command, Ended
from tests.docs.markdown import DOCS, rows, spans
from tests.in_process import serving
from tests.providers import dripping
from tests.service import PROVIDER, Service, running

Send = Callable[[ServiceConnection, Call], ServiceAnswer]

READ: Send = ServiceConnection.read
LEASES = '"oxf.fr.persistence.*.lease" = true\n'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    """Runs the command in a directory with settings that have leases, and a tree with a form."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config/persistence.toml").write_text(f'dialect = "orbeon"\n{LEASES}')
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ended:
        done = command("check-runtime", *arguments)
        return done._replace(errors=[line for line in done.errors if not line.startswith("{")])  # the service's log

    return run


@contextmanager
def served(directory: Path, settings: str = LEASES, place: str | None = None) -> Iterator[tuple[Service, str]]:
    """A fresh service of dialect ``orbeon`` with an administrator, whose key is in the file ``key``, and its URL."""
    file = directory / "settings.toml"
    file.write_text(f'dialect = "orbeon"\nkeys = "{directory}/keys.json"\nadministrators = ["boss"]\n{settings}')
    options = ("--config", str(file))
    with serving(directory / "served", dialect="orbeon", options=options, place=place, alone=True) as service:
        yield replace(service, face=PROVIDER), f"http://127.0.0.1:{service.port}"


@pytest.fixture
def make_key(tmp_path: Path, command: Command) -> Callable[[str], str]:
    """Makes an API key of the service that is served, and returns the path of a file with it."""

    def make(name: str) -> str:
        made = command("api-key", "new", name, "--config", str(tmp_path / "settings.toml"))
        (tmp_path / name).write_text(made.out)
        return str(tmp_path / name)

    return make


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the command play publishing and some other sequences, which is quicker."""
    kept = {name: sequence for name, sequence in SEQUENCES.items() if name in {"publish", *names}}
    assert len(kept) == len(names) + 1
    monkeypatch.setattr(runtime_sequences, "SEQUENCES", kept)


def results(done: Ended) -> tuple[list[StepResult], dict[str, object]]:
    """The steps and the summary that ``--json`` prints."""
    *steps, summary = (json.loads(line) for line in done.out.splitlines())
    return [StepResult(**each) for each in steps], summary


# The sequences.


EVERY_PUT_SAYS = {"2023.1": False, "2024.1": True, "2025.1": True, "current": True}
LISTS = {
    "2023.1": ["GET /form all-versions=true all-forms=true", "GET /form all-versions=false all-forms=true"],
    "2024.1": ["GET /form all-versions=true all-forms=true", "GET /form", "POST /form"],
    "2025.1": ["GET /form all-versions=true all-forms=true", "GET /form", "POST /form"],
    "current": [
        "GET /form all-versions=true all-forms=true",
        "GET /form all-versions=true",
        "GET /form all-versions=false",
        "POST /form",
    ],
}
"""The first one of each asks whether the application is new; a release of 2023 has it, too."""
REINDEXES = {"2023.1": "GET", "2024.1": "GET", "2025.1": "POST", "current": "POST"}


@pytest.mark.parametrize(
    ("release", "engine"),
    [
        *((release, "tree") for release in RELEASES),
        *(
            pytest.param(release, "database", marks=() if release == "current" else pytest.mark.long)
            for release in RELEASES
        ),
    ],
)
def test_a_fresh_service_fits_every_release_which_is_played_as_it_asks(
    release: str,
    engine: str,
    run: Command,
    tmp_path: Path,
    make_key: Callable[[str], str],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A HEAD comes before each PUT, whose body comes in chunks; header values are in Latin-1."""
    place = None if engine == "tree" else str(request.getfixturevalue("database_uri"))
    sent = list[tuple[Call, int]]()

    def noted(self: ServiceConnection, call: Call) -> ServiceAnswer:
        answer = READ(self, call)
        sent.append((call, answer.status))
        return answer

    monkeypatch.setattr(ServiceConnection, "read", noted)
    with served(tmp_path, place=place) as (_, url):
        done = run("--release", release, "--url", url, "--key-file", make_key("boss"), "--json")
    steps, summary = results(done)
    assert [each for each in steps if each.result != "ok"] == []
    assert (done.status, summary["ok"], summary["removed"]) == (0, len(steps), True)
    calls = [call for call, _ in sent]
    lists = [call for call in calls if call.path.startswith("/form")]
    asked = [" ".join((call.method, "/form", *map("=".join, call.query))) for call in lists]
    assert sorted(dict.fromkeys(asked)) == sorted(LISTS[release])
    assert {call.method for call in calls if call.path.startswith("/reindex")} == {REINDEXES[release]}
    puts = [(at, call) for at, call in enumerate(calls) if call.method == "PUT"]
    assert [call for _, call in puts if call.content is not None and call.content.length is not None] == []
    known = list[bool]()
    for at, put in puts:
        heads = [status for call, status in sent[:at] if call.method == "HEAD" and call.path == put.path]
        if heads[-1] == 200:
            known.append(any(name == "Orbeon-Created-Existing" for name, _ in put.fields))
    assert any(known)
    assert all(known) is EVERY_PUT_SAYS[release]
    names = {value for call in calls for name, value in call.fields if name == "Orbeon-Username"}
    assert {"Jürgen Öztürk".encode("latin-1"), b"???"} <= names


def test_nothing_but_tombstones_stays_and_with_an_administrators_key_none_of_documents(
    run: Command, tmp_path: Path, make_key: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "attachments", "drafts", "leases", "purge")
    with served(tmp_path) as (service, url):
        done = run("--release", "current", "--url", url, "--json")
        app = str(results(done)[1]["application"])
        assert _living(service, app) == []
        assert "persistence purge" in done.errors[-1]
        assert not list((service.data / app).glob("leave/draft/*"))
        assert not list((service.data / ".leases").glob("*.json"))
        done = run("--release", "current", "--url", url, "--key-file", make_key("boss"), "--json")
        app = str(results(done)[1]["application"])
        assert _living(service, app) == []
        assert not list((service.data / app).glob("leave/data/*"))
        assert done.errors[-1].startswith(f"tombstones stay in the application {app}: ")
        assert "persistence purge" not in done.errors[-1]


def _living(service: Service, app: str) -> list[Path]:
    """The files of an application that are no tombstones: contents that are current."""
    return [
        path
        for path in (service.data / app).rglob("*")
        if path.is_file() and path.suffix != ".json" and ".history" not in path.parts
    ]


@pytest.mark.parametrize(
    ("error", "text"),
    [(RemoteError("the service cannot be reached"), "cannot be reached"), (KeyboardInterrupt(), "Aborted!")],
)
@pytest.mark.parametrize("steps", [0, 40])
def test_a_check_that_is_broken_off_is_removed(
    error: BaseException, text: str, steps: int, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(proxy: RuntimeProxy) -> Iterator[StepResult]:
        yield from islice(runtime_sequences.play(proxy), steps)
        raise error

    monkeypatch.setattr(running_service, "play", broken)
    with served(tmp_path) as (service, url):
        done = run("--release", "2025.1", "--url", url)
        assert (done.status, text in done.errors[-1]) == (1, True)
        assert done.out.count("\n") >= steps
        for app in service.data.glob("check-runtime-*"):
            assert _living(service, app.name) == []


def test_what_cannot_be_removed_is_said(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ("/data/new/data.xml", "/leave/form/form.xhtml")

    def stubborn(self: ServiceConnection, call: Call) -> ServiceAnswer:
        if call.method == "DELETE" and call.path.endswith(refused):
            return ServiceAnswer(503, httpx.Headers(), b"the service is busy\n")
        return READ(self, call)

    only(monkeypatch, "data")
    monkeypatch.setattr(ServiceConnection, "read", stubborn)
    with served(tmp_path) as (_, url):
        done = run("--release", "2025.1", "--url", url)
    assert done.status == 4
    stay = [line.partition("/")[2] for line in done.errors if " stays: " in line]
    assert stay == [
        "leave/data/new/data.xml stays: 503 the service is busy",
        *(f"leave, version {version} stays: 503 the service is busy" for version in (1, 2)),
    ]


def test_a_service_that_is_gone_at_the_end_is_said(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: RuntimeProxy) -> None:
        raise RemoteError("the service cannot be reached")

    only(monkeypatch, "data")
    monkeypatch.setattr(RuntimeProxy, "remove", gone)
    with served(tmp_path) as (_, url):
        done = run("--release", "2025.1", "--url", url)
    assert done.status == 4
    assert done.errors[-1].startswith("persistence: the application check-runtime-")
    assert done.errors[-1].endswith(" was not removed: the service cannot be reached")


def test_a_service_of_the_other_dialect(run: Command, tmp_path: Path) -> None:
    with serving(tmp_path / "served", alone=True) as service:
        done = run("--release", "2025.1", "--url", f"http://127.0.0.1:{service.port}")
    assert (done.status, done.out, len(done.errors)) == (1, "", 1)
    assert "this service speaks dialect 'svc'" in done.errors[0]


def test_the_address_is_that_of_the_settings(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    with served(tmp_path) as (_, url):
        with (tmp_path / "config/persistence.toml").open("a") as file:
            file.write(f'bind = "{url.removeprefix("http://")}"\n')
        assert run("--release", "2025.1", "--json").out.endswith("}\n")


def test_keys(run: Command, tmp_path: Path, make_key: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, with a wrong one, with one that may not purge, and with an empty file or none."""
    only(monkeypatch, "purge")
    with served(tmp_path) as (_, url):
        other = make_key("other")
        (tmp_path / "wrong").write_text("0" * 64)
        (tmp_path / "odd").write_bytes(b"\xff\x00 key")
        arguments = ("--release", "2025.1", "--url", url)
        refused = [run(*arguments, *more) for more in ((), ("--key-file", "wrong"), ("--key-file", "odd"))]
        missing = run(*arguments, "--key-file", "missing")
        done = run(*arguments, "--key-file", other, "--json")
    assert [(each.status, len(each.errors)) for each in refused] == [(1, 1)] * 3
    causes = ("asks for a key", "not, or no longer, a key", "a key has letters")
    assert all(cause in each.errors[0] for cause, each in zip(causes, refused, strict=True))
    assert missing.status == 2
    skipped = [(each.sequence, each.detail) for each in results(done)[0] if each.result == "skipped"]
    assert skipped == [("purge", "needs a caller whom the setting administrators names: see --key-file")]


@pytest.mark.parametrize(
    ("settings", "sequence", "row"),
    [
        ('"oxf.fr.persistence.*.versioning" = false\n', "data", "versions"),
        ('"oxf.fr.persistence.*.autosave" = false\n', "drafts", "drafts"),
        ('"oxf.fr.persistence.*.permissions" = false\n', "search", "search"),
    ],
)
def test_settings_that_do_not_fit_are_named(
    settings: str, sequence: str, row: str, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, sequence)
    with served(tmp_path, settings) as (_, url):
        done = run("--release", "2025.1", "--url", url)
    lines = done.out.splitlines()
    assert f"  see docs/orbeon.md, If a step fails: {row}" in lines
    failed = [sum(line.endswith("  failed") for line in lines), sum(": failed: " in line for line in lines)]
    assert failed[0] == failed[1] > 0


def test_leases_that_are_off_are_skipped_with_the_reason(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "leases")
    with served(tmp_path, '"oxf.fr.persistence.*.lease" = false\n') as (_, url):
        steps = results(run("--release", "2025.1", "--url", url, "--json"))[0]
    reasons = {each.sequence: each.detail for each in steps if each.result == "skipped"}
    assert reasons["leases"] == "leases are off in the service: the runtime must have lease=false"


def _with(answer: ServiceAnswer, **headers: str) -> ServiceAnswer:
    """An answer with other headers; ``_`` stands for ``-``, and an empty value for none."""
    names = {name.replace("_", "-").lower() for name in headers}
    kept = [(key, value) for key, value in answer.headers.raw if key.decode().lower() not in names]
    more = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items() if value]
    return replace(answer, headers=httpx.Headers([*kept, *more]))


def _in_utf_8(_: Call, answer: ServiceAnswer) -> ServiceAnswer:
    name = answer.headers.get("Orbeon-Username", "")
    return answer if name.isascii() else _with(answer, Orbeon_Username=name)


FAULTS = {
    "list": (
        "list of forms",
        lambda call, answer: (
            replace(answer, body=b'<forms search-total="0"/>') if call.path.startswith("/form/") else answer
        ),
    ),
    "names": ("names", _in_utf_8),
    "owner": (
        "data",
        lambda call, answer: (
            _with(answer, Orbeon_Username="bob") if "by-another" in call.path and answer.status == 200 else answer
        ),
    ),
    "conflicts": ("conflict", lambda _, answer: _with(answer, ETag="")),
    "attachments": (
        "attachments",
        lambda call, answer: (
            replace(answer, status=416) if call.path.endswith("elsewhere.bin") and call.method == "GET" else answer
        ),
    ),
    "history": (
        "history",
        lambda call, answer: replace(answer, body=b"<documents/>") if call.path.startswith("/history") else answer,
    ),
    "search": (
        "search",
        lambda call, answer: replace(answer, body=b"<html>") if call.path.startswith("/search") else answer,
    ),
}


@pytest.mark.parametrize("row", FAULTS)
def test_a_fault_is_found(row: str, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between service and command something changes the answers."""
    sequence, change = FAULTS[row]
    only(monkeypatch, sequence)
    monkeypatch.setattr(ServiceConnection, "read", lambda self, call: change(call, READ(self, call)))
    with served(tmp_path) as (_, url):
        done = run("--release", "2025.1", "--url", url, "--json")
    assert row in {each.see for each in results(done)[0] if each.result == "failed"}
    assert done.status == 4


def test_every_row_of_the_page_is_about_a_step_and_the_reverse() -> None:
    text = (DOCS / "orbeon.md").read_text().partition("## If a step fails\n")[2].partition("\n## ")[0]
    named = {spans(cells[0])[0] for cells in rows(text, "Step")}
    steps = {step.see for release in RELEASES.values() for sequence in SEQUENCES.values() for step in sequence(release)}
    assert named == steps | {"callers"}


# The properties of a runtime: what its forms get, and what is missing, golden/runtime.txt has.


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<p>" + " " * LARGEST_RUNTIME_PROPERTIES + "</p>", "more than 8388608 bytes"),
        ("<a>" * 300 + "</a>" * 300, "nested deeper"),
    ],
    ids=["huge", "deep"],
)
def test_a_file_that_cannot_be_read_is_one_line(content: str, text: str, run: Command, tmp_path: Path) -> None:
    (tmp_path / "p.xml").write_text(content)
    done = run("--properties", "p.xml")
    assert (done.status, done.out, len(done.errors)) == (1, "", 1)
    assert done.errors[0].startswith("persistence: p.xml ")
    assert text in done.errors[0]


# ``persistence health``: what containers and monitoring look at


def test_one_that_cannot_store_is_not_ready_and_one_that_is_gone_not_alive(tmp_path: Path, command: Command) -> None:
    with serving(tmp_path, env={"PERSISTENCE_MIN_FREE": str(1 << 60)}, alone=True) as service:
        url = f"http://127.0.0.1:{service.port}"
        status, out, errors = command("health", "--url", url)
        assert (status, out) == (1, "")
        assert errors[-1].startswith(f"persistence: {url} is alive, but not ready: ")
        assert "the floor is" in errors[-1]
    status, _, errors = command("health", "--url", url)
    assert status == 1
    assert errors[0].startswith(f"persistence: {url} is not alive: the service cannot be reached")


def test_a_service_on_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    bind = f"unix:{tmp_path}/s"
    monkeypatch.chdir(tmp_path)  # a clone whose service was tried out has notes of a backup in var/data
    monkeypatch.setenv("PERSISTENCE_BIND", bind)
    with running(tmp_path, bind=bind, env={"PERSISTENCE_TRUSTED": "unix"}):
        lines = "persistence: there was no {0} of everything yet: persistence {0} makes a note of it"
        never = [lines.format(run) for run in ("backup", "check")]
        assert command("health") == (0, f"ready: {bind}\n", never)
        monkeypatch.setenv("PERSISTENCE_DATA", str(tmp_path / "data"))
        assert command("backup", str(tmp_path / "backups")).status == 0
        assert command("check").status == 0
        assert command("health") == (0, f"ready: {bind}\n", [])


@pytest.mark.parametrize("first", ["HTTP/1.1 200 OK\r\nX: ", "HTTP/1.1 503 X\r\nContent-Type: text/plain\r\n\r\n"])
def test_a_service_that_never_comes_to_an_end_is_not_alive(first: str, command: Command) -> None:
    """It is never silent for long."""
    with dripping(first.encode(), b"x") as url:
        status, _, errors = command("health", "--url", url, "--timeout", "0.1")
    assert (status, errors) == (1, [f"persistence: {url} is not alive: the service does not finish its answer"])
