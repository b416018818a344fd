"""The load: clients that store, replace, attach, draft, delete and publish, and note every answer."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

from persistence.model.addresses import DATA_XML, FORM_XHTML
from tests.powercut.ledger import Change, Ledger, Resource, Revision, State
from tests.service import Answer, Service

FORM = "hr/leave"
_DOCUMENTS = 3
_SHARED = 2
_SMALL = 8_000
_LARGE = (1 << 20) + 4096, (1 << 20) + (1 << 18)
_XML, _XHTML, _BINARY = "application/xml", "application/xhtml+xml", "image/png"


class UnexpectedAnswerError(Exception):
    """A request of the load was not answered as it must be; the text is the answer."""


class Client:
    """One client, with documents and a form of its own, and documents that all clients save.

    Its own documents see one request at a time, so that it knows their order; ``large`` is how many attachments over
    1 MiB it may still send.
    """

    def __init__(self, service: Service, ledger: Ledger, number: int, *, large: int) -> None:
        self._service = service
        self._ledger = ledger
        self._rng = random.Random(number)
        self._large = large
        self._user = f"user{number}"
        self._documents = [f"client{number}-{document}" for document in range(_DOCUMENTS)]
        self._form = f"hr/form{number}"
        self._living: dict[Resource, State] = {}
        # Small choices twice and thrice, because most of what a form runtime does is saving.
        self._actions: tuple[Callable[[], None], ...] = (
            *(self.save,) * 4,
            *(self.save_shared,) * 3,
            *(self.attach,) * 2,
            *(self.draft,) * 2,
            self.attach_large,
            self.attach_to_draft,
            self.publish_next,
            self.publish_over,
            self.attach_to_definition,
            self.delete,
            self.search,
        )

    def act(self) -> None:
        """One request, chosen at random."""
        self._rng.choice(self._actions)()

    def save(self) -> None:
        """PUT of a document, new or over; its draft goes."""
        document = self._rng.choice(self._documents)
        self._save(Resource(f"{FORM}/data/{document}/{DATA_XML}"))

    def save_shared(self) -> None:
        """PUT of a document that others save at the same time."""
        self._save(Resource(f"{FORM}/data/shared-{self._rng.randrange(_SHARED)}/{DATA_XML}"))

    def attach(self) -> None:
        """PUT of a small attachment of a document, new or over."""
        document = self._rng.choice(self._documents)
        self._put(Resource(f"{FORM}/data/{document}/scan{self._rng.randrange(2)}.bin"), self._bytes(_SMALL), _BINARY)

    def attach_large(self) -> None:
        """PUT of an attachment that the service syncs before it takes the lock; a small one when enough were sent."""
        if self._large == 0:
            self.attach()
            return
        self._large -= 1
        document = self._rng.choice(self._documents)
        body = self._rng.randbytes(self._rng.randrange(*_LARGE))
        self._put(Resource(f"{FORM}/data/{document}/large.bin"), body, _BINARY)

    def draft(self) -> None:
        """PUT of a draft, new or over."""
        self._put(Resource(f"{FORM}/draft/{self._rng.choice(self._documents)}/{DATA_XML}"), self._xml(), _XML)

    def attach_to_draft(self) -> None:
        """PUT of an attachment of a draft."""
        document = self._rng.choice(self._documents)
        self._put(Resource(f"{FORM}/draft/{document}/scan.bin"), self._bytes(_SMALL), _BINARY)

    def publish_next(self) -> None:
        """PUT of a definition as the next version."""
        self._put(Resource(f"{self._form}/form/{FORM_XHTML}"), self._xml(), _XHTML, "next")

    def publish_over(self) -> None:
        """PUT over a published definition; the first where there is none."""
        versions = [resource.version for resource in self._living if resource.is_published]
        number = self._rng.choice(versions) if versions else 1
        self._put(Resource(f"{self._form}/form/{FORM_XHTML}", number), self._xml(), _XHTML, str(number))

    def attach_to_definition(self) -> None:
        """PUT of an attachment of a definition's first version."""
        self._put(Resource(f"{self._form}/form/logo.png", 1), self._bytes(_SMALL), _BINARY, "1")

    def delete(self) -> None:
        """DELETE of something of its own that is there; where nothing is, it saves."""
        mine = [resource for resource in self._living if self._may_go(resource)]
        if mine:
            self._delete(self._rng.choice(sorted(mine)))
        else:
            self.save()

    def search(self) -> None:
        """A search, so that there is an index to be lost; what it finds is judged after the cut."""
        answer = self._service.raw("POST", f"/search/{FORM}", {"Content-Type": _XML}, b"<search/>")
        _accepted(answer, 200, 503)

    def _may_go(self, resource: Resource) -> bool:
        return "/shared-" not in resource.path and resource.main in self._living

    def _xml(self) -> bytes:
        return f"<d by='{self._user}'>{self._rng.randbytes(self._rng.randrange(20, _SMALL // 2)).hex()}</d>".encode()

    def _bytes(self, most: int) -> bytes:
        return self._rng.randbytes(self._rng.randrange(1, most))

    def _save(self, resource: Resource) -> None:
        begun, acknowledged, etag = self._put(resource, self._xml(), _XML)
        self._note_removed_drafts(resource, begun, acknowledged, etag)

    def _put(
        self, resource: Resource, body: bytes, content_type: str, version: str | None = None
    ) -> tuple[int, int, str]:
        begun = self._ledger.tick()
        stage = f"stage {begun}"
        answer = self._service.put(
            resource.path,
            body,
            {"Content-Type": content_type},
            Form_Definition_Version=version or "1",
            Username=self._user,
            Workflow_Stage=stage,
        )
        acknowledged = self._ledger.tick()
        stored = str(_accepted(answer, 201, 204)["Svc-Form-Definition-Version"])
        if resource.is_published:
            resource = Resource(resource.path, int(stored))
        digest = hashlib.sha256(body).hexdigest()
        revision = Revision(digest, len(body), content_type, stored, stage, self._user)
        state = State(revision, str(answer["ETag"]), str(answer["Svc-Last-Modified"]))
        self._note(Change(resource, begun, acknowledged, state))
        return begun, acknowledged, state.etag

    def _delete(self, resource: Resource) -> None:
        begun = self._ledger.tick()
        version = {} if resource.version is None else {"Form_Definition_Version": resource.version}
        answer = _accepted(self._service.delete(resource.path, Username=self._user, **version), 204)
        acknowledged = self._ledger.tick()
        # A draft leaves nothing that could have a tag or a date.
        etag, instant = answer["ETag"] or "", answer["Svc-Last-Modified"] or ""
        self._note(Change(resource, begun, acknowledged, State(etag=etag, instant=instant)))
        if resource == resource.main:
            self._note_removed_drafts(resource, begun, acknowledged, etag)

    def _note_removed_drafts(self, main: Resource, begun: int, acknowledged: int, etag: str) -> None:
        """Whatever removes the draft itself or saves or deletes its document takes the draft's attachments along."""
        for draft in [resource for resource in self._living if resource.is_draft]:
            if main in (draft.main, draft.saved):
                self._note(Change(draft, begun, acknowledged, State(removed_by=etag)))

    def _note(self, change: Change) -> None:
        self._ledger.add(change)
        if change.state.revision is None:
            self._living.pop(change.resource, None)
        else:
            self._living[change.resource] = change.state


def _accepted(answer: Answer, *statuses: int) -> Answer:
    if answer.status not in statuses:
        raise UnexpectedAnswerError(f"{answer.status}: {answer.cause}")
    return answer
