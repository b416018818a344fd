"""The probe of a database: a commit that stores nothing, and waits for the replicas as that of a save does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import psycopg

from persistence.errors import BusyError, DiskError
from persistence.limits import CONFIRMING_SECONDS
from persistence.postgresql.failures import cause
from persistence.postgresql.session import Session

_WRITABLE = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')"
_COMMIT = "SELECT pg_logical_emit_message(true, 'persistence', '')"
"""Writes a record to the write-ahead log and changes no table."""

_AWAITS_REPLICAS = "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = %s"


class Probe:
    """Tries out whether a database can be written, one commit at a time, and not again for some seconds.

    ``connected`` lends a connection for an action on the ``address``. ``is_doubted`` is set after a commit that
    replicas did not confirm, or a statement that took too long, until a commit that is tried out succeeds.
    """

    def __init__(self, connected: Callable[[str, object], AbstractContextManager[Session]], address: object) -> None:
        self._connected = connected
        self._address = address
        self._lock = threading.Lock()
        self._known_until = 0.0
        self._cause: str | None = None
        self.is_doubted = False

    def cause(self) -> str | None:
        """Return the cause that keeps the database from being written."""
        try:
            with self._connected("looking at", self._address) as connection:
                if connection.execute(_WRITABLE).fetchone() != (False, "off"):
                    return f"{self._address} can only be read: it is a replica, or made read-only"
                if time.monotonic() >= self._known_until and self._lock.acquire(blocking=not self._known_until):
                    try:
                        self._commit(connection)
                    finally:
                        self._lock.release()
        except (BusyError, DiskError) as error:
            return str(error)
        return self._cause

    def _commit(self, connection: Session) -> None:
        if time.monotonic() < self._known_until:  # another thread did
            return
        try:
            is_confirmed = _is_confirmed(connection)
        except psycopg.OperationalError as error:
            self._cause = f"{self._address}: no commit succeeds: {cause(error)}"
        else:
            self._cause, self.is_doubted = (None, False) if is_confirmed else (self._unconfirmed, self.is_doubted)
        self._known_until = time.monotonic() + CONFIRMING_SECONDS

    def note_unconfirmed(self) -> None:
        """Replicas did not confirm a commit just now."""
        self._cause, self._known_until = self._unconfirmed, time.monotonic() + CONFIRMING_SECONDS
        self.is_doubted = True

    def doubt(self) -> None:
        """A statement takes long, perhaps because the disk of the database hangs: try that out next."""
        if not self.is_doubted:
            self._known_until, self.is_doubted = 0.0, True

    @property
    def _unconfirmed(self) -> str:
        return f"{self._address}: no synchronous replica confirms commits"


def _is_confirmed(connection: Session) -> bool:
    kept = connection.overdue_after, connection.on_overdue
    connection.warnings.clear()
    connection.overdue_after, connection.on_overdue = CONFIRMING_SECONDS, _cancel
    try:
        connection.execute(_COMMIT)
    finally:
        connection.overdue_after, connection.on_overdue = kept
    return not connection.warnings


def _cancel(connection: Session, waited: float) -> None:
    if waited > 2 * CONFIRMING_SECONDS:
        connection.close()
        raise psycopg.OperationalError(f"the server has not answered for {waited:.1f} s")
    connection.cancel_safe(timeout=CONFIRMING_SECONDS)


def awaits_replicas(conninfo: str, pid: int) -> bool:
    """Return whether a process of a server has committed, and only waits for the replicas."""
    try:
        with Session.connect(conninfo, autocommit=True, connect_timeout=CONFIRMING_SECONDS) as asking:
            asking.patience = CONFIRMING_SECONDS
            return asking.execute(_AWAITS_REPLICAS, (pid,)).fetchone() == (True,)
    except psycopg.Error:
        return False
