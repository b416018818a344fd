"""Taking in what a person put into the tree: a content without a sidecar, or another one than the sidecar tells of.

The content stays where it is, and gets a fresh sidecar beside it: as a new revision of what was there, or as a new
resource under the rules of a PUT that names no version.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from persistence.dialect import Dialect
from persistence.errors import BusyError, DamagedError
from persistence.maintenance import listing
from persistence.maintenance.contents import is_whole
from persistence.maintenance.encrypted import is_encrypted_for
from persistence.maintenance.findings import Finding
from persistence.maintenance.quarantine import Quarantine
from persistence.maintenance.revisions import newest_whole, readable
from persistence.maintenance.sight import Sight
from persistence.maintenance.tree import Folder
from persistence.model.addresses import Address, DefinitionAddress
from persistence.model.form_versions import FormMetadata
from persistence.model.instants import next_after
from persistence.model.sidecar import SCHEMA, Sidecar, fresh_id
from persistence.services import content_types
from persistence.services.documents import version_of_new
from persistence.services.receiving import check_for, metadata_of
from persistence.storage import commit, digests, files, nofollow, stored_revision
from persistence.storage.layout import Layout, Place
from persistence.storage.sidecars import ChangedSidecarError

_CHUNK = 1 << 16
_OWNERS, _OTHERS = 0o600, 0o007


@dataclass(frozen=True, slots=True)
class _Seen:
    """What reading a content showed."""

    size: int
    digest: str
    metadata: FormMetadata | None


class Adoption:
    """Adopts contents in one tree, under the lock of their folder."""

    def __init__(
        self,
        layout: Layout,
        open_sight: Callable[[], Sight],
        dialect: Dialect,
        quarantine: Quarantine,
        modifier: str | None = None,
    ) -> None:
        """``modifier`` is who adopts, where that is to be known."""
        self._layout = layout
        self._open_sight = open_sight
        self._dialect = dialect
        self._quarantine = quarantine
        self._modifier = modifier

    def take_in(self, folder: Folder, finding: Finding, place: Place) -> None:
        """Adopt what a finding tells of, which must be of a kind that ``Adopts``.

        Raises:
            BadRequestError: it must be XML, and is not; or it is a definition with permissions that are not known.
            BusyError: it is being edited right now.
            DamagedError: the sidecar beside it cannot be decoded.
            OSError: the disk refused.
        """
        try:
            current = stored_revision.read_sidecar(place)
        except ChangedSidecarError as error:
            self._take_in_changed(folder, finding, place, error)
            return
        history = listing.history(folder.path)
        if current is None or current.deleted:
            older = next(readable(history, place.name), None)
            over = current or (older[1] if older else self.new(folder, place))
            self.adopt(folder, place, over=over, first=lambda: _keep(place, current))
            return
        kept = newest_whole(history, place.name, living=True)
        if kept is None or kept[1].id != current.id:
            # Its content is lost, so it is no revision any more.
            self.adopt(folder, place, over=current, first=lambda: self._quarantine.keep(place.sidecar, finding))
        else:
            self.adopt(folder, place, over=current)

    def _take_in_changed(self, folder: Folder, finding: Finding, place: Place, error: ChangedSidecarError) -> None:
        """Take in what a changed sidecar says; one that was moved with its content goes on as that of its new place."""
        self._quarantine.keep(place.sidecar, finding)
        if place.is_older or (error.is_misplaced and (error.said.deleted or is_whole(place, error.said))):
            version = self._version(folder, place, error.said)
            encrypted = error.said.encrypted or None  # the checksum does not cover that it is false
            commit.replace_sidecar(place, replace(error.said, version=version, adopted=True, encrypted=encrypted))
        else:
            self.adopt(folder, place, over=error.said)

    def adopt(self, folder: Folder, place: Place, *, over: Sidecar, first: Callable[[], None] = lambda: None) -> None:
        """Make the content in place the next revision over what is known; raises as ``take_in``.

        ``first`` is done when it is certain that it can be.
        """
        address = folder.address(place.name)
        before = os.lstat(place.content)
        if not stat.S_ISREG(before.st_mode):
            raise DamagedError(f"{address} is no file")
        seen = read_through(address, place.content)
        after = os.lstat(place.content)
        if (before.st_ino, before.st_size, before.st_mtime_ns) != (after.st_ino, after.st_size, after.st_mtime_ns):
            raise BusyError(f"{address} is being edited")
        first()
        over = replace(over, version=self._version(folder, place, over))
        sidecar = commit.after_twin(self._layout, address, self._sidecar(address, seen, over))
        commit.adopt(place, replace(sidecar, encrypted=is_encrypted_for(address, place.content) or None))
        files.set_mode(place.content, (stat.S_IMODE(before.st_mode) | _OWNERS) & ~_OTHERS)

    @staticmethod
    def _version(folder: Folder, place: Place, over: Sidecar) -> int:
        """The form version of a resource: its directory's or its document's, where these tell, else what is known."""
        if folder.collection is None:
            return int(folder.name)
        main = Place(folder.path, folder.main)
        if place.name != main.name and not place.is_older:
            with suppress(DamagedError):
                document = stored_revision.read_sidecar(main)
                return over.version if document is None else document.version
        return over.version

    def nothing_known(self, version: int) -> Sidecar:
        """Stands for the revision before the first: only the form version is known, and nobody owns it."""
        now = next_after(None)
        return Sidecar(schema=SCHEMA, id=fresh_id(), version=version, modified=now, created=now, size=0)

    @cached_property
    def _sight(self) -> Sight:
        return self._open_sight()

    def new(self, folder: Folder, place: Place) -> Sidecar:
        """Stands for the revision before the first of a new resource, with the version that a PUT would choose."""
        address = folder.address(place.name)
        if isinstance(address, DefinitionAddress):
            return self.nothing_known(address.version)
        return self.nothing_known(
            version_of_new(self._sight.store, self._sight.catalog_of(address.form).storage, self._dialect, address)
        )

    def _sidecar(self, address: Address, seen: _Seen, over: Sidecar) -> Sidecar:
        """The next revision: owner and stage stay; validity and the client's hash are not known."""
        modified = next_after(over.modified)
        return Sidecar(
            schema=SCHEMA,
            id=fresh_id(),
            version=over.version,
            modified=modified,
            created=modified if over.deleted else over.created,
            size=seen.size,
            digest=seen.digest,
            content_type=over.content_type or content_types.by_name(address),
            stage=over.stage,
            creator=over.creator,
            group=over.group,
            organization=over.organization,
            modifier=self._modifier,
            source=over.source,
            metadata=seen.metadata,
            adopted=True,
            flat_view=over.flat_view,
        )


def _keep(place: Place, replaced: Sidecar | None) -> None:
    """Keep the tombstone that is about to be replaced, as a PUT does."""
    if replaced is not None:
        history = commit.keep(place, replaced)
        try:
            files.sync(history)
        finally:
            os.close(history)


def read_through(address: Address, path: str) -> _Seen:
    """Read a content to its end, and check it if it must be XML.

    Raises:
        BadRequestError: it must be XML, and is not; or it is a definition with permissions that are not known.
        OSError: it cannot be read.
    """
    hashing, size = hashlib.sha256(), 0
    with open(nofollow.open_file(path), "rb") as file, check_for(address) as check:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            hashing.update(chunk)
            if check is not None:
                check.feed(chunk)
        if check is not None:
            check.finish()
        return _Seen(size, digests.text(hashing.hexdigest()), metadata_of(check))
