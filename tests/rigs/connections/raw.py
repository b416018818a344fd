"""Bytes sent as they are, and what comes back."""

from __future__ import annotations

import re
import socket
import time
from contextlib import suppress
from dataclasses import dataclass

_STATUS = re.compile(rb"^HTTP/\d\.\d (\d{3}) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: everything, whether the server ended it by closing, and how long that took in seconds."""

    content: bytes
    is_closed: bool
    seconds: float

    @property
    def statuses(self) -> tuple[int, ...]:
        return tuple(int(status) for status in _STATUS.findall(self.content))


def exchange(port: int, request: bytes, *, answers: int, quiet: float, patience: float) -> Reply:
    """Send a request and read until so many answers are there and nothing more comes for a while, or the server closes.

    Where nothing came at all, the client says that it has no more to send; then the server has to answer or close.
    """
    began = time.monotonic()
    content, is_closed = bytearray(), False
    with socket.create_connection(("127.0.0.1", port), patience) as connection:
        with suppress(ConnectionError):  # a server may close in the middle of what it refuses
            connection.sendall(request)
        try:
            while chunk := _received(connection, content, answers, quiet, patience):
                content += chunk
            is_closed = True
        except TimeoutError:
            pass
        except OSError:
            is_closed = True
    return Reply(bytes(content), is_closed, time.monotonic() - began)


def _received(connection: socket.socket, content: bytearray, answers: int, quiet: float, patience: float) -> bytes:
    connection.settimeout(quiet)
    with suppress(TimeoutError):
        return connection.recv(65536)
    final = [status for status in _STATUS.findall(content) if not status.startswith(b"1")]
    if not content:
        connection.shutdown(socket.SHUT_WR)
    elif len(final) >= answers or not _STATUS.match(content):
        raise TimeoutError
    connection.settimeout(patience)
    return connection.recv(65536)
