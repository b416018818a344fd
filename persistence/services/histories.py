"""The history of documents and attachments, as far as its reader may read the revisions (spec crud 8.1).

The revisions from a creation to the next are one life of a document, with one owner and version: the newest decides for
all. Each revision on a page is decided about by itself, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from persistence.errors import DamagedError, ForbiddenError, RemoteFailureError
from persistence.forms.history_xml import write_history
from persistence.limits import MOST_LIVES
from persistence.model.addresses import DocumentAddress
from persistence.model.history import HistoryPage, ListedRevision, PageRequest
from persistence.model.sidecar import Sidecar
from persistence.model.users import Bearer
from persistence.providers.provider import Route
from persistence.providers.router import Router
from persistence.services.access import Access, subject_of
from persistence.services.diffs import DiffOptions, RevisionDiffs
from persistence.services.rules import must_live
from persistence.storage.storage import RevisionList

_Judge = Callable[[Sidecar], bool]


@dataclass(frozen=True, slots=True)
class AnsweredHistory:
    """A page of a history, and a line about what is not on it."""

    body: bytes
    notice: str | None


@dataclass(frozen=True, slots=True)
class Histories:
    """Lists revisions. Without ``access``, a proxy has decided already (spec crud 11)."""

    router: Router
    access: Access | None
    diffs: RevisionDiffs

    def page(
        self, address: DocumentAddress, asked: PageRequest, reader: Bearer, *, with_older: bool = False
    ) -> HistoryPage:
        """Return a page of the revisions that somebody may read, with the next ``older`` one only on request.

        The page is empty where nothing was ever stored.
        """
        route = self.router.of(address.form)
        revisions = route.storage.history(address)
        if revisions is None:
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
    ) -> AnsweredHistory:
        """Return a page as XML, of a document with differences if they are ``diffed``."""
        diffed = diffed if address.is_main else None
        page = self.page(address, asked, reader, with_older=diffed is not None)
        notice = f"{page.damaged} of these revisions are damaged: only their times are known" if page.damaged else None
        compared = [*page.revisions, *(() if page.older is None else (page.older,))]
        found = self.diffs.on_page(address, compared, reader, diffed) if diffed is not None else ()
        return AnsweredHistory(
            write_history(page, found, lists_restored=self.diffs.documents.dialect.lists_restored), notice
        )

    def _revision_filter(self, route: Route, address: DocumentAddress, reader: Bearer) -> _Judge:
        access, known = self.access, dict[tuple[object, ...], bool]()
        if access is None or not address.is_main:  # the document decides about its attachments
            return lambda _: True

        def may_read(sidecar: Sidecar) -> bool:
            facts = (sidecar.version, sidecar.creator, sidecar.group, sidecar.organization)
            if facts not in known:
                try:
                    access.to_read(subject_of(route, address, sidecar, 0), reader.user, reader.token)
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
            self.access.to_read(subject_of(route, address, main.sidecar, 0), reader.user, reader.token)
            return [range(revisions.total)]
        current = revisions.revision(0)
        if current is not None and current.sidecar is not None:
            self.access.to_read(subject_of(route, address, current.sidecar, 0), reader.user, reader.token)
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
