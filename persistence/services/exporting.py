"""The export of forms and data as a ZIP archive (spec crud 8.4), streamed in bounded memory, without permissions."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from tempfile import SpooledTemporaryFile
from typing import IO, Self
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import msgspec

from persistence.closable import closed_after_error
from persistence.errors import (
    BadRequestError,
    BusyError,
    ConfigurationError,
    DamagedError,
    NotFoundError,
    NotSupportedError,
    PersistenceError,
    RemoteError,
    disk_errors,
)
from persistence.forms.archive_metadata import write_metadata
from persistence.forms.search_xml import read_search_request
from persistence.index.protocol import Budget
from persistence.limits import CHUNK, MOST_EXPORT_PROBLEMS, ROWS_AT_ONCE, SPOOLED_DIRECTORY
from persistence.model.addresses import (
    ERRORS_ENTRY,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    entry_of,
    extended_timestamps,
)
from persistence.model.permissions import FINDING, User
from persistence.model.queries import (
    Comparison,
    DraftFilter,
    Drafts,
    ExportedContent,
    ExportQuery,
    Field,
    FieldFilter,
    Hit,
    Hits,
    Query,
    RevisionHistory,
    Scope,
    SentQuery,
    Sort,
    VersionFilter,
)
from persistence.model.sidecar import HashedPieces, Sidecar
from persistence.model.texts import Instant, OrderedType, next_after, to_datetime
from persistence.providers.router import Route, Router
from persistence.services.codec import Codec
from persistence.services.rules import Get, Read
from persistence.services.searching import require_ranges
from persistence.services.transforms import TransformedContent, transformed
from persistence.storage.storage import Revisions
from persistence.storage.stored_revision import StoredRevision

_ATTEMPTS = 20

LEFT_OUT = (BadRequestError, BusyError, ConfigurationError, DamagedError, NotFoundError, NotSupportedError, RemoteError)
"""Errors of one revision, which is left out and named. Others end the export: a disk that refuses."""


# The revisions that an export contains, found document by document, with only the facts of one document in memory.
#
# Documents in a range of dates are found by their sidecars, of which some 30,000 are read in a second: the index is
# used for a search only.


@dataclass(frozen=True, slots=True)
class ExportedRevision:
    """A revision to export, as it was when its document was read."""

    storage: Revisions
    address: Address
    sidecar: Sidecar
    is_current: bool
    has_history: bool

    def opened(self) -> StoredRevision:
        """Return this revision with its content open, also if it has become an older one meanwhile."""
        reads = [partial(self.storage.read, self.address, self.sidecar.modified, content=True)]
        if self.is_current:
            reads.insert(0, partial(self.storage.read, self.address, content=True))
        for read in reads:
            found = read()
            if found is not None and found.sidecar.modified == self.sidecar.modified and found.file is not None:
                return found
            if found is not None:
                found.close()
        raise BusyError(f"{self.address} of {self.sidecar.modified} was replaced while it was exported")


Found = ExportedRevision | PersistenceError  # A revision, or the reason why one is left out


@dataclass(frozen=True, slots=True)
class SelectedForm:
    """A form, and the versions of it to export."""

    route: Route
    query: ExportQuery
    versions: VersionFilter

    def groups(self) -> Iterator[Iterator[Found]]:
        """Yield what belongs together: a version of the definition, a document, or a draft."""
        contents = self.query.contents
        if ExportedContent.DEFINITIONS in contents:
            storage = self.route.definition.storage
            for version in filter(self.versions.__contains__, storage.versions(self.route.form)):
                main = DefinitionAddress(self.route.form, version)
                yield _left_out(_Folder(storage, main, self.query, self.versions).found())
        if ExportedContent.DATA in contents:
            for address in self.documents():
                yield _left_out(_Folder(self.route.storage, address, self.query, self.versions).found())

    def documents(self) -> Iterator[DocumentAddress]:
        if self.query.search is not None:
            drafts = DraftFilter(Drafts.INCLUDE if self.query.with_drafts else Drafts.EXCLUDE)
            numbers = self.versions.numbers
            scope = Scope(None if numbers is None else tuple(sorted(numbers)), drafts)
            find = partial(self.route.search, scope)
            for hit in found_by_creation(find, replace(self.query.search, paths=())):
                collection = Collection.DRAFT if hit.is_draft else Collection.DATA
                yield DocumentAddress(self.route.form, collection, hit.document)
            return
        collections = tuple(Collection) if self.query.with_drafts else (Collection.DATA,)
        for collection in collections:
            storage, named = self.route.data.storage, self.query.document
            for document in storage.documents(self.route.form, collection) if named is None else (named,):
                yield DocumentAddress(self.route.form, collection, document)

    def of_document(self) -> SelectedForm:
        """Return the form in the version of the document that the query names."""
        known = [self.route.storage.sidecar(address) for address in self.documents()]
        is_old_wanted = self.query.history is not RevisionHistory.EXCLUDE
        found = {each.version for each in known if each is not None and (is_old_wanted or not each.deleted)}
        numbers = frozenset(each for each in found if each in self.versions)
        if not numbers:
            raise NotFoundError(f"{self.route.form} has no document {self.query.document} of such a version")
        return replace(self, versions=VersionFilter(numbers))


def parse_search(text: str | None) -> Query | None:
    """Read the conditions of a search in a parameter, XML or JSON; nothing is none."""
    if text is None or not text.strip():
        return None
    sent = SentQuery((text.encode(),), is_json=text.lstrip().startswith("{"))
    request = read_search_request(sent, User(name="-"), is_strict=True)
    if request.drafts != DraftFilter() or request.any_of != FINDING:
        raise BadRequestError("the search of an export has no drafts and no operations")
    if any(each.field is Field.LEASED_BY for each in request.query.fields):
        raise BadRequestError("the search of an export cannot have leased-by")
    return request.query


def found_by_creation(find: Callable[[Query, Budget], Hits], query: Query) -> Iterator[Hit]:
    """Yield all that a query finds, in the order in which it was created.

    Each page is a search that begins at the last creation, so that no document is missed when others are deleted.
    """
    since: Instant | None = None
    offset, seen = 0, set[tuple[str, bool]]()
    while True:
        begin = () if since is None else (FieldFilter(Field.CREATED, Comparison.GTE, since),)
        by_creation = Sort(Field.CREATED, is_descending=False)
        fields = (*query.fields, *begin)
        page = find(replace(query, fields=fields, sort=by_creation, offset=offset, size=ROWS_AT_ONCE), Budget()).page
        for hit in page:
            if (hit.document, hit.is_draft) not in seen:
                yield hit
        if len(page) < ROWS_AT_ONCE:
            return
        last = page[-1].facts.created
        offset = offset + ROWS_AT_ONCE if last == since else 0
        same = {(hit.document, hit.is_draft) for hit in page if hit.facts.created == last}
        since, seen = last, (seen | same if last == since else same)


def _require_indexed(route: Route, query: Query) -> None:
    """Refuse conditions that no version of a form can meet."""
    types: dict[str, OrderedType | None] = {}
    for published in route.catalog.published(route.form, skips_damaged=True):
        definition = route.indexed(route.catalog.of(route.form, published.version))
        types |= {key.path: key.type for key in definition.index_keys(route.properties.data_format).keys}
    for each in query.controls:
        if each.path not in types:
            raise BadRequestError(f"{each.path!r} is not an indexed control of {route.form}")
    require_ranges(types, [each for each in query.controls if each.match.is_range])


def select_forms(router: Router, query: ExportQuery) -> list[SelectedForm]:
    """Return the forms that a query names, in order. What a wildcard finds may be nothing."""
    apps = {pattern.app for pattern in query.patterns}
    every = {form for app in ({None} if None in apps else apps) for form in router.forms(app)}
    for form in filter(None, (pattern.form for pattern in query.patterns)):
        if form not in every:
            router.of(form)
            raise NotFoundError(f"there is no form {form}")
    selected = []
    for form in sorted(every, key=lambda each: (each.app, each.name)):
        route = router.of(form)
        versions = query.versions(form, cache(lambda route=route: route.catalog.latest_version(route.form) or 1))
        if versions is not None:
            chosen = SelectedForm(route, query, versions)
            if query.search is not None:
                _require_indexed(route, query.search)
                next(chosen.documents(), None)  # an index that is being built is an error before the answer begins
            selected.append(chosen)
    return selected if query.document is None else [each.of_document() for each in selected]


@dataclass(frozen=True, slots=True)
class _Folder:
    """A ``data.xml`` or ``form.xhtml``, with all files beside it."""

    storage: Revisions
    main: Address
    query: ExportQuery
    versions: VersionFilter

    def found(self) -> Iterator[Found]:
        known = self._stable()
        own = known.pop(self.main.name, None)
        if isinstance(own, PersistenceError):
            raise own
        version = next((each.version for each in (own, *known.values()) if isinstance(each, Sidecar)), None)
        is_gone = own is not None and own.deleted and not self._has_history
        if version is None or version not in self.versions or is_gone:
            return
        is_data, query = isinstance(self.main, DocumentAddress), self.query
        is_older_only = query.history is RevisionHistory.ONLY and is_data and self._has_history
        is_wanted = own is None and not (is_data and (query.since is not None or query.until is not None))
        for revision in () if own is None else self._revisions(self.main, own):
            if isinstance(revision, PersistenceError) or (
                not (is_older_only and revision.is_current)
                and (not is_data or query.is_in_range(revision.sidecar.modified))
            ):
                is_wanted = True
                yield revision
        for name, sidecar in known.items() if is_wanted else ():
            if isinstance(sidecar, PersistenceError):
                yield sidecar
            else:
                yield from self._revisions(replace(self.main, name=name), sidecar)

    @property
    def _has_history(self) -> bool:
        return self.query.history is not RevisionHistory.EXCLUDE and self.main.keeps_history

    def _stable(self) -> dict[str, Sidecar | PersistenceError]:
        known = self._sidecars()
        for _ in range(_ATTEMPTS):
            again = known if len(known) <= 1 else self._sidecars()
            if _states(again) == _states(known):
                return again
            known = again
        raise BusyError(f"{self.main} is being written too often to be exported")

    def _sidecars(self) -> dict[str, Sidecar | PersistenceError]:
        known: dict[str, Sidecar | PersistenceError] = {}
        for name in self.storage.names(self.main):
            try:
                sidecar = self.storage.sidecar(replace(self.main, name=name))
            except LEFT_OUT as error:
                known[name] = error
            else:
                if sidecar is not None:
                    known[name] = sidecar
        return known

    def _revisions(self, address: Address, current: Sidecar) -> Iterator[Found]:
        if not current.deleted or self._has_history:
            yield ExportedRevision(self.storage, address, current, is_current=True, has_history=self._has_history)
        if self._has_history:
            yield from _left_out(self._older(address, current.modified))

    def _older(self, address: Address, current: Instant) -> Iterator[Found]:
        revisions = self.storage.history(address)
        for found in revisions.each(revisions.since(current)):
            if found.sidecar is not None:
                yield ExportedRevision(self.storage, address, found.sidecar, is_current=False, has_history=True)
            else:
                yield DamagedError(f"the sidecar of {address} of {found.instant} is damaged")


def _states(known: dict[str, Sidecar | PersistenceError]) -> dict[str, Instant | str]:
    return {name: each.modified if isinstance(each, Sidecar) else str(each) for name, each in known.items()}


def _left_out(revisions: Iterator[Found]) -> Iterator[Found]:
    try:
        yield from revisions
    except LEFT_OUT as error:
        yield error


_FIRST_TIME, _LAST_TIME = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)
_FACTS = tuple(name for name in ZipInfo.__slots__ if not name.startswith("_"))


# A ZIP archive that is written as it is sent: of any size, in bounded memory, to an output without seek.
#
# The standard library keeps some 700 bytes of each entry until the archive ends: here these go to a temporary file.


class _Sink:
    """Collects the bytes of the archive until they are taken, or passes them on to a file."""

    def __init__(self) -> None:
        self.held = bytearray()
        self.file: IO[bytes] | None = None

    def write(self, data: bytes) -> int:
        if self.file is None:
            self.held += data
        else:
            self.file.write(data)
        return len(data)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def taken(self) -> bytes:
        data, self.held = bytes(self.held), bytearray()
        return data


class _Directory(list[ZipInfo]):
    """The entries of an archive in a temporary file, in the place of the list that ``ZipFile`` keeps."""

    def __init__(self) -> None:
        super().__init__()
        self._file = SpooledTemporaryFile(SPOOLED_DIRECTORY)  # noqa: SIM115 - closed with the archive
        self._count = 0

    def append(self, entry: ZipInfo) -> None:
        pickle.dump(tuple(getattr(entry, name, None) for name in _FACTS), self._file, pickle.HIGHEST_PROTOCOL)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ZipInfo]:
        self._file.seek(0)
        for _ in range(self._count):
            entry = ZipInfo()
            facts = pickle.load(self._file)  # noqa: S301 - of a file that nobody else has
            for name, value in zip(_FACTS, facts, strict=True):
                setattr(entry, name, value)
            yield entry

    def close(self) -> None:
        self._count = 0
        self._file.close()


class ZipStream:
    """An archive. Use it in a ``with`` block: one that ends early leaves nothing behind, and no valid archive."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._directory = _Directory()
        self._zip = ZipFile(self._sink, "w")
        self._zip.filelist = self._directory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._directory.close()
        with suppress(ValueError):  # in the middle of an entry
            self._zip.close()

    def add(
        self, name: str, times: tuple[Instant, Instant], pieces: Iterable[bytes], size: int | None, *, compresses: bool
    ) -> Iterator[bytes]:
        """Add an entry, and yield the finished bytes; without a ``size`` it may be larger than 4 GiB."""
        # ``times`` are those of modification and creation. Without compression it is deflated at level 0: Java cannot
        # read stored entries from a stream if their sizes come after their contents.
        moment = to_datetime(times[0])
        fields = (moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second)
        entry = ZipInfo(name, min(max(fields, _FIRST_TIME), _LAST_TIME))
        entry.extra, in_directory = extended_timestamps(*times)
        entry.compress_type = ZIP_DEFLATED
        entry._compresslevel = None if compresses else 0  # type: ignore[attr-defined]  # noqa: SLF001 - the only way
        entry.file_size = size or 0
        with self._zip.open(entry, "w", force_zip64=size is None) as file:
            entry.extra = in_directory  # the other header is written
            for piece in pieces:
                file.write(piece)
                if len(self._sink.held) >= CHUNK:
                    yield self._sink.taken()
        self._zip.NameToInfo.clear()
        if len(self._sink.held) >= CHUNK:
            yield self._sink.taken()

    def end(self) -> Iterator[bytes]:
        yield self._sink.taken()
        with SpooledTemporaryFile(SPOOLED_DIRECTORY) as rest:
            self._sink.file = rest
            self._zip.close()
            rest.seek(0)
            yield from iter(partial(rest.read, CHUNK), b"")


