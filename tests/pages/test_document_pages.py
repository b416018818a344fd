"""The pages of a document: its values, attachments, XML, history, and the actions on it."""

import csv
import io
from pathlib import Path

import pytest
from lxml import html

from persistence.crypto import EncryptionKeys
from persistence.errors import BusyError
from persistence.index.sync.updater import TreeIndex
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress
from persistence.model.permissions import User
from persistence.model.versions import LeaseHolder
from tests import encrypted_form
from tests.forms.test_paths import data_at, definitions
from tests.orders import DEFINITION, ORDER, plant
from tests.pages.administrator import Browser, administrator
from tests.published import PERMISSIONS, Planter
from tests.waiting import eventually

DOCUMENT = f"/admin/forms/{ORDER}/data/d-2"
FIRST, LAST = "2024-05-02T10:00:00.000Z", "2024-05-04T09:30:00.000Z"
SCRIPT = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


@pytest.fixture
def found(tmp_path: Path) -> Browser:
    with Planter(tmp_path / "data") as planter:
        plant(planter)
        planter.define(str(ORDER), 1, labelled(), "2024-04-02T09:00:00.000Z")
        planter.save(str(ORDER), "gone", b"<form/>", "2024-05-01T00:00:00.000Z", User("ann"))
        planter.delete(DocumentAddress(ORDER, Collection.DATA, "gone", DATA_XML), 1, "2024-05-09T00:00:00.000Z")
        for at, name in ((FIRST, "Old"), (LAST, "New")):
            body = f"<form><customer><name>{name}</name></customer></form>".encode()
            planter.save(str(ORDER), "two", body, at, User("bob"))
        leased = DocumentAddress(ORDER, Collection.DATA, "d-2", DATA_XML)
        planter.leases.lock(leased, LeaseHolder("ann", None), 600)
    return administrator(tmp_path, trusted=("127.0.0.1",))


def test_values_are_beside_the_labels_of_the_form_in_its_language(found: Browser) -> None:
    found.shows(DOCUMENT, "Customer Full name Bob")
    found.shows(f"{DOCUMENT}?lang=de", "Voller Name Bob")
    assert found.get(f"{DOCUMENT}x").status_code == 404


def test_values_in_grids_that_are_not_listed_are_shown(tmp_path: Path) -> None:
    definition, (path, *_) = definitions("repeated grid in a grid")[1]
    with Planter(tmp_path / "data") as planter:
        planter.define("a/f", 1, definition, FIRST)
        planter.save("a/f", "d", data_at(path), FIRST)
    found = administrator(tmp_path, trusted=("127.0.0.1",))
    found.shows("/admin/forms/a/f/data/d", "c secret")
    found.shows("/admin/forms/a/f/1/definition", "s/g/r/it/c")


def test_the_history_has_every_revision_with_views_and_changes(found: Browser) -> None:
    path = f"/admin/forms/{ORDER}/data/two"
    found.shows(path, "Full name New", "2024-05-02 10:00:00")
    found.shows(f"{path}?at={FIRST}", "Full name Old")
    found.shows(f"{path}/changes?older={FIRST}&newer={LAST}", "Full name customer/name Old New")
    assert found.get(f"{path}?at={LAST[:-4]}1Z").status_code == 404
    assert found.get(f"{path}?at=then").status_code == 404
    assert found.get(f"{path}/changes?older={FIRST}").status_code == 404


def test_an_older_revision_is_made_current(found: Browser) -> None:
    assert "becomes the current one" in (
        found.get(f"/admin/actions/revert/{ORDER}/two?revision={FIRST}") and found.text
    )
    found.do(f"/admin/actions/revert/{ORDER}/two?revision={FIRST}")
    assert f"The revision of {FIRST} is the current one again." in found.text
    assert "Full name Old" in found.text
    assert "by ada" in found.text


def test_a_deleted_document_is_readable_and_comes_back(found: Browser) -> None:
    path = f"/admin/forms/{ORDER}/data/gone"
    found.shows(path, "This document is deleted.")
    assert found.get(f"{path}?at=2024-05-01T00:00:00.000Z").status_code == 200
    found.do(f"/admin/actions/revert/{ORDER}/gone")
    assert "This document is deleted." not in found.text


