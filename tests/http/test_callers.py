"""Trusted callers and API keys: who gets in, who does not, and what the log says (spec crud 6.1, 4.1)."""

import base64
import hashlib
import http.client
import json
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote

import pytest

from persistence.errors import ForbiddenError, MisdirectedError, UnauthorizedError
from persistence.http.application import AllowedSites, Opens, Policy, caller, policy, presented
from persistence.keys import Key, Keys
from persistence.model.network_addresses import UNIX, Peer, Trusted, parse_trusted
from persistence.model.texts import Instant
from tests.in_process import serving
from tests.nginx import NGINX, in_front_of
from tests.service import V1, Answer, Service, running
from tests.waiting import eventually

PATH = "/crud/a/b/data/D/data.xml"
TRUSTING = {"PERSISTENCE_TRUSTED": "10.1.2.3, 127.0.0.1"}


def keys_of(directory: Path) -> Keys:
    return Keys(f"{directory}/var/keys.json", tree=f"{directory}/data")


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def password(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def basic(user: str, key: str) -> dict[str, str]:
    return {"Authorization": password(f"{user}:{key}")}


def lines(service: Service) -> list[dict[str, object]]:
    found = [json.loads(line) for line in service.log.read_text().splitlines()]
    return [line for line in found if line["event"] == "request"]


def over_unix(path: Path, target: str, *, own: str | None = None, headers: Mapping[str, str] | None = None) -> Answer:
    """A GET through a Unix socket, from a socket that the client has called ``own``."""
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    if own is not None:
        connection.sock.bind(own)
    connection.sock.connect(str(path))
    try:
        connection.request("GET", target, headers=headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


@pytest.mark.parametrize("command", ["serve", "gunicorn"])
def test_on_loopback_everybody_may_call_until_there_is_a_key(tmp_path: Path, command: str) -> None:
    with running(tmp_path, workers=2, command=command) as service:
        assert service.put("a/b/data/D/data.xml", headers=bearer("any"), **V1).status == 201
        assert all("caller" not in line for line in lines(service))
        secret = keys_of(tmp_path).add("runtime")
        for _ in range(10):
            refused = service.raw("GET", PATH)
            ways = ["Bearer", 'Basic realm="persistence", charset="UTF-8"']
            assert (refused.status, refused.headers.get_all("WWW-Authenticate")) == (401, ways)
            assert service.raw("GET", PATH, bearer(secret)).status == 200
        assert refused.cause == "this service asks for a key: Authorization: Bearer KEY, or KEY as the password"
        assert refused["X-Request-Id"]
        for headers in (basic("anybody", secret), basic("", secret), bearer(secret)):
            assert service.raw("GET", PATH, headers).status == 200
        for headers in (bearer("wrong"), basic("runtime", "wrong"), {"Authorization": "Basic !"}):
            wrong = service.raw("GET", PATH, headers)
            assert (wrong.status, wrong["WWW-Authenticate"]) == (401, "Bearer")
            assert wrong.cause == "the key that was sent is not, or no longer, a key of this service"
        keys_of(tmp_path).add("other")
        keys_of(tmp_path).remove("runtime")
        assert service.raw("GET", PATH, bearer(secret)).status == 401


def test_the_log_names_the_caller_and_never_a_key(tmp_path: Path) -> None:
    secret = keys_of(tmp_path).add("runtime")
    password = basic("user", secret)
    with running(tmp_path, env=TRUSTING) as service:
        service.raw("GET", PATH, {"X-Request-Id": "key", **bearer(secret)})
        service.raw("GET", PATH, {"X-Request-Id": "password", **password})
        service.raw("GET", PATH, {"X-Request-Id": "trusted"})
        service.raw("GET", PATH, {"X-Request-Id": "wrong", **bearer("secret-but-wrong")})
        callers = {line["id"]: (line["status"], line.get("caller")) for line in lines(service)}
        log = service.log.read_text()
    known = {"key": (404, "runtime"), "password": (404, "runtime")}
    assert callers == known | {"trusted": (404, "trusted"), "wrong": (401, None)}
    for text in (secret, password["Authorization"].removeprefix("Basic "), "secret-but-wrong", "Bearer "):
        assert text not in log


def test_a_trusted_address_needs_no_key_and_another_does(tmp_path: Path) -> None:
    with serving(tmp_path, env=TRUSTING) as service:
        stranger = replace(service, source="127.0.0.2")
        closed = stranger.raw("GET", PATH, bearer("any"))
        assert (closed.status, closed.cause) == (403, "this service is closed to 127.0.0.2")
        secret = keys_of(tmp_path).add("runtime")
        assert [each.raw("GET", PATH).status for each in (service, stranger)] == [404, 401]
        assert stranger.raw("GET", PATH, bearer(secret)).status == 404
        for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "Remote-Addr", "REMOTE_ADDR"):
            assert stranger.raw("GET", PATH, {name: "127.0.0.1"}).status == 401


def test_keys_that_vanish_open_nothing(tmp_path: Path) -> None:
    """Also on loopback, and also in a worker that starts again: what is open was decided at the start."""
    secret = keys_of(tmp_path).add("runtime")
    with running(tmp_path) as service:
        assert service.raw("GET", PATH, bearer(secret)).status == 404
        (tmp_path / "var/keys.json").unlink()
        closed = service.raw("GET", PATH, bearer(secret))
        assert (closed.status, closed["WWW-Authenticate"]) == (403, None)
        assert closed.cause == "this service is closed to 127.0.0.1"
        (worker,) = service.workers()
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: service.workers() not in ([], [worker]))
        assert service.raw("GET", PATH).status == 403


