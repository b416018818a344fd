"""What the service says of itself and of requests: to callers, to strangers, and to those of the other dialect."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from flask import Response

from persistence import __version__, client_request
from persistence.client_request import ClientRequest
from persistence.dialect import SVC
from persistence.http.application import ExactFlask, RouteScope
from persistence.http.logs import CALLER, REQUEST_ID, RequestLog
from persistence.http.middleware import CleanRequests, Forwarding
from tests.in_process import serving
from tests.service import PROVIDER, PUBLIC, V1, Service, pair

HERE = ("/api/", "/openapi.yaml", "/version", "/admin/", "/healthz", "/readyz", "/metrics")
INTERFACE = Path(__file__).parents[2] / "docs" / "openapi.yaml"


def test_the_root_says_what_this_is(svc: Service) -> None:
    answer = svc.raw("GET", "/")
    assert (answer.status, answer["Content-Type"]) == (200, "text/plain; charset=utf-8")
    text = answer.body.decode()
    assert text.startswith(f"persistence {__version__}, dialect svc\n")
    for path in (PUBLIC, *HERE, "docs/index.md"):
        assert path in text


def test_a_browser_gets_a_page_with_links(svc: Service) -> None:
    answer = svc.raw("GET", "/", {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (answer.status, answer["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in (answer["Content-Security-Policy"] or "")
    assert b'<a href="/openapi.yaml">' in answer.body


@pytest.mark.parametrize("accept", ["text/plain", "text/html"])
def test_strangers_learn_neither_version_nor_dialect(tmp_path: Path, accept: str) -> None:
    with serving(tmp_path, env={"PERSISTENCE_TRUSTED": "10.9.8.7"}, alone=True) as service:
        answer = service.raw("GET", "/", {"Accept": accept})
        assert (answer.status, b"/healthz" in answer.body) == (200, True)
        assert not [word for word in (__version__, "dialect", PUBLIC) if word.encode() in answer.body]
        for path in ("/version", "/openapi.yaml", "/api/", "/metrics", "//", "/?x=/../version"):
            assert service.raw("GET", path).status == (200 if path.startswith("/?") else 403), path


def test_the_version_is_json(svc: Service) -> None:
    answer = svc.raw("GET", "/version")
    assert answer["Content-Type"] == "application/json"
    expected = {"version": __version__, "dialect": "svc", "interface": PUBLIC, "openapi": "/openapi.yaml"}
    assert json.loads(answer.body) == expected


def test_the_description_of_the_interface_is_the_documented_one(svc: Service) -> None:
    answer = svc.raw("GET", "/openapi.yaml")
    assert (answer["Content-Type"], answer.body) == ("text/plain; charset=utf-8", INTERFACE.read_bytes())


def test_the_reference_shows_the_description_and_loads_nothing_from_elsewhere(svc: Service) -> None:
    page = svc.raw("GET", "/api/")
    assert (page.status, page["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b'spec-url="../openapi.yaml"' in page.body
    assert b"default-src 'none'; script-src 'self'" in page.body
    script = svc.raw("GET", "/api/redoc.standalone.js")
    assert (script.status, script["Content-Type"], script["Cache-Control"]) == (200, "text/javascript", "max-age=3600")
    assert b"spec-url" in script.body
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


def test_method_query_and_fields_are_taken_down() -> None:
    assert taken(HTTP_X_OWN_FIELD="1", SERVER_NAME="here") == ClientRequest(
        "PUT", "valid=true", (("X-Own-Field", "1"),)
    )


@pytest.mark.parametrize(("caller", "is_kept"), [("backup-key", False), ("trusted", True), (None, False)])
def test_what_may_be_a_key_of_this_service_stays_here(caller: str | None, *, is_kept: bool) -> None:
    known = {} if caller is None else {CALLER: caller}
    assert (taken(HTTP_AUTHORIZATION="Bearer k", **known).field_of("authorization") is not None) == is_kept


def test_a_request_has_the_number_that_it_has_here() -> None:
    request = taken(HTTP_X_REQUEST_ID="theirs and odd", **{REQUEST_ID: "ours"})
    assert request.fields == (("X-Request-Id", "ours"),)


def test_one_request_asks_once_and_the_next_one_again() -> None:
    asked: list[int] = []

    def ask() -> int:
        asked.append(1)
        return len(asked)

    for expected in (1, 2):
        request = taken()
        assert [request.once("key", ask), request.once("key", ask)] == [expected, expected]


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


@pytest.fixture(scope="module", params=["svc", "orbeon"])
def strict(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp(f"strict-{request.param}"), dialect=request.param, alone=True) as service:
        yield service


@pytest.fixture(scope="module", params=["svc", "orbeon"])
def lenient(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    env = {"PERSISTENCE_FOREIGN_HEADERS": "ignore"}
    with serving(
        tmp_path_factory.mktemp(f"lenient-{request.param}"), dialect=request.param, env=env, alone=True
    ) as service:
        yield service


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


def test_a_supervisor_is_answered_whatever_a_proxy_adds(strict: Service) -> None:
    for path in ("/healthz", "/readyz"):
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
