"""The servers that are compared: this service, what a user could pick instead, and the floors.

The peers come from package indexes: nginx and rclone from Debian, the others from ``config/requirements/peers.txt``
in an environment of their own (``make peers``). Each runs with its defaults, but without passwords.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import database
import nginx
from client import Connection, request
from servers import HERE, SERVICE, free_port, running, served

from persistence.storage.root import init

ENVIRONMENT = HERE.parent / ".venv-peers" / "bin"
SEEN = "2026-11-23"
"""The day on which ``bench.py --syncs`` saw who syncs."""

_XML = ("Content-Type: application/xml",)
_BINARY = ("Content-Type: application/octet-stream",)


@dataclass(frozen=True)
class Size:
    """Workers of a gunicorn, and threads of each."""

    workers: int
    threads: int


def _as_it_is(body: bytes, _name: str) -> bytes:
    return body


@dataclass(frozen=True)
class Site:
    """A server that runs: its port, its first processes, and how it is asked to store something under a name."""

    port: int
    processes: tuple[int, ...]
    xml: str = ""
    """The path of form data, with the name as ``{}``; empty if it stores none."""

    attachment: str = ""
    wrapped: Callable[[bytes, str], bytes] = _as_it_is
    headers: tuple[str, ...] = _XML
    attached: tuple[str, ...] = _BINARY
    allowed: tuple[str, ...] = ()
    """Headers that a GET needs."""

    files: str = ""
    """A pattern of the files or directories that a name becomes, to remove large ones after their measurement."""

    methods: frozenset[str] = field(default=frozenset({"GET", "PUT"}))

    def get(self, pattern: str, name: str) -> bytes:
        """Return the request that reads what was stored."""
        path = pattern.format(name)
        return request("GET", path, headers=self.allowed)

    def put(self, pattern: str, name: str, body: bytes) -> bytes:
        """Return the request that stores a body."""
        path, headers = pattern.format(name), self.attached if pattern == self.attachment else self.headers
        return request("PUT", path, self.wrapped(body, name), headers)

    def ask(self, asked: bytes) -> tuple[int, bytes]:
        """Send one request on a connection of its own, which must succeed."""
        connection = Connection(self.port)
        status, body = connection.ask(asked)
        connection.close()
        if status >= 400:
            raise RuntimeError(f"{asked[:100]!r} answered {status} {body[:300]!r}")
        return status, body


@dataclass(frozen=True)
class Peer:
    """A server that can be started; ``syncs`` says whether a PUT is on the disk when it is answered."""

    name: str
    syncs: str
    start: Callable[[Path, Size], AbstractContextManager[Site]]
    needs: tuple[str, ...] = ()
    """Programs, of which each must be there."""

    is_floor: bool = False

    def lacks(self) -> str:
        """Return the programs that are not installed."""
        return ", ".join(Path(each).name for each in self.needs if not each or shutil.which(each) is None)


@contextmanager
def _service(directory: Path, size: Size, **settings: str) -> Iterator[Site]:
    data = directory / "data"
    init(str(data))
    environment = {"PERSISTENCE_DATA": str(data), **settings}
    with served(SERVICE, environment, size.workers, size.threads) as (port, process):
        form = "/crud/bench/form/data/{}"
        yield Site(
            *(port, (process,), f"{form}/data.xml", f"{form}/scan.bin"),
            attached=(*_BINARY, "Svc-Form-Definition-Version: 1"),
            files=f"{data}/bench/form/data/*{{}}*",
        )


@contextmanager
def _behind_nginx(directory: Path, size: Size) -> Iterator[Site]:
    with (
        _service(directory, size, PERSISTENCE_ACCEL_REDIRECT="/protected") as site,
        nginx.in_front_of(site.port, directory / "data", directory / "nginx") as (port, process),
    ):
        attached = site.attached
        yield Site(port, (*site.processes, process), site.xml, site.attachment, attached=attached, files=site.files)


@contextmanager
def _nginx_dav(directory: Path, _size: Size) -> Iterator[Site]:
    with nginx.files(directory, dav=True) as (port, process):
        yield Site(port, (process,), "/{}.xml", "/{}.bin", files=f"{directory}/files/*{{}}*")


@contextmanager
def _nginx_static(directory: Path, _size: Size) -> Iterator[Site]:
    with nginx.files(directory, dav=True) as (port, process):  # a GET does not notice; what it sends is stored before
        yield Site(port, (process,), "/{}.xml", "/{}.bin", methods=frozenset({"GET"}))


@contextmanager
def _rclone(directory: Path, _size: Size) -> Iterator[Site]:
    directory.mkdir()
    port = free_port()
    command = ["rclone", "serve", "webdav", str(directory), "--addr", f"127.0.0.1:{port}", "--config", os.devnull]
    with running(command, port) as process:
        yield Site(port, (process,), "/{}.xml", "/{}.bin", files=f"{directory}/*{{}}*")


@contextmanager
def _wsgidav(directory: Path, _size: Size) -> Iterator[Site]:
    directory.mkdir()
    port = free_port()
    command = [str(ENVIRONMENT / "wsgidav"), "--no-config", "--host", "127.0.0.1", "--port", str(port)]
    with running([*command, "--root", str(directory), "--auth", "anonymous"], port) as process:
        yield Site(port, (process,), "/{}.xml", "/{}.bin", files=f"{directory}/*{{}}*")


@contextmanager
def _radicale(directory: Path, _size: Size) -> Iterator[Site]:
    directory.mkdir()
    port = free_port()
    settings = ("--server-hosts", f"127.0.0.1:{port}", "--auth-type", "none", "--rights-type", "authenticated")
    command = [str(ENVIRONMENT / "radicale"), "--config", "", *settings, "--storage-filesystem-folder", str(directory)]
    with running(command, port) as process:
        allowed = ("Authorization: Basic bGVhOmxlYQ==",)
        site = Site(
            *(port, (process,), "/lea/notes/{}.vcf"),
            wrapped=_card,
            headers=("Content-Type: text/vcard", *allowed),
            allowed=allowed,
        )
        site.ask(request("MKCOL", "/lea/notes/", _ADDRESS_BOOK, (*_XML, *allowed)))
        yield site


_ADDRESS_BOOK = b"""<mkcol xmlns="DAV:" xmlns:C="urn:ietf:params:xml:ns:carddav"><set><prop><resourcetype><collection/>
<C:addressbook/></resourcetype></prop></set></mkcol>"""


def _card(body: bytes, name: str) -> bytes:
    """Return a vCard that has the body as its note."""
    note = body.replace(b"\n", b"\\n").replace(b",", b"\\,")
    return b"BEGIN:VCARD\r\nVERSION:3.0\r\nUID:%s\r\nFN:Lea\r\nN:Lea;;;;\r\nNOTE:%s\r\nEND:VCARD\r\n" % (
        name.encode(),
        note,
    )


_KINTO = """[app:main]
use = egg:kinto
kinto.storage_backend = kinto.core.storage.postgresql
kinto.storage_url = {uri}
kinto.cache_backend = kinto.core.cache.postgresql
kinto.cache_url = {uri}
kinto.permission_backend = kinto.core.permission.postgresql
kinto.permission_url = {uri}
kinto.userid_hmac_secret = of-a-benchmark
kinto.bucket_create_principals = system.Everyone
kinto.bucket_write_principals = system.Everyone
"""


@contextmanager
def _kinto(directory: Path, size: Size) -> Iterator[Site]:
    directory.mkdir()
    with database.running(database.made(directory)) as postgresql:
        settings = directory / "kinto.ini"
        settings.write_text(_KINTO.format(uri=postgresql.uri))
        migrating = [str(ENVIRONMENT / "kinto"), "migrate", "--ini", str(settings)]
        subprocess.run(migrating, check=True, capture_output=True)
        port = free_port()
        command = [
            *(str(ENVIRONMENT / "gunicorn"), "--paste", str(settings), "-b", f"127.0.0.1:{port}", "-k", "gthread"),
            *("-w", str(size.workers), "--threads", str(size.threads), "--keep-alive", "75", "--no-control-socket"),
        ]
        with running(command, port, {"PYTHONWARNINGS": "ignore"}) as process:
            forms = "/v1/buckets/bench/collections/form"
            headers = ("Content-Type: application/json",)
            site = Site(port, (process, postgresql.process), f"{forms}/records/{{}}", wrapped=_record, headers=headers)
            for path in ("/v1/buckets/bench", forms):
                site.ask(request("PUT", path, b"{}", headers))
            yield site


def _record(body: bytes, _name: str) -> bytes:
    """Return a record that has the body as one of its values."""
    return json.dumps({"data": {"xml": body.decode()}}).encode()


@contextmanager
def _constant(_directory: Path, size: Size) -> Iterator[Site]:
    with served("constant:app", {}, size.workers, size.threads) as (port, process):
        yield Site(port, (process,), "/", methods=frozenset({"GET"}))


@contextmanager
def _bare(directory: Path, size: Size) -> Iterator[Site]:
    directory.mkdir()
    with served("bare:app", {"BENCH_DATA": str(directory)}, size.workers, size.threads) as (port, process):
        files = f"{directory}/*{{}}*"
        yield Site(port, (process,), "/{}", "/{}.bin", files=files, methods=frozenset({"PUT"}))


OURS, PROXIED = "this service", "this service, nginx"
CONSTANT, BARE, STATIC = "Flask constant", "bare WSGI", "nginx static"
_NGINX = str(nginx.PROGRAM or "nginx")

PEERS = (
    Peer(OURS, "yes", _service),
    Peer(PROXIED, "yes", _behind_nginx, (_NGINX,)),
    Peer("nginx DAV", "no", _nginx_dav, (_NGINX,)),
    Peer("rclone serve webdav", "no", _rclone, ("rclone",)),
    Peer("WsgiDAV", "no", _wsgidav, (str(ENVIRONMENT / "wsgidav"),)),
    Peer("Radicale", "yes", _radicale, (str(ENVIRONMENT / "radicale"),)),
    Peer("Kinto, PostgreSQL", "yes", _kinto, (str(ENVIRONMENT / "kinto"), database.program("initdb"))),
    Peer(CONSTANT, "", _constant, is_floor=True),
    Peer(BARE, "yes", _bare, is_floor=True),
    Peer(STATIC, "", _nginx_static, (_NGINX,), is_floor=True),
)
"""In the order of the tables."""