@pytest.mark.parametrize(
    ("document", "method", "said"),
    [("two", "PUT", "saved by lea at 20"), ("two", "DELETE", "deleted by lea at 20"), ("gone", "PUT", "saved by lea")],
)
def test_nothing_is_brought_back_over_a_change_since_the_question(
    found: Browser, document: str, method: str, said: str
) -> None:
    found.get(f"/admin/actions/revert/{ORDER}/{document}")
    path = f"{ORDER}/data/{document}/data.xml"
    assert found.crud(method, path, b"<form/>", Username="lea").status_code in {201, 204}
    page = found.page
    assert found.send().status_code == 412
    assert f"{ORDER}/{document} has changed since you were asked: {said}" in found.text
    assert "Nothing was written." in found.text
    assert found.crud("GET", path).status_code == (200 if method == "PUT" else 404)
    if method == "PUT":
        assert found.get(f"/admin/forms/{ORDER}/data/{document}/data.xml").data == b"<form/>"
    found.page = page
    assert found.send(current="").status_code == 412


def test_a_document_that_was_deleted_again_is_not_brought_back_by_an_older_question(found: Browser) -> None:
    found.get(f"/admin/actions/revert/{ORDER}/gone")
    path = f"{ORDER}/data/gone/data.xml"
    sent = [found.crud(method, path, b"<form/>", Username="lea") for method in ("PUT", "DELETE")]
    assert [each.status_code for each in sent] == [201, 204]
    assert found.send().status_code == 412
    assert "deleted by lea" in found.text
    assert found.crud("GET", path).status_code == 404


def test_drafts_are_shown_and_lead_to_the_saved_document(found: Browser) -> None:
    found.shows(f"/admin/forms/{ORDER}/data/d-3", "There is a draft")
    found.shows(f"/admin/forms/{ORDER}/draft/d-3", "Zoe B")
    assert found.get(f"/admin/forms/{ORDER}/draft/d-1").status_code == 404


def test_a_lease_is_shown_and_broken(found: Browser) -> None:
    found.shows(DOCUMENT, "ann has leased it")
    found.do(f"/admin/actions/lease-break/{ORDER}/d-2")
    assert "The lease of ann is broken." in found.text
    assert found.get(f"/admin/actions/lease-break/{ORDER}/d-2").status_code == 404


def test_a_lease_that_another_user_has_taken_since_is_not_broken(found: Browser, tmp_path: Path) -> None:
    found.get(f"/admin/actions/lease-break/{ORDER}/d-2")
    page = found.page
    ann, bob, leased = LeaseHolder("ann"), LeaseHolder("bob"), DocumentAddress(ORDER, Collection.DATA, "d-2", DATA_XML)
    with Planter(tmp_path / "data") as planter:
        planter.leases.unlock(leased, ann)
        planter.leases.lock(leased, bob, 600)
        assert found.send().status_code == 412
        assert "bob has leased the document d-2 now. Nothing was broken" in found.text
        found.page = page
        assert found.send(holder="").status_code == 412
        found.shows(DOCUMENT, "bob has leased it")
        found.get(f"/admin/actions/lease-break/{ORDER}/d-2")
        planter.leases.lock(leased, bob, 900)  # renewed, it is the same lease
    assert found.send().status_code == 303
    assert "The lease of bob is broken." in (found.follow() and found.text)


def test_only_pixels_and_pdf_are_shown_in_the_browser(found: Browser) -> None:
    for name, kind in (
        ("a.bin", "image/png"),
        ("b.bin", "application/pdf"),
        ("c.bin", "image/svg+xml"),
        ("d.bin", "text/html"),
    ):
        assert found.crud("PUT", f"{ORDER}/data/d-2/{name}", SCRIPT, kind).status_code == 201
    for name, shown in (("a.bin", "image/png"), ("b.bin", "application/pdf"), ("c.bin", ""), ("d.bin", "")):
        answer = found.get(f"{DOCUMENT}/attachments/{name}?show=yes")
        assert answer.data == SCRIPT
        assert answer.headers["Content-Type"] == (shown or "application/octet-stream")
        assert answer.headers["Content-Disposition"].startswith("inline" if shown else "attachment")
        assert "sandbox" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert found.get(f"{DOCUMENT}/attachments/a.bin").headers["Content-Disposition"].startswith("attachment")
    found.get(DOCUMENT)
    assert found.page.text.count("<img ") == 1


