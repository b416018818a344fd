"""What the proxy of a real runtime sends to its provider, and makes of the answers, release by release.

Spec runtime; crud 2 to 6, 8, 10.3, 11 and 12; forms 5.6; search 4.
"""

from __future__ import annotations

import http.client
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from xml.etree import ElementTree as ET

from tests.http.runtime.releases import LEA, Person, Release
from tests.orders import tree
from tests.service import PUBLIC, Answer, Service

PROPERTIES = {"reencrypt": "false", "data-format-version": "4.0.0"}
PROPERTIES |= dict.fromkeys(("versioning", "lease", "sort", "distinct", "reindex"), "true")
"""Those of the provider in docs/orbeon.md that become headers (spec crud 10.3)."""

CRUD = f"{PUBLIC}/crud/"
"""With what paths of attachments in data begin; it is the runtime's own address, not the provider's."""

SAVED, FORMAT = "?valid=true&data-format-version=4.0.0", "?data-format-version=4.0.0"
HASH = {"Hash_Algorithm": "SHA-256", "Hash_Value": "9f86d081"}

_INTERNAL = "fr-internal-admin-token=6f70617175650a"
_PAGE = (
    '<search><query/><query metadata="last-modified" sort="asc"/><drafts>exclude</drafts>{}'
    "<page-size>{}</page-size><page-number>{}</page-number></search>"
)


