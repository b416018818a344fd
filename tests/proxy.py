"""What the proxy of a real runtime does with a request before its provider gets it (spec crud 2 to 5, forms 5.6)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.orders import tree
from tests.service import PUBLIC, Answer, Service

_MIRRORED = {"Versioning": "true", "Lease": "false", "Reindex": "true", "Distinct": "true", "Sort": "true"}
_BATCH = (
    '<search><query/><query metadata="last-modified" sort="asc"/><drafts>exclude</drafts>'
    '<operations any-of="delete"/><page-size>100</page-size><page-number>1</page-number></search>'
)
CRUD = f"{PUBLIC}/crud/"
"""With what paths of attachments in data begin; it is the runtime's own address, not the provider's."""


@dataclass(frozen=True)
class Person:
    """Whom the runtime knows."""

    name: str
    group: str = "staff"
    roles: tuple[str, ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        """Everything that says so, as it is sent."""
        credentials = {
            "username": self.name,
            "groups": [self.group],
            "roles": [{"name": role} for role in self.roles],
            "organizations": [["acme", "unit"]],
        }
        roles = {"Roles": ",".join(self.roles)} if self.roles else {}
        return {"Username": self.name, "Group": self.group, "Credentials": json.dumps(credentials), **roles}


@dataclass(frozen=True)
class Proxy:
    """A proxy in front of a provider, for the requests of one person; ``sent`` is what the provider got."""

    provider: Service
    person: Person
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
        return self.send("PUT", path + query, body, headers, **own, **_existing(found))

    def remove(self, path: str) -> Answer:
        """DELETE of data."""
        found = self.send("HEAD", path)
        if found.status != 200:
            return found
        version = found["Orbeon-Form-Definition-Version"]
        return self.send("DELETE", path, Form_Definition_Version=version, **_existing(found))

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
        own = {"Form_Definition_Version": number, **_existing(found)}
        return self.send("PUT", f"{form}/form/{name}{query}", body, **own)

    def latest(self, form: str) -> int | None:
        """The highest version that is published, by the form metadata."""
        listed = self.get(f"/form/{form}?all-versions=true&all-forms=true").body.decode()
        return max(map(int, re.findall(r"<form-version>(\d+)<", listed)), default=None)

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
        said = {**self.person.headers, **own, **_MIRRORED}
        named = {"Orbeon-" + name.replace("_", "-"): str(value) for name, value in said.items()}
        self.sent.append(f"{method} {path.partition('?')[0]}")
        return self.provider.raw(method, path, {"Accept": "*/*", "User-Agent": "runtime", **headers, **named}, body)


def _main(path: str) -> str:
    return f"{path.rpartition('/')[0]}/data.xml"


def _existing(found: Answer) -> dict[str, str]:
    """What the provider's own HEAD has said of what exists."""
    if found.status != 200:
        return {}
    names = {"Created_Existing": "Created", "Username_Existing": "Username", "Group_Existing": "Group"}
    values = {name: found[f"Orbeon-{said}"] for name, said in names.items()}
    return {name: value for name, value in values.items() if value is not None}
