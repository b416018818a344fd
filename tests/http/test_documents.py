"""Form data over HTTP: the seed's tables and spec crud 4, in both dialects and through both APIs."""

import re
from email.utils import parsedate_to_datetime

import pytest

from tests.service import V1, Service

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
RFC_1123 = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")
TAG = {"svc": re.compile(r'"[0-9a-f]{40}"'), "orbeon": re.compile(r"[0-9a-f]{40}")}


def test_create_update_read_and_delete(service: Service, form: str) -> None:
    """Spec crud 4.1: 201, 204, 200 and 204; seed, Endpoints: PUT and DELETE answer with empty bodies."""
    path = f"{form}/data/D/data.xml"
    created = service.put(path, b"<d>1</d>", **V1)
    assert (created.status, created.body, created["Content-Type"]) == (201, b"", None)
    updated = service.put(path, b"<d>2</d>")
    assert (updated.status, updated.body) == (204, b"")
    read = service.get(path)
    assert (read.status, read.body) == (200, b"<d>2</d>")
    removed = service.delete(path)
    assert (removed.status, removed.body) == (204, b"")
    assert service.get(path).status == service.deleted


def test_head_is_get_without_a_body(service: Service, form: str) -> None:
    """Seed, Endpoints 2: HEAD has the headers of GET."""
    path = f"{form}/data/D/data.xml"
    service.put(path, b"<d>1</d>", **V1)
    ignored = {"date", "x-request-id", "connection"}
    head, get = service.head(path), service.get(path)
    assert (head.status, head.body) == (200, b"")
    assert {k: v for k, v in head.headers.items() if k.lower() not in ignored} == {
        k: v for k, v in get.headers.items() if k.lower() not in ignored
    }
    assert head["Content-Length"] == "8"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["data/none/data.xml", "draft/none/data.xml", "data/none/a.bin", "form/form.xhtml"])
def test_what_was_never_stored_is_not_found(service: Service, form: str, method: str, path: str) -> None:
    """Seed, Errors: 404."""
    assert service.ask(method, f"{form}/{path}").status == 404


def test_reading_after_delete_is_the_dialects_status(service: Service, form: str) -> None:
    """Design, section 2: 404 in svc, 410 in orbeon, for GET and HEAD; DELETE of a tombstone is 410 in both (4.1)."""
    path = f"{form}/data/D/data.xml"
    service.put(path, **V1)
    service.delete(path)
    assert service.get(path).status == service.head(path).status == service.deleted
    assert service.delete(path).status == 410


def test_delete_of_what_was_never_stored_is_not_found(service: Service, form: str) -> None:
    """Spec crud 4.1."""
    assert service.delete(f"{form}/data/none/data.xml").status == 404
    assert service.delete(f"{form}/draft/none/data.xml").status == 404
    assert service.delete(f"{form}/data/none/a.bin").status == 404


def test_a_tombstone_can_be_written_over(service: Service, form: str) -> None:
    """Spec crud 4.4: PUT over a tombstone is a creation: 201, fresh creation instant, fresh owner."""
    path = f"{form}/data/D/data.xml"
    service.put(path, b"<d>1</d>", **V1, Username="lea")
    before = service.get(path)
    service.delete(path, Username="bob")
    assert service.put(path, b"<d>2</d>", **V1, Username="zoe").status == 201
    after = service.get(path)
    assert after[service.prefix + "Username"] == "zoe"
    assert str(after[service.prefix + "Created"]) > str(before[service.prefix + "Created"])


@pytest.mark.parametrize("given", ["True", "FALSE", "1"])
def test_the_validity_is_exactly_true_or_false(service: Service, form: str, given: str) -> None:
    assert service.put(f"{form}/data/D/data.xml?valid={given}", **V1).status == 400