@dataclass(frozen=True)
class Proxy:
    """A proxy in front of a provider, for the requests of one person, or for its own with the rights of exports.

    ``sent`` is what the provider got, ``published`` what the runtime knows to be published. Responses that are left
    unread stay open as long as ``opened``.
    """

    provider: Service
    release: Release
    opened: ExitStack
    person: Person = LEA
    is_internal: bool = False
    properties: Mapping[str, str] = field(default_factory=PROPERTIES.copy)
    sent: list[str] = field(default_factory=list)
    published: dict[str, set[int]] = field(default_factory=dict)

    def of(self, person: Person) -> Proxy:
        return replace(self, person=person)

    # Data: what a request of the runtime's pages becomes.

    def read(self, path: str, query: str = "", headers: Mapping[str, str] | None = None, **own: object) -> Answer:
        """GET of data: of an attachment, its ``data.xml`` must be there."""
        got = self.send("GET", path + query, None, headers, **own)
        if got.status not in (200, 206):
            return got
        main = got if _is_main(path) else self._document(path)
        if main.status != 200:
            return main
        self._look_for_permissions(path)
        return got

    def write(
        self, path: str, body: bytes, query: str = SAVED, headers: Mapping[str, str] | None = None, **own: object
    ) -> Answer:
        """PUT of data: what is there says the version; an attachment that is there is not stored again."""
        version, headers = own.pop("Form_Definition_Version", None), headers or {}
        found = self.send("HEAD", path, None, headers, **own)
        main = found if _is_main(path) else self.send("HEAD", _main(path), None, headers, **own)
        for answer in (found, main):
            if answer.status == 200:
                if headers.get("If-Match", "*") not in ("*", answer["ETag"] or "*"):
                    return _own(412)
                stored = answer["Orbeon-Form-Definition-Version"]
                if str(version or stored) != stored:
                    return _own(400)
                version = stored
        if version is None:
            return _own(400)
        self._look_for_permissions(path)
        if found.status == 200 and found is not main:
            return _own(204)
        known = {"Form_Definition_Version": version, **self._existing(found)}
        return self.send("PUT", path + query, body, headers, **own, **known)

    def remove(self, path: str, query: str = "", headers: Mapping[str, str] | None = None) -> Answer:
        """DELETE of data, or of a revision of it by ``force-delete``."""
        found = self.send("HEAD", path + query, None, headers)
        if found.status != 200:
            return found
        if (headers or {}).get("If-Match", "*") not in ("*", found["ETag"] or "*"):
            return _own(412)
        main = found if _is_main(path) or "force-delete" in query else self.send("HEAD", _main(path))
        if main.status != 200:
            return main
        self._look_for_permissions(path)
        known = {"Form_Definition_Version": main["Orbeon-Form-Definition-Version"], **self._existing(found)}
        return self.send("DELETE", path + query, None, headers, **known)

    def save(self, form: str, document: str, *files: str, version: int = 1, **own: object) -> list[int]:
        """Save new data: its new attachments first; returns the statuses."""
        base, kind = f"{form}/data/{document}", {"Content-Type": "application/pdf"}
        known = {"Form_Definition_Version": version, "Path_To_Holder": "a/file", **HASH}
        puts = [self.write(f"{base}/{name}", name.encode(), headers=kind, **known) for name in files]
        puts.append(self.write(f"{base}/data.xml", data(base, *files), Form_Definition_Version=version, **own))
        return [answer.status for answer in puts]

    # Definitions.

    def read_form(self, form: str, name: str = "form.xhtml", **own: object) -> Answer:
        """HEAD and GET of a definition, of the version of a document or of the latest."""
        version = own.pop("Form_Definition_Version", None)
        if document := own.pop("For_Document_Id", None):
            collection = "draft" if own.pop("For_Document_IsDraft", None) == "true" else "data"
            version = self.send("HEAD", f"{form}/{collection}/{document}/data.xml")["Orbeon-Form-Definition-Version"]
        own["Form_Definition_Version"] = version or self.latest(form) or 1
        head = self.send("HEAD", f"{form}/form/{name}", **own)
        got = self.send("GET", f"{form}/form/{name}", **own)
        assert (head.status, head["Last-Modified"]) == (got.status, got["Last-Modified"])
        return got

    def publish(
        self, form: str, body: bytes, version: object = None, *, name: str = "form.xhtml", query: str = ""
    ) -> Answer:
        """PUT of a definition or its attachment: what exists is decided by ``form.xhtml``."""
        latest = self.latest(form)
        number = int(str((latest or 0) + 1 if version == "next" else version or latest or 1))
        found = self.send("HEAD", f"{form}/form/form.xhtml", Form_Definition_Version=number)
        known = {"Form_Definition_Version": number, **self._existing(found)}
        put = self.send("PUT", f"{form}/form/{name}{query}", body, **known)
        if name == "form.xhtml" and put.status in (201, 204):
            self.published.setdefault(form, set()).add(number)
        return put

    def remove_form(self, form: str, version: int) -> Answer:
        self.published[form].discard(version)
        return self.send("DELETE", f"{form}/form/form.xhtml", Form_Definition_Version=version)

    # What the lists of forms tell.

    def latest(self, form: str) -> int | None:
        """The latest version that is published; without one, the proxy takes nothing for published."""
        found = max(self._listed(f"/{form}{self.release.latest}"), default=None)
        assert found == max(self.published.get(form, ()), default=None)
        return found

    def versions(self, form: str) -> list[int]:
        """The versions of a form, as the proxy asks for them before each request of data, to judge by permissions.

        An empty list means that everybody may do everything, so it must never come for a form that is published.
        """
        found = self._listed(f"/{form}{self.release.every}")
        assert sorted(found) == sorted(self.published.get(form, ()))
        return found

    # Queries.

    def search(self, form: str, body: str, version: object = 1, kind: str = "search") -> ET.Element:
        answer = self.post(f"/{kind}/{form}", body, Form_Definition_Version=version)
        assert (answer.status, answer["Content-Type"]) == (200, "application/xml"), answer.body
        return tree(answer.body)

    def revisions(self, form: str, document: str, size: int = 10) -> list[ET.Element]:
        found: list[ET.Element] = []
        for number in range(1, 100):
            answer = self.get(f"/history/{form}/{document}?page-number={number}&page-size={size}&include-diffs=true")
            assert answer.status == 200, answer.body
            page = tree(answer.body)
            found.extend(page)
            if len(found) >= int(page.attrib["total"]):
                break
        return found

    def documents(self, form: str, version: object) -> list[str]:
        found: list[str] = []
        for number in range(1, 100):
            total, page = self._page(form, version, "", 2, number)
            found += page
            if len(found) >= total:
                break
        return found

    def _page(self, form: str, version: object, more: str, size: int, number: int) -> tuple[int, list[str]]:
        found = self.search(form, _PAGE.format(more, size, number), version)
        return int(found.attrib["search-total"]), [each.attrib["name"] for each in found]

    # Requests.

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, **own: object
    ) -> Answer:
        """One request below ``/crud/``."""
        kind = {} if body is None else {"Content-Type": "application/xml"}
        return self._answer(method, f"/crud/{path}", body, {**kind, **(headers or {})}, own)

    def post(self, path: str, body: str = "", **own: object) -> Answer:
        return self._answer("POST", path, body.encode(), {"Content-Type": "application/xml"}, own)

    def get(self, path: str, **own: object) -> Answer:
        return self._answer("GET", path, None, {}, own)

    def _answer(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], own: Mapping[str, object]
    ) -> Answer:
        connection = self._sent(method, path, body, headers, own)
        with closing(connection):
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def _document(self, path: str) -> Answer:
        """What is said of the document of an attachment: by a HEAD, or by a GET that is left unread."""
        if not self.release.leaves_unread:
            return self.send("HEAD", _main(path))
        response = self.opened.enter_context(
            closing(self._sent("GET", f"/crud/{_main(path)}", None, {}, {}))
        ).getresponse()
        return Answer(response.status, self.opened.enter_context(response).headers, b"")

    def _sent(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], own: Mapping[str, object]
    ) -> http.client.HTTPConnection:
        """Send a request: header values in Latin-1, and a body in chunks."""
        self.sent.append(f"{method} {path.partition('?')[0]}")
        if self.is_internal:
            path += f"{'&' if '?' in path else '?'}{_INTERNAL}"
        own = {name.replace("_", "-"): str(value) for name, value in own.items()}
        own |= {name.title(): value for name, value in self.properties.items()}
        named = [(f"Orbeon-{name}", self.release.on_the_wire(value)) for name, value in own.items()]
        connection = http.client.HTTPConnection("127.0.0.1", self.provider.port, timeout=self.provider.timeout)
        connection.putrequest(method, path, skip_accept_encoding=True)
        fixed = {"Accept": "*/*", "User-Agent": "runtime", **self.provider.extra}
        every = [*fixed.items(), *headers.items(), *self.person.headers(self.release), *named]
        for name, value in every:
            connection.putheader(name, value.encode("latin-1"))
        if body is None:
            connection.endheaders()
        else:
            connection.putheader("Transfer-Encoding", "chunked")
            connection.endheaders(iter([body] if body else []), encode_chunked=True)
        return connection

    def _look_for_permissions(self, path: str) -> None:
        if not self.is_internal:
            app, form, *_ = path.split("/")
            self.versions(f"{app}/{form}")

    def _listed(self, path: str) -> list[int]:
        answer = self.get(f"/form{path}")
        assert answer.status == 200, answer.body
        return [int(each.findtext("form-version") or 0) for each in tree(answer.body)]

    def _existing(self, found: Answer) -> dict[str, str]:
        """What the provider's own HEAD has said of what exists."""
        if found.status != 200 or not self.release.says_existing:
            return {}
        names = {"Created_Existing": "Created", "Username_Existing": "Username", "Group_Existing": "Group"}
        values = {name: found[f"Orbeon-{given}"] for name, given in names.items()}
        return {name: value for name, value in values.items() if value is not None}


def fresh() -> str:
    return (uuid.uuid4().hex + uuid.uuid4().hex)[:40]


def data(base: str, *files: str) -> bytes:
    """Form data that names files below a path."""
    return f"<form><a>{''.join(f'<file>{CRUD}{base}/{name}</file>' for name in files)}</a></form>".encode()


def _is_main(path: str) -> bool:
    return path.endswith("/data.xml")


def _main(path: str) -> str:
    return f"{path.rpartition('/')[0]}/data.xml"


def _own(status: int) -> Answer:
    """An answer of the proxy itself, whose provider is not asked."""
    return Answer(status, http.client.HTTPMessage(), b"")
