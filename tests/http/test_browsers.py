"""Web pages that make a browser of the same machine send requests: DNS rebinding and simple cross-site requests."""

import base64
from pathlib import Path

import pytest

from persistence.errors import ForbiddenError, MisdirectedError
from persistence.http.middleware import AllowedSites
from persistence.keys import Keys
from tests.http.test_permissions import OWNERS, definition
from tests.in_process import serving
from tests.service import V1, Service, running

EVIL = "https://evil.example"


GET = {"REQUEST_METHOD": "GET"}


@pytest.mark.parametrize(
    ("bind", "hosts", "own", "foreign"),
    [
        (
            "127.0.0.1:8080",
            (),
            ("localhost", "LOCALHOST:8080", "localhost.:80", "127.0.0.1:1", "127.9.9.9", "[::1]:8080", "::1", "", None),
            ("evil.example", "10.1.2.3", "localhost.evil.example", "127.0.0.1.evil.example", "a b", "x" * 9000, "@"),
        ),
        ("10.1.2.3:80", (), ("10.1.2.3", "10.1.2.3:80", "localhost"), ("10.1.2.4", "evil.example")),
        ("forms-data:8080", (), ("forms-data:8080", "Forms-Data"), ("forms", "10.1.2.3")),
        ("0.0.0.0:8080", (), ("10.1.2.3:8080", "[fe80::1]", "localhost"), ("forms-data", "evil.example")),
        ("[::]:8080", ("forms-data",), ("forms-data:80", "[::1]:80", "10.1.2.3"), ("evil.example",)),
        ("[::1]:8080", (), ("[::1]:8080", "localhost"), ("[fe80::1]", "evil.example")),
        (
            "unix:/run/a:b",
            ("a.example", "fe80::1"),
            ("A.example.", "localhost", "[fe80::1]:1"),
            ("b.example", "b", ":80", "unix:/x"),
        ),
        ("127.0.0.1:8080", ("*",), ("evil.example", "a b"), ()),
    ],
)
def test_the_names_of_the_service(
    bind: str, hosts: tuple[str, ...], own: tuple[str | None, ...], foreign: tuple[str, ...]
) -> None:
    sites = AllowedSites((bind,), hosts, ())
    for host in own:
        sites.check(GET if host is None else {**GET, "HTTP_HOST": host}, has_key=False)
    for host in foreign:
        with pytest.raises(MisdirectedError, match="setting hosts"):
            sites.check({**GET, "HTTP_HOST": host}, has_key=False)
        sites.check({**GET, "HTTP_HOST": host}, has_key=True)


@pytest.mark.parametrize(
    ("headers", "is_refused"),
    [
        ({}, False),
        ({"HTTP_ORIGIN": "http://localhost:8080"}, False),
        ({"HTTP_ORIGIN": "https://LOCALHOST:8080", "HTTP_SEC_FETCH_SITE": "same-origin"}, False),
        ({"HTTP_ORIGIN": "https://forms.example"}, False),
        ({"HTTP_SEC_FETCH_SITE": "same-origin"}, False),
        ({"HTTP_SEC_FETCH_SITE": "none"}, False),
        ({"HTTP_ORIGIN": "http://localhost:3000"}, True),
        ({"HTTP_ORIGIN": "http://localhost"}, True),
        ({"HTTP_ORIGIN": "null"}, True),
        ({"HTTP_ORIGIN": ""}, True),
        ({"HTTP_ORIGIN": EVIL}, True),
        ({"HTTP_SEC_FETCH_SITE": "cross-site"}, True),
        ({"HTTP_SEC_FETCH_SITE": "same-site"}, True),
    ],
)
def test_whose_pages_may_change_something(headers: dict[str, str], *, is_refused: bool) -> None:
    sites = AllowedSites(("127.0.0.1:8080",), (), ("https://forms.example",))
    for method in ("GET", "HEAD", "PUT", "POST", "DELETE", "LOCK"):
        environ = {"REQUEST_METHOD": method, "HTTP_HOST": "localhost:8080", **headers}
        if is_refused and method not in ("GET", "HEAD"):
            with pytest.raises(ForbiddenError, match="may change nothing here"):
                sites.check(environ, has_key=False)
        else:
            sites.check(environ, has_key=False)