@pytest.mark.parametrize("command", ["serve", "gunicorn"])
@pytest.mark.parametrize(("trusted", "status"), [("unix", 404), ("127.0.0.1,0.0.0.0/0,::/0", 403)])
def test_the_unix_socket_is_trusted_by_its_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, trusted: str, status: int
) -> None:
    """A client may call its own socket ``127.0.0.1``, and gunicorn says then that this is its address."""
    path = tmp_path / "socket"
    monkeypatch.chdir(tmp_path)
    env = {"PERSISTENCE_TRUSTED": trusted, "PERSISTENCE_BIND": f"unix:{path}"}
    with running(tmp_path, bind=f"unix:{path}", command=command, env=env):
        assert over_unix(path, PATH).status == status
        assert over_unix(path, PATH, own="127.0.0.1").status == status
        assert over_unix(path, "/healthz").status == 200
        secret = keys_of(tmp_path).add("runtime")
        assert over_unix(path, PATH, headers=bearer(secret)).status == 404
        assert over_unix(path, PATH, headers=bearer("wrong")).status == 401


def test_what_gunicorn_itself_is_told_to_bind_opens_nothing(tmp_path: Path) -> None:
    """The settings say loopback, gunicorn's own flag says otherwise: only loopback is let in."""
    path = tmp_path / "socket"
    with running(tmp_path, bind=f"unix:{path}", command="gunicorn"):
        assert over_unix(path, PATH).status == 403


def test_insecure_lets_everybody_in(tmp_path: Path) -> None:
    keys_of(tmp_path).add("runtime")
    with running(tmp_path, bind="0.0.0.0:0", options=("--insecure",)) as service:
        assert replace(service, source="127.0.0.2").raw("GET", PATH, bearer("wrong")).status == 404
        (tmp_path / "var/keys.json").write_text("{")
        assert service.raw("GET", PATH).status == 404
        assert all("caller" not in line for line in lines(service))


