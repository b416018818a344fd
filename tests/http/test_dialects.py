"""The same requests in each dialect and through each API: the answers are alike but for names and what the tables say.

All else is shown in dialect svc through the public API. Orbeon's provider API has a contract of its own.
"""

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import yaml
from flask import Response

from persistence import __version__, client_request
from persistence.client_request import ClientRequest
from persistence.dialect import SVC
from persistence.http.application import CleanRequests, ExactFlask, Forwarding, RouteScope
from persistence.http.logs import CALLER, REQUEST_ID, RequestLog
from tests import orders
from tests.http.stories import play, stories
from tests.in_process import serving
from tests.published import definition
from tests.served import served as in_dialects
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service, pair

PAIRS = {"svc-public": ("svc", PUBLIC), "svc-provider": ("svc", PROVIDER), "orbeon-public": ("orbeon", PUBLIC)}
LEA = {"Username": "lea", "Group": "staff", "Workflow_Stage": "begun"}
OWN = (
    '<permissions><permission operations="create read update delete"><owner/></permission>'
    '<permission operations="read"><user-role any-of="clerk"/></permission></permissions>'
)
ADA, BOB = (f"<form><customer><name>{name}</name></customer></form>" for name in ("Ada", "Bob"))
FORM, DATA, DRAFT, FILE = "form/form.xhtml", "data/D/data.xml", "draft/D/data.xml", "data/D/a.bin"
NAME = '<query path="customer/name" match="exact">Ada</query>'
LOCK = '<d:lockinfo xmlns:d="DAV:"><d:owner><username>lea</username></d:owner></d:lockinfo>'
SEALED = {"Hash_Algorithm": "SHA-256", "Hash_Value": "abc="}
REQUESTS: list[tuple[str, str, str | None, dict[str, object]]] = [
    ("PUT", f"crud/acme/order/{FORM}?document=S", orders.definition(OWN).decode(), LEA),
    ("GET", f"crud/acme/order/{FORM}", None, {}),
    ("HEAD", f"crud/acme/order/{FORM}", None, V1),
    ("GET", f"crud/acme/order/{FORM}?form-definition-format-version=4.8.0", None, {}),
    ("PUT", f"crud/acme/order/{FORM}", "<f/>", {"Form_Definition_Version": "x"}),
    ("PUT", f"crud/acme/order/{DATA}?valid=false", ADA, LEA | V1),
    ("PUT", f"crud/acme/order/{DATA}", BOB, LEA),
    ("PUT", f"crud/acme/order/{DATA}", BOB, {"Username": "eve"}),
    ("PUT", f"crud/acme/order/{DATA}", "<d", LEA),
    ("PUT", f"crud/acme/order/{DATA}", BOB, LEA | {"Form_Definition_Version": 2}),
    ("GET", f"crud/acme/order/{DATA}", None, LEA),
    ("HEAD", f"crud/acme/order/{DATA}", None, LEA),
    ("GET", f"crud/acme/order/{DATA}", None, {"Username": "eve", "Roles": "clerk"}),
    ("GET", f"crud/acme/order/{DATA}", None, {}),
    ("GET", f"crud/acme/order/{DATA}", None, {"Roles": "clerk"}),
    ("GET", f"crud/acme/order/{DATA}", None, {"Credentials": '{"username":"lea","organizations":[["a","b"]]}'}),
    ("GET", f"crud/acme/order/{DATA}", None, {"Credentials": "{"}),
    ("GET", f"crud/acme/order/{DATA}?as-of=2001-01-01T00:00:00Z", None, LEA),
    ("GET", f"crud/acme/order/{FORM}", None, {"For_Document_Id": "D"}),
    ("PUT", f"crud/acme/order/{FILE}", "bytes", LEA | V1 | SEALED),
    ("GET", f"crud/acme/order/{FILE}", None, LEA),
    ("PUT", f"crud/acme/order/{DRAFT}", ADA, LEA | V1),
    ("GET", f"crud/acme/order/{DRAFT}", None, LEA),
    ("DELETE", f"crud/acme/order/{DRAFT}", None, LEA),
    ("LOCK", f"crud/acme/order/{DATA}", LOCK, LEA),
    ("UNLOCK", f"crud/acme/order/{DATA}", LOCK, LEA),
    ("POST", f"crud/acme/order/{DATA}", "", {}),
    ("GET", "crud/acme/none", None, {}),
    ("POST", "search/acme/order", f"<search>{NAME}</search>", V1),
    ("POST", "search/acme/order", "<search/>", V1 | LEA),
    ("POST", "search/acme/order", "<search/>", {"Form_Definition_Version": "x"}),
    ("POST", "search/acme/ordre", "<search/>", V1),
    ("POST", "search/acme/order", "<search", V1),
    ("GET", "search/acme/order", None, V1),
    ("POST", "distinct-values/acme/order", f"<d>{NAME}</d>", LEA | V1),
    ("GET", "form", None, LEA),
    ("GET", "form/acme/order?all-versions=true", None, {}),
    ("GET", "form?all-forms=yes", None, {}),
    ("POST", "form", "<search all-forms='true'/>", LEA),
    ("PUT", "form", None, {}),
    ("GET", "history/acme/order/D", None, LEA),
    ("GET", "history/acme/order/D", None, {}),
    ("GET", "history/acme/order/D?page-size=0", None, LEA),
    ("GET", "history/acme/order/D?include-diffs=true", None, LEA),
    ("POST", "history/acme/order/D/restore?as-of=2001-01-01T00:00:00Z", "", LEA),
    ("POST", "history/acme/order/D/restore", "", LEA),
    ("POST", "reindex", "", {}),
    ("GET", "reindex/status", None, {}),
    ("POST", "reindex/acme/order", "", {}),
    ("POST", "reindex/acme/order", "", V1),
    ("PUT", "crud/one/of/form/form.xhtml", orders.definition("<singleton>true</singleton>").decode(), {}),
    ("PUT", "crud/one/of/data/A/data.xml", ADA, V1),
    ("PUT", "crud/one/of/data/B/data.xml", ADA, V1),
    ("DELETE", f"crud/acme/order/{FILE}", None, LEA),
    ("DELETE", f"crud/acme/order/{DATA}", None, LEA),
    ("DELETE", f"crud/acme/order/{DATA}", None, LEA),
    ("GET", "/fr/service/one/of/attachments?document=A", None, {}),
    ("DELETE", "crud/one/of/data/", None, V1),
    ("DELETE", f"crud/acme/order/{FORM}", None, {}),
    ("POST", "/fr/service/publish", "<a/>", {}),
    ("POST", "/fr/service/one/of/duplicate", "<document-id>none</document-id>", {}),
    ("GET", "/", None, {}),
]
MOVING = {"date", "x-request-id", "etag", "last-modified", "created", "content-length"}
MOVING |= {"own-last-modified", "own-created"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Service]]:
    with ExitStack() as stack:

        def started(pair: str) -> Service:
            dialect, face = PAIRS[pair]
            directory = tmp_path_factory.mktemp(pair)
            return replace(stack.enter_context(serving(directory, dialect=dialect, alone=True)), face=face)

        yield {pair: started(pair) for pair in PAIRS}.__getitem__


