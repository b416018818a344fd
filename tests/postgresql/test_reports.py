"""Flat views in a database: the rows of a tree's, whole at every moment, and a role that sees nothing else."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from xml.sax.saxutils import escape

import psycopg
import pytest
from psycopg import sql

from persistence.catalog import Catalog
from persistence.errors import BadRequestError, BusyError, ConflictError
from persistence.forms.flat_tables import read_flat_views
from persistence.index.sources import Source, SourceDescription
from persistence.index.sqlite.flat_file import FlatFile
from persistence.index.sync.rebuild import FlatMaker
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.texts import Instant
from persistence.postgresql import database_reports
from persistence.postgresql.database import Database
from persistence.postgresql.database_reports import DatabaseReports, FlatRows
from persistence.postgresql.database_storage import DatabaseStorage
from persistence.storage.reader import StoreReader
from persistence.storage.stored_revision import StoredRevision
from tests import orders
from tests.forms import vectors
from tests.forms.vectors import cell, grid, section
from tests.http.test_reporting import examples
from tests.opened import opened
from tests.orders import ORDER, named
from tests.postgresql.server import Server, fresh_schema
from tests.published import Planter

MAIN, LINES = "svc_f_acme_order_1", "svc_f_acme_order_1_lines"
NAMING = database_reports.naming("svc_f_", 256, prefixes_in_main=False)

Row = tuple[object, ...]


class Both(DatabaseStorage):
    """A storage in a database with flat views, and a tree that has the same at the same instants.

    ``happening`` is called with each document before its content is read.
    """

    def __init__(self, root: Path, local: Path, database: Database) -> None:
        super().__init__(database, str(local), listener=self)
        self.root = root
        self.tree, self.own = Planter(root), Planter(self)
        self.reader = StoreReader(str(root))
        self.catalog = Catalog(self)
        self.rows = FlatRows(database, self.source)
        self.reports = DatabaseReports(database, self.rows, self.source)
        self.happening: Callable[[str], object] = lambda _: None
        self._instants = (f"2024-07-01T10:00:{number // 1000:02}.{number % 1000:03}Z" for number in count())

    def source(self, form: Form) -> Source:
        return Source(
            SourceDescription(form, "4.0.0", is_designer=False, naming=NAMING, definitions=""), self, self.catalog
        )

    def changed(self, form: Form, document: str) -> None:
        self.rows.changed(form, document)

    def published(self, form: Form, version: int) -> None:
        """See ``CommitListener``."""

    def changing(self, form: Form, document: str, version: int) -> None:
        """See ``CommitListener``."""

    def read(self, address: Address, instant: Instant | None = None, *, content: bool) -> StoredRevision | None:
        if content and isinstance(address, DocumentAddress):
            self.happening(address.document)
        return super().read(address, instant, content=content)

    def define(self, form: Form, version: int, body: bytes) -> None:
        when = next(self._instants)
        for planter in (self.tree, self.own):
            planter.define(str(form), version, body, when)

    def undefine(self, form: Form, version: int) -> None:
        self.own.delete(DefinitionAddress(form, version, FORM_XHTML), version, next(self._instants))

    def save(self, form: Form, document: str, body: bytes, version: int = 1, *, draft: bool = False) -> None:
        collection = Collection.DRAFT if draft else Collection.DATA
        when = next(self._instants)
        for planter in (self.tree, self.own):
            planter.save(str(form), document, body, when, orders.ANN, version=version, collection=collection)

    def remove(self, form: Form, document: str) -> None:
        when = next(self._instants)
        for planter in (self.tree, self.own):
            planter.delete(DocumentAddress(form, Collection.DATA, document, DATA_XML), 1, when)

    # What is seen.

    def ask(self, statement: str, *names: str) -> list[Row]:
        """Ask as a report does, with names of the schema of views in the places of braces."""
        return self._asked(statement, names).fetchall()

    def views(self) -> dict[str, tuple[list[str], list[Row]]]:
        return {str(name): self.view(str(name)) for (name,) in self.ask("SELECT view FROM {}", "catalogue_views")}

    def catalogued(self) -> dict[str, tuple[list[str], list[Row]]]:
        return {**self.views(), "catalogue_views": self.view("catalogue_views")}

    def view(self, name: str) -> tuple[list[str], list[Row]]:
        cursor = self._asked("SELECT * FROM {}", [name])
        assert cursor.description is not None
        return [each.name for each in cursor.description], sorted(cursor.fetchall(), key=repr)

    def _asked(self, statement: str, names: Sequence[str]) -> psycopg.Cursor[Row]:
        address = self.database.address
        composed = sql.SQL(statement).format(*(sql.Identifier(address.flat_schema, name) for name in names))  # type: ignore[arg-type]
        with psycopg.connect(address.conninfo, autocommit=True) as connection:
            connection.execute(f"SET search_path = {address.schema}".encode())
            return connection.execute(composed)

    def tables(self) -> dict[str, tuple[list[str], list[Row]]]:
        """Every table of the tree's file of flat views with its columns and rows."""
        with closing(sqlite3.connect(FlatFile(str(self.root)).path)) as connection:
            names = ["catalogue_views", *(name for (name,) in connection.execute("SELECT view FROM catalogue_views"))]
            found = {}
            for name in names:
                cursor = connection.execute(f'SELECT * FROM "{name}"')  # noqa: S608 - a test's own
                found[name] = [each[0] for each in cursor.description], sorted(cursor.fetchall(), key=repr)
            return found


