"""Flat views over HTTP (spec search 7): V1, and tables that follow what is stored."""

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from persistence.index.sync import updater
from tests import orders
from tests.commands import persistence
from tests.http.dying import DEFECT
from tests.in_process import serving
from tests.orders import DOCUMENTS, named
from tests.published import Planter
from tests.search_faults import await_notes
from tests.served import served
from tests.service import V1, Service, running
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("flat-views")  # most share a service

METADATA = ["metadata_document_id", "metadata_created", "metadata_last_modified_time", "metadata_last_modified_by"]
CUSTOMER = ["name", "email", "notes", "topics", "status"]
LINES = [("d-1", 1, "Pump A"), ("d-1", 2, "Valve_9"), ("d-2", 1, "valve b"), ("d-3", 1, None)]
_PATIENCE = 20.0

Row = tuple[object, ...]


class Report:
    def __init__(self, service: Service) -> None:
        path = service.data / ".index/.flat/flat.sqlite"
        self.path = path
        self.connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)

    def ask(self, statement: str) -> list[Row]:
        return self.connection.execute(statement).fetchall()

    def tables(self) -> list[str]:
        found = self.ask("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        return [str(name) for (name,) in found if not str(name).startswith(("catalogue_", "facts"))]

    def columns(self, table: str) -> list[str]:
        return [str(row[1]) for row in self.ask(f'PRAGMA table_info("{table}")')]

    def rows(self, table: str) -> list[Row]:
        return sorted(self.ask(f'SELECT * FROM "{table}"'), key=repr)  # noqa: S608 - a test's own

    def becomes(self, what: Callable[[], object], expected: object) -> None:
        """Rows follow a moment after the answer to a PUT."""
        deadline = time.monotonic() + _PATIENCE
        while (found := what()) != expected and time.monotonic() < deadline:
            time.sleep(0.02)
        assert found == expected


@contextmanager
def reporting(service: Service) -> Iterator[Report]:
    report = Report(service)
    with closing(report.connection):
        yield report


def publish(service: Service, form: str = "acme/order", body: bytes | None = None, version: object = 1) -> None:
    own = {"Form_Definition_Version": version, "Create_Flat_View": "true"}
    service.publish(form, orders.definition() if body is None else body, **own)


def save(service: Service, document: str, body: bytes, form: str = "acme/order", version: object = 1) -> None:
    service.save(form, document, body, Form_Definition_Version=version)


def reindex(service: Service, form: str = "", **own: object) -> None:
    assert service.raw("POST", f"/reindex{form}", {}, b"", **own).status == 200


def names_in(service: Service) -> list[Row]:
    """The names in the view, as soon as there is a file with it."""
    try:
        with reporting(service) as report:
            return report.ask("SELECT name FROM svc_f_acme_order_1 ORDER BY 1")
    except sqlite3.Error:
        return []


@pytest.fixture(params=["svc", "orbeon"])
def planted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    orders.plant(Planter(tmp_path / "data"))
    with serving(tmp_path, dialect=request.param, alone=True) as service:
        yield service


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Service]:
    with running(tmp_path, workers=2) as service:
        yield service


in_common = served(alone=True)


