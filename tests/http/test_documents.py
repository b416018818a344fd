"""Form data and drafts over HTTP: the seed's tables and spec crud 4, in both dialects and through both APIs."""

import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from persistence.model.versions import DATA_FORMATS
from tests.http.stories import play, stories
from tests.published import definition
from tests.served import served
from tests.service import V1, Answer, Service, running

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
RFC_1123 = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")
TAG = {"svc": re.compile(r'"[0-9a-f]{40}"'), "orbeon": re.compile(r"[0-9a-f]{40}")}
PURGED = "data/D?last-modified-time=2025-03-04T05:06:07.089Z"


@stories(
    {
        "create, update, read and delete: 201, 204, 200, 204, with empty bodies (4.1)": """
            PUT data/D v=1 <d>1</d> -> 201 body= Content-Type=
            PUT data/D <d>2</d> -> 204 body=
            GET data/D -> 200 <d>2</d>
            DELETE data/D -> 204 body=
            GET data/D -> deleted""",
        "what was never stored is not found": """
            GET|HEAD data/none draft/none data/none/a.bin form -> 404
            DELETE data/none draft/none data/none/a.bin -> 404""",
        "reading after a DELETE has the dialect's status, another DELETE 410 (4.1)": """
            PUT data/D v=1
            DELETE data/D
            GET|HEAD data/D -> deleted
            DELETE data/D -> 410""",
        "the validity is exactly true or false": """
            PUT data/D?valid=True data/D?valid=FALSE data/D?valid=1 v=1 -> 400""",
        "unknown facts have no header, and blank means none (3, 4.3)": """
            PUT data/D v=1 by=` ` group=staff stage=` `
            GET data/D -> 200 Username= Group= Last-Modified-By-Username= Workflow-Stage= Valid= Document=""",
        "the stage is not inherited (3)": """
            PUT data/D v=1 stage=started
            PUT data/D
            GET data/D -> 200 Workflow-Stage=""",
        "purging is refused without an internal caller (4.9)": f"""
            PUT data/D v=1
            DELETE|HEAD data/D?force-delete=true -> 400
            DELETE {PURGED} -> 400
            GET data/D -> 200""",
        "the version is fixed: the stored number fits, next and for-document never do (4.1)": """
            PUT data/D v=2 -> 201
            GET|HEAD|PUT|DELETE data/D v=1 -> 400
            GET|HEAD|PUT|DELETE data/D v=next -> 400
            GET|HEAD|PUT|DELETE data/D For-Document-Id=D -> 400
            GET data/D v=2 -> 200
            PUT|DELETE data/D v=2 -> 204""",
        "data needs no published definition (5.3, D7)": """
            PUT data/D v=7 -> 201""",
        "the designer's data has version 1 or none (5.4)": """
            PUT /{builder}/data/{app} v=2 -> 400
            PUT /{builder}/data/{app} v=next -> 400
            PUT /{builder}/data/{app} -> 201 v=1
            PUT /{builder}/data/{app} v=1 -> 204
            PUT /{builder}/data/{app} /{builder}/draft/{app} /{builder}/data/{app}/a.bin -> 204 201 201
            GET /{builder}/data/{app} -> 200 v=1""",
        "all data of a form is deleted, or that of one version (4.13)": """
            PUT data/D0 data/D2 data/D4 draft/D0 draft/never-saved v=1 -> 201
            PUT data/D1 data/D3 data/D5 v=2 -> 201
            DELETE data/ v=x -> 400
            DELETE data/ v=next -> 400
            DELETE data/ v=1 -> 200 body= Deleted=3 Refused=0
            GET data/D0 data/D1 data/D2 data/D3 data/D4 data/D5 -> deleted 200 deleted 200 deleted 200
            GET draft/D0 -> 404
            DELETE data -> 200
            GET data/D1 draft/never-saved -> deleted 200
            DELETE data/ /no-app/no-form/data/ -> 200 Deleted=0 Refused=0""",
        "a draft is created and replaced; its creation and owner are kept (4.11)": """
            PUT draft/D v=1 by=lea <d>1</d> -> 201
            GET draft/D -> 200 Created>created
            PUT draft/D by=bob <d>2</d> -> 204
            GET draft/D -> 200 <d>2</d> Created={created} Username=lea Last-Modified-By-Username=bob""",
        "draft and data are independent (4.11)": """
            PUT data/D v=1 <d>saved</d>
            PUT draft/D v=1 <d>draft</d> -> 201
            GET data/D -> 200 <d>saved</d>
            GET draft/D -> 200 <d>draft</d>""",
        "saving an attachment leaves the draft: its own must stay readable until the data is saved (4.11)": """
            PUT draft/D/a.bin draft/D data/D/a.bin v=1
            GET draft/D/a.bin -> 200
            PUT data/D draft/D v=1
            DELETE data/D/a.bin
            GET draft/D -> 200""",
        "replacing the draft keeps its attachments (4.11)": """
            PUT draft/D draft/D/a.bin draft/D v=1
            GET draft/D/a.bin -> 200 <d/>""",
        "deleting data removes the draft (4.10)": """
            PUT data/D draft/D/a.bin draft/D v=1
            DELETE data/D
            GET draft/D draft/D/a.bin -> 404""",
        "deleting a draft leaves the data (4.10)": """
            PUT data/D draft/D v=1
            DELETE draft/D
            GET data/D -> 200""",
        "a PUT over a tombstone is a creation: 201, fresh creation instant, fresh owner (4.4)": """
            PUT data/D v=1 by=lea
            GET data/D -> 200 Created>created
            DELETE data/D by=bob
            PUT data/D v=1 by=zoe -> 201 Last-Modified>again
            GET data/D -> 200 Username=zoe Created!{created} Created={again}""",
        "saving removes the draft with its attachments": """
            PUT draft/D/a.bin draft/D v=1
            GET draft/D/a.bin -> 200 <d/>
            PUT data/D v=1 -> 201
            GET draft/D draft/D/a.bin -> 404
            PUT draft/D v=1
            GET draft/D/a.bin -> 404
            NOTHING draft/D/a.bin""",
        "deleting a draft leaves no trace: 404 in both dialects, no dates in the answer (4.10, 4.1, 4.3)": """
            PUT draft/D draft/D/a.bin v=1
            DELETE draft/D -> 204 Last-Modified= Modified= ETag=
            GET draft/D draft/D/a.bin -> 404
            DELETE draft/D -> 404
            PUT draft/D v=1
            DELETE draft/D -> 204 Modified=
            NOTHING draft/D""",
        "an attachment of a draft leaves no tombstone; the draft itself stays (4.1)": """
            PUT draft/D draft/D/a.bin v=1
            DELETE draft/D/a.bin -> 204
            GET|DELETE draft/D/a.bin -> 404
            GET draft/D -> 200
            NOTHING draft/D/a.bin draft/D/a.bin.json draft/D/.history""",
        "a draft has one revision only (4.11)": """
            PUT draft/D v=1 -> 201 Last-Modified>first
            PUT draft/D -> 204 Last-Modified>second
            GET draft/D?last-modified-time={first} draft/D?last-modified-time={second} -> 404 200
            NOTHING draft/D/.history""",
        "older revisions are read by exactly their instant; a tombstone answers as deleted (4.8)": """
            PUT data/D v=1 stage=s0 <d>0</d> -> 201 Last-Modified>zero
            PUT data/D v=1 stage=s1 <d>1</d> -> 204 Last-Modified>one
            DELETE data/D -> 204 Last-Modified>gone
            PUT data/D v=1 <d>again</d> -> 201
            GET data/D?last-modified-time={zero} -> 200 <d>0</d> Workflow-Stage=s0 Last-Modified={zero} ETag>tag
            HEAD data/D?last-modified-time={zero} -> 200 ETag={tag}
            GET data/D?last-modified-time={one} -> 200 <d>1</d> Workflow-Stage=s1 Last-Modified={one} ETag!{tag}
            GET data/D?last-modified-time={gone} -> deleted
            GET data/D?last-modified-time=2001-01-01T00:00:00.000Z -> 404
            GET data/D?last-modified-time= -> 200 <d>again</d>
            GET data/D?last-modified-time=yesterday -> 400""",
        "the data format must be the stored one: checked first, on GET and PUT, not on HEAD (3.1)": """
            PUT data/D v=1
            GET data/D{asked}4.0.0 data/D{asked}raw data/D{asked} -> 200
            PUT data/D{asked}4.0.0 data/D{asked}raw data/D{asked} -> 204
            GET|PUT data/D{asked}4.8.0 data/D{asked}2019.1.0 data/D{asked}5 -> 400
            HEAD data/D{asked}4.0.0 data/D{asked}5 -> 200
            GET data/none{asked}raw data/none{asked}5 -> 404 400""",
        "what is not relevant is removed on request; only remove, only GET, not the designer's data (forms 3.1)": """
            PUT data/D v=1 {irrelevant}
            GET data/D?nonrelevant=remove -> 200 {kept} Content-Length=64 ETag>tag
            GET data/D?nonrelevant=keep data/D?nonrelevant=Remove -> 200 {irrelevant}
            GET data/D?nonrelevant=empty -> 400
            HEAD data/D?nonrelevant=remove -> 200 ETag={tag} Content-Length=
            PUT /{builder}/data/{app} {irrelevant}
            GET /{builder}/data/{app}?nonrelevant=remove -> 200 {irrelevant}""",
    }
)
def test_data_and_drafts(service: Service, form: str, story: str) -> None:
    namespace = 'xmlns:fr="http://orbeon.org/oxf/xml/form-runner"'
    irrelevant = f'<d {namespace}><a fr:relevant="false"><b/></a><c>1</c></d>'
    words = {"asked": "?data-format-version=", "irrelevant": irrelevant, "kept": f"<d {namespace}><c>1</c></d>"}
    play(service, form, story, **words)


