"""Actions on documents from the pages: deleting, bringing back, another stage or owner, ZIP files; and one search."""

import io
import json
import time
import zipfile
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

from persistence.limits import LONGEST_TEXT, ROWS_SHOWN
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress
from persistence.model.permissions import User
from persistence.pages import form_pages
from persistence.pages.form_pages import ShownVersion, table_of
from persistence.services.document_tables import DocumentTable
from tests.orders import ORDER, plant
from tests.pages.administrator import CRUD, Browser, administrator
from tests.published import Planter
from tests.waiting import eventually

FORM = f"/admin/forms/{ORDER}"
ACTIONS = "/admin/actions"
BOTH = f"{ORDER}?document=d-1&document=d-2"


@pytest.fixture
def found(tmp_path: Path) -> Browser:
    with Planter(tmp_path / "data") as planter:
        plant(planter)
        for name in ("gone", "lost"):
            planter.save(str(ORDER), name, b"<form/>", "2024-05-01T00:00:00.000Z", User("ann"))
            planter.delete(DocumentAddress(ORDER, Collection.DATA, name, DATA_XML), 1, "2024-05-09T00:00:00.000Z")
    return administrator(tmp_path, trusted=("127.0.0.1",), audit="file")


def status(found: Browser, document: str) -> int:
    return found.crud("GET", f"{ORDER}/data/{document}/data.xml").status_code


def headers(found: Browser, document: str) -> dict[str, str]:
    return dict(found.crud("HEAD", f"{ORDER}/data/{document}/data.xml").headers)


def test_one_document_is_deleted_after_a_question(found: Browser) -> None:
    found.shows(f"{ACTIONS}/document-delete/{ORDER}?document=d-1", "Delete the document Ada")
    assert status(found, "d-1") == 200
    found.do(f"{ACTIONS}/document-delete/{ORDER}?document=d-1")
    assert "Documents deleted: 1." in found.text
    assert status(found, "d-1") == 404


def test_a_selection_is_deleted_and_brought_back(found: Browser, tmp_path: Path) -> None:
    found.shows(f"{ACTIONS}/document-delete/{BOTH}", f"Delete 2 documents of {ORDER}?")
    found.do(f"{ACTIONS}/document-delete/{BOTH}")
    assert "Documents deleted: 2." in found.text
    assert [status(found, each) for each in ("d-1", "d-2")] == [404, 404]
    found.do(f"{ACTIONS}/document-restore/{BOTH}")
    assert "Documents brought back: 2." in found.text
    assert [status(found, each) for each in ("d-1", "d-2")] == [200, 200]
    lines = [json.loads(line) for line in (tmp_path / "audit/audit.jsonl").read_text().splitlines()]
    done = {each["action"]: each for each in lines}
    assert done["document-delete"]["details"]["document"] == ["d-1", "d-2"]
    assert done["document-restore"]["key"] == "ada"


def test_the_page_of_deleted_documents_brings_back_those_that_are_ticked(found: Browser) -> None:
    eventually(lambda: "Being counted" not in found.get(f"{FORM}/deleted").text)
    assert found.page.text.count('type="checkbox" name="document"') == 2
    found.do(f"{ACTIONS}/document-restore/{ORDER}?document=gone")
    assert [status(found, each) for each in ("gone", "lost")] == [200, 404]


@pytest.mark.parametrize("action", ["document-delete", "document-change", "document-restore"])
def test_nothing_is_written_over_a_change_since_the_question(found: Browser, action: str) -> None:
    document = "gone" if action == "document-restore" else "d-2"
    found.get(f"{ACTIONS}/{action}/{ORDER}?document=d-1&document={document}&change=stage&stage=done")
    found.crud("PUT", f"{ORDER}/data/{document}/data.xml", b"<form><new/></form>", Username="lea")
    assert found.send().status_code == 412
    assert "a document has changed since you were asked. Nothing was written." in found.text
    assert status(found, "d-1") == status(found, document) == 200
    assert headers(found, "d-1").get("Svc-Workflow-Stage") != "done"
    assert headers(found, document)["Svc-Last-Modified-By-Username"] == "lea" if document != "gone" else True


def test_the_stage_and_the_owner_are_changed_as_a_new_revision(found: Browser) -> None:
    before = found.crud("GET", f"{ORDER}/data/d-1/data.xml")
    found.shows(f"{ACTIONS}/document-change/{BOTH}&change=stage&stage=approved", "The stage becomes approved.")
    found.do(f"{ACTIONS}/document-change/{BOTH}&change=stage&stage=approved")
    assert "Documents changed: 2." in found.text
    found.do(f"{ACTIONS}/document-change/{ORDER}?document=d-1&change=owner&owner=zoe&group=staff")
    after = found.crud("GET", f"{ORDER}/data/d-1/data.xml")
    assert after.data == before.data
    assert after.headers["Svc-Workflow-Stage"] == "approved"
    assert (after.headers["Svc-Username"], after.headers["Svc-Group"]) == ("zoe", "staff")
    assert after.headers["Svc-Created"] == before.headers["Svc-Created"]
    found.shows(f"{FORM}/data/d-1", "by ada", "Owner zoe of staff")
    found.do(f"{ACTIONS}/document-change/{ORDER}?document=d-1&change=stage&stage=")
    assert "Svc-Workflow-Stage" not in headers(found, "d-1")


