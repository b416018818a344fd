"""A service in the process of a test: gunicorn's own code for connections on a port, without gunicorn's processes.

Requests cross a real socket and are parsed and answered by gunicorn's worker, so status, headers and body are those of
a real service. What differs: there is one process, which the tests share with the service, no log and no signals.
Tests of processes, logs, signals, memory and of several workers take ``tests.service.running`` instead.
"""

import os
import selectors
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from http.client import HTTPMessage
from itertools import pairwise
from pathlib import Path

from gunicorn.glogging import Logger
from gunicorn.workers.gthread import ThreadWorker
from werkzeug.test import Client

from persistence import settings as configuration
from persistence.app import create_app, wired
from persistence.cli.serve import Served, Server
from persistence.closable import Closable
from persistence.providers.opened import init_places, open_store
from persistence.settings import Settings
from persistence.storage.layout import EVENTS
from tests import service as services
from tests.service import PROVIDER, Answer, Service


@contextmanager
def serving(
    directory: Path,
    *,
    dialect: str = "svc",
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    settings: str | None = None,
    data: Path | None = None,
    place: str | None = None,
    alone: bool = False,
) -> Iterator[Service]:
    """A service with its data below ``directory``, for the length of a block, as ``running`` starts it.

    ``place`` is what it has in the place of that, if it is a database. Of ``options`` there is ``--config``;
    ``settings`` is the text of its file. With ``--proxied`` it is started by ``running``, unless it is to be ``alone``.
    """
    env = services.configured(directory, settings, env)
    if services.is_proxied and not alone:
        with services.running(directory, dialect=dialect, env=env, options=options) as service:
            yield service
        return
    directory.mkdir(parents=True, exist_ok=True)
    data = data or directory / "data"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERSISTENCE_")}
    flags = {
        "data": place or services.place_of(data),
        "dialect": dialect,
        "bind": "127.0.0.1:0",
        "workers": 1,
        "threads": 4,
    }
    with chdir(directory):
        file = dict(pairwise(options)).get("--config")
        effective = configuration.load(file, flags, {**environment, **env})
    init_places(effective.settings, effective.properties)
    settled = Served.of(effective)
    with wired(settled.effective, settled.policy) as app, _working(settled, app) as port:
        _ports.add(port)
        try:
            yield Service(port, data, directory / "service.log", None, dialect)
        finally:
            _ports.discard(port)


def is_serving() -> bool:
    """Return whether a service is there, which has threads."""
    return bool(_ports)


_ports: set[int] = set()
"""The ports of the services that are there."""


@contextmanager
def _working(settled: Served, app: object) -> Iterator[int]:
    """Let gunicorn's worker serve an application in a thread, and yield its port."""
    cfg = Server(settled, lambda: settled).cfg
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as gunicorn does
    worker = ThreadWorker(0, os.getppid(), [listening], None, 0, cfg, _Silent(cfg))
    worker.wsgi = app
    # As ``init_process``, which would also take over the signals of the process.
    worker.tpool, worker.poller = worker.get_thread_pool(), selectors.DefaultSelector()
    worker.method_queue.init()
    running = threading.Thread(target=worker.run, name="worker", daemon=True)
    running.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        worker.handle_exit(None, None)
        running.join()
        worker.tpool.shutdown()
        worker.tmp.close()


class _Silent(Logger):  # type: ignore[misc]  # gunicorn ships no annotations
    """gunicorn's log, which goes nowhere."""

    def setup(self, cfg: object) -> None:
        """Leave the loggers of the process as they are."""


class InProcess(Service, Closable):
    """Tried out and started on a data directory as ``persistence serve`` does it; ``refusal`` is why it only reads."""

    def __init__(self, data: Path) -> None:
        super().__init__(0, data, data.with_name("none.log"), None, face=PROVIDER)
        self.has_events = (data / EVENTS).exists()
        # Requests that are made here come from no address.
        settings = Settings(data=str(data), insecure=True, events=self.has_events, administrators=("trusted",))
        with open_store(settings, settings.data) as store:
            self.refusal = store.probe()
        self._app = create_app(settings)
        self._client = Client(self._app)

    def close(self) -> None:
        self._app.close()

    def raw(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None, **own: object
    ) -> Answer:
        sent = {**(headers or {}), **self.own(own)}
        response = self._client.open(path, method=method, data=body, headers=[*sent.items()], buffered=True)
        fields = HTTPMessage()
        for name, value in response.headers:
            fields[name] = value
        return Answer(response.status_code, fields, response.get_data())

    def whole(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        return self.raw(method, path, headers, body)
