"""All objects of one document, for erasing it."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from persistence.limits import LARGEST_PIECE
from persistence.model.sidecar import digest_text
from persistence.s3.objects import ListedObject, Objects
from persistence.storage.managed import TracedFile, Traces


@dataclass(frozen=True, slots=True)
class DocumentObjects(Traces):
    """The objects of a document below ``folders``, the beginnings of keys.

    A store that keeps versions of objects keeps those of removed ones: that is for its administrators.
    """

    objects: Objects
    folders: tuple[str, ...]

    def listed(self) -> Iterator[TracedFile]:
        """Yield all objects; each is read for its digest."""
        for each in self._objects():
            hashing = hashlib.sha256()
            for start in range(0, each.size, LARGEST_PIECE):
                hashing.update(self.objects.read(each.key, start, min(start + LARGEST_PIECE, each.size)) or b"")
            yield TracedFile(f"{self.objects.place}/{each.key}", each.size, digest_text(hashing.hexdigest()))

    def links(self) -> Iterator[str]:
        return iter(())

    def remove(self, links: list[str]) -> None:  # noqa: ARG002 - a directory has some
        """Remove all objects. Raises ``OSError`` for one that stays without an error."""
        self.objects.remove([each.key for each in self._objects()])
        for each in self._objects():
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), f"{self.objects.place}/{each.key}")

    def _objects(self) -> Iterator[ListedObject]:
        for folder in self.folders:
            yield from self.objects.listed(folder)
