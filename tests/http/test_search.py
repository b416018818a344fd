"""Searches, distinct values and reindexing over HTTP (spec search 1, 3 and 5): the vectors T1 to T13, and the wire."""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

import pytest
from lxml import etree

from persistence.storage import files
from persistence.storage.layout import REINDEXING
from persistence.storage.locks import LockFile
from tests import orders, search_faults, searches
from tests.http.dying import DEFECT
from tests.http.stories import play, stories
from tests.in_process import serving
from tests.orders import canonical, found
from tests.published import PERMISSIONS, Planter
from tests.searches import NAME, STATUS, TOPICS, control
from tests.served import served
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service, is_proxied, running

pytestmark = pytest.mark.xdist_group("search")  # a tree is planted and served once

_DATA = "acme/order/data/{}/data.xml"
_FORM = "acme/order/form/form.xhtml"
_XML = {"Content-Type": "application/xml"}


def search(
    service: Service, body: str = "<search/>", version: object = None, form: str = "acme/order", **own: object
) -> Answer:
    if version is not None:
        own["Form_Definition_Version"] = version
    answer = service.post(f"/search/{form}", body, **own)
    assert answer.status == 200, answer.cause
    return answer


def of(service: Service, body: str = "<search/>", version: object = None, **own: object) -> list[str]:
    return found(search(service, body, version, **own).body)


def reindex(service: Service) -> None:
    """What was planted before the service began is found from now on."""
    assert service.post("/reindex").status == 200


planted = served("svc", "orbeon", plant=orders.plant, then=reindex)


@pytest.fixture(params=[PROVIDER, PUBLIC], ids=["provider", "public"])
def acme(request: pytest.FixtureRequest, planted: Service) -> Service:
    """The set-up of the vectors, in both dialects and through both APIs; nothing is changed in it."""
    planted.face = request.param
    return planted


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Service]:
    orders.plant(Planter(tmp_path / "data"))
    with running(tmp_path, workers=2) as service:
        reindex(service)
        yield service


def test_t1_nothing_there(svc: Service, form: str) -> None:
    body = (
        "<search><query/><drafts>include</drafts><page-size>10</page-size><page-number>1</page-number>"
        "<lang>en</lang></search>"
    )
    for is_published in (False, True):
        if is_published:
            assert svc.put(f"{form}/form/form.xhtml", orders.definition()).status == 201
        answer = search(svc, body, version=1, form=form)
        assert (answer.body, answer["Content-Type"]) == (b'<documents search-total="0"/>', "application/xml")
        assert (answer["Svc-Form-Definition-Version"], answer["Svc-Operations"]) == (None, None)


def test_signatures_are_not_searched_and_the_texts_beside_them_are(svc: Service, form: str) -> None:
    signature = f"data:image/png;base64,{'iVBORw0KGgoAAAANSUhEUgAA' * 1000}"
    body = f"<form><customer><name>{signature}</name><email>{'A' * 5000}</email><notes>{signature}</notes></customer>"
    assert svc.put(f"{form}/form/form.xhtml", orders.definition()).status == 201
    document = f"{body}<items><lines><product>Pump A</product></lines></items></form>".encode()
    assert svc.put(f"{form}/data/d/data.xml", document, **V1).status == 201
    for text, names in (("Pump", ["d"]), ("iVBORw0KGgo", []), ("AAAA", []), ("image/png", [])):
        for query in (f"<query>{text}</query>", f'<query match="substring" path="{NAME}">{text}</query>'):
            expected = [] if NAME in query else names
            assert found(search(svc, f"<search>{query}</search>", 1, form).body) == expected, query
    assert svc.get(f"{form}/data/d/data.xml").body == document
    assert b"base64" not in search(svc, f'<search><query path="{NAME}" summary-show="true"/></search>', 1, form).body


def test_t2_default_order_and_details_in_the_order_of_the_request(acme: Service) -> None:
    answer = search(acme, searches.T2_QUERY)
    assert canonical(answer.body) == canonical(searches.T2)
    assert (answer["Content-Type"], answer["Content-Length"]) == ("application/xml", str(len(answer.body)))
    assert (answer[f"{acme.prefix}Form-Definition-Version"], answer[f"{acme.prefix}Operations"]) == (None, None)


VECTORS = [*((each, {}) for each in searches.VECTORS), *((each, {"Username": "bob"}) for each in searches.DRAFTS)]


