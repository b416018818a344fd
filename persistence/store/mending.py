"""Commits that bring no new content: what a repair and an adoption do, under the lock of the resource.

They end with the same rename of a prepared sidecar as every other commit, so that readers and crashes see either the
state before or the state after. Functions raise ``OSError``.
"""

from __future__ import annotations

from persistence.model.sidecar import Sidecar, stamp
from persistence.store import files, sidecars
from persistence.store.layout import Place


def adopt(place: Place, sidecar: Sidecar) -> None:
    """Make a sidecar that of the content in place, which gets its stamp.

    Whoever writes the content afterwards changes its time again, so a late change of an editor is found later.
    """
    files.separate(place.content, place.pending(sidecar.id))  # another document may have the same file
    files.stamp_durably(place.content, stamp(sidecar))
    _commit(place, sidecar)


def reinstate(place: Place, sidecar: Sidecar, content: str) -> None:
    """Make an older revision the current one; ``content`` is a path of its content, which keeps that name."""
    pending = place.pending(sidecar.id)
    files.remove(pending)
    files.keep_as(content, pending)
    _commit(place, sidecar)
    files.rename(pending, place.content)
    files.remove(pending)  # two names of one file are left by a rename of one over the other


def entomb(place: Place, tombstone: Sidecar) -> None:
    """Record a resource without content as deleted."""
    _commit(place, tombstone)


def _commit(place: Place, sidecar: Sidecar) -> None:
    files.remove(place.prepared)  # not truncated: it may be another name of something else
    with files.written(place.prepared, sidecars.encode(sidecar)) as prepared:
        files.sync(prepared)
    files.sync_directory(place.directory)
    files.rename(place.prepared, place.sidecar)  # committed
    files.sync_directory(place.directory)
