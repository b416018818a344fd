"""Clients that do everything the interface has, or mostly write, and compare each answer with what they know."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from email.message import Message
from http.client import HTTPMessage
from xml.etree import ElementTree as ET

from persistence.model.addresses import DATA_XML, FORM_XHTML
from persistence.model.texts import Instant, shortest
from tests import encrypted_form, orders
from tests.orders import found
from tests.rigs.judging import mismatch
from tests.rigs.ledger import FORM, Change, Ledger, Resource, Revision, State
from tests.rigs.server import Actor
from tests.service import PUBLIC, Answer, Service

_DOCUMENTS = 3
_MOST_VERSIONS = 5
_FILLER = 3_000
_BODY = 6_000
GONE = (404, 410)


class Client(Actor):
    """One client, with documents in the forms of all and a form of its own.

    Nobody else changes those, so it knows the answer to each of its requests. Where one is lost with a killed worker,
    it looks whether it was carried out, and notes what it finds.
    """

    def __init__(self, service: Callable[[], Service], ledger: Ledger, number: int, seed: int = 1) -> None:
        super().__init__(service, number, seed)
        self._ledger = ledger
        self._user = f"user{number}"
        self._word = f"w{number}x"
        self._form = f"hr/form{number}"  # which it publishes, and all data of which it deletes
        self._living: dict[Resource, State] = {}
        self._known: defaultdict[Resource, list[State]] = defaultdict(list)
        self._tokens: dict[Resource, str] = {}
        self._gone_tokens: list[str] = []
        self._actions = {
            self.save: 20,
            self.draft: 10,
            self.attach: 8,
            self.read: 16,
            self.read_older: 6,
            self.refused: 5,
            self.delete: 7,
            self.delete_all: 1,
            self.publish: 3,
            self.search: 10,
            self.search_all: 4,
            self.distinct: 3,
            self.list_versions: 2,
        }

    def begin(self) -> None:
        self._put(Resource(f"{self._form}/form/{FORM_XHTML}", 1), SHARED[FORM], XHTML, "1")

    def store(self, documents: int) -> None:
        for number in range(documents):
            self._save(data(FORM, f"old-{number}"))

    # What changes something

    def save(self) -> None:
        """PUT of a document, new or over; its draft goes."""
        self._save(data(*self._names()))

    def draft(self) -> None:
        form, document = self._names()
        self._put_data(data(form, document, "draft"))

    def attach(self) -> None:
        """PUT of an attachment of a document or draft that is there, or of a definition."""
        main = self._rng.choice(sorted(resource for resource in self._mains() if not resource.path.endswith(".png")))
        name = "logo.png" if main.is_published else f"scan{self._rng.randrange(2)}.bin"
        resource = Resource(f"{main.path.rpartition('/')[0]}/{name}", main.version)
        self._put(resource, self._rng.randbytes(self._rng.randrange(1, _BODY)), BINARY, str(main.version or 1))

    def publish(self) -> None:
        """PUT of a definition as the version after the last that is there, or over one."""
        path = f"{self._form}/form/{FORM_XHTML}"
        body = SHARED[FORM].replace(b"Order</title>", f"Order {self._next()}</title>".encode())
        versions = [resource.version or 0 for resource in self._living if resource.path == path]
        if len(versions) < _MOST_VERSIONS and self._rng.random() < 0.5:
            self._put(Resource(path, max(versions) + 1), body, XHTML, "next")
        else:
            version = self._rng.choice(sorted(versions))
            self._put(Resource(path, version), body, XHTML, str(version))

    def delete(self) -> None:
        mine = [
            resource
            for resource in self._living
            if resource.main in self._living and not (resource.is_published and resource.version == 1)
        ]
        if mine:
            self._delete(self._rng.choice(sorted(mine)))

    def delete_all(self) -> None:
        begun, path = self._ledger.tick(), url(f"{self._form}/data/")
        while (answer := self.line.ask("DELETE", path, Username=self._user)) is None:
            pass
        self._expect(answer, "DELETE of all data", 200)
        gone = [resource for resource in self._mains() if resource.path.startswith(f"{self._form}/data/")]
        for resource in gone:
            self._expect(self._get(resource), f"GET {resource.path} after DELETE of all data", *GONE)
            tombstone = State(instant=f"{self._living[resource].instant}+")
            self._note_gone(resource, begun, tombstone)
            self._note_removed_drafts(resource, begun, tombstone.etag)
        self._check_removed(gone)

    # What only reads

    def read(self) -> None:
        resources = sorted({*self._known, *self._living})
        if not resources:
            return
        resource = self._rng.choice(resources)
        method = self._rng.choice(("GET", "GET", "HEAD"))
        state = self._living.get(resource) if resource.main in self._living else None
        answer = self._get(resource, method=method)
        what = f"{method} {resource.path}"
        if state is None:
            self._expect(answer, what, *GONE)
        elif self._expect(answer, what, 200):
            faults = [fault for fault in mismatch(answer, state, resource) if method == "GET" or "content" not in fault]
            self.violations += [f"{what}: {fault}" for fault in self._comparable(resource, method, faults)]
            if resource.path.endswith(".bin") and method == "GET":
                self._read_range(resource, answer.body)

    def read_older(self) -> None:
        known = [
            (resource, state)
            for resource, states in self._known.items()
            for state in states
            if not (resource.is_draft or resource.is_published)
            and (resource == resource.main or resource.main in self._living)
        ]
        if not known:
            return
        resource, state = self._rng.choice(sorted(known, key=lambda pair: (pair[0], pair[1].instant)))
        answer = self._get(resource, f"?last-modified-time={state.instant}")
        what = f"GET {resource.path} of {state.instant}"
        if self._expect(answer, what, 200):
            self.violations += [f"{what}: {fault}" for fault in mismatch(answer, state, resource)]

    def refused(self) -> None:
        """PUT or DELETE on a condition that does not hold, or of another version: 412 or 400, and nothing happens."""
        mains = [resource for resource in self._mains() if not resource.is_published]
        if not mains:
            return
        resource = self._rng.choice(sorted(mains))
        state = self._living[resource]
        older = [each.etag for each in self._known[resource] if each.etag not in ("", state.etag)]
        condition = {"If-Match": self._rng.choice(older)} if older else {"If-None-Match": "*"}
        body = content(resource, "refused", self._word, "")
        headers = {"Content-Type": XML, **condition}
        own = {"Username": self._user, "Form_Definition_Version": "1"}
        answer = self.line.ask("PUT", url(resource.path), body, headers, **own)
        if answer is not None:
            self._expect(answer, f"PUT {resource.path} with {condition}", 412)
        if older:
            answer = self.line.ask("DELETE", url(resource.path), None, condition, Username=self._user)
            if answer is not None:
                self._expect(answer, f"DELETE {resource.path} with {condition}", 412)
        answer = self.line.ask("PUT", url(resource.path), body, {"Content-Type": XML}, Form_Definition_Version="2")
        if answer is not None:
            self._expect(answer, f"PUT {resource.path} of another version", 400)
        if self._get(resource)["ETag"] != state.etag:
            self.violations.append(f"{resource.path}: a refused request has changed it")

    def search(self) -> None:
        alive = [(resource, token) for resource, token in self._tokens.items() if resource.path.startswith(f"{FORM}/")]
        if alive and self._rng.random() < 0.7:
            resource, token = self._rng.choice(sorted(alive))
            self._search(token, {_named(resource): self._living[resource].instant})
        elif self._gone_tokens:
            self._search(self._rng.choice(self._gone_tokens[-20:]), {})

    def search_all(self) -> None:
        mine = [resource for resource in self._mains() if resource.path.startswith(f"{FORM}/")]
        self._search(self._word, {_named(resource): self._living[resource].instant for resource in mine})

    def distinct(self) -> None:
        query = b'<distinct-values><query path="customer/name"/></distinct-values>'
        answer = self._post(f"{PUBLIC}/distinct-values/{self._form}", query)
        expected = {token for resource, token in self._tokens.items() if resource.path.startswith(f"{self._form}/")}
        if self._expect(answer, "distinct values", 200):
            shown = {each.text for each in ET.fromstring(answer.body).iter("value")}  # noqa: S314 - the service's own
            if shown != expected:
                missing, more = sorted(expected - shown), sorted(shown - expected, key=str)
                self.violations.append(f"distinct values of {self._form}: without {missing}, with {more}")

    def list_versions(self) -> None:
        answer = self.line.read("GET", f"{PUBLIC}/form/{self._form}?all-versions=true")
        if not self._expect(answer, "list of forms", 200):
            return
        shown = {
            int(each.findtext("form-version") or 0): each.findtext("last-modified-time")
            for each in ET.fromstring(answer.body)  # noqa: S314 - the service's own answer
        }
        path = f"{self._form}/form/{FORM_XHTML}"
        every = ((each.version, state.instant) for each, state in self._living.items() if each.path == path)
        living = {version: shortest(Instant(instant)) for version, instant in every}
        if shown != living:
            self.violations.append(f"list of forms: {self._form} has {shown} instead of {living}")

    # How

    def _next(self) -> str:
        self._count += 1
        return f"t{self._number}x{self._count}x"

    def _names(self) -> tuple[str, str]:
        form = self._rng.choice((FORM, FORM, self._form, SEALED))
        return form, f"{form.rpartition('/')[2]}-{self._number}-{self._rng.randrange(_DOCUMENTS)}"

    def _mains(self) -> list[Resource]:
        return [resource for resource in self._living if resource == resource.main]

    @staticmethod
    def _comparable(resource: Resource, method: str, faults: list[str]) -> Iterator[str]:
        """Without the length that a HEAD of encrypted data says: that of the answer to a GET is longer."""
        yield from (fault for fault in faults if not (method == "HEAD" and is_sealed(resource) and "Length" in fault))

    def _get(self, resource: Resource, query: str = "", method: str = "GET") -> Answer:
        own = own_headers(resource)
        return plain(resource, self.line.read(method, url(resource.path) + query, **own))

    def _post(self, path: str, body: bytes) -> Answer:
        own = {"Username": self._user, "Form_Definition_Version": 1}
        return self.line.read("POST", path, body, {"Content-Type": XML}, **own)

    def _read_range(self, resource: Resource, whole: bytes) -> None:
        first = self._rng.randrange(len(whole))
        last = self._rng.randrange(first, len(whole))
        headers = {"Range": f"bytes={first}-{last}"}
        answer = self.line.read("GET", url(resource.path), None, headers, **own_headers(resource))
        is_part = self._expect(answer, f"GET {resource.path} {headers}", 206)
        if is_part and answer.body != whole[first : last + 1]:
            self.violations.append(f"GET {resource.path} {headers}: another part")

    def _search(self, text: str, expected: dict[str, str], query: str = "") -> None:
        query = query or f"<query>{text}</query>"
        answer = self._post(f"{PUBLIC}/search/{FORM}", f"<search>{query}<page-size>99</page-size></search>".encode())
        if not self._expect(answer, f"search for {text}", 200):
            return
        root = ET.fromstring(answer.body)  # noqa: S314 - the service's own answer
        names = found(answer.body)
        shown = dict(zip(names, (each.attrib["last-modified"] for each in root), strict=False))
        if shown != expected or len(names) != len(expected):
            self.violations.append(f"search for {query}: found {shown} instead of {expected}")

    def _save(self, resource: Resource) -> None:
        known = len(self._known[resource])
        begun, _ = self._put_data(resource)
        first = self._known[resource][known]  # where its answer was lost, the same was stored again: either removes it
        self._note_removed_drafts(resource, begun, first.etag)
        self._check_removed([resource])

    def _put_data(self, resource: Resource) -> tuple[int, State]:
        """Store data, with a condition now and then; when the request began that is known to be carried out."""
        token = self._next()
        body = self._content(resource, token)
        state = self._living.get(resource)
        condition = {}
        if self._rng.random() < 0.4:
            condition = {"If-None-Match": "*"} if state is None else {"If-Match": state.etag}
        begun, stored = self._put(resource, body, XML, "1", condition)
        self._forget_token(resource)
        self._tokens[resource] = token
        return begun, stored

    def _content(self, resource: Resource, token: str) -> bytes:
        return content(resource, token, self._word, "f" * self._rng.randrange(_FILLER))

    def _put(
        self, resource: Resource, body: bytes, content_type: str, version: str, condition: dict[str, str] | None = None
    ) -> tuple[int, State]:
        """PUT until it is known to be stored, and its drafts with it to be gone; note it."""
        begun, before = self._ledger.tick(), self._living.get(resource)
        stage = f"stage {begun}"
        more = {"Path_To_Holder": "person/scan"} if is_sealed(resource) and resource != resource.main else {}
        own = {"Form_Definition_Version": version, "Username": self._user, "Workflow_Stage": stage, **more}
        revision = Revision(
            hashlib.sha256(body).hexdigest(), len(body), content_type, str(resource.version or 1), stage, self._user
        )
        while True:
            headers = {"Content-Type": content_type, **(condition or {})}
            answer = self.line.ask("PUT", url(resource.path), body, headers, **own)
            if answer is None:
                stored = self._looked(resource, before, revision)
                if stored is None:
                    continue
                if not any(draft.saved == resource for draft in self._living if draft.is_draft):
                    break
                # The draft may be there still: the same request again completes it.
                before, condition = self._noted(resource, begun, stored), None
                continue
            is_known = resource == resource.main or resource.main in self._living
            expected = (201, 204) if not is_known else (201,) if before is None else (204,)
            self._expect(answer, f"PUT {resource.path}", *expected)
            tag = self._get(resource)["ETag"] if more else answer["ETag"]  # that of the plain content is another
            stored = State(revision, str(tag), str(answer["Svc-Last-Modified"]))
            break
        return begun, self._noted(resource, begun, stored)

    def _looked(self, resource: Resource, before: State | None, revision: Revision) -> State | None:
        """What a PUT of unknown outcome has stored; ``None`` where it was not carried out."""
        answer = self._get(resource)
        tag = answer["ETag"] if answer.status == 200 else None
        if tag == (before.etag if before is not None else None):
            return None
        if answer.status == 200 and hashlib.sha256(answer.body).hexdigest() == revision.digest:
            return State(revision, str(tag), str(answer["Svc-Last-Modified"]))
        self.violations.append(f"{resource.path}: {answer.status}, {tag} after a PUT whose answer was lost")
        return None

    def _noted(self, resource: Resource, begun: int, stored: State) -> State:
        """Note a revision that is known to be stored; the same with its creation and owner."""
        before, states = self._living.get(resource), self._known[resource]
        if states and stored.instant <= states[-1].instant and not resource.is_draft:
            self.violations.append(f"{resource.path}: {stored.instant} after {states[-1].instant}")
        self._ledger.add(Change(resource, begun, self._ledger.tick(), stored))
        assert stored.revision is not None
        origin = before.revision if before is not None else None
        revision = replace(
            stored.revision,
            created=origin.created if origin else stored.instant,
            owner=origin.owner if origin else self._user,
        )
        whole = replace(stored, revision=revision)
        self._living[resource] = whole
        states.append(whole)
        return whole

    def _delete(self, resource: Resource) -> None:
        begun, before = self._ledger.tick(), self._living[resource]
        own = {"Username": self._user, **own_headers(resource)}
        own.pop("Decrypt", None)
        is_known = True
        while (answer := self.line.ask("DELETE", url(resource.path), **own)) is None:
            is_known = False
        allowed = (204,) if is_known else (204, *GONE)
        self._expect(answer, f"DELETE {resource.path}", *allowed)
        tombstone = State(etag=answer["ETag"] or "", instant=answer["Svc-Last-Modified"] or f"{before.instant}+")
        if not resource.is_draft and answer.status == 204 and tombstone.instant <= before.instant:
            self.violations.append(f"{resource.path}: deleted at {tombstone.instant}, after {before.instant}")
        self._note_gone(resource, begun, tombstone)
        if resource == resource.main:
            self._note_removed_drafts(resource, begun, tombstone.etag)
            self._check_removed([resource])

    def _note_gone(self, resource: Resource, begun: int, state: State) -> None:
        self._ledger.add(Change(resource, begun, self._ledger.tick(), state))
        self._living.pop(resource, None)
        self._forget_token(resource)

    def _note_removed_drafts(self, main: Resource, begun: int, etag: str) -> None:
        """What saves or deletes a document takes its draft along, and what removes a draft its attachments."""
        for draft in [resource for resource in self._living if resource.is_draft]:
            if main in (draft.main, draft.saved):
                self._note_gone(draft, begun, State(removed_by=etag))

    def _check_removed(self, saved: list[Resource]) -> None:
        """A draft must be gone with the answer that removes it."""
        for resource in saved:
            if not (resource.is_draft or resource.is_published):
                draft = Resource(resource.path.replace("/data/", "/draft/", 1))
                self._expect(self._get(draft), f"GET {draft.path} after its document was saved or deleted", 404)

    def _forget_token(self, resource: Resource) -> None:
        token = self._tokens.pop(resource, None)
        if token is not None and resource.path.startswith(f"{FORM}/"):
            self._gone_tokens.append(token)


def _named(resource: Resource) -> str:
    return resource.path.split("/")[3] + ("°" if resource.is_draft else "")


class Searcher(Client):
    """Looks after each answer whether it finds what it has stored, and nothing else any more."""

    def act(self) -> None:
        known, gone = set(self._tokens.values()), len(self._gone_tokens)
        super().act()
        for token in self._gone_tokens[gone:]:
            self._search(token, {}, self._any_query(token))
        for resource, token in self._tokens.items():
            if token not in known and resource.path.startswith(f"{FORM}/"):
                self._search(token, {_named(resource): self._living[resource].instant}, self._any_query(token))

    def _any_query(self, token: str) -> str:
        by_name = '<query path="customer/name" match="{}">{}</query>'.format
        return self._rng.choice(("", by_name("exact", token), by_name("substring", token.upper())))


_SHARED = 2
_SMALL = 8_000
_LARGE = (1 << 20) + 4096, (1 << 20) + (1 << 18)


class Writer(Client):
    """One client, with documents and a form of its own, and documents that all clients save.

    ``large`` is how many attachments over 1 MiB it may still send.
    """

    def __init__(self, service: Service, ledger: Ledger, number: int, *, large: int) -> None:
        super().__init__(lambda: service, ledger, number)
        self._large = large
        # Most of what a form runtime does is saving.
        self._actions = {
            self.save: 4,
            self.save_shared: 3,
            self.attach_first: 2,
            self.attach: 2,
            self.attach_large: 1,
            self.draft: 2,
            self.publish: 2,
            self.delete: 1,
            self.search: 1,
        }

    def save_shared(self) -> None:
        resource = data(FORM, f"shared-{self._rng.randrange(_SHARED)}")
        begun, body = self._ledger.tick(), self._content(resource, self._next())
        own = {"Form_Definition_Version": "1", "Username": self._user, "Workflow_Stage": f"stage {begun}"}
        answer = self.line.read("PUT", url(resource.path), body, {"Content-Type": XML}, **own)
        if self._expect(answer, f"PUT {resource.path}", 201, 204):
            digest = hashlib.sha256(body).hexdigest()
            revision = Revision(digest, len(body), XML, "1", f"stage {begun}", self._user)
            state = State(revision, str(answer["ETag"]), str(answer["Svc-Last-Modified"]))
            self._ledger.add(Change(resource, begun, self._ledger.tick(), state))

    def attach_first(self) -> None:
        """PUT of a small attachment of a document, which may come after it."""
        self._attach(f"scan{self._rng.randrange(2)}.bin", self._rng.randrange(1, _SMALL))

    def attach_large(self) -> None:
        """PUT of an attachment that the service syncs before it takes the lock; a small one when enough were sent."""
        if self._large == 0:
            self.attach_first()
            return
        self._large -= 1
        self._attach("large.bin", self._rng.randrange(*_LARGE))

    def _attach(self, name: str, size: int) -> None:
        main = data(*self._names())
        resource = Resource(f"{main.path.rpartition('/')[0]}/{name}")
        self._put(resource, self._rng.randbytes(size), BINARY, "1")

    def _names(self) -> tuple[str, str]:
        return FORM, f"client{self._number}-{self._rng.randrange(_DOCUMENTS)}"


# The forms, documents and contents that clients work on, and how answers about encrypted ones are compared.

SEALED = "hr/sealed"
"""The form that marks controls: its documents are encrypted on disk, and plain in answers."""

XML, XHTML, BINARY = "application/xml", "application/xhtml+xml", "image/png"
_ADDED = re.compile(rb' xmlns:fr="http://orbeon\.org/oxf/xml/form-runner"| fr:[a-z-]+-encrypted="true"')

SHARED = {FORM: orders.definition(), SEALED: encrypted_form.DEFINITION}
"""The definitions of the forms that all clients save data to."""


def data(form: str, document: str, collection: str = "data") -> Resource:
    return Resource(f"{form}/{collection}/{document}/{DATA_XML}")


def is_sealed(resource: Resource) -> bool:
    return resource.path.startswith(f"{SEALED}/") and not resource.is_published


def content(resource: Resource, token: str, word: str, filler: str) -> bytes:
    """Data with a text that no other content has, one that all of a client's have, and some length."""
    if is_sealed(resource):
        return encrypted_form.data().replace(encrypted_form.OPEN.encode(), f"{token} {word} {filler}".encode())
    values = f"<name>{token}</name><email>{token}@example.org</email><notes>{word} {filler}</notes>"
    return f"<form><customer>{values}</customer></form>".encode()