def test_every_path_but_those_of_health_is_closed(tmp_path: Path) -> None:
    keys_of(tmp_path).add("runtime")
    with serving(tmp_path) as service:
        for path in ("/healthz", "/readyz", "/healthz?x=1", "/"):
            assert service.raw("GET", path).status == 200
        for path in (
            *("//", "/none", "/version", "/metrics", "/openapi.yaml", "/crud/../x", "/crud/%FF", "//healthz"),
            *("/healthz/", "/%68ealthz", "/healthz#x"),
        ):
            assert service.raw("GET", path).status == 401
        for method in ("HEAD", "PUT", "DELETE", "POST", "OPTIONS", "LOCK"):
            assert service.raw(method, PATH).status == 401
        assert service.raw("POST", "/healthz").status == 405


def test_a_stranger_is_told_neither_paths_nor_numbers(tmp_path: Path) -> None:
    key = keys_of(tmp_path).add("runtime")
    with running(tmp_path, env={"PERSISTENCE_MIN_FREE": str(1 << 60)}) as service:
        stranger, known = service.raw("GET", "/readyz"), service.raw("GET", "/readyz", bearer(key))
        misdirected = service.raw("GET", "/readyz", {**bearer("wrong"), "Host": "evil.example"})
        for answer in (stranger, misdirected):
            assert (answer.status, answer.cause) == (503, "not ready: the log of the service says why")
        assert (known.status, "bytes are free" in known.cause, str(tmp_path) in known.cause) == (503, True, True)
        causes = [str(line["cause"]) for line in lines(service) if line.get("path") == "/readyz"]
    assert len(causes) == 3
    assert all(str(tmp_path) in cause for cause in causes)


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_nginx_hands_on_keys_and_refusals(tmp_path: Path) -> None:
    secret = keys_of(tmp_path).add("runtime")
    with running(tmp_path) as service, in_front_of(service, tmp_path / "nginx") as face:
        for body in (b"<d/>", bytes(2 << 20)):
            refused = face.raw("PUT", PATH, body=body)
            assert (refused.status, refused["WWW-Authenticate"]) == (401, "Bearer")
            assert refused.cause.startswith("this service asks for a key")
            assert face.raw("GET", PATH, bearer(secret)).status == 404
            assert face.raw("GET", PATH, basic("user", secret)).status == 404