def test_xml_is_saved_as_it_is_stored(found: Browser) -> None:
    answer = found.get(f"{DOCUMENT}/data.xml")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="d-2.xml"'
    assert answer.data.startswith(b"<form>")


def test_encrypted_values_stay_encrypted(tmp_path: Path) -> None:
    EncryptionKeys(str(tmp_path / "encryption-keys.json"), trees=[str(tmp_path / "data")]).new()
    found = administrator(tmp_path, trusted=("127.0.0.1",))
    for path, body in (("form/form.xhtml", encrypted_form.DEFINITION), ("data/d/data.xml", encrypted_form.data())):
        assert found.crud("PUT", f"hr/secret/{path}", body).status_code == 201
    found.get("/admin/forms/hr/secret/data/d")
    assert found.text.count("encrypted") >= 2
    for secret in encrypted_form.SECRETS:
        assert secret not in found.page.text


def test_names_that_no_document_has_are_refused(found: Browser) -> None:
    for name in ("..%2f..%2fetc", "%2e%2e", "a%00b"):
        assert found.get(f"/admin/forms/{ORDER}/data/{name}").status_code in {400, 404}


# The pages of forms and of a version: counts, the table with its filters, CSV, permissions and outline.

VERSION = f"/admin/forms/{ORDER}/1"
LABELS = """<xf:instance id="fr-form-resources"><resources><resource xml:lang="en"><name><label>Full name</label></name>
<email><label>E-mail</label></email><customer><label>Customer</label></customer></resource><resource xml:lang="de">
<name><label>Voller Name</label></name><customer><label>Kunde</label></customer></resource></resources></xf:instance>"""
GONE = b"<form><customer><name>Ada</name></customer></form>"
HOSTILE = "<script>alert(1)</script>&amp;\u202eevil\u0085"


def rows(found_forms: Browser) -> list[str]:
    """The ids of the documents in the table, to which its first column leads."""
    links = html.fromstring(found_forms.page.text).xpath("//tbody/tr/th/a/@href")
    return [each.rpartition("/")[2] for each in links]


def labelled() -> bytes:
    """The form with labels in two languages."""
    return DEFINITION.replace("</xf:model>", f"{LABELS}</xf:model>").encode()


@pytest.fixture
def found_forms(tmp_path: Path) -> Browser:
    with Planter(tmp_path / "data") as planter:
        plant(planter)
        planter.define(str(ORDER), 1, labelled(), "2024-04-02T09:00:00.000Z")
        planter.save(str(ORDER), "gone", GONE, "2024-05-01T00:00:00.000Z", User("ann"))
        planter.delete(DocumentAddress(ORDER, Collection.DATA, "gone", DATA_XML), 1, "2024-05-09T00:00:00.000Z")
        planter.publish("hr/leave", 1, f"<title>Leave</title>{PERMISSIONS}", "2024-04-01T09:00:00.000Z", "mia")
        planter.publish("hr/leave", 2, "<title>Leave</title>", "2024-04-01T09:00:00.000Z")
    return administrator(tmp_path)


def test_the_list_has_every_form_with_its_counts(found_forms: Browser) -> None:
    found_forms.shows("/admin/forms", "Order acme/order 1 3 2 1", "Leave hr/leave 2 , 1 0 0 0", "All 2 forms 3 2 1")
    found_forms.get("/admin/forms?sort=documents&order=desc")
    assert found_forms.text.index("acme/order") < found_forms.text.index("hr/leave")
    assert found_forms.get("/admin/forms?sort=colour").status_code == 400


