"""The texts of errors stand in one table, ``messages.txt``, so that they are read together, and in plain English.

``python -m tests.test_messages`` writes the table again after a change.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "persistence").rglob("*.py"))
TABLE = Path(__file__).with_name("messages.txt")
REGENERATED = f"if the texts are meant: python -m tests.{Path(__file__).stem}"

AWKWARD = re.compile(
    r"(?<!here )\b(is|are) no\b(?! (longer|more)\b)|\b(is|are) none of\b|\b(is|are) to (go|be)\b"
    r"|\bwhoever\b|(?<!each )(?<!all )(?<!none )\bof which\b|\banother one than\b|\bsomething else than\b",
    re.IGNORECASE,
)
"""Words of texts that name no subject: "X is not a valid Y", "will be removed" and "everybody who" are plain.

"There is no X" is plain, too.
"""

Texts = dict[str, str]
"""Constants of a module, by name."""


def flattened(node: ast.expr, constants: Texts) -> Iterator[str]:
    """Yield the texts that an argument may have, with ``{}`` for values."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            for first in flattened(left, constants):
                yield from (first + second for second in flattened(right, constants))
        case ast.IfExp(body=body, orelse=other):
            yield from flattened(body, constants)
            yield from flattened(other, constants)
        case ast.Name(id=name) if name in constants:
            yield constants[name]


def is_of_an_error(call: ast.Call) -> bool:
    """Tell whether a call makes an error, or refuses an option of a command."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.endswith("Error") or name == "BadParameter"
    return False


def messages(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of errors that a module makes."""
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        calls = [node] if isinstance(node, ast.Call) and is_of_an_error(node) else []
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
            calls += [each for each in ast.walk(node) if isinstance(each, ast.Call) and is_super_init(each)]
        for call in calls:
            for argument in call.args:
                yield from (text for text in flattened(argument, constants) if re.search("[a-z]{2} ", text))


def is_super_init(call: ast.Call) -> bool:
    return ast.unparse(call.func) == "super().__init__"


@cache
def table() -> str:
    found = {each for path in MODULES for each in messages(ast.parse(path.read_text()))}
    return "".join(f"{' '.join(each.split())}\n" for each in sorted(found, key=lambda each: (each.lower(), each)))


def test_the_table_has_the_texts_of_all_errors() -> None:
    assert TABLE.read_text().splitlines() == table().splitlines(), REGENERATED


def test_texts_are_plain() -> None:
    assert [line for line in table().splitlines() if AWKWARD.search(line)] == []


def test_pages_are_plain() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    lines = {
        f"{page.name}:{number}": line for page in pages for number, line in enumerate(page.read_text().splitlines(), 1)
    }
    assert [place for place, line in lines.items() if AWKWARD.search(line)] == []


if __name__ == "__main__":
    TABLE.write_text(table())