def asked(service: Service, method: str, path: str, body: str | None, own: dict[str, object]) -> Answer:
    headers = {"Content-Type": "application/xml", "Timeout": "Second-600"}
    url = path if path.startswith("/") else f"{service.face}/{path}"
    return service.raw(method, url, headers, None if body is None else body.encode(), **own)


def shown(service: Service, answer: Answer) -> tuple[int, dict[str, list[str]], str]:
    """What an answer shows, without times, tags and the names of the dialect."""

    def neutral(text: str) -> str:
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text.replace(service.prefix, "Own-"))
        return text.replace(f"dialect {service.dialect}", "dialect")

    names = {neutral(name).lower(): name for name in answer.headers}
    kept = {known: answer.headers.get_all(name) or [] for known, name in names.items() if known not in MOVING}
    headers = {name: list(map(neutral, values)) for name, values in kept.items()}
    return answer.status, headers, neutral(answer.body.decode())


def test_the_answers_are_alike(served: Callable[[str], Service]) -> None:
    reference, *others = map(served, PAIRS)
    for request in REQUESTS:
        expected = shown(reference, asked(reference, *request))
        for service in others:
            found = shown(service, asked(service, *request))
            assert found == expected, (service.dialect, service.face, request)
            assert "Svc-" not in str(found) or service.dialect == "svc", request


