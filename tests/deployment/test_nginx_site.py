"""``config/nginx-site.conf`` in a real nginx beside another site: TLS, who reaches what, and where http:// leads.

Its lines marked EDIT are made to fit the test, and nothing else. The form runtime calls from 127.0.0.1, administrators
from 127.0.0.2: on Linux both are this machine.
"""

from __future__ import annotations

import http.client
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

import pytest

from persistence.keys import Keys
from tests import nginx
from tests.service import alone

SITE = Path(__file__).parents[2] / "config/nginx-site.conf"
NAME = "forms.example.org"
RUNTIME, ADMINISTRATOR, STRANGER = "127.0.0.1", "127.0.0.2", "127.0.0.3"
CRUD = "/fr/service/persistence/crud/hr/leave/data/1b4e28ba/data.xml"

pytestmark = [
    pytest.mark.skipif(nginx.NGINX is None, reason="nginx is not installed"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed, which makes the certificate"),
    pytest.mark.xdist_group("nginx-site"),
]


@dataclass(frozen=True)
class Site:
    """A running site: its ports, its certificate, and a key of the service behind it."""

    plain: int
    secure: int
    certificate: Path
    key: str

    def ask(
        self, method: str, path: str, sender: str, body: bytes = b"", *, tls: bool = True, **headers: str
    ) -> http.client.HTTPResponse:
        """Return an answer that was read whole, to a request from an address of this machine."""
        connection: http.client.HTTPConnection
        if tls:
            context = ssl.create_default_context(cafile=self.certificate)
            connection = _Named("127.0.0.1", self.secure, context=context, source_address=(sender, 0), timeout=20)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.plain, source_address=(sender, 0), timeout=20)
        with closing(connection):
            own = {"Host": NAME, "Authorization": f"Bearer {self.key}", "Svc-Form-Definition-Version": "1"}
            connection.request(method, path, body, {**own, **headers})
            answer = connection.getresponse()
            answer.read()
            return answer

    def status(self, path: str, sender: str) -> int:
        return self.ask("GET", path, sender).status


class _Named(http.client.HTTPSConnection):
    """A connection to an address that asks for the site by its name."""

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        context: ssl.SSLContext = self._context  # type: ignore[attr-defined]  # the library has no other way
        self.sock = context.wrap_socket(self.sock, server_hostname=NAME)


def configuration(directory: Path, plain: int, secure: int, service: int) -> Path:
    """Write an nginx.conf that has another site and this one, with a certificate."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    edits = {
        "server 127.0.0.1:8080;": f"server 127.0.0.1:{service};",
        "listen      80;": f"listen 127.0.0.1:{plain};",
        "listen      443 ssl;": f"listen 127.0.0.1:{secure} ssl;",
        "/var/log/nginx/persistence.log": f"{directory}/access.log",
        f"/etc/ssl/certs/{NAME}.pem": str(certificate),
        f"/etc/ssl/private/{NAME}.key": str(key),
        "allow      10.1.0.0/16;": f"allow {ADMINISTRATOR};",
    }
    text = SITE.read_text()
    for old, new in edits.items():
        lines = [line for line in text.splitlines() if old in line and not line.startswith("#")]
        assert [line for line in lines if "# EDIT" not in line] == []
        assert lines
        text = text.replace(old, new)
    (directory / "site.conf").write_text(text)
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = " ".join(f"{name}_temp_path {directory}/{name};" for name in names)
    file = directory / "nginx.conf"
    file.write_text(
        f"{nginx.user_line()} pid {directory}/pid; error_log {directory}/error.log; events {{}}\n"
        f"http {{ access_log off; {paths} server {{ listen 127.0.0.1:{plain}; return 204; }}\n"
        f"include {directory}/site.conf; }}\n"
    )
    return file


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    key = Keys(str(directory / "keys.json"), tree=str(directory / "service/data")).add("ada")
    settings = f'keys = "{directory}/keys.json"\nadministrators = ["ada"]\nhosts = ["{NAME}"]\n'
    with ExitStack() as stack:
        service = stack.enter_context(alone(directory / "service", settings=settings))
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        plain, secure = (each.getsockname()[1] for each in listeners)
        file = configuration(directory, plain, secure, service.port)
        process = nginx.start(listeners, file)
        stack.callback(nginx.stop, process)
        nginx.wait_until_ready(replace(service, port=plain, log=directory / "error.log", process=process))
        yield Site(plain, secure, directory / "certificate.pem", key)


def test_nginx_takes_the_site_beside_others(tmp_path: Path) -> None:
    file = configuration(tmp_path, 8091, 8092, 8080)
    command = [str(nginx.NGINX), "-t", "-e", str(tmp_path / "errors"), "-c", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr


def test_the_form_runtime_stores_and_reads_through_tls(site: Site) -> None:
    assert site.ask("PUT", CRUD, RUNTIME, b"<a/>", **{"Content-Type": "application/xml"}).status == 201
    answer = site.ask("GET", CRUD, RUNTIME)
    assert answer.status == 200
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


@pytest.mark.parametrize("path", [CRUD, "/fr/service/persistence/crud/hr/leave/form/form.xhtml?a=b%20c"])
def test_http_leads_to_https_and_keeps_path_query_and_method(site: Site, path: str) -> None:
    answer = site.ask("PUT", path, RUNTIME, b"<a/>", tls=False)
    assert (answer.status, answer.headers["Location"]) == (308, f"https://{NAME}{path}")


def test_another_name_is_that_of_the_other_site(site: Site) -> None:
    assert site.ask("GET", "/", RUNTIME, tls=False, Host="other.example.org").status == 204


@pytest.mark.parametrize("path", ["/admin", "/admin/", "/admin/login", "/admin/static/pages.css"])
def test_the_pages_are_for_the_network_of_administrators(site: Site, path: str) -> None:
    assert site.status(path, ADMINISTRATOR) in {200, 303}
    assert site.status(path, RUNTIME) == site.status(path, STRANGER) == 403


@pytest.mark.parametrize("path", [CRUD, "/", "/version", "/admins", "/fr/admin/"])
def test_administrators_reach_nothing_else_and_strangers_nothing(site: Site, path: str) -> None:
    assert site.status(path, RUNTIME) != 403
    assert site.status(path, ADMINISTRATOR) == site.status(path, STRANGER) == 403


@pytest.mark.parametrize("path", ["/%61dmin/login", "//admin/login", "/x/../admin/login", "/./admin/login"])
def test_no_other_spelling_of_the_pages_is_served(site: Site, path: str) -> None:
    assert {site.status(path, sender) for sender in (RUNTIME, ADMINISTRATOR, STRANGER)} <= {400, 403, 404}


def test_an_administrator_logs_in_and_the_cookie_is_for_tls_only(site: Site) -> None:
    sent = {"Origin": f"https://{NAME}", "Content-Type": "application/x-www-form-urlencoded"}
    body = urlencode({"name": "ada", "secret": site.key}).encode()
    answer = site.ask("POST", "/admin/login", ADMINISTRATOR, body, **sent)
    assert answer.status == 303
    cookie = answer.headers["Set-Cookie"]
    assert re.search(r"(?i); *secure", cookie)
    assert site.ask("GET", "/admin/", ADMINISTRATOR, Cookie=cookie.partition(";")[0]).status == 200
