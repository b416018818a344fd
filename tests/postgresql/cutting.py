"""A proxy in front of a database that cuts a connection when it commits."""

from __future__ import annotations

import re
import select
import socket
import threading
from types import TracebackType
from typing import Self


class Cutter:
    """Forwards everything on a port of its own; once armed, a commit is forwarded or not, and its connection cut."""

    def __init__(self, port: int, *, is_forwarded: bool) -> None:
        self._target = port
        self._is_forwarded = is_forwarded
        self._is_armed = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def arm(self) -> None:
        self._is_armed.set()

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._sockets:
            each.close()

    def _begin(self, do: object, *arguments: object) -> None:
        threading.Thread(target=do, args=arguments, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            self._begin(self._forward, client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        is_cutting = False
        names: set[bytes] = set()
        try:
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for each in ready:
                    data = each.recv(1 << 16)
                    if not data or (is_cutting and each is server):  # committed
                        return
                    if each is client and _is_commit(data, names) and self._is_armed.is_set():
                        self._is_armed.clear()
                        if not self._is_forwarded:
                            return
                        is_cutting = True
                    (server if each is client else client).sendall(data)
        except (OSError, ValueError):
            return
        finally:
            client.close()
            server.close()


def _is_commit(data: bytes, names: set[bytes]) -> bool:
    """Return whether a client commits, also by one of the names that it has given to this statement."""
    names.update(re.findall(rb"(_pg3_[0-9]+)\x00COMMIT\x00", data))
    return b"COMMIT" in data or any(b"\x00%s\x00" % name in data for name in names)
