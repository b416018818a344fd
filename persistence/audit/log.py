"""The audit log: requests and commands report their actions to it. The next line counts those that were lost.

If changes *need* a line, they have two: one before (the phase ``begin``), without which nothing is changed, and one
with the outcome. If the second cannot be written, the change is made, its client hears so, and it has no outcome.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec.structs import replace

from persistence.audit.chain import UNSEALED, Seal
from persistence.audit.events import BEGIN, AuditEvent
from persistence.audit.streams import OutputAudit, SyslogAudit
from persistence.audit.trail import AuditTrail, Rotation, prepare
from persistence.closable import Closable
from persistence.errors import BusyError, DiskError, StartupError
from persistence.keys import Keys
from persistence.metrics.observations import AUDIT_FAULTS
from persistence.settings import Settings

_DAY = 86_400


class Sink(Protocol):
    """Receives the lines: files, syslog, standard output."""

    def append(self, event: bytes) -> int:
        """Write a line, and return its number, 0 if it has none; raise ``DiskError`` or ``BusyError``."""

    def close(self) -> None:
        """Close it."""


class AuditLog(Closable):
    """Writes events to a sink, if there is one.

    With ``is_required`` each change needs a line. ``on_fault`` hears of lines that are lost.
    """

    def __init__(self, sink: Sink | None, *, is_required: bool, on_fault: Callable[[str], None]) -> None:
        self._sink = sink
        self.is_on = sink is not None
        self.is_required = is_required and self.is_on
        self._on_fault = on_fault
        self._lost = 0
        self._counting = threading.Lock()

    def begin(self, event: AuditEvent) -> int:
        """Write the line before a change, where changes need one; return its number, else 0."""
        return self._write(replace(event, phase=BEGIN)) if self.is_required else 0

    def require(self, event: AuditEvent) -> None:
        """Write the line of a read; if lines are needed, raise if that fails: the read must not be answered."""
        if self.is_required:
            self._write(event)
        else:
            self.record(event)

    def record(self, event: AuditEvent) -> None:
        """Write the line of something that has happened. One that cannot be written is lost, and counted."""
        try:
            self._write(event)
        except (DiskError, BusyError) as error:
            with self._counting:
                self._lost += 1
            self._on_fault(f"a line is lost ({event.action}, request {event.id or 'none'}): {error}")

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()

    def _write(self, event: AuditEvent) -> int:
        if self._sink is None:
            return 0
        lost = self._lost
        try:
            number = self._sink.append((replace(event, lost=lost) if lost else event).encoded())
        except (DiskError, BusyError):
            AUDIT_FAULTS.append(1)
            raise
        if lost:
            with self._counting:
                self._lost -= lost
        return number


def _trail_path(settings: Settings, places: Iterable[str]) -> str:
    path = prepare(settings.audit_file)
    for place in places:
        if os.path.commonpath((path, os.path.realpath(place))) == os.path.realpath(place):
            raise StartupError(
                f"the audit file {path} must not lie in the data directory {place}: a restore would replace it"
            )
    return path


def open_audit(
    settings: Settings, keys: Keys, places: Iterable[str], on_fault: Callable[[str], None], *, tries: bool = True
) -> AuditLog:
    """Return the audit log of the settings, whose file must be outside of ``places``, the data directories.

    With ``tries`` the file is opened once.
    """
    sink: Sink | None = None
    if settings.audit == "syslog":
        sink = SyslogAudit(settings.audit_syslog)
    elif settings.audit == "stdout":
        sink = OutputAudit()
    elif settings.audit != "off":
        sink = trail = AuditTrail(
            _trail_path(settings, places),
            rotation=Rotation(settings.audit_size, settings.audit_days * _DAY, settings.audit_keep),
            syncs_lines=settings.audit_sync == "line",
            seal=(lambda: _newest_seal(keys)) if settings.audit_signed else lambda: UNSEALED,
            seal_of=seals(keys),
            on_fault=on_fault,
        )
        if tries:
            trail.try_out()
    return AuditLog(sink, is_required=settings.audit_required, on_fault=on_fault)


def seals(keys: Keys) -> Callable[[str], Seal | None]:
    """Return a function that finds the seal of a signing key by its id."""

    def seal_of(key_id: str) -> Seal | None:
        found = next((key for key in keys.signing() if key.id == key_id), None)
        return None if found is None else Seal.by(found.id, bytes.fromhex(found.secret))

    return seal_of


def _newest_seal(keys: Keys) -> Seal:
    signing = keys.signing()
    if not signing:
        keys.add_signing(only_first=True)
        signing = keys.signing()
    newest = signing[-1]
    return Seal.by(newest.id, bytes.fromhex(newest.secret))
