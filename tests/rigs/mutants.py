"""Ten defects, each put into a copy of the project, and the first test that finds each of them.

``python -m tests.rigs.mutants`` prints a table, and fails if a defect is not found; numbers choose some of them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

_ROOT = Path(__file__).parents[2]
_COPIED = (
    *("persistence", "tests", "config", "docs", "bench"),
    *("pyproject.toml", "setup.cfg", "README.md", "CHANGELOG.md"),
)
_LONGEST = 900.0
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?:\[| |$)", re.MULTILINE)
_DOT = 'if segment.startswith(".") and (not may_be_hidden or not segment.strip(".")):'
_PROTECTING = "return route.data.storage.leases.protecting(address, user)"

MUTANTS = (
    (
        "commit order: the old content goes too early",
        "storage/commit",
        "files.sync_open(directory)\n    f",
        "id(directory)\n    f",
    ),
    ("a missing fsync of the content", "storage/commit", "                upload.sync()", "                pass"),
    ("a dropped condition, If-Match", "services/rules", "    if expected is not None:", "    if False:"),
    ("a skipped permission", "services/rules", "if not allowed.allows(*any_of):", "if not any_of:"),
    ("an unbounded buffer, of a body in chunks", "http/parsing", "        if left < 0:", "        if left is None:"),
    (
        "a lost draft, with an attachment",
        "services/documents",
        "                if address.is_main:",
        16 * " " + "if own:",
    ),
    ("a wrong digest", "storage/commit", "self._hash.update(chunk)", "self._hash.update(chunk[1:])"),
    ("an index entry of several that is missing", "index/protocol", "in enumerate(keys):", "in enumerate(keys[1:]):"),
    ("an escaped path, of a name with a dot", "storage/layout", _DOT, 'if segment == ".":'),
    ("a lease that keeps nobody away", "services/documents", _PROTECTING, "return nullcontext()"),
)
"""What is defective, the module, and a text of it with the one in its place."""

_TESTS = {"http": "http", "index": "index", "services": "http", "storage": "storage tests/rigs/crash"}
"""The directory of the tests that look at a package."""


def failing(copy: Path, *tests: str) -> list[str]:
    """Return the first tests that fail in a copy of the project."""
    command = (sys.executable, "-m", "pytest", "-q", "--maxfail=3", "-n", "2", "--dist", "loadgroup", *tests)
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=_LONGEST, check=False)
    return _FAILED.findall(done.stdout)


def finder(copy: Path, module: str, right: str, wrong: str) -> str | None:
    """Return a test in a copy of the project that fails with a defect, and not without it; ``None`` where all pass."""
    file, package = copy / f"persistence/{module}.py", module.partition("/")[0]
    text = file.read_text()
    if text.count(right) != 1:
        raise ValueError(f"{module} has {right!r} {text.count(right)} times")
    file.write_text(text.replace(right, wrong))
    try:
        found = failing(copy, *f"tests/{_TESTS[package]}".split())
    finally:
        file.write_text(text)
    still = failing(copy, *found) if found else []
    return next((each for each in found if each not in still), None)


def main(numbers: list[str]) -> int:
    """Print what finds each defect; return how many are not found."""
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        for each in _COPIED:
            source = _ROOT / each
            (shutil.copytree if source.is_dir() else shutil.copy)(source, Path(name) / each)
        for number, (what, *where) in enumerate(MUTANTS, 1):
            if not numbers or str(number) in numbers:
                found = finder(Path(name), *where)
                missed += found is None
                click.echo(f"| {what} | {'NOT FOUND' if found is None else f'`{found}`'} |")
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
