"""Finding index rows that are out of date. This is the whole protocol that keeps an index in step with its tree.

1.  Before a document changes, its name is written to the journal (``journal``). After the change the updater replaces
    its rows and strikes the name off (``updater``). A process that is killed leaves its journal to the others.
2.  A search reads the journal first and the index after it: what is struck off in between is in the index by then.
    Documents in the journal whose fingerprints differ from those in the index are read again before the answer.
3.  A search compares the fingerprints of the definitions of all versions. If the indexed controls of a version have
    changed, its documents are read again before the answer. If its definition was deleted, they are hidden.
4.  The documents on a page are compared with their files: somebody may have edited one by hand.
5.  A document is read within the transaction that replaces its rows, and its fingerprint is taken before it is read.
    Transactions come one after the other, so the last one has read what was written last: it does not matter who
    replaces which rows, how often, and in what order (``refresh``).
6.  An index says of which tree it is: device and inode of the root, and the start of the machine. After another start
    it is compared with the whole tree, as a power cut may have taken the last changes. In another place it is rebuilt:
    the files of a copied tree may have been copied at different moments (``generations``).
7.  An index and a file beside it count its changes. SQLite keeps the last changes in a log of its own. If somebody
    removes that while no process has it open, or puts an older copy in the place of the index, SQLite notices nothing;
    the number in the index is then behind the other, and the index is rebuilt.
8.  A new index is built beside the one in use, which lists what changes meanwhile. At the end this is read again while
    nobody can change the one in use, and the new one takes its place. Whoever has changed the old one then looks
    whether it is still in use, and if it is not, changes the new one (``rebuild``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from persistence.index.sources import UNKNOWN, Source
from persistence.index.sqlite.state import Connection, IndexState

_BATCH = 1_000


class Stale(NamedTuple):
    """The parts of an index that are out of date, for the most part none.

    ``definitions`` are the versions whose definitions have changed, and the documents of ``versions`` must be read
    again.
    """

    documents: Sequence[str]
    definitions: Sequence[int]
    versions: Sequence[int]


def look(connection: Connection, source: Source, documents: Iterable[str]) -> Stale:
    """Return which of some documents and of all definitions are out of date in an index.

    Raises:
        EngineError: the index cannot be read.
        DiskError: the tree cannot be read.
    """
    state = IndexState(connection)
    return Stale(
        [each for each in documents if state.fingerprints(each) != source.fingerprints(each)],
        [version for version, known in state.definitions() if known != source.definition_fingerprint(version)],
        state.outdated(),
    )


def differing(connection: Connection, source: Source) -> Iterator[str | None]:
    """Compare the whole tree: yield each document that differs, and ``None`` for each that does not.

    Raises as ``look`` does.
    """
    state, same = IndexState(connection), 0
    for document, is_draft in source.documents():
        fingerprint = source.fingerprint(document, is_draft=is_draft)
        known = state.fingerprints(document)[0 if is_draft else 1]
        if known == fingerprint:
            same += known != ""
            yield None
        elif known or source.read(document, is_draft=is_draft, fingerprint=fingerprint, definitions=lambda _: UNKNOWN):
            yield document
        else:
            yield None  # deleted, or damaged: there should be no row
    if same < state.count():
        yield from _vanished(state, source)


def _vanished(state: IndexState, source: Source) -> Iterator[str]:
    last = 0
    while rows := state.names(last, _BATCH):
        for _, document, is_draft in rows:
            if not source.fingerprint(document, is_draft=is_draft):
                yield document
        last = rows[-1][0]