def test_headers_of_get(service: Service, form: str) -> None:
    """Spec crud 4.3, first column, with the formats below the table; HEAD is GET without a body."""
    path = f"{form}/data/D/data.xml"
    sent = {"Form_Definition_Version": 3, "Username": "lea", "Group": "staff", "Workflow_Stage": "started"}
    service.put(f"{path}?valid=true", **sent)
    service.put(f"{path}?valid=false", Username="bob", Group="other", Workflow_Stage="été")
    head, got, own, (app, name) = service.head(path), service.get(path), service.prefix, form.split("/")
    assert (head.status, head.body, head["Content-Length"]) == (200, b"", "4")
    of_each = {"date", "x-request-id", "connection"}
    told = [{k: v for k, v in each.headers.items() if k.lower() not in of_each} for each in (head, got)]
    assert told[0] == told[1]
    assert str(got[own + "Workflow-Stage"]).encode("latin-1").decode() == "été"
    expected = {"Form-Definition-Version": "3", "Form-Definition-App": app, "Form-Definition-Form": name}
    expected |= {"Username": "lea", "Group": "staff", "Last-Modified-By-Username": "bob", "Valid": "false"}
    expected["Operations"] = "*"
    assert {each: got[own + each] for each in expected} == expected
    assert got["Content-Type"] == "application/xml"
    for name in ("Last-Modified", "Created"):
        assert RFC_1123.fullmatch(str(got[name]))
        assert ISO.fullmatch(str(got[own + name]))
        assert parsedate_to_datetime(str(got[name])).isoformat()[:19] == str(got[own + name])[:19]
    assert TAG[service.dialect].fullmatch(str(got["ETag"]))


