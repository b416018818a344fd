"""A model of a runtime's persistence proxy, release by release: the requests that it sends to a provider.

What the proxy concludes from an answer counts like the status: the version that ``next`` becomes, the owner after a
save. ``runtime_sequences`` plays it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

from persistence.client.client_documents import HeaderPairs
from persistence.client.service_connection import ServiceAnswer, ServiceConnection
from persistence.dialect import ORBEON
from persistence.errors import ConflictError, one_line
from persistence.forms.messages import read_children, read_differences, read_history, read_values, text_in, write_lock
from persistence.forms.search_xml import read_search_answer
from persistence.model.addresses import DATA_XML, FORM_XHTML, LIBRARY_FORM
from persistence.model.permissions import ANONYMOUS, Role, User, credentials_of
from persistence.model.queries import SearchResult
from persistence.model.versions import LeaseHolder
from persistence.wire import XML, Call, OutgoingContent, path_of

OwnHeaders = Mapping[str, object]
"""Headers of the service's own by their names without prefix."""

T = TypeVar("T")

Resource = tuple[str, ...]
"""The names in the path of data of the ordinary form, from the collection on."""

LEAVE, CLOSED, HIDDEN = "leave", "closed", "hidden"
LEA, BOB, DESIGNER = User("lea", "staff"), User("bob", "support"), User("dana", "design")
CLERK = User("cleo", "office", (Role("check-runtime-clerk"),))
LEASED: Resource = ("data", "leased", DATA_XML)
XML_FIELDS = (XML,)

NOT_ALLOWED = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN)
"""The statuses of a purge that the service does not allow to the caller: it has no administrators, or others."""

_REFUSED = range(400, 500)
_NONE: OwnHeaders = {}
_VERSION = "Form-Definition-Version"
_MIRRORED = {"Versioning": "true", "Lease": "true", "Reindex": "true", "Distinct": "true", "Sort": "true"}
_LATEST = (
    '<search all-forms="false" ignore-admin-permissions="false" xml:lang="en">'
    '<filter metadata="application-name" match="exact">{}</filter>'
    '<filter metadata="form-version" match="exact">latest</filter>'
    '<sort metadata="last-modified" direction="desc"/></search>'
)
_BATCH = (
    '<search><query/><query metadata="last-modified" sort="asc"/><drafts>exclude</drafts>'
    '<operations any-of="delete"/><page-size>100</page-size><page-number>1</page-number></search>'
)
_READ_BY_CLERKS = '<permission operations="read list"><user-role any-of="check-runtime-clerk"/></permission>'
_OWN = (
    '<permissions><permission operations="create read update delete list"><owner/></permission>'
    f"{_READ_BY_CLERKS}</permissions>"
)
_OTHERS = f"<permissions>{_READ_BY_CLERKS}</permissions>"
METADATA: Mapping[str, str] = {
    LEAVE: _OWN,
    CLOSED: _OTHERS,
    HIDDEN: f"<available>false</available>{_OWN}",
    LIBRARY_FORM: _OTHERS,
}
"""Forms: an ordinary one, one with which the designer may do nothing, an unavailable one, and a library."""

_DEFINITION = """<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms" \
xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><xh:head><xh:title>Check</xh:title><xf:model id="fr-form-model">
<xf:instance id="fr-form-instance"><form><details><reason/></details></form></xf:instance>
<xf:bind id="fr-form-binds" ref="instance('fr-form-instance')"><xf:bind id="details-bind" name="details" ref="details">
<xf:bind id="reason-bind" name="reason" ref="reason"/></xf:bind></xf:bind>
<xf:instance id="fr-form-metadata"><metadata><application-name>{app}</application-name><form-name>{form}</form-name>
<title xml:lang="en">Check</title>{metadata}</metadata></xf:instance>
<xf:instance id="fr-form-resources"><resources><resource xml:lang="en"><reason><label>Reason</label></reason></resource>
</resources></xf:instance></xf:model></xh:head>
<xh:body><fr:view><fr:body><fr:section id="details-section" bind="details-bind">
<xf:input id="reason-control" bind="reason-bind"><fr:index/></xf:input></fr:section></fr:body></fr:view></xh:body>
</xh:html>"""


@dataclass(frozen=True, slots=True)
class Release:
    """The points in which the proxies of releases differ.

    ``all_versions`` and ``latest`` are the parameters with which the list of a form is asked for; without ``latest``
    the proxy always asks for all versions. With ``posts_list`` the home page asks by POST. ``existing`` tells whether a
    save states what exists; it is both if a minor release has changed that. ``reindexes`` is the method of reindexing.
    """

    all_versions: HeaderPairs
    latest: HeaderPairs | None
    posts_list: bool
    existing: tuple[bool, ...]
    reindexes: str

    @property
    def replaced(self) -> tuple[str, ...]:
        """The statuses that the proxy accepts where it replaces something."""
        return ("204",) if self.existing[0] else ("201", "204")


