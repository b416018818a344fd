"""Waits for other threads and processes: each has a deadline."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 30.0

T = TypeVar("T")


def eventually(holds: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until something holds."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it does not come to that"
        time.sleep(0.01)


def at_once(*works: Callable[[], T], seconds: float = PATIENCE) -> list[T]:
    """Do each work in a thread of its own, and return what they return, in order; the first error of one is raised."""
    returned: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(number: int, work: Callable[[], T]) -> None:
        try:
            returned[number] = work()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(works)]
    ends = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    if errors:
        raise errors[0]
    assert len(returned) == len(works), f"not all have ended within {seconds} s"
    return [returned[number] for number in range(len(works))]