@pytest.fixture(autouse=True, scope="module")
def _impatient() -> Iterator[None]:
    """Changes are gathered for the tables of a service in this process for a moment only."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(updater, "_GATHERING", 0.02)
        yield


@pytest.fixture
def shared(in_common: Service) -> Iterator[Service]:
    """A service without forms, and so without tables; it may have had some."""
    yield in_common
    for path in in_common.data.glob("*/*/form/*/form.xhtml"):
        app, form, _, version, _ = path.relative_to(in_common.data).parts
        for what in ("data/", "form/form.xhtml"):
            deleted = in_common.delete(f"{app}/{form}/{what}", Form_Definition_Version=version)
            assert deleted.status in {200, 204}, deleted.cause


def test_v1_tables_of_what_is_stored_without_drafts(planted: Service) -> None:
    publish(planted)
    main = f"{planted.dialect}_f_acme_order_1"
    with reporting(planted) as report:
        assert report.tables() == [main, f"{main}_lines"]
        assert report.columns(main) == METADATA + CUSTOMER
        assert report.columns(f"{main}_lines") == ["metadata_document_id", "lines_repetition", "product"]
        saved = [document for document in DOCUMENTS if not document.is_draft]
        facts = [(each.name, each.saves[0].when, each.saves[-1].when, each.saves[-1].by.name) for each in saved]
        values = [tuple(text or None for text in each.values) for each in saved]
        assert report.rows(main) == [(*each, *texts) for each, texts in zip(facts, values, strict=True)]
        assert report.rows(f"{main}_lines") == LINES


def test_v1_with_prefixes_and_without_being_asked_by_property(tmp_path: Path) -> None:
    orders.plant(Planter(tmp_path / "data"))
    settings = (
        '"svc.persistence.*.create-flat-view" = true\n'
        '"svc.persistence.*.flat-view.prefixes-in-main-view-column-names" = true\n'
        '"svc.persistence.*.flat-view.max-identifier-length" = 20\n'
    )
    with running(tmp_path, settings=settings) as service:
        service.publish("acme/order", orders.definition())
        assert "has no effect" not in service.log.read_text()
        with reporting(service) as report:
            assert report.columns("svc_f_acme_order_1") == METADATA + [f"customer_{name}" for name in CUSTOMER]
            assert report.rows("svc_f_acm_ord_1_line") == LINES


def test_nothing_is_made_unless_it_is_asked_for_and_never_of_a_library(own: Service) -> None:
    """The word is true in any case, and counts for publishing too."""
    for number, said in enumerate(("false", "", "yes", None)):
        headers = {} if said is None else {"Create_Flat_View": said}
        own.publish(f"acme/order-{number}", orders.definition(), **headers)
        save(own, "a", named("Ada"), f"acme/order-{number}")
        assert not (own.data / ".index/.flat/flat.sqlite").exists(), said
    publish(own, "acme/library")
    assert not (own.data / ".index/.flat/flat.sqlite").exists()
    headers = {"Content-Type": "application/xml", "Svc-Create-Flat-View": "TRUE"}
    answer = own.raw("POST", "/fr/service/publish", headers, orders.definition())
    assert answer.status == 200, answer.cause
    with reporting(own) as report:
        assert report.tables() == ["svc_f_acme_order_1", "svc_f_acme_order_1_lines"]


def test_rows_follow_saves_moves_and_deletions(shared: Service) -> None:
    publish(shared)
    publish(shared, version=2)
    names = "SELECT metadata_document_id, name FROM svc_f_acme_order_1 ORDER BY 1"
    products = "SELECT * FROM svc_f_acme_order_1_lines ORDER BY 1, 2"
    with reporting(shared) as report:
        save(shared, "a", named("Ada", "Pump", "Valve"))
        save(shared, "b", named("Bob"))
        report.becomes(lambda: report.ask(names), [("a", "Ada"), ("b", "Bob")])
        report.becomes(lambda: report.ask(products), [("a", 1, "Pump"), ("a", 2, "Valve")])
        save(shared, "a", named("Ava", "Hose"))
        report.becomes(lambda: report.ask(products), [("a", 1, "Hose")])
        assert shared.put("acme/order/draft/a/data.xml", named("Draft"), **V1).status == 201
        save(shared, "c", named("Cid"))
        report.becomes(lambda: report.ask(names), [("a", "Ava"), ("b", "Bob"), ("c", "Cid")])
        assert shared.delete("acme/order/data/b/data.xml").status == 204
        report.becomes(lambda: report.ask(names), [("a", "Ava"), ("c", "Cid")])
        assert shared.delete("acme/order/data/a/data.xml").status == 204
        save(shared, "a", named("Moved", "Tap"), version=2)
        report.becomes(lambda: report.ask("SELECT name FROM svc_f_acme_order_2"), [("Moved",)])
        assert report.ask(names) == [("c", "Cid")]
        assert report.ask(products) == []
        assert report.ask("SELECT product FROM svc_f_acme_order_2_lines") == [("Tap",)]


def test_columns_change_only_when_it_is_asked_for(shared: Service) -> None:
    main = "svc_f_acme_order_1"
    publish(shared)
    save(shared, "a", named("Ada"))
    other = orders.definition().replace(b'id="name-control"', b'id="first-name-control"')
    other = other.replace(b'ref="name"', b'ref="first-name"')
    shared.publish("acme/order", other, **V1)
    save(shared, "b", named("Bob").replace(b"name>", b"first-name>"))
    with reporting(shared) as report:
        report.becomes(lambda: report.ask("SELECT count(*) FROM svc_f_acme_order_1"), [(2,)])
        assert report.columns(main) == METADATA + CUSTOMER
        reindex(shared)
        assert report.columns(main) == METADATA + CUSTOMER
        publish(shared, body=other)
        assert report.columns(main) == [*METADATA, "first_name", *CUSTOMER[1:]]
        found = report.ask("SELECT metadata_document_id, first_name FROM svc_f_acme_order_1 ORDER BY 1")
        assert found == [("a", None), ("b", "Bob")]


def test_tables_go_with_the_definition_and_with_repeats_that_are_gone(shared: Service) -> None:
    publish(shared)
    publish(shared, version=2)
    without = orders.definition().replace(b'repeat="content"', b"")
    publish(shared, body=without)
    with reporting(shared) as report:
        assert report.tables() == ["svc_f_acme_order_1", "svc_f_acme_order_2", "svc_f_acme_order_2_lines"]
        assert shared.delete("acme/order/form/form.xhtml", Form_Definition_Version=2).status == 204
        assert report.tables() == ["svc_f_acme_order_1"]
        # Published again without a word about views: there are none.
        shared.publish("acme/order", without, Form_Definition_Version=2)
        reindex(shared)
        assert report.tables() == ["svc_f_acme_order_1"]


def test_two_forms_of_one_name_have_tables_of_their_own(shared: Service) -> None:
    publish(shared, "a-b/c")
    publish(shared, "a_b/c")
    save(shared, "x", named("Hyphen"), "a-b/c")
    save(shared, "y", named("Underscore"), "a_b/c")
    with reporting(shared) as report:
        assert report.tables() == ["svc_f_a_b_c_1", "svc_f_a_b_c_11", "svc_f_a_b_c_1_lines", "svc_f_a_b_c_1_lines1"]
        report.becomes(lambda: report.ask("SELECT name FROM svc_f_a_b_c_1"), [("Hyphen",)])
        report.becomes(lambda: report.ask("SELECT name FROM svc_f_a_b_c_11"), [("Underscore",)])
        found = report.ask("SELECT DISTINCT app, view FROM catalogue_views WHERE around IS NULL ORDER BY app")
        assert found == [("a-b", "svc_f_a_b_c_1"), ("a_b", "svc_f_a_b_c_11")]


def test_a_form_with_too_many_controls_is_stored_and_keeps_the_views_it_had(shared: Service) -> None:
    publish(shared)
    save(shared, "a", named("Ada"))
    controls = b"".join(b'<xf:input id="c%d-control"/>' % number for number in range(2001))
    body = orders.definition().replace(b"<fr:body>", b"<fr:body>" + controls)
    answer = shared.put("acme/order/form/form.xhtml", body, **V1, Create_Flat_View="true")
    assert (answer.status, answer.cause) == (400, "a flat view of the form would have more than 2000 columns")
    assert shared.get("acme/order/form/form.xhtml").body == body
    with reporting(shared) as report:
        report.becomes(lambda: report.ask("SELECT name FROM svc_f_acme_order_1"), [("Ada",)])


def test_data_in_another_format_or_with_another_service_has_no_flat_views(tmp_path: Path) -> None:
    settings = (
        '"svc.persistence.provider.far.*.data" = "far"\n"svc.persistence.far.uri" = "http://127.0.0.1:9/crud"\n'
        '"svc.persistence.*.data-format-version" = "4.8.0"\n'
    )
    elsewhere = "flat views of far/order need its definition where its data is: publish the form there"
    with serving(tmp_path, settings=settings) as service:
        for form, cause in (("acme/order", "4.8.0"), ("far/order", elsewhere)):
            refused = service.put(f"{form}/form/form.xhtml", orders.definition(), Create_Flat_View="true")
            assert refused.refuses(501, cause), refused.cause
            assert service.get(f"{form}/form/form.xhtml").status == 404
        assert service.put("far/order/form/form.xhtml", orders.definition()).status == 201


def test_a_reader_in_another_process_goes_on_while_tables_are_rebuilt(shared: Service) -> None:
    publish(shared)
    save(shared, "a", named("Ada"))
    with reporting(shared) as report:
        report.becomes(lambda: report.ask("SELECT name FROM svc_f_acme_order_1"), [("Ada",)])
        script = (
            "import sqlite3, sys\n"
            f"c = sqlite3.connect('file:{report.path}?mode=ro', uri=True, isolation_level=None)\n"
            "for line in sys.stdin:\n"
            "    print(c.execute(line).fetchall(), flush=True)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:

            def told(statement: str) -> str:
                other.stdin.write(f"{statement}\n")
                other.stdin.flush()
                return other.stdout.readline().strip()

            assert told("BEGIN") == "[]"
            assert told("SELECT name FROM svc_f_acme_order_1") == "[('Ada',)]"
            other_form = orders.definition().replace(b'id="name-control"', b'id="who-control"')
            publish(shared, body=other_form.replace(b'ref="name"', b'ref="who"'))
            save(shared, "a", b"<form><customer><who>Eve</who></customer></form>")
            report.becomes(lambda: report.ask("SELECT who FROM svc_f_acme_order_1"), [("Eve",)])
            assert told("SELECT name FROM svc_f_acme_order_1") == "[('Ada',)]"
            assert told("COMMIT") == "[]"
            assert told("SELECT who FROM svc_f_acme_order_1") == "[('Eve',)]"
            other.stdin.close()  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["publication", "reindexing"])
def test_a_lost_file_is_made_again_with_all_views_by_the_next(shared: Service, how: str) -> None:
    publish(shared)
    publish(shared, "acme/other")
    for path in (shared.data / ".index/.flat").glob("flat.sqlite*"):
        path.unlink()
    save(shared, "a", named("Ada"))
    publish(shared, "acme/other") if how == "publication" else reindex(shared)
    with reporting(shared) as report:
        every = {f"svc_f_acme_{form}_1{end}" for form in ("order", "other") for end in ("", "_lines")}
        report.becomes(lambda: set(report.tables()), every)
        report.becomes(lambda: report.ask("SELECT name FROM svc_f_acme_order_1"), [("Ada",)])


def test_reindexing_reads_what_was_edited_by_hand(shared: Service) -> None:
    for version, name in enumerate("ab", 1):
        publish(shared, version=version)
        save(shared, name, named("Ada"), version=version)
    names = ["SELECT name FROM svc_f_acme_order_1", "SELECT name FROM svc_f_acme_order_2"]
    with reporting(shared) as report:
        report.becomes(lambda: [report.ask(name) for name in names], [[("Ada",)]] * 2)
        await_notes(shared)  # what is still to be taken in would be read after the edit
        for name in "ab":
            (shared.data / f"acme/order/data/{name}/data.xml").write_bytes(named("Eve"))
        reindex(shared, "/acme/order", Form_Definition_Version=2)
        assert [report.ask(name) for name in names] == [[("Ada",)], [("Eve",)]]
        reindex(shared)
        assert [report.ask(name) for name in names] == [[("Eve",)]] * 2


@pytest.mark.parametrize("arguments", [("reindex", "--verify"), ("check", "--repair")])
def test_what_takes_up_changes_by_hand_tells_the_tables_of_it(own: Service, arguments: tuple[str, ...]) -> None:
    publish(own)
    save(own, "a", named("Ada", "Pump"))
    save(own, "b", named("Bob"))
    eventually(lambda: names_in(own) == [("Ada",), ("Bob",)], _PATIENCE)
    assert own.raw("POST", "/search/acme/order", {}, b"<search/>").status == 200
    await_notes(own)  # rows are there before the entry is struck off, and what has an entry is left to the service
    shutil.rmtree(own.data / "acme/order/data/a")
    persistence(*arguments, data=own.data)  # the status says whether it has found any
    with reporting(own) as report:
        assert report.ask("SELECT name FROM svc_f_acme_order_1") == [("Bob",)]
        assert report.ask("SELECT product FROM svc_f_acme_order_1_lines") == []


def test_a_worker_that_is_killed_before_it_has_filled_the_tables_leaves_that_to_the_next(tmp_path: Path) -> None:
    module, env = "tests.http.dying", {"PYTHONPATH": str(Path(__file__).parents[2]), DEFECT: "before-taking-in"}
    with serving(tmp_path) as service:
        publish(service)
    with running(tmp_path, module=module, env=env) as service:
        with suppress(ConnectionError):  # the worker is killed after the commit, perhaps before it has answered
            save(service, "a", named("Ada", "Pump"))
        with reporting(service) as report:
            report.becomes(lambda: report.ask("SELECT name FROM svc_f_acme_order_1"), [("Ada",)])
            assert report.ask("SELECT product FROM svc_f_acme_order_1_lines") == [("Pump",)]


def test_rows_of_another_time_and_a_lost_file_are_made_again_when_the_service_starts(tmp_path: Path) -> None:
    """As after a power cut, which may have taken the last changes of the tables and the notes of them."""
    with serving(tmp_path) as service:
        publish(service)
        save(service, "a", named("Ada"))
        eventually(lambda: names_in(service) == [("Ada",)], _PATIENCE)
    with closing(sqlite3.connect(Report(service).path, isolation_level=None)) as connection:
        connection.execute("UPDATE catalogue_versions SET tree = 'another'")
        connection.execute("DELETE FROM svc_f_acme_order_1")
    for _ in range(2):
        with serving(tmp_path) as service:
            eventually(lambda: names_in(service) == [("Ada",)], _PATIENCE)
        shutil.rmtree(service.data / ".index")


@pytest.mark.parametrize(
    "harm",
    [
        "DROP TABLE svc_f_acme_order_1",
        *(pytest.param(f"DROP TABLE {name}", marks=pytest.mark.long) for name in ("catalogue_views", "facts")),
    ],
)
def test_tables_that_somebody_has_dropped_come_back(own: Service, harm: str) -> None:
    publish(own)
    save(own, "a", named("Ada"))
    eventually(lambda: names_in(own) == [("Ada",)], _PATIENCE)
    with closing(sqlite3.connect(Report(own).path, isolation_level=None)) as connection:
        connection.execute(harm)
    for number in range(10):  # by both workers
        save(own, f"b{number}", named("Bob"))
    eventually(lambda: names_in(own) == [("Ada",), *[("Bob",)] * 10], _PATIENCE)