@pytest.fixture
def both(tmp_path: Path, database_uri: str) -> Both:
    (tmp_path / "local").mkdir()
    return Both(tmp_path / "data", tmp_path / "local", opened(Database(database_uri, lock_timeout=5)))


@pytest.fixture
def ordered(both: Both) -> Both:
    """The orders of spec search 8.1."""
    orders.plant(both.tree)
    orders.plant(both.own)
    return both


def renamed(name: str) -> bytes:
    form = orders.definition().replace(b'id="name-control"', f'id="{name}-control"'.encode())
    return form.replace(b'ref="name"', f'ref="{name}"'.encode())


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))])
def test_views_are_those_of_a_tree_row_by_row(both: Both, seed: int) -> None:
    """Forms and documents at random, with drafts, deleted documents, and documents that move to another version."""
    random = Random(seed)
    described = SourceDescription(ORDER, "", is_designer=False, naming=NAMING, definitions=str(both.root))
    maker = FlatMaker(Source(described, both.reader, Catalog(both.reader)), str(both.root))
    forms = {version: generated(random) for version in (1, 2)}
    for version, form in forms.items():
        both.define(ORDER, version, form.definition)

    def save(times: int) -> None:
        for _ in range(times):
            version = random.choice((1, 2))
            body = forms[version].document(random)
            document = f"d-{random.randrange(12)}"
            both.save(ORDER, document, body, version, draft=random.random() < 0.2)
            if random.random() < 0.2:
                both.save(ORDER, document, body, version)
                both.remove(ORDER, document)

    save(20)
    for version in forms:
        maker.make(version, is_new=True)
        both.reports.create(ORDER, version)
    assert both.catalogued() == both.tables()
    assert len(both.views()) >= 2
    save(20)
    assert list(maker.refill_all()) == []
    assert both.catalogued() == both.tables()
    forms[1] = generated(random)
    both.define(ORDER, 1, forms[1].definition)
    maker.make(1, is_new=True)
    both.reports.create(ORDER, 1)
    save(5)
    assert list(maker.refill_all()) == []
    assert both.catalogued() == both.tables()
    both.reports.refill(ORDER)
    assert both.catalogued() == both.tables()


def names(both: Both, column: str = "name", table: str = MAIN) -> dict[str, object]:
    columns, rows = both.view(table)
    return {str(row[0]): row[columns.index(column)] for row in rows}


NAMES = {"d-1": "Ada", "d-2": "Bob", "d-3": "Zoe"}


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_save_that_began_before_the_publication_and_ends_after_it_is_not_lost(ordered: Both) -> None:
    """It has not seen that there are views to come, so the publication waits for it."""
    goes_on, has_begun = threading.Event(), threading.Event()

    class Late(FlatRows):
        """Rows of a save that has looked for views before the publication."""

        def changed(self, form: Form, document: str) -> None:  # noqa: ARG002
            has_begun.set()
            assert goes_on.wait(20)

    kept, ordered.rows = ordered.rows, Late(ordered.database, ordered.source)
    saving = in_thread(lambda: ordered.save(ORDER, "d-1", named("Eve")))
    assert has_begun.wait(20)
    ordered.rows = kept
    publishing = in_thread(lambda: ordered.reports.create(ORDER, 1))
    publishing.join(0.5)
    assert publishing.is_alive()
    assert ordered.views() == {}
    goes_on.set()
    saving.join(20)
    publishing.join(20)
    assert names(ordered) == {**NAMES, "d-1": "Eve"}


