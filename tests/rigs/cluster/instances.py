"""Two instances of the service, which share nothing but the database, behind HAProxy as ``config/cluster`` has it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from tests.postgresql.server import free_port
from tests.rig_service import ENVIRONMENT
from tests.rigs.cluster.database import which
from tests.rigs.cluster.load import service_at
from tests.rigs.server import Variant

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
