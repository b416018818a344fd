"""Search for revisions that are encrypted with a key, in one storage: a key that none needs may be retired.

Older revisions, drafts and deleted documents count. A revision that cannot be read is a problem: it may need the key.
"""

from __future__ import annotations

from collections.abc import Callable

from persistence.crypto import frames
from persistence.crypto.value_cipher import key_of
from persistence.errors import BusyError, ConfigurationError, DamagedError, MalformedXmlError, disk_errors
from persistence.forms.encryption import ValueDecrypter
from persistence.limits import CHUNK
from persistence.model.addresses import Form
from persistence.model.versions import Place
from persistence.services.data_revisions import DataRevision, living_revisions, opened_revision
from persistence.storage.managed import BodiesOf, ManagedStorage
from persistence.storage.split_attachments import RevisionRewriter
from persistence.storage.stored_revision import StoredRevision

_ATTEMPTS = 3


class KeyReferences:
    """Finds the revisions of one storage that are encrypted with a key.

    Attachments of a form are not read if it ``keeps_bodies_elsewhere``, with another service.
    """

    def __init__(
        self, store: ManagedStorage, bodies_of: BodiesOf, key_id: str, keeps_bodies_elsewhere: Callable[[Form], bool]
    ) -> None:
        self._store = store
        self._rewriter = RevisionRewriter(store, bodies_of)
        self._key_id = key_id
        self._keeps_bodies_elsewhere = keeps_bodies_elsewhere

    def of(self, form: Form, document: str) -> tuple[int, list[str]]:
        """Return how many revisions of a document, its attachments and its draft need the key, and problems."""
        for _ in range(_ATTEMPTS):
            problems = list[str]()
            found = [
                self._needs_key(each, problems)
                for each in living_revisions(self._store, self._rewriter, form, document, problems)
                if each.sidecar.body is None or not self._keeps_bodies_elsewhere(form)
            ]
            if None not in found:  # else a revision was moved meanwhile to a place that was read before
                return sum(map(bool, found)), problems
        return 0, [f"{form}/data/{document} is written too often to be read: run this again"]

    def _needs_key(self, revision: DataRevision, problems: list[str]) -> bool | None:
        hashed = revision.sidecar.sealed_hash
        if hashed is not None and key_of(hashed) == self._key_id:
            return True
        try:
            found = opened_revision(self._rewriter, revision)
            if found is None:
                return None
            with found.opened, disk_errors("reading", revision.address):
                return self._is_in(revision, found)
        except MalformedXmlError as error:
            problems.append(f"{revision.address} cannot be read: {error}")
        except (BusyError, ConfigurationError, DamagedError) as error:
            problems.append(str(error))
        return False

    def _is_in(self, revision: DataRevision, found: StoredRevision) -> bool:
        if not revision.address.is_main:
            header = frames.read_header(found.opened)
            return header is not None and header.key_id == self._key_id
        if revision.sidecar.encrypted is False and not found.is_edited:  # noted while the content was stored
            return False
        used = set[str | None]()

        def note(value: str, _: Place) -> str:
            used.add(key_of(value))
            return value

        with ValueDecrypter(note) as reading:
            for _ in reading.edited(iter(lambda: found.opened.read(CHUNK), b"")):
                pass
            if reading.seal is not None:
                used.add(key_of(reading.seal))
        return self._key_id in used