def test_a_form_opens_on_the_documents_of_all_its_versions(tmp_path: Path) -> None:
    with Planter(tmp_path / "data") as planter:
        plant(planter)
        planter.define(str(ORDER), 2, labelled(), "2024-05-02T09:00:00.000Z")
        planter.define(str(ORDER), 3, labelled(), "2024-05-02T09:00:00.000Z")
        planter.save(str(ORDER), "newer", b"<form/>", "2024-05-01T00:00:00.000Z", User("ann"), version=2)
    found = administrator(tmp_path)
    found.get(f"/admin/forms/{ORDER}")
    assert sorted(rows(found)) == ["d-1", "d-2", "d-3", "newer"]
    assert "All versions Version 1 Version 2 Version 3" in found.text
    assert rows(found) == (found.get(f"/admin/forms/{ORDER}?sort=saved&order=desc") and rows(found))
    text = found.get(f"/admin/forms/{ORDER}/documents.csv").data.decode("utf-8-sig")
    assert sorted(line.split(",")[0] for line in text.splitlines()[1:]) == ["d-1", "d-2", "d-3", "newer"]
    assert (found.get(f"/admin/forms/{ORDER}/2") and rows(found)) == ["newer"]
    found.shows(f"/admin/forms/{ORDER}/3", "There is no document yet.")


@pytest.fixture
def found_typed(tmp_path: Path) -> Browser:
    """The form with a date and a number, and documents that have them."""
    types = (("topics", "xf:decimal"), ("email", "xs:date"), ("status", "xs:dateTime"))
    body = DEFINITION
    for name, of in types:
        body = body.replace(f'name="{name}"', f'name="{name}" type="{of}"', 1)
    with Planter(tmp_path / "data") as planter:
        planter.define(str(ORDER), 1, body.encode(), "2024-04-02T09:00:00.000Z")
        for name, topics, day in (("one", "9", "2024-05-01"), ("two", "10.5", "2024-05-31"), ("three", "few", "soon")):
            values = f"<topics>{topics}</topics><email>{day}</email><status>{day}T23:30:00</status>"
            data = f"<form><customer>{values}</customer></form>".encode()
            planter.save(str(ORDER), name, data, "2024-05-01T00:00:00.000Z", User("ann"))
    return administrator(tmp_path)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("min.customer/topics=9&max.customer/topics=10", ["one"]),
        ("min.customer/topics=9.5", ["two"]),
        ("max.customer/email=2024-05-31", ["one", "two"]),
        ("min.customer/email=2024-05-02&max.customer/status=2024-05-31", ["two"]),
        ("min.customer/topics=10&max.customer/topics=11&max.customer/email=2024-05-01&match=any", ["one", "two"]),
        ("min.customer/topics=9.5&max.customer/topics=10&min.customer/email=2024-06-01&match=any", []),
        ("min.customer/name=2", ["one", "three", "two"]),
    ],
)
def test_dates_and_numbers_are_filtered_from_a_value_until_another(
    found_typed: Browser, query: str, names: list[str]
) -> None:
    page = found_typed.get(f"{VERSION}?{query}").text
    assert sorted(rows(found_typed)) == names
    fields = html.fromstring(page).xpath("//input[starts-with(@name, 'min.') or starts-with(@name, 'max.')]")
    assert {(each.get("name")[4:], each.get("type")) for each in fields} == {
        ("customer/topics", "number"),
        ("customer/email", "date"),
        ("customer/status", "date"),
    }
    given = dict(each.split("=") for each in query.split("&"))
    assert {each.get("name"): each.get("value") for each in fields if each.get("value")} == {
        name: value for name, value in given.items() if "name" not in name and name != "match"
    }


def test_a_bound_that_is_not_a_value_of_the_control_is_refused(found_typed: Browser) -> None:
    assert found_typed.get(f"{VERSION}?min.customer/topics=ten").status_code == 400
    assert found_typed.get(f"{VERSION}/documents.csv?min.customer/email=2024").status_code == 400


