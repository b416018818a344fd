"""Events over HTTP, on both engines: the feed of changes, and deliveries to webhooks."""

import base64
import hmac
import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from persistence import settings as configuration
from persistence.cli import commands
from persistence.dialect import SVC
from persistence.errors import StartupError
from persistence.index import outbox
from persistence.index.sqlite.tree_outbox import TreeOutbox
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.properties.properties import Properties
from persistence.providers import webhooks
from persistence.services import changes
from persistence.services.rules import Put
from persistence.settings import Webhook
from persistence.storage import files
from persistence.storage.store import Store
from tests import rig_service
from tests.in_process import serving
from tests.initialised import initialised
from tests.opened import opened, services
from tests.pages.administrator import PEER, administrator
from tests.postgresql import server as postgresql
from tests.postgresql.server import requires_postgresql
from tests.providers import Provider, Received, Reply, providing
from tests.published import definition
from tests.rigs import strikes
from tests.rigs.strikes import Injector
from tests.service import V1, Answer, Service, running
from tests.waiting import eventually

SECRET = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"
PATIENCE = 15.0
_NUMBERS = count(1)

DOCUMENT = ["created", "updated", "stage_changed", "deleted", "created"]


class Target:
    """What a webhook reaches: it answers with ``statuses`` and then with 204, and not at all while it ``hangs``."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.hangs = threading.Event()

    def __call__(self, _: Received) -> Reply:
        while self.hangs.is_set():
            time.sleep(0.02)
        return Reply(self.statuses.pop(0) if self.statuses else 204)


@dataclass
class Following:
    """A service, the target of its webhook, and what follows its feed."""

    service: Service
    target: Target
    provider: Provider
    options: list[str]

    @property
    def received(self) -> list[Received]:
        return self.provider.received

    def documents(self) -> list[str]:
        return [msgspec.json.decode(each.body)["data"]["document"] for each in self.received]

    def await_delivered(self, number: int) -> None:
        eventually(lambda: len(self.received) >= number, PATIENCE)

    def command(self, *arguments: str, status: int = 0) -> list[dict[str, Any]]:
        """What a command prints, run beside the service."""
        done = CliRunner().invoke(commands, ["events", *arguments, "--json", *self.options])
        assert done.exit_code == status, (done.output, done.exception)
        return [msgspec.json.decode(line) for line in done.stdout.splitlines() if line.startswith("{")]

    @property
    def state(self) -> dict[str, Any]:
        """What is listed of the target; nothing before it was begun."""
        return next((each for each in self.command() if "target" in each), {})

    def changes(self, since: str | None = None, **more: object) -> Answer:
        given = {"since": since, **more}
        query = "&".join(f"{name}={value}" for name, value in given.items() if value is not None)
        return self.service.call("GET", f"changes?{query}")

    def page(self, since: str | None = None, **more: object) -> dict[str, Any]:
        answer = self.changes(since, **more)
        assert answer.status == 200, answer.cause
        page: dict[str, Any] = msgspec.json.decode(answer.body)
        return page

    def types_after(self, cursor: str, expected: int) -> list[str]:
        """The types of so many changes, which may take a moment to be durable."""
        found: list[dict[str, Any]] = []
        while len(found) < expected:
            page = self.page(cursor, wait=10)
            assert page["changes"], f"only {len(found)} of {expected}"
            found, cursor = found + page["changes"], page["next"]
        return [each["type"] for each in found]

    def save(self, form: str, documents: int) -> None:
        """Save ``D0``, ``D1`` and so on."""
        for number in range(documents):
            self.service.save(form, f"D{number}")


def settings_of(url: str, name: str = "crm", more: str = "") -> str:
    return f"""
