"""The history of documents: its pages, differences between revisions, and bringing back older ones (spec crud 8.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import pairwise

from persistence.catalog import Definition
from persistence.closable import closed_after_error
from persistence.errors import (
    BadAddressError,
    BadRequestError,
    BusyError,
    ConfigurationError,
    ConflictError,
    DamagedError,
    DeletedError,
    ForbiddenError,
    MalformedXmlError,
    NotFoundError,
    RemoteFailureError,
    ReplacedError,
    disk_errors,
)
from persistence.forms import diffs
from persistence.forms.answers import DiffsAnswer, HistoryAnswer
from persistence.forms.controls import NO_OUTLINE, Outline
from persistence.limits import LARGEST_DIFFED, MOST_LIVES, MOST_RESTORED, RESTORED_AT_ONCE
from persistence.model import versions
from persistence.model.addresses import DefinitionAddress, DocumentAddress
from persistence.model.permissions import Bearer
from persistence.model.sidecar import HistoryPage, ListedRevision, PageRequest, Sidecar
from persistence.model.texts import LAST, Instant
from persistence.model.versions import NO_PRECONDITION, Precondition, VersionRequest
from persistence.providers.router import Route, Router
from persistence.services.definitions import Definitions, Part
from persistence.services.documents import Documents, PutRequest, as_of, commit, protecting, selected
from persistence.services.rules import READING, Access, Get, Origin, Put, Read, Written, living, must_live, subject_of
from persistence.services.transforms import holders_in, parsing
from persistence.storage.storage import RevisionList, Revisions
from persistence.storage.stored_revision import StoredRevision, digest_of_open

# The differences between revisions of form data, as a reader of both sees them (spec crud 8.1).
#
# A revision is read as by a GET with its last-modified-time, once for a page of the history.


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """The language of labels, the number of characters of a value, and whether values in removed rows are listed."""

    language: str | None = None
    truncation: int | None = None
    in_removed: bool = False

    @property
    def writer(self) -> diffs.DiffsWriter:
        return diffs.DiffsWriter(self.language, self.truncation)


@dataclass(frozen=True, slots=True)
class RevisionPair:
    """Two revisions of a document in a version of its form, by their instants."""

    address: DocumentAddress
    version: int
    older: Instant
    newer: Instant


@dataclass(frozen=True, slots=True)
class RevisionDiffs:
    """Compares revisions."""

    documents: Documents

    def between(self, pair: RevisionPair, reader: Bearer, options: DiffOptions) -> DiffsAnswer:
        found = self.compared(pair, reader, options, by_position=self.documents.dialect.has_proxy)
        return DiffsAnswer(diffs.ComparedRevisions(pair.older, pair.newer, found), options.writer)

    def lines(self, pair: RevisionPair, reader: Bearer, options: DiffOptions, *, as_json: bool) -> list[str]:
        write = diffs.as_json if as_json else diffs.as_line
        found = self.compared(pair, reader, options)
        return [write(each, options.language, options.truncation) for each in found]

    def compared(
        self, pair: RevisionPair, reader: Bearer, options: DiffOptions, *, by_position: bool = False
    ) -> Iterator[diffs.Difference]:
        language, address, version = options.language, pair.address, pair.version
        reading = _Reading(self.documents, address, reader)
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
            return diffs.differences(*trees, outline, by_position=by_position, in_removed=options.in_removed)

    def on_page(
        self, address: DocumentAddress, revisions: list[ListedRevision], reader: Bearer
    ) -> Iterator[diffs.ComparedRevisions]:
        """Yield the differences of each revision, but the last, to the one after it, which is older."""
        # Two revisions that cannot be compared differ in ``OTHER``: one is deleted, damaged, too large, of another
        # version, or may not be read.
        reading = _Reading(self.documents, address, reader)
        last: tuple[Instant, diffs.DataNode | None] | None = None
        for newer, older in pairwise(revisions):
            found: Iterator[diffs.Difference] | list[diffs.Difference] = [diffs.OTHER]
            sidecars = newer.sidecar, older.sidecar
            versions_of = {None if each is None or each.deleted else each.version for each in sidecars}
            version = next(iter(versions_of))
            if len(versions_of) == 1 and version is not None:
                outline = reading.outline_if_known(version)
                known = last is not None and last[0] == newer.instant
                after = last[1] if last is not None and known else reading.if_comparable(newer, outline)
                before = reading.if_comparable(older, outline)
                last = older.instant, before
                found = diffs.differences(before, after, outline, by_position=self.documents.dialect.has_proxy)
            yield diffs.ComparedRevisions(older.instant, None, found)


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
        return self.address.form == self.documents.dialect.designer

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
        with closed_after_error(read.found):
            versions.must_equal(version, read.found.sidecar.version, self.address)
        return read

    def tree(self, read: Read, outline: Outline) -> diffs.DataNode | None:
        most = self.left
        with read.found.opened as file, disk_errors(f"reading {self.address}"):
            data = file.read(most + 1)
        self.left -= len(data)
        if len(data) > most:
            return None
        pieces = [data] if read.decryption is None else read.decryption([data])
        try:
            with parsing(len(data)):
                return diffs.opaque_data(pieces) if self.is_designer else diffs.read_data(pieces, outline)
        except MalformedXmlError as error:
            raise DamagedError(f"{self.address} cannot be read: {error}") from error

    def if_comparable(self, revision: ListedRevision, outline: Outline) -> diffs.DataNode | None:
        if self.left <= 0 or revision.sidecar is None:
            return None
        try:
            return self.tree(self.read(revision.sidecar.version, revision.instant), outline)
        except (ConfigurationError, DamagedError, RemoteFailureError, DeletedError, ForbiddenError, NotFoundError):
            return None


_Judge = Callable[[Sidecar], bool]


# The revisions from a creation to the next are one life of a document, with one owner and version: the newest decides
# for all. Each revision on a page is decided about by itself, too.


@dataclass(frozen=True, slots=True)
class Histories:
    """Lists revisions. Without ``access``, a proxy has decided already (spec crud 11)."""

    router: Router
    access: Access | None
    diffs: RevisionDiffs

    def page(
        self, address: DocumentAddress, asked: PageRequest, reader: Bearer, *, with_older: bool = False
    ) -> HistoryPage:
        """Return a page of the revisions that somebody may read, with the next ``older`` one only on request."""
        route = self.router.of(address.form)
        revisions = route.storage.history(address)
        if not revisions.total:
            return HistoryPage(address, asked)
        may_read = self._revision_filter(route, address, reader)
        shown = self._shown(route, address, revisions, may_read, reader)
        total = sum(map(len, shown))
        begin = (asked.number - 1) * asked.size
        end = min(begin + asked.size, total)
        return HistoryPage(
            address,
            asked,
            total,
            newest=revisions.instant(shown[0][0]),
            oldest=revisions.instant(shown[-1][-1]),
            revisions=tuple(_page(revisions, shown, begin, end, may_read)),
            older=next(iter(_page(revisions, shown, end, min(end + with_older, total), may_read)), None),
        )

    def answer(
        self, address: DocumentAddress, asked: PageRequest, reader: Bearer, diffed: DiffOptions | None = None
    ) -> tuple[HistoryAnswer, str | None]:
        """Return a page, of a document with differences if they are ``diffed``, and a line about the rest."""
        diffed = diffed if address.is_main else None
        page = self.page(address, asked, reader, with_older=diffed is not None)
        notice = f"{page.damaged} of these revisions are damaged: only their times are known" if page.damaged else None
        compared = [*page.revisions, *(() if page.older is None else (page.older,))]
        found = () if diffed is None else self.diffs.on_page(address, compared, reader)
        writer, lists_restored = (diffed or DiffOptions()).writer, self.diffs.documents.dialect.lists_restored
        return HistoryAnswer(page, found, writer, lists_restored=lists_restored), notice

    def _revision_filter(self, route: Route, address: DocumentAddress, reader: Bearer) -> _Judge:
        access, known = self.access, dict[tuple[object, ...], bool]()
        if access is None or not address.is_main:  # the document decides about its attachments
            return lambda _: True

        def may_read(sidecar: Sidecar) -> bool:
            facts = (sidecar.version, sidecar.creator, sidecar.group, sidecar.organization)
            if facts not in known:
                try:
                    access.allow(READING, subject_of(route, address, sidecar, 0), reader)
                    known[facts] = True
                except (ForbiddenError, DamagedError, RemoteFailureError):
                    known[facts] = False
            return known[facts]

        return may_read

    def _shown(
        self, route: Route, address: DocumentAddress, revisions: RevisionList, may_read: _Judge, reader: Bearer
    ) -> list[range]:
        if self.access is None:
            return [range(revisions.total)]
        if not address.is_main:
            main = must_live(route.storage.read(address.main, content=False), address.main)
            self.access.allow(READING, subject_of(route, address, main.sidecar, 0), reader)
            return [range(revisions.total)]
        current = revisions.revision(0)
        if current is not None and current.sidecar is not None:
            self.access.allow(READING, subject_of(route, address, current.sidecar, 0), reader)
        lives = _readable_lives(revisions, may_read)
        if not lives and (current is None or current.sidecar is None):
            raise RemoteFailureError(f"the data of {address} in another service is damaged")
        if not lives:  # the permissions have changed since the current revision was decided about
            raise ForbiddenError(f"no revision of {address} may be read")
        return lives


def _readable_lives(revisions: RevisionList, may_read: _Judge) -> list[range]:
    """Return the positions of readable lives; a life whose newest revision is damaged is not readable."""
    found: list[range] = []
    begin = looked_at = 0
    while begin < revisions.total:
        newest = revisions.revision(begin)
        looked_at += 1
        end = begin + 1
        if newest is not None and newest.sidecar is not None:
            end = max(end, revisions.since(newest.sidecar.created))
            end = revisions.total if looked_at == MOST_LIVES else end
            if may_read(newest.sidecar):
                found.append(range(begin, end))
        elif looked_at == MOST_LIVES:
            break
        begin = end
    return found


def _page(revisions: RevisionList, shown: list[range], begin: int, end: int, may_read: _Judge) -> list[ListedRevision]:
    found: list[ListedRevision] = []
    for positions in shown:
        here = positions[max(begin, 0) : max(end, 0)]
        if here:
            found += revisions.page(here.start, here.stop)
        begin, end = begin - len(positions), end - len(positions)
    return [each for each in found if each.sidecar is None or may_read(each.sidecar)]


# A revision is brought back as by a PUT of its stored bytes. Its attachments are stored first (spec crud 4.2), so that
# a deleted document stays deleted until all of it is there. Older revisions may come from elsewhere, such as a backup.


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """A file to be brought back: its revision of before, which was ``asked`` for, and the ``current`` one, if any."""

    address: DocumentAddress
    older: Sidecar
    current: StoredRevision | None
    asked: Get
    precondition: Precondition = NO_PRECONDITION

    @property
    def is_deleted(self) -> bool:
        return self.current is None or self.current.sidecar.deleted

    @property
    def replaced(self) -> Sidecar | None:
        return None if self.current is None else self.current.sidecar

    @property
    def put(self) -> Put:
        older, asked, current = self.older, self.asked, self.replaced
        if current is not None and not current.deleted:
            origin = Origin(current.created, current.facts.owner)
        else:
            is_same_life = current is None or current.created <= older.created
            origin = Origin(older.created if is_same_life else None, older.facts.owner)
        put = Put.of(older, asked.user)
        return replace(put, precondition=self.precondition, origin=origin, token=asked.token, restores=older)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A file with the attachments that come back with it; others that it names are ``unchanged``, or ``missing``."""

    # With ``is_damaged`` the current content of the file is not the one of its sidecar.
    file: RestoredFile
    attachments: list[RestoredFile] = field(default_factory=list)
    unchanged: list[tuple[DocumentAddress, StoredRevision]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    is_damaged: bool = False

    @property
    def notice(self) -> str | None:
        if not self.missing:
            return None
        return f"attachments that it names were missing already at that time: {', '.join(self.missing)}"

    @property
    def is_done(self) -> bool:
        current, older = self.file.current, self.file.older
        if self.attachments or current is None or current.sidecar.deleted or current.is_edited or self.is_damaged:
            return False
        now = current.sidecar
        facts = (now.digest, now.content_type, now.stage, now.valid)
        return facts == (older.digest, older.content_type, older.stage, older.valid)

    def seen(self) -> dict[DocumentAddress, str | None]:
        """Return the ids that must still be current when the plan is carried out; ``None`` for what was not there."""
        files = [(each.address, each.current) for each in (*self.attachments, self.file)]
        return {address: None if found is None else found.sidecar.id for address, found in (*files, *self.unchanged)}


@dataclass(frozen=True, slots=True)
class Reverting:
    """Brings back revisions of documents and attachments. ``documents`` reads and writes bytes as they are stored."""

    # ``elsewhere`` has the older revisions, if the history does not: their contents are compared with their digests.
    documents: Documents
    elsewhere: Documents | None = None

    def plan(self, address: DocumentAddress, asked: Get, precondition: Precondition = NO_PRECONDITION) -> RestorePlan:
        """Plan to bring back the revision that a GET would select."""
        route = self.documents.router.of(address.form)
        current = route.storage.read(address, content=False)
        source = self.elsewhere or self.documents
        found = source.read(address, asked).found
        with found.opened as content:
            versions.must_equal(asked.version.number, found.sidecar.version, address)
            file = RestoredFile(address, found.sidecar, current, asked, precondition)
            self.documents.decided_early(route, address, file.put)
            is_deep = self.elsewhere is not None
            is_damaged = is_deep and not _is_whole(route, address, current)
            if not address.is_main:
                return RestorePlan(file, is_damaged=is_damaged)
            names = dict.fromkeys(holder.held.name for holder in holders_in(address, content, found.size))
        if len(names) > MOST_RESTORED:
            raise BadRequestError(f"{address} names {len(names)} attachments: at most {MOST_RESTORED} are brought back")
        plan = RestorePlan(file, is_damaged=is_damaged)
        return _with_attachments(plan, route, source.router.of(address.form), names, is_deep=is_deep)

    def restore(self, plan: RestorePlan) -> Written:
        """Store an older revision, with its attachments of that time, as a new one; a repetition completes it."""
        address, files, seen = plan.file.address, (*plan.attachments, plan.file), plan.seen()
        *first, last = (files[at : at + RESTORED_AT_ONCE] for at in range(0, len(files), RESTORED_AT_ONCE))
        for batch in first:
            own = {each: seen[each] for each in (address, *(file.address for file in batch))}
            done = self._stored(batch, own)
            seen |= {file.address: each.sidecar.id for file, each in zip(batch, done, strict=True)}
        return replace(self._stored(last, seen)[-1], created=plan.file.is_deleted)

    def _stored(self, files: Sequence[RestoredFile], seen: dict[DocumentAddress, str | None]) -> list[Written]:
        address, documents = files[0].address, self.documents
        route = documents.router.of(address.form)
        source = (self.elsewhere or documents).router.of(address.form).storage
        with ExitStack() as opened:
            requests = list[PutRequest]()
            for file in files:
                older = source.read(file.address, file.older.modified, content=True)
                if older is not None:
                    opened.callback(older.close)
                if older is None or older.sidecar.id != file.older.id or older.file is None:
                    raise BusyError(f"the revision of {file.address} of {file.older.modified} has changed meanwhile")
                pieces = Read(file.address, older, None).pieces()
                request = opened.enter_context(documents.receiving(route, file.address, file.put, pieces))
                if self.elsewhere is not None and older.sidecar.digest not in (None, request.received.digest):
                    raise DamagedError(f"{file.address} of {older.sidecar.modified} is not what its sidecar says")
                requests.append(request)
            with route.storage.writing(address) as writer:
                for each, content_id in seen.items():
                    stored = writer.current(each)
                    if content_id != (None if stored is None else stored.sidecar.id):
                        raise ReplacedError(f"{each} was written by another request meanwhile")
                prepared = [documents.prepared(writer, request) for request in requests]
                with protecting(route, address, files[0].asked.user):
                    return [commit(writer, *each) for each in prepared]


def _is_whole(route: Route, address: DocumentAddress, current: StoredRevision | None) -> bool:
    if current is None or current.sidecar.deleted or current.is_edited or current.sidecar.digest is None:
        return True
    try:
        found = route.storage.read(address, content=True)
        if found is None or found.file is None:
            return True
        with found.file as file, disk_errors("reading", address):
            return digest_of_open(file) == found.sidecar.digest
    except DamagedError:
        return False


def _with_attachments(
    plan: RestorePlan, route: Route, source: Route, names: Iterable[str], *, is_deep: bool
) -> RestorePlan:
    """Add the attachments that were current with their document; with ``is_deep`` also for damaged ones."""
    file = plan.file
    for name in names:
        address = file.address.moved(file.address.collection, name)
        try:
            current = route.storage.read(address, content=False)
            older = _as_of(source, address, file.older.modified)
        except BadAddressError:  # no attachment has such a name
            current = older = None
        is_whole = not is_deep or _is_whole(route, address, current)
        if older is not None and not (_is_same(current, older) and is_whole):
            plan.attachments.append(RestoredFile(address, older.sidecar, current, file.asked))
        elif current is not None and not current.sidecar.deleted:
            plan.unchanged.append((address, current))
        else:
            plan.missing.append(name)
    return plan


def _as_of(route: Route, address: DocumentAddress, moment: Instant) -> StoredRevision | None:
    """Return the revision of an attachment that was current at a moment, else the first one after it."""
    # A client may store an attachment after the data that names it, and a clock may have been set back in between.
    # ``None`` where it was deleted by then, or never stored.
    try:
        return selected(route, address, Get(as_of=moment), content=False)
    except DeletedError:
        return None
    except NotFoundError:
        revisions = route.storage.history(address)
        if not revisions.total:
            return None
        first = living(route.storage.read(address, revisions.instant(revisions.total - 1), content=False))
        if first is not None and first.sidecar.created <= moment:
            raise ConflictError(f"{address} had other content at that time, and that revision was purged") from None
        return first


def _is_same(current: StoredRevision | None, older: StoredRevision) -> bool:
    if current is None or current.sidecar.deleted:
        return False
    if current.etag == older.etag:
        return True
    now, then = current.sidecar, older.sidecar
    is_known = now.digest is not None and not current.is_edited
    return is_known and (now.digest, now.content_type) == (then.digest, then.content_type)


def republish(
    definitions: Definitions, source: Revisions, address: DefinitionAddress, asked: Get, *, is_trial: bool
) -> Sidecar | None:
    """Publish a file as it was in a source, unless ``is_trial``; return its sidecar, ``None`` without any change."""
    moment = asked.as_of or LAST
    try:
        older = living(as_of(source, address, moment, content=True))
    except NotFoundError:
        return None
    if older is None:
        return None
    storage = definitions.router.of(address.form).definition.storage
    with closing(older):
        if older.file is None or _is_same(storage.read(address, content=False), older):
            return None
        sidecar = older.sidecar
        version, kind = VersionRequest(number=address.version), sidecar.content_type
        put = Put(asked.user, version=version, content_type=kind, restores=sidecar)
        pieces = Read(address, older, None).pieces()
        with definitions.receiving(address, kind, pieces) as (upload, received):
            if sidecar.digest not in (None, received.digest):
                raise DamagedError(f"{address} of {sidecar.modified} is not what its sidecar says")
            if not is_trial:
                definitions.publish(address.form, put.version, [Part(address.name, put, upload, received)])
    return sidecar


def before_current(documents: Documents, address: DocumentAddress) -> Instant:
    """Return the instant of the last living revision before the current one, which may be a tombstone."""
    revisions = documents.router.of(address.form).storage.history(address)
    if not revisions.total:
        raise NotFoundError(f"{address} does not exist")
    for found in revisions.each(1):
        if found.sidecar is not None and not found.sidecar.deleted:
            return found.instant
    raise NotFoundError(f"{address} has no older revision")