def test_unknown_forms_and_versions_are_not_found(found_forms: Browser) -> None:
    assert found_forms.get("/admin/forms/hr/nothing").status_code == 404
    assert found_forms.get("/admin/forms/hr/leave/7").status_code == 404


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
        ("?stage=review&owner=ann", []),
        ("?stage=review&owner=ann&match=any", ["d-2", "d-3", "d-1"]),
        ("?stage=review&c.customer/name=zoe&match=any", ["d-2", "d-3"]),
        ("?stage=review&c.customer/name=zoe&match=any&to=2024-05-03", ["d-3"]),
        ("?by=cid", ["d-2"]),
        ("?from=2024-05-03&to=2024-05-03", ["d-3"]),
        ("?drafts=only", ["d-4", "d-3"]),
        ("?page=2", []),
        ("?q=%3Cscript%3E", []),
    ],
)
def test_the_table_is_searched_filtered_and_sorted(found_forms: Browser, query: str, names: list[str]) -> None:
    assert found_forms.get(f"{VERSION}{query}").status_code == 200
    assert rows(found_forms) == names


@pytest.mark.parametrize(
    "query",
    [
        "?page=0",
        "?page=x",
        "?match=none",
        "?sort=nothing",
        "?from=yesterday",
        "?drafts=some",
        f"?q={'x' * 1001}",
        "?to=9999-12-31",
    ],
)
def test_a_query_that_cannot_be_read_is_refused(found_forms: Browser, query: str) -> None:
    assert found_forms.get(f"{VERSION}{query}").status_code == 400


def test_columns_have_the_labels_of_the_form_in_its_language(found_forms: Browser) -> None:
    found_forms.shows(VERSION, "Full name")
    found_forms.shows(f"{VERSION}?lang=de", "Voller Name")


def test_csv_has_what_is_filtered(found_forms: Browser) -> None:
    answer = found_forms.get(f"{VERSION}/documents.csv?c.customer/status=open")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="acme-order-1.csv"'
    head, *lines = csv.reader(io.StringIO(answer.data.decode("utf-8-sig"), newline=""))
    assert head[:1] + head[7:10] == ["document", "Full name", "topics", "E-mail"]
    assert [(line[0], line[7]) for line in lines] == [("d-1", "Ada"), ("d-3", "Zoe")]


def test_csv_is_whole_where_many_were_created_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persistence.services.exporting.ROWS_AT_ONCE", 3)
    instants = [f"2024-05-0{1 + number // 7}T00:00:00.000Z" for number in range(20)]
    with Planter(tmp_path / "data") as planter:
        planter.define("acme/order", 1, labelled(), "2024-04-01T09:00:00.000Z")
        for number, instant in enumerate(instants):
            planter.save("acme/order", f"d{number}", b"<form/>", instant)
    text = administrator(tmp_path).get(f"{VERSION}/documents.csv").data.decode("utf-8-sig")
    assert sorted(line.split(",")[0] for line in text.splitlines()[1:]) == sorted(f"d{each}" for each in range(20))


def test_deleted_documents_are_listed(found_forms: Browser) -> None:
    eventually(lambda: "Being counted" not in found_forms.get(f"{VERSION}/deleted").text)
    assert rows(found_forms) == ["gone"]
    assert "Ada ann 2024-05-09 00:00:00" in found_forms.text


def test_the_definition_says_who_may_do_what_and_shows_its_outline(found_forms: Browser) -> None:
    found_forms.shows(
        f"{VERSION}/definition",
        "everyone ✓ yes ✓ yes ✓ yes ✓ yes ✓ yes",
        "Customer section",
        "Full name input customer/name indexed",
    )
    found_forms.shows(f"{VERSION}/definition?lang=de", "Kunde")
    assert "Published 2024-04-01 09:00:00" in found_forms.text
    found_forms.shows("/admin/forms/hr/leave/1/definition", "Last published 2024-04-01 09:00:00 by mia")
    said = found_forms.text.replace("\u2013 ", "")
    assert "anyone ✓ yes no" in said
    assert "owner no ✓ yes ✓ yes no" in said
    assert "role clerk" in found_forms.text


