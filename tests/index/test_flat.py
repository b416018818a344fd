"""The file of flat views: what is changed while tables are filled, what is lost, and what is not of this tree."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from persistence.catalog import Catalog
from persistence.errors import BusyError
from persistence.forms.flat_tables import FlatNaming, read_flat_views
from persistence.index.sources import Source, SourceDescription
from persistence.index.sqlite.flat_file import TABLES, CataloguedVersion, FlatCatalogue, FlatFile
from persistence.index.sync import rebuild as module
from persistence.index.sync.rebuild import FlatMaker, FlatViews
from persistence.model.addresses import FORM_XHTML, Collection, DefinitionAddress, Form
from persistence.storage.layout import Layout
from persistence.storage.reader import StoreReader
from persistence.storage.stored_revision import HandEdits, Integrity
from tests import orders
from tests.index.memory import source_in
from tests.opened import opened
from tests.orders import ORDER
from tests.published import Planter
from tests.sidecars import resealed

NAMING = FlatNaming("svc_f_", 256, prefixes_in_main=False)
MAIN = "svc_f_acme_order_1"
ROWS = [("d-1", "Ada"), ("d-2", "Bob"), ("d-3", "Zoe")]
WHEN = "2024-06-01T10:00:00.000Z"


class Watched(StoreReader):
    """A tree in which something happens when its documents are listed, and before the first is read."""

    def __init__(self, root: str, happening: Callable[[], object]) -> None:
        super().__init__(root)
        self._happening = happening

    def documents(self, form: Form, collection: Collection = Collection.DATA) -> Iterator[str]:
        found = list(super().documents(form, collection))
        self._happening()
        yield from found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    orders.plant(Planter(tmp_path / "data"))
    return tmp_path / "data"


def flat_of(root: Path) -> FlatViews:
    return opened(FlatViews(str(root), partial(source_in, root)))


def maker_of(root: Path, hand_edits: HandEdits = HandEdits.XML, view: StoreReader | None = None) -> FlatMaker:
    reader = StoreReader(str(root), Integrity(hand_edits))
    described = SourceDescription(ORDER, "", is_designer=False, naming=NAMING, definitions=str(root))
    return FlatMaker(Source(described, view or reader, Catalog(reader)), str(root))


def settle(root: Path) -> None:
    """Let there be a file that is known to have all views there were, so that nobody begins to look for more."""
    file = FlatFile(str(root))
    file.make()
    file.settle(file.identity)


def save(root: Path, document: str, name: str, when: str = WHEN) -> None:
    body = f"<form><customer><name>{name}</name></customer></form>".encode()
    Planter(root).save(str(ORDER), document, body, when)


def rows(root: Path, table: str = MAIN) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(FlatFile(str(root)).path)) as connection:
        statement = f"SELECT metadata_document_id, name FROM {table} ORDER BY 1"  # noqa: S608 - a test's own
        return connection.execute(statement).fetchall()


def wish(root: Path) -> None:
    """Let the sidecar of the definition say that there are flat views."""
    place = Layout(str(root)).paths(DefinitionAddress(ORDER, 1, FORM_XHTML))
    resealed(Path(place.sidecar), flat_view=True)


def test_views_are_taken_down_as_they_are() -> None:
    nested = orders.definition().replace(
        b'<xf:input id="product-control"',
        b'<fr:section id="s-section" bind="s-bind" repeat="content"><xf:input id="x-control"/></fr:section>'
        b'<fr:grid id="g-grid" bind="g-bind" repeat="content"><xf:input id="y-control"/></fr:grid>'
        b'<xf:input id="product-control"',
    )
    nested = nested.replace(
        b'<xf:bind id="product-bind"',
        b'<xf:bind id="s-bind" ref="s"/><xf:bind id="g-bind" ref="g"/><xf:bind id="product-bind"',
    )
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(TABLES)
    with FlatCatalogue(connection) as catalogue:
        for form, version, body in ((ORDER, 1, nested), (ORDER, 2, orders.definition()), (Form("a", "b"), 1, nested)):
            views = read_flat_views(body, form, version, NAMING)
            assert len(views) == (4 if body is nested else 2)
            catalogue.add(form, version, CataloguedVersion("tag", "tree"), views)
            assert catalogue.views(form, version) == views
        assert catalogue.versions(ORDER) == {1: CataloguedVersion("tag", "tree"), 2: CataloguedVersion("tag", "tree")}
        catalogue.remove(ORDER, 1)
        assert catalogue.views(ORDER, 1) == ()
        assert len(catalogue.names()) == 6


def test_what_changes_while_tables_are_filled_waits_and_is_not_lost(root: Path) -> None:
    flat, refused = flat_of(root), []

    def happening() -> None:
        save(root, "d-1", "Eve")
        save(root, "new", "New")
        with pytest.raises(BusyError):  # so whoever has noted it tries again
            flat.refresh(ORDER, ["d-1", "new"])
        refused.append(True)

    maker_of(root, view=Watched(str(root), happening)).make(1, is_new=True)
    assert refused == [True]
    flat.refresh(ORDER, ["d-1", "new"])
    assert rows(root) == [("d-1", "Eve"), *ROWS[1:], ("new", "New")]


def test_what_is_taken_in_before_the_form_has_tables_is_read_with_the_rest(root: Path) -> None:
    flat = flat_of(root)
    save(root, "new", "New")
    flat.refresh(ORDER, ["new"])
    assert FlatFile(str(root)).identity is None
    settle(root)
    flat.create(ORDER, 1)
    assert rows(root) == [*ROWS, ("new", "New")]


def test_a_failure_leaves_the_tables_as_they_were(root: Path) -> None:
    maker_of(root).make(1, is_new=True)
    save(root, "d-1", "Eve")

    def happening() -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(Exception, match="Input/output error"):
        maker_of(root, view=Watched(str(root), happening)).make(1, is_new=True)
    assert rows(root) == ROWS
    flat_of(root).refresh(ORDER, ["d-1"])
    assert rows(root) == [("d-1", "Eve"), *ROWS[1:]]


def test_a_large_form_is_read_by_a_process_of_its_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(root)
    monkeypatch.setattr(module, "SMALL", 2)
    flat_of(root).create(ORDER, 1)
    assert rows(root) == ROWS


def test_rows_are_read_again_unless_they_are_known_to_be_of_the_tree(root: Path) -> None:
    maker = maker_of(root)
    maker.make(1, is_new=True)
    file = FlatFile(str(root))
    with file.opened() as catalogue:
        tree = catalogue.versions(ORDER)[1].tree
    save(root, "d-1", "Eve")
    assert list(maker.refill_all(but=tree)) == []
    assert rows(root) == ROWS
    assert list(maker.refill_all(but="another")) == []
    assert rows(root) == [("d-1", "Eve"), *ROWS[1:]]


def test_without_a_wish_nothing_is_made_again(root: Path) -> None:
    maker = maker_of(root)
    assert list(maker.refill_all()) == []
    maker.make(1)
    assert FlatFile(str(root)).identity is None
    wish(root)
    assert list(maker.refill_all()) == []
    assert rows(root) == ROWS


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\0" + b"\0" * 5000])
def test_a_file_that_is_none_is_replaced(root: Path, content: bytes) -> None:
    file = FlatFile(str(root))
    file.make()
    Path(file.path).write_bytes(content)
    maker_of(root).make(1, is_new=True)
    assert rows(root) == ROWS


def test_a_file_of_another_version_of_the_service_is_made_again_by_whoever_opens_it(root: Path) -> None:
    """Its tables have the values at paths by other rules."""
    wish(root)
    maker_of(root).make(1, is_new=True)
    with closing(sqlite3.connect(FlatFile(str(root)).path, isolation_level=None)) as connection:
        connection.execute("UPDATE facts SET value = value - 1 WHERE name = 'schema'")
    save(root, "d-1", "Eve")
    flat_of(root).refresh(ORDER, ["d-1"])
    deadline = time.monotonic() + 20
    while (found := tables(root)) != [MAIN, f"{MAIN}_lines"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found == [MAIN, f"{MAIN}_lines"]
    assert rows(root) == [("d-1", "Eve"), *ROWS[1:]]


def tables(root: Path) -> list[str]:
    with closing(sqlite3.connect(FlatFile(str(root)).path)) as connection:
        found = connection.execute(
            "SELECT name FROM sqlite_schema WHERE name LIKE 'svc%' AND type = 'table'"
        ).fetchall()
    return sorted(str(name) for (name,) in found)


def test_a_file_that_is_damaged_within_is_replaced_and_filled_with_what_the_sidecars_want(root: Path) -> None:
    wish(root)
    maker_of(root).make(1, is_new=True)
    path = Path(FlatFile(str(root)).path)
    whole = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (whole - 4096))
    maker_of(root).make(1)
    assert rows(root) == ROWS


@pytest.mark.parametrize(("hand_edits", "edited"), [(HandEdits.XML, []), (HandEdits.ALL, [("d-1", None)])])
def test_a_document_that_is_no_xml_has_a_row_without_values(
    root: Path, hand_edits: HandEdits, edited: list[tuple[str, None]]
) -> None:
    """Where that counts as an edit by hand. Where it is damage, the document counts as none."""
    place = Path(Layout(str(root)).document(ORDER, Collection.DATA, "d-1")) / "data.xml"
    place.write_bytes(b"<form><customer><name>Ada")
    (place.parent.parent / "d-2/data.xml").unlink()
    maker_of(root, hand_edits).make(1, is_new=True)
    assert rows(root) == [*edited, ("d-3", "Zoe")]


def test_a_form_that_only_looks_like_the_name_of_the_file_is_in_nobodys_way(root: Path) -> None:
    """The index of an application lies beside it."""
    layout = Layout(str(root))
    assert not Path(FlatFile(str(root)).path).is_relative_to(layout.index(Form("flat", "flat.sqlite")))
    assert not Path(layout.index(Form("flat.sqlite", "x"))).is_relative_to(Path(FlatFile(str(root)).path).parent)
