"""Restoring a tree in a backup into a storage of another kind: all files are compared with their digests first.

Then all that can be read is moved there. Like a restore into a directory, it goes on when it is called again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

from persistence.errors import StartupError
from persistence.maintenance import manifest
from persistence.maintenance.manifest import BackupPart
from persistence.maintenance.restore import ChosenBackup
from persistence.model.addresses import Form
from persistence.model.object_places import Bucket
from persistence.services.moving.moving import Move
from persistence.services.moving.outcomes import MoveReport, MoveResult
from persistence.services.moving.places import MoveSource, MoveTarget
from persistence.storage.attachment_bodies import BodiesReader
from persistence.storage.integrity import HandEdits, Integrity
from persistence.storage.reader import StoreReader
from persistence.storage.split_attachments import SplitStorage
from persistence.storage.storage import Bodies, Revisions, Storage

BasesOf = Callable[[Form], BodiesReader | None]
"""Returns the directory in a backup that has the bodies of a form's attachments, if they have one of their own."""


def source_in(
    backup: ChosenBackup,
    part: BackupPart,
    bodies_of: BasesOf,
    bucket_of: Callable[[Form], Bucket | None] = lambda _: None,
) -> MoveSource:
    """Return the tree ``part`` of a backup, to be read."""
    path = f"{backup.path}/{part.directory}".rstrip("/")
    reader = StoreReader(path, Integrity(HandEdits.NONE))

    def revisions(form: Form) -> Revisions:
        bodies = bodies_of(form)
        if bodies is None:
            return reader
        return SplitStorage(cast("Storage", reader), cast("Bodies", bodies))  # of both, only reading is asked

    return MoveSource(path, reader, revisions, bucket_of)


@dataclass(slots=True)
class StorageRestore:
    """Restores the tree ``part`` of a backup into a storage; ``bodies_of`` has its attachments in the backup.

    ``bucket_of`` returns where the bodies of a form's attachments are, if they are in an object store and may
    stay there.
    """

    backup: ChosenBackup
    part: BackupPart
    target: MoveTarget
    bodies_of: BasesOf
    bucket_of: Callable[[Form], Bucket | None] = lambda _: None
    report: MoveReport = field(default_factory=MoveReport)

    def run(self) -> Iterator[str | None]:
        """Restore: yield ``None`` for a file or document that is done, and a line for a problem."""
        source = self._source()
        self.require_empty()
        yield from manifest.verify(self.backup.path, self.part)
        move = Move(source, self.target)
        for outcome in move.first():
            if outcome.result in (MoveResult.MOVED, MoveResult.THERE):
                self.report.add(outcome)
            yield None
        for outcome in move.last():  # looks again at what was refused, and removes what an earlier call has left
            if outcome.result is not MoveResult.THERE:
                self.report.add(outcome)
            if outcome.cause:
                yield f"{outcome.name}: not restored: {outcome.cause}"
        yield from move.views()
        if not self.report.refused:
            move.end()

    def _source(self) -> MoveSource:
        return source_in(self.backup, self.part, self.bodies_of, self.bucket_of)

    def is_whole(self) -> bool:
        """Return whether the storage has forms, and none of this restore is on its way."""
        forms = self.target.storage.forms()
        return not self.target.arrivals.begun(self._source().name) and next(iter(forms), None) is not None

    def require_empty(self) -> None:
        """Check that the storage has no forms but those that an earlier call has begun to restore."""
        begun = self.target.arrivals.begun(self._source().name)
        for form in self.target.storage.forms():
            if form not in begun:
                raise StartupError(f"the destination is not empty: it has the form {form}")