def test_hostile_and_large_texts_are_shown_as_text_and_cut(tmp_path: Path) -> None:
    text = HOSTILE.replace("<", "&lt;").replace("\u0085", "")
    form = labelled().replace(b"Full name", text.encode()).replace(b'en">Order', f'en">{text}'.encode())
    body = f"<form><customer><name>{text}</name><email>{'x' * 900_000}</email></customer></form>".encode()
    large = f"<form><customer><email>{'x' * 1_500_000}</email></customer></form>".encode()
    with Planter(tmp_path / "data") as planter:
        planter.define(str(ORDER), 1, form, "2024-04-01T09:00:00.000Z")
        for content, at in ((body, FIRST), (body.replace(b"evil", b"good"), LAST)):
            planter.save(str(ORDER), "d", content, at, User("<b>ann</b>"), "<i>stage</i>")
        planter.save(str(ORDER), "large", large, LAST)
    found, own = administrator(tmp_path), f"/admin/forms/{ORDER}"
    for path in (
        *("/admin/forms", VERSION, f"{VERSION}/definition", f"{VERSION}?q=%3Cscript%3E%22"),
        *(f"{own}/data/d", f"{own}/data/d/changes?older={FIRST}&newer={LAST}", f"{own}/data/large"),
    ):
        answer = found.get(path)
        assert answer.status_code == 200
        assert len(answer.text) < 60_000
        for tag in ("<script>alert", "<b>ann", "<i>stage"):
            assert tag not in answer.text
    assert "more than 1 MiB" in found.text
    assert "&lt;script&gt;alert" in found.get(VERSION).text


def test_documents_are_listed_while_their_index_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are stored, those saved last first; what is searched has to wait."""
    with Planter(tmp_path / "data") as planter:
        plant(planter)
        planter.save(str(ORDER), "gone", b"<form/>", "2024-05-01T00:00:00.000Z", User("ann"))
        planter.delete(DocumentAddress(ORDER, Collection.DATA, "gone", DATA_XML), 1, "2024-05-09T00:00:00.000Z")
    found_forms = administrator(tmp_path)

    def search(*_arguments: object) -> None:
        raise BusyError("the index of acme/order is being made", 5)

    monkeypatch.setattr(TreeIndex, "search", search)
    found_forms.get(VERSION)
    assert rows(found_forms) == ["d-2", "d-3", "d-1"]
    assert "the index of acme/order is being made" in found_forms.text
    assert "The documents are listed as they are stored." in found_forms.text
    found_forms.get(f"{VERSION}?q=pump")
    assert rows(found_forms) == []
    assert "The documents cannot be searched now" in found_forms.text
    monkeypatch.setattr("persistence.services.document_tables.STORED_LISTED", 2)
    found_forms.get(VERSION)
    assert len(rows(found_forms)) <= 2
    assert "of the first 1000 that are stored" in found_forms.text


@pytest.mark.parametrize(
    ("zone", "shown"), [("Asia/Tokyo", "2024-05-05 00:30:00"), ("America/New_York", "2024-05-04 11:30:00")]
)
def test_times_are_those_of_the_zone_of_the_settings(tmp_path: Path, zone: str, shown: str) -> None:
    with Planter(tmp_path / "data") as planter:
        planter.define(str(ORDER), 1, labelled(), "2024-04-02T09:00:00.000Z")
        planter.save(str(ORDER), "d", b"<form/>", "2024-05-04T15:30:00.000Z")
    found = administrator(tmp_path, time_zone=zone)
    page = found.get(f"/admin/forms/{ORDER}/data/d").text
    assert shown in found.text
    assert 'title="2024-05-04 15:30:00 UTC"' in page
    day = shown[:10]
    found.get(f"/admin/forms/{ORDER}?from={day}&to={day}")
    assert rows(found) == ["d"]
    for other in (f"?to=2024-05-0{int(day[-1]) - 1}", f"?from=2024-05-0{int(day[-1]) + 1}"):
        found.get(f"/admin/forms/{ORDER}{other}")
        assert rows(found) == []