def test_headers_of_get(service: Service, form: str) -> None:
    """Spec crud 4.3, first column, with the formats below the table."""
    path = f"{form}/data/D/data.xml"
    service.put(
        f"{path}?valid=true", Form_Definition_Version=3, Username="lea", Group="staff", Workflow_Stage="started"
    )
    service.put(f"{path}?valid=false", Username="bob", Group="other", Workflow_Stage="été")
    got, own = service.get(path), service.prefix
    app, name = form.split("/")
    assert {
        "version": got[own + "Form-Definition-Version"],
        "app": got[own + "Form-Definition-App"],
        "form": got[own + "Form-Definition-Form"],
        "owner": got[own + "Username"],
        "group": got[own + "Group"],
        "modifier": got[own + "Last-Modified-By-Username"],
        "stage": str(got[own + "Workflow-Stage"]).encode("latin-1").decode(),
        "valid": got[own + "Valid"],
        "operations": got[own + "Operations"],
        "type": got["Content-Type"],
    } == {
        "version": "3",
        "app": app,
        "form": name,
        "owner": "lea",
        "group": "staff",
        "modifier": "bob",
        "stage": "été",
        "valid": "false",
        "operations": "*",
        "type": "application/xml",
    }
    for date, iso in (("Last-Modified", "Last-Modified"), ("Created", "Created")):
        assert RFC_1123.fullmatch(str(got[date]))
        assert ISO.fullmatch(str(got[own + iso]))
        assert parsedate_to_datetime(str(got[date])).isoformat()[:19] == str(got[own + iso])[:19]
    assert TAG[service.dialect].fullmatch(str(got["ETag"]))


def test_headers_of_put_and_delete(service: Service, form: str) -> None:
    """Spec crud 4.3: version, operations, both modification headers and the tag, which a later GET repeats."""
    path, own = f"{form}/data/D/data.xml", service.prefix
    put = service.put(path, Form_Definition_Version=2)
    got = service.get(path)
    for name in ("ETag", "Last-Modified", own + "Last-Modified", own + "Form-Definition-Version", own + "Operations"):
        assert put[name] == got[name] is not None
    for absent in (own + "Created", "Created", own + "Username", own + "Form-Definition-App"):
        assert put[absent] is None
    gone = service.delete(path)
    assert str(gone[own + "Last-Modified"]) > str(got[own + "Last-Modified"])
    assert gone["ETag"] != got["ETag"]
    assert (gone[own + "Form-Definition-Version"], gone[own + "Operations"]) == ("2", "*")


def test_unknown_facts_have_no_header(service: Service, form: str) -> None:
    """Spec crud 4.3: "if known", "if set"; blank means none (section 3)."""
    path, own = f"{form}/data/D/data.xml", service.prefix
    service.put(path, **V1, Username=" ", Group="staff", Workflow_Stage=" ")
    got = service.get(path)
    for name in ("Username", "Group", "Last-Modified-By-Username", "Workflow-Stage", "Valid", "Document"):
        assert got[own + name] is None


def test_the_stage_is_not_inherited(service: Service, form: str) -> None:
    """Spec crud 3: absent means that this revision has no stage."""
    path = f"{form}/data/D/data.xml"
    service.put(path, **V1, Workflow_Stage="started")
    service.put(path)
    assert service.get(path)[service.prefix + "Workflow-Stage"] is None


def test_credentials_win_and_carry_the_organization(service: Service, form: str) -> None:
    """Spec crud 6.1 and 4.3: one organization header per level, root first."""
    path = f"{form}/data/D/data.xml"
    credentials = '{"username":"l%C3%A9a","groups":["staff"],"organizations":[["Corp","France"]]}'
    service.put(path, **V1, Credentials=credentials, Username="other")
    got = service.get(path)
    assert str(got[service.prefix + "Username"]).encode("latin-1").decode() == "léa"
    assert got.headers.get_all(service.prefix + "Organization") == ["Corp", "France"]


def test_xml_comes_back_as_it_was_stored(service: Service, form: str) -> None:
    """The issue: XML as it was stored when no transform is asked for, whatever the encoding."""
    path = f"{form}/data/D/data.xml"
    for body in (
        b'<?xml version="1.0"?>\n<!-- c --><d  a = "1"\t><![CDATA[x]]>\r\n</d>\n',
        '<?xml version="1.0" encoding="ISO-8859-1"?><d>é</d>'.encode("latin-1"),
        "<?xml version='1.0' encoding='UTF-16'?><d>é</d>".encode("utf-16"),
    ):
        service.put(path, body, **V1)
        assert service.get(path).body == body


def test_every_save_gets_its_own_tag(service: Service, form: str) -> None:
    """Spec crud 4.6: the tag differs after every PUT, also when the content is identical."""
    path = f"{form}/data/D/data.xml"
    tags = {service.put(path, b"<d/>", **V1)["ETag"] for _ in range(5)}
    assert len(tags) == 5


