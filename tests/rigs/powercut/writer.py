"""The load of power cuts: clients that store, replace, attach, draft, delete and publish, and note every answer."""

from __future__ import annotations

import hashlib

from tests.rigs.clients import Client
from tests.rigs.ledger import FORM, Change, Ledger, Resource, Revision, State
from tests.rigs.world import BINARY, XML, data, url
from tests.service import Service

_DOCUMENTS = 3
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
        if self._expect_status(answer, f"PUT {resource.path}", 201, 204):
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