RELEASES: Mapping[str, Release] = {
    "2023.1": Release(
        (("all-versions", "true"), ("all-forms", "true")),
        (("all-versions", "false"), ("all-forms", "true")),
        posts_list=False,
        existing=(False, True),  # the latter since 2023.1.4
        reindexes="GET",
    ),
    "2024.1": Release((), None, posts_list=True, existing=(True,), reindexes="GET"),
    "2025.1": Release((), None, posts_list=True, existing=(True,), reindexes="POST"),
    "current": Release(
        (("all-versions", "true"),), (("all-versions", "false"),), posts_list=True, existing=(True,), reindexes="POST"
    ),
}


class ListEntry(NamedTuple):
    """A version in the list of forms, as far as the proxy looks at it."""

    form: str
    version: int
    has_permissions: bool


class RuntimeProxy:
    """A proxy in front of a service, for the forms of one application of its own, ``app``.

    All that it stores is noted, so that ``remove`` finds it. A refusal is an answer; ``refusal`` has its
    status and the line. Methods raise ``RemoteError`` or ``RemoteTimeoutError`` if there is no answer.
    """

    def __init__(self, connection: ServiceConnection, release: Release, app: str, data_format: str) -> None:
        self.release = release
        self.app = app
        self.refusal: tuple[int, str] = (0, "")
        self._connection = connection
        self._mirrored = {**_MIRRORED, "Data-Format-Version": data_format}
        self._saving = (("valid", "true"), ("data-format-version", data_format))
        self._definitions: dict[tuple[str, int], None] = {}
        self._resources: dict[Resource, None] = {}

    def send(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        path: Sequence[str],
        user: User = ANONYMOUS,
        body: bytes | None = None,
        *,
        query: HeaderPairs = (),
        fields: HeaderPairs = (),
        own: OwnHeaders = _NONE,
        also: tuple[int, ...] = tuple(range(300, 600)),
    ) -> ServiceAnswer:
        """Send a request with headers in Latin-1, and a body in chunks; ``own`` are headers of the service's own.

        Other statuses than those from 200 to 299 and in ``also`` raise their errors.
        """
        roles = ",".join(role.name for role in user.roles)
        given: dict[str, object] = {"Username": user.name, "Group": user.group, "Roles": roles}
        given["Credentials"] = credentials_of(user) if user.name else None
        given |= {**own, **self._mirrored}
        pairs = [(ORBEON.header(name), str(value)) for name, value in given.items() if value not in (None, "")]
        headers = [(name, as_latin(value).encode("latin-1")) for name, value in (*pairs, *fields)]
        content = OutgoingContent(iter([body])) if body else None
        answer = self._connection.read(Call(method, path_of(*path), headers, query, content, also=also))
        if answer.status >= HTTPStatus.BAD_REQUEST and answer.body:
            self.refusal = answer.status, one_line(answer.body.decode(errors="replace").partition("\n")[0])
        return answer

    def require_unused(self) -> None:
        """Make sure that the service lets the caller in, and that the application is a new one.

        Raises ``ConflictError`` if it has the application already, and the error of a refusal.
        """
        if _read_list(self.send("GET", ("form", self.app), LEA, query=RELEASES["2023.1"].all_versions, also=())):
            raise ConflictError(f"there is an application {self.app} already")

    # Definitions.

    def listed(self, form: str, query: HeaderPairs, user: User = BOB) -> list[ListEntry]:
        return _read_list(self.send("GET", ("form", self.app, form), user, query=query))

    def posted_list(self) -> list[ListEntry]:
        """Return the latest versions, as the home page asks for them."""
        return _read_list(self.send("POST", ("form",), BOB, _LATEST.format(self.app).encode(), fields=XML_FIELDS))

    def publish(self, form: str, asked: int | str | None) -> ServiceAnswer:
        """Publish the latest version, the ``next`` one, or one by number, as the proxy understands the list."""
        listed = self.listed(form, self.release.all_versions, DESIGNER)
        latest = max((each.version for each in listed), default=0)
        version = latest + 1 if asked == "next" else int(asked or latest or 1)
        path = ("crud", self.app, form, "form", FORM_XHTML)
        found = self.send("HEAD", path, DESIGNER, own={_VERSION: version})
        body = _DEFINITION.format(app=self.app, form=form, metadata=METADATA[form]).encode()
        existing = _existing(found) if self.release.existing[0] else {}
        self._definitions[form, version] = None
        answer = self.send("PUT", path, DESIGNER, body, fields=XML_FIELDS, own={_VERSION: version, **existing})
        if answer.status in _REFUSED and found.status != HTTPStatus.OK:
            del self._definitions[form, version]
        return answer

    def definition(self, form: str, version: int) -> ServiceAnswer:
        return self.send("GET", ("crud", self.app, form, "form", FORM_XHTML), own={_VERSION: version})

    # Data.

    def head(self, names: Resource, user: User = LEA) -> ServiceAnswer:
        return self.send("HEAD", ("crud", self.app, LEAVE, *names), user)

    def get(self, names: Resource, user: User = LEA, fields: HeaderPairs = ()) -> ServiceAnswer:
        """Read data, a draft or an attachment."""
        query = self._saving[1:] if names[-1] == DATA_XML else ()
        return self.send("GET", ("crud", self.app, LEAVE, *names), user, query=query, fields=fields)

    def put(  # noqa: PLR0913 - the parts of a save
        self,
        names: Resource,
        user: User = LEA,
        body: bytes = b"<form><details><reason>check</reason></details></form>",
        *,
        states_existing: bool | None = None,
        version: int = 2,
        fields: HeaderPairs = (),
        own: OwnHeaders = _NONE,
    ) -> ServiceAnswer:
        """Save data, a draft or an attachment: first a HEAD of it, and for an attachment one of its document, too."""
        found = self.head(names, user)
        if names[-1] != DATA_XML:
            self.head((*names[:-1], DATA_XML), user)
        states = self.release.existing[0] if states_existing is None else states_existing
        existing = _existing(found) if states else {}
        known = version if found.status != HTTPStatus.OK else field(found, _VERSION)
        self._resources[names] = None
        path, sent = ("crud", self.app, LEAVE, *names), {_VERSION: known, **own, **existing}
        if names[-1] == DATA_XML:
            fields = (XML, *fields)
        answer = self.send("PUT", path, user, body, query=self._saving, fields=fields, own=sent)
        if answer.status in _REFUSED and found.status != HTTPStatus.OK:
            del self._resources[names]
        return answer

    def delete(self, names: Resource, user: User = LEA) -> ServiceAnswer:
        """Delete what a HEAD finds; return the answer to the HEAD if it finds nothing."""
        found = self.head(names, user)
        if found.status != HTTPStatus.OK:
            return found
        own = {_VERSION: field(found, _VERSION), **_existing(found)}
        return self.send("DELETE", ("crud", self.app, LEAVE, *names), user, own=own)

    def delete_all(self, version: int) -> int:
        """Delete all data of a version: by searches, until one finds nothing; return the number of documents."""
        deleted = 0
        for _ in range(10):
            found = self.search(_BATCH, version=version)[1]
            if not found:
                break
            deletes = [self.delete(("data", each.document, DATA_XML)).status for each in found]
            deleted += deletes.count(HTTPStatus.NO_CONTENT)
        return deleted

    def lease(self, method: str, user: User) -> ServiceAnswer:
        """LOCK or UNLOCK the document that is leased."""
        body = write_lock(LeaseHolder(user.name or "", user.group))
        fields = (XML, ("Timeout", "Second-600"))
        return self.send(method, ("crud", self.app, LEAVE, *LEASED), user, body, fields=fields)

    # Queries.

    def search(
        self, body: str, user: User = LEA, *, version: int = 2, fields: HeaderPairs = ()
    ) -> tuple[int, list[SearchResult]]:
        """Search the data of the ordinary form; return the number of all matches, and the page of them."""
        path, sent = ("search", self.app, LEAVE), (XML, *fields)
        answer = self.send("POST", path, user, body.encode(), fields=sent, own={_VERSION: version})
        found = _read(read_search_answer, answer)
        return int(found.total or -1), found.documents

    def distinct(self, body: str) -> list[tuple[str, ...]]:
        """Return the distinct values of each query."""
        path = ("distinct-values", self.app, LEAVE)
        answer = self.send("POST", path, LEA, body.encode(), fields=XML_FIELDS, own={_VERSION: 2})
        return [tuple(filter(None, values)) for values in _read(read_values, answer).values()]

    def revisions(self, document: str) -> list[str]:
        query = (("page-number", "1"), ("page-size", "100"))
        answer = self.send("GET", ("history", self.app, LEAVE, document), LEA, query=query)
        return [each.modified for each in _read(read_history, answer).revisions]

    def difference(self, document: str) -> str:
        """Return the differences between the two newest revisions of a document."""
        newer, older = self.revisions(document)[:2]
        times = (("older-modified-time", older), ("newer-modified-time", newer))
        path, query = ("history", self.app, LEAVE, document, "diff"), (("form-version", "2"), ("lang", "en"), *times)
        found = _read(read_differences, self.send("GET", path, LEA, query=query))
        return "; ".join(f"{each.kind}: {each.older}, {each.newer}" for each in found)

    def reindex(self) -> ServiceAnswer:
        """Rebuild indexes: those of all forms by GET, and that of a version of the ordinary form by POST."""
        if self.release.reindexes == "GET":
            return self.send("GET", ("reindex",), ANONYMOUS)
        return self.send("POST", ("reindex", self.app, LEAVE), ANONYMOUS, own={_VERSION: 2})

    def purge(self, document: str, times: Iterable[str]) -> list[int]:
        """Remove revisions of a document in an order of times, until one is not removed; return the statuses."""
        statuses, path = list[int](), ("crud", self.app, LEAVE, "data", document, DATA_XML)
        for time in times:
            query = (("force-delete", "true"), ("last-modified-time", time))
            found = self.send("HEAD", path, LEA, query=query)
            version = field(found, _VERSION) or 2
            statuses.append(self.send("DELETE", path, LEA, query=query, own={_VERSION: version}).status)
            if statuses[-1] != HTTPStatus.NO_CONTENT:
                break
        return statuses

    # The end.

    def remove(self) -> tuple[list[str], int, int]:
        """Delete all that was stored, and purge it if the caller is an administrator.

        Returns what could not be removed, and the numbers of tombstones of documents and of definitions.
        """
        problems = list[str]()
        if LEASED in self._resources:
            for user in (LEA, BOB):
                self.lease("UNLOCK", user)
        for names in reversed(self._resources):
            if names[0] == "draft":
                path = ("crud", self.app, LEAVE, *names[:-1])
                answer = self.send("DELETE", path, LEA, own={_VERSION: 2})
            else:
                answer = self.delete(names)
            problems += self._staying(answer, f"{LEAVE}/{'/'.join(names)}")
        for form, version in self._definitions:
            path = ("crud", self.app, form, "form", FORM_XHTML)
            answer = self.send("HEAD", path, DESIGNER, own={_VERSION: version})
            if answer.status == HTTPStatus.OK:
                answer = self.send("DELETE", path, DESIGNER, own={_VERSION: version})
            problems += self._staying(answer, f"{form}, version {version}")
        remain, may_purge = 0, True
        for document in dict.fromkeys(names[1] for names in self._resources):
            times = self.revisions(document)[::-1]
            if times and not (may_purge and self.purge(document, times)[-1] == HTTPStatus.NO_CONTENT):
                may_purge = self.refusal[0] not in NOT_ALLOWED
                remain += 1
        return problems, remain, len(self._definitions)

    def _staying(self, answer: ServiceAnswer, name: str) -> list[str]:
        if answer.status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
            return []
        return [f"{self.app}/{name} stays: {answer.status} {self.refusal[1]}".rstrip()]