@pytest.mark.parametrize(("vector", "user"), VECTORS, ids=[each.number for each, _ in VECTORS])
def test_t3_to_t9(acme: Service, vector: searches.Vector, user: dict[str, str]) -> None:
    assert of(acme, vector.body, **user) == vector.found


def test_t3_details_of_what_is_not_indexed_and_of_what_is_asked_for_twice(acme: Service) -> None:
    by_number = {vector.number: vector for vector in searches.VECTORS}
    nothing = [(searches.NOTES, "")]
    assert list(orders.details(search(acme, by_number["T3m"].body).body)) == [nothing] * 3
    twice = [(searches.PRODUCT, "Pump A, Valve_9")] * 2
    assert list(orders.details(search(acme, by_number["T3n"].body).body)) == [twice]


REFUSED = [
    *(("search/acme/order", f"<search>{children}</search>", {}) for children in searches.ERRORS),
    *(("search/acme/order", body, {}) for body in ("<search>", "", "\x00", "<search/><search/>")),
    ("search/acme/order", "<!DOCTYPE search [<!ENTITY a 'a'>]><search>&a;</search>", {}),
    *(("distinct-values/acme/order", f"<d><query metadata='{each}'/></d>", {}) for each in ("created", "x")),
    *(("distinct-values/acme/order", body, {}) for body in ("<d>", "")),
]
for _word in ("search", "distinct-values"):
    _versions = ("x", "next", "0", "-1", "1.0", "", "latest")
    REFUSED += [(f"{_word}/acme/order", "<search/>", {"Form_Definition_Version": each}) for each in _versions]
    REFUSED += [(f"{_word}/acme/{name}", "<search/>", {}) for name in (".hidden", "x" * 300)]


def _typed() -> bytes:
    definition = orders.definition().decode()
    for name, of in (("status", "xf:date"), ("topics", "xf:decimal")):
        definition = definition.replace(f'name="{name}"', f'name="{name}" type="{of}"', 1)
    return definition.encode()


@pytest.fixture(scope="module")
def ranged(restricted: Service) -> Service:
    """A form with a date and a number, and three documents."""
    assert restricted.put("typed/order/form/form.xhtml", _typed()).status == 201
    for name, status, topics in (("one", "2024-05-01", "9"), ("two", "2024-05-31", "10.5"), ("three", "soon", "few")):
        body = f"<form><customer><topics>{topics}</topics><status>{status}</status></customer></form>"
        assert restricted.put(f"typed/order/data/{name}/data.xml", body.encode(), **V1).status == 201
    return restricted


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (control(STATUS, "2024-05-01 2024-05-31", match="between"), ["two", "one"]),
        (control(STATUS, " 2024-05-01\n", match="gt"), ["two"]),
        (control(STATUS, "2024-05-31", match="lt") + control(TOPICS, "0", match="gte"), ["one"]),
        (control(TOPICS, "+10.50", match="lte"), ["two", "one"]),
        (control(STATUS, "", match="between"), ["three", "two", "one"]),
        (control("customer/nothing", "1", match="gte"), []),
    ],
)
def test_ranges_of_typed_controls(ranged: Service, body: str, names: list[str]) -> None:
    assert found(search(ranged, f"<search>{body}</search>", form="typed/order").body) == names


def test_a_range_in_json(ranged: Service) -> None:
    asked = {"query": {"path": STATUS, "match": "between", "value": "2024-05-02 2024-06-30"}}
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    answer = ranged.call("POST", "search/typed/order", json.dumps(asked).encode(), headers)
    assert [each["name"] for each in json.loads(answer.body)["documents"]] == ["two"]


_TYPES = "date, dateTime, time, integer, decimal, double"


@pytest.mark.parametrize(
    ("query", "cause"),
    [
        (control(STATUS, "tomorrow", match="gte"), f"'tomorrow' is not a value of the type date, which {STATUS!r} has"),
        (control(TOPICS, "1e3", match="lt"), f"'1e3' is not a value of the type decimal, which {TOPICS!r} has"),
        (
            control(STATUS, "2024-05-01", match="between"),
            "between needs two values with a blank between them, not '2024-05-01'",
        ),
        (control(TOPICS, "1 2", match="gt"), "gt needs one value, not '1 2'"),
        (
            control(NAME, "a", match="gte"),
            f"{NAME!r} cannot have the match gte: its bind does not have one of the types {_TYPES}",
        ),
        (
            control(STATUS, "2024-05-01", match="before"),
            "'before' is not a valid match: it must be one of substring, token, exact, gte, gt, lte, lt, between",
        ),
    ],
)
def test_ranges_that_are_refused(ranged: Service, query: str, cause: str) -> None:
    answer = ranged.post("search/typed/order", f"<search>{query}</search>")
    assert (answer.status, answer.cause) == (400, cause)