def test_older_revisions_are_read_by_their_instant(service: Service, form: str) -> None:
    """Spec crud 4.8: exact equality; all headers are those of that revision; a tombstone answers as deleted."""
    path, own = f"{form}/data/D/data.xml", service.prefix
    instants = []
    for number in range(3):
        put = service.put(path, b"<d>%d</d>" % number, **V1, Workflow_Stage=f"s{number}")
        instants.append(put[own + "Last-Modified"])
    tombstone = service.delete(path)[own + "Last-Modified"]
    service.put(path, b"<d>again</d>", **V1)
    assert instants == sorted(set(map(str, instants)))
    for number, instant in enumerate(instants):
        old = service.get(f"{path}?last-modified-time={instant}")
        assert (old.status, old.body) == (200, b"<d>%d</d>" % number)
        assert (old[own + "Workflow-Stage"], old[own + "Last-Modified"]) == (f"s{number}", instant)
        assert service.head(f"{path}?last-modified-time={instant}")["ETag"] == old["ETag"]
    assert service.get(f"{path}?last-modified-time={tombstone}").status == service.deleted
    assert service.get(f"{path}?last-modified-time=2001-01-01T00:00:00.000Z").status == 404
    assert service.get(f"{path}?last-modified-time=").body == b"<d>again</d>"
    assert service.get(f"{path}?last-modified-time=yesterday").status == 400


def test_nonrelevant_data_is_removed_on_request(service: Service, form: str) -> None:
    """Seed, query parameters; spec forms 3.1: only remove, only GET, not the designer's data."""
    body = b'<d xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><a fr:relevant="false"><b/></a><c>1</c></d>'
    kept = b'<d xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><c>1</c></d>'
    path = f"{form}/data/D/data.xml"
    service.put(path, body, **V1)
    removed = service.get(f"{path}?nonrelevant=remove")
    assert (removed.status, removed.body, removed["Content-Length"]) == (200, kept, str(len(kept)))
    assert service.get(f"{path}?nonrelevant=keep").body == body
    assert service.get(f"{path}?nonrelevant=Remove").body == body
    assert service.get(f"{path}?nonrelevant=empty").status == 400
    head = service.head(f"{path}?nonrelevant=remove")
    assert (head.status, head["ETag"], head["Content-Length"]) == (200, removed["ETag"], None)
    designer = f"{service.designer}/builder/data/{form.partition('/')[0]}/data.xml"
    service.put(designer, body)
    assert service.get(f"{designer}?nonrelevant=remove").body == body


@pytest.mark.parametrize(
    ("word", "status"), [("4.0.0", 200), ("raw", 200), ("", 200), ("4.8.0", 400), ("2019.1.0", 400), ("5", 400)]
)
def test_the_data_format_must_be_the_stored_one(service: Service, form: str, word: str, status: int) -> None:
    """Spec crud 3.1: checked first, on GET and PUT of any file of a document; HEAD does not look."""
    path = f"{form}/data/D/data.xml"
    service.put(path, **V1)
    assert service.get(f"{path}?data-format-version={word}").status == status
    assert service.head(f"{path}?data-format-version={word}").status == 200
    assert service.put(f"{path}?data-format-version={word}").status == (204 if status == 200 else status)
    missing = service.get(f"{form}/data/none/data.xml?data-format-version={word}")
    assert missing.status == (404 if status == 200 else status)


@pytest.mark.parametrize("method", ["DELETE", "HEAD"])
def test_purging_is_refused(service: Service, form: str, method: str) -> None:
    """Spec crud 4.9: the default without an internal caller is 400, and nothing is deleted."""
    path = f"{form}/data/D/data.xml"
    service.put(path, **V1)
    assert service.ask(method, f"{path}?force-delete=true").status == 400
    if method == "DELETE":
        assert service.delete(f"{path}?last-modified-time=2025-03-04T05:06:07.089Z").status == 400
    assert service.get(path).status == 200


