"""Commits that bring no new content: what a repair and an adoption do, under the lock of the resource.

They end with the same rename of a prepared sidecar as every other commit, so that readers and crashes see either the
state before or the state after. Functions raise ``OSError``.
"""

from __future__ import annotations

from persistence.model.sidecar import Sidecar, stamp
from persistence.storage import files, sidecars
from persistence.storage.layout import Place


def adopt(place: Place, sidecar: Sidecar) -> None:
    """Make a sidecar that of the content in place, which gets its stamp.

    Whoever writes the content afterwards changes its time again, so a late change of an editor is found later.
    """
    files.separate(place.content, place.pending(sidecar.id))  # another document may have the same file
    files.stamp_durably(place.content, stamp(sidecar))
    replace_sidecar(place, sidecar)


def reinstate(place: Place, sidecar: Sidecar, content: str) -> None:
    """Make an older revision the current one; ``content`` is a path of its content, which keeps that name."""
    pending = place.pending(sidecar.id)
    files.remove(pending)
    files.keep_as(content, pending)
    replace_sidecar(place, sidecar)
    files.rename(pending, place.content)
    files.remove(pending)  # two names of one file are left by a rename of one over the other


def replace_sidecar(place: Place, sidecar: Sidecar) -> None:
    """Replace the sidecar alone: by one that is mended, or by a tombstone for a resource without content."""
    files.remove(place.prepared)  # not truncated: it may be another name of something else
    with files.written(place.prepared, sidecars.encode(sidecar, place.address)) as prepared:
        files.sync(prepared)
    files.sync_directory(place.directory)
    files.rename(place.prepared, place.sidecar)  # committed
    files.sync_directory(place.directory)
