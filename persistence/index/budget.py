"""The work that one request may ask of an index: processor time, and bytes of its answer."""

from __future__ import annotations

import time
from collections.abc import Iterable

from persistence.errors import BadRequestError
from persistence.limits import (
    HIT_COSTS,
    LARGEST_FOUND,
    SEARCH_SECONDS,
    SEARCH_SECONDS_PER_DOCUMENT,
    VALUE_COSTS,
)
from persistence.model.search import Hit

_LARGEST_CHARACTER = 4


class Budget:
    """The budget of one request, which one thread works on.

    Time is processor time, so that a request is not refused because others are served.
    """

    def __init__(self) -> None:
        self._allowed = SEARCH_SECONDS
        self._used = 0.0
        self._began: float | None = None
        self._left = LARGEST_FOUND

    def allow_for(self, documents: int) -> None:
        """Allow the time that a search of so many documents may take."""
        self._allowed = max(self._allowed, SEARCH_SECONDS + documents * SEARCH_SECONDS_PER_DOCUMENT)

    def start(self) -> None:
        """Start the clock."""
        self._began = time.thread_time()

    def stop(self) -> None:
        """Stop the clock."""
        if self._began is not None:
            self._used += time.thread_time() - self._began
            self._began = None

    def is_over(self) -> bool:
        """Return whether the time is used up."""
        running = 0.0 if self._began is None else time.thread_time() - self._began
        return self._used + running > self._allowed

    def check(self) -> None:
        """Make sure that there is time left.

        Raises:
            BadRequestError: there is none.
        """
        if self.is_over():
            raise self.too_long()

    def too_long(self) -> BadRequestError:
        """Return the error for a search that takes too long."""
        return BadRequestError(
            f"the search takes more than {self._allowed:.2f} s of processor time: ask for less, or more narrowly"
        )

    def restart(self) -> None:
        """Reset the size of the answer: it is built again, because a document on it has changed."""
        self._left = LARGEST_FOUND

    def hold(self, hit: Hit, paths: Iterable[str]) -> None:
        """Count a document of the answer, with the values at some paths. A path counts as often as it is given.

        Raises:
            BadRequestError: the answer would be too large.
        """
        size = HIT_COSTS + len(hit.document)
        for path in paths:
            size += sum(map(_size, (path, *hit.values.get(path, ()))))
        self._take(size)

    def hold_value(self, value: str) -> None:
        """Count a text of the answer. Raises as ``hold`` does."""
        self._take(_size(value))

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise BadRequestError(
                f"the answer would be larger than {LARGEST_FOUND >> 20} MiB: ask for fewer controls, or a smaller page"
            )


def _size(text: str) -> int:
    return VALUE_COSTS + len(text) * (1 if text.isascii() else _LARGEST_CHARACTER)
