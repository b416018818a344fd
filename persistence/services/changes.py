"""The feed of changes, as programs that follow what is stored read it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from persistence.closable import Closable
from persistence.errors import BadRequestError, GoneError, NotFoundError
from persistence.index.outbox import Event, NumberedEvent, Outbox, TargetState
from persistence.limits import EVENTS_PAGE, LONGEST_FOLLOWING, MOST_FOLLOWERS
from persistence.model.texts import count

OFF = "changes are not recorded: the setting events is false"
_LOOK = 0.25  # Seconds between two looks for new events


class ChangesPage(NamedTuple):
    """Changes in order, the cursor after the last one, and whether there are more."""

    changes: Sequence[NumberedEvent]
    cursor: str
    has_more: bool


class FeedFacts(NamedTuple):
    """The name of a feed, the number before the oldest event that is kept, and that of the newest."""

    feed: str
    oldest: int
    newest: int


class GivenUp(NamedTuple):
    """An event that was given up for a target: its number and type, the document or form, and the cause."""

    number: int
    type: str
    about: str
    cause: str


class TargetFacts(NamedTuple):
    """How far events were delivered to a target, how many wait, and those that were given up."""

    name: str
    state: TargetState
    waiting: int
    given_up: list[GivenUp]


def facts_of(outbox: Outbox) -> FeedFacts:
    return FeedFacts(outbox.feed(), *outbox.bounds())


def targets_of(outbox: Outbox) -> list[TargetFacts]:
    newest = outbox.bounds()[1]
    found = []
    for name, state in sorted(outbox.targets().items()):
        given_up = list[GivenUp]()
        for event, cause in outbox.dead(name):
            body = msgspec.json.decode(event.body, type=Event)
            about = "/".join(filter(None, (body.data.app, body.data.form, body.data.document)))
            given_up.append(GivenUp(event.number, body.type, about, cause))
        found.append(TargetFacts(name, state, newest - state.position, given_up))
    return found


class ChangeFeed(Closable):
    """The changes of some places by the names of their datasources, as followers read them."""

    def __init__(self, outboxes: Mapping[str, Outbox]) -> None:
        self._outboxes = outboxes
        self._followers = threading.BoundedSemaphore(MOST_FOLLOWERS)
        self._is_ending = threading.Event()

    def close(self) -> None:
        """Answer all who wait."""
        self._is_ending.set()

    @property
    def datasources(self) -> tuple[str, ...]:
        return tuple(self._outboxes)

    def outbox(self, datasource: str) -> Outbox:
        found = self._outboxes.get(datasource)
        if found is None:
            raise BadRequestError(f"there is no datasource {datasource!r} with changes here")
        return found

    def page(self, datasource: str, since: str | None, limit: str | None, wait: str | None) -> ChangesPage:
        """Return the changes after a cursor; those from now on without one, and all that are kept after ``start``."""
        # If there are none, it waits for so many seconds, unless too many wait already. ``GoneError`` says that changes
        # after the cursor are not kept any more, or that it is of another feed.
        if not self._outboxes:
            raise NotFoundError(OFF)
        outbox = self.outbox(datasource)
        most = min(count(limit or "", "limit", 100), EVENTS_PAGE)
        seconds = min(count(wait, "wait", 1), LONGEST_FOLLOWING) if wait and wait != "0" else 0
        feed, (oldest, newest) = outbox.feed(), outbox.bounds()
        position = self._position(since, feed, oldest, newest)
        found = outbox.after(position, most)
        if not found and seconds and self._followers.acquire(blocking=False):
            try:
                ends = time.monotonic() + seconds
                while not found and time.monotonic() < ends and not self._is_ending.wait(_LOOK):
                    found = outbox.after(position, most)
            finally:
                self._followers.release()
        last = found[-1].number if found else position
        return ChangesPage(found, f"{feed}.{last}", len(found) == most)

    def _position(self, since: str | None, feed: str, oldest: int, newest: int) -> int:
        if since is None:
            return newest
        if since == "start":
            return oldest
        name, _, number = since.rpartition(".")
        if not name or not number.isascii() or not number.isdigit() or len(number) > 18:  # noqa: PLR2004 - 64 bits
            raise BadRequestError(f"since must be a cursor of this feed, or start, not {since[:60]!r}")
        again = f"read everything, and then the changes since {feed}.{newest}"
        if name != feed:
            raise GoneError(f"the cursor is of another feed: {again}")
        if not oldest <= int(number) <= newest:
            raise GoneError(f"the changes after the cursor are not kept any more: {again}")
        return int(number)