def url(path: str) -> str:
    return f"{PUBLIC}/crud/{path}"


def own_headers(resource: Resource) -> dict[str, object]:
    """Headers of a request to a resource: the version of a definition, and decryption of an attachment."""
    own: dict[str, object] = {} if resource.version is None else {"Form_Definition_Version": resource.version}
    return own | ({"Decrypt": "true"} if is_sealed(resource) and resource != resource.main else {})


def plain(resource: Resource, answer: Answer) -> Answer:
    """An answer as it would be without encryption: that adds a declaration to each value that was encrypted."""
    if not is_sealed(resource) or answer.status != 200 or resource != resource.main:
        return answer
    body, headers = _ADDED.sub(b"", answer.body), HTTPMessage()
    for name, value in Message.items(answer.headers):
        is_whole = name == "Content-Length" and answer.body and value == str(len(answer.body))
        headers[name] = str(len(body)) if is_whole else value
    return Answer(answer.status, headers, body)


class Plain(Service):
    """A service whose encrypted contents are asked for, and compared, plain."""

    def __init__(self, service: Service) -> None:
        super().__init__(service.port, service.data, service.log, service.process)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, **own: object
    ) -> Answer:
        resource = Resource(path.partition("?")[0])
        more = own_headers(resource) if method == "GET" and not resource.is_published else {}
        return plain(resource, super().ask(method, path, body, headers, **{**more, **own}))