def test_headers_of_put_and_delete(service: Service, form: str) -> None:
    """Spec crud 4.3 and 4.6: version, operations, both modification headers and the tag, which a later GET repeats."""
    path, own = f"{form}/data/D/data.xml", service.prefix
    put = service.put(path, Form_Definition_Version=2)
    got = service.get(path)
    for name in ("ETag", "Last-Modified", own + "Last-Modified", own + "Form-Definition-Version", own + "Operations"):
        assert put[name] == got[name] is not None
    for absent in (own + "Created", "Created", own + "Username", own + "Form-Definition-App"):
        assert put[absent] is None
    assert len({got["ETag"], *(service.put(path)["ETag"] for _ in range(4))}) == 5, "the content is identical"
    gone = service.delete(path)
    assert str(gone[own + "Last-Modified"]) > str(got[own + "Last-Modified"])
    assert gone["ETag"] != got["ETag"]
    assert (gone[own + "Form-Definition-Version"], gone[own + "Operations"]) == ("2", "*")


def test_credentials_win_and_carry_the_organization(service: Service, form: str) -> None:
    """Spec crud 6.1 and 4.3: one organization header per level, root first."""
    credentials = '{"username":"l%C3%A9a","groups":["staff"],"organizations":[["Corp","France"]]}'
    service.save(form, Credentials=credentials, Username="other")
    got = service.get(f"{form}/data/D/data.xml")
    assert str(got[service.prefix + "Username"]).encode("latin-1").decode() == "léa"
    assert got.headers.get_all(service.prefix + "Organization") == ["Corp", "France"]