def test_saves_go_on_while_views_are_filled_and_nobody_sees_half(
    ordered: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_reports, "_BATCH", 1)
    ordered.reports.create(ORDER, 1)
    ordered.define(ORDER, 1, renamed("who"))
    seen: list[dict[str, object]] = []
    is_locked: list[bool] = []
    saving: list[threading.Thread] = []

    def save(document: str, name: str) -> None:
        ordered.save(ORDER, document, named(name).replace(b"name>", b"who>"))

    def happening(document: str) -> None:
        """Save the document that is being read, one that was read and one that is new, at once."""
        if document == "d-2" and not saving:
            saving.append(threading.current_thread())
            saving.extend(in_thread(partial(save, *each)) for each in (("d-2", "Eve"), ("d-1", "Amy"), ("new", "Noa")))
            saving[2].join(20)
            saving[3].join(20)
            saving[1].join(0.3)
            is_locked.append(saving[1].is_alive())
            seen.append(names(ordered))

    ordered.happening = happening
    ordered.reports.create(ORDER, 1)
    saving[1].join(20)
    assert is_locked == [True]
    assert seen == [{**NAMES, "d-1": None, "new": None}], "as the views were, without the control that has gone"
    assert names(ordered, "who") == {"d-1": "Amy", "d-2": "Eve", "d-3": None, "new": "Noa"}


def test_the_definition_published_last_has_the_columns_whoever_ends_last(ordered: Both) -> None:
    def happening(_: str) -> None:
        ordered.happening = lambda _: None
        ordered.define(ORDER, 1, renamed("whom"))
        in_thread(lambda: ordered.reports.create(ORDER, 1)).join(20)

    ordered.define(ORDER, 1, renamed("who"))
    ordered.happening = happening
    ordered.reports.create(ORDER, 1)
    assert ordered.view(MAIN)[0][4] == "whom"
    assert ordered.ask("SELECT count(*), min(state) FROM flat_generation") == [(1, 1)]


def test_a_failure_leaves_the_views_as_they_were_and_nothing_else(ordered: Both) -> None:
    ordered.reports.create(ORDER, 1)
    ordered.define(ORDER, 1, renamed("who"))

    def happening(_: str) -> None:
        raise OSError(5, "Input/output error")

    ordered.happening = happening
    with pytest.raises(OSError, match="Input/output error"):
        ordered.reports.create(ORDER, 1)
    ordered.happening = lambda _: None
    assert names(ordered) == NAMES
    assert ordered.ask("SELECT count(*) FROM flat_generation") == [(1,)]
    assert ordered.ask("SELECT count(*) FROM flat_row") == [(7,)]
    controls = "".join(f'<xf:input id="c{number}-control"/>' for number in range(1600)).encode()
    ordered.define(ORDER, 1, orders.definition().replace(b"<fr:body>", b"<fr:body>" + controls))
    with pytest.raises(BadRequestError, match="more than 1600 columns"):
        ordered.reports.create(ORDER, 1)
    assert names(ordered) == NAMES


def test_what_an_interrupted_publication_has_left_goes_with_the_next(ordered: Both) -> None:
    views = read_flat_views(orders.definition(), ORDER, 1, NAMING)
    with ordered.database.transaction("leaving") as connection:
        database_reports.add_generation(connection, ORDER, 1, views)
    ordered.save(ORDER, "d-1", named("Eve"))
    assert ordered.views() == {}
    assert ordered.ask("SELECT count(*) FROM flat_row") == [(1,)]
    ordered.reports.create(ORDER, 1)
    assert names(ordered) == {**NAMES, "d-1": "Eve"}
    assert ordered.ask("SELECT count(*) FROM flat_generation") == [(1,)]


def test_views_go_with_the_definition(ordered: Both) -> None:
    ordered.reports.create(ORDER, 1)
    ordered.reports.drop(ORDER, 1)
    assert names(ordered) == NAMES, "the definition is there"
    ordered.undefine(ORDER, 1)
    ordered.reports.drop(ORDER, 1)
    assert ordered.views() == {}
    left = ("SELECT count(*) FROM flat_generation", "SELECT count(*) FROM flat_row")
    assert [ordered.ask(each) for each in left] == [[(0,)], [(0,)]]
    with pytest.raises(psycopg.errors.UndefinedTable):
        ordered.view(MAIN)