@pytest.mark.parametrize("pair", PAIRS)
def test_what_differs(served: Callable[[str], Service], pair: str) -> None:
    """Design, section 2: statuses of what is gone, versions that are not sent, quotes of tags, words of searches."""
    service = served(pair)
    is_svc, builder = service.dialect == "svc", f"{service.dialect}/builder"
    unknown = '<search xmlns:x="urn:x"><x:word/><qery/></search>'
    stored = service.put("x/y/data/D/data.xml", **V1)
    assert re.fullmatch('"[0-9a-f]{40}"' if is_svc else "[0-9a-f]{40}", stored["ETag"] or "")
    service.delete("x/y/data/D/data.xml")
    for method, path, body, statuses in (
        ("GET", "crud/x/y/data/D/data.xml", None, (404, 410)),
        ("PUT", "crud/x/y/data/E/data.xml", "<d/>", (201, 400)),
        ("POST", "search/x/y", unknown, (400, 200)),
        ("GET", "reindex", None, (405, 200)),
        ("PUT", f"crud/{builder}/data/D/data.xml", "<d/>", (201, 201)),
        ("PUT", f"crud/{'orbeon' if is_svc else 'svc'}/builder/data/D/data.xml", "<d/>", (201, 400)),
    ):
        assert asked(service, method, path, body, {}).status == statuses[not is_svc], (method, path)
    other = {("Orbeon-" if is_svc else "Svc-") + "Username": "lea"}
    assert service.get("x/y/data/D/data.xml", other).refuses(400, f"this service speaks dialect '{service.dialect}'")


# What the service says of itself and of requests: to callers, to strangers, and to those of the other dialect.

HERE = ("/api/", "/openapi.yaml", "/version", "/admin/", "/healthz", "/readyz", "/metrics")
INTERFACE = Path(__file__).parents[2] / "docs" / "openapi.yaml"