def test_keys_that_cannot_be_read_close_the_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To everybody: the trusted, and whoever has a key; until they can be read again."""
    secret = keys_of(tmp_path).add("runtime")
    file = tmp_path / "var/keys.json"
    good = file.read_bytes()
    with serving(tmp_path, env=TRUSTING) as service:
        assert service.raw("GET", PATH).status == 404
        file.write_bytes(good[:-10])
        for headers in ({}, bearer(secret), bearer("wrong")):
            answer = service.raw("GET", PATH, headers)
            assert answer.status == 500
            assert answer.cause == "the keys of callers cannot be read: the log of the service says why"
        log = service.log.read_text() if service.log.exists() else capsys.readouterr().err
        assert "the API keys in keys.json cannot be read: " in log
        assert service.raw("GET", "/healthz").status == 200
        file.write_bytes(good)
        assert service.raw("GET", PATH, bearer(secret)).status == 404


# The same as a table: the policy of a start, and what becomes of each request.


SECRET = "5" * 64
KEYS = tuple(
    Key(name, hashlib.sha256(secret.encode()).hexdigest(), Instant("2025-03-04T05:06:07.089Z"))
    for name, secret in (("batch", "1" * 64), ("runtime", SECRET))
)
HERE, NEAR, FAR = ip_address("127.0.0.1"), ip_address("10.0.0.1"), ip_address("192.0.2.1")
NEVER = Policy(Opens.NEVER, parse_trusted(["10.0.0.0/8", "unix"]))
UNTRUSTING = Policy(Opens.NEVER, Trusted())
LOOPBACK = Policy(Opens.WHILE_KEYLESS, Trusted())
INSECURE = Policy(Opens.ALWAYS, Trusted())
BEARER, WRONG = f"Bearer {SECRET}", "Bearer wrong"


@pytest.mark.parametrize(
    ("trusted", "insecure", "on_loopback", "has_keys", "opens"),
    [
        ([], False, True, False, Opens.WHILE_KEYLESS),
        ([], False, True, True, Opens.NEVER),
        *((trusted, False, True, False, Opens.NEVER) for trusted in (["10.0.0.1"], ["unix"])),
        (["unix"], False, False, False, Opens.NEVER),
        ([], False, False, True, Opens.NEVER),
        ([], True, False, False, Opens.ALWAYS),
        (["10.0.0.1"], True, False, True, Opens.ALWAYS),
    ],
)
def test_a_service_is_open_only_if_told_so_or_on_loopback_without_keys_and_trusted(
    *, trusted: list[str], insecure: bool, on_loopback: bool, has_keys: bool, opens: Opens
) -> None:
    found = policy(parse_trusted(trusted), insecure=insecure, on_loopback=on_loopback, has_keys=has_keys)
    assert found == Policy(opens, parse_trusted(trusted))


def who(own: Policy, keys: tuple[Key, ...], peer: Peer, header: str | None) -> str | None:
    try:
        found = caller(own, keys, peer, header)
    except UnauthorizedError:
        return "no key"
    except ForbiddenError as error:
        return str(error).removeprefix("this service is ")
    return found.name if isinstance(found, Key) else found


@pytest.mark.parametrize(
    ("own", "keys", "peer", "header", "expected"),
    [
        (LOOPBACK, (), HERE, None, None),
        (LOOPBACK, (), HERE, WRONG, None),
        (LOOPBACK, KEYS, HERE, BEARER, "runtime"),
        (INSECURE, KEYS, FAR, None, None),
        (INSECURE, KEYS, None, WRONG, None),
        *((NEVER, (), peer, header, "trusted") for peer, header in ((NEAR, None), (NEAR, WRONG), (UNIX, None))),
        *((NEVER, KEYS, NEAR, header, "trusted") for header in (None, "Negotiate YII=")),
        *((NEVER, KEYS, peer, BEARER, "runtime") for peer in (NEAR, FAR)),
        (NEVER, KEYS, FAR, f"Bearer {'1' * 64}", "batch"),
        (NEVER, KEYS, FAR, password(f"anybody:{SECRET}"), "runtime"),
        *((UNTRUSTING, KEYS, peer, BEARER, "runtime") for peer in (None, UNIX)),
        *((LOOPBACK, KEYS, HERE, header, "no key") for header in (None, WRONG)),
        *((NEVER, KEYS, NEAR, header, "no key") for header in (WRONG, "Bearer", "Basic !")),
        (NEVER, KEYS, UNIX, password("runtime:wrong"), "no key"),
        *((NEVER, KEYS, FAR, each, "no key") for each in (None, f"Negotiate {SECRET}", f"{BEARER}, {BEARER}")),
        *((UNTRUSTING, KEYS, peer, None, "no key") for peer in (HERE, None)),
        *((NEVER, (), FAR, header, "closed to 192.0.2.1") for header in (None, BEARER)),
        (NEVER, (), None, None, "closed to this caller"),
        (UNTRUSTING, (), HERE, BEARER, "closed to 127.0.0.1"),
        (UNTRUSTING, (), UNIX, None, "closed to this caller"),
        (LOOPBACK, (), FAR, None, "closed to 192.0.2.1"),
        (LOOPBACK, (), UNIX, None, "closed to this caller"),
    ],
)
def test_who_may_call(own: Policy, keys: tuple[Key, ...], peer: Peer, header: str | None, expected: str | None) -> None:
    """Keys that have vanished open nothing; and an open service is open to its own machine only."""
    assert who(own, keys, peer, header) == expected


@pytest.mark.parametrize(
    ("header", "key"),
    [
        *((header, None) for header in (None, "", "Negotiate YII=", "Digest username=x")),
        *(("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("BEARER abc==", "abc==")),
        *((password("user:abc"), "abc"), (password(":abc"), "abc"), (password("user:a:b"), "a:b")),
        *((header, "") for header in ("Bearer a=b", "Bearer", "Bearer \xe9", password("user"))),
        *((header, "") for header in ("Basic !", "Basic /w==", "Basic \xe9")),
    ],
)
def test_the_key_in_a_header(header: str | None, key: str | None) -> None:
    """RFC 6750 2.1, RFC 7617 2; a header that should hold a key and cannot be read holds a wrong one."""
    assert presented(header) == key


def test_an_ended_key_is_refused_by_its_name_in_the_log_too(tmp_path: Path) -> None:
    keys = keys_of(tmp_path)
    keys.add("runtime")
    retired = keys.add("batch")
    keys.remove("batch")
    with running(tmp_path) as service:
        answer = service.ask("GET", "a/b/data/D/data.xml", headers=bearer(retired))
        assert (answer.status, answer.cause.partition(" on ")[0]) == (401, "the API key batch was retired")
        assert str(lines(service)[-1]["cause"]).startswith("the API key batch was retired on ")


# Web pages that make a browser of the same machine send requests: DNS rebinding and simple cross-site requests.

EVIL = "https://evil.example"


GET, VERSION = {"REQUEST_METHOD": "GET"}, {"Svc-Form-Definition-Version": "1"}


@pytest.mark.parametrize(
    ("bind", "hosts", "own", "foreign"),
    [
        (
            "127.0.0.1:8080",
            "",
            "localhost LOCALHOST:8080 localhost.:80 127.0.0.1:1 127.9.9.9 [::1]:8080 ::1",
            f"evil.example 10.1.2.3 localhost.evil.example 127.0.0.1.evil.example a%20b {'x' * 9000} @",
        ),
        ("10.1.2.3:80", "", "10.1.2.3 10.1.2.3:80 localhost", "10.1.2.4 evil.example"),
        ("forms-data:8080", "", "forms-data:8080 Forms-Data", "forms 10.1.2.3"),
        ("0.0.0.0:8080", "", "10.1.2.3:8080 [fe80::1] localhost", "forms-data evil.example"),
        ("[::]:8080", "forms-data", "forms-data:80 [::1]:80 10.1.2.3", "evil.example"),
        ("[::1]:8080", "", "[::1]:8080 localhost", "[fe80::1] evil.example"),
        ("unix:/run/a:b", "a.example fe80::1", "A.example. localhost [fe80::1]:1", "b.example b :80 unix:/x"),
        ("127.0.0.1:8080", "*", "evil.example a%20b", ""),
    ],
)
def test_the_names_of_the_service(bind: str, hosts: str, own: str, foreign: str) -> None:
    sites = AllowedSites((bind,), tuple(hosts.split()), ())
    sites.check(GET, has_key=False)
    for host in ("", *map(unquote, own.split())):
        sites.check({**GET, "HTTP_HOST": host}, has_key=False)
    for host in map(unquote, foreign.split()):
        with pytest.raises(MisdirectedError, match="setting hosts"):
            sites.check({**GET, "HTTP_HOST": host}, has_key=False)
        sites.check({**GET, "HTTP_HOST": host}, has_key=True)


@pytest.mark.parametrize(
    ("origin", "site", "is_refused"),
    [
        (None, None, False),
        ("http://localhost:8080", None, False),
        ("https://LOCALHOST:8080", "same-origin", False),
        ("https://forms.example", None, False),
        *((None, site, False) for site in ("same-origin", "none")),
        *((origin, None, True) for origin in ("http://localhost:3000", "http://localhost", "null", "", EVIL)),
        *((None, site, True) for site in ("cross-site", "same-site")),
    ],
)
def test_whose_pages_may_change_something(origin: str | None, site: str | None, *, is_refused: bool) -> None:
    sites = AllowedSites(("127.0.0.1:8080",), (), ("https://forms.example",))
    page = {"HTTP_ORIGIN": origin, "HTTP_SEC_FETCH_SITE": site}
    headers = {name: value for name, value in page.items() if value is not None}
    for method in ("GET", "HEAD", "PUT", "POST", "DELETE", "LOCK"):
        environ = {"REQUEST_METHOD": method, "HTTP_HOST": "localhost:8080", **headers}
        if is_refused and method not in ("GET", "HEAD"):
            with pytest.raises(ForbiddenError, match="may change nothing here"):
                sites.check(environ, has_key=False)
        else:
            sites.check(environ, has_key=False)


@pytest.mark.parametrize(
    "page", [{"Origin": EVIL}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]
)
def test_nothing_is_changed_by_a_page_elsewhere(svc: Service, form: str, page: dict[str, str]) -> None:
    path = f"/crud/{form}/data/A/data.xml"
    svc.save(form, "A")
    for method, target in (
        *(("PUT", path), ("DELETE", path), ("POST", "/reindex"), ("POST", f"/search/{form}")),
        *(("POST", "/fr/service/persistence/reencrypt"), ("POST", "/fr/service/publish"), ("POST", "/no/such/path")),
        ("OPTIONS", path),
    ):
        refused = svc.raw(method, target, page | {"Content-Type": "text/plain"}, b"<d/>")
        assert refused.refuses(403, "pages elsewhere may change nothing here"), (method, target)
    assert svc.raw("GET", path, page).status == 200
    own = {"Origin": f"http://127.0.0.1:{svc.port}", "Sec-Fetch-Site": "same-origin"}
    assert svc.raw("PUT", path, own, b"<d/>").status == 204


@pytest.mark.parametrize("command", ["serve", "gunicorn"])
def test_another_name_is_refused_before_anything_is_looked_at(tmp_path: Path, command: str) -> None:
    """DNS rebinding: the page's own name has come to mean this machine. Supervisors may use any name."""
    with running(tmp_path, command=command) as service:
        service.save("a/b", "D")
        rebound = {"Host": f"evil.example:{service.port}", "Origin": f"http://evil.example:{service.port}"}
        cause = "the setting hosts, which has names without port, does not have this one"
        for method, path in (("GET", PATH), ("PUT", PATH), ("GET", "/x")):
            answer = service.raw(method, path, rebound, b"<d/>" if method == "PUT" else None)
            assert (answer.status, answer.cause) == (421, f"{cause}: 'evil.example:{service.port}'")
        for name in ("localhost", f"LocalHost:{service.port}", "127.8.8.8:1", "[::1]"):
            assert service.raw("GET", PATH, {"Host": name}).status == 200, name
        for path in ("/healthz", "/readyz"):
            assert service.raw("GET", path, {"Host": "10.1.2.3"}).status == 200


