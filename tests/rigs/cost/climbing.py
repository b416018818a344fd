"""Hill climbing: of each kind of request, the costliest that were found are changed a little, again and again."""

from __future__ import annotations

import http.client
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle

from tests.rigs.cost.kinds import Genes, Sent
from tests.rigs.processes import MIB, Process
from tests.service import Service

Make = Callable[[Genes], Sent]

SECONDS = 1.0
"""Of processor time for each megabyte of a body: what is promised."""

MEMORY = 100 * MIB
"""Above the idle worker, for each megabyte of a body."""

LEFT = 30 * MIB
"""Above what the worker had before a request, some seconds afterwards."""

KEPT = 160 * MIB
"""Above the idle worker, after all requests: caches, 90 MB as ``limits.py`` bounds them, and what lies between them."""

_BEST = 4
_FRESH = 0.3
_PATIENCE = 60.0


@dataclass(frozen=True)
class Cost:
    """What a request took; ``left`` is what the worker has more than before it, in bytes."""

    seconds: float
    memory: int
    megabytes: float
    status: str
    left: int = 0

    @property
    def share(self) -> float:
        """The part of what is promised that it took: over 1 the promise is broken."""
        allowed = self.megabytes
        return max(self.seconds / (SECONDS * allowed), self.memory / (MEMORY * allowed))

    @property
    def is_kept(self) -> bool:
        return self.share <= 1 and self.left <= LEFT


@dataclass
class Climb:
    kind: str
    make: Make
    tried: int = 0
    served: int = 0
    """How many of these were no error: what is refused at once tells little."""

    best: list[tuple[float, Genes]] = field(default_factory=list)

    def next(self, random: random.Random) -> Genes:
        if not self.best or random.random() < _FRESH:
            return Genes.drawn(random)
        return random.choice(self.best)[1].mutated(random)

    def note(self, genes: Genes, cost: Cost) -> None:
        self.tried += 1
        self.served += cost.status < "400"
        self.best = sorted([*self.best, (cost.share, genes)], key=lambda each: -each[0])[:_BEST]


class Trial:
    """Tries requests on one worker. ``idle`` is its memory before the first."""

    def __init__(self, service: Service, ordinary: Iterable[Sent] = ()) -> None:
        """Begin, once the worker has answered some ordinary requests: it loads much only when it is needed."""
        self.service = service
        service.timeout = _PATIENCE
        for sent in ordinary:
            for each in (*sent.first, sent):
                self._go(each)
        time.sleep(2.5)
        self.process = Process(self.service.workers()[0])
        self.process.rest()
        self.idle = self.process.resident

    def measure(self, sent: Sent, *, is_exact: bool = False) -> Cost:
        """What it takes; exactly, with all that it leaves the worker to do, and what that has afterwards."""
        self.process = Process(self.service.workers()[0])
        for each in sent.first:
            self._go(each)
        if is_exact:
            self.process.rest()
            time.sleep(1.5)
        before = self.process.resident
        self.process.forget_highest()
        began = self.process.seconds
        status = self._go(sent)
        if is_exact:
            time.sleep(1.2)  # the index takes in what was stored
            self.process.rest()
        try:
            cost = Cost(self.process.seconds - began, self.process.highest - before, sent.megabytes, status)
        except OSError:  # the worker was killed
            return Cost(_PATIENCE, 0, sent.megabytes, f"{status}, worker gone")
        if is_exact:
            time.sleep(1.5)  # the worker looks at its memory once a second
            return replace(cost, left=self.process.resident - before)
        return cost

    def _go(self, sent: Sent) -> str:
        try:
            return str(sent.go(self.service).status)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return type(error).__name__


def climb(
    trial: Trial, kinds: Mapping[str, Make], seconds: float, *, enough: float = float("inf"), seed: int = 0
) -> dict[str, Climb]:
    """Search in all kinds by turns for so long, or until each has a request that takes ``enough`` of the promise."""
    chance = random.Random(seed)
    climbs = {kind: Climb(kind, make) for kind, make in kinds.items()}
    end = time.monotonic() + seconds
    for each in cycle(climbs.values()):
        if time.monotonic() >= end or all(known.best and known.best[0][0] > enough for known in climbs.values()):
            break
        genes = each.next(chance)
        each.note(genes, trial.measure(each.make(genes)))
    return climbs