def test_the_service_says_what_it_is_and_a_browser_gets_a_page_with_links(svc: Service) -> None:
    answer = svc.raw("GET", "/")
    assert (answer.status, answer["Content-Type"]) == (200, "text/plain; charset=utf-8")
    text = answer.body.decode()
    assert text.startswith(f"persistence {__version__}, dialect svc\n")
    assert [path for path in (PUBLIC, *HERE, "docs/index.md") if path not in text] == []
    page = svc.raw("GET", "/", {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (page.status, page["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in (page["Content-Security-Policy"] or "")
    assert b'<a href="/openapi.yaml">' in page.body
    version = svc.raw("GET", "/version")
    expected = {"version": __version__, "dialect": "svc", "interface": PUBLIC, "openapi": "/openapi.yaml"}
    assert (version["Content-Type"], json.loads(version.body)) == ("application/json", expected)
    described = svc.raw("GET", "/openapi.yaml")
    assert (described["Content-Type"], described.body) == ("text/plain; charset=utf-8", INTERFACE.read_bytes())


@pytest.mark.parametrize("accept", ["text/plain", "text/html"])
def test_strangers_learn_neither_version_nor_dialect(tmp_path: Path, accept: str) -> None:
    with serving(tmp_path, env={"PERSISTENCE_TRUSTED": "10.9.8.7"}, alone=True) as service:
        answer = service.raw("GET", "/", {"Accept": accept})
        assert (answer.status, b"/healthz" in answer.body) == (200, True)
        assert not [word for word in (__version__, "dialect", PUBLIC) if word.encode() in answer.body]
        for path in ("/version", "/openapi.yaml", "/api/", "/metrics", "//", "/?x=/../version"):
            assert service.raw("GET", path).status == (200 if path.startswith("/?") else 403), path


def test_the_reference_shows_the_description_and_loads_nothing_from_elsewhere(svc: Service) -> None:
    page = svc.raw("GET", "/api/")
    assert (page.status, page["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b'spec-url="../openapi.yaml"' in page.body
    assert b"default-src 'none'; script-src 'self'" in page.body
    script = svc.raw("GET", "/api/redoc.standalone.js")
    assert (script.status, script["Content-Type"], script["Cache-Control"]) == (200, "text/javascript", "max-age=3600")
    assert b"spec-url" in script.body
    assert b"prefers-color-scheme: dark" in svc.raw("GET", "/api/theme.js").body
    assert svc.raw("GET", "/api/other.js").status == 404
    moved = svc.raw("GET", "/api")
    assert (moved.status, moved["Location"]) == (302, "api/")


def test_the_interface_is_described_in_the_dialect_of_the_service(in_dialect: Callable[[str], Service]) -> None:
    text = in_dialect("orbeon").raw("GET", "/openapi.yaml").body.decode()
    document, other = yaml.safe_load(text), yaml.safe_load(INTERFACE.read_text())
    assert not [line for line in text.splitlines() if "Svc-" in line or "`svc.persistence" in line]
    renamed = {path.replace("/svc/builder/", "/orbeon/builder/") for path in other["paths"]}
    assert set(document["paths"]) == renamed
    assert document["components"]["headers"].keys() == {
        name.replace("Svc-", "Orbeon-") for name in other["components"]["headers"]
    }
    assert "This service speaks dialect `orbeon`" in document["info"]["description"]


@pytest.mark.parametrize("path", ["/", "/version", "/openapi.yaml", "/api/"])
def test_nothing_of_it_can_be_changed(svc: Service, path: str) -> None:
    assert svc.raw("POST", path, {"Content-Length": "0"}).status == 405
    head, get = svc.raw("HEAD", path), svc.raw("GET", path)
    assert (head.status, head["Content-Length"], head.body) == (200, str(len(get.body)), b"")


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("crud/hr/trip/data/to-Paris/", "; the document is {}/crud/hr/trip/data/to-Paris/data.xml"),
        ("crud/hr/trip/data/to-Paris", "; the document is {}/crud/hr/trip/data/to-Paris/data.xml"),
        ("crud/hr/trip/form/", "; the definition is {}/crud/hr/trip/form/form.xhtml"),
        ("crud/hr/trip/", ""),
        ("crud/hr/trip/other/x/", ""),
    ],
)
def test_a_directory_of_a_document_is_a_hint_at_the_document(svc: Service, path: str, cause: str) -> None:
    answer = svc.raw("GET", f"{PUBLIC}/{path}")
    assert (answer.status, answer.cause) == (404, "there is nothing under this path" + cause.format(PUBLIC))


# Errors that nobody foresaw: one line, no traceback on the wire, everything in the log.


def test_a_defect_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stderr", written)
    app = ExactFlask(SVC)
    app.wsgi_app = RequestLog(CleanRequests(app.wsgi_app, SVC, accepts_foreign=False))  # type: ignore[method-assign]

    @app.get("/defect", scope=RouteScope.NOTHING)
    def defect() -> Response:
        raise RuntimeError("inner\nworkings")

    answer = app.test_client().get("/defect", headers={"X-Request-Id": "defect-1"})
    assert answer.status_code == 500
    assert answer.text == "internal error; the log has the details under this request's id\n"
    lines = [json.loads(line) for line in written.buffer.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert [(line["id"], line["event"]) for line in lines] == [("defect-1", "unexpected"), ("defect-1", "request")]
    assert "RuntimeError" in lines[0]["exception"]


# Requests as they are kept for the calls of other services.


def taken(**environ: str) -> ClientRequest:
    served: list[ClientRequest] = []

    def app(_environ: object, _start: object) -> list[bytes]:
        served.append(client_request.current())
        return []

    Forwarding(app)({"REQUEST_METHOD": "PUT", "QUERY_STRING": "valid=true", **environ}, lambda *_: None)  # type: ignore[arg-type,return-value]
    return served[0]


@pytest.mark.parametrize(("caller", "is_kept"), [("backup-key", False), ("trusted", True), (None, False)])
def test_what_may_be_a_key_of_this_service_stays_here(caller: str | None, *, is_kept: bool) -> None:
    known = {} if caller is None else {CALLER: caller}
    assert (taken(HTTP_AUTHORIZATION="Bearer k", **known).field_of("authorization") is not None) == is_kept


def test_method_query_and_fields_are_taken_down_and_a_request_asks_once() -> None:
    own = taken(HTTP_X_OWN_FIELD="1", SERVER_NAME="here")
    assert own == ClientRequest("PUT", "valid=true", (("X-Own-Field", "1"),))
    numbered = taken(HTTP_X_REQUEST_ID="theirs and odd", **{REQUEST_ID: "ours"})
    assert numbered.fields == (("X-Request-Id", "ours"),)
    numbers = count(1)
    for expected in (1, 2):
        request = taken()
        assert [request.once("key", lambda: next(numbers)) for _ in range(2)] == [expected, expected]


# Headers of the other dialect: a user who is named in them must not become an anonymous one unseen.


OTHER = {"svc": "Orbeon-", "orbeon": "Svc-"}
PATHS = [
    ("PUT", f"{PUBLIC}/crud/a/b/data/D/data.xml"),
    ("GET", f"{PUBLIC}/crud/a/b/form/form.xhtml"),
    ("DELETE", f"{PUBLIC}/crud/a/b/data/"),
    ("PUT", "/crud/a/b/data/D/data.xml"),
    ("POST", f"{PUBLIC}/search/a/b"),
    ("POST", "/distinct-values/a/b"),
    ("GET", f"{PUBLIC}/form"),
    ("POST", f"{PUBLIC}/reindex"),
    ("POST", f"{PUBLIC}/reencrypt/a/b"),
    ("POST", "/fr/service/publish"),
    ("GET", "/fr/service/a/b/attachments?document=D"),
]


strict = in_dialects("svc", "orbeon", alone=True)


lenient = in_dialects("svc", "orbeon", env={"PERSISTENCE_FOREIGN_HEADERS": "ignore"}, alone=True)


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_they_are_refused_wherever_they_are_sent(strict: Service, method: str, path: str) -> None:
    answer = strict.raw(method, path, {OTHER[strict.dialect] + "Username": "lea"}, b"<d/>" if method != "GET" else None)
    own, sent = f"{strict.prefix}Username", f"{OTHER[strict.dialect]}Username"
    assert answer.status == 400
    assert answer.cause == f"this service speaks dialect '{strict.dialect}': it reads {own}, not {sent}"
    assert not (strict.data / "a").exists()


def test_every_header_of_the_interface_is_told(strict: Service) -> None:
    """Those that docs/openapi.yaml describes, and those that a proxy adds; others with the prefix are nobody's."""
    described = yaml.safe_load(INTERFACE.read_text())["components"]["parameters"].values()
    names = {each["name"].removeprefix("Svc-") for each in described if each["name"].startswith("Svc-")}
    assert names >= {"Username", "Credentials", "Form-Definition-Version", "Workflow-Stage", "Decrypt"}
    names |= {"Singleton", "Created-Existing", "Username-Existing", "Group-Existing"}
    for name in names:
        assert strict.get("a/b/data/D/data.xml", {OTHER[strict.dialect] + name: "1"}).status == 400, name
    for name in (OTHER[strict.dialect] + "Nothing", "Username", "X-Orbeon-Username"):
        assert strict.get("a/b/data/D/data.xml", {name: "1"}).status == 404
    for path in ("/healthz", "/readyz"):  # a supervisor is answered whatever a proxy adds
        assert strict.raw("GET", path, {OTHER[strict.dialect] + "Username": "lea"}).status == 200


def test_they_are_ignored_where_a_setting_says_so(lenient: Service) -> None:
    both = {OTHER[lenient.dialect] + "Username": "kim", lenient.prefix + "Username": "lea"}
    for face in (PUBLIC, PROVIDER):
        lenient.face = face
        path = f"a/b/data/{'public' if face else 'provider'}/data.xml"
        assert lenient.put(path, headers=both, **V1).status == 201
        assert lenient.get(path)[lenient.prefix + "Username"] == "lea"


def test_the_service_behind_is_told_nothing_of_them(tmp_path: Path) -> None:
    """The one in front ignores them, the one behind would refuse what it knows, and believe its own."""
    env = {"PERSISTENCE_FOREIGN_HEADERS": "ignore"}
    with pair(tmp_path, env=env) as (front, behind):
        path = "a/b/data/D/data.xml"
        assert front.put(path, headers={"Orbeon-Username": "kim"}, **V1).status == 201
        got = front.get(path)
        assert (got.status, got["Svc-Username"]) == (200, None)
        behind.face = PROVIDER
        assert behind.get(path)["Orbeon-Username"] is None


# A second service behind the first, in the other dialect: the whole way of a form, and what only two can show.

pytestmark = pytest.mark.xdist_group("pair")

_XML = {"Content-Type": "application/xml"}
_LEA, _BOB = "by=lea group=staff", "by=bob group=staff"
NAMED = f"<search>{NAME}</search>"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    with pair(tmp_path_factory.mktemp("pair"), workers=2) as services:
        yield services


@pytest.fixture
def front(services: tuple[Service, Service]) -> Service:
    return services[0]


def test_a_form_from_its_publication_to_the_deletion_of_its_data(services: tuple[Service, Service]) -> None:
    front, behind = services
    told = """
        PUT form {order} -> 201
        PUT draft/A draft/B v=1 by=kim {ann} -> 201
        PUT data/A v=1 by=kim {ann} -> 201
        PUT data/B v=1 by=kim {bob} -> 201 ETag>tag Last-Modified>when
        GET data/B -> 200 {bob} ETag={tag} Username=kim Last-Modified={when}
        GET draft/A draft/B -> 404
        SEARCH {named} -> found=B
        PUT data/B If-Match={tag} by=lea <form/> -> 204
        GET data/B -> 200 Username=kim Last-Modified-By-Username=lea
        GET data/B?last-modified-time={when} -> 200 {bob}
        PUT data/B If-Match={tag} <form/> -> 412
        DELETE data/ v=1 -> 200
        SEARCH -> found=
        DELETE data/A -> 410
        POST ~/reindex -> 200
        GET ~/reindex/status -> 200 body=`<status state="stopped"/>`"""
    words = {"order": orders.definition().decode(), "ann": ADA, "bob": BOB, "named": NAMED.replace("Ada", "Bob")}
    play(front, "acme/order", told, **words)
    assert (behind.data / "acme/order/data/A/.history").exists()


def test_the_designer_publishes_from_one_dialect_into_the_other(services: tuple[Service, Service]) -> None:
    front, behind = services
    holder = "/fr/service/persistence/crud/svc/builder/data/M/logo.bin"
    form = definition("<application-name>hr</application-name><form-name>made</form-name>")
    form = form.replace(b"</metadata>", f"</metadata><logo>{holder}</logo>".encode())
    assert front.put("svc/builder/data/M/logo.bin", b"picture").status == 201
    assert front.put("svc/builder/data/M/data.xml", form).status == 201
    assert (behind.data / "orbeon/builder/data/M/data.xml").exists()
    answer = front.raw("POST", "/fr/service/svc/builder/publish/M", _XML, b"")
    assert answer.status == 200, answer.cause
    assert front.get("hr/made/form/logo.bin").body == b"picture"
    assert b"<form-name>made</form-name>" in front.raw("GET", f"{PUBLIC}/form/hr/made").body


@stories(
    {
        "permissions are those of the definition behind": """
            PERMISSIONS <permission operations="read update create"><owner/></permission>
            PUT data/D v=1 by=kim -> 201
            GET data/D by=kim -> 200
            GET data/D by=lea -> 403
            GET data/D Orbeon-Username=kim -> 400
            SEARCH by=kim -> found=D
            SEARCH by=lea -> found=""",
        "searches show no more than GETs, though the service behind would: it goes by spec search 1.8": f"""
            PERMISSIONS v=1 <permission operations="create -list"/><permission operations="read"><owner/></permission>
            PUT data/A v=1 {_LEA} <form/>
            PUT data/B v=1 {_BOB} <form/>
            SEARCH {{everything}} -> found=
            SEARCH {_LEA} {{everything}} -> found=A
            POST ~/distinct-values/{{form}} {_LEA} {{values}} -> 501
            PERMISSIONS <permission operations="create"/>\
                <permission operations="read"><group-member/><user-role any-of="clerk"/></permission>
            SEARCH {_BOB} {{everything}} -> found=
            SEARCH {_BOB} role=clerk {{everything}} -> 501
            PERMISSIONS <permission operations="create read"/>
            SEARCH {{everything}} -> has=`search-total="2"`
            PERMISSIONS v=2 <permission operations="create"/>
            SEARCH v=all {{everything}} -> 501
            SEARCH v=1 {{everything}} -> 200""",
    }
)
def test_two_services(front: Service, form: str, story: str) -> None:
    everything = '<search><operations any-of="create list"/></search>'
    values = '<distinct-values><query metadata="created-by"/></distinct-values>'
    play(front, form, story, orders.definition, everything=everything, values=values)
