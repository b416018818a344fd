"""Start Python programs by forking a process that has imported the service already: half of each start are imports.

A program started so is a process like any other, with arguments, environment, directory and streams of its own, and
without threads or open files of whoever starts it. It has the user and the groups as whom the caller works just then.
``start`` returns what ``subprocess.Popen`` would. A service that was started so lets the same fork server rebuild its
indexes, where that is wanted (``fork_rebuilds``).
"""

import atexit
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import gunicorn.config
import msgspec

from persistence.index.sync.rebuild import IndexJob
from tests import cheap

PROJECT = Path(__file__).parents[1]
_PRELOADED = (
    "gunicorn.app.base",
    "gunicorn.workers.gthread",
    "gunicorn.glogging",
    "http.client",
    "persistence.app",
    "persistence.wire",
    *(f"persistence.cli.{file.stem}" for file in (PROJECT / "persistence" / "cli").glob("[a-z]*.py")),
)
_OF_THE_INTERPRETER = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "COVERAGE")
"""Variables that count when an interpreter starts, so that a fork would not heed them."""

_METRICS = "PROMETHEUS_MULTIPROC_DIR"
"""Where the services in this process count. Others must not count there: what a killed one has left would stay."""

_MESSAGE = 1 << 20
_PID = 16
"""Bytes in which the fork server says the number of a process, before its status."""


class Forked:
    """A process that the fork server has started, with the part of the interface of ``Popen`` that tests use."""

    def __init__(self, pid: int, status: int, arguments: Sequence[str]) -> None:
        self.pid = pid
        self.args = list(arguments)
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status if the process has ended, else None."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit status."""
        status = self._wait(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return status

    def _wait(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None:
                with selectors.DefaultSelector() as selector:
                    selector.register(self._status, selectors.EVENT_READ)
                    if not selector.select(timeout):
                        return None
                said = os.read(self._status, 16)
                os.close(self._status)
                self.returncode = int(said) if said else -signal.SIGKILL
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        if self.returncode is None:
            os.close(self._status)


class _Asking:
    """The end of a socket that leads to the fork server; several processes may have the same."""

    def __init__(self, to_server: socket.socket) -> None:
        self._socket = to_server

    def start(self, program: dict[str, Any], *streams: int) -> Forked:
        ours, theirs = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps(program).encode()], [theirs, *streams])
        finally:
            os.close(theirs)
        answer = os.read(ours, _PID)
        if not answer:
            os.close(ours)
            raise RuntimeError("the fork server has ended")
        return Forked(int(answer), ours, program["arguments"])


class _Server(_Asking):
    """The fork server of this process, which ends with it."""

    def __init__(self) -> None:
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(own)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forkserver", str(other.fileno())],
                cwd=PROJECT,
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        atexit.register(self.close)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


_USER = os.geteuid()

_server: _Asking | None = None
_starting = threading.Lock()
_forks_rebuilds = False


def start(
    module: str,
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdout: int,
    stderr: int,
    stdin: int = subprocess.DEVNULL,
    held: Sequence[int] = (),
) -> Forked | subprocess.Popen[bytes]:
    """Run ``python -m module arguments``, by ``Popen`` where its environment is about the interpreter itself.

    What another user starts first is a ``Popen`` too: a fork server of that user could not serve this one.
    Open files that are ``held``, beside a ``stdin``, stay open in the process, such as that of a lock.
    """
    global _server  # noqa: PLW0603 - one for this process
    is_early = _server is None and os.geteuid() != _USER
    env = {name: text for name, text in env.items() if name != _METRICS}
    others = (name for name, text in env.items() if os.environ.get(name) != text)
    if is_early or any(name.startswith(_OF_THE_INTERPRETER) for name in others):
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=held,
        )
    with _starting:
        _server = _server or _Server()
    program = {"module": module, "arguments": list(arguments), "cwd": str(cwd), "env": dict(env), "umask": _umask()}
    program |= {"user": os.geteuid(), "group": os.getegid(), "groups": os.getgroups(), "rebuilds": _forks_rebuilds}
    return _server.start(program, stdout, stderr, *(() if stdin == subprocess.DEVNULL else (stdin,)), *held)


