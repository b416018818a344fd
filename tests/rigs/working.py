"""Clients at work, each in a thread, and what disturbs them now and then."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

Disturbance = tuple[Callable[[], object], tuple[float, float] | None]
"""What is done, and the shortest and the longest pause before it in seconds; ``None`` where it is not."""


@contextmanager
def working(
    acts: Iterable[Callable[[], object]], disturbing: Iterable[Disturbance] = (), seed: int = 1
) -> Iterator[threading.Event]:
    """Do each act over and over for the length of a block; the event is for pauses in it."""
    over = threading.Event()
    every = [*((act, (0.0, 0.0)) for act in acts), *((act, pauses) for act, pauses in disturbing if pauses)]

    def repeat(number: int, act: Callable[[], object], pauses: tuple[float, float]) -> None:
        chance = random.Random(f"{seed} {number}")
        while not over.wait(chance.uniform(*pauses)):
            act()

    with ThreadPoolExecutor(len(every)) as threads:
        running = [threads.submit(repeat, number, *each) for number, each in enumerate(every)]
        try:
            yield over
        finally:
            over.set()
        for each in running:
            each.result()
