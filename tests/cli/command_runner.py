"""A service in this process with forms, and the commands that report on them."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest
from click.testing import CliRunner, Result
from flask.testing import FlaskClient

from persistence.app import create_app
from persistence.cli import commands, main
from persistence.settings import Settings
from persistence.storage.layout import INDEX
from tests.initialised import initialised
from tests.opened import opened

PREFIX = "/fr/service/persistence/crud/"


class Ended(NamedTuple):
    """The result of a command: its status, and its output on either stream."""

    status: int
    out: str
    errors: list[str]


Command = Callable[..., Ended]


def ended(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ended:
    """Run the service's command to its end in this process, as its entry point does."""
    monkeypatch.setattr(sys, "argv", ["persistence", *arguments])
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_:
        main()
    said = capsys.readouterr()
    return Ended(int(exit_.value.code or 0), said.out, said.err.splitlines())


class Place:
    """A data directory; paths are those of the URL, unescaped, below the prefix."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.client: FlaskClient = opened(create_app(Settings(data=initialised(root)))).test_client()

    def put(self, path: str, body: bytes = b"<d/>", version: int | str = 1, **headers: str) -> None:
        """Store a resource; ``headers`` of the service's own, with ``_`` for ``-``, and ``Content_Type``."""
        own = {("" if name == "Content_Type" else "Svc-") + name.replace("_", "-"): headers[name] for name in headers}
        own |= {"Svc-Form-Definition-Version": str(version)}
        answer = self.client.put(PREFIX + quote(path), data=body, headers=own, query_string={"valid": "true"})
        assert answer.status_code in {201, 204}, answer.text

    def delete(self, path: str, version: int = 1, user: str = "zoe") -> None:
        """Delete a resource."""
        own = {"Svc-Form-Definition-Version": str(version), "Svc-Username": user}
        assert self.client.delete(PREFIX + quote(path), headers=own).status_code == 204

    def run(self, *arguments: str) -> Result:
        """Run a command on the tree; domain errors are its exception."""
        return CliRunner().invoke(commands, [*arguments, "--data", str(self.root)])

    def lines(self, *arguments: str, status: int = 0) -> list[str]:
        """Return the output of a command, stripped and with one blank between columns."""
        done = self.run(*arguments)
        assert done.exit_code == status, (done.output, done.exception)
        return [" ".join(line.split()) for line in done.stdout.splitlines()]

    def instant(self, path: str, version: int | None = None) -> str:
        """Return the instant at which a file was stored last; of a definition, by version or of the latest."""
        headers = {} if version is None else {"Svc-Form-Definition-Version": str(version)}
        return str(self.client.get(PREFIX + quote(path), headers=headers).headers["Svc-Last-Modified"])

    def everything(self) -> Mapping[str, tuple[int, int, int]]:
        """All there is in the tree, directories too, with mode, time and inode: to see that nothing was changed.

        But for the index, which the service keeps up to date meanwhile.
        """
        paths = [self.root, *(path for path in self.root.rglob("*") if INDEX not in path.parts)]
        states = {str(path): os.stat(path) for path in paths}
        return {path: (state.st_mode, state.st_mtime_ns, state.st_ino) for path, state in states.items()}
