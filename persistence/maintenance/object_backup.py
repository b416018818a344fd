"""Saving attachments whose bodies are objects in a bucket, as if their tree had them.

So a backup needs no bucket, and neither does a restore: the tree serves such attachments until they are saved again.
Objects never change, so what the previous backup has is linked, and not read.
"""

from __future__ import annotations

from dataclasses import dataclass

from persistence.errors import ConfigurationError, DamagedError
from persistence.maintenance.backup_files import PartFiles
from persistence.maintenance.body_check import BodiesOf, BodyFinder
from persistence.maintenance.tree import Folder
from persistence.model.addresses import DefinitionAddress
from persistence.model.instants import epoch_nanoseconds
from persistence.model.sidecar import Sidecar, described
from persistence.storage import sidecars
from persistence.storage.attachment_bodies import BodiesReader
from persistence.storage.layout import FilePaths


@dataclass(frozen=True, slots=True)
class ObjectCopies:
    """Copies objects into the ``part`` of a tree; ``bodies_of`` tells where the bodies of a form are."""

    part: PartFiles
    bodies_of: BodiesOf

    def bodies(self, folder: Folder) -> BodyFinder | None:
        """Return the bodies of a document's attachments, if they are objects."""
        if folder.collection is None:
            return None
        try:
            bodies = self.bodies_of(folder.form)
        except ConfigurationError:  # the form has no provider any more
            return None
        return None if isinstance(bodies, BodiesReader) else bodies

    def add(self, folder: Folder, name: str, record: Sidecar, inside: FilePaths, *earlier: FilePaths) -> str | None:
        """Copy a revision whose body is an object, under its path ``inside`` the part; return a problem, or nothing.

        ``earlier`` are the paths that it may have had in the previous backup, too. ``None`` is returned of a revision
        whose body is no object: the tree has it.
        """
        bodies, address = self.bodies(folder), folder.address(name)
        if bodies is None or record.body is None or record.deleted or isinstance(address, DefinitionAddress):
            return None
        sidecar, problem = described(record), ""
        if not self.part.link_content(inside.content, sidecar, *(each.content for each in earlier)):
            found = bodies.find(address, record, content=True)
            if found is None:
                raise DamagedError(f"{folder.paths(name).content}: its body is missing in {bodies.root}")
            try:
                with found.opened as file:
                    self.part.copy_content(inside.content, file, sidecar)
            except DamagedError as error:
                problem = str(error)
        data = sidecars.encode(sidecar, folder.paths(name).address)
        self.part.add_bytes(
            inside.sidecar, data, epoch_nanoseconds(sidecar.modified), *(each.sidecar for each in earlier)
        )
        return problem