def test_a_page_elsewhere_cannot_publish(svc: Service, form: str) -> None:
    """A POST of plain text needs no leave of the service: it would have replaced the permissions."""
    app, name = form.split("/")
    assert svc.put(f"{form}/form/form.xhtml", definition(OWNERS)).status == 201
    assert svc.put(f"{form}/data/A/data.xml", Username="lea", **V1).status == 201
    opened = definition(None).replace(
        b"<metadata>", f"<metadata><application-name>{app}</application-name><form-name>{name}</form-name>".encode()
    )
    page = {"Origin": EVIL, "Content-Type": "text/plain", "Sec-Fetch-Site": "cross-site"}
    refused = svc.raw("POST", "/fr/service/publish", page, opened)
    assert (refused.status, refused.cause) == (
        403,
        f"pages elsewhere may change nothing here, see the setting origins: '{EVIL}'",
    )
    assert svc.get(f"{form}/data/A/data.xml").status == 403
    assert svc.raw("POST", "/fr/service/publish", {"Content-Type": "text/plain"}, opened).status == 200
    assert svc.get(f"{form}/data/A/data.xml").status == 200


def test_nothing_is_changed_by_a_page_elsewhere(svc: Service, form: str) -> None:
    path = f"/crud/{form}/data/A/data.xml"
    assert svc.put(f"{form}/data/A/data.xml", **V1).status == 201
    for page in (
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        for method, target in (
            *(("PUT", path), ("DELETE", path), ("POST", "/reindex"), ("POST", f"/search/{form}")),
            *(("POST", "/fr/service/persistence/reencrypt"), ("POST", "/no/such/path"), ("OPTIONS", path)),
        ):
            assert svc.raw(method, target, page, b"<d/>").status == 403, (method, target)
        assert svc.raw("GET", path, page).status == 200
    own = {"Origin": f"http://127.0.0.1:{svc.port}", "Sec-Fetch-Site": "same-origin"}
    assert svc.raw("PUT", path, own, b"<d/>").status == 204


@pytest.mark.parametrize("command", ["serve", "gunicorn"])
def test_another_name_is_refused_before_anything_is_looked_at(tmp_path: Path, command: str) -> None:
    """DNS rebinding: the page's own name has come to mean this machine. Supervisors may use any name."""
    with running(tmp_path, command=command) as service:
        assert service.put("a/b/data/A/data.xml", **V1).status == 201
        rebound = {"Host": f"evil.example:{service.port}", "Origin": f"http://evil.example:{service.port}"}
        for method, path in (("GET", "/crud/a/b/data/A/data.xml"), ("PUT", "/crud/a/b/data/A/data.xml"), ("GET", "/x")):
            answer = service.raw(method, path, rebound, b"<d/>" if method == "PUT" else None)
            cause = "the setting hosts, which has names without port, does not have this one"
            assert (answer.status, answer.cause) == (421, f"{cause}: 'evil.example:{service.port}'")
        for name in ("localhost", f"LocalHost:{service.port}", "127.8.8.8:1", "[::1]"):
            assert service.raw("GET", "/crud/a/b/data/A/data.xml", {"Host": name}).status == 200, name
        for path in ("/healthz", "/readyz"):
            assert service.raw("GET", path, {"Host": "10.1.2.3"}).status == 200


def test_the_settings_name_hosts_and_origins(tmp_path: Path) -> None:
    env = {
        "PERSISTENCE_HOSTS": "forms-data, 10.1.2.3",
        "PERSISTENCE_ORIGINS": "https://forms.example",
        "PERSISTENCE_TRUSTED": "127.0.0.1",
    }
    with serving(tmp_path, env=env) as service:
        path = "/crud/a/b/data/A/data.xml"
        for name in ("forms-data", "FORMS-DATA:80", "10.1.2.3", "localhost"):
            page = {"Host": name, "Origin": "https://forms.example", "Svc-Form-Definition-Version": "1"}
            assert service.raw("PUT", path, page, b"<d/>").status in (201, 204), name
        assert service.raw("GET", path, {"Host": "forms"}).status == 421
        assert service.raw("PUT", path, {"Origin": EVIL}, b"<d/>").status == 403


def test_a_key_is_no_pages(tmp_path: Path) -> None:
    """Whoever has shown one may use any name; but a browser sends a password that it knows for pages elsewhere, too."""
    key = Keys(f"{tmp_path}/var/keys.json", tree=f"{tmp_path}/data").add("runtime")
    with serving(tmp_path) as service:
        password = {"Authorization": "Basic " + base64.b64encode(f"x:{key}".encode()).decode(), "Host": "forms.example"}
        version = {"Svc-Form-Definition-Version": "1"}
        path = "/crud/a/b/data/A/data.xml"
        assert service.raw("PUT", path, {**password, **version}, b"<d/>").status == 201
        assert service.raw("PUT", path, {**password, "Origin": EVIL}, b"<d/>").status == 403
        assert service.raw("PUT", path, {**password, "Origin": "https://forms.example"}, b"<d/>").status == 204
        assert service.raw("GET", path, {"Host": "forms.example"}).status == 401  # before the name
