"""A service in this process with an administrator, and a browser of sorts that has cookies and reads pages."""

import re
from dataclasses import dataclass
from html import unescape
from pathlib import Path

from flask.testing import FlaskClient
from lxml import html
from msgspec.structs import replace
from werkzeug.test import TestResponse

from persistence.app import create_app
from persistence.keys import Keys
from persistence.properties.properties import Properties
from persistence.settings import Settings
from tests import service as services
from tests.opened import opened

NAME, PASSWORD = "ada", "correct horse battery staple"
CRUD = "/fr/service/persistence/crud"
PEER = {"REMOTE_ADDR": "127.0.0.1"}


def settings(directory: Path, **own: object) -> Settings:
    """Return the settings of a service with all its files below a directory."""
    services.prepare(directory / "data")
    given = Settings(
        data=services.place_of(directory / "data"),
        local=str(directory / "local"),
        keys=str(directory / "keys.json"),
        encryption_keys=str(directory / "encryption-keys.json"),
        audit_file=str(directory / "audit/audit.jsonl"),
    )
    return replace(given, **own)


def keys_of(given: Settings) -> Keys:
    """Return the keys of a service."""
    return Keys(given.keys, tree=given.home)


@dataclass
class Browser:
    """A client with cookies, which sends what a form on the page has."""

    client: FlaskClient
    page: TestResponse | None = None
    given: Settings | None = None
    secret: str = ""

    def get(self, path: str, **options: object) -> TestResponse:
        """Ask for a page."""
        self.page = self.client.get(path, environ_base=PEER, **options)  # type: ignore[arg-type]  # as Flask's
        return self.page

    def shows(self, path: str, *texts: str, **options: object) -> None:
        """Ask for a page that has these texts."""
        self.get(path, **options)
        assert [each for each in texts if each not in self.text] == [], self.text

    def post(self, path: str, values: dict[str, str], **options: object) -> TestResponse:
        """Send values."""
        self.page = self.client.post(path, data=values, environ_base=PEER, **options)  # type: ignore[arg-type]
        return self.page

    def crud(
        self, method: str, path: str, body: bytes = b"", kind: str = "application/xml", **own: str
    ) -> TestResponse:
        """Send a request as a form runtime does, with the key of the administrator and ``own`` headers."""
        headers = {f"Svc-{name.replace('_', '-')}": text for name, text in own.items()}
        headers |= {"Authorization": f"Bearer {self.secret}"} if self.secret else {}
        headers |= {} if "/form/" in path else {"Svc-Form-Definition-Version": "1"}
        return self.client.open(
            f"{CRUD}/{path}", method=method, data=body, content_type=kind, headers=headers, environ_base=PEER
        )

    def log_in(self, name: str = NAME, secret: str = PASSWORD) -> TestResponse:
        """Log in; the answer leads on if that went well."""
        return self.post("/admin/login", {"name": name, "secret": secret})

    def send(self, action: str = "", **own: str) -> TestResponse:
        """Send the form of the page that has an action, with its hidden values and ``own`` ones."""
        tree = html.fromstring(self.page.text)
        form = next(each for each in tree.forms if action in (each.action or "") and each.method == "POST")
        if "logout" in (form.action or "") and not action:
            form = next(each for each in tree.forms if each.method == "POST" and "logout" not in (each.action or ""))
        values = {name: value or "" for name, value in form.form_values()}
        return self.post(form.action or self.page.request.path, {**values, **own})

    def follow(self) -> TestResponse:
        """Ask for the page to which the last answer leads."""
        return self.get(self.page.headers["Location"])

    def do(self, path: str) -> TestResponse:
        """Ask for an action, confirm it, and look at the page to which it leads."""
        assert self.get(path).status_code == 200, self.text
        answer = self.send()
        return answer if answer.status_code == 200 else self.follow()

    @property
    def text(self) -> str:
        """The text of the page, without markup."""
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", self.page.text.replace("<wbr>", ""))).split())


def browser(given: Settings, properties: Properties | None = None) -> Browser:
    """Return a browser of a new service that ends with the test."""
    return Browser(opened(create_app(given, properties)).test_client(), given=given)


def administrator(directory: Path, **own: object) -> Browser:
    """Return a browser whose user has logged in to a new service with a key, which is quicker than a password."""
    given = settings(directory, administrators=(NAME,), **own)
    found = browser(given)
    found.secret = keys_of(given).add(NAME)
    assert found.log_in(NAME, found.secret).status_code == 303
    return found
