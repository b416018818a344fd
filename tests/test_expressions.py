"""Every regular expression of the package takes time that is linear in the text, by proof.

``re`` holds the interpreter's lock while it searches, and tries one way after the other: an expression that has many
ways to read one text freezes a worker. So each is taken apart, and accepted only if it is *deterministic*: whatever
was read of a text, at most one place of the expression can take the next character (Glushkov's automaton has no two
following positions with a character in common, and none twice). Then there is one way, and a failure is found after
one pass. An expression without any repeat that is longer than eight rounds may have some ways, as its texts are short.

What is searched for, and not only compared with a whole text, is tried from every character. There the passes must not
overlap: a character that the expression can begin with is in no repeat without a bound; or there is one such repeat,
of single characters, and the expression ends with it, so that it never fails once it has begun.

An expression that is not assigned to a name of its module is refused, because nobody would find it.
"""

import ast
import importlib
import re
import re._constants as sre  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
ANCHORED = {"match", "fullmatch"}
NO_EXPRESSION = {"Match", "Pattern", "ASCII", "DOTALL", "VERBOSE", "MULTILINE", "escape"}
"""What else a module may take from ``re``."""

OTHER_ENGINES = {"regex", "re2", "fnmatch", "glob"}
"""Modules that match patterns too, and that nobody has proved anything of here."""

_NAMED = re.compile(rf"\b(?:re|{'|'.join(OTHER_ENGINES)})\b")
MODULES = [path for path in sorted((ROOT / "persistence").rglob("*.py")) if _NAMED.search(path.read_text())]
"""Modules that may match a pattern. To parse all others would take seconds in every process that collects tests."""

NEGLIGIBLE = 8
"""Rounds up to which a repeat is written out; above, it counts as one without a bound."""

CHARACTERS = frozenset(map(chr, (*range(0x3001), 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0xFFFD, 0xFFFE, 0xFFFF, 0x10000)))
"""Stand for all: the ends of all ranges that expressions have are among them, and some of each category."""

OF_FILE_NAMES = {
    ("persistence.storage.layout", "_UNCOMMITTED"),
    ("persistence.storage.layout", "_UNFINISHED"),
    ("persistence.maintenance.tree_walk", "_NEXT_SIDECAR"),
}
"""Expressions that are compared with nothing but names in a directory, which the kernel lets have 255 bytes."""

LONGEST_FILE_NAME = 255
QUICK = 0.01
"""Seconds for 4,000 characters: what is linear takes some 0.1 ms, what is quadratic 0.1 s."""

MOST_WAYS = 1_000
"""Ways to read a text of bounded length, up to which it does not matter that there are several."""


class RefusedError(Exception):
    """An expression of which nothing is proved; the text says why."""


@dataclass
class Automaton:
    """Positions of an expression: the characters of each, which follow it, and which are in a repeat without bound."""

    characters: list[frozenset[str]] = field(default_factory=list)
    following: list[list[int]] = field(default_factory=list)
    unbounded: set[int] = field(default_factory=set)
    is_conditional: bool = False

    def position(self, characters: frozenset[str]) -> int:
        """A new position."""
        self.characters.append(characters)
        self.following.append([])
        return len(self.characters) - 1


@dataclass(frozen=True)
class Part:
    """A part of an expression: the positions it begins and ends with, and whether it may be empty."""

    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    is_empty: bool = True


def joined(automaton: Automaton, parts: Iterable[Part]) -> Part:
    whole = Part()
    for part in parts:
        for each in whole.last:
            automaton.following[each] += part.first
        whole = Part(
            whole.first + part.first if whole.is_empty else whole.first,
            whole.last + part.last if part.is_empty else part.last,
            whole.is_empty and part.is_empty,
        )
    return whole


def read(automaton: Automaton, items: Any, flags: int) -> Part:
    return joined(automaton, (read_one(automaton, kind, value, flags) for kind, value in items))


def read_one(automaton: Automaton, kind: Any, value: Any, flags: int) -> Part:
    if kind in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
        at = automaton.position(characters_of(kind, value, flags))
        return Part((at,), (at,), is_empty=False)
    if kind is sre.SUBPATTERN:
        return read(automaton, value[3], flags | value[1])
    if kind is sre.BRANCH:
        ways = [read(automaton, way, flags) for way in value[1]]
        return Part(
            tuple(at for way in ways for at in way.first),
            tuple(at for way in ways for at in way.last),
            any(way.is_empty for way in ways),
        )
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return repeated(automaton, *value, flags)
    if kind is sre.AT:
        automaton.is_conditional = True
        return Part()
    if kind in (sre.ASSERT, sre.ASSERT_NOT):
        inside = Automaton()
        read(inside, value[1], flags)
        if inside.unbounded:
            raise RefusedError("what is looked at ahead or behind has a repeat")
        automaton.is_conditional = True
        return Part()
    raise RefusedError(f"{kind} is not understood")