def test_xml_comes_back_as_it_was_stored_whatever_the_encoding(service: Service, form: str) -> None:
    for body in (
        b'<?xml version="1.0"?>\n<!-- c --><d  a = "1"\t><![CDATA[x]]>\r\n</d>\n',
        '<?xml version="1.0" encoding="ISO-8859-1"?><d>é</d>'.encode("latin-1"),
        "<?xml version='1.0' encoding='UTF-16'?><d>é</d>".encode("utf-16"),
    ):
        service.put(f"{form}/data/D/data.xml", body, **V1)
        assert service.get(f"{form}/data/D/data.xml").body == body


def test_new_data_without_a_version(service: Service, form: str) -> None:
    """Design, section 2: the latest published version or 1 in svc, 400 in orbeon; of a draft, its document's first.

    Over a tombstone it is new data again, of the document's own version: an id is never used in another one.
    """
    is_needed = service.dialect == "orbeon"

    def require(path: str, version: str) -> None:
        answer = service.put(f"{form}/{path}/data.xml")
        said = answer[service.prefix + "Form-Definition-Version"]
        assert (answer.status, said) == ((400, None) if is_needed else (201, version)), path

    require("data/A", "1")
    service.publish(form, Form_Definition_Version=4)
    require("data/B", "4")
    service.save(form, "C")
    service.delete(f"{form}/data/C/data.xml")
    require("data/C", "1")
    service.save(form, "D", Form_Definition_Version=2)
    require("draft/D", "2")
    assert service.put(f"{form}/data/D/a.bin", b"x").status == (400 if is_needed else 201)
    service.save(form, "D", collection="draft", Form_Definition_Version=2)
    assert service.put(f"{form}/draft/D/data.xml").status == 204


orbeon = served("orbeon")


TYPES = {".jpg": "image/jpeg", ".png": "image/png", ".gif": "image/gif"}
TYPES |= {".xhtml": "application/xhtml+xml", ".xml": "application/xml"}


def test_every_file_of_real_input_comes_back(corpus: Path, orbeon: Service) -> None:
    files = [path for path in corpus.rglob("*") if path.is_file() and path.parent != corpus]
    assert len(files) > 50
    files.sort(key=lambda path: path.name in ("data.xml", "form.xhtml"))  # attachments first
    for path in files:
        name = path.relative_to(corpus).as_posix()
        kind = TYPES.get(path.suffix, "application/octet-stream")
        version = {} if "/builder/" in name or "/form/" in name else V1
        put = orbeon.put(name, path.read_bytes(), {"Content-Type": kind}, **version)
        assert put.status == 201, (name, put.cause)
    for path in files:
        name = path.relative_to(corpus).as_posix()
        got = orbeon.get(name)
        assert (got.status, got.body) == (200, path.read_bytes()), name
        if "/data/" in name:
            assert orbeon.get(f"{name}?nonrelevant=remove").status == 200
        if name.endswith("form.xhtml"):
            for target in DATA_FORMATS:
                moved = orbeon.get(f"{name}?form-definition-format-version={target}")
                assert (moved.status, f'data-format-version="{target}"' in moved.body.decode()) == (200, True), name
        stored = orbeon.data / (name.replace("/form/", "/form/1/") if "/form/" in name else name)
        assert stored.read_bytes() == path.read_bytes()
    listed = orbeon.raw("GET", f"{orbeon.face}/form?all-forms=true").body.decode()
    forms = [path.relative_to(corpus).parts[:2] for path in files if path.name == "form.xhtml"]
    assert f'search-total="{len(forms)}"' in listed
    for app, form in forms:
        assert f"<application-name>{app}</application-name><form-name>{form}</form-name>" in listed


# Singleton forms over HTTP: spec crud 4.12 and 15.10.

SINGLETON = definition("<singleton>true</singleton>")


@pytest.mark.parametrize(
    "said", ["", "<singleton>false</singleton>", "<singleton/>", "<a><singleton>true</singleton></a>"]
)
def test_other_forms_have_as_many_as_they_like(service: Service, form: str, said: str) -> None:
    """4.12: only the element of the metadata counts."""
    service.publish(form, definition(said).replace(b"<form/>", b"<form><singleton>true</singleton></form>"))
    play(service, form, "PUT data/A data/B v=1 -> 201")