def as_latin(text: str) -> str:
    """Return a text as a runtime sends it: with a question mark for each UTF-16 unit that Latin-1 lacks."""
    return "".join(each if each <= "\xff" else "?" * (1 + (each > "\uffff")) for each in text)


def field(answer: ServiceAnswer, name: str) -> str:
    """Return a header of the service's own, read as Latin-1 like a runtime does; empty without it."""
    wanted = ORBEON.header(name).lower().encode()
    return next((value.decode("latin-1") for key, value in answer.headers.raw if key.lower() == wanted), "")


def _existing(found: ServiceAnswer) -> dict[str, str]:
    if found.status != HTTPStatus.OK:
        return {}
    names = {"Created-Existing": "Created", "Username-Existing": "Username", "Group-Existing": "Group"}
    return {name: value for name, stored in names.items() if (value := field(found, stored))}


def _read_list(answer: ServiceAnswer) -> list[ListEntry]:
    found = list[ListEntry]()

    def take(form: Any) -> None:
        name, version = (text_in(form.find(f"form-{each}")) for each in ("name", "version"))
        found.append(ListEntry(name, int(version), form.find("permissions") is not None))

    _read(lambda pieces: read_children(pieces, take), answer)
    return found


def _read(read: Callable[[Iterable[bytes]], T], answer: ServiceAnswer) -> T:
    """Return the values that an answer has, none of a refusal."""
    return read([answer.body if answer.status == HTTPStatus.OK else b"<none/>"])
