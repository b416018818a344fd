"""The differences between revisions of form data, as a reader of both sees them (spec crud 8.1).

A revision is read as by a GET with its ``last-modified-time``, once for a page of the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice, pairwise

from persistence.definitions.catalog import Definition
from persistence.errors import (
    BadRequestError,
    ConfigurationError,
    DamagedError,
    DeletedError,
    ForbiddenError,
    MalformedXmlError,
    NotFoundError,
    RemoteFailureError,
    disk_errors,
)
from persistence.forms import diffs_text
from persistence.forms.data_tree import DataNode, opaque_data, read_data
from persistence.forms.diffs import OTHER, Difference, differences
from persistence.forms.diffs_text import DiffRow
from persistence.forms.diffs_xml import DiffsWriter
from persistence.forms.outline import NO_OUTLINE, Outline
from persistence.limits import LARGEST_DIFFED
from persistence.model import versions
from persistence.model.addresses import DocumentAddress
from persistence.model.history import ListedRevision
from persistence.model.instants import Instant
from persistence.model.users import Bearer
from persistence.services.documents import Documents
from persistence.services.rules import Get, Read
from persistence.services.transforms import parsing


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """The language of labels, and the number of characters to which values are shortened."""

    language: str | None = None
    truncation: int | None = None

    def writer(self) -> DiffsWriter:
        return DiffsWriter(self.language, self.truncation)


@dataclass(frozen=True, slots=True)
class RevisionPair:
    """Two revisions of data of a version of a form, by their instants."""

    version: int
    older: Instant
    newer: Instant


@dataclass(frozen=True, slots=True)
class RevisionDiffs:
    """Compares revisions."""

    documents: Documents

    def between(self, address: DocumentAddress, pair: RevisionPair, reader: Bearer, options: DiffOptions) -> bytes:
        """Return the XML of the differences between two revisions."""
        by_position = self.documents.dialect.has_proxy
        found = self._compared(address, pair, reader, options.language, by_position=by_position)
        return options.writer().write(found, pair.older, pair.newer).encode()

    def lines(
        self, address: DocumentAddress, pair: RevisionPair, reader: Bearer, options: DiffOptions, *, as_json: bool
    ) -> list[str]:
        """Return a line for each difference, for a terminal or as a JSON object."""
        write = diffs_text.as_json if as_json else diffs_text.as_line
        found = self._compared(address, pair, reader, options.language)
        return [write(each, options.language, options.truncation) for each in found]

    def rows(
        self, address: DocumentAddress, pair: RevisionPair, reader: Bearer, options: DiffOptions, most: int
    ) -> list[DiffRow]:
        """Return at most so many differences as rows of a table."""
        found = self._compared(address, pair, reader, options.language)
        return [diffs_text.as_row(each, options.language, options.truncation) for each in islice(found, most)]

    def _compared(
        self,
        address: DocumentAddress,
        pair: RevisionPair,
        reader: Bearer,
        language: str | None,
        *,
        by_position: bool = False,
    ) -> Iterator[Difference]:
        reading, version = _Reading(self.documents, address, reader), pair.version
        with ExitStack() as opened:
            older = reading.read(version, pair.older)
            opened.callback(older.found.close)
            newer = reading.read(version, pair.newer)
            opened.callback(newer.found.close)
            outline = reading.outline(version)
            if outline is None:
                raise NotFoundError(f"version {version} of {address.form} is not published: its controls are not known")
            if language is not None and not (outline.languages or reading.is_designer):
                raise NotFoundError(f"version {version} of {address.form} has no labels in any language")
            trees = reading.tree(older, outline), reading.tree(newer, outline)
            return _between(*trees, outline, by_position=by_position)

    def on_page(
        self, address: DocumentAddress, revisions: list[ListedRevision], reader: Bearer, options: DiffOptions
    ) -> Iterator[str]:
        """Yield the XML of the differences of each revision, but the last, to the one after it, which is older.

        Two revisions that cannot be compared differ in ``OTHER``: one is deleted, damaged, too large, of another
        version, or may not be read.
        """
        reading, writer = _Reading(self.documents, address, reader), options.writer()
        last: tuple[Instant, DataNode | None] | None = None
        for newer, older in pairwise(revisions):
            found: Iterator[Difference] | list[Difference] = [OTHER]
            sidecars = newer.sidecar, older.sidecar
            versions_of = {None if each is None or each.deleted else each.version for each in sidecars}
            version = next(iter(versions_of))
            if len(versions_of) == 1 and version is not None:
                outline = reading.outline_if_known(version)
                known = last is not None and last[0] == newer.instant
                after = last[1] if last is not None and known else reading.if_comparable(newer, outline)
                before = reading.if_comparable(older, outline)
                last = older.instant, before
                found = _between(before, after, outline, by_position=self.documents.dialect.has_proxy)
            yield writer.write(found, older.instant)


def _between(
    before: DataNode | None, after: DataNode | None, outline: Outline, *, by_position: bool
) -> Iterator[Difference]:
    if before is None or after is None:
        return iter((OTHER,))
    return differences(before, after, outline, by_position=by_position)


@dataclass(slots=True)
class _Reading:
    """The revisions of a document as somebody reads them, for one response."""

    documents: Documents
    address: DocumentAddress
    reader: Bearer
    left: int = field(default_factory=lambda: LARGEST_DIFFED)
    outlines: dict[int, Outline] = field(default_factory=dict)

    @property
    def is_designer(self) -> bool:
        return self.documents.dialect.is_designer(self.address.form)

    def outline(self, version: int) -> Outline | None:
        if self.is_designer:
            return NO_OUTLINE
        route = self.documents.router.of(self.address.form)
        definition: Definition = route.catalog.of(self.address.form, version)
        return definition.outline(route.properties.data_format)

    def outline_if_known(self, version: int) -> Outline:
        if version not in self.outlines:
            try:
                self.outlines[version] = self.outline(version) or NO_OUTLINE
            except (BadRequestError, DamagedError, RemoteFailureError):
                self.outlines[version] = NO_OUTLINE
        return self.outlines[version]

    def read(self, version: int, instant: Instant) -> Read:
        asked = versions.VersionRequest(number=version)
        get = Get(version=asked, instant=instant, user=self.reader.user, token=self.reader.token)
        read = self.documents.read(self.address, get)
        try:
            versions.must_equal(version, read.found.sidecar.version, self.address)
        except Exception:
            read.found.close()
            raise
        return read

    def tree(self, read: Read, outline: Outline) -> DataNode | None:
        most = self.left
        with read.found.opened as file, disk_errors(f"reading {self.address}"):
            data = file.read(most + 1)
        self.left -= len(data)
        if len(data) > most:
            return None
        pieces = [data] if read.decryption is None else read.decryption([data])
        try:
            with parsing(len(data)):
                return opaque_data(pieces) if self.is_designer else read_data(pieces, outline)
        except MalformedXmlError as error:
            raise DamagedError(f"{self.address} cannot be read: {error}") from error

    def if_comparable(self, revision: ListedRevision, outline: Outline) -> DataNode | None:
        if self.left <= 0 or revision.sidecar is None:
            return None
        try:
            return self.tree(self.read(revision.sidecar.version, revision.instant), outline)
        except (ConfigurationError, DamagedError, RemoteFailureError, DeletedError, ForbiddenError, NotFoundError):
            return None
