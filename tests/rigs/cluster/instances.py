"""Two instances of the service, which share nothing but the database, behind HAProxy as ``config/cluster`` has it.

The load are the clients of the model, through the balancer; they note when it cut them off.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path

from tests.postgresql.server import free_port
from tests.rig_service import ENVIRONMENT
from tests.rigs.clients import SEALED, Client, content
from tests.rigs.cluster.database import which
from tests.rigs.ledger import FORM, Ledger, Resource
from tests.rigs.server import Line, NoAnswerError, Variant
from tests.service import Answer, Service

EXAMPLE = Path(__file__).parents[3] / "config/cluster/haproxy.cfg"
_STARTING = 60.0


class Instance:
    def __init__(self, name: str, directory: Path, uri: str, variant: Variant) -> None:
        self.name = name
        self.port = free_port()
        self._log = directory / f"{name}.log"
        local = directory / name
        local.mkdir()
        self._command = (sys.executable, "-m", variant.module, "serve", "--bind", f"127.0.0.1:{self.port}", "--init")
        own = {name: value for name, value in os.environ.items() if not name.startswith("PERSISTENCE_")}
        place = {"PERSISTENCE_DATA": uri, "PERSISTENCE_LOCAL": str(local)}
        self._environment = {**own, **ENVIRONMENT, **variant.environment, **place}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=output, stderr=output, start_new_session=True
            )

    def await_ready(self) -> None:
        await_ready(self.port, self._log)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, how)
            self._process.wait()


class Balancer:
    def __init__(self, first: Instance, second: Instance, directory: Path) -> None:
        self.port = free_port()
        self._socket = directory / "haproxy.sock"
        self._names = {first: "a", second: "b"}
        places = {
            "ADMIN": str(self._socket),
            "BIND": f"127.0.0.1:{self.port}",
            "NODE_A": f"127.0.0.1:{first.port}",
            "NODE_B": f"127.0.0.1:{second.port}",
        }
        log = directory / "haproxy.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [which("haproxy") or "haproxy", "-db", "-f", str(EXAMPLE)],
                env={**os.environ, **places},
                stdout=output,
                stderr=output,
            )
        await_ready(self.port, log)

    def take_out(self, instance: Instance) -> None:
        """Give no requests to an instance any more; return when it has answered those that it had."""
        self._tell(f"set server service/{self._names[instance]} state drain")
        deadline = time.monotonic() + _STARTING
        while self._has_requests(instance) and time.monotonic() < deadline:
            time.sleep(0.1)

    def put_back(self, instance: Instance) -> None:
        self._tell(f"set server service/{self._names[instance]} state ready")

    def _has_requests(self, instance: Instance) -> bool:
        head, *rows = self._tell("show stat").splitlines()
        fields = [dict(zip(head.split(","), row.split(","), strict=False)) for row in rows if row]
        of_service = [row for row in fields if row["# pxname"] == "service"]
        return any(row["svname"] == self._names[instance] and row["scur"] != "0" for row in of_service)

    def _tell(self, line: str) -> str:
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self._socket))
            admin.sendall(f"{line}\n".encode())
            return b"".join(iter(lambda: admin.recv(1 << 16), b"")).decode()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def await_ready(port: int, log: Path) -> None:
    deadline = time.monotonic() + _STARTING
    while not is_ready(port):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{log.stem} is not ready:\n{log.read_text()[-3000:]}")
        time.sleep(0.1)


def is_ready(port: int) -> bool:
    try:
        return service_at(port).raw("GET", "/readyz").status == 200
    except (OSError, HTTPException):
        return False


_PATIENCE = 75.0
_LONGEST_OUTAGE = 150.0
_PAUSE = 0.04
_AWAY = 0.2
_SETTLING = 2.0
"""Seconds after a write of unknown outcome: then it is done, or never will be, in a database that goes on."""

_MOST_LARGE = 900_000
"""Bytes in one document of fifty: larger than what the database has in its row."""

_CUT = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
_READING = ("GET", "HEAD", "POST")


def service_at(port: int) -> Service:
    return Service(port, Path(), Path(), None, timeout=_PATIENCE)


class BalancedLine(Line):
    """Requests through the balancer; what it, or an instance without its database, answers does not say what happened.

    ``written`` is when each write was acknowledged, and ``unanswered`` when a request was not, by the monotonic clock.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(lambda: service)
        self.written: list[float] = []
        self.unanswered: list[float] = []
        self.statuses: Counter[tuple[str, str]] = Counter()
        self._answered = time.monotonic()

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, **own: object
    ) -> Answer | None:
        answer = None
        try:
            answer = self._service().raw(method, path, headers, body, **own)
            status = str(answer.status)
        except TimeoutError as error:
            raise NoAnswerError(f"{method} {path} is not answered for {_PATIENCE:g} seconds") from error
        except (OSError, HTTPException) as error:
            status = type(error).__name__
        now = time.monotonic()
        self.statuses[method, status] += 1
        if answer is not None and answer.status not in _CUT:
            self._answered = now
            if method not in _READING and answer.status < HTTPStatus.BAD_REQUEST:
                self.written.append(now)
            return answer
        self.unanswered.append(now)
        if now > self._answered + _LONGEST_OUTAGE:
            raise NoAnswerError(f"{method} {path} is not answered for {_LONGEST_OUTAGE:g} seconds: {status}")
        if method in _READING:
            time.sleep(_AWAY)
        else:
            self.unknown += 1
            time.sleep(_SETTLING)
        return None


class BalancedClient(Client):
    """A client of the model: one that publishes once and encrypts nothing, which is no matter of a cluster."""

    def __init__(self, port: int, ledger: Ledger, number: int) -> None:
        service = service_at(port)
        super().__init__(lambda: service, ledger, number)
        self.line: BalancedLine = BalancedLine(service)
        del self._actions[self.publish]

    def act(self) -> None:
        try:
            super().act()
        except NoAnswerError as error:
            self.violations.append(str(error))
        time.sleep(self._rng.uniform(0, 2 * _PAUSE))

    def _content(self, resource: Resource, token: str) -> bytes:
        if self._rng.random() < 0.02:
            return content(resource, token, self._word, "f" * self._rng.randrange(_MOST_LARGE))
        return super()._content(resource, token)

    def _names(self) -> tuple[str, str]:
        form, document = super()._names()
        return (FORM if form == SEALED else form), document