@pytest.mark.parametrize(("path", "body", "own"), REFUSED, ids=range(len(REFUSED)))
def test_t8_and_t13_errors(acme: Service, path: str, body: str, own: dict[str, str]) -> None:
    answer = acme.post(path, body, **own)
    assert (answer.status, answer["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert answer.cause
    assert "\n" not in answer.cause


@pytest.mark.parametrize("children", searches.NO_ERRORS)
def test_t8_no_errors(acme: Service, children: str) -> None:
    search(acme, f"<search>{children}</search>")


def test_t8_drafts_in_other_words_are_an_error_for_known_users_only(acme: Service) -> None:
    body = "<search><drafts> only </drafts></search>"
    assert acme.post("/search/acme/order", body, Username="bob").status == 400
    assert of(acme, body) == ["d-2", "d-3", "d-1"]


def test_t10_all_indexed_controls(acme: Service) -> None:
    answer = search(acme, searches.T10_CLOSED)
    assert found(answer.body) == ["d-2"]
    assert list(orders.details(answer.body)) == [searches.T10_DETAILS]
    assert of(acme, searches.T10_NOT_INDEXED) == ["d-2", "d-3", "d-1"]


_ANN = {"create read update list"}
T11: list[tuple[dict[str, str], str, list[str], set[str]]] = [
    ({}, "", [], set()),
    ({"Username": "ann"}, "", ["d-3°", "d-3", "d-1"], _ANN),
    ({"Username": "ann"}, "delete", [], set()),
    ({"Username": "kim", "Roles": "clerk"}, "", ["d-4°", "d-3°", "d-2", "d-3", "d-1"], {"create read list"}),
    ({"Username": "kim", "Roles": "clerk"}, "update", [], set()),
]


AS_RESTRICTED = (({}, "create", [], set()), ({"Username": "ann"}, "create", ["d-3°", "d-3", "d-1"], _ANN))
AS_SPECIFIED = (({}, "create", ["d-2", "d-3", "d-1"], {"create list"}),)
"""What only the permission to create would show: as a GET would, and as the real system."""


@pytest.mark.parametrize("dialect", ["svc", "orbeon"])
def test_t11_permissions(tmp_path: Path, dialect: str) -> None:
    orders.plant(Planter(tmp_path / "data"))
    with serving(tmp_path, dialect=dialect) as own:
        reindex(own)
        _t11(own, [*T11, *(AS_SPECIFIED if dialect == "orbeon" else AS_RESTRICTED)])


def _t11(own: Service, cases: list[tuple[dict[str, str], str, list[str], set[str]]]) -> None:
    restricted = orders.definition(PERMISSIONS)
    assert own.put(_FORM, restricted, **V1).status == 204
    for user, any_of, documents, allowed in cases:
        operations = f'<operations any-of="{any_of}"/>' if any_of else ""
        answer = search(own, f"<search>{operations}</search>", **user)
        assert found(answer.body) == documents
        assert {each.attrib["operations"] for each in orders.tree(answer.body)} == allowed
    assert own.post("/distinct-values/acme/order", searches.T13_QUERY).body == b"<distinct-values/>"
    assert own.put(_FORM, orders.definition(), **V1).status == 204
    assert canonical(search(own, searches.T2_QUERY).body) == canonical(searches.T2)


def test_t12_versions_clearing_and_reindexing(own: Service) -> None:
    told = """
        PUT form v=2 {order} -> 201
        PUT data/d-9 v=2 by=ann <form><customer><name>Nina</name></customer></form> -> 201
        SEARCH -> found=d-9
        SEARCH v=1 -> found=`d-2 d-3 d-1`
        SEARCH v=all -> found=`d-9 d-2 d-3 d-1`
        SEARCH v=7 -> found=
        DELETE form v=2 -> 204
        SEARCH -> found=`d-2 d-3 d-1`
        SEARCH v=all -> found=`d-2 d-3 d-1`
        GET data/d-9 -> 200
        POST ~/reindex/acme/order -> 400 `the form definition version must be sent`
        POST ~/reindex -> 200
        SEARCH v=all {names} -> found=`d-9 d-2 d-3 d-1`"""
    words = {"names": f"<search>{control(NAME)}</search>", "order": orders.definition().decode()}
    play(own, "acme/order", told, **words)
    assert next(orders.details(search(own, words["names"], version="all").body)) == [(NAME, "")]
    assert own.put(_FORM, orders.definition(), Form_Definition_Version=2).status == 201
    published = search(own, words["names"], version="all").body
    assert found(published) == ["d-9", "d-2", "d-3", "d-1"]
    assert next(orders.details(published)) == [(NAME, "Nina")]
    assert own.post("/reindex/acme/order", Form_Definition_Version=2).status == 200
    assert search(own, words["names"], version="all").body == published


def test_t13_distinct_values(acme: Service) -> None:
    answer = acme.post("/distinct-values/acme/order", searches.T13_QUERY, Username="bob", **V1)
    assert (answer.status, answer["Content-Type"]) == (200, "application/xml")
    assert canonical(answer.body) == canonical(searches.T13)
    assert answer[f"{acme.prefix}Form-Definition-Version"] is None


def test_t13_anonymous_callers_get_no_values_of_drafts(acme: Service) -> None:
    body = f"<distinct-values>{control(NAME)}{control('unknown')}</distinct-values>"
    answer = orders.tree(acme.post("/distinct-values/acme/order", body).body)
    assert [value.text for value in answer[0]] == ["Ada", "Bob", "Zoe"]
    assert (answer[1].attrib, len(answer[1])) == ({"path": "unknown"}, 0)


def test_a_form_that_there_is_not_has_nothing_to_find(acme: Service) -> None:
    for version in (None, 1, "all"):
        assert of(acme, version=version, form="none/none") == []
    answer = acme.post("/distinct-values/none/none", searches.T13_QUERY)
    assert [len(query) for query in orders.tree(answer.body)] == [0, 0, 0]
    assert not (acme.data / "none").exists()


def test_what_is_saved_changed_and_deleted_is_found_at_once_by_every_worker(own: Service) -> None:
    body = f"<search>{control(NAME, 'Eve', match='substring')}</search>"
    assert {*of(own, body)} == set()
    for name, names in (("Eve", {"d-7"}), ("Eva", set()), ("Evelyn", {"d-7"}), (None, set()), ("Eve", {"d-7"})):
        if name is None:
            assert own.delete(_DATA.format("d-7")).status == 204
        else:
            own.save("acme/order", "d-7", f"<form><customer><name>{name}</name></customer></form>".encode())
        assert {tuple(of(own, body)) for _ in range(8)} == {tuple(names)}
    assert own.put(_DATA.format("d-4"), b"<form/>", Username="bob", **V1).status == 201, "which erases the draft (T9)"
    assert of(own, "<search><drafts>only</drafts></search>", Username="bob") == ["d-3°"]
    exclude = "<search><drafts>exclude</drafts></search>"
    assert of(own, exclude, Username="bob") == ["d-4", "d-7", "d-2", "d-3", "d-1"]


def test_unpublished_definitions_are_found_by_what_the_designer_asks_for(svc: Service) -> None:
    """Spec search 2.4: the paths are literal, and nothing is published."""
    below = "xh:head/xf:model[@id = 'fr-form-model']/xf:instance[@id = 'fr-form-metadata']/*"
    title = orders.definition().replace(b">Order<", b">Findable order<")
    assert svc.put("svc/builder/data/findable/data.xml", title, Username="ann").status == 201
    queries = control(f"{below}/title", "findable", match="substring") + control(f"{below}/form-name")
    answer = search(svc, f"<search>{queries}</search>", form="svc/builder")
    assert found(answer.body) == ["findable"]
    assert next(orders.details(answer.body)) == [
        (f"{below}/title", "Findable order, Bestellung"),
        (f"{below}/form-name", "order"),
    ]
    everything = search(svc, '<search return-all-indexed-fields="true"/>', form="svc/builder")
    keys = ("application-name", "form-name", "title", "description", "thumbnail", "allow-template-use")
    assert [path for path, _ in next(orders.details(everything.body))] == [f"{below}/{key}" for key in keys]


def test_values_come_back_as_they_were_saved(svc: Service, form: str) -> None:
    assert svc.put(f"{form}/form/form.xhtml", orders.definition()).status == 201
    body = "<form><customer><name>&lt;&amp;&#13;\n\"' Ä\U0001f600</name></customer></form>".encode()
    assert svc.put(f"{form}/data/%3C%C3%A9%22/data.xml", body, Username="ann", **V1).status == 201
    answer = search(svc, f"<search>{control(NAME)}{control('&lt;&quot;&#10;')}</search>", form=form)
    assert found(answer.body) == ['<é"']
    assert next(orders.details(answer.body)) == [(NAME, "<&\r\n\"' Ä\U0001f600"), ('<"\n', "")]


def test_an_answer_may_be_large(svc: Service, form: str) -> None:
    """Much more than what was found: the same path asked for again and again."""
    assert svc.put(f"{form}/form/form.xhtml", orders.definition()).status == 201
    text = "x y " * 25_000
    body = f"<form><customer><name>{text}</name></customer></form>".encode()
    assert svc.put(f"{form}/data/large/data.xml", body, **V1).status == 201
    answer = search(svc, f"<search>{control(NAME) * 200}</search>", form=form)
    assert next(orders.details(answer.body)) == [(NAME, text)] * 200
    assert answer["Content-Length"] is None
    assert len(answer.body) > 20_000_000


def test_everything_is_reindexed_by_a_post(acme: Service) -> None:
    before = search(acme, searches.T2_QUERY, Username="bob").body
    answer = acme.call("POST", "reindex")
    assert (answer.status, answer.body, answer["Content-Type"]) == (200, b"", None)
    assert search(acme, searches.T2_QUERY, Username="bob").body == before
    assert acme.call("GET", "reindex/status").body == b'<status state="stopped"/>'


def test_a_get_of_reindex_rebuilds_nothing(acme: Service) -> None:
    """A link or a crawler may send it: 405 in dialect svc; in orbeon, whose old callers send it, the status."""
    if (acme.dialect, acme.face) == ("orbeon", PROVIDER):
        pytest.skip("it rebuilds there, as the runtime asks: test_provider_contract.py")
    indexes = {path: path.stat().st_mtime_ns for path in (acme.data / ".index").rglob("*") if path.is_file()}
    assert indexes
    answer = acme.call("GET", "reindex")
    if acme.dialect == "svc":
        assert (answer.status, answer["Allow"]) == (405, "POST")
    else:
        assert (answer.status, answer.body) == (200, b'<status state="stopped"/>')
    assert {path: path.stat().st_mtime_ns for path in indexes} == indexes


def test_one_version_is_reindexed_and_one_that_there_is_not_is_nothing_to_do(acme: Service) -> None:
    for path in ("/reindex/acme/order", "/reindex/none/none"):
        for version in (1, 7):
            assert acme.post(path, "", Form_Definition_Version=version).status == 200
        for wrong in ("x", "all", "next", "0", ""):
            assert acme.post(path, "", Form_Definition_Version=wrong).status == 400
        assert acme.post(path, "").status == 400
    assert of(acme, f"<search>{control(STATUS, 'closed')}</search>") == ["d-2"]
    assert not (acme.data / "none").exists()


def test_of_many_calls_to_reindex_some_are_told_to_come_back_so_that_others_are_served(tmp_path: Path) -> None:
    with running(tmp_path) as service, ThreadPoolExecutor(3) as threads:
        service.put("a/b/data/D/data.xml", b"<d/>", **V1)  # without a form nobody waits
        path = str(service.data / REINDEXING)
        files.ensure_file(path)
        with LockFile(path).exclusive("somebody else makes an index"):
            calls = [threads.submit(service.post, "/reindex") for _ in range(3)]
            refused, waiting = wait(calls, timeout=20, return_when=FIRST_COMPLETED)
            assert [(call.result().status, call.result()["Retry-After"]) for call in refused] == [(503, "30")]
            assert of(service) == []
        assert [call.result().status for call in waiting] == [200, 200]


# A search finds what was acknowledged before it, whatever became of the process that acknowledged it.

_REPOSITORY = str(Path(__file__).parents[2])
_PATH, _DRAFT = "acme/order/data/{}/data.xml", "acme/order/draft/{}/data.xml"

_ALL = "<search><page-size>100</page-size></search>"


def put_by_ann(service: Service, path: str, text: str) -> None:
    assert service.put(path, orders.body(text), Username="ann", Form_Definition_Version="1").status in (201, 204)


def shown(service: Service, query: str) -> list[str]:
    """What a search finds that waits where it is told to."""
    return found(search_faults.answered(service, f"{service.face}/search/acme/order", query).body)


def named(text: str) -> str:
    return f'<search><query path="customer/name" match="exact">{text}</query></search>'


def test_what_a_killed_worker_has_not_told_the_index_is_found(tmp_path: Path) -> None:
    orders.plant_old(Planter(tmp_path / "data"), 3)
    deaf = {"PYTHONPATH": _REPOSITORY, DEFECT: "deaf"}
    with running(tmp_path, workers=2, module="tests.http.dying", env=deaf) as service:
        search = partial(shown, service)
        assert len(search(_ALL)) == 3
        put_by_ann(service, _PATH.format("old-1"), "changed")
        put_by_ann(service, _PATH.format("new"), "new")
        put_by_ann(service, _DRAFT.format("new"), "drafted")
        assert service.delete(_PATH.format("old-2"), Form_Definition_Version="1").status == 204
        assert search(_ALL) == ["new°", "new", "old-1", "old-0"]
        put_by_ann(service, _PATH.format("new"), "new again")
        for worker in service.workers():
            os.kill(worker, signal.SIGKILL)
        service.process.kill()
    with running(tmp_path, workers=2) as service:
        search = partial(shown, service)
        assert search(_ALL) == ["new", "old-1", "old-0"]
        assert search(named("new again")) == ["new"]
        assert search(named("new")) == []
        assert search(named("changed")) == ["old-1"]
        assert search(named("old 1")) == []


def test_an_index_is_rebuilt_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The services of other tests leave that to the fork server, which does not start this one."""
    orders.plant_old(Planter(tmp_path / "data"), 3)
    with running(tmp_path, env={"PYTHONPATH": _REPOSITORY}) as service:
        assert service.raw("POST", "/reindex", {}, b"").status == 200
        assert len(list(service.data.glob(".index/acme/order/*.sqlite"))) == 1
        assert len(shown(service, _ALL)) == 3


def test_a_definition_that_goes_and_comes_back(tmp_path: Path) -> None:
    """Its data is not found in between, as spec search 2.5 says; what is saved meanwhile is, by what it is."""
    orders.plant_old(Planter(tmp_path / "data"), 3)
    with running(tmp_path, workers=2) as service:
        search = partial(shown, service)
        assert len(search(_ALL)) == 3
        for turn in range(3):
            assert service.delete(_FORM, Form_Definition_Version="1").status == 204
            assert search(_ALL) == []
            put_by_ann(service, _PATH.format("meanwhile"), f"saved {turn}")
            assert search(_ALL) == ["meanwhile"]
            again = service.put(
                _FORM, orders.definition(), {"Content-Type": "application/xhtml+xml"}, Form_Definition_Version="1"
            )
            assert again.status in (201, 204)
            assert len(search(_ALL)) == 4
            assert search(named(f"saved {turn}")) == ["meanwhile"]


def test_text_is_searched_in_an_index_without_documents(tmp_path: Path) -> None:
    """A save that was killed leaves a directory with nothing to read, of which an index may be made."""
    orders.plant_old(Planter(tmp_path / "data"), 0)
    (tmp_path / "data" / "acme/order/data/begun").mkdir(parents=True)
    with serving(tmp_path) as service:
        search = partial(shown, service)
        text = "<search><query>new</query></search>"
        assert search(_ALL) == []
        assert service.raw("POST", "/search/acme/order", {}, text.encode()).status == 200
        put_by_ann(service, _PATH.format("begun"), "new")
        assert search(text) == ["begun"]


# Over HTTP a search shows what a GET shows: the ways in which an attacker had seen more.

restricted = served("svc", "orbeon", settings='"{prefix}persistence.*.search.restrict-to-readable" = true')


CITY = "Paris"
DATA = f"<form><customer><name>{CITY}</name></customer><salary>72000</salary></form>"
LEA, BOB = "by=lea group=staff", "by=bob group=staff"
CREATING = '<permission operations="create -list"/>'
OWNERS = f'{CREATING}<permission operations="read update"><owner/></permission>'
EVERY_WAY = ("create", "list", "read", "update delete", "create read update delete list")


def sees(service: Service, form: str, headers: dict[str, str]) -> str:
    """The documents of version 1, or another one, that are shown in any way; all ways must show the same."""
    headers = {f"{service.prefix}Form-Definition-Version": "1"} | headers

    def shown(asked: str) -> set[str]:
        return set(found(search(service, f"<search>{asked}</search>", form=form, headers=headers).body))

    asked = ("", *(f'<operations any-of="{operations}"/>' for operations in EVERY_WAY))
    every = set().union(*(shown(each + control(NAME)) for each in asked))
    assert shown("<query>72000</query>") == every
    values = service.post(f"/distinct-values/{form}", f"<d>{control(NAME)}</d>", headers=headers)
    assert (CITY.encode() in values.body) is bool(every)
    return " ".join(sorted(every)) or "nothing"


@stories(
    {
        "a draft is one of the version of the saved document: a GET goes by the permissions of that": f"""
            PERMISSIONS {OWNERS}
            PERMISSIONS v=2 none
            PUT data/A v=1 {LEA} {DATA}
            PUT draft/A v=2 {BOB} {DATA} -> 403
            PUT draft/A v=2 {LEA} {DATA} -> 201
            GET draft/A {BOB} -> 403
            GET draft/A {LEA} -> 200
            SEES v=2 {BOB} -> nothing
            SEES v=all {BOB} -> nothing
            SEES v=all {LEA} -> `A A°`""",
        "a draft is seen by those who see what is saved": f"""
            PERMISSIONS none
            PUT data/A v=1 {LEA} {DATA}
            PUT draft/A draft/N v=1 {BOB} {DATA}
            PERMISSIONS <permission operations="create read"><owner/></permission>
            SEES {LEA} -> `A A°`
            SEES {BOB} -> N°
            GET draft/A draft/N {BOB} -> 403 200
            DELETE data/A {LEA} -> 403
            PERMISSIONS none
            DELETE data/A {LEA}
            PERMISSIONS <permission operations="create read"><owner/></permission>
            SEES {LEA} -> nothing""",
    }
)
def test_a_search_shows_what_a_get_shows(restricted: Service, form: str, story: str) -> None:
    play(restricted, form, story, orders.definition, {"SEES": sees})


# A search of several forms.


def several(service: Service, body: str, path: str = "search/several", **own: object) -> list[tuple[str, ...]]:
    answer = service.post(path, f"<search>{body}</search>", **own)
    assert answer.status == 200, answer.cause
    root = etree.fromstring(answer.body)
    documents = [tuple(each.get(name, "") for name in ("form", "form-version", "name")) for each in root]
    return [(root.get("search-total", ""),), *documents]


@pytest.fixture(scope="module")
def forms(restricted: Service) -> Service:
    """Forms of an application: in ``open`` everybody reads everything, in ``owned`` owners read their own."""
    lea, bob = ({"Username": name, "Group": "staff"} for name in ("lea", "bob"))
    restricted.publish("several/open", orders.definition(""))
    restricted.publish("several/owned", orders.definition(f"<permissions>{OWNERS}</permissions>"))
    restricted.publish("several/owned", orders.definition(f"<permissions>{OWNERS}</permissions>"), **_NEXT)
    restricted.publish("elsewhere/open", orders.definition(""))
    for form, document, version, user in (
        ("several/open", "A", 1, lea),
        ("several/owned", "B", 2, bob),
        ("several/open", "C", 1, bob),
        ("several/owned", "D", 1, lea),
        ("elsewhere/open", "E", 1, lea),
    ):
        restricted.save(form, document, DATA.encode(), Form_Definition_Version=version, **user)
    return restricted


_NEXT = {"Form_Definition_Version": "next"}
_ONE, _TWO = ("", "") if is_proxied else ("1", "2")  # a provider does not say the versions of what it finds
_A, _B, _C, _D = ("open", _ONE, "A"), ("owned", _TWO, "B"), ("open", _ONE, "C"), ("owned", _ONE, "D")


@pytest.mark.parametrize(
    ("user", "body", "expected"),
    [
        ("lea", "", [("3",), _D, _C, _A]),
        ("bob", "", [("3",), _C, _B, _A]),
        ("lea", '<query metadata="created-by" match="exact">lea</query>', [("2",), _D, _A]),
        ("lea", '<query metadata="created" sort="asc"/>', [("3",), _A, _C, _D]),
        ("bob", "<query>72000</query><page-size>2</page-size>", [("3",), _C, _B]),
        ("bob", "<query>72000</query><page-size>2</page-size><page-number>2</page-number>", [("3",), _A]),
        ("bob", "<query>nowhere</query>", [("0",)]),
        (None, "", [("2",), _C, _A]),
    ],
)
def test_several_forms_are_searched_at_once(
    forms: Service, user: str | None, body: str, expected: list[tuple[str, ...]]
) -> None:
    assert several(forms, body, **({} if user is None else {"Username": user, "Group": "staff"})) == expected


def test_all_forms_are_searched_at_once(forms: Service) -> None:
    everything = several(forms, "<query>72000</query><page-size>1000</page-size>", "search", Username="lea")
    assert {("open", _ONE, "E"), _A, _D} <= set(everything)
    assert _B not in everything


def test_of_alternatives_one_must_hold(ranged: Service) -> None:
    late = control(STATUS, "2024-05-31", match="gte", **{"or": "a"})
    much = control(TOPICS, "10", match="lt", **{"or": "a"})
    by_nobody = '<query metadata="created-by" match="exact" or="b">nobody</query>'
    assert found(search(ranged, f"<search>{late}{much}</search>", form="typed/order").body) == ["two", "one"]
    assert found(search(ranged, f"<search>{late}{by_nobody}</search>", form="typed/order").body) == []
    asked = [{"path": STATUS, "match": "exact", "value": each, "or": "a"} for each in ("soon", "2024-05-01")]
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    answer = ranged.call("POST", "search/typed/order", json.dumps({"query": asked}).encode(), headers)
    assert [each["name"] for each in json.loads(answer.body)["documents"]] == ["three", "one"]


def test_my_documents_are_those_that_i_own_changed_or_leased(forms: Service) -> None:
    """B is in a form whose documents only owners see: its lease shows it to nobody else."""
    facts = ("created-by", "last-modified-by", "leased-by")
    mine = "".join(f'<query metadata="{fact}" match="exact" or="mine">{{0}}</query>' for fact in facts)
    leased = '<query metadata="leased-by" match="exact">{0}</query>'
    eva, bob, lea = ({"Username": name, "Group": "staff"} for name in ("eva", "bob", "lea"))
    assert forms.lock("several/open/data/A/data.xml", "eva", **eva).status == 200
    assert forms.lock("several/owned/data/B/data.xml", "bob", **bob, Form_Definition_Version=2).status == 200
    assert several(forms, mine.format("eva"), **eva) == [("1",), _A]
    assert several(forms, mine.format("bob"), **bob) == [("2",), _C, _B]
    assert several(forms, leased.format("bob"), **bob) == [("1",), _B]
    assert several(forms, leased.format("bob"), **lea) == [("0",)]
    assert found(search(forms, f"<search>{leased.format('eva')}</search>", form="several/open").body) == ["A"]
    assert forms.unlock("several/open/data/A/data.xml", "eva", **eva).status == 200
    assert several(forms, leased.format("eva"), **eva) == [("0",)]
    assert forms.unlock("several/owned/data/B/data.xml", "bob", **bob, Form_Definition_Version=2).status == 200


@pytest.mark.parametrize(
    ("body", "own", "cause"),
    [
        ('<query metadata="leased-by" match="gte">eva</query>', {}, "leased-by has no match 'gte'; it has exact"),
        (control(NAME), {}, "a search of several forms names no controls, and is sorted by a time"),
        ('<query metadata="created-by" sort="asc"/>', {}, "a search of several forms names no controls"),
        ("<page-size>1001</page-size>", {}, "a search of several forms has 1000 documents at most"),
        ("", {"Form_Definition_Version": 1}, "a search of several forms has all versions of each, not one"),
        ("<qery", {}, "not well-formed"),
    ],
)
def test_a_search_of_several_forms_refuses_what_it_cannot_do(
    forms: Service, body: str, own: dict[str, object], cause: str
) -> None:
    answer = forms.post("search/several", f"<search>{body}</search>", **own)
    assert (answer.status, cause in (answer.cause or "")) == (400, True), answer.cause
