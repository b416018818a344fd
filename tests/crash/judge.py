"""What is promised about a tree that a crash left, checked with the service's own reading and writing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from persistence.closable import Closable
from persistence.dialect import SVC
from persistence.errors import PersistenceError
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.instants import Instant
from persistence.model.versions import VersionRequest
from persistence.properties.properties import Properties
from persistence.providers.tree_provider import open_index
from persistence.services.rules import Put, Written
from persistence.settings import Settings
from persistence.storage import stored_revision
from persistence.storage.layout import FilePaths, Layout
from persistence.storage.store import Store
from persistence.storage.stored_revision import Integrity, StoredRevision
from tests.crash import trees
from tests.crash.traces import UNTRACED
from tests.crash.trees import State
from tests.initialised import initialised
from tests.opened import services_of

FORM = Form("app", "form")
DATA = DocumentAddress(FORM, Collection.DATA, "document", DATA_XML)
SCAN = DATA.moved(Collection.DATA, "scan.bin")
DRAFT = tuple(DATA.moved(Collection.DRAFT, name) for name in (DATA_XML, "scan.bin", "signature.bin"))
PUBLISHED, NEXT = (DefinitionAddress(FORM, version, FORM_XHTML) for version in (1, 2))
NEXT_BODY = b"<next/>"


@dataclass(frozen=True, slots=True)
class Revision:
    """What a request stored; a tombstone has no ``body``."""

    etag: str
    modified: Instant
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Change:
    """What the request under test makes of one resource; ``old`` is ``None`` where there was none.

    ``draft`` is what saving the document removes, file by file. ``others`` must stay as they are.
    """

    address: Address
    old: Revision | None
    new: Revision
    draft: tuple[tuple[DocumentAddress, bytes], ...] = ()
    others: tuple[tuple[Address, Revision], ...] = ()


class Judge(Closable):
    """Makes one tree after the other real below a root, and says what is wrong with it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        properties = Properties.load({}, SVC.property_prefix)
        self._opened = ExitStack()
        store = self._opened.enter_context(Store(initialised(root), lock_timeout=1))
        index = self._opened.enter_context(open_index(Settings(data=store.root), properties, store.root))
        services = services_of(store, SVC, properties, index)
        self._documents, self._definitions = services.documents, services.definitions
        self._layout = Layout(str(root))

    def close(self) -> None:
        """Let go of the tree."""
        self._opened.close()

    def faults(self, state: State, change: Change, *, acknowledged: bool, killed: bool) -> list[str]:
        """Everything wrong with a tree that a kill, or else a power cut, has left during a change or after it.

        Only a kill leaves nothing that the next writer would not clear away: a power cut may have taken the names
        that lead there.
        """
        trees.materialise(state, self._root, UNTRACED)
        try:
            return list(self._faults(change, acknowledged=acknowledged, killed=killed))
        except (PersistenceError, OSError) as error:
            return [f"{type(error).__name__}: {str(error).replace(str(self._root), '')}"]

    def _faults(self, change: Change, *, acknowledged: bool, killed: bool) -> Iterator[str]:
        possible = (change.new,) if acknowledged else (change.old, change.new)
        found, body = self._read(change.address)
        current = _which(found, possible)
        if current is _UNKNOWN:
            yield f"{_tag(found)} is there instead of {' or '.join(_tag(one) for one in possible)}"
            return
        yield from _mismatch(found, body, current)
        if change.old is not None and current is change.new:
            yield from self._missing_in_history(change.address, change.old)
        if change.draft:
            yield from self._draft_faults(change, is_saved=current is change.new, acknowledged=acknowledged)
        yield from self._other_faults(change)
        yield from self._next_write(change, current, killed=killed)

    def _draft_faults(self, change: Change, *, is_saved: bool, acknowledged: bool) -> Iterator[str]:
        files = [(*self._read(address), body) for address, body in change.draft]
        there = [found is not None for found, _, _ in files]
        if any(there) and not all(there):
            yield "only a part of the draft is there"
        if not any(there) and not is_saved:
            yield "the draft is gone before the document is saved"
        if any(there) and acknowledged:
            yield "the draft is still there after the document was saved"
        if any(body != stored for found, body, stored in files if found is not None):
            yield "the draft is not what was stored"

    def _other_faults(self, change: Change) -> Iterator[str]:
        for address, revision in change.others:
            found, body = self._read(address)
            if found is None or found.etag != revision.etag or body != revision.body:
                yield f"{address} is not as it was"

    def _missing_in_history(self, address: Address, revision: Revision) -> Iterator[str]:
        found, body = _read(self._layout.paths(address).revision(revision.modified))
        if found is None or found.etag != revision.etag or body != revision.body:
            yield f"{_tag(revision)} is not in the history, as it was"

    def _next_write(self, change: Change, current: Revision | None, *, killed: bool) -> Iterator[str]:
        if isinstance(change.address, DefinitionAddress):
            version = self._publish(change.address, VersionRequest(wants_next=True)).sidecar.version
            if version != change.address.version + (current is not None):
                yield f"the next version has number {version}"
                return
            if current is None:
                current = self._stored(change.address)
        self._write(change.address)
        found, body = self._read(change.address)
        if found is None or body != NEXT_BODY or found.etag != found.sidecar.id:
            yield "the next write is not there"
        if current is not None:
            yield from self._missing_in_history(change.address, current)
        if change.address == DATA and any(self._read(address)[0] is not None for address in DRAFT):
            yield "the next write leaves the draft"
        yield from self._other_faults(change)
        directory = Path(self._layout.paths(change.address).directory)
        stray = [path.name for path in directory.glob(".*") if path.name != ".history"]
        if stray and killed:
            yield f"the next write leaves {stray}"

    def _write(self, address: Address) -> None:
        if isinstance(address, DefinitionAddress):
            self._publish(address, VersionRequest(number=address.version))
        else:
            self._documents.write(address, Put(), [NEXT_BODY])

    def _publish(self, address: DefinitionAddress, version: VersionRequest) -> Written:
        return self._definitions.write(address.form, address.name, Put(version=version), [NEXT_BODY])

    def _stored(self, address: Address) -> Revision | None:
        found, body = self._read(address)
        return None if found is None else Revision(found.etag, found.sidecar.modified, body)

    def _read(self, address: Address) -> tuple[StoredRevision | None, bytes | None]:
        return _read(self._layout.paths(address))


_UNKNOWN = Revision("", Instant(""), None)


def _read(place: FilePaths) -> tuple[StoredRevision | None, bytes | None]:
    found = stored_revision.read(place, Integrity(), content=True)
    if found is None or found.file is None:
        return found, None
    with found.file:
        return found, found.file.read()


def _which(found: StoredRevision | None, possible: tuple[Revision | None, ...]) -> Revision | None:
    for revision in possible:
        if (found.etag if found else None) == (revision.etag if revision else None):
            return revision
    return _UNKNOWN


def _mismatch(found: StoredRevision | None, body: bytes | None, current: Revision | None) -> Iterator[str]:
    if found is None or current is None:
        return
    if body != current.body or found.sidecar.deleted != (body is None):
        yield f"{_tag(current)} has the content of another revision, or a torn one"
    if body is not None:
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if (len(body), digest) != (found.sidecar.size, found.sidecar.digest):
            yield f"the sidecar of {_tag(current)} does not describe its content"


def _tag(revision: StoredRevision | Revision | None) -> str:
    return "nothing" if revision is None else f"revision {revision.etag[:8]}"