@pytest.mark.parametrize(
    ("query", "cause"),
    [
        ("?change=stage", "no document is selected"),
        ("?change=stage&document=nothing", "none of the selected documents exists"),
        (
            "?change=stage&" + "&".join(f"document=x{number}" for number in range(ROWS_SHOWN + 1)),
            f"at most {ROWS_SHOWN}",
        ),
        ("?document=d-1&change=colour", "owner or stage can be changed"),
        ("?change=stage&document=..", ""),
        (f"?change=stage&document=d-1&stage={'s' * (LONGEST_TEXT + 1)}", "stage is longer than"),
        ("?change=stage&document=d-1&stage=a%0D%0Ab", "stage holds control characters"),
        ("?change=owner&document=d-1&owner=a%00b", "owner holds control characters"),
        ("?change=owner&document=d-1&group=staff", "a group needs an owner"),
    ],
)
def test_a_selection_that_cannot_be_is_refused(found: Browser, query: str, cause: str) -> None:
    assert found.get(f"{ACTIONS}/document-change/{ORDER}{query}").status_code == 400
    assert cause in found.text


def test_what_cannot_be_deleted_is_named_and_the_others_go(found: Browser) -> None:
    found.do(f"{ACTIONS}/document-delete/{ORDER}?document=gone&document=d-3")
    assert "Documents deleted: 1. 1 not:" in found.text
    assert status(found, "d-3") == 404


SMILE = "\U0001f600"
SHOWN = {
    "receipt.pdf": "receipt.pdf",
    "../../etc/passwd": ".._.._etc_passwd",
    "data.xml": "data (2).xml",
    "A.pdf": "A.pdf",
    "a.pdf": "a (2).pdf",
    "a\u202efdp.exe": "a_fdp.exe",
    f"{SMILE * 300}.pdf": f"{SMILE * 49}.pdf",
    'a:"b"?': "a__b__",
}
"""Names of files as the data has them, and in a folder: none passes for another one, or misleads."""


def test_documents_are_sent_as_folders_with_files_under_their_own_names(found: Browser) -> None:
    base = f"{ORDER}/data/d-1"
    file = f"<email filename={{}}>{CRUD}/{base}/{{}}.bin</email>"
    holders = "".join(file.format(quoteattr(name), number) for number, name in enumerate(SHOWN))
    body = f"<form><customer>{holders}</customer></form>".encode()
    assert found.crud("PUT", f"{base}/data.xml", body).status_code == 204
    for number in range(len(SHOWN)):
        assert found.crud("PUT", f"{base}/{number}.bin", b"%d" % number, "application/pdf").status_code == 201
    answer = found.get(f"{FORM}/documents.zip?document=d-1&document=d-1")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="d-1.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.data)) as archive:
        assert archive.testzip() is None
        contents = {name: archive.read(name) for name in archive.namelist()}
    files = {f"d-1/{name}": b"%d" % number for number, name in enumerate(SHOWN.values())}
    assert contents == {"d-1/data.xml": body, **files}
    assert len(found.get(f"{FORM}/data/d-1/attachments/6.bin").headers["Content-Disposition"]) < 1000
    with zipfile.ZipFile(io.BytesIO(found.get(f"{FORM}/documents.zip").data)) as archive:
        folders = {name.split("/")[0] for name in archive.namelist()}
    assert folders == {"d-1", "d-2", "d-3"}  # not the deleted ones


def test_a_bad_name_is_refused_before_the_archive_begins(found: Browser) -> None:
    for name in ("../x", "a/b", "", "%00", "x" * 300):
        assert found.get(f"{FORM}/documents.zip?document=d-1&document={name}").status_code == 400


def test_a_search_of_all_forms_names_the_documents_of_each(found: Browser) -> None:
    found.get("/admin/search?q=zoe")
    assert "Order All that match" in found.text or "Order As a table" in found.text
    assert f"{FORM}/data/d-3" in found.page.text  # type: ignore[union-attr]
    found.shows("/admin/search?q=nothing-like-it", "No document matches.")
    found.shows("/admin/search", "Type a text")
    assert found.get(f"/admin/search?q={'x' * 1001}").status_code == 400
    assert "<script>" not in found.get("/admin/search?q=<script>alert(1)</script>").text.replace("<script src", "")


def test_a_search_of_all_forms_ends_within_a_form(found: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(shown: ShownVersion) -> DocumentTable:
        time.sleep(0.3)
        return table_of(shown)

    monkeypatch.setattr("persistence.limits.SEARCH_ALL_SECONDS", 0.2)
    monkeypatch.setattr(form_pages, "table_of", slow)
    found.shows("/admin/search?q=zoe", "acme/order could not be searched now. Each can be searched on its own page.")
