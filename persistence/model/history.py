"""The history of a document or an attachment: its revisions, newest first, a page at a time (spec crud 8.1)."""

from __future__ import annotations

from dataclasses import dataclass

from persistence.limits import HISTORY_PAGE, LARGEST_HISTORY_PAGE
from persistence.model.addresses import DocumentAddress
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.model.texts import count


@dataclass(frozen=True, slots=True)
class ListedRevision:
    """A revision in a list; ``sidecar`` is ``None`` where it is damaged, so that only the instant is known."""

    instant: Instant
    sidecar: Sidecar | None


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page of a history, of ``size`` revisions; the first has ``number`` 1."""

    number: int = 1
    size: int = HISTORY_PAGE


def page_request(number: str | None, size: str | None) -> PageRequest:
    """Read the page that a request names; a size that is too large means the largest."""
    wanted = count(size or "", "page-size", HISTORY_PAGE)
    return PageRequest(count(number or "", "page-number", 1), min(wanted, LARGEST_HISTORY_PAGE))


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of the revisions that a caller may see, of which there are ``total``.

    ``newest`` and ``oldest`` are the instants of the first and the last of all of them; ``None`` where there are none.
    ``older`` is the revision before the last one on the page.
    """

    address: DocumentAddress
    asked: PageRequest
    total: int = 0
    newest: Instant | None = None
    oldest: Instant | None = None
    revisions: tuple[ListedRevision, ...] = ()
    older: ListedRevision | None = None

    @property
    def damaged(self) -> int:
        """The number of revisions on the page of which only the instant is known."""
        return sum(each.sidecar is None for each in self.revisions)
