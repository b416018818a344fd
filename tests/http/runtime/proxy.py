"""What the proxy of a real runtime sends to its provider, and makes of the answers, release by release.

Spec runtime; crud 2 to 5, 11 and 12; forms 5.6.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

from tests import service as services
from tests.orders import tree
from tests.service import PUBLIC, Answer, Service

_MIRRORED = {"Versioning": "true", "Lease": "true", "Reindex": "true", "Distinct": "true", "Sort": "true"}
_FILTER = '<filter metadata="{}" match="exact">{}</filter>'
_SORT = '<sort metadata="last-modified" direction="desc"/>'
_BATCH = (
    '<search><query/><query metadata="last-modified" sort="asc"/><drafts>exclude</drafts>'
    '<operations any-of="delete"/><page-size>100</page-size><page-number>1</page-number></search>'
)
CRUD = f"{PUBLIC}/crud/"
"""With what paths of attachments in data begin; it is the runtime's own address, not the provider's."""


@dataclass(frozen=True)
class Release:
    """The points in which the proxies of releases differ (spec runtime 1 to 3 and 8).

    ``every`` and ``latest`` are the queries for all versions of a form and for its latest one. ``says_existing`` is
    whether a save says what the HEAD before has found, ``reindexes`` the method by which all forms are indexed again.
    ``lacking`` returns the byte that is sent for a character that Latin-1 lacks.
    """

    name: str
    every: str
    latest: str
    posts_lists: bool
    says_existing: bool
    reindexes: str
    has_question_marks: bool

    def on_the_wire(self, text: str) -> str:
        """A header value as bytes, each written as a character."""
        return "".join(each if each < "\u0100" else self._lacking(each) for each in text)

    def _lacking(self, character: str) -> str:
        low = chr(ord(character) & 0xFF)
        return "?" if self.has_question_marks or not low.isprintable() else low


_ALL, _LATEST = "?all-versions=true&all-forms=true", "?all-versions=false&all-forms=true"
RELEASES = (
    Release("2023.1.0", _ALL, _LATEST, False, False, "GET", has_question_marks=False),
    Release("2023.1", _ALL, _LATEST, False, True, "GET", has_question_marks=False),
    Release("2024.1", "", "", True, True, "GET", has_question_marks=False),
    Release("2025.1", "", "", True, True, "POST", has_question_marks=True),
    Release("current", "?all-versions=true", "?all-versions=false", True, True, "POST", has_question_marks=True),
)


@dataclass(frozen=True)
class Version:
    """What the list of forms says of a version."""

    form: str
    number: int
    permissions: bool
    available: bool


@dataclass(frozen=True)
class Person:
    """Whom the runtime knows."""

    name: str
    group: str = "staff"
    roles: tuple[str, ...] = ()

    def headers(self, release: Release) -> dict[str, str]:
        """Everything that says so, as it is sent: the credentials are percent-encoded, and so have every character."""
        credentials = {
            "username": quote_plus(self.name),
            "groups": [quote_plus(self.group)],
            "roles": [{"name": quote_plus(role)} for role in self.roles],
            "organizations": [["acme", "unit"]],
        }
        said = {"Username": self.name, "Group": self.group, "Roles": ",".join(self.roles)}
        plain = {name: release.on_the_wire(value) for name, value in said.items() if value}
        return {**plain, "Credentials": json.dumps(credentials)}


@dataclass(frozen=True)
class Proxy:
    """A proxy in front of a provider, for the requests of one person; ``sent`` is what the provider got."""

    provider: Service
    person: Person
    release: Release = RELEASES[-1]
    sent: list[str] = field(default_factory=list)

    def read(self, path: str, query: str = "", **own: object) -> Answer:
        """GET of data: of an attachment, its ``data.xml`` must be there."""
        main = _main(path)
        if main != path and (document := self.send("HEAD", main)).status != 200:
            return document
        return self.send("GET", path + query, **own)

    def write(
        self, path: str, body: bytes, query: str = "", headers: Mapping[str, str] | None = None, **own: object
    ) -> Answer:
        """PUT of data: what is there says the version; an attachment that is there is not stored again."""
        found = self.send("HEAD", path)
        main = found if path == _main(path) else self.send("HEAD", _main(path))
        for answer in (found, main):
            if answer.status == 200:
                own["Form_Definition_Version"] = answer["Orbeon-Form-Definition-Version"]
        assert "Form_Definition_Version" in own, "the proxy answers 400 itself"
        if found.status == 200 and found is not main:
            return Answer(204, found.headers, b"")
        return self.send("PUT", path + query, body, headers, **own, **self._existing(found))

    def remove(self, path: str) -> Answer:
        """DELETE of data."""
        found = self.send("HEAD", path)
        if found.status != 200:
            return found
        version = found["Orbeon-Form-Definition-Version"]
        return self.send("DELETE", path, Form_Definition_Version=version, **self._existing(found))

    def remove_all(self, form: str, version: int) -> int:
        """DELETE of all data of a form: as many searches as it takes; returns how many documents were deleted."""
        count = 0
        while True:
            found = self.post(f"/search/{form}", _BATCH, Form_Definition_Version=version)
            documents = [document.attrib["name"] for document in tree(found.body)]
            if not documents:
                return count
            for document in documents:
                assert self.remove(f"{form}/data/{document}/data.xml").status == 204
                count += 1

    def read_form(self, form: str, name: str = "form.xhtml", **own: object) -> Answer:
        """HEAD and GET of a definition, of the version of a document or of the latest."""
        version = own.get("Form_Definition_Version")
        if document := own.get("For_Document_Id"):
            collection = "draft" if own.get("For_Document_IsDraft") == "true" else "data"
            version = self.send("HEAD", f"{form}/{collection}/{document}/data.xml")["Orbeon-Form-Definition-Version"]
        own["Form_Definition_Version"] = version or self.latest(form) or 1
        head = self.send("HEAD", f"{form}/form/{name}", **own)
        got = self.send("GET", f"{form}/form/{name}", **own)
        assert (head.status, head["Last-Modified"]) == (got.status, got["Last-Modified"])
        return got

    def publish(self, form: str, name: str, body: bytes, query: str = "", version: object = None) -> Answer:
        """PUT of a definition or its attachment: what exists is decided by ``form.xhtml``."""
        latest = self.latest(form)
        number = (latest or 0) + 1 if version == "next" else version or latest or 1
        found = self.send("HEAD", f"{form}/form/form.xhtml", Form_Definition_Version=number)
        own = {"Form_Definition_Version": number, **self._existing(found)}
        return self.send("PUT", f"{form}/form/{name}{query}", body, **own)

    def latest(self, form: str) -> int | None:
        """The latest version that is published; without one, the proxy takes nothing for published."""
        return max((each.number for each in self.versions(form, self.release.latest)), default=None)

    def versions(self, form: str, query: str | None = None) -> list[Version]:
        """The versions of a form, as the proxy asks for them before each request of data."""
        return _versions(self.get(f"/form/{form}{self.release.every if query is None else query}"))

    def may_do_everything(self, form: str, version: int) -> bool:
        """Whether the proxy thinks that no permissions are defined for data of a version, so that everybody may."""
        return not any(each.permissions for each in self.versions(form) if each.number == version)

    def listed(self, *filters: tuple[str, str]) -> list[Version]:
        """The forms from which home page, admin page and toolbox choose."""
        if not self.release.posts_lists:
            return _versions(self.get("/form?all-versions=true&all-forms=true"))
        body = "".join(_FILTER.format(*each) for each in filters)
        return _versions(self.post("/form", f'<search all-forms="false">{body}{_SORT}</search>'))

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, **own: object
    ) -> Answer:
        """One request below ``/crud/``."""
        kind = {} if body is None else {"Content-Type": "application/xml"}
        return self._send(method, f"/crud/{path}", body, {**kind, **(headers or {})}, own)

    def post(self, path: str, body: str = "", **own: object) -> Answer:
        """One POST."""
        return self._send("POST", path, body.encode(), {"Content-Type": "application/xml"}, own)

    def get(self, path: str, **own: object) -> Answer:
        """One GET outside of ``/crud/``."""
        return self._send("GET", path, None, {}, own)

    def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], own: Mapping[str, object]
    ) -> Answer:
        said = {**self.person.headers(self.release), **own, **_MIRRORED}
        named = {"Orbeon-" + name.replace("_", "-"): str(value) for name, value in said.items()}
        self.sent.append(f"{method} {path.partition('?')[0]}")
        pieces: Any = body
        if method == "PUT" and body is not None and not services.is_granian:  # nginx gives granian a length
            pieces = iter([body] if body else [])
        return self.provider.raw(method, path, {"Accept": "*/*", "User-Agent": "runtime", **headers, **named}, pieces)

    def _existing(self, found: Answer) -> dict[str, str]:
        """What the provider's own HEAD has said of what exists."""
        if found.status != 200 or not self.release.says_existing:
            return {}
        names = {"Created_Existing": "Created", "Username_Existing": "Username", "Group_Existing": "Group"}
        values = {name: found[f"Orbeon-{said}"] for name, said in names.items()}
        return {name: value for name, value in values.items() if value is not None}


def _main(path: str) -> str:
    return f"{path.rpartition('/')[0]}/data.xml"


def _versions(answer: Answer) -> list[Version]:
    assert answer.status == 200, answer.body
    return [
        Version(
            f"{each.findtext('application-name')}/{each.findtext('form-name')}",
            int(each.findtext("form-version") or 0),
            each.find("permissions") is not None,
            each.findtext("available") == "true",
        )
        for each in tree(answer.body)
    ]
