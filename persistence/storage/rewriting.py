"""The data of a tree, older revisions too, to be read and rewritten in place wherever its bodies are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from persistence.errors import BusyError, ConfigurationError, DamagedError, disk_errors
from persistence.model.addresses import DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.storage.attachment_bodies import FileBodies
from persistence.storage.split_attachments import described, recorded
from persistence.storage.store import Store
from persistence.storage.stored_revision import StoredRevision
from persistence.storage.uploads import Upload

BodiesOf = Callable[[Form], FileBodies | None]
"""Returns where the bodies of a form's attachments are, if they have a directory of their own."""


class RevisionRewriter:
    """Reads and rewrites revisions of one tree. An ``instant`` selects an older one, ``None`` the current one.

    Methods raise the errors of ``Store``, and ``ConfigurationError`` for a body in a directory that is not known.
    """

    def __init__(self, store: Store, bodies_of: BodiesOf) -> None:
        self._store = store
        self._bodies_of = bodies_of

    def record(self, address: DocumentAddress, instant: Instant | None) -> Sidecar | None:
        """Return the record of a revision in the tree, no matter where its body is; ``None`` where there is none."""
        found = self._read(address, instant, content=False)
        return None if found is None else found.sidecar

    def read(self, address: DocumentAddress, instant: Instant | None) -> StoredRevision | None:
        """Return a revision with its record as sidecar, its content open; ``None`` where it is not there any more.

        Raises:
            DamagedError: its body is missing, or was not stored by this service.
        """
        found = self._read(address, instant, content=True)
        if found is None or address.is_main or found.sidecar.deleted or found.size:
            return found
        record = found.sidecar
        if record.body is None:
            bodies = self._bodies_of(address.form)
            with disk_errors("reading", address):
                if bodies is None or bodies.find(address, record, content=False) is None:
                    return found
            found.close()
            raise DamagedError(f"the body of {address} was not stored by this service")
        found.close()
        bodies = self._bodies(address)
        body, damage = None, None
        try:
            with disk_errors("reading", address):
                body = bodies.find(address, record, content=True)
        except DamagedError as error:
            damage = error
        if body is None or body.is_edited:
            again = self.record(address, instant)
            if again is None or again.id != record.id:
                if body is not None:
                    body.close()
                return None
        if damage is not None:
            raise damage
        if body is None:
            raise DamagedError(f"the body of {address} is missing where its attachments are kept")
        return replace(body, sidecar=record)

    def upload(self, address: DocumentAddress, over: Sidecar) -> Upload:
        """Begin to receive the content that a revision is to have instead."""
        if over.body is None:
            return self._store.upload(address)
        bodies = self._bodies(address)
        with disk_errors("receiving a body"):
            return bodies.upload()

    def rewrite(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> bool:
        """See ``Writer.rewrite``; ``over`` is the record, and ``rewritten`` says size and digest of the upload."""
        with self._store.writing(address) as writer:
            if over.body is None:
                return writer.rewrite(address, instant, over, rewritten, upload)
            now = self.record(address, instant)
            if now is None or now.id != over.id:
                return False
            record = recorded(rewritten)
            with (
                self._bodies(address).replacing(address, instant, described(over), rewritten, upload),
                self._store.upload(address) as nothing,
            ):
                if not writer.rewrite(address, instant, over, record, nothing):
                    raise BusyError(f"{address} was written meanwhile")
            return True

    def finish(self, main: DocumentAddress) -> None:
        """Finish or discard interrupted writes of a document, its attachments and its older revisions."""
        bodies = self._bodies_of(main.form)
        with disk_errors("listing", main):
            is_unfinished = bodies is not None and bodies.has_unfinished(main)
        if is_unfinished or self._store.has_unfinished(main):
            with self._store.writing(main) as writer:
                writer.finish(main)
                if bodies is not None:
                    bodies.finish(main, self.record)

    def _bodies(self, address: DocumentAddress) -> FileBodies:
        bodies = self._bodies_of(address.form)
        if bodies is None:
            raise ConfigurationError(f"the body of {address} is with another provider, which has no directory here")
        return bodies

    def _read(self, address: DocumentAddress, instant: Instant | None, *, content: bool) -> StoredRevision | None:
        if instant is None:
            return self._store.read(address, content=content)
        return self._store.read_older(address, instant, content=content)
