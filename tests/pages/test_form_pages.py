"""The pages of forms and of a version: counts, the table with its filters, CSV, permissions and outline."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from lxml import html

from persistence.errors import BusyError
from persistence.index.sync.updater import TreeIndex
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress
from persistence.model.permissions import User
from tests.orders import DEFINITION, ORDER, plant
from tests.pages.administrator import Browser, administrator
from tests.published import PERMISSIONS, Planter

VERSION = f"/admin/forms/{ORDER}/1"
LABELS = """<xf:instance id="fr-form-resources"><resources><resource xml:lang="en"><name><label>Full name</label></name>
<email><label>E-mail</label></email><customer><label>Customer</label></customer></resource><resource xml:lang="de">
<name><label>Voller Name</label></name><customer><label>Kunde</label></customer></resource></resources></xf:instance>"""
HOSTILE = "<script>alert(1)</script>&amp;\u202eevil\u0085"


def rows(found: Browser) -> list[str]:
    """The names of the documents in the table."""
    assert found.page is not None
    return [each.text_content().strip().split()[0] for each in html.fromstring(found.page.text).xpath("//tbody/tr/th")]


def labelled() -> bytes:
    """The form with labels in two languages."""
    return DEFINITION.replace("</xf:model>", f"{LABELS}</xf:model>").encode()


@pytest.fixture
def found(tmp_path: Path) -> Browser:
    with Planter(tmp_path / "data") as planter:
        plant(planter)
        planter.define(str(ORDER), 1, labelled(), "2024-04-02T09:00:00.000Z")
        planter.save(str(ORDER), "gone", b"<form/>", "2024-05-01T00:00:00.000Z", User("ann"))
        planter.delete(DocumentAddress(ORDER, Collection.DATA, "gone", DATA_XML), 1, "2024-05-09T00:00:00.000Z")
        planter.publish("hr/leave", 1, f"<title>Leave</title>{PERMISSIONS}", "2024-04-01T09:00:00.000Z", "mia")
        planter.publish("hr/leave", 2, "<title>Leave</title>", "2024-04-01T09:00:00.000Z")
    return administrator(tmp_path)


def test_the_list_has_every_form_with_its_counts(found: Browser) -> None:
    found.get("/admin/forms")
    assert "Order acme/order 1 3 2 1" in found.text
    assert "Leave hr/leave 2 , 1 0 0 0" in found.text
    assert "All 2 forms 3 2 1" in found.text
    found.get("/admin/forms?sort=documents&order=desc")
    assert found.text.index("acme/order") < found.text.index("hr/leave")
    assert found.get("/admin/forms?sort=colour").status_code == 400


def test_a_form_leads_to_its_latest_version(found: Browser) -> None:
    assert found.get("/admin/forms/hr/leave").headers["Location"] == "/admin/forms/hr/leave/2"
    assert found.get("/admin/forms/hr/nothing").status_code == 404
    assert found.get("/admin/forms/hr/leave/7").status_code == 404


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["d-2", "d-3", "d-1"]),
        ("?sort=created&order=asc", ["d-1", "d-2", "d-3"]),
        ("?sort=customer/name&order=asc", ["d-1", "d-2", "d-3"]),
        ("?sort=customer/name&order=desc", ["d-3", "d-2", "d-1"]),
        ("?q=call+back", ["d-1"]),
        ("?c.customer/name=zoe", ["d-3"]),
        ("?c.customer/status=open&owner=ann", ["d-3", "d-1"]),
        ("?stage=review", ["d-2"]),
        ("?by=cid", ["d-2"]),
        ("?from=2024-05-03&to=2024-05-03", ["d-3"]),
        ("?drafts=only", ["d-4", "d-3"]),
        ("?page=2", []),
        ("?q=%3Cscript%3E", []),
    ],
)
def test_the_table_is_searched_filtered_and_sorted(found: Browser, query: str, names: list[str]) -> None:
    assert found.get(f"{VERSION}{query}").status_code == 200
    assert rows(found) == names


@pytest.mark.parametrize(
    "query",
    ["?page=0", "?page=x", "?sort=nothing", "?from=yesterday", "?drafts=some", f"?q={'x' * 1001}", "?to=9999-12-31"],
)
def test_a_query_that_cannot_be_read_is_refused(found: Browser, query: str) -> None:
    assert found.get(f"{VERSION}{query}").status_code == 400


def test_columns_have_the_labels_of_the_form_in_its_language(found: Browser) -> None:
    found.get(VERSION)
    assert "Full name" in found.text
    assert "Voller Name" in (found.get(f"{VERSION}?lang=de") and found.text)


def test_csv_has_what_is_filtered(found: Browser) -> None:
    answer = found.get(f"{VERSION}/documents.csv?c.customer/status=open")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="acme-order-1.csv"'
    head, *lines = csv.reader(io.StringIO(answer.data.decode("utf-8-sig"), newline=""))
    assert head[:1] + head[7:10] == ["document", "Full name", "topics", "E-mail"]
    assert [(line[0], line[7]) for line in lines] == [("d-1", "Ada"), ("d-3", "Zoe")]


def test_csv_is_whole_where_many_were_created_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persistence.services.document_tables.ROWS_AT_ONCE", 3)
    instants = [f"2024-05-0{1 + number // 7}T00:00:00.000Z" for number in range(20)]
    with Planter(tmp_path / "data") as planter:
        planter.define("acme/order", 1, labelled(), "2024-04-01T09:00:00.000Z")
        for number, instant in enumerate(instants):
            planter.save("acme/order", f"d{number}", b"<form/>", instant)
    text = administrator(tmp_path).get(f"{VERSION}/documents.csv").data.decode("utf-8-sig")
    assert sorted(line.split(",")[0] for line in text.splitlines()[1:]) == sorted(f"d{each}" for each in range(20))


def test_deleted_documents_are_listed(found: Browser) -> None:
    found.get(f"{VERSION}/deleted")
    assert rows(found) == ["gone"]
    assert "2024-05-09 00:00:00" in found.text


def test_the_definition_says_who_may_do_what_and_shows_its_outline(found: Browser) -> None:
    found.get(f"{VERSION}/definition")
    assert "everyone ✓ yes ✓ yes ✓ yes ✓ yes ✓ yes" in found.text
    assert "Customer section" in found.text
    assert "Full name input customer/name indexed" in found.text
    assert "Kunde" in (found.get(f"{VERSION}/definition?lang=de") and found.text)
    assert "Published 2024-04-01 09:00:00" in found.text
    found.get("/admin/forms/hr/leave/1/definition")
    assert "Last published 2024-04-01 09:00:00 by mia" in found.text
    said = found.text.replace("\u2013 ", "")
    assert "anyone ✓ yes no" in said
    assert "owner no ✓ yes ✓ yes no" in said
    assert "role clerk" in found.text


def test_hostile_texts_are_shown_as_text(tmp_path: Path) -> None:
    title = HOSTILE.replace("<", "&lt;").replace("\u0085", "")
    value = f"<form><customer><name>{title}</name></customer></form>".encode()
    body = (
        labelled()
        .replace(b"Full name", title.encode())
        .replace(b'<title xml:lang="en">Order', f"<title>{title}".encode())
    )
    with Planter(tmp_path / "data") as planter:
        planter.define("acme/order", 1, body, "2024-04-01T09:00:00.000Z")
        planter.save("acme/order", "d", value, "2024-05-01T00:00:00.000Z", User("<b>ann</b>"), "<i>stage</i>")
        planter.save("acme/order", "long", value.replace(b"evil", b"x" * 100_000), "2024-05-01T00:00:00.000Z")
    found = administrator(tmp_path)
    for path in ("/admin/forms", VERSION, f"{VERSION}/definition", f"{VERSION}?q=%3Cscript%3E%22"):
        answer = found.get(path)
        assert answer.status_code == 200
        for tag in ("<script>alert", "<b>ann", "<i>stage"):
            assert tag not in answer.text
        assert len(answer.text) < 60_000
    assert "&lt;script&gt;alert" in found.get(VERSION).text


def test_documents_are_listed_while_their_index_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are stored, those saved last first; what is searched has to wait."""
    with Planter(tmp_path / "data") as planter:
        plant(planter)
        planter.save(str(ORDER), "gone", b"<form/>", "2024-05-01T00:00:00.000Z", User("ann"))
        planter.delete(DocumentAddress(ORDER, Collection.DATA, "gone", DATA_XML), 1, "2024-05-09T00:00:00.000Z")
    found = administrator(tmp_path)

    def search(*_arguments: object) -> None:
        raise BusyError("the index of acme/order is being made", 5)

    monkeypatch.setattr(TreeIndex, "search", search)
    found.get(VERSION)
    assert rows(found) == ["d-2", "d-3", "d-1"]
    assert "the index of acme/order is being made" in found.text
    assert "The documents are listed as they are stored." in found.text
    found.get(f"{VERSION}?q=pump")
    assert rows(found) == []
    assert "The documents cannot be searched now" in found.text
    monkeypatch.setattr("persistence.services.document_tables.STORED_LISTED", 2)
    found.get(VERSION)
    assert len(rows(found)) <= 2
    assert "of the first 1000 that are stored" in found.text