def test_the_version_of_data_is_fixed(service: Service, form: str) -> None:
    """Seed, Errors and Versioning 2; spec crud 4.1: the stored number fits, next and for-document never do."""
    path = f"{form}/data/D/data.xml"
    assert service.put(path, Form_Definition_Version=2).status == 201
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        body = b"<d/>" if method == "PUT" else None
        assert service.ask(method, path, body, **V1).status == 400
        assert service.ask(method, path, body, Form_Definition_Version="next").status == 400
        assert service.ask(method, path, body, For_Document_Id="D").status == 400
    assert service.get(path, Form_Definition_Version=2).status == 200
    assert service.put(path, Form_Definition_Version=2).status == 204
    assert service.delete(path, Form_Definition_Version=2).status == 204


def test_new_data_without_a_version(service: Service, form: str) -> None:
    """Design, section 2: the latest published version or 1 in svc; 400 in orbeon."""
    version = service.prefix + "Form-Definition-Version"
    answer = service.put(f"{form}/data/A/data.xml")
    service.put(f"{form}/form/form.xhtml", Form_Definition_Version=4)
    later = service.put(f"{form}/data/B/data.xml")
    if service.dialect == "orbeon":
        assert (answer.status, later.status) == (400, 400)
    else:
        assert (answer.status, answer[version]) == (201, "1")
        assert (later.status, later[version]) == (201, "4")


def test_a_tombstone_needs_a_version_again(service: Service, form: str) -> None:
    """Spec crud 14: PUT over a tombstone without a version is a PUT of new data."""
    path = f"{form}/data/D/data.xml"
    service.put(path, **V1)
    service.put(f"{form}/form/form.xhtml", Form_Definition_Version=2)
    service.delete(path)
    again = service.put(path)
    if service.dialect == "orbeon":
        assert again.status == 400
    else:  # the document's own version, not the latest: an id is never reused across versions (seed, rule 1)
        assert (again.status, again["Svc-Form-Definition-Version"]) == (201, "1")


def test_data_needs_no_published_definition(service: Service, form: str) -> None:
    """Spec crud 5.3 and D7: accepted."""
    assert service.put(f"{form}/data/D/data.xml", Form_Definition_Version=7).status == 201


def test_the_designers_data(service: Service, form: str) -> None:
    """Seed, Versioning 5; spec crud 5.4: version 1 or none; any other is 400."""
    path = f"{service.designer}/builder/data/{form.partition('/')[0]}/data.xml"
    version = service.prefix + "Form-Definition-Version"
    assert service.put(path, Form_Definition_Version=2).status == 400
    assert service.put(path, Form_Definition_Version="next").status == 400
    created = service.put(path)
    assert (created.status, created[version]) == (201, "1")
    assert service.put(path, **V1).status == service.put(path).status == 204
    assert service.put(path.replace("/data/", "/draft/", 1)).status == 201
    assert service.put(path.replace("data.xml", "a.bin"), b"x").status == 201
    assert service.get(path)[version] == "1"


def test_deleting_all_data_of_a_form(service: Service, form: str) -> None:
    """Seed, Endpoints; spec crud 4.13 with the issue: 200, empty; all, or those of one version."""
    for number in range(6):
        service.put(f"{form}/data/D{number}/data.xml", Form_Definition_Version=number % 2 + 1)
    service.put(f"{form}/draft/D0/data.xml", **V1)
    service.put(f"{form}/draft/never-saved/data.xml", **V1)
    assert service.delete(f"{form}/data/", Form_Definition_Version="x").status == 400
    assert service.delete(f"{form}/data/", Form_Definition_Version="next").status == 400
    some = service.delete(f"{form}/data/", **V1)
    assert (some.status, some.body) == (200, b"")
    own = service.prefix
    assert (some[own + "Deleted"], some[own + "Refused"]) == ("3", "0")
    statuses = [service.get(f"{form}/data/D{number}/data.xml").status for number in range(6)]
    assert statuses == [service.deleted, 200] * 3
    assert service.get(f"{form}/draft/D0/data.xml").status == 404
    assert service.delete(f"{form}/data").status == 200
    assert service.get(f"{form}/data/D1/data.xml").status == service.deleted
    assert service.get(f"{form}/draft/never-saved/data.xml").status == 200
    for empty in (service.delete(f"{form}/data/"), service.delete("no-app/no-form/data/")):
        assert (empty.status, empty[own + "Deleted"], empty[own + "Refused"]) == (200, "0", "0")