events = true
administrators = ["trusted"]
remote_timeout = 5
{more}
[webhook.{name}]
url = "{url}"
secret = "{SECRET}"
types = ["document.*"]
"""


def url_of(provider: Provider) -> str:
    return f"http://127.0.0.1:{provider.port}/hook"


@pytest.fixture(autouse=True, scope="module")
def _impatient() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(webhooks, "_TERM", 2.0)
        for module in (changes, webhooks):
            patched.setattr(module, "_LOOK", 0.02)
        yield


@pytest.fixture(scope="module", params=["tree", pytest.param("database", marks=requires_postgresql)])
def following(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Following]:
    directory = tmp_path_factory.mktemp("events")
    place = None
    if request.param == "database":
        place = request.getfixturevalue("database_server").uri(postgresql.fresh_schema())
    env = {"PERSISTENCE_LOCAL": str(directory / "local")}
    with (
        providing(target := Target()) as provider,
        serving(directory, settings=settings_of(url_of(provider)), env=env, place=place) as service,
    ):
        options = ["--config", str(directory / "settings.toml"), "--data", place or str(directory / "data")]
        result = Following(service, target, provider, options)
        eventually(lambda: result.state, PATIENCE)
        yield result


@pytest.fixture
def form(following: Following) -> str:
    """A published form, whose event was followed."""
    name, cursor = f"hr/f{next(_NUMBERS)}", following.page()["next"]
    following.service.publish(name, definition(""))
    while following.types_after(cursor, 1)[-1] != "form.published":
        cursor = following.page(cursor)["next"]
    eventually(lambda: following.state["waiting"] == 0, PATIENCE)  # of the test before
    following.received.clear()
    return name


def test_every_change_has_its_event_in_order(following: Following, form: str) -> None:
    service, cursor = following.service, following.page()["next"]
    path = f"{form}/data/D/data.xml"
    service.save(form, "D", Username="lea", Group="staff", Workflow_Stage="draft")
    saved = service.put(path, b"<e/>", Form_Definition_Version=1, Workflow_Stage="draft", Username="bob")
    service.put(path, b"<e/>", Form_Definition_Version=1, Workflow_Stage="review")
    service.delete(path)
    service.save(form, "D")
    service.publish(form, definition(""), Form_Definition_Version=2)
    service.delete(f"{form}/form/form.xhtml", Form_Definition_Version=2)
    expected = [f"document.{each}" for each in DOCUMENT] + ["form.published", "form.deleted"]
    assert following.types_after(cursor, len(expected)) == expected
    changes = following.page(cursor)["changes"]
    numbers = [each["number"] for each in changes]
    assert numbers == list(range(numbers[0], numbers[0] + len(expected)))
    app, name = form.split("/")
    first, second, staged, deleted, *_ = [each["data"] for each in changes]
    assert (first["app"], first["form"], first["version"], first["document"]) == (app, name, 1, "D")
    assert (first["modifier"], first["owner"], first["group"], first["stage"]) == ("lea", "lea", "staff", "draft")
    assert (second["modifier"], second["owner"]) == ("bob", "lea")
    assert changes[1]["timestamp"] == saved.instant
    assert f'"{second["etag"]}"' == saved["ETag"]
    assert (staged["stage"], staged["stage_before"], deleted["stage_before"]) == ("review", "draft", "review")
    assert "document" not in changes[5]["data"]


def test_what_does_not_commit_has_none(following: Following, form: str) -> None:
    service, cursor = following.service, following.page()["next"]
    assert service.put(f"{form}/data/D/data.xml", b"<d", Form_Definition_Version=1).status == 400
    assert service.put(f"{form}/data/D/data.xml", b"<d/>", {"If-Match": '"x"'}, Form_Definition_Version=1).status == 412
    assert service.delete(f"{form}/data/D/data.xml").status == 404
    service.save(form, "D", collection="draft")
    assert service.put(f"{form}/data/D/a.bin", b"x", Form_Definition_Version=1).status == 201
    service.save(form, "E")
    assert following.types_after(cursor, 1) == ["document.created"]
    assert [each["data"]["document"] for each in following.page(cursor)["changes"]] == ["E"]


def test_a_purge_has_events_of_what_it_removes(following: Following, form: str) -> None:
    service, cursor = following.service, following.page()["next"]
    service.save(form, "D")
    service.delete(f"{form}/data/D/data.xml")
    time.sleep(0.01)  # a purge of what is older than now
    answer = service.post(f"purge/{form}?data-revision-history=include")
    assert answer.status == 200, answer.cause
    assert following.types_after(cursor, 3) == ["document.created", "document.deleted", "document.erased"]


def test_a_follower_waits_for_a_change(following: Following, form: str) -> None:
    cursor = following.page()["next"]
    while following.page(cursor)["changes"]:
        cursor = following.page(cursor)["next"]
    began, saving = time.monotonic(), threading.Timer(0.2, lambda: following.service.save(form, "D"))
    saving.start()
    page = following.page(cursor, wait=10)
    saving.join()
    assert [each["type"] for each in page["changes"]] in (["document.created"], ["form.published"])
    assert time.monotonic() - began < 8


@pytest.mark.parametrize(
    ("query", "status", "cause"),
    [
        ({"since": "x"}, 400, "since must be a cursor of this feed, or start"),
        ({"since": "x.1"}, 410, "the cursor is of another feed"),
        ({"since": "FEED.999999999"}, 410, "are not kept any more"),
        ({"since": "FEED.-1"}, 400, "since must be"),
        ({"since": "FEED.٣"}, 400, "since must be"),
        ({"limit": "0"}, 400, "limit must be a positive integer"),
        ({"wait": "soon"}, 400, "wait must be a positive integer"),
        ({"after": "1"}, 400, "has no parameter 'after'"),
        ({"datasource": "other"}, 400, "there is no datasource 'other'"),
    ],
)
def test_a_feed_refuses_what_it_does_not_know(
    following: Following, query: dict[str, str], status: int, cause: str
) -> None:
    feed = following.page()["next"].partition(".")[0]
    given = {name: value.replace("FEED", feed).replace("٣", "%D9%A3") for name, value in query.items()}
    answer = following.changes(given.pop("since", None), **given)
    assert answer.refuses(status, cause), answer.cause


def test_a_page_goes_on_where_the_one_before_ended(following: Following, form: str) -> None:
    cursor = following.page()["next"]
    following.save(form, 5)
    assert len(following.types_after(cursor, 5)) >= 5
    found: list[int] = []
    has_more = True
    while has_more:
        page = following.page(cursor, limit=2)
        found += [each["number"] for each in page["changes"]]
        cursor, has_more = page["next"], page["has_more"]
    assert found == sorted(set(found))
    assert following.page("start", limit=1)["changes"][0]["number"] == 1


def test_a_webhook_gets_signed_events_of_its_types(following: Following, form: str) -> None:
    following.service.save(form, "D")
    following.await_delivered(1)
    (got,) = following.received
    assert msgspec.json.decode(got.body)["type"] == "document.created"  # the publication is not of its types
    identity, seconds = got.headers["webhook-id"], got.headers["webhook-timestamp"]
    assert abs(int(seconds) - time.time()) < 60
    signed = f"{identity}.{seconds}.".encode() + got.body
    digest = base64.b64encode(hmac.digest(bytes(range(32)), signed, "sha256")).decode()
    assert got.headers["webhook-signature"] == f"v1,{digest}"
    feed, _, number = identity.partition(".")
    assert any(each["number"] == int(number) for each in following.page(f"{feed}.{int(number) - 1}")["changes"])


def test_a_failed_delivery_is_repeated_in_order(
    following: Following, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "_BACKOFF", (0,))
    following.target.statuses[:] = [500, 302]
    following.save(form, 3)
    following.await_delivered(5)
    assert following.documents() == ["D0", "D0", "D0", "D1", "D2"]
    assert len({each.headers["webhook-id"] for each in following.received}) == 3


def test_what_is_given_up_can_be_delivered_again(
    following: Following, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "_BACKOFF", (0,))
    monkeypatch.setattr(webhooks, "MOST_ATTEMPTS", 2)
    following.target.statuses[:] = [500, 500]
    following.save(form, 2)
    following.await_delivered(3)
    eventually(lambda: following.state["given_up"] == 1, PATIENCE)
    (dead,) = following.command("--given-up", "crm")
    assert (dead["type"], dead["about"]) == ("document.created", f"{form}/D0")
    assert dead["cause"] == "the target answers 500"
    following.received.clear()
    assert following.command("--replay", "crm") == [{"target": "crm", "action": "replay", "after": dead["number"] - 1}]
    following.await_delivered(2)
    assert following.documents() == ["D0", "D1"]
    assert following.command("--given-up", "crm") == []
    eventually(lambda: following.state["waiting"] == 0, PATIENCE)


def test_what_is_asked_for_during_a_delivery_happens(following: Following, form: str) -> None:
    delivered = following.state["delivered"]
    following.target.hangs.set()
    try:
        following.service.save(form, "D0")
        following.await_delivered(1)
        following.command("--replay", "crm", "--after", str(delivered))
    finally:
        following.target.hangs.clear()
    following.await_delivered(2)


def require_paused(following: Following, *, waiting: int, delivered: int) -> None:
    """A delivery to a target that is not paused begins as soon as its event has a number."""
    eventually(lambda: shown(following) == {"waiting": waiting, "paused": 1}, PATIENCE)
    time.sleep(0.3)
    assert len(following.received) == delivered


def shown(following: Following) -> dict[str, float]:
    figures = r'persistence_events_(waiting|paused)\{place="[^"]+",target="crm"\} ([0-9.]+)'
    text = following.service.raw("GET", "/metrics").body.decode()
    return {name: float(value) for name, value in re.findall(figures, text)}


def test_a_target_that_is_gone_is_paused_and_shows_in_the_metrics(following: Following, form: str) -> None:
    following.target.statuses[:] = [410]
    following.service.save(form, "D0")
    eventually(lambda: following.state["cause"] == "the target answers 410", PATIENCE)
    following.service.save(form, "D1")
    require_paused(following, waiting=2, delivered=1)
    following.command("--resume", "crm")
    following.await_delivered(3)
    eventually(lambda: shown(following) == {"waiting": 0, "paused": 0}, PATIENCE)  # it is noted after it has arrived
    following.command("--pause", "crm")
    following.service.save(form, "D2")
    require_paused(following, waiting=1, delivered=3)
    following.command("--resume", "crm")
    following.await_delivered(4)
    eventually(lambda: shown(following) == {"waiting": 0, "paused": 0}, PATIENCE)


def test_no_request_waits_for_a_target_that_hangs(following: Following, form: str) -> None:
    following.target.hangs.set()
    try:
        began = time.monotonic()
        following.save(form, 10)
        assert following.page()["changes"] == []
        assert time.monotonic() - began < 8
    finally:
        following.target.hangs.clear()
    following.command("--resume", "crm")
    eventually(lambda: set(following.documents()) == {f"D{number}" for number in range(10)}, 2 * PATIENCE)


def test_events_are_kept_within_bounds(following: Following, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = following.page()["next"]
    following.save(form, 5)
    assert len(following.types_after(cursor, 5)) >= 5
    monkeypatch.setattr(outbox, "MOST_EVENTS", 2)
    eventually(lambda: following.changes(cursor).status == 410, 100)
    assert len(following.page("start")["changes"]) == 2


def test_the_command_refuses_what_it_cannot_do(following: Following) -> None:
    following.command("--pause", "other", status=1)
    following.command("--replay", "crm", status=1)
    following.command("--after", "3", status=2)
    following.command("--pause", "crm", "--resume", "crm", status=2)
    assert following.command("--replay", "crm", "--after", "999999999")[0]["after"] == following.state["delivered"]


def test_a_renewed_feed_begins_anew(following: Following, form: str) -> None:
    cursor = following.page()["next"]
    (renewed,) = following.command("--renew")
    assert following.changes(cursor).refuses(
        410, f"of another feed: read everything, and then the changes since {renewed['feed']}."
    )
    following.service.save(form, "D")
    following.await_delivered(1)


def test_the_page_shows_targets_and_acts_on_them(tmp_path: Path) -> None:
    with providing(target := Target()) as provider:
        target.statuses[:] = [410]
        crm = Webhook(url_of(provider), SECRET)
        page = administrator(tmp_path, trusted=("127.0.0.1",), events=True, webhook={"crm": crm})

        def shows(text: str) -> bool:
            page.get("/admin/events")
            return text in page.text

        eventually(lambda: shows("crm"), PATIENCE)
        path, headers = "/fr/service/persistence/crud/hr/leave/data/D/data.xml", {"Svc-Form-Definition-Version": "1"}
        assert page.client.put(path, data=b"<d/>", headers=headers, environ_base=PEER).status_code == 201
        eventually(lambda: shows("paused"), PATIENCE)
        page.get("/admin/settings")
        assert SECRET not in page.text
        page.do("/admin/actions/events-resume?datasource=&target=crm")
        assert "The delivery to crm goes on." in page.text
        eventually(lambda: len(provider.received) == 2 and shows("in order"), PATIENCE)
        page.do("/admin/actions/events-replay?datasource=&target=crm&after=0")
        eventually(lambda: len(provider.received) == 3, PATIENCE)
        for wrong, status in (("target=crm&datasource=x", 400), ("target=x", 404), ("target=crm&after=x", 400)):
            assert page.get(f"/admin/actions/events-replay?{wrong}").status_code == status


def test_a_power_cut_that_takes_all_that_was_recorded_costs_no_event(tmp_path: Path) -> None:
    address = DocumentAddress(Form("hr", "leave"), Collection.DATA, "D", DATA_XML)
    store = opened(Store(initialised(tmp_path), lock_timeout=1, recorder=TreeOutbox(str(tmp_path))))
    documents = services(store, SVC, Properties.load({}, SVC.property_prefix)).documents
    for body in (b"<a/>", b"<b/>"):
        documents.write(address, Put(), [body])
    with opened(TreeOutbox(str(tmp_path))) as outbox:
        with outbox.transaction("taking") as run:
            for table in ("outbox_event", "latest", "intent"):
                run(f"DELETE FROM {table}")  # noqa: S608 - one of these
            run("UPDATE outbox_fact SET value = 'another' WHERE name = 'boot'")
        outbox.recover(store, lambda: False)
        assert outbox.settle() == 2


def test_a_change_waits_until_another_thread_has_made_the_outbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, may_go_on = threading.Event(), threading.Event()
    real = files.ensure_file

    def slow(path: str) -> None:
        made.set()
        may_go_on.wait(PATIENCE)
        real(path)

    outbox = opened(TreeOutbox(str(initialised(tmp_path))))
    monkeypatch.setattr(files, "ensure_file", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(outbox.prepare)
        assert made.wait(PATIENCE)
        second = pool.submit(outbox.prepare)
        assert wait([second], 0.2).not_done
        may_go_on.set()
        first.result()
        second.result()


def test_there_is_no_feed_without_events_and_for_strangers(tmp_path: Path) -> None:
    for settings, status, cause in (
        ('administrators = ["trusted"]', 404, "changes are not recorded"),
        ("events = true", 403, "may follow changes"),
    ):
        with serving(tmp_path, settings=settings) as service:
            assert service.call("GET", "changes").refuses(status, cause)
            service.save("hr/leave", "D")
        assert (tmp_path / "data/.events").exists() is (status == 403)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (settings_of("ftp://x/"), "webhook"),
        (settings_of("http://localhost:8080/x", more='bind = "127.0.0.1:8080"'), "is that of this service"),
        (settings_of("http://127.0.0.1:8/x", more='bind = "0.0.0.0:8"\ninsecure = true'), "is that of this service"),
        (settings_of("http://x:99999/"), "cannot be read"),
        (settings_of("https://x/").replace("document.*", "document.saved"), "no event has the type 'document.saved'"),
        (settings_of("https://x/").replace(SECRET, "geheim"), "webhook"),
        (settings_of("https://x/").replace("events = true", ""), "gets no events while the setting events is false"),
    ],
)
def test_a_target_that_cannot_be_is_refused_at_the_start(
    tmp_path: Path, text: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartupError) as error:
        webhooks.require_targets(configuration.load("settings.toml", environment={}).settings)
    assert cause in str(error.value)
    assert "geheim" not in str(error.value)
    assert SECRET not in str(error.value)


# Kills at system calls of a save: every commit has its event afterwards, in order, and nothing else has one.

_CALLS = ("fsync", "link", "linkat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "pwrite64", "sendto")
_SETTINGS = """
events = true
administrators = ["trusted"]
"svc.persistence.proxy.disable-version-history.short.*" = true
"""
_RECOVERED = 40.0
Ask = Callable[[Service, str], Answer]


def _path(document: str) -> str:
    return f"{document}/data/D/data.xml"


def _save(service: Service, document: str) -> Answer:
    return service.put(_path(document), b"<d/>", **V1)


def _delete(service: Service, document: str) -> Answer:
    return service.delete(_path(document))


def _instants(service: Service, document: str) -> list[str]:
    """The instants of all revisions that are on disk, oldest first."""
    folder = service.data / document / "data/D"
    found = [folder / "data.xml.json", *folder.glob(".history/*.data.xml.json")]
    return sorted({json.loads(each.read_bytes())["modified"] for each in found if each.exists()})


def _events(service: Service) -> dict[str, list[str]]:
    """The timestamps of the events of each form, in their order."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    cursor, has_more = "start", True
    while has_more:
        page = json.loads(service.call("GET", f"changes?since={cursor}&limit=1000").body)
        cursor, has_more = page["next"], page["has_more"]
        for each in page["changes"]:
            found[f"{each['data']['app']}/{each['data']['form']}"].append(each["timestamp"])
    return found


