"""A client that costs next to nothing, so that what is measured is the server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable


class Connection:
    """One kept connection; requests are ready-made bytes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        self._socket.sendall(request)
        data = self._socket.recv(1 << 16)
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        status = int(head[9:12])
        mark = head.lower().find(b"content-length:")
        length = int(head[mark + 15 :].split(b"\r\n", 1)[0]) if mark >= 0 and status not in (204, 304) else 0
        while len(body) < length:
            body += self._more()
        return status, body

    def _more(self) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def rate(port: int, request: Callable[[Connection, int], None], clients: int, seconds: float) -> float:
    """Requests per second of some clients on connections of their own; the number passed on never repeats."""
    counts = [0] * clients
    failures: list[Exception] = []
    stop = time.monotonic() + seconds

    def client(number: int) -> None:
        connection = Connection(port)
        try:
            while time.monotonic() < stop:
                request(connection, number * 10_000_000 + counts[number])
                counts[number] += 1
        except Exception as error:  # noqa: BLE001 - raised by the caller
            failures.append(error)
        finally:
            connection.close()

    began = time.monotonic()
    crowd = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    if failures:
        raise failures[0]
    return sum(counts) / (time.monotonic() - began)
