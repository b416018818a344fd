"""House rules of the package: names, docstrings, and the size of modules and functions.

Exceptions stand in tables with their reason. One that is none any more must go: the tables only shrink.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "persistence"
MODULES = sorted(PACKAGE.rglob("*.py"))

MOST_LINES = 700
FEWEST_LINES = 80
MOST_LINES_OF_A_FUNCTION = 50
PRONOUN = re.compile(r"(What|Who|Which|Where|Whether|That of|Those|The same|Whatever|Whoever)\b")
"""Words with which a docstring does not begin: it begins with a verb, or with the noun that it describes."""

PRIVATE_WORDS = frozenset(
    {
        *("alike", "anew", "befits", "doomed", "forgo", "grave", "graves", "leftovers", "marked"),
        *("pending", "sight", "sought", "struck", "told", "unsaid", "whatever", "whoever"),
    }
)
"""Words that only this project used, in names of modules, classes, functions, parameters and variables.

The words of the field are rebuild, similar, tombstone, visibility, searched, removed.
"""

CONFLICT = re.compile(rb"(?m)^(<<<<<<<|>>>>>>>) ")
"""The lines that git writes around a conflict."""

SHARED_CLASS_NAMES: dict[str, str] = {}
"""Public classes of one name in several modules."""

FEWEST_LINES_OF_A_HELPER = 5
SMALL_HELPERS = 38
"""Private functions with fewer lines and one caller, each of which names a concept. The number only shrinks."""

LONG_MODULES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
SHORT_MODULES: dict[str, str] = {
    "bounded_cache.py": "for all layers, and imports nothing",
    "client_request.py": "what a provider forwards of a request: of no layer",
    "metrics/observations.py": "every layer may append to its queues, and imports nothing with it",
    "providers/remote_provider.py": "it loads a heavy library",
}
"""Modules that are whole with so few lines. ``__init__`` and ``__main__`` need no reason."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def docstrings(path: Path) -> Iterator[str]:
    """Return the texts that stand alone: docstrings, and those below an assignment."""
    for node in ast.walk(tree(path)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def test_no_merge_is_half_done() -> None:
    """A conflict that was committed breaks what no test here reads: the script of CI, a configuration, a page."""
    root = PACKAGE.parent
    places = [root, root / ".ci", *(root / name for name in ("bench", "config", "docs", "persistence", "tests"))]
    files = [path for place in places for path in (place.glob("*") if place == root else place.rglob("*"))]
    marked = [
        str(path.relative_to(root))
        for path in files
        if path.is_file() and "__pycache__" not in path.parts and CONFLICT.search(path.read_bytes())
    ]
    assert marked == []


def test_every_public_class_name_is_unique() -> None:
    places = defaultdict(list)
    for path in MODULES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name(path))
    shared = {each: found for each, found in places.items() if len(found) > 1}
    assert shared.keys() == SHARED_CLASS_NAMES.keys(), shared


def test_no_module_gives_a_constant_twice() -> None:
    """Where two modules become one, the second of two statements of SQL would be run for the first, too."""
    for path in MODULES:
        assigned = (each for node in tree(path).body if isinstance(node, ast.Assign) for each in node.targets)
        found = Counter(each.id for each in assigned if isinstance(each, ast.Name))
        assert max(found.values(), default=1) == 1, (name(path), found.most_common(1))


def test_no_docstring_begins_with_a_pronoun() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for text in docstrings(path):
            if PRONOUN.match(text):
                found[name(path)].append(text.splitlines()[0])
    assert not found, dict(found)


def names(path: Path) -> Iterator[str]:
    """Yield the names that a module defines, and its own."""
    yield path.stem
    for node in ast.walk(tree(path)):
        match node:
            case ast.ClassDef(name=found) | ast.FunctionDef(name=found) | ast.arg(arg=found):
                yield found
            case ast.Name(id=found, ctx=ast.Store()) | ast.Attribute(attr=found, ctx=ast.Store()):
                yield found


def test_names_are_words_of_the_field() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for each in names(path):
            words = re.findall("[A-Z]?[a-z]+|[A-Z]+", each)
            if not PRIVATE_WORDS.isdisjoint(word.lower() for word in words):
                found[name(path)].append(each)
    assert not found, dict(found)


def test_no_module_is_too_long() -> None:
    long = {name(path): lines(path) for path in MODULES if lines(path) > MOST_LINES}
    assert long.keys() == LONG_MODULES.keys(), long


def test_a_short_module_has_a_reason() -> None:
    short = {
        name(path): lines(path)
        for path in MODULES
        if lines(path) < FEWEST_LINES and path.name not in {"__init__.py", "__main__.py"}
    }
    assert short.keys() == SHORT_MODULES.keys(), short


def test_no_function_is_too_long() -> None:
    long = {
        f"{name(path)}:{node.name}": length
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    }
    assert long.keys() == LONG_FUNCTIONS.keys(), long


def test_a_file_name_says_one_thing() -> None:
    places = defaultdict(list)
    for path in MODULES:
        if not path.stem.startswith("__"):
            places[path.stem].append(name(path))
    shared = {each: found for each, found in places.items() if len(found) > 1}
    assert not shared


def test_small_helpers_have_several_callers() -> None:
    """A private function of few lines with one caller is read sooner where it is called."""
    used: Counter[str] = Counter()
    small: dict[str, int] = {}
    for path in MODULES:
        for node in ast.walk(tree(path)):
            match node:
                case ast.Name(id=each, ctx=ast.Load()) | ast.Attribute(attr=each):
                    used[each] += 1
                case ast.FunctionDef(name=each, decorator_list=[]) if each.startswith("_") and each[1] != "_":
                    body = node.body[1:] if ast.get_docstring(node) else node.body
                    if body and (body[-1].end_lineno or 0) - body[0].lineno < FEWEST_LINES_OF_A_HELPER - 1:
                        small[each] = node.lineno
    found = [each for each in small if used[each] == 1]
    assert len(found) <= SMALL_HELPERS, found
