"""The audit to syslog, or to standard output, where its lines are not chained."""

from __future__ import annotations

import logging
import logging.handlers
import os
import socket
import sys
import threading

from persistence.errors import DiskError, StartupError, as_disk_error
from persistence.model.instants import next_after
from persistence.model.peers import host_of
from persistence.storage import files

_SYSLOG_PATIENCE = 2.0


def _line(event: bytes) -> bytes:
    return b"".join((f'{{"at":"{next_after(None)}",'.encode(), event[1:]))


class _RaisingHandler(logging.handlers.SysLogHandler):
    """Raises if a line was not sent."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - as logging has it
        error = sys.exc_info()[1]
        raise error if error is not None else OSError("the line was not sent")


class SyslogAudit:
    """Sends lines to syslog: to the socket of a path, or to ``HOST:PORT`` by UDP, with the facility ``authpriv``."""

    def __init__(self, address: str) -> None:
        host, port = host_of(address), address.rpartition(":")[2]
        to = address if address.startswith("/") else (host, int(port))
        try:
            self._handler = _RaisingHandler(to, logging.handlers.SysLogHandler.LOG_AUTHPRIV)
        except OSError as error:
            raise StartupError(f"audit_syslog = {address!r} cannot be reached: {error.strerror or error}") from error
        self._handler.ident = "persistence: "
        self._handler.append_nul = False
        connected: object = getattr(self._handler, "socket", None)
        if not isinstance(connected, socket.socket) or connected.fileno() < 0:  # the library hides that at first
            raise StartupError(f"audit_syslog = {address!r} cannot be reached: nothing listens there")
        connected.settimeout(_SYSLOG_PATIENCE)

    def append(self, event: bytes) -> int:
        text = _line(event).decode()
        record = logging.LogRecord("audit", logging.INFO, "", 0, "%s", (text,), None)
        try:
            self._handler.handle(record)
        except OSError as error:
            raise DiskError(f"syslog does not take the line: {error.strerror or error}") from error
        return 0

    def close(self) -> None:
        self._handler.close()


class OutputAudit:
    """Writes lines to standard output, each by one call of the system."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._descriptor = os.dup(1)

    def append(self, event: bytes) -> int:
        with self._turn:
            try:
                files.write_all(self._descriptor, _line(event) + b"\n")
            except OSError as error:
                raise as_disk_error(error, "writing the audit to standard output") from error
        return 0

    def close(self) -> None:
        with self._turn:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
