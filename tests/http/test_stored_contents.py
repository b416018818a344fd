"""What a browser is told about contents, and the address of the pages: nothing that is stored acts on their origin."""

import http.client
import socket
from contextlib import closing
from pathlib import Path

import pytest

from persistence.keys import Keys
from tests import service as services
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service

XHTML = b'<html xmlns="http://www.w3.org/1999/xhtml"><head><script>alert(1)</script></head><body/></html>'
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain; charset=utf-8")
SAVED = (
    *("text/html", "IMAGE/SVG+XML", "application/xml", "text/xml", "application/octet-stream"),
    "application/xslt+xml",
)
NAVIGATING = {"Sec-Fetch-Mode": "navigate"}


def told(answer: Answer) -> list[str | None]:
    names = ("Content-Security-Policy", "X-Content-Type-Options", "Cross-Origin-Resource-Policy")
    return [answer[name] for name in names]


EVERY = ["sandbox; default-src 'none'", "nosniff", "same-origin"]


@pytest.mark.parametrize("face", [PUBLIC, PROVIDER], ids=["public", "provider"])
def test_no_content_has_scripts_and_a_browser_saves_what_may_have_some(service: Service, form: str, face: str) -> None:
    paths = {f"{form}/form/form.xhtml": "application/xhtml+xml", f"{form}/data/D/data.xml": "application/xml"}
    paths |= {f"{form}/data/D/a{number}.bin": kind for number, kind in enumerate((*SHOWN, *SAVED))}
    paths |= {f"{form}/form/a.svg": "image/svg+xml", f"{form}/draft/D/data.xml": "application/xml"}
    for path, kind in paths.items():
        stored = service.put(path, SVG if "svg" in kind.lower() else XHTML, {"Content-Type": kind}, **V1)
        assert stored.status == 201, path
    version = {service.prefix + "Form-Definition-Version": "1"}
    for path, kind in paths.items():
        url = f"{face}/crud/{path}"
        for method, headers in (("GET", {}), ("HEAD", {}), ("GET", {"Range": "bytes=0-3"})):
            answer = service.raw(method, url, headers | version)
            assert told(answer) == EVERY, path
            assert answer["Content-Disposition"] is None
        expected = None if kind in SHOWN else "attachment"
        assert service.raw("GET", url, NAVIGATING | version)["Content-Disposition"] == expected, path
        tag = service.raw("GET", url, version)["ETag"] or ""
        unchanged = service.raw("GET", url, {"If-None-Match": tag} | version)
        assert (unchanged.status, told(unchanged)) == (304, EVERY), path


def test_the_xml_of_answers_has_no_scripts_either(service: Service, form: str) -> None:
    service.put(f"{form}/form/form.xhtml", XHTML, **V1)
    service.put(f"{form}/data/D/data.xml", b"<d/>", **V1)
    search = b"<search><query/><page-size>10</page-size><page-number>1</page-number></search>"
    answers = [
        service.raw("POST", f"{PUBLIC}/search/{form}", {service.prefix + "Form-Definition-Version": "1"}, search),
        service.raw("GET", f"{PUBLIC}/form/{form}"),
        service.raw("GET", f"{PUBLIC}/history/{form}/D"),
        service.raw("GET", f"/fr/service/{form}/attachments?document=D"),
    ]
    for answer in answers:
        assert (answer.status, told(answer)) == (200, EVERY), answer.body


def test_data_is_of_its_user_in_every_cache_and_definitions_are_not(service: Service, form: str) -> None:
    service.put(f"{form}/form/form.xhtml", XHTML, **V1)
    service.put(f"{form}/data/D/data.xml", b"<d/>", **V1)
    service.put(f"{form}/data/D/a.bin", b"1", **V1)
    names = ("Credentials", "Username", "Group", "Roles")
    users = ", ".join(("Authorization", *(f"{service.prefix}{name}" for name in names)))
    for path in (f"{form}/data/D/data.xml", f"{form}/data/D/a.bin"):
        answer = service.get(path)
        assert (answer["Cache-Control"], answer["Vary"]) == ("private, no-cache", users)
    definition = service.get(f"{form}/form/form.xhtml")
    assert (definition["Cache-Control"], definition["Vary"]) == (None, None)


@pytest.mark.parametrize(
    "path",
    [
        *("//admin/login", "/admin//login", "///admin//login", "http://localhost//admin/login", "/%61dmin/login"),
        *("/admin/./login", "/admin/../admin/login", "/admin/%2e%2e/admin/login", "/admin/%2E/login"),
        *("//healthz", "/%68ealthz", "//metrics", "/fr//service/persistence/form", "/fr/service/persistence//form"),
        *("//crud/a/b/form/form.xhtml", f"/{PUBLIC}/crud/a/b/form/form.xhtml", f"{PUBLIC}//crud/a/b/form/form.xhtml"),
        *(f"{PUBLIC}/%63rud/a/b/form/form.xhtml", f"{PUBLIC}/history/a/b//D", f"{PUBLIC}/search/%61/b", "//", "*"),
    ],
)
def test_a_path_has_one_spelling(service: Service, path: str) -> None:
    """A proxy that closes or opens a path sees the same path as the service."""
    for method in ("GET", "PUT", "POST"):
        answer = service.raw(method, path, {"Content-Length": "0"} if method != "GET" else {})
        assert answer.status == 400, (method, answer.cause)


def through(path: Path, url: str) -> tuple[int, str]:
    """Ask a service at the path of a socket: the status and the location of its answer."""
    with closing(http.client.HTTPConnection("localhost")) as connection, socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        connection.sock = sock
        connection.request("GET", url)
        with connection.getresponse() as answer:
            return answer.status, answer.headers["Location"] or answer.read().decode()


def test_pages_with_an_address_of_their_own_are_nowhere_else_and_nothing_else_is_there(tmp_path: Path) -> None:
    own = tmp_path / "pages"
    env = {"PERSISTENCE_ADMIN_BIND": f"unix:{own}", "PERSISTENCE_TRUSTED": "unix, 127.0.0.1"}
    with services.running(tmp_path, env=env) as service:
        Keys(str(tmp_path / "var/keys.json"), tree=str(service.data)).set_password(
            "ada", "correct horse battery staple"
        )
        assert service.put("a/b/data/D/data.xml", b"<d/>", **V1).status == 201
        for path in ("/admin", "/admin/", "/admin/login", "/admin/static/pages.css"):
            assert service.raw("GET", path).refuses(404, "admin_bind")
            assert through(own, path)[0] in (200, 302, 303, 404)
        assert through(own, "/admin/keys") == (303, "/admin/login?next=%2Fadmin%2Fkeys")
        for path in (f"{PUBLIC}/crud/a/b/data/D/data.xml", "/crud/a/b/data/D/data.xml", "/", "/version", "/metrics"):
            assert service.raw("GET", path).status == 200
            assert through(own, path)[0] == 404
        assert through(own, "//admin/keys")[0] == 404
        assert through(own, "/healthz")[0] == service.raw("GET", "/healthz").status == 200
