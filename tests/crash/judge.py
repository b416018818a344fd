"""What is promised about a tree that a crash left, checked with the service's own reading and writing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from persistence.dialect import DIALECTS
from persistence.errors import PersistenceError
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.service.documents import Documents
from persistence.service.requests import Put
from persistence.store import reading
from persistence.store.layout import Layout, Place
from persistence.store.reading import Found
from persistence.store.store import Store
from tests.crash import trees
from tests.crash.traces import UNTRACED
from tests.crash.trees import State

ADDRESS = DocumentAddress(Form("app", "form"), Collection.DATA, "document", DATA_XML)
DRAFT = ADDRESS.moved(Collection.DRAFT)
NEXT_BODY = b"<next/>"


@dataclass(frozen=True, slots=True)
class Revision:
    """What a request stored; a tombstone has no ``body``."""

    etag: str
    modified: Instant
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Change:
    """What the request under test makes of the document; ``old`` is ``None`` where there was none.

    ``draft`` is the content of the draft that saving the document removes, if there is one.
    """

    old: Revision | None
    new: Revision
    draft: bytes | None


class Judge:
    """Makes one tree after the other real below a root, and says what is wrong with it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        store = Store(str(root), lock_timeout=1)
        self._documents = Documents(store, DIALECTS["svc"], data_format="4.0.0")
        layout = Layout(str(root))
        self._place, self._draft = layout.place(ADDRESS), layout.place(DRAFT)

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
        found, body = _read(self._place)
        current = _which(found, possible)
        if current is _UNKNOWN:
            yield f"{_tag(found)} is there instead of {' or '.join(_tag(one) for one in possible)}"
            return
        yield from _mismatch(found, body, current)
        if change.old is not None and current is change.new:
            yield from self._missing_in_history(change.old)
        if change.draft is not None:
            yield from self._draft_faults(change.draft, is_saved=current is change.new, acknowledged=acknowledged)
        yield from self._next_write(current, killed=killed)

    def _draft_faults(self, draft: bytes, *, is_saved: bool, acknowledged: bool) -> Iterator[str]:
        found, body = _read(self._draft)
        if found is None and not is_saved:
            yield "the draft is gone before the document is saved"
        if found is not None and acknowledged:
            yield "the draft is still there after the document was saved"
        if found is not None and body != draft:
            yield "the draft is not what was stored"

    def _missing_in_history(self, revision: Revision) -> Iterator[str]:
        found, body = _read(self._place.revision(revision.modified))
        if found is None or found.etag != revision.etag or body != revision.body:
            yield f"{_tag(revision)} is not in the history, as it was"

    def _next_write(self, current: Revision | None, *, killed: bool) -> Iterator[str]:
        self._documents.write(ADDRESS, Put(), [NEXT_BODY])
        found, body = _read(self._place)
        if found is None or body != NEXT_BODY or found.etag != found.sidecar.id:
            yield "the next write is not there"
        if current is not None:
            yield from self._missing_in_history(current)
        if _read(self._draft)[0] is not None:
            yield "the next write leaves the draft"
        stray = [path.name for path in Path(self._place.directory).glob(".*") if path.name != ".history"]
        if stray and killed:
            yield f"the next write leaves {stray}"


_UNKNOWN = Revision("", Instant(""), None)


def _read(place: Place) -> tuple[Found | None, bytes | None]:
    found = reading.read(place, content=True)
    if found is None or found.file is None:
        return found, None
    with found.file:
        return found, found.file.read()


def _which(found: Found | None, possible: tuple[Revision | None, ...]) -> Revision | None:
    for revision in possible:
        if (found.etag if found else None) == (revision.etag if revision else None):
            return revision
    return _UNKNOWN


def _mismatch(found: Found | None, body: bytes | None, current: Revision | None) -> Iterator[str]:
    if found is None or current is None:
        return
    if body != current.body or found.sidecar.deleted != (body is None):
        yield f"{_tag(current)} has the content of another revision, or a torn one"
    if body is not None:
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if (len(body), digest) != (found.sidecar.size, found.sidecar.digest):
            yield f"the sidecar of {_tag(current)} does not describe its content"


def _tag(revision: Found | Revision | None) -> str:
    return "nothing" if revision is None else f"revision {revision.etag[:8]}"