@contextmanager
def _serving(directory: Path) -> Iterator[Service]:
    file = directory / "settings.toml"
    file.write_text(_SETTINGS)
    module, env = rig_service.__name__, rig_service.ENVIRONMENT
    with running(directory, workers=1, threads=1, module=module, env=env, options=("--config", str(file))) as service:
        yield service


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(("app", "is_written_again"), [("long", False), ("short", True)])
def test_a_kill_costs_no_event(tmp_path: Path, step: int, app: str, *, is_written_again: bool) -> None:
    """In ``short`` no history is kept: the next save replaces the revision that the killed one has committed."""
    strikes.require(tmp_path)
    expected: dict[str, set[str]] = {}
    late, numbers = 0, count()

    with _serving(tmp_path) as service:
        injector = Injector(service, tmp_path)

        def fresh(saves: int) -> str:
            document = f"{app}/form{next(numbers)}"
            service.get(_path(document))  # the worker has its thread from the first request on
            expected[document] = {_save(service, document).instant for _ in range(saves)}
            return document

        for saves, ask in ((0, _save), (1, _save), (2, _delete)):
            points = injector.points(partial(ask, service, undisturbed := fresh(saves)), _CALLS)
            expected.pop(undisturbed)
            for point in points[::step]:
                document = fresh(saves)
                injector.strike(point, "signal=KILL", partial(ask, service, document))
                expected[document] |= set(_instants(service, document))
                late += len(expected[document]) > len(_events(service)[document])
                if is_written_again:
                    assert _save(service, document).status in (201, 204)
                    expected[document] |= set(_instants(service, document))
        ends = time.monotonic() + _RECOVERED
        while wrong := {
            name: (sorted(instants), found)
            for name, instants in expected.items()
            if (found := _events(service)[name]) != sorted(instants)
        }:
            assert time.monotonic() < ends, wrong
            time.sleep(0.5)
    assert late > 0, "no kill was between a commit and its event"
