"""A real service for tests: gunicorn on a port of its own, and a client that speaks plain HTTP."""

import http.client
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests import forkserver, proxied
from tests.initialised import initialised

PUBLIC = "/fr/service/persistence"
PROVIDER = ""
V1 = {"Form_Definition_Version": 1}
CONFIG = Path(__file__).parents[1] / "config"
_READY = 30.0
_LISTENING = re.compile(rb"Listening at: (?:http://[^ ,]+:(\d+)|unix:)")


Process = subprocess.Popen[bytes] | forkserver.Forked


@dataclass(frozen=True)
class Answer:
    """A response, read to its end."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def __getitem__(self, name: str) -> str | None:
        return self.headers[name]

    @property
    def cause(self) -> str:
        """The one line of an error."""
        return self.body.decode().strip()

    @property
    def instant(self) -> str:
        """The instant of a revision, in the service's own header; empty if there is none."""
        return self["Svc-Last-Modified"] or self["Orbeon-Last-Modified"] or ""

    def refuses(self, status: int, cause: str) -> bool:
        """Whether it has the status, and this in its line."""
        return self.status == status and cause in self.cause


@dataclass
class Service:
    """A running service; requests go to ``face`` with headers named for ``prefix``, and from the address ``source``.

    ``port`` is 0 of one that serves on a Unix socket. ``process`` is ``None`` of one in this process, which has no log.
    """

    port: int
    data: Path
    log: Path
    process: Process | None
    dialect: str = "svc"
    face: str = PUBLIC
    timeout: float = 30.0
    extra: dict[str, str] = field(default_factory=dict)
    source: str = ""

    @property
    def prefix(self) -> str:
        """What the service's own headers begin with."""
        return {"svc": "Svc-", "orbeon": "Orbeon-"}[self.dialect]

    @property
    def designer(self) -> str:
        """The designer's application."""
        return self.dialect

    @property
    def deleted(self) -> int:
        """The status of reading what was deleted."""
        return {"svc": 404, "orbeon": 410}[self.dialect]

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, **own: object
    ) -> Answer:
        """One request on a connection of its own; ``own`` headers get the prefix, ``_`` standing for ``-``."""
        return self.raw(method, f"{self.face}/crud/{path}", headers, body, **own)

    def own(self, headers: Mapping[str, object]) -> dict[str, str]:
        """Headers of the service: their names without its prefix, with underscores."""
        return {self.prefix + name.replace("_", "-"): str(value) for name, value in headers.items()}

    def raw(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None, **own: object
    ) -> Answer:
        """One request to any path of the server."""
        source = (self.source, 0) if self.source else None
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout, source_address=source)
        try:
            connection.request(method, path, body=body, headers={**self.extra, **(headers or {}), **self.own(own)})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def whole(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """One request that goes out in one piece, and the answer when the worker is done, whatever it does after it.

        Headers and body apart would be one ``recvfrom`` at one time and two at another.
        """
        fields = {"Host": "localhost", "Connection": "close", **headers, "Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        with socket.create_connection(("127.0.0.1", self.port), self.timeout) as connection:
            connection.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
            response = http.client.HTTPResponse(connection, method=method)
            response.begin()
            answer = Answer(response.status, response.headers, response.read())
            connection.recv(1)  # its end
            return answer

    def get(self, path: str, headers: Mapping[str, str] | None = None, **own: object) -> Answer:
        """GET."""
        return self.ask("GET", path, None, headers, **own)

    def head(self, path: str, headers: Mapping[str, str] | None = None, **own: object) -> Answer:
        """HEAD."""
        return self.ask("HEAD", path, None, headers, **own)

    def put(self, path: str, body: bytes = b"<d/>", headers: Mapping[str, str] | None = None, **own: object) -> Answer:
        """PUT."""
        return self.ask("PUT", path, body, {"Content-Type": "application/xml", **(headers or {})}, **own)

    def delete(self, path: str, headers: Mapping[str, str] | None = None, **own: object) -> Answer:
        """DELETE."""
        return self.ask("DELETE", path, None, headers, **own)

    def call(
        self,
        method: str,
        path: str,
        body: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **own: object,
    ) -> Answer:
        """One request to a path below that of the API, with XML if it has a body."""
        kind = {} if body is None else {"Content-Type": "application/xml"}
        sent = body.encode() if isinstance(body, str) else body
        return self.raw(method, f"{self.face}/{path.removeprefix('/')}", {**kind, **(headers or {})}, sent, **own)

    def post(self, path: str, body: str | bytes = b"", **own: object) -> Answer:
        """POST of XML."""
        return self.call("POST", path, body, **own)

    def publish(self, form: str, definition: bytes = b"<form/>", **own: object) -> Answer:
        """PUT of a form definition, which is accepted."""
        answer = self.put(f"{form}/form/form.xhtml", definition, **own)
        assert answer.status in (201, 204), answer.cause
        return answer

    def save(
        self, form: str, document: str = "D", body: bytes = b"<d/>", collection: str = "data", **own: object
    ) -> Answer:
        """PUT of data of version 1, unless it is said otherwise, which is accepted."""
        answer = self.put(f"{form}/{collection}/{document}/data.xml", body, **{**V1, **own})
        assert answer.status in (201, 204), answer.cause
        return answer

    def lock(
        self,
        path: str,
        user: str | None = "lea",
        timeout: str | None = "Second-600",
        group: str | None = "staff",
        *,
        headers: Mapping[str, str] | None = None,
        **own: object,
    ) -> Answer:
        """LOCK for a user that the body names, by one that the headers name."""
        sent = {"Content-Type": "application/xml"} | ({} if timeout is None else {"Timeout": timeout}) | (headers or {})
        return self.ask("LOCK", path, lockinfo(user, group), sent, **own)

    def unlock(
        self,
        path: str,
        user: str | None = "lea",
        group: str | None = "staff",
        *,
        headers: Mapping[str, str] | None = None,
        **own: object,
    ) -> Answer:
        """UNLOCK."""
        sent = {"Content-Type": "application/xml"} | (headers or {})
        return self.ask("UNLOCK", path, lockinfo(user, group), sent, **own)

    def workers(self) -> list[int]:
        """Process ids of the workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def leftovers(self) -> list[Path]:
        """Files that only a write in progress may have: temporary names and spooled bodies."""
        own = [path for name in (".spool", ".trash") for path in (self.data / name).rglob("*")]
        return own + [path for path in self.data.glob("*/*/*/*/.*") if path.name != ".history"]


def lockinfo(user: str | None = "lea", group: str | None = "staff") -> bytes:
    """The body of LOCK and UNLOCK."""
    names = "".join(
        f"<fr:{name}>{value}</fr:{name}>"
        for name, value in (("username", user), ("groupname", group))
        if value is not None
    )
    return (
        '<d:lockinfo xmlns:d="DAV:" xmlns:fr="http://orbeon.org/oxf/xml/form-runner">'
        "<d:lockscope><d:exclusive/></d:lockscope><d:locktype><d:write/></d:locktype>"
        f"<d:owner>{names}</d:owner></d:lockinfo>"
    ).encode()


is_proxied = False
"""Whether services are to have another one behind them, which has all their forms (``pytest --proxied``)."""


place_of: Callable[[Path], str] = str
"""Leads from a data directory to what services have in its place: a database (``pytest --postgresql``), or itself."""

prepare: Callable[[Path], object] = initialised
"""Makes what is in the place of a data directory ready to be served."""


def attachments_apart(provider: str, name: str, directory: Path) -> str:
    """Properties for a provider whose attachments are in a directory; none over a database, which refuses them."""
    directory.mkdir()
    if place_of is not str:
        return ""
    return (
        f'"svc.persistence.provider.{provider}.data.attachments" = "{name}"\n'
        f'"svc.persistence.{name}.base-path" = "{directory}"\n'
    )


def configured(directory: Path, settings: str | None, env: Mapping[str, str] | None) -> Mapping[str, str]:
    """The environment of a service that has a file with these settings in its directory, if any are given."""
    if settings is None:
        return env or {}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "settings.toml").write_text(settings)
    return {"PERSISTENCE_CONFIG": str(directory / "settings.toml"), **(env or {})}


@contextmanager
def running(
    directory: Path,
    *,
    dialect: str = "svc",
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    settings: str | None = None,
    **more: Any,
) -> Iterator[Service]:
    """A service as ``alone`` starts it; with another one behind it where tests are run so."""
    env = configured(directory, settings, env)
    if not is_proxied:
        with alone(directory, dialect=dialect, env=env, options=options, **more) as service:
            yield service
        return
    with pair(directory, dialect=dialect, env=env, options=options, **more) as (service, _):
        yield service


@contextmanager
def pair(
    directory: Path,
    *,
    dialect: str = "svc",
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    settings: str | None = None,
    **more: Any,
) -> Iterator[tuple[Service, Service]]:
    """A service to be asked through its public API, and the one behind it, whose data directory both show."""
    env = configured(directory, settings, env)
    own = dict(pairwise(options)).get("--config") or env.get("PERSISTENCE_CONFIG")
    with alone(directory / "behind", dialect=proxied.BEHIND, data=directory / "data") as behind:
        file = directory / "proxied.toml"
        file.write_text(proxied.settings(behind.port, dialect, directory / own if own else None))
        named = (*options, "--config", str(file)) if "--config" in options else options
        env, front = {**env, "PERSISTENCE_CONFIG": str(file)}, directory / "front"
        with alone(directory, dialect=dialect, env=env, options=named, data=front, **more) as service:
            service.face, service.data = PUBLIC, behind.data
            yield service, behind


@contextmanager
def alone(
    directory: Path,
    *,
    dialect: str = "svc",
    workers: int = 1,
    threads: int = 4,
    env: Mapping[str, str] | None = None,
    command: str = "serve",
    module: str = "persistence.cli",
    log: Path | None = None,
    bind: str = "127.0.0.1:0",
    options: Sequence[str] = (),
    settings: str | None = None,
    data: Path | None = None,
    app: str = "persistence.app:create_app()",
) -> Iterator[Service]:
    """A service with its data below ``directory``, for the length of a block; ``options`` are more of the command's.

    ``command`` is ``serve`` for the service's own, or ``gunicorn`` for gunicorn's with the example configuration,
    which serves ``app``.
    ``module`` is what is run to ``serve``; ``settings`` is the text of its file.
    """
    directory.mkdir(parents=True, exist_ok=True)
    env = configured(directory, settings, env)
    data, log = data or directory / "data", log or directory / "service.log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERSISTENCE_")}
    environment.update(env)
    size = ("--workers", str(workers), "--threads", str(threads))
    if command == "serve":
        own = ("--init", "--bind", bind, "--data", place_of(data), "--dialect", dialect)
        program, arguments = module, ["serve", *own, *size, *options]
    else:
        prepare(data)
        environment |= {"PERSISTENCE_DATA": place_of(data), "PERSISTENCE_DIALECT": dialect}
        own = ("--config", str(CONFIG / "gunicorn.conf.py"), "--bind", bind)
        program, arguments = "gunicorn", [*own, *size, *options, app]
    with log.open("wb") as output:
        stream = output.fileno()
        process = forkserver.start(program, arguments, cwd=directory, env=environment, stdout=stream, stderr=stream)
    try:
        yield Service(_port(process, log), data, log, process, dialect)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(process: Process, log: Path) -> int:
    deadline = time.monotonic() + _READY
    while time.monotonic() < deadline:
        text = log.read_bytes()
        listening = _LISTENING.search(text)
        if listening and b"Booting worker" in text:
            return int(listening[1] or 0)
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise RuntimeError(f"the service did not start:\n{log.read_text()}")
