"""Numbers that a request is drawn with, and how a better one is made of a good one."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace

LARGEST = 10 << 20


@dataclass(frozen=True)
class Genes:
    """What each number means is a kind's own affair; ``size`` is of the body, in bytes."""

    shape: int
    size: int
    length: int
    other: int
    character: int
    choice: int

    @classmethod
    def drawn(cls, random: random.Random) -> Genes:
        return cls(
            shape=random.randrange(1_000),
            size=int(2 ** random.uniform(8, 23.3)),
            length=int(2 ** random.uniform(0, 14)),
            other=int(2 ** random.uniform(0, 14)),
            character=random.randrange(1_000),
            choice=random.randrange(1_000),
        )

    def mutated(self, random: random.Random) -> Genes:
        fresh = Genes.drawn(random)
        changed = {}
        for field in random.sample(fields(self), random.choice((1, 1, 2))):
            old = getattr(self, field.name)
            is_near = random.random() < 0.6 and field.name in {"size", "length", "other"}
            new = (
                int(old * 2 ** random.uniform(-1.5, 1.5)) + random.randrange(3)
                if is_near
                else getattr(fresh, field.name)
            )
            changed[field.name] = max(1, min(new, LARGEST)) if field.name == "size" else max(0, new)
        return replace(self, **changed)