def test_the_settings_name_hosts_and_origins(tmp_path: Path) -> None:
    settings = 'hosts = ["forms-data", "10.1.2.3"]\norigins = ["https://forms.example"]\ntrusted = ["127.0.0.1"]\n'
    with serving(tmp_path, settings=settings) as service:
        for name in ("forms-data", "FORMS-DATA:80", "10.1.2.3", "localhost"):
            page = {"Host": name, "Origin": "https://forms.example", **VERSION}
            assert service.raw("PUT", PATH, page, b"<d/>").status in (201, 204), name
        assert service.raw("GET", PATH, {"Host": "forms"}).status == 421
        assert service.raw("PUT", PATH, {"Origin": EVIL}, b"<d/>").status == 403


def test_a_key_is_no_pages(tmp_path: Path) -> None:
    """Whoever has shown one may use any name; but a browser sends a password that it knows for pages elsewhere, too."""
    sent = basic("x", keys_of(tmp_path).add("runtime")) | {"Host": "forms.example"} | VERSION
    with serving(tmp_path) as service:
        for origin, status in (({}, 201), ({"Origin": EVIL}, 403), ({"Origin": "https://forms.example"}, 204)):
            assert service.raw("PUT", PATH, sent | origin, b"<d/>").status == status
        assert service.raw("GET", PATH, {"Host": "forms.example"}).status == 401  # before the name