@stories(
    {
        "the second is a conflict, updates are not; after deletion there may be one again (15.10)": """
            PUT data/A v=1 -> 201
            PUT data/B v=1 -> 409 `only one document`
            PUT data/A data/B/a.bin v=1 -> 204 201
            DELETE data/A
            PUT data/B v=1 -> 201""",
        "drafts do not count and are not refused (15.10, D17)": """
            PUT draft/A data/A draft/A draft/B v=1 -> 201""",
        "it is a matter of the version (4.12)": """
            PUT form v=2
            PUT data/A data/B v=2 -> 201
            PUT data/C data/D v=1 -> 201 409
            PUT data/E v=3 -> 201""",
    }
)
def test_a_singleton(service: Service, form: str, story: str) -> None:
    service.publish(form, SINGLETON)
    play(service, form, story)


def create(service: Service, form: str, *names: object, user: str | None = None) -> list[int]:
    sent = {} if user is None else {"Username": user}

    def one(name: object) -> int:
        return service.put(f"{form}/data/{name}/data.xml", **V1, **sent).status

    with ThreadPoolExecutor(len(names)) as pool:
        return sorted(pool.map(one, names))


crowd = served(start=running, workers=2)


def test_workers_do_not_create_one_each(crowd: Service, form: str) -> None:
    """4.12: between processes too, round after round, also when the document has just been deleted."""
    crowd.put(f"{form}/form/form.xhtml", SINGLETON)
    for _ in range(8):
        assert create(crowd, form, *"ABCDEF") == [201, *[409] * 5]
        assert [crowd.delete(f"{form}/data/{name}/data.xml").status for name in "ABCDEF"].count(204) == 1


def test_where_all_see_their_own_only_everyone_has_one(crowd: Service, form: str) -> None:
    """4.12: documents are counted that the user may see."""
    own = '<permissions><permission operations="create read update delete"><owner/></permission></permissions>'
    crowd.put(f"{form}/form/form.xhtml", definition(f"<singleton>true</singleton>{own}"))
    assert create(crowd, form, "a1", "a2", "a3", user="ann") == [201, 409, 409]
    assert create(crowd, form, "b1", "b2", "b3", user="bob") == [201, 409, 409]


@pytest.mark.parametrize("loss", ["a killed worker", "no index", "no document"])
def test_the_document_is_found_whatever_is_lost(crowd: Service, form: str, loss: str) -> None:
    """One that a person has removed does not count."""
    crowd.publish(form, SINGLETON)
    assert create(crowd, form, "A") == [201]
    assert create(crowd, form, "B") == [409]
    match loss:
        case "a killed worker":
            for worker in crowd.workers():
                os.kill(worker, signal.SIGKILL)
        case "no index":
            shutil.rmtree(crowd.data / ".index")
        case "no document":
            shutil.rmtree(crowd.data / form / "data/A")
    assert create(crowd, form, "B", "C") == ([201, 409] if loss == "no document" else [409, 409])


# Conditional requests: nobody overwrites unseen, and good copies are not sent again.

PERMISSIONS = (
    '<permissions><permission operations="create update delete -list"/>'
    '<permission operations="read -list"><owner/></permission></permissions>'
)
"""Everybody may write, and only the owner may read."""


def bare(answer: Answer) -> str:
    return str(answer["ETag"]).strip('"')