_TEXTUAL = ("text/", "application/xml", "application/json", "image/svg")
"""Beginnings of content types that are worth compressing; most attachments are compressed already."""


# Revisions that cannot be read are left out, and named in the last entry. After an error of the disk the archive has no
# end, so that nobody takes it for a whole one.


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """An open content with its facts; if it ``is_decrypted``, it differs from the stored bytes."""

    sidecar: Sidecar
    size: int | None
    content: TransformedContent | None
    found: StoredRevision
    is_decrypted: bool

    def pieces(self) -> Iterator[bytes]:
        with disk_errors("exporting a content"):
            if self.content is not None:
                yield from self.content
                return
            count = 0
            while piece := self.found.opened.read(CHUNK):
                count += len(piece)
                yield piece
        if self.size not in (None, count):
            raise DamagedError(f"a content has {count} bytes, and not {self.size}: it was changed while it was read")

    def close(self) -> None:
        self.found.close()


class Export:
    """One export from the providers of a router, which has not begun."""

    def __init__(self, router: Router, codec: Codec, query: ExportQuery) -> None:
        self.forms = select_forms(router, query)
        self._codec = codec
        self._query = query

    def opened(self, revision: ExportedRevision) -> ExportedFile:
        """Open a revision, decrypted if that is asked for; then it was read once, so that it will not fail."""
        address, content = revision.address, None
        read = Read(address, revision.opened(), None)
        if self._query.decrypts and isinstance(address, DocumentAddress):
            read = self._codec.decode(read, address, Get(decrypt=True))
        sidecar, size = read.found.sidecar, read.size
        if read.decryption is not None:
            content = transformed(read, only_relevant=False)
            size = content.size
        elif read.is_decrypted:  # in the middle of an entry it would be too late to find damage
            with closed_after_error(read.found), disk_errors(f"reading {read.address}"):
                while read.found.opened.read(CHUNK):
                    pass
                read.found.opened.seek(0)
        is_decrypted = content is not None or read.is_decrypted
        if is_decrypted:
            sidecar = msgspec.structs.replace(sidecar, encrypted=None, sealed_hash=None)
        return ExportedFile(sidecar, size, content, read.found, is_decrypted)

    def count(self) -> int:
        return sum(1 for form in self.forms for _ in form.groups())

    def archive(self, report: Callable[[str], None], done: Callable[[], None]) -> Iterator[bytes]:
        """Yield the archive in pieces; report each revision that is left out, and call ``done`` after each document."""
        lines = list[str]()

        def leave_out(line: str) -> None:
            lines.append(line)
            report(line)
            if len(lines) > MOST_EXPORT_PROBLEMS:
                raise NotSupportedError(f"more than {MOST_EXPORT_PROBLEMS} revisions cannot be exported: {line}")

        with disk_errors("exporting"), ZipStream() as archive:
            for form in self.forms:
                for group in form.groups():
                    for found in group:
                        if isinstance(found, PersistenceError):
                            leave_out(str(found))
                        else:
                            yield from self._add(archive, found, leave_out)
                    done()
            if lines:
                errors, now = "".join(f"{line}\n" for line in lines).encode(), next_after(None)
                yield from archive.add(ERRORS_ENTRY, (now, now), [errors], len(errors), compresses=True)
            yield from archive.end()

    def _add(self, archive: ZipStream, revision: ExportedRevision, leave_out: Callable[[str], None]) -> Iterator[bytes]:
        address, sidecar, is_decrypted = revision.address, revision.sidecar, False
        is_current, has_history = revision.is_current, revision.has_history
        entry = entry_of(address, sidecar.version, sidecar.modified, is_current=is_current, has_history=has_history)
        times = sidecar.modified, sidecar.created
        if not sidecar.deleted:
            try:
                file = self.opened(revision)
            except LEFT_OUT as error:
                leave_out(str(error))
                return
            with closing(file):
                pieces = HashedPieces(file.pieces())
                is_textual = not file.sidecar.encrypted and (file.sidecar.content_type or "").startswith(_TEXTUAL)
                compresses = address.is_main or is_textual
                yield from archive.add(entry.path, times, pieces, file.size, compresses=compresses)
            sidecar, is_decrypted = file.sidecar, file.is_decrypted
            if is_decrypted or sidecar.digest is None or file.found.is_edited:
                sidecar = msgspec.structs.replace(sidecar, size=pieces.size, digest=pieces.digest)
            if file.found.is_edited and not is_decrypted:
                sidecar = msgspec.structs.replace(sidecar, id=file.found.etag, tag=None, encrypted=None)
            if pieces.digest != sidecar.digest:
                leave_out(f"{address} of {sidecar.modified} does not have the digest of its sidecar")
        metadata = write_metadata(sidecar, is_decrypted=is_decrypted)
        beside = replace(entry, is_metadata=True).path
        yield from archive.add(beside, times, [metadata], len(metadata), compresses=True)


Exporting = Callable[[ExportQuery], Export]
