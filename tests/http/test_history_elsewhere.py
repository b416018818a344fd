"""Histories and differences of data that a second service has: as that one shows them itself, and within bounds."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from lxml import etree

from persistence.dialect import DIALECTS
from persistence.model.texts import LAST
from persistence.remote import remote_reader
from persistence.services import histories
from tests import orders
from tests.forms.test_diffs import TRIP, trip
from tests.forms.vectors import changed, published
from tests.http.test_flat_views import reporting
from tests.http.test_remote_faults import settings
from tests.in_process import serving
from tests.orders import named
from tests.providers import STORED, Provider, Received, Reply, providing
from tests.search_faults import found
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service
from tests.waiting import eventually

OWN = (
    '<permissions><permission operations="create"/><permission operations="read update delete"><owner/></permission>'
    '<permission operations="read"><user-role any-of="boss"/></permission></permissions>'
)
FORM = changed(published(TRIP), "<form-name>vec</form-name>", f"<form-name>vec</form-name>{OWN}").encode()
READERS = ({}, {"Username": "lea"}, {"Username": "eve"}, {"Username": "ann", "Roles": "boss"})


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("behind"), dialect="orbeon", alone=True) as service:
        service.face = PROVIDER
        yield service


def in_front(directory: Path, dialect: str, **lines: str) -> AbstractContextManager[Service]:
    """A service whose properties of providers are these."""
    prefix = DIALECTS[dialect].property_prefix
    settings = "".join(f'"{prefix}persistence.{name}" = "{value}"\n' for name, value in lines.items())
    return serving(directory, dialect=dialect, settings=settings, alone=True)


@pytest.fixture(scope="module", params=[pytest.param("svc", marks=pytest.mark.long), "orbeon"])
def front(
    request: pytest.FixtureRequest, behind: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    lines = {"files.uri": f"http://127.0.0.1:{behind.port}", "files.dialect": "orbeon"}
    with in_front(tmp_path_factory.mktemp("front"), request.param, **lines) as service:
        yield service


def asked(service: Service, path: str, **own: str) -> Answer:
    return service.call("GET", f"history/{path}", **own)


def times(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.cause
    return [str(each.get("modified-time")) for each in etree.fromstring(answer.body)]


def kinds(answer: Answer) -> list[list[str | None]]:
    assert answer.status == 200, answer.cause
    return [[each.get("type") for each in found] for found in etree.fromstring(answer.body).iter("diffs")]


def seen(front: Service, answer: Answer) -> tuple[int, bytes]:
    """What an answer shows in the dialect of a service: the status of what is deleted is its own."""
    status = front.deleted if answer.status == 410 else answer.status
    return status, answer.body if status == 200 else b""


def save(service: Service, form: str, *bodies: str, **own: object) -> list[str]:
    return [service.save(form, body=body.encode(), **own).instant for body in bodies]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    paths: list[str] = []
    real = remote_reader.Call

    def noting(*args: object, **named: object) -> object:
        if str(args[1]).startswith("/history/"):
            paths.append(str(args[1]))
        return real(*args, **named)

    monkeypatch.setattr(remote_reader, "Call", noting)
    return paths


@pytest.fixture(scope="module")
def long(behind: Service) -> tuple[str, list[str]]:
    """A form, and the times of 105 revisions of its document, oldest first."""
    saved = save(behind, "acme/long", "<d>0</d>", Username="lea")
    existing = {"Created_Existing": saved[0], "Username_Existing": "lea"}
    return "acme/long", saved + save(behind, "acme/long", *(f"<d>{number}</d>" for number in range(1, 105)), **existing)


@pytest.mark.parametrize(
    ("query", "begin", "end", "most"),
    [
        ("", 0, 10, 1),
        ("?page-size=100", 0, 100, 1),
        ("?page-size=100&page-number=2", 100, 105, 2),
        ("?page-size=7&page-number=15", 98, 105, 2),
        ("?page-number=12", 105, 105, 1),
    ],
)
def test_many_revisions_are_asked_for_as_they_are_needed(
    front: Service, long: tuple[str, list[str]], calls: list[str], query: str, begin: int, end: int, most: int
) -> None:
    form, saved = long
    assert times(asked(front, f"{form}/D{query}")) == saved[::-1][begin:end]
    assert len(calls) <= most


@pytest.mark.parametrize("position", [0, 1, 57, 103, 104])
def test_as_of_finds_one_of_many(front: Service, long: tuple[str, list[str]], calls: list[str], position: int) -> None:
    form, saved = long
    assert front.get(f"{form}/data/D/data.xml?as-of={saved[position]}").body == f"<d>{position}</d>".encode()
    assert len(calls) <= 2


@pytest.fixture(scope="module")
def lived(front: Service) -> str:
    """A document with lives of two owners, changed and unchanged saves, and an attachment; it is there at the end."""
    form = f"acme/lived-{front.dialect}"
    assert front.put(f"{form}/form/form.xhtml", FORM, **V1).status == 201
    for owner, values in (("lea", "122"), ("eve", "34"), ("lea", "5"), ("eve", "667")):
        save(front, form, *map(trip, values), Username=owner)
        assert front.put(f"{form}/data/D/a.bin", values.encode(), **V1, Username=owner).status in (201, 204)
        assert front.delete(f"{form}/data/D/data.xml", **V1, Username=owner).status == 204
    save(front, form, trip("8"), trip("9", "a"), Username="lea")
    return form


QUERIES = (
    *("", "?page-size=3&page-number=2", "?page-size=2&page-number=4", "?page-number=9"),
    "?include-diffs=true&page-size=4&page-number=2&lang=fr&truncation-size=1",
)


def test_every_reader_sees_what_the_service_behind_shows_them(behind: Service, front: Service, lived: str) -> None:
    public = replace(behind, face=PUBLIC)
    for reader in READERS:
        for query in QUERIES:
            here, there = (asked(service, f"{lived}/D{query}", **reader) for service in (front, public))
            assert seen(front, here) == seen(front, there), (reader, query)
    boss = READERS[-1]
    assert len(times(asked(front, f"{lived}/D?page-size=100", **boss))) == 3 + 2 + 1 + 3 + 4 + 2
    assert times(asked(front, f"{lived}/D/a.bin", **boss)) == times(asked(public, f"{lived}/D/a.bin", **boss))


def test_two_revisions_are_compared_as_behind(behind: Service, front: Service, lived: str) -> None:
    """In front, through the public API behind, and, without permissions, through the face of its proxies."""
    public, boss = replace(behind, face=PUBLIC), READERS[-1]
    instants = times(asked(front, f"{lived}/D?page-size=100", **boss))
    for older, newer in ((1, 0), (14, 12), (3, 1), (8, 14)):
        query = f"?form-version=1&older-modified-time={instants[older]}&newer-modified-time={instants[newer]}"
        found = [asked(each, f"{lived}/D/diff{query}", **boss) for each in (front, public, behind)]
        assert {answer.status for answer in found[1:]} == {found[1].status}
        assert found[0].status == (
            {410: 404}.get(found[1].status, found[1].status) if front.dialect == "svc" else found[1].status
        )
        if found[1].status == 200:
            assert found[0].body == found[1].body == found[2].body
    pages = [asked(each, f"{lived}/D?include-diffs=true", **own) for each, own in ((behind, {}), (front, boss))]
    assert pages[0].body == pages[1].body


def test_as_of_every_moment_is_what_was_there(behind: Service, front: Service, lived: str) -> None:
    public, path = replace(behind, face=PUBLIC), f"{lived}/data/D/data.xml"
    instants = times(asked(front, f"{lived}/D?page-size=100", **READERS[-1]))
    for reader in READERS[2:]:
        for moment in (*instants[::3], LAST, "2001-01-01T00:00:00Z"):
            here, there = (service.get(f"{path}?as-of={moment}", **reader) for service in (front, public))
            assert seen(front, here) == seen(front, there)


def test_no_more_than_a_bound_is_compared_of_a_page(front: Service, lived: str) -> None:
    """What comes after is not even read: of it, it is said that something differs."""
    bound = patch.object(histories, "LARGEST_DIFFED", 3 * len(trip("1")))
    noting = patch.object(histories.Documents, "read", autospec=True, side_effect=histories.Documents.read)
    with bound, noting as reading:
        found = kinds(asked(front, f"{lived}/D?include-diffs=true", **READERS[-1]))
    assert found[0] != ["other"]
    assert all(each == ["other"] for each in found[1:])
    assert reading.call_count <= 4


def test_only_so_many_lives_are_judged_and_requests_sent(behind: Service, front: Service, lived: str) -> None:
    """In front and behind alike: older ones count as the last of them."""
    with patch.object(histories, "MOST_LIVES", 3):
        for reader in READERS[1:]:
            here, there = (asked(each, f"{lived}/D", **reader) for each in (front, replace(behind, face=PUBLIC)))
            assert seen(front, here) == seen(front, there)
    with patch.object(remote_reader, "MOST_HISTORY_CALLS", 3):
        assert asked(front, f"{lived}/D", **READERS[-1]).refuses(501, "needs too many requests")
        assert asked(front, f"{lived}/D?page-size=1", **READERS[-1]).status == 501


ROW = '<document modified-time="2025-03-04T05:06:07.089Z" owner-username="lea" deleted="false"/>'
LIST = '<documents total="1" form-version="1" created-time="2025-03-01T00:00:00Z">{}</documents>'


class Answering:
    def __init__(self) -> None:
        self.history = Reply(404)

    def __call__(self, got: Received) -> Reply:
        path = got.path.partition("?")[0]
        if path.startswith("/base/history"):
            return self.history
        if path.startswith("/base/form"):
            return Reply(body=b'<forms search-total="0"/>', headers={"Content-Type": "application/xml"})
        return Reply(200, STORED, b"<d/>") if path.endswith("data.xml") else Reply(404)


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with providing(Answering()) as provider:
        yield provider


@pytest.fixture(scope="module")
def fronted(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory: Path = tmp_path_factory.mktemp("answering")
    with serving(directory, env={"PERSISTENCE_CONFIG": str(settings(directory, provider.port))}, alone=True) as service:
        yield service


@pytest.mark.parametrize(
    ("reply", "status", "cause"),
    [
        *((Reply(status), 501, "has no history") for status in (400, 404, 405, 501)),
        (Reply(500), 502, "with 500"),
        (Reply(503), 503, "with 503"),
        (Reply(403), 403, "with 403"),
        (Reply(302, {"Location": "/"}), 502, "with 302"),
        (Reply(body=b"<documents"), 502, "is not XML"),
        (Reply(body=b""), 502, "is not XML"),
        (Reply(body=b"<documents/>"), 502, "how many revisions"),
        (Reply(body=b'<documents total="-1"/>'), 502, "how many revisions"),
        (Reply(body=b'<documents total="9999999999999999999999"/>'), 502, "how many revisions"),
        (Reply(body=LIST.format("").encode()), 502, "fewer revisions"),
        (Reply(body=LIST.format(ROW.replace("2025-03-04", "yesterday")).encode()), 502, "a time that is not valid"),
        (Reply(body=LIST.replace('form-version="1"', "").format(ROW).encode()), 502, "a form version"),
        (Reply(body=LIST.replace('form-version="1"', 'form-version="0"').format(ROW).encode()), 502, "a form version"),
        (Reply(body=LIST.replace("2025-03-01", "x").format(ROW).encode()), 502, "a time that is not valid"),
        (Reply(body=LIST.format(ROW * 101).encode()), 502, "more revisions"),
        (Reply(body=LIST.format(ROW).encode()), 200, ""),
    ],
)
def test_what_a_provider_may_answer(
    provider: Provider, fronted: Service, reply: Reply, status: int, cause: str
) -> None:
    provider.answers = answering = Answering()
    answering.history = reply
    found = [
        asked(fronted, "acme/order/D"),
        fronted.get("acme/order/data/D/data.xml?as-of=2025-03-02T00:00:00Z"),
        asked(fronted, "acme/order/D?include-diffs=true"),
    ]
    expected = [status, 404 if status == 200 else status, status]
    assert [answer.status for answer in found] == expected, found[0].cause
    assert all(cause in answer.cause and len(answer.cause.splitlines()) == 1 for answer in found if status != 200)
    assert fronted.get("acme/order/data/D/data.xml?as-of=2025-03-05T00:00:00Z").status == 200


def test_a_provider_whose_only_revision_is_damaged(provider: Provider, fronted: Service) -> None:
    """Nobody knows whose it is, so it is shown to nobody; a read of it has the reason."""
    provider.answers = answering = Answering()
    damaged = ROW.replace("/>", ' damaged="true"/>')
    answering.history = Reply(body=LIST.format(damaged).encode())
    for query in ("", "?include-diffs=true", "?page-number=7"):
        assert asked(fronted, f"acme/order/D{query}").refuses(502, "damaged")


def test_a_provider_that_says_that_there_are_more_is_not_asked_for_ever(provider: Provider, fronted: Service) -> None:
    """Neither by its number of revisions nor by its times."""
    provider.answers = answering = Answering()
    body = LIST.replace('total="1"', f'total="{10**17}"').format(ROW * 100)
    answering.history = Reply(body=body.encode())
    provider.received.clear()
    with patch.object(remote_reader, "MOST_HISTORY_CALLS", 20):
        for path in ("acme/order/D", "acme/order/D?page-number=999999999999999&page-size=100"):
            assert asked(fronted, path).status in (200, 501, 502)
        assert fronted.get("acme/order/data/D/data.xml?as-of=2025-03-02T00:00:00Z").status in (404, 501, 502)
    assert len(provider.received) < 3 * (20 + 5)


# A form with its definition in one service and its data in another: it is indexed where it is published, too.

ORDER = "acme/order"
ADA = '<search><query path="customer/name" match="exact">Ada</query></search>'
EVERYBODY = '<permissions><permission operations="create read update list"/></permissions>'
NOBODY = "<permissions/>"
ROWS = {"svc": "SELECT name FROM svc_f_acme_order_1", "orbeon": "SELECT name FROM orbeon_f_acme_order_1"}


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "behind", dialect="orbeon", alone=True) as service:
        yield service


@pytest.fixture(params=["orbeon", pytest.param("svc", marks=pytest.mark.long)])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def before(directory: Path, dialect: str, far: Service, part: str) -> AbstractContextManager[Service]:
    """A service that has one part of each form far it."""
    lines = {"provider.*.*." + part: "far", "far.uri": f"http://127.0.0.1:{far.port}", "far.dialect": "orbeon"}
    return in_front(directory, dialect, **lines)


def publish(service: Service, metadata: str = EVERYBODY, **own: object) -> int:
    return service.put(f"{ORDER}/form/form.xhtml", orders.definition(metadata), **V1, **own).status


def search(service: Service, body: str = ADA) -> tuple[list[str], str]:
    answer = service.post(f"search/{ORDER}", body)
    assert answer.status == 200, answer.cause
    return sorted(found(answer.body)), answer[f"{service.prefix}Notice"] or ""


def save_named(service: Service, *names: str) -> None:
    for name in names:
        service.save(ORDER, name, named(name))


def test_controls_of_data_here_are_indexed_by_a_copied_definition(tmp_path: Path, dialect: str, far: Service) -> None:
    """The copy is published on the provider API. It decides nothing else: rules go by the definition far."""
    with before(tmp_path / "front", dialect, far, "form") as service:
        own_tree = replace(service, face=PROVIDER)
        assert publish(service) == 201
        assert not (service.data / ORDER / "form").exists()
        save_named(service, "Ada", "Bob")
        names, notice = search(service)
        assert (names, "publish version 1 where its data is" in notice) == ([], True)
        assert search(service, "<search/>")[0] == ["Ada", "Bob"]
        assert publish(own_tree, NOBODY) == 201
        assert (service.data / ORDER / "form/1/form.xhtml").exists()
        assert search(service) == (["Ada"], "")
        save_named(service, "Ada", "Cid")
        assert search(service) == (["Ada"], "")
        assert service.get(f"{ORDER}/data/Ada/data.xml").status == 200
        assert EVERYBODY.encode() in service.get(f"{ORDER}/form/form.xhtml").body
        assert service.raw("GET", f"{PUBLIC}/form/{ORDER}").body.count(b"<form ") == 1
        assert publish(service, NOBODY) == 204
        assert service.get(f"{ORDER}/data/Ada/data.xml").status == 403
        assert publish(service) == 204
        assert own_tree.delete(f"{ORDER}/form/form.xhtml", **V1).status == 204
        assert search(service, "<search/>")[0] == [], "as after a DELETE of any definition"
        assert publish(own_tree) in (201, 204)
        assert search(service, "<search/>")[0] == ["Ada", "Bob", "Cid"]
        assert search(service)[0] == ["Ada"]


def test_data_here_has_flat_views_by_a_copy_of_its_definition(tmp_path: Path, dialect: str, far: Service) -> None:
    with before(tmp_path / "front", dialect, far, "form") as service:
        refused = service.put(f"{ORDER}/form/form.xhtml", orders.definition(), **V1, Create_Flat_View="true")
        assert (refused.status, "publish the form there" in refused.cause) == (501, True)
        assert publish(service) == 201
        save_named(service, "Ada")
        assert publish(replace(service, face=PROVIDER), Create_Flat_View="true") == 201
        save_named(service, "Bob")
        with reporting(service) as report:
            report.becomes(lambda: sorted(report.ask(ROWS[dialect])), [("Ada",), ("Bob",)])


def test_data_behind_is_indexed_and_has_flat_views_by_a_copy_there(tmp_path: Path, dialect: str, far: Service) -> None:
    with before(tmp_path / "front", dialect, far, "data") as service:
        service.face, far.face = PUBLIC, PROVIDER
        assert publish(service) == 201
        assert publish(far, Create_Flat_View="true") == 201
        save_named(service, "Ada", "Bob")
        eventually(lambda: search(service)[0] == ["Ada"])
        assert search(service) == (["Ada"], "")
        assert not (service.data / ORDER / "data").exists()
        with reporting(far) as report:
            report.becomes(lambda: sorted(report.ask(ROWS["orbeon"])), [("Ada",), ("Bob",)])