def run(
    module: str,
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m module arguments`` to its end, and return its status and what it has printed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        streams = {"stdout": out.fileno(), "stderr": errors.fileno()}
        process = start(module, arguments, cwd=cwd or Path.cwd(), env=env or os.environ, **streams)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess([module, *arguments], status, *texts)


def fork_rebuilds() -> None:
    """Let the indexes of services be rebuilt by forks: their imports take longer than what they do.

    That goes for services in this process, and for those that it starts by the fork server. Others start
    ``python -m persistence.index`` themselves, as real ones do: one is in ``tests/http/test_search.py``.
    """
    global _forks_rebuilds  # noqa: PLW0603 - as the server

    def begin(job: IndexJob) -> Forked | subprocess.Popen[bytes]:
        with tempfile.TemporaryFile() as given:
            given.write(msgspec.json.encode(job))
            given.seek(0)
            with open(os.devnull, "wb") as nowhere:
                streams = {"stdin": given.fileno(), "stdout": nowhere.fileno(), "stderr": 2}
                return start("persistence.index", (), cwd=Path.cwd(), env=os.environ, **streams)

    IndexJob.begin = begin  # type: ignore[assignment, method-assign]
    _forks_rebuilds = True


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


def _serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork for each request until the other end closes; in a forked process return its program, else None.

    Forked processes have an end, too, to ask by.
    """
    global _server  # noqa: PLW0603 - as above
    children: dict[int, tuple[int, int]] = {}
    of_children, from_children = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(from_children, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd in children:
                    selector.unregister(key.fd)
                    _report(key.fd, *children.pop(key.fd))
                    continue
                message, passed, _, _ = socket.recv_fds(key.fileobj, _MESSAGE, 5)  # type: ignore[arg-type]
                if not message:
                    return None
                becoming, become = os.pipe()
                pid = os.fork()
                if pid == 0:
                    selector.close()
                    from_children.detach()
                    _server = _Asking(of_children)
                    _become(json.loads(message), of_children.fileno(), *passed[1:])  # which closes the pipe, too
                    return dict(json.loads(message))
                status, *streams = passed
                for each in (become, *streams):
                    os.close(each)
                os.read(becoming, 1)  # only when it has its user may that one send it signals
                os.close(becoming)
                watched = os.pidfd_open(pid)
                children[watched] = (pid, status)
                selector.register(watched, selectors.EVENT_READ)
                with suppress(BrokenPipeError):  # a service that asked may have ended
                    os.write(status, f"{pid:{_PID}}".encode())


def _report(watched: int, pid: int, status: int) -> None:
    """Tell whoever started a process its exit status, in the sign that ``subprocess`` gives it."""
    os.close(watched)
    _, ended = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        os.write(status, str(os.waitstatus_to_exitcode(ended)).encode())
    os.close(status)


def _become(program: dict[str, Any], kept: int, stdout: int, stderr: int, stdin: int | None = None, *held: int) -> None:
    """Take on the streams, user, directory and environment of a program; of other open files few are kept."""
    if program["user"] != os.geteuid():
        os.setgroups(program["groups"])
        os.setresgid(*(program["group"],) * 3)
        os.setresuid(*(program["user"],) * 3)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    if stdin is not None:
        os.dup2(stdin, 0)
    for low, high in pairwise(sorted((2, kept, *held, 1024))):
        os.closerange(low + 1, high)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(program["umask"])
    os.chdir(program["cwd"])
    gunicorn.config.Chdir.default = program["cwd"]  # gunicorn takes the directory in which it was imported
    os.environ.clear()
    os.environ.update(program["env"])
    time.tzset()
    sys.argv = [program["module"], *program["arguments"]]


def main() -> None:
    """Be a fork server, and in each forked process the program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever is interrupted stops what it has started
    connection = socket.socket(fileno=int(sys.argv[1]))
    for module in _PRELOADED:
        import_module(module)
    cheap.leave_out()
    gc.collect()
    gc.freeze()
    program = _serve(connection)
    if program is None:
        return
    connection.detach()
    if program["rebuilds"]:
        fork_rebuilds()
    _run(program["module"])


def _run(module: str) -> None:
    """Run a module as a program, and end the process as the interpreter does, but for the objects that are left.

    To destroy them would touch, and so copy, every page that the process shares with the fork server.
    """
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ending:
        if not isinstance(ending.code, int | None):
            raise  # the interpreter prints it
        status = ending.code or 0
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits for threads, as the interpreter does
    atexit._run_exitfuncs()  # noqa: SLF001
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):
        sys.exit(status)  # the interpreter tells of it
    os._exit(status & 0xFF)


if __name__ == "__main__":
    import_module("tests.forkserver").main()  # of which forked processes ask, not of this one
