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

from tests.http.runtime.releases import LEA, Person, Release, operations
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
_LISTING = (
    '<search all-forms="false" ignore-admin-permissions="false" xml:lang="en">'
    '<filter metadata="application-name" match="exact">{}</filter>'
    '<filter metadata="form-version" match="exact">latest</filter>'
    '<sort metadata="last-modified" direction="desc"/></search>'
)
_PAGE = (
    '<search><query/><query metadata="last-modified" sort="asc"/><drafts>exclude</drafts>{}'
    "<page-size>{}</page-size><page-number>{}</page-number></search>"
)


@dataclass(frozen=True)
class Version:
    form: str
    number: int
    is_available: bool
    permissions: ET.Element | None = field(compare=False)


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
        return got if self._may("GET", path, main, main["Orbeon-Form-Definition-Version"]) else _own(403)

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
        if not self._may("PUT", path, main, version):
            return _own(403)
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
        version = main["Orbeon-Form-Definition-Version"]
        if not self._may("DELETE", path, main, version):
            return _own(403)
        known = {"Form_Definition_Version": version, **self._existing(found)}
        return self.send("DELETE", path + query, None, headers, **known)

    def save(self, form: str, document: str, *files: str, version: int = 1, **own: object) -> list[int]:
        """Save new data: its new attachments first; returns the statuses."""
        base, kind = f"{form}/data/{document}", {"Content-Type": "application/pdf"}
        known = {"Form_Definition_Version": version, "Path_To_Holder": "a/file", **HASH}
        puts = [self.write(f"{base}/{name}", name.encode(), headers=kind, **known) for name in files]
        puts.append(self.write(f"{base}/data.xml", data(base, *files), Form_Definition_Version=version, **own))
        return [answer.status for answer in puts]

    def remove_all(self, form: str, version: int) -> int:
        count = 0
        while documents := self._page(form, version, '<operations any-of="delete"/>', 100, 1)[1]:
            statuses = [self.remove(f"{form}/data/{document}/data.xml").status for document in documents]
            assert set(statuses) == {204}
            count += len(statuses)
        return count

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
        found = max((each.number for each in self._listed(f"/{form}{self.release.latest}")), default=None)
        assert found == max(self.published.get(form, ()), default=None)
        return found

    def versions(self, form: str) -> list[Version]:
        """The versions of a form, as the proxy asks for them before each request of data.

        An empty list means that everybody may do everything, so it must never come for a form that is published.
        """
        found = self._listed(f"/{form}{self.release.every}")
        assert sorted(each.number for each in found) == sorted(self.published.get(form, ()))
        return found

    def operations(self, form: str, version: int, main: Answer | None = None) -> str:
        """What the proxy lets the person do with new data of a version, or with what a HEAD or GET has found.

        The permissions of a version that is gone are those of the one that was modified last (spec crud 5.2).
        """
        if self.is_internal:
            return "read delete"
        listed = self.versions(form)
        its = [each for each in listed if each.number == version] or listed
        owner = None if main is None or main.status != 200 else (main["Orbeon-Username"], main["Orbeon-Group"])
        return operations(its[0].permissions if its else None, self.person, owner)

    def pages(self, app: str) -> dict[str, str]:
        """The latest versions of forms of an application that home and admin page show, with the operations."""
        if self.release.posts_lists:
            listed = _versions(self.post("/form", _LISTING.format(app)))
        else:
            listed = self._listed(self.release.latest)
        named = [each for each in listed if each.form.startswith(f"{app}/")]
        may = {each.form: operations(each.permissions, self.person, None) for each in named}
        is_shown = {
            each.form: each.is_available and may[each.form] and not each.form.endswith("/library") for each in named
        }
        return {name: may[name] for name in may if is_shown[name] or self.person.is_admin}

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

    def _may(self, method: str, path: str, main: Answer, version: object) -> bool:
        """Whether the person may do this with data; of attachments, ``data.xml`` has the owner, and exists or not."""
        app, form, *_ = path.split("/")
        is_there, is_file = main.status == 200, not _is_main(path)
        needed = {
            "GET": "read",
            "PUT": "update" if is_there else "create update" if is_file else "create",
            "DELETE": "delete update" if is_file else "delete",
        }[method]
        allowed = self.operations(f"{app}/{form}", int(str(version)), main)
        return allowed == "*" or not set(needed.split()).isdisjoint(allowed.split())

    def _listed(self, path: str) -> list[Version]:
        return _versions(self.get(f"/form{path}"))

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


def _versions(answer: Answer) -> list[Version]:
    assert answer.status == 200, answer.body
    return [
        Version(
            f"{each.findtext('application-name')}/{each.findtext('form-name')}",
            int(each.findtext("form-version") or 0),
            each.findtext("available") == "true",
            each.find("permissions"),
        )
        for each in tree(answer.body)
    ]
