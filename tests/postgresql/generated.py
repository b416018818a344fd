"""Forms and documents at random, with repeats in repeats and names that collide when they are cut."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from xml.sax.saxutils import escape

from tests.forms.vectors import Form, cell, grid, section

_NAMES = ("a-b", "a_b", "A-B", "x.y", "metadata-created", "lines", "Ä", *(f"{'n' * 64}{end}" for end in "12"), "p" * 90)
_TEXTS = (
    "",
    "Ada",
    "ada lovelace",
    "<b>&amp;",
    "  ",
    "äöü€𝄞",
    "line\nline",
    "0",
    "'; DROP TABLE x",
    '"{a,b}"',
    "NULL",
    "x" * 9000,
)


@dataclass(frozen=True)
class Part:
    kind: str
    name: str
    is_repeated: bool = False
    inside: tuple[Part, ...] = ()

    @property
    def body(self) -> str:
        if self.kind == "control":
            return cell(self.name)
        inner = "".join(part.body for part in self.inside)
        return (section if self.kind == "section" else grid)(self.name, inner, ' repeat="content"' * self.is_repeated)

    def data(self, random: Random) -> str:
        if self.kind == "control":
            text = escape(random.choice(_TEXTS))
            return f"<{self.name}>{text}</{self.name}>" if random.random() < 0.9 else ""
        if not self.is_repeated:
            inner = "".join(part.data(random) for part in self.inside)
            return f"<{self.name}>{inner}</{self.name}>" if self.kind == "section" else inner
        rows = ["".join(part.data(random) for part in self.inside) for _ in range(random.randrange(4))]
        if self.kind == "grid":
            return "".join(f"<{self.name}>{row}</{self.name}>" for row in rows)
        name = f"{self.name}-iteration"
        return f"<{self.name}>{''.join(f'<{name}>{row}</{name}>' for row in rows)}</{self.name}>"


@dataclass(frozen=True)
class Generated:
    parts: tuple[Part, ...]

    @property
    def definition(self) -> bytes:
        return Form("<form/>", body="".join(part.body for part in self.parts)).document().encode()

    def document(self, random: Random) -> bytes:
        return f"<form>{''.join(part.data(random) for part in self.parts)}</form>".encode()


def generated(random: Random) -> Generated:
    return Generated(tuple(_part(random, 3) for _ in range(random.randrange(1, 5))))


def _part(random: Random, depth: int) -> Part:
    kind = random.choice(("control", "section", "grid")) if depth else "control"
    name = random.choice(_NAMES)
    if kind == "control":
        return Part(kind, name)
    inside = tuple(_part(random, depth - 1) for _ in range(random.randrange(4)))
    return Part(kind, name, random.random() < 0.6, inside)
