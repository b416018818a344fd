"""A sample tree with one of everything, the service on it, and the command that maintains it."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from click.testing import CliRunner
from flask.testing import FlaskClient

from persistence.app import Service, create_app
from persistence.cli import commands
from persistence.closable import Closable
from persistence.settings import Settings
from persistence.storage.layout import CHECKED, INDEX, LEASE, LOCKS
from tests.initialised import initialised
from tests.opened import close, opened

DOCUMENT = "app/form/data/document"
ATTACHMENT = f"{DOCUMENT}/scan.bin"
DATA = f"{DOCUMENT}/data.xml"
DELETED = "app/form/data/deleted/data.xml"
DRAFT = "app/form/draft/draft/data.xml"
FORM = "app/form/form/1/form.xhtml"

OLD, NEW = b"<d>old</d>", b"<d>new, and longer</d>"
_OWN = {LOCKS, INDEX}
_HEADERS = (
    *("Content-Type", "ETag", "Svc-Created", "Svc-Last-Modified", "Svc-Username", "Svc-Group", "Svc-Workflow-Stage"),
    *("Svc-Last-Modified-By-Username", "Svc-Form-Definition-Version", "Svc-Operations", "Svc-Hash-Value"),
)
XHTML = b'<html xmlns="http://www.w3.org/1999/xhtml"><head/></html>'


@dataclass(frozen=True)
class Checked:
    status: int
    findings: list[dict[str, str]]
    summary: dict[str, int]

    @property
    def kinds(self) -> list[tuple[str, str]]:
        return [(finding["kind"], finding["path"]) for finding in self.findings]


class Workshop(Closable):
    """A tree with the service in this process; paths are those of files below the root."""

    def __init__(self, root: Path, verify: str = "size") -> None:
        self.root = root
        self._verify = verify
        self._app: Service | None = None

    def close(self) -> None:
        if self._app is not None:
            close(self._app)
            self._app = None
            del self.client

    @cached_property
    def client(self) -> FlaskClient:
        self._app = opened(create_app(Settings(data=initialised(self.root), verify=self._verify)))
        return self._app.test_client()

    def put(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> str:
        answer = self.client.put(_url(path), data=body, headers={"Svc-Form-Definition-Version": "1", **(headers or {})})
        assert answer.status_code in {201, 204}, answer.text
        return str(answer.headers["ETag"])

    def try_put(self, path: str, body: bytes) -> int:
        return self.client.put(_url(path), data=body, headers={"Svc-Form-Definition-Version": "1"}).status_code

    def delete(self, path: str) -> None:
        assert self.client.delete(_url(path)).status_code == 204

    def get(self, path: str, instant: str = "") -> tuple[int, bytes]:
        query = {"last-modified-time": instant} if instant else {}
        answer = self.client.get(_url(path), query_string=query)
        return answer.status_code, answer.data if answer.status_code == 200 else b""

    def head(self, path: str) -> Mapping[str, str]:
        return self.client.get(_url(path)).headers

    def view(self, path: str, instant: str = "") -> tuple[int, Mapping[str, str | None], bytes]:
        """Return the status, and if it is 200 the headers of the resource and the body, as its owner sees it."""
        query = {"last-modified-time": instant} if instant else {}
        answer = self.client.get(_url(path), query_string=query, headers={"Svc-Username": "lea", "Svc-Group": "staff"})
        if answer.status_code != 200:
            return answer.status_code, {}, b""
        return 200, {name: answer.headers.get(name) for name in _HEADERS}, answer.data

    def check(self, *arguments: str) -> Checked:
        done = CliRunner().invoke(commands, ["check", "--data", str(self.root), "--json", *arguments])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines, done.stderr
        return Checked(done.exit_code, lines[:-1], lines[-1])

    def file(self, path: str) -> Path:
        return self.root / path

    def sidecar(self, path: str) -> dict[str, object]:
        text: dict[str, object] = json.loads(self.file(f"{path}.json").read_text())
        return text

    def history(self, path: str) -> list[Path]:
        content = self.file(path)
        return sorted((content.parent / ".history").glob(f"*.{content.name}"))

    def contents(self) -> set[str]:
        """Return the digests of all contents in the tree, also those in the quarantine."""
        return {
            hashlib.sha256(path.read_bytes()).hexdigest()
            for path in self.root.rglob("*")
            if path.is_file() and not path.name.endswith((".json", ".jsonl")) and not _OWN & set(path.parts)
        }

    def state(self) -> dict[str, tuple[int, int, bytes]]:
        """Return every file with mode, time and bytes, except the index and the lease, which the service updates."""
        return {
            str(path.relative_to(self.root)): (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes())
            for path in self.root.rglob("*")
            if path.is_file() and path.name != CHECKED and INDEX not in path.parts and path != self.root / LEASE
        }


def furnished(root: Path) -> Workshop:
    """Make a published form, a document with an attachment and an older revision, a deleted document, and a draft."""
    return made(root, _furnish)


def made(root: Path, fill: Callable[..., None], *arguments: str) -> Workshop:
    """Fill a tree that is there, or copy one that was filled so, which takes a tenth of the time."""
    os.umask(0o027)
    workshop = Workshop(root)
    if root.exists():
        fill(workshop, *arguments)
    else:
        copy_tree(_template(fill, *arguments), root)
    return workshop


@cache
def _template(fill: Callable[..., None], *arguments: str) -> Path:
    with Workshop(temporary() / "data") as workshop:
        fill(workshop, *arguments)
        return workshop.root


def temporary() -> Path:
    directory = tempfile.TemporaryDirectory()
    atexit.register(directory.cleanup)
    return Path(directory.name)


def copy_tree(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def _furnish(workshop: Workshop) -> None:
    workshop.put(FORM, XHTML)
    workshop.put(DATA, OLD, {"Svc-Username": "lea"})
    workshop.put(ATTACHMENT, b"scanned", {"Content-Type": "image/png"})
    workshop.put(DATA, NEW, {"Svc-Workflow-Stage": "started"})
    workshop.put(DELETED, b"<d>gone</d>")
    workshop.delete(DELETED)
    workshop.put(DRAFT, b"<d>draft</d>")


def _url(path: str) -> str:
    return f"/crud/{path.replace('/form/1/', '/form/')}"