def repeated(automaton: Automaton, least: int, most: int, items: Any, flags: int) -> Part:
    before = len(automaton.characters)
    if most <= NEGLIGIBLE:
        needed = [read(automaton, items, flags) for _ in range(least)]
        optional = [read(automaton, items, flags) for _ in range(most - least)]
        nested = Part()
        for part in reversed(optional):  # (x(x(x)?)?)?: one way to read few of them
            inner = joined(automaton, (part, nested))
            nested = Part(inner.first, inner.last, is_empty=True)
        return joined(automaton, (*needed, nested))
    part = read(automaton, items, flags)
    if part.is_empty:
        raise RefusedError("what is repeated may be empty")
    for each in part.last:
        automaton.following[each] += part.first
    automaton.unbounded |= set(range(before, len(automaton.characters)))
    return Part(part.first, part.last, is_empty=least == 0)


def characters_of(kind: Any, value: Any, flags: int) -> frozenset[str]:
    return _characters_of(kind, tuple(value) if kind is sre.IN else value, flags & (re.ASCII | re.DOTALL))


@cache
def _characters_of(kind: Any, value: Any, flags: int) -> frozenset[str]:
    if kind is sre.ANY:
        return CHARACTERS if flags & re.DOTALL else CHARACTERS - {"\n"}
    if kind is sre.LITERAL:
        return frozenset({chr(value)})
    if kind is sre.NOT_LITERAL:
        return CHARACTERS - {chr(value)}
    found: set[str] = set()
    for each, said in value:
        if each is sre.LITERAL:
            found.add(chr(said))
        elif each is sre.RANGE:
            found |= {chr(said[0]), chr(said[1])}
            found |= {character for character in CHARACTERS if said[0] <= ord(character) <= said[1]}
        elif each is sre.CATEGORY:
            found |= of_category(said, flags & re.ASCII)
    is_negated = value[0][0] is sre.NEGATE
    return CHARACTERS - found if is_negated else frozenset(found)


@cache
def of_category(category: Any, flags: int) -> frozenset[str]:
    known = {sre.CATEGORY_SPACE: r"\s", sre.CATEGORY_DIGIT: r"\d", sre.CATEGORY_WORD: r"\w"}
    if category not in known:
        raise RefusedError(f"{category} is not understood")
    return frozenset(re.findall(known[category], "".join(sorted(CHARACTERS)), flags))


def prove(pattern: re.Pattern[Any], *, is_searched: bool) -> Automaton:
    """Prove that an expression is linear.

    Raises:
        RefusedError: nothing is proved; its text says why.
    """
    if pattern.flags & re.IGNORECASE:
        raise RefusedError("letters of either case are not understood")
    automaton = Automaton()
    whole = read(automaton, parser.parse(pattern.pattern, pattern.flags), pattern.flags)
    if not automaton.unbounded and ways(automaton, whole) <= MOST_WAYS:
        return automaton
    for following in (list(whole.first), *automaton.following):
        for one, other in combinations(following, 2):
            both = automaton.characters[one] & automaton.characters[other]
            if both:
                raise RefusedError(f"{min(both)!r} can be read in two ways")
    if is_searched and automaton.unbounded:
        begins = frozenset[str]().union(*(automaton.characters[at] for at in whole.first))
        repeats = frozenset[str]().union(*(automaton.characters[at] for at in automaton.unbounded))
        is_last = len(automaton.unbounded) == 1 and set(whole.last) == automaton.unbounded
        ends = is_last and not automaton.is_conditional
        if begins & repeats and not ends:
            raise RefusedError(f"it is searched for, and {min(begins & repeats)!r} both begins it and is repeated")
    return automaton


def ways(automaton: Automaton, whole: Part) -> int:
    """The ways through an automaton without repeats."""
    known: dict[int, int] = {}
    for at in reversed(range(len(automaton.characters))):  # what follows a position is further on
        known[at] = 1 + sum(known[each] for each in automaton.following[at])
    return sum(known[each] for each in whole.first)


@dataclass(frozen=True)
class Expression:
    """An expression of a module; ``is_searched`` where it is used other than on whole texts."""

    module: str
    name: str
    is_searched: bool

    @property
    def pattern(self) -> re.Pattern[Any]:
        found = getattr(importlib.import_module(self.module), self.name)
        assert isinstance(found, re.Pattern)
        return found