@contextmanager
def role(server: Server) -> Iterator[str]:
    name = f"reports_{fresh_schema()}"
    server.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
    yield name
    server.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_role_that_is_granted_the_schema_of_views_sees_them_and_nothing_else(
    ordered: Both, database_server: Server
) -> None:
    """It sees views that are made later, too, and new columns; as docs/reporting.md says."""
    ordered.reports.create(ORDER, 1)
    address = ordered.database.address
    with role(database_server) as reports_role:
        (statements,) = examples("postgresql")
        granted = statements.replace("persistence_flat", address.flat_schema).replace(" reports", f" {reports_role}")
        with psycopg.connect(address.conninfo, autocommit=True) as connection:
            connection.execute(granted.encode())
        own = database_server.uri(address.schema, user=reports_role, password=reports_role).partition("?")[0]
        with psycopg.connect(own, autocommit=True) as report:
            ask = partial(_ask, report, address.flat_schema)
            assert ask(MAIN, "name") == [("Ada",), ("Bob",), ("Zoe",)]
            ordered.define(ORDER, 1, renamed("who"))
            ordered.reports.create(ORDER, 1)
            assert ask(MAIN, "who") == [(None,)] * 3
            assert ask("catalogue_views", "form") == [("order",)] * 2
            for table in ("flat_row", "revision"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    _ask(report, address.schema, table, "*")


def _ask(report: psycopg.Connection[Row], schema: str, table: str, column: str) -> list[Row]:
    columns = sql.SQL("*") if column == "*" else sql.Identifier(column)
    statement = sql.SQL("SELECT {} FROM {} ORDER BY 1").format(columns, sql.Identifier(schema, table))
    return report.execute(statement).fetchall()


def test_a_report_that_runs_delays_new_columns_and_no_save(ordered: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_reports, "_LONGEST_CHANGE", 1)
    monkeypatch.setattr(database_reports, "_ATTEMPTS", 2)
    ordered.reports.create(ORDER, 1)
    ordered.define(ORDER, 1, renamed("who"))
    view = sql.Identifier(ordered.database.address.flat_schema, MAIN)
    with psycopg.connect(ordered.database.address.conninfo) as report:
        report.execute(sql.SQL("SELECT * FROM {}").format(view))
        with pytest.raises(BusyError, match="reports that are running"):
            ordered.reports.create(ORDER, 1)
        ordered.save(ORDER, "d-1", named("Eve"))
        assert names(ordered) == {**NAMES, "d-1": "Eve"}
        ordered.undefine(ORDER, 1)
        ordered.reports.drop(ORDER, 1)
        assert names(ordered) == {}, "what is left of a view is empty"
    ordered.define(ORDER, 1, renamed("who"))
    ordered.reports.create(ORDER, 1)
    assert set(names(ordered, "who")) == {"d-1", "d-2", "d-3"}
    assert ordered.ask("SELECT count(*) FROM flat_generation") == [(1,)]


def test_views_that_others_made_of_views_stay_where_columns_are_added_and_else_are_in_the_way(ordered: Both) -> None:
    ordered.reports.create(ORDER, 1)
    flat = ordered.database.address.flat_schema
    with psycopg.connect(ordered.database.address.conninfo, autocommit=True) as administrator:
        administrator.execute(f"SET search_path = {flat}".encode())
        administrator.execute(f"CREATE VIEW mine AS SELECT name FROM {MAIN}".encode())  # noqa: S608 - a test's own
        administrator.execute("CREATE VIEW svc_f_a_b_1 AS SELECT 1 AS one")
    more = orders.definition().replace(b"</fr:body>", b'<xf:input id="more-control"/></fr:body>')
    ordered.define(ORDER, 1, more)
    ordered.reports.create(ORDER, 1)
    assert ordered.view(MAIN)[0][-1] == "more"
    ordered.define(ORDER, 1, renamed("who"))
    with pytest.raises(ConflictError, match="other views in the database are made of them"):
        ordered.reports.create(ORDER, 1)
    assert ordered.view("mine")[1] == [("Ada",), ("Bob",), ("Zoe",)]
    other = Form("a", "b")
    ordered.define(other, 1, orders.definition())
    ordered.reports.create(other, 1)
    assert sorted(ordered.views()) == ["svc_f_a_b_11", "svc_f_a_b_1_lines", MAIN, LINES]


def test_names_are_cut_to_what_the_database_takes(ordered: Both) -> None:
    long = Form("a" * 100, "b" * 100), Form("a" * 100, "b" * 101)
    body = orders.definition().replace(b'id="lines-grid"', b'id="%s-grid"' % (b"l" * 99))
    for form in long:
        ordered.define(form, 1, body)
        ordered.save(form, "x", named(form.name))
        ordered.reports.create(form, 1)
    found = ordered.views()
    assert len(found) == 4
    assert all(len(name) <= 63 for view, (columns, _) in found.items() for name in (view, *columns))
    mains = [rows[0][columns.index("name")] for columns, rows in found.values() if "name" in columns]
    assert sorted(map(str, mains)) == [form.name for form in long]


def test_a_document_with_more_than_fits_into_a_row_is_saved(ordered: Both) -> None:
    """A row with a column for each would have to fit into a page, with at least a pointer for each value."""
    controls, binds = (
        "".join(each.replace("N", str(number)) for number in range(1500)).encode()
        for each in ('<xf:input id="cN-control" bind="cN-bind"/>', '<xf:bind id="cN-bind" ref="cN"/>')
    )
    form = orders.definition().replace(b"<fr:body>", b"<fr:body>" + controls)
    ordered.define(ORDER, 1, form.replace(b'<xf:bind id="customer-bind"', binds + b'<xf:bind id="customer-bind"'))
    ordered.reports.create(ORDER, 1)
    for document, text in (("long", "x" * 300), ("short", "short")):
        body = "".join(f"<c{number}>{text}{number}</c{number}>" for number in range(1500))
        ordered.save(ORDER, document, f"<form>{body}</form>".encode())
        assert names(ordered, "c1499")[document] == f"{text}1499"


# Forms and documents at random, with repeats in repeats and names that collide when they are cut.

_NAMES = ("a-b", "a_b", "A-B", "x.y", "metadata-created", "lines", "Ä", *(f"{'n' * 64}{end}" for end in "12"), "p" * 90)
_TEXTS = (
    "",
    "Ada",
    "ada lovelace",
    "<b>&amp;",
    "  ",
    "äöü€𝄞",
    "line\nline",
    "0",
    "'; DROP TABLE x",
    '"{a,b}"',
    "NULL",
    "x" * 9000,
)


@dataclass(frozen=True)
class Part:
    kind: str
    name: str
    is_repeated: bool = False
    inside: tuple[Part, ...] = ()

    @property
    def body(self) -> str:
        if self.kind == "control":
            return cell(self.name)
        inner = "".join(part.body for part in self.inside)
        return (section if self.kind == "section" else grid)(self.name, inner, ' repeat="content"' * self.is_repeated)

    def data(self, random: Random) -> str:
        if self.kind == "control":
            text = escape(random.choice(_TEXTS))
            return f"<{self.name}>{text}</{self.name}>" if random.random() < 0.9 else ""
        if not self.is_repeated:
            inner = "".join(part.data(random) for part in self.inside)
            return f"<{self.name}>{inner}</{self.name}>" if self.kind == "section" else inner
        rows = ["".join(part.data(random) for part in self.inside) for _ in range(random.randrange(4))]
        if self.kind == "grid":
            return "".join(f"<{self.name}>{row}</{self.name}>" for row in rows)
        name = f"{self.name}-iteration"
        return f"<{self.name}>{''.join(f'<{name}>{row}</{name}>' for row in rows)}</{self.name}>"


@dataclass(frozen=True)
class Generated:
    parts: tuple[Part, ...]

    @property
    def definition(self) -> bytes:
        return vectors.Form("<form/>", body="".join(part.body for part in self.parts)).document().encode()

    def document(self, random: Random) -> bytes:
        return f"<form>{''.join(part.data(random) for part in self.parts)}</form>".encode()


def generated(random: Random) -> Generated:
    return Generated(tuple(_part(random, 3) for _ in range(random.randrange(1, 5))))


def _part(random: Random, depth: int) -> Part:
    kind = random.choice(("control", "section", "grid")) if depth else "control"
    name = random.choice(_NAMES)
    if kind == "control":
        return Part(kind, name)
    inside = tuple(_part(random, depth - 1) for _ in range(random.randrange(4)))
    return Part(kind, name, random.random() < 0.6, inside)