@stories(
    {
        "if-none-match of a new attachment is not about its document (RFC 9110 13.1.2)": """
            PUT data/D v=1
            PUT data/D/a.bin If-None-Match=* v=1 -> 201
            PUT data/D/a.bin If-None-Match=* v=1 -> 412""",
        "if-none-match creates, and never overwrites (RFC 9110 13.1.2)": """
            PUT data/D If-None-Match=* v=1 <d>1</d> -> 201
            PUT data/D If-None-Match=* v=1 <d>2</d> -> 412
            GET data/D -> 200 <d>1</d>
            DELETE data/D
            PUT data/D If-None-Match=* v=1 <d>3</d> -> 201""",
        "if-match of an attachment may name its document, or, with a tag of its own, either (4.2, PUT 4)": """
            PUT data/D v=1 -> 201 ETag>document
            PUT data/D/a.bin If-Match=wrong v=1 -> 412
            PUT data/D/a.bin If-Match={document} v=1 -> 201
            PUT data/D/a.bin If-Match={document} v=1 -> 204
            PUT data/D v=1
            PUT data/D/a.bin If-Match={document} v=1 -> 412""",
        "the provider face ignores if-match on nothing: its runtime expects a creation (4.6)": """
            FACE provider
            PUT data/D If-Match=x v=1 -> 201
            DELETE data/D v=1
            PUT data/D If-Match=* v=1 -> 201""",
        "412 wins over 400 for the version, and both over a malformed body (4.2)": """
            PUT data/D v=1 -> 201 ETag>tag
            PUT data/D If-Match=x v=2 < -> 412
            PUT data/D If-Match={tag} v=2 < -> 400
            PUT data/D If-Match=x v=next < -> 400""",
    }
)
def test_conditions(service: Service, form: str, story: str) -> None:
    play(service, form, story)


def test_a_file_replaced_by_hand_gets_another_tag(service: Service, form: str) -> None:
    """What was acknowledged under a tag is not what lies there now: neither a copy nor an If-Match may say so."""
    path = f"{form}/data/D/data.xml"
    tag = str(service.put(path, b"<d>1</d>", **V1)["ETag"])
    (service.data / path).write_bytes(b"<d>by hand</d>")
    edited = service.get(path)
    assert (edited.status, edited.body) == (200, b"<d>by hand</d>")
    assert edited["ETag"] not in (tag, None)
    assert service.head(path)["ETag"] == edited["ETag"]
    assert service.get(path, {"If-None-Match": tag}).status == 200
    assert service.get(path, {"If-Modified-Since": str(edited["Last-Modified"])}).status == 200
    refused = service.put(path, headers={"If-Match": tag})
    assert (refused.status, "edited by hand since" in refused.cause) == (412, True)
    assert bare(edited) in refused.cause
    late = {"If-Unmodified-Since": "Sun, 06 Nov 2095 08:49:37 GMT"}
    assert service.put(path, headers=late).status == 412
    assert service.put(path, headers={"If-Match": str(edited["ETag"])}).status == 204
    assert service.put(path, headers=late).status == 204


