"""The source of an import from the database of a runtime: times, revisions, attachments kept elsewhere, and leases.

Rows of one file become its revisions, in the order of their times. A row whose content cannot be had is refused by
itself if it is that of an attachment, and with its document or version if it is XML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from io import FileIO
from operator import itemgetter
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from persistence.errors import BadRequestError, LockedError, PersistenceError, as_disk_error, disk_errors
from persistence.forms.archive_metadata import ImportFacts
from persistence.limits import LARGEST_PIECE
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.queries import FormPattern
from persistence.model.sidecar import ClientHash
from persistence.model.texts import Instant, from_datetime, one_later
from persistence.model.versions import LeaseHolder
from persistence.providers.router import Router
from persistence.services.import_plans import Content, ImportedRevision, ImportUnit, refused
from persistence.services.orbeon_database import (
    DEFINITION_FILES,
    DEFINITIONS,
    DOCUMENT_FILES,
    DOCUMENTS,
    DatabaseRow,
    OrbeonDatabase,
)
from persistence.services.transfers import TransferOutcome, TransferResult
from persistence.storage import files

_TWICE = "a time is in an hour that occurs twice: it was read as the first one"
_NEVER = "a time is in an hour that clocks leave out: the time zone may be wrong"
_MOVED = "a revision moved on by a millisecond, because the one before it has the same"
_DRAFT_ROWS = "older or deleted revisions of a draft are left out"
_ELSEWHERE = "older revisions of attachments are left out: the runtime kept their files elsewhere, and only the newest"
_NO_ORGANIZATION = "the organization of an owner is not in the database"

_LONGEST_DATE = len("20261231")  # More digits are milliseconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = {
    DEFINITIONS: "definitions",
    DOCUMENTS: "documents",
    DEFINITION_FILES: "attachments",
    DOCUMENT_FILES: "attachments",
}
"""Kinds of rows by table, as the comparison at the end counts them."""


class AttachmentFiles(Protocol):
    """Attachments that the runtime keeps in a directory or an object store, by their paths there."""

    def size(self, key: str) -> int | None:
        """Return the bytes of a file; ``None`` if there is none."""

    def read(self, key: str, start: int, end: int) -> bytes | memoryview | None:
        """Return the bytes from one offset to another."""


class DirectoryFiles:
    """The ``AttachmentFiles`` of a directory, whose path is absolute; links in it are not followed."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def size(self, key: str) -> int | None:
        try:
            with FileIO(files.open_file(f"{self._directory}/{key}")) as file:
                return file.seek(0, 2)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise as_disk_error(error, "reading", key) from error

    def read(self, key: str, start: int, end: int) -> bytes:
        with disk_errors("reading", key), FileIO(files.open_file(f"{self._directory}/{key}")) as file:
            file.seek(start)
            return file.read(end - start)


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of the runtime: its database has times without a zone. ``None`` is the zone of this machine."""

    zone: ZoneInfo | None

    def moment(self, value: Any) -> tuple[datetime, str]:
        """Return a time of a column as UTC, with a note if it is not certain."""
        given = _parsed(value)
        if given.tzinfo is not None:
            return given.astimezone(UTC), ""
        first, second = (given.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        return first, "" if first == second else _TWICE if first < second else _NEVER

    def __str__(self) -> str:
        return (
            f"time zone {self.zone.key}" if self.zone else f"this machine's time zone, {datetime.now().astimezone():%Z}"
        )


def _parsed(value: Any) -> datetime:
    """Read a time as PostgreSQL and MySQL have it, or SQLite: milliseconds since 1970, or a text."""
    try:
        if isinstance(value, datetime):
            return value
        if isinstance(value, int | float) or (len(str(value)) > _LONGEST_DATE and str(value).isdecimal()):
            return _EPOCH + timedelta(milliseconds=int(value))
        return datetime.fromisoformat(str(value))
    except (ValueError, OverflowError) as error:
        raise BadRequestError(f"{str(value)!r} is not a time") from error


@dataclass
class _Gathered:
    """Revisions of one unit as far as they are read, notes about them, and lines about attachments without content."""

    name: str
    revisions: list[ImportedRevision] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[TransferOutcome] = field(default_factory=list)


class OrbeonSource:
    """An ``ImportSource`` of the forms of a database that match one of the ``patterns``."""

    # It compares the numbers of rows with the ``outcomes`` of its units, which the caller adds one after the other.

    def __init__(
        self,
        database: OrbeonDatabase,
        patterns: Sequence[FormPattern],
        clock: Clock,
        attachments: AttachmentFiles | None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._attachments = attachments
        self._rows = {
            found: counts
            for found, counts in database.forms().items()
            if None in found or any(each.matches(Form(str(found[0]), str(found[1]))) for each in patterns)
        }
        self._forms = sorted(Form(app, form) for app, form in self._rows if app is not None and form is not None)
        self._came: dict[Form, Counter[str]] = {form: Counter() for form in self._forms}
        self.left_out: Counter[Form] = Counter()  # rows that came although notes say that they are left out
        self._leased: dict[str, Form | None] = {each[0]: None for each in database.leases()}

    def remarks(self) -> Iterator[str]:
        """Yield what an administrator should compare before an import: an example of a time, and what is missing."""
        value = self._database.example()
        if value is not None:
            yield f"the time {value} in the database is read as {from_datetime(self._clock.moment(value)[0])}" + (
                "" if isinstance(value, int) else f" ({self._clock})"
            )
        if self._database.lacking:
            yield f"an older database: it has no {', '.join(self._database.lacking)}"

    def count(self) -> int:
        """Return the number of rows that are a revision of a document or definition: there are fewer outcomes."""
        return sum(counts[DEFINITIONS] + counts[DOCUMENTS] for counts in self._rows.values())

    def units(self) -> Iterator[ImportUnit | TransferOutcome]:
        yield from self._nameless()
        for form in self._forms:
            versions: dict[int, list[DatabaseRow]] = {}
            for row in self._database.definitions(form):
                versions.setdefault(row.version, []).append(row)
            for version, found in sorted(versions.items()):
                yield from self._unit(form, f"{form}/form/{version}", found)
        for form in self._forms:
            for rows in self._database.documents(form):
                yield from self._unit(form, f"{form}/data/{rows[0].document}", rows)

    def add(self, outcome: TransferOutcome) -> None:
        app, _, rest = outcome.name.partition("/")
        name, _, rest = rest.partition("/")
        came = self._came.get(Form(app, name), Counter())
        for address, new, known in outcome.revisions:
            kind = "attachments" if not address.is_main else "documents"
            came["definitions" if kind == "documents" and outcome.is_definition else kind] += new + known
        document = rest.partition("/")[2]
        if outcome.form is not None and document in self._leased:
            self._leased[document] = outcome.form

    @property
    def is_complete(self) -> bool:
        """Return whether all rows came, now or before, or are left out for a reason that a note says."""
        return all(came == rows for counts in self.compared().values() for came, rows in counts.values())

    def compared(self) -> dict[Form, dict[str, tuple[int, int]]]:
        """Return for each form and kind of rows how many came, and how many the database has."""
        found = dict[Form, dict[str, tuple[int, int]]]()
        for form in self._forms:
            rows = Counter[str]()
            for each, count in self._rows[form.app, form.name].items():
                rows[_KINDS[each]] += count
            found[form] = {
                kind: (self._came[form][kind], rows[kind]) for kind in dict.fromkeys(_KINDS.values()) if rows[kind]
            }
        return found

    def take_leases(self, router: Router) -> tuple[int, list[str]]:
        """Lease the imported documents that are leased in the database, for the time left; return problems, too."""
        count, problems = 0, list[str]()
        for document, user, group, expiration in self._database.leases():
            form = self._leased.get(document)
            if form is None or not user:
                continue
            try:
                left = int((self._clock.moment(expiration)[0] - datetime.now(UTC)).total_seconds())
                if left > 0 and router.of(form).properties.has_leases:
                    address = DocumentAddress(form, Collection.DATA, document)
                    router.of(form).data.storage.leases.lock(address, LeaseHolder(user, group or None), left)
                    count += 1
            except LockedError as error:
                problems.append(f"{form}/data/{document}: its lease stays as it is here: {error}")
            except PersistenceError as error:
                problems.append(f"{form}/data/{document}: its lease: {error}")
        return count, problems

    def _nameless(self) -> Iterator[TransferOutcome]:
        for cause in self._database.missing:
            yield refused(cause.partition(" ")[0], f"the table {cause}")
        for (app, name), counts in self._rows.items():
            if app is None or name is None:
                yield from (refused(each, f"{count} rows have no app or form") for each, count in counts.items())
        for form in self._forms:
            for each, count in self._database.nameless(form).items():
                yield refused(f"{form}/{each}", f"{count} rows have no name of a document or file")

    def _unit(self, form: Form, name: str, rows: Sequence[DatabaseRow]) -> Iterator[ImportUnit | TransferOutcome]:
        gathered = _Gathered(name)
        is_definition = rows[0].table in (DEFINITIONS, DEFINITION_FILES)
        try:
            by_address: dict[Address, list[tuple[datetime, str, DatabaseRow]]] = {}
            for row in rows:
                moment, note = self._clock.moment(row.values["last_modified_time"])
                by_address.setdefault(_address(form, row), []).append((moment, note, row))
            for each in by_address.values():
                each.sort(key=itemgetter(0))
            self._leave_out_drafts(form, by_address, gathered)
            for address, dated in by_address.items():
                self._add_file(form, address, dated, gathered)
        except PersistenceError as error:
            yield refused(name, error, is_definition=is_definition)
            return
        yield from gathered.refused
        if gathered.notes:
            notes = tuple(dict.fromkeys(gathered.notes))
            yield TransferOutcome(name, TransferResult.UNCHANGED, is_definition, notes=notes)
        if gathered.revisions:
            yield ImportUnit(name, tuple(gathered.revisions))

    def _leave_out_drafts(
        self, form: Form, by_address: dict[Address, list[tuple[datetime, str, DatabaseRow]]], gathered: _Gathered
    ) -> None:
        """Leave what drafts do not have: a history, and tombstones."""
        drafts = [each for each in by_address if isinstance(each, DocumentAddress) and each.is_draft]
        is_deleted = any(each.is_main and by_address[each][-1][2].is_deleted for each in drafts)
        for each in drafts:
            dated = by_address[each]
            kept = [] if is_deleted or dated[-1][2].is_deleted else dated[-1:]
            for _, _, row in dated[: len(dated) - len(kept)]:
                self._leave_out(form, row, _DRAFT_ROWS, gathered)
            by_address[each] = kept

    def _leave_out(self, form: Form, row: DatabaseRow, note: str, gathered: _Gathered) -> None:
        gathered.notes.append(note)
        self._came[form][_KINDS[row.table]] += 1
        self.left_out[form] += 1

    def _add_file(
        self, form: Form, address: Address, dated: Sequence[tuple[datetime, str, DatabaseRow]], gathered: _Gathered
    ) -> None:
        last: Instant | None = None
        newest = max((at for at, each in enumerate(dated) if not each[2].is_deleted), default=0)
        contents = [self._content(each[2], is_newest=at == newest) for at, each in enumerate(dated)]
        is_gone = dated[-1][2].is_deleted and not all(each[2].is_deleted for each in dated) if dated else False
        if is_gone and not any(contents) and not address.is_main:  # a deletion without anything that was deleted
            for each in dated:
                self._leave_out(form, each[2], _ELSEWHERE, gathered)
            return
        for at, (moment, note, row) in enumerate(dated):
            modified, content = from_datetime(moment), contents[at]
            if content is None and not row.is_deleted:
                if address.is_main:
                    raise BadRequestError(f"its revision of {modified} has no XML")
                if at < len(dated) - 1:
                    self._leave_out(form, row, _ELSEWHERE, gathered)
                    continue
                where = "in the place of --attachments" if self._attachments else "in the database: --attachments"
                cause = f"{address.name} has no content {where}{'' if self._attachments else ' says where it is'}"
                gathered.refused.append(
                    refused(gathered.name, cause, is_definition=isinstance(address, DefinitionAddress))
                )
                continue
            notes = [note] if note else []
            if last is not None and modified <= last:
                modified = one_later(last)
                notes.append(_MOVED)
            last = modified
            facts = self._facts(row, modified, notes)
            name = f"{address} of {modified}"
            gathered.revisions.append(ImportedRevision(name, address, row.version, facts, content))

    def _content(self, row: DatabaseRow, *, is_newest: bool) -> Content | None:
        """Return what reads the content of a row; ``None`` if there is none."""
        if row.is_deleted:
            return None
        if row.table in (DEFINITIONS, DOCUMENTS):
            return None if row.size is None else lambda: iter((self._database.xml(row),))
        if row.size:
            return partial(self._database.pieces, row)
        attachments = self._attachments
        if attachments is None or not is_newest:
            return None
        kind = "form" if row.table == DEFINITION_FILES else "draft" if row.is_draft else "data"
        document = (row.document,) if row.table == DOCUMENT_FILES else ()
        app, name, file = (str(row.values[each]) for each in ("app", "form", "file_name"))
        parts = (app, name, kind, *document, str(row.version), file)
        key = "/".join(parts)
        if any("/" in each or each in ("", ".", "..") for each in parts):
            return None
        size = attachments.size(key)
        return None if size is None else partial(_pieces_at, attachments, key, size)

    def _facts(self, row: DatabaseRow, modified: Instant, notes: list[str]) -> ImportFacts:
        created = row.values.get("created")
        organization: tuple[str, ...] = ()
        if (number := row.values.get("organization_id")) is not None:
            organization = self._database.organizations.get(int(number), ())
            notes += [] if organization else [_NO_ORGANIZATION]
        hashed = row.text("hash_algorithm"), row.text("hash_value")
        return ImportFacts(
            created=modified if created is None else min(from_datetime(self._clock.moment(created)[0]), modified),
            modified=modified,
            creator=row.text("username"),
            group=row.text("groupname"),
            organization=organization,
            modifier=row.text("last_modified_by"),
            stage=row.text("stage"),
            notes=tuple(notes),
            client_hash=None if None in hashed else ClientHash(str(hashed[0]), str(hashed[1])),
            is_as_stored=True,
        )


def _address(form: Form, row: DatabaseRow) -> Address:
    if row.version < 1:
        raise BadRequestError(f"its form version is {row.version}")
    name = row.text("file_name")
    if row.table in (DEFINITIONS, DEFINITION_FILES):
        return DefinitionAddress(form, row.version, name or FORM_XHTML)
    return DocumentAddress(form, Collection.DRAFT if row.is_draft else Collection.DATA, row.document, name or DATA_XML)


def _pieces_at(attachments: AttachmentFiles, key: str, size: int) -> Iterator[bytes]:
    for start in range(0, size, LARGEST_PIECE):
        piece = attachments.read(key, start, min(size, start + LARGEST_PIECE))
        if not piece:
            raise BadRequestError(f"{key} changes while it is read")
        yield bytes(piece)
