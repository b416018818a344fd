"""A real nginx for tests: ``config/nginx.conf`` itself, with only its lines marked EDIT made to fit the test."""

import grp
import os
import pwd
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path

from tests.service import Answer, Service, running

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
EXAMPLE = Path(__file__).parents[1] / "config" / "nginx.conf"
SMALL = 1000  # bytes: the largest body of the face without X-Accel-Redirect
LOCK_TIMEOUT = 0.2
THREADS = 2
_READY = 10.0
_OTHER_IN_EVERY_ANSWER = {"server", "date", "connection", "x-request-id"}
_MARKED = re.compile(r"^(?P<indent> *)(?P<name>[a-z_]+) .*# EDIT.*$", re.MULTILINE)


@dataclass(frozen=True)
class Faces:
    """One tree of forms: behind nginx that sends large contents, behind one that does not, and without nginx."""

    nginx: Service
    without_accel: Service
    direct: Service


@contextmanager
def faces(directory: Path, dialect: str) -> Iterator[Faces]:
    """The faces of a service that has few threads; the one without X-Accel-Redirect takes small bodies only."""
    settings = {
        "accel": {"PERSISTENCE_LOCK_TIMEOUT": str(LOCK_TIMEOUT), "PERSISTENCE_ACCEL_REDIRECT": "/protected"},
        "plain": {"PERSISTENCE_MAX_BODY": str(SMALL)},
    }
    (directory / "plain").mkdir()
    (directory / "accel" / "data").mkdir(parents=True)
    (directory / "plain" / "data").symlink_to(directory / "accel" / "data")
    with ExitStack() as stack:
        direct, plain = (
            stack.enter_context(
                running(directory / name, dialect=dialect, threads=THREADS, command="gunicorn", env=env)
            )
            for name, env in settings.items()
        )
        yield Faces(
            nginx=stack.enter_context(in_front_of(direct, directory / "nginx")),
            without_accel=stack.enter_context(in_front_of(plain, directory / "nginx-plain")),
            direct=direct,
        )


def seen(answer: Answer) -> tuple[int, list[tuple[str, str]], bytes]:
    """What must be the same through every API: status, every header with every value, body."""
    fields = [(name.lower(), value) for name, value in answer.headers.items()]
    fields = [field for field in fields if field[0] not in _OTHER_IN_EVERY_ANSWER]
    return answer.status, sorted(fields), answer.body


@contextmanager
def in_front_of(service: Service, directory: Path, **edits: str) -> Iterator[Service]:
    """The service as it looks through an nginx of its own; ``edits`` are other values for lines marked EDIT."""
    directory.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        configuration = _write(directory, {**_values(directory, port, service), **edits})
        process = start([listener], configuration)
    face = replace(service, port=port, log=directory / "error.log", process=process)
    try:
        wait_until_ready(face)
        yield face
    finally:
        stop(process)


def user_line() -> str:
    """The directive ``user`` with the user of the tests."""
    return f"user {pwd.getpwuid(os.geteuid()).pw_name} {grp.getgrgid(os.getegid()).gr_name};"


def _values(directory: Path, port: int, service: Service) -> dict[str, str]:
    """What the marked lines say in a test."""
    # The other paths that nginx makes at its start are not used by the example, and not everyone may make them.
    unused = "".join(f" {name}_temp_path {directory}/{name};" for name in ("fastcgi", "uwsgi", "scgi"))
    return {
        "user": user_line().removeprefix("user "),
        "pid": f"{directory}/nginx.pid;",
        "error_log": f"{directory}/error.log info;",
        "server": f"127.0.0.1:{service.port};",
        "access_log": f"{directory}/access.log requests;",
        "client_body_temp_path": f"{directory}/body;",
        "proxy_temp_path": f"{directory}/proxy;{unused}",
        "listen": f"127.0.0.1:{port};",
        "allow": "127.0.0.1;",
        "alias": f"{service.data}/.serve/;",
    }


def _write(directory: Path, values: dict[str, str]) -> Path:
    """Write the example with its marked lines replaced: every one of them, and nothing else."""
    example = EXAMPLE.read_text()
    marked = sorted(line["name"] for line in _MARKED.finditer(example))
    if marked != sorted(values):
        raise ValueError(f"the example marks {marked}, the tests know {sorted(values)}")
    path = directory / "nginx.conf"
    path.write_text(_MARKED.sub(lambda line: f"{line['indent']}{line['name']} {values[line['name']]}", example))
    return path


def start(listeners: Sequence[socket.socket], configuration: Path) -> subprocess.Popen[bytes]:
    """Start nginx in the foreground on sockets that are open already, so that no one can take their ports first."""
    if NGINX is None:
        raise RuntimeError("nginx is not installed")
    for listener in listeners:
        listener.set_inheritable(True)
        listener.setblocking(False)  # nginx leaves an inherited socket as it is, and its workers race to accept
    return subprocess.Popen(
        [NGINX, "-e", str(configuration.with_name("error.log")), "-c", str(configuration), "-g", "daemon off;"],
        env={**os.environ, "NGINX": "".join(f"{listener.fileno()};" for listener in listeners)},
        pass_fds=[listener.fileno() for listener in listeners],
        cwd=configuration.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """End an nginx."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until_ready(face: Service) -> None:
    deadline = time.monotonic() + _READY
    while time.monotonic() < deadline and face.process.poll() is None:
        with suppress(OSError, HTTPException):
            face.raw("GET", "/healthz")
            return
        time.sleep(0.02)
    raise RuntimeError(f"nginx did not start:\n{face.log.read_text()}")
