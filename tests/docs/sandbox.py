"""A shell for the examples of a page, with a directory of its own and the ``persistence`` command.

What the pages call ``127.0.0.1:8080``, ``/srv/``, ``/var/lib/``, ``/mnt/``, ``/backups/`` and ``/tmp/`` is the service
and the directory of the test. The command is the real one; a fork server starts it, to save its imports.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests import forkserver
from tests.docs.markdown import Block

_COMMAND = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as caller:
    caller.connect({address!r})
    called = {{"arguments": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}}
    socket.send_fds(caller, [json.dumps(called).encode()], [0, 1, 2])
    sys.exit(int(caller.recv(16)))
"""
_BIN = "srv/persistence/.venv/bin"
_LONGEST = 1 << 20
_SERVES = re.compile(r"(?m)\A(?:\S*bin/)?persistence serve( .*)?\n\Z")
_SECONDS = 60.0


class Sandbox:
    """A running shell; ``home`` is its directory, and what pages call ``/var/lib/persistence``."""

    def __init__(self, directory: Path, port: int, environment: Mapping[str, str]) -> None:
        self._directory, self._port = directory, port
        self.home = home_of(directory)
        self._errors = directory / "errors"
        self._environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("PERSISTENCE_")},
            "PATH": f"{directory / _BIN}:{os.environ['PATH']}",
            "HOME": str(self.home),
            **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "mia"),
            **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "mia@example.org"),
            **environment,
        }
        with self._errors.open("wb") as errors:
            self._shell = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-s"],
                cwd=self.home,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def close(self) -> None:
        """End the shell."""
        self._shell.stdin.close()
        try:
            self._shell.wait(10)
        except subprocess.TimeoutExpired:
            self._shell.kill()
            self._shell.wait()
        self._shell.stdout.close()

    def run(self, block: Block) -> str:
        """Return what a block prints; of a ``console`` block also what goes to standard error.

        Raises:
            AssertionError: a command fails. In a ``console`` block it may: its output says why.
        """
        text = self._here(block.text)
        serves = _SERVES.fullmatch(text)
        if serves is not None:
            return self._serve((serves[1] or "").split())
        if block.language == "console":
            commands = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
            text = "\n".join(f"{{ {command}\n}} 2>&1 || true" for command in commands)
        return self.script(text, f"{block.page}:{block.line}")

    def script(self, text: str, name: str) -> str:
        """Return what commands print.

        Raises:
            AssertionError: one of them fails.
        """
        file = self._directory / "block.sh"
        file.write_text(text + "\n")
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"source {file} </dev/null; printf '\\036'\n".encode())
        self._shell.stdin.flush()
        printed = bytearray()
        while (piece := self._shell.stdout.read1()) and not piece.endswith(b"\x1e"):
            printed += piece
        output = (bytes(printed) + piece).removesuffix(b"\x1e").decode()
        assert piece, f"{name} failed:\n{text}\n{output}\n{self._errors.read_text()}"
        return output

    def shown(self, text: str) -> str:
        """Return a text as the pages would show it: with their directories."""
        return text.replace(str(self.home), "/var/lib/persistence").replace(f"{self._directory}/", "/")

    def _here(self, text: str) -> str:
        """Return commands with the service and the directories of the test."""
        text = text.replace("127.0.0.1:8080", f"127.0.0.1:{self._port}")
        text = re.sub(r"(?m)^\.venv/bin/", f"/{_BIN}/", text)
        return re.sub(r"(?<![\w.])/(srv|var/lib|backups|tmp|mnt)/", rf"{self._directory}/\1/", text)

    def _serve(self, arguments: list[str]) -> str:
        """Start a service of the page on any port, stop it when it listens, and return what it said."""
        log = self._directory / "serve.log"
        with log.open("wb") as output:
            process = forkserver.start(
                "persistence.cli",
                ["serve", *arguments, "--bind", "127.0.0.1:0", "--workers", "1"],
                cwd=self.home,
                env=dict(pair.split("=", 1) for pair in self.script("env -0", "its environment").split("\0") if pair),
                stdout=output.fileno(),
                stderr=output.fileno(),
            )
        ends = time.monotonic() + _SECONDS
        while "Booting worker" not in log.read_text() and process.poll() is None and time.monotonic() < ends:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(_SECONDS) == 0, log.read_text()
        return log.read_text()


def statuses(output: str) -> list[str]:
    """Return the statuses of the responses that ``curl -i`` prints."""
    return re.findall(r"HTTP/1.1 (\d+) ", output)


def home_of(directory: Path) -> Path:
    """Return the directory that pages call /var/lib/persistence."""
    return directory / "var/lib/persistence"


@contextmanager
def shell(directory: Path, port: int, environment: Mapping[str, str] | None = None) -> Iterator[Sandbox]:
    """A shell with the command, for the length of a block; the service at ``port`` has its data in ``home``."""
    home = home_of(directory)
    for path in (home, *(directory / name for name in (_BIN, "tmp", "backups", "mnt"))):
        path.mkdir(parents=True, exist_ok=True)
    address = str(directory / "command.socket")
    command = directory / _BIN / "persistence"
    command.write_text(_COMMAND.format(python=sys.executable, address=address))
    command.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        threading.Thread(target=_answer, args=[listening], name="commands", daemon=True).start()
        sandbox = Sandbox(directory, port, environment or {})
        try:
            yield sandbox
        finally:
            sandbox.close()
            listening.shutdown(socket.SHUT_RDWR)


def _answer(listening: socket.socket) -> None:
    """Run the command for each caller, one after the other, until nobody listens any more."""
    while True:
        try:
            caller, _ = listening.accept()
        except OSError:
            return
        with caller:
            message, streams, _, _ = socket.recv_fds(caller, _LONGEST, 3)
            called = json.loads(message)
            stdin, stdout, stderr = streams
            process = forkserver.start(
                "persistence.cli",
                called["arguments"],
                cwd=Path(called["cwd"]),
                env=called["env"],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
            )
            for stream in streams:
                os.close(stream)
            caller.send(str(process.wait(_SECONDS)).encode())