@pytest.mark.parametrize("path", ["data/D", "draft/D", "data/P/a.bin", "form", "form/a.bin"])
@stories(
    {
        "if-match guards every resource: quoted or bare, whichever is sent, and * passes (4.6)": """
            PUT data/P {path} v=1 <d>1</d> -> 201 ETag>first
            PUT {path} v=1 If-Match={first} <d>2</d> -> 204 ETag!{first} ETag>second
            PUT|DELETE {path} v=1 If-Match={first} -> 412
            GET {path} v=1 -> 200 <d>2</d>
            PUT {path} v=1 If-Match=`"x", "{bare_second}"` -> 204 ETag>third
            PUT {path} v=1 If-Match={bare_third} -> 204
            PUT {path} v=1 If-Match=* -> 204 ETag>last
            DELETE {path} v=1 If-Match={last} -> 204""",
        "who edits what somebody else has deleted is told so, and does not create it again (RFC 9110 13.1.1)": """
            FACE public
            PUT {path} v=1 If-Match=x -> 412 `it may have been deleted`
            PUT {path} v=1 If-Match=* -> 412 `it may have been deleted`
            DELETE {path} v=1 If-Match=x -> 404
            PUT {path} v=1 -> 201
            PUT data/P v=1
            DELETE {path} v=1 -> 204
            PUT {path} v=1 If-Match=x -> 412
            PUT {path} v=1 If-Match=* -> 412""",
        "a write may be conditional on the time, but with If-Match, without a date, and on a GET (13.1.4, 13.2.2)": """
            PUT data/P {path} v=1 -> 201
            GET {path} v=1 -> 200 Modified>date
            PUT|DELETE {path} v=1 If-Unmodified-Since={early} -> 412 `If-Unmodified-Since`
            GET {path} v=1 If-Unmodified-Since={early} -> 200
            PUT {path} v=1 If-Unmodified-Since={date} -> 204
            PUT {path} v=1 If-Unmodified-Since=nonsense -> 204
            PUT {path} v=1 If-Unmodified-Since=`Sun, 06 Nov 99999999999 08:49:37 GMT` -> 204
            PUT {path} v=1 If-Unmodified-Since={early} If-Match=* -> 204
            GET {path} v=1 -> 200 Modified>late
            DELETE {path} v=1 If-Unmodified-Since={late} -> 204
            PUT {path} v=1 If-Unmodified-Since={early} -> 201""",
        "good copies are not sent again; the tag wins over the date (13.2.2)": """
            PUT data/P {path} v=1 -> 201
            GET {path} v=1 -> 200 ETag>tag Modified>date
            GET|HEAD {path} v=1 If-None-Match={tag} -> 304 body= ETag={tag}
            GET|HEAD {path} v=1 If-None-Match={bare_tag} -> 304 body= ETag={tag}
            GET|HEAD {path} v=1 If-None-Match="{bare_tag}" -> 304 body= ETag={tag}
            GET|HEAD {path} v=1 If-None-Match=W/"{bare_tag}" -> 304 body= ETag={tag}
            GET|HEAD {path} v=1 If-None-Match=* -> 304 body= ETag={tag}
            GET|HEAD {path} v=1 If-Modified-Since={date} -> 304 body= ETag={tag}
            GET|HEAD {path} v=1 If-None-Match={tag} If-Modified-Since={early} -> 304 body= ETag={tag}
            GET {path} v=1 If-None-Match=other -> 200
            GET {path} v=1 If-None-Match=other If-Modified-Since={date} -> 200
            GET {path} v=1 If-Modified-Since={early} -> 200
            GET {path} v=1 If-Modified-Since=nonsense -> 200
            GET {path} v=1 If-Modified-Since=`Mon, 01 Jan 99999999999999999999 00:00:00 GMT` -> 200""",
        "tags are quoted in svc, weak ones never match, and both conditions must hold (8.8.3, 13.1.1)": """
            PUT data/P {path} v=1 -> 201 ETag>tag
            GET|HEAD {path} v=1 -> 200 ETag={quote}{bare_tag}{quote}
            PUT|DELETE {path} v=1 If-Match=W/"{bare_tag}" -> 412 `a weak tag (W/) never matches`
            PUT {path} v=1 If-Match={tag} If-None-Match={tag} -> 412
            PUT {path} v=1 If-Match={tag} If-None-Match=other -> 204""",
        "who has saved meanwhile is told who, when, and the current tag": """
            PUT data/P {path} v=1 -> 201
            PUT {path} v=1 by=mia -> 204 ETag>tag Last-Modified>when
            PUT|DELETE {path} v=1 by=lea If-Match="old" -> 412 `If-Match does not name the current ETag` \
                `current ETag "{bare_tag}", saved at {when} by mia`
            PUT {path} v=1 by=lea If-None-Match=* -> 412 `already exists (If-None-Match: *)` lacks=`If-Match does not`
            PUT {path} v=1 by=lea If-None-Match={bare_tag} -> 412 `as If-None-Match names it`""",
    }
)
def test_conditions_of_every_resource(service: Service, form: str, path: str, story: str) -> None:
    """Proxies that compress weaken tags, and nobody sees it in the tag itself, so the answer says why."""
    quote, early = '"' if service.dialect == "svc" else "", "Sun, 06 Nov 1994 08:49:37 GMT"
    play(service, form, story, path=path, quote=quote, early=early)


def test_who_may_not_read_is_told_neither_who_nor_the_tag(service: Service, form: str) -> None:
    """A 412 comes before a 403 (spec crud 4.2), and must not say what a GET would refuse."""
    service.publish(form, definition(PERMISSIONS))
    paths = [f"{form}/data/D/data.xml", f"{form}/data/D/a.bin", f"{form}/draft/D/data.xml", f"{form}/draft/D/a.bin"]
    for path in paths:
        assert service.put(path, **V1, Username="lea").status == 201
    for path in paths:
        tag = bare(service.get(path, Username="lea"))
        for user, is_told in (("lea", True), ("bob", False)):
            for ask, condition in (
                (service.put, {"If-Match": "old"}),
                (service.delete, {"If-Match": "old"}),
                (service.put, {"If-None-Match": "*"}),
            ):
                refused = ask(path, headers=condition, **V1, Username=user)
                assert (refused.status, tag in refused.cause, "by lea" in refused.cause) == (412, is_told, is_told)
