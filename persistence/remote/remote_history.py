"""The revisions that another service has, asked of its history API page by page (spec crud 8.1)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from persistence.errors import BadRequestError, BusyError, MalformedXmlError, NotSupportedError, RemoteError
from persistence.forms.history_xml import FoundHistory, read_history
from persistence.limits import LARGEST_ANSWER, MOST_HISTORY_CALLS, REMOTE_HISTORY_PAGE
from persistence.model import instants
from persistence.model.addresses import DocumentAddress
from persistence.model.history import ListedRevision
from persistence.model.instants import Instant
from persistence.model.sidecar import LARGEST_VERSION, SCHEMA, Sidecar
from persistence.remote.client import Client, RemoteCall
from persistence.storage.storage import RevisionList, count_since

_NO_HISTORY = (
    *(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND),  # for unknown paths (spec crud 11)
    *(HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED),
)
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Life:
    """The revisions from a creation to the next; ``newest`` is the last one that is known."""

    version: int
    created: Instant
    newest: Instant


class RemoteRevisions(RevisionList):
    """The revisions of one resource. Pages are asked for as they are needed, and kept.

    Methods raise ``RemoteError``, and ``BusyError`` where a revision was added meanwhile.
    """

    def __init__(self, client: Client, address: DocumentAddress) -> None:
        self._client = client
        self._address = address
        self._calls = 0
        self._pages: dict[int, FoundHistory] = {}
        self._lives: list[_Life] = []
        self._total: int | None = None
        first = self._page_of(0)
        self._total = self._total_of(first)

    @property
    def total(self) -> int:
        return self._total or 0

    def instant(self, position: int) -> Instant:
        oldest = self._oldest if position == self.total - 1 else ""
        return self._instant(oldest or self._row(position).get("modified-time", ""))

    def since(self, instant: Instant) -> int:
        is_of_all = self._oldest and self._instant(self._oldest) >= instant
        return self.total if is_of_all else count_since(self, instant)

    def revision(self, position: int) -> ListedRevision:
        row = self._row(position)
        instant = self._instant(row.get("modified-time", ""))
        if row.get("damaged") == "true":
            return ListedRevision(instant, None)
        known = (life for life in self._lives if life.created <= instant <= life.newest)
        life = next(known, None) or self._noted(self._ask(position + 1, 1), instant)
        restored = row.get("restored-time")
        sidecar = Sidecar(
            schema=SCHEMA,
            id=hashlib.sha256(f"{self._address}\n{instant}".encode()).hexdigest()[:40],
            version=life.version,
            modified=instant,
            created=life.created,
            size=0,
            stage=row.get("stage") or None,
            creator=row.get("owner-username") or None,
            group=row.get("owner-group") or None,
            modifier=row.get("modified-username") or None,
            deleted=row.get("deleted") == "true",
            restored=self._instant(restored) if restored else None,
        )
        return ListedRevision(instant, sidecar)

    def page(self, begin: int, end: int) -> list[ListedRevision]:
        return [self.revision(position) for position in range(begin, min(end, self.total))]

    @property
    def _oldest(self) -> str:
        return self._page_of(0).attributes.get("min-last-modified-time", "")

    def _noted(self, found: FoundHistory, newest: Instant) -> _Life:
        version = found.attributes.get("form-version", "")
        if not _NUMBER.fullmatch(version) or not 1 <= int(version) <= LARGEST_VERSION:
            raise self._not_a_history("does not say a form version")
        life = _Life(int(version), self._instant(found.attributes.get("created-time", "")), newest)
        self._lives.append(life)
        return life

    def _row(self, position: int) -> Mapping[str, str]:
        rows = self._page_of(position).revisions
        at = position % REMOTE_HISTORY_PAGE
        if at >= len(rows):
            raise self._not_a_history("has fewer revisions than it says")
        return rows[at]

    def _page_of(self, position: int) -> FoundHistory:
        number = position // REMOTE_HISTORY_PAGE
        if number not in self._pages:
            found = self._ask(number + 1, REMOTE_HISTORY_PAGE)
            if found.revisions and found.revisions[0].get("damaged") != "true":
                self._noted(found, self._instant(found.revisions[0].get("modified-time", "")))
            self._pages[number] = found
        return self._pages[number]

    def _ask(self, number: int, size: int) -> FoundHistory:
        self._calls += 1
        if self._calls > MOST_HISTORY_CALLS:
            raise NotSupportedError(f"the history of {self._address} needs too many requests to {self._client.who!r}")
        rest = () if self._address.is_main else (self._address.name,)
        path = self._client.names.of_form("history", self._address.form, self._address.document, *rest)
        query = (("page-number", str(number)), ("page-size", str(size)))
        answer = self._client.send(RemoteCall("GET", path, query=query))
        if answer.status in _NO_HISTORY:
            answer.close()
            raise NotSupportedError(f"provider {self._client.who!r} has no history of {self._address}")
        answer.require(f"the history of {self._address}", HTTPStatus.OK)
        try:
            found = read_history([answer.whole(LARGEST_ANSWER)])
        except MalformedXmlError as error:
            raise self._not_a_history("is not XML") from error
        if len(found.revisions) > size:
            raise self._not_a_history("has more revisions than were asked for")
        if self._total is not None and self._total_of(found) != self._total:
            raise BusyError(f"{self._address} was written while its history was read")
        return found

    def _total_of(self, found: FoundHistory) -> int:
        total = found.attributes.get("total", "")
        if not _NUMBER.fullmatch(total):
            raise self._not_a_history("does not say how many revisions there are")
        return int(total)

    def _instant(self, text: str) -> Instant:
        try:
            return instants.from_datetime(instants.parse_time(text, "modified-time"))
        except BadRequestError as error:
            raise self._not_a_history("has a time that is not valid") from error

    def _not_a_history(self, why: str) -> RemoteError:
        return RemoteError(f"the history of {self._address} that provider {self._client.who!r} answers {why}")
