"""Settings with two trees and a directory of attachments, a service over them, and the commands."""

from collections.abc import Mapping
from pathlib import Path

from flask.testing import FlaskClient

from persistence.app import create_app
from persistence.providers.opened import init_places
from persistence.settings import load
from tests import orders
from tests.cli.command_runner import PREFIX, Command, Ended
from tests.opened import opened

CONFIG = """
data = "{0}/data"
keys = "{0}/keys.json"
encryption_keys = "{0}/encryption-keys.json"
"svc.persistence.provider.acme.*.data" = "orders"
"svc.persistence.orders.datasource" = "disk2"
"svc.persistence.provider.*.*.data.attachments" = "big"
"svc.persistence.big.base-path" = "{0}/big"
[datasource.disk2]
data = "{0}/disk2"
"""
BODY = b"<form><customer><name>Ann</name></customer></form>"
HERE, THERE = "hr/leave/data/H", "acme/order/data/D"
SCAN = "scan.bin"


class Several:
    """Below ``directory``: the trees ``data`` and ``disk2``, and ``big`` with the bodies of attachments.

    The form ``acme/order`` has its definition in the first tree and its data in the second, ``hr/leave`` is in the
    first.
    """

    def __init__(self, directory: Path, command: Command) -> None:
        self.directory = directory
        self.file = directory / "own.toml"
        self.file.write_text(CONFIG.format(directory))
        (directory / "big").mkdir()
        self._command = command
        effective = load(str(self.file), environment={})
        init_places(effective.settings, effective.properties)
        app = opened(create_app(effective.settings, effective.properties))
        self.client: FlaskClient = app.test_client()
        for form in ("acme/order", "hr/leave"):
            self.put(f"{form}/form/form.xhtml", orders.definition())
        for document in (HERE, THERE):
            self.put(f"{document}/data.xml", BODY)
            self.put(f"{document}/{SCAN}", b"first scan")
            self.put(f"{document}/{SCAN}", b"second scan")

    def put(self, path: str, body: bytes) -> None:
        """Store a resource."""
        answer = self.client.put(PREFIX + path, data=body, headers={"Svc-Form-Definition-Version": "1"})
        assert answer.status_code in {201, 204}, answer.text

    def run(self, *arguments: str, file: Path | None = None) -> Ended:
        """Run a command with the settings, or with others."""
        return self._command(*arguments, "--config", str(file or self.file))

    def settings_for(self, directory: Path) -> Path:
        """Return the same settings for another directory."""
        directory.mkdir()
        file = directory / "own.toml"
        file.write_text(CONFIG.format(directory))
        return file

    def body(self, document: str, base: str = "big") -> Path:
        """Return the body of the attachment of a document."""
        return self.directory / base / document / "1" / SCAN


def files_below(root: Path) -> Mapping[str, tuple[int, bytes]]:
    """Return the files of forms below a root by their paths, with time and bytes."""
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for app in ("acme", "hr")
        for path in (root / app).rglob("*")
        if path.is_file()
    }
