"""The outbox: an event for every committed change of a document or a definition, until it was delivered and is old.

An event is recorded with its change: in a database in the same transaction; beside a tree as ``sqlite/tree_outbox``
says. It gets its ``number`` when it is durable, by ``settle``, and only then can others see it. Numbers have no gaps,
and the events of one document have them in the order of its revisions. Each outbox has a name of its own (``feed``): a
number is a position in that one alone.

Statements here are those of both engines, with ``?`` in place of values.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol

import msgspec

from persistence.errors import NotFoundError
from persistence.limits import MOST_DEAD_EVENTS, MOST_EVENTS
from persistence.model.addresses import Address, DefinitionAddress
from persistence.model.sidecar import Sidecar, fresh_id
from persistence.model.texts import Instant, next_after
from persistence.storage.storage import JobRecord, Storage

TABLES = """
CREATE TABLE outbox_fact (
    name text PRIMARY KEY,
    value text NOT NULL
);
CREATE TABLE outbox_event (
    id {identity},
    number bigint UNIQUE,
    recorded {seconds} NOT NULL,
    body {bytes} NOT NULL
);
CREATE INDEX outbox_unnumbered ON outbox_event (id) WHERE number IS NULL;
CREATE TABLE outbox_target (
    name text PRIMARY KEY,
    position bigint NOT NULL,
    attempts integer NOT NULL,
    due {seconds} NOT NULL,
    is_paused integer NOT NULL,
    missed bigint NOT NULL,
    cause text NOT NULL
);
CREATE TABLE outbox_dead (
    target text NOT NULL,
    number bigint NOT NULL,
    cause text NOT NULL,
    body {bytes} NOT NULL,
    PRIMARY KEY (target, number)
);
"""
"""``recorded`` and ``due`` are seconds since 1970."""


class EventSubject(msgspec.Struct, frozen=True, omit_defaults=True):
    """The document that an event is about, or without an id, the version of a definition.

    ``etag`` is the entity tag of the revision, which a removal without a trace has not.
    """

    app: str
    form: str
    version: int | None = None
    document: str | None = None
    etag: str | None = None
    modifier: str | None = None
    owner: str | None = None
    group: str | None = None
    stage: str | None = None
    stage_before: str | None = None


class Event(msgspec.Struct, frozen=True):
    """An event as Standard Webhooks has it; ``timestamp`` is that of the revision, or of its removal."""

    type: str
    timestamp: Instant
    data: EventSubject


EVENT_TYPES = (
    *("document.created", "document.updated", "document.stage_changed", "document.deleted", "document.erased"),
    *("form.published", "form.deleted", "form.erased"),
)


class Before(NamedTuple):
    """The state of a resource before a change."""

    is_deleted: bool
    stage: str | None

    @classmethod
    def of(cls, sidecar: Sidecar | None) -> Before | None:
        return None if sidecar is None else cls(sidecar.deleted, sidecar.stage)


def has_events(address: Address) -> bool:
    """Return whether changes of a resource are recorded: not of drafts, and of attachments only with their document."""
    return address.is_main and (isinstance(address, DefinitionAddress) or not address.is_draft)


def event_of(address: Address, sidecar: Sidecar, before: Before | None, *, is_erased: bool = False) -> Event:
    """Return the event of a revision that replaces another one; or of the removal of a revision without a trace."""
    stage_before = None if before is None or before.is_deleted else before.stage
    if isinstance(address, DefinitionAddress):
        word = "form.erased" if is_erased else "form.deleted" if sidecar.deleted else "form.published"
    elif is_erased:
        word = "document.erased"
    elif sidecar.deleted:
        word = "document.deleted"
    elif before is None or before.is_deleted:
        word = "document.created"
    else:
        word = "document.updated" if sidecar.stage == before.stage else "document.stage_changed"
    subject = EventSubject(
        address.form.app,
        address.form.name,
        address.version if isinstance(address, DefinitionAddress) else sidecar.version,
        None if isinstance(address, DefinitionAddress) else address.document,
        None if is_erased else sidecar.etag,
        None if is_erased else sidecar.modifier,
        sidecar.creator,
        sidecar.group,
        None if is_erased else sidecar.stage,
        stage_before if word in {"document.stage_changed", "document.deleted"} else None,
    )
    return Event(word, next_after(sidecar.modified) if is_erased else sidecar.modified, subject)


class NumberedEvent(NamedTuple):
    """A durable event with its number; ``body`` is its JSON."""

    number: int
    body: bytes


class TargetState(NamedTuple):
    """How far the events were delivered to a target.

    ``position`` is the number of the last event that is done with; ``attempts`` to deliver the next one have failed,
    the last for the ``cause``, and another is ``due``, in seconds since 1970. ``missed`` events grew too old before.
    """

    position: int
    attempts: int = 0
    due: float = 0.0
    is_paused: int = 0
    missed: int = 0
    cause: str = ""


class Statements(Protocol):
    """Runs one statement in a transaction, and returns its rows."""

    def __call__(self, statement: str, *values: object) -> list[tuple[object, ...]]: ...


_DUE_AT_ONCE = "due = -abs(due) - 1"
"""In the past, and never what it was: a delivery under way must not end as if nobody had changed its target."""


class Outbox(ABC):
    """The events of a storage, and how far they were delivered. Methods raise ``DiskError`` and ``BusyError``."""

    turn: JobRecord
    """The turn of the process that delivers."""

    @abstractmethod
    def transaction(self, action: str) -> AbstractContextManager[Statements]:
        """Run a block as one transaction, which is durable at its end."""

    def recover(self, storage: Storage, is_ending: Callable[[], bool]) -> None:  # noqa: ARG002 - of trees
        """Record the events of changes that a crash has left without one."""
        return

    def feed(self) -> str:
        """Return the name of this outbox, which no other one has."""
        with self.transaction("reading the name of the feed") as run:
            return _fact(run, "feed")

    def settle(self) -> int:
        """Number the events that are recorded by now, and return the number of the last one."""
        now = time.time()
        with self.transaction("numbering events") as run:
            if not run("SELECT 1 FROM outbox_event WHERE number IS NULL LIMIT 1"):
                return int(_fact(run, "last"))
            run("UPDATE outbox_fact SET value = value WHERE name = 'last'")  # others wait here
            last = int(_fact(run, "last"))
            run(
                "UPDATE outbox_event SET number = fresh.place + ? FROM (SELECT id AS own, row_number() OVER (ORDER BY"
                " id) AS place FROM outbox_event WHERE number IS NULL) AS fresh WHERE id = own",
                last,
            )
            ((newest,),) = run("SELECT max(number) FROM outbox_event")
            run("UPDATE outbox_fact SET value = ? WHERE name = 'last'", str(newest))
            run("UPDATE outbox_fact SET value = ? WHERE name = 'synced'", str(now))  # which only trees have
        return int(str(newest))

    def bounds(self) -> tuple[int, int]:
        """Return the number before the oldest event that is kept, and that of the newest one."""
        with self.transaction("looking at events") as run:
            last = int(_fact(run, "last"))
            ((oldest,),) = run("SELECT min(number) FROM outbox_event")
        return (last if oldest is None else int(str(oldest)) - 1), last

    def after(self, number: int, most: int) -> list[NumberedEvent]:
        """Return the events after a number, in order."""
        with self.transaction("reading events") as run:
            rows = run("SELECT number, body FROM outbox_event WHERE number > ? ORDER BY number LIMIT ?", number, most)
        return [NumberedEvent(int(str(each)), bytes(body)) for each, body in rows]  # type: ignore[call-overload]

    def prune(self, before: float) -> None:
        """Remove the events recorded before a time, in seconds since 1970, and the oldest of too many."""
        with self.transaction("removing old events") as run:
            most = int(_fact(run, "last")) - MOST_EVENTS
            run("DELETE FROM outbox_event WHERE number IS NOT NULL AND (recorded < ? OR number <= ?)", before, most)

    def targets(self) -> dict[str, TargetState]:
        with self.transaction("looking at targets") as run:
            rows = run("SELECT name, position, attempts, due, is_paused, missed, cause FROM outbox_target")
        return {str(name): TargetState(*state) for name, *state in rows}  # type: ignore[arg-type]  # by the table

    def begin_target(self, name: str) -> TargetState:
        """Return the state of a target. A new one gets the events from now on."""
        with self.transaction("looking at a target") as run:
            run(
                "INSERT INTO outbox_target SELECT ?, CAST(value AS bigint), 0, 0, 0, 0, '' FROM outbox_fact"
                " WHERE name = 'last' ON CONFLICT DO NOTHING",
                name,
            )
            ((*state,),) = run(
                "SELECT position, attempts, due, is_paused, missed, cause FROM outbox_target WHERE name = ?", name
            )
        return TargetState(*state)  # type: ignore[arg-type]

    def change_target(
        self, name: str, known: TargetState, state: TargetState, dead: NumberedEvent | None = None
    ) -> None:
        """Store another state of a target, and with it an event that was given up; nothing if ``known`` is outdated."""
        with self.transaction("recording a delivery") as run:
            changed = run(
                "UPDATE outbox_target SET position = ?, attempts = ?, due = ?, is_paused = ?, missed = ?, cause = ?"
                " WHERE name = ? AND position = ? AND is_paused = ? AND attempts = ? AND due = ? RETURNING name",
                *(*state, name, known.position, known.is_paused, known.attempts, known.due),
            )
            if changed and dead is not None:
                run(
                    "INSERT INTO outbox_dead VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    *(name, dead.number, state.cause, dead.body),
                )
                run(
                    "DELETE FROM outbox_dead WHERE target = ? AND number <= (SELECT number FROM outbox_dead"
                    " WHERE target = ? ORDER BY number DESC LIMIT 1 OFFSET ?)",
                    *(name, name, MOST_DEAD_EVENTS),
                )

    def dead(self, name: str) -> list[tuple[NumberedEvent, str]]:
        """Return the events that were given up for a target, each with the cause."""
        with self.transaction("reading events that were given up") as run:
            rows = run("SELECT number, body, cause FROM outbox_dead WHERE target = ? ORDER BY number", name)
        return [(NumberedEvent(int(str(number)), bytes(body)), str(cause)) for number, body, cause in rows]  # type: ignore[call-overload]

    def pause(self, name: str, *, is_paused: bool) -> None:
        """Stop the delivery to a target, or go on at once."""
        with self._changing(name) as run:
            run(
                f"UPDATE outbox_target SET is_paused = ?, {_DUE_AT_ONCE}, cause = '' WHERE name = ?",
                *(int(is_paused), name),
            )

    def replay(self, name: str, after: int | None) -> int:
        """Have all events after a number delivered again, or from the first one on that was given up.

        Returns the number after which they are. ``NotFoundError``: none was given up.
        """
        with self._changing(name) as run:
            if after is None:
                ((first,),) = run("SELECT min(number) FROM outbox_dead WHERE target = ?", name)
                if first is None:
                    raise NotFoundError(f"no event was given up for {name}")
                after = int(str(first)) - 1
            after = min(after, int(_fact(run, "last")))
            run(
                f"UPDATE outbox_target SET position = ?, attempts = 0, {_DUE_AT_ONCE}, cause = '' WHERE name = ?",
                *(after, name),
            )
            run("DELETE FROM outbox_dead WHERE target = ? AND number > ?", name, after)
        return after

    def renew(self) -> str:
        """Give the outbox another name, so that those who follow it begin anew; return the name."""
        feed = fresh_id()[:16]
        with self.transaction("renaming the feed") as run:
            run("UPDATE outbox_fact SET value = ? WHERE name = 'feed'", feed)
        return feed

    @contextmanager
    def _changing(self, name: str) -> Iterator[Statements]:
        with self.transaction("changing a target") as run:
            if not run("SELECT 1 FROM outbox_target WHERE name = ?", name):
                raise NotFoundError(f"nothing was delivered to {name} yet")
            yield run


def _fact(run: Statements, name: str) -> str:
    ((value,),) = run("SELECT value FROM outbox_fact WHERE name = ?", name)
    return str(value)
