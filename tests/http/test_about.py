"""What the service says of itself, to callers and to strangers, and what it says of paths that lead to nothing."""

import json
from pathlib import Path

import pytest

from persistence import __version__
from tests.in_process import serving
from tests.service import PUBLIC, Service

INTERFACE = Path(__file__).parents[2] / "docs" / "openapi.yaml"


def test_the_root_says_what_this_is(svc: Service) -> None:
    answer = svc.raw("GET", "/")
    assert (answer.status, answer["Content-Type"]) == (200, "text/plain; charset=utf-8")
    text = answer.body.decode()
    assert text.startswith(f"persistence {__version__}, dialect svc\n")
    for path in (PUBLIC, "/api/", "/openapi.yaml", "/version", "/admin/", "/healthz", "/readyz", "/metrics", "docs/index.md"):
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
