"""Clients that ask a service in a loop, while a test does something to it."""

import http.client
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Self

Ask = Callable[[int, int], str | None]
"""A call of a client: it gets the numbers of the client and of the call, and returns what went wrong."""


class Asking:
    """Clients that ask until the block ends; ``done`` is how often they did, ``failures`` what went wrong."""

    def __init__(self, ask: Ask, clients: int, pause: float = 0.0) -> None:
        self.done = 0
        self.failures: list[str] = []
        self._ask = ask
        self._pause = pause
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(client,)) for client in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def go_on(self, calls: int) -> None:
        """Wait until so many more calls are done."""
        enough, deadline = self.done + calls, time.monotonic() + 30
        while self.done < enough:
            assert time.monotonic() < deadline, f"{enough - self.done} of {calls} calls are missing"
            time.sleep(0.01)

    def _run(self, client: int) -> None:
        for number in count():
            if self._ends.wait(self._pause):
                return
            try:
                failure = self._ask(client, number)
            except (OSError, http.client.HTTPException) as error:
                failure = repr(error)
            if failure is not None:
                self.failures.append(failure)
            self.done += 1