def is_compile(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile"


@cache
def expressions(path: Path) -> tuple[list[Expression], list[str]]:
    """Return the expressions of a module, and what uses ``re`` so that it is not known what is matched."""
    tree = ast.parse(path.read_text())
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    assigned = {
        node.targets[0].id: node
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_compile(node.value)
    }
    allowed = {id(child) for node in assigned.values() for child in ast.walk(node)}
    hidden = []
    methods: dict[str, set[str]] = {name: set() for name in assigned}
    called = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "re" and id(node) not in allowed and node.attr not in NO_EXPRESSION:
                hidden.append(f"{path}:{node.lineno}: re.{node.attr}")
            if node.value.id in assigned:
                if node.attr not in {"pattern", "flags"}:
                    methods[node.value.id].add(node.attr)
                called.add(id(node.value))
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
            is_renamed = any(alias.name == "re" and alias.asname for alias in node.names)
            if named & OTHER_ENGINES or is_renamed or (isinstance(node, ast.ImportFrom) and node.module == "re"):
                hidden.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id in assigned
            and id(node) not in called
        ):
            methods[node.id].add("search")  # handed on: to whom is not known
    return [Expression(module, name, bool(used - ANCHORED)) for name, used in methods.items()], hidden


EVERY = [each for path in MODULES for each in expressions(path)[0]]


def test_every_expression_is_found() -> None:
    assert [hidden for path in MODULES for hidden in expressions(path)[1]] == []
    assert len(EVERY) > 40
    assert {(each.module, each.name) for each in EVERY} >= OF_FILE_NAMES


@pytest.mark.parametrize("each", EVERY, ids=lambda each: f"{each.module}.{each.name}")
def test_every_expression_is_linear(each: Expression) -> None:
    if (each.module, each.name) in OF_FILE_NAMES:
        assert not each.is_searched
        return
    prove(each.pattern, is_searched=each.is_searched)


@pytest.mark.parametrize("each", EVERY, ids=lambda each: f"{each.module}.{each.name}")
def test_every_expression_is_as_quick_as_its_proof_says(each: Expression) -> None:
    use = each.pattern.search if each.is_searched else each.pattern.fullmatch
    length = LONGEST_FILE_NAME if (each.module, each.name) in OF_FILE_NAMES else 4_000
    for text in worst_texts(each.pattern, length):
        assert any(timed(use, text) < QUICK for _ in range(5)), text[:20]


@pytest.mark.parametrize(
    ("pattern", "is_searched"),
    [
        (r"\s*[,|]\s*", True),  # Svc-Roles (finding 18)
        (r"""[ \t\r\n]+([^ \t\r\n=<>"'/]+)[ \t\r\n]*=[ \t\r\n]*(?:"[^"]*"|'[^']*')""", True),  # tags (finding 1)
        (r"(a*)*b", False),
        (r"(ab|[a-c]b)*d", False),
        (r"\d+\.?\d+", False),
        (r".*x.*y", False),
        (r"(?:a?){30}a{30}", False),
        (r"[a-z]+@", True),
        (r"(\w+) \1", False),
        (r"x*$", True),
    ],
)
def test_what_is_not_linear_is_refused(pattern: str, is_searched: bool) -> None:  # noqa: FBT001
    with pytest.raises(RefusedError):
        prove(re.compile(pattern), is_searched=is_searched)


def test_what_is_slow_is_measured_so() -> None:
    slow = re.compile(r"\s*[,|]\s*")
    assert max(timed(slow.search, text) for text in worst_texts(slow, 4_000)) > QUICK


def worst_texts(pattern: re.Pattern[Any], length: int) -> Iterable[Any]:
    """Texts that an expression reads for long: runs of its characters, alone and by turns, which end in what fails."""
    automaton = Automaton()
    read(automaton, parser.parse(pattern.pattern, pattern.flags), pattern.flags)
    letters = sorted({min(characters, key=_printable) for characters in set(automaton.characters) if characters})[:6]
    texts = [one * length for one in letters]
    texts += [(one + other) * (length // 2) for one, other in product(letters, letters) if one != other]
    for text in texts:
        for ending in ("", "\0"):
            whole = letters[0] + text + ending
            yield whole if isinstance(pattern.pattern, str) else whole.encode("latin-1", "replace")


def _printable(character: str) -> tuple[bool, str]:
    return not character.isprintable(), character


def timed(use: Any, text: Any) -> float:
    began = time.perf_counter()
    use(text)
    return time.perf_counter() - began
