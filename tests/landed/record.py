"""Write a tree with the service of a checkout, and record what that service answers about it.

Run with the interpreter of the checkout whose answers are to be kept, from the directory of this project:

    /path/to/checkout/.venv/bin/python -m tests.landed.record [DIALECT...]

The archives beside this file hold the tree of each dialect with its settings and keys, and the questions with their
answers. They are recorded anew only where a release is to answer otherwise.
"""

from __future__ import annotations

import json
import lzma
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.landed import archive, history
from tests.landed.asker import Asker
from tests.landed.history import Author
from tests.landed.resource_questions import about_resources
from tests.landed.search_questions import about_searches
from tests.landed.wire import environment, serving

HERE = Path(__file__).parent
DIALECTS = ("svc", "orbeon")

COMMANDS = (
    ("check",),
    ("check", "--json"),
    ("check", "--deep"),
    ("check", "--deep", "--json"),
    ("check", "acme/order", "--json"),
    ("check", "none"),
    ("check", "--repair", "--dry-run"),
    ("check", "--adopt", "--all", "--dry-run"),
    ("check", "acme/order/data/row-00/data.xml", "--adopt", "--dry-run", "--json"),
    ("forms",),
    ("forms", "acme"),
    ("forms", "gone"),
    ("forms", "none"),
    ("show", "acme/order"),
    ("show", "acme/order/1"),
    ("show", "acme/order/4"),
    ("show", "acme/order/data/d-1"),
    ("show", "acme/order/data/d-3"),
    ("show", "acme/order/data/d-7"),
    ("show", "acme/order/data/row-01"),
    ("show", "acme/order/data/row-03"),
    ("show", "acme/order/draft/d-3"),
    ("show", "hr/secret/data/s-1"),
    ("show", "far/form/data/1"),
    ("show", "odd/names/data/ä b"),
    ("show", "none/none"),
    ("search", "acme/order", "--json"),
    ("search", "acme/order", "--version", "all", "--page-size", "100"),
    ("search", "acme/order", "lorem", "--path", "customer/name", "--page-size", "5", "--page", "2"),
    ("search", "acme/order", "--path", "customer/status=open", "--match", "exact", "--sort", "created", "--json"),
    ("search", "acme/order", "--drafts", "only", "--version", "all", "--json"),
    ("search", "acme/owned", "--sort", "customer/name", "--descending"),
    ("search", "far/form"),
    ("search", "acme/order", "--path", "customer/nam=x"),
    ("search", "none/none"),
    ("config", "route", "far/form", "data"),
    ("config", "route", "apart/form", "data"),
    ("api-key", "list"),
    ("encryption-key", "list"),
    ("reencrypt", "--dry-run"),
)
"""Commands that change nothing; each ``check --deep`` comes after those that do not tell of one."""


def main() -> None:
    """Record the dialects that are named, or both."""
    python = Path(sys.executable)
    with tempfile.TemporaryDirectory() as name:
        for dialect in sys.argv[1:] or DIALECTS:
            directory = Path(name, dialect)
            _write(python, directory, dialect)
            archive.pack(directory, tree_of(dialect))
            first, second = (_answers(python, Path(name, f"{dialect}-{part}"), dialect) for part in (1, 2))
            _require_same(first, second)
            answers_of(dialect).write_bytes(lzma.compress(json.dumps(first, indent=0).encode(), preset=9))
            _report(dialect, first)


def tree_of(dialect: str) -> Path:
    """Return the archive of a tree."""
    return HERE / f"tree-{dialect}.tar.xz"


def answers_of(dialect: str) -> Path:
    """Return the file of the questions and answers about a tree."""
    return HERE / f"answers-{dialect}.json.xz"


def _write(python: Path, directory: Path, dialect: str) -> None:
    directory.mkdir()
    (directory / "big").mkdir()
    (directory / "persistence.toml").write_text(history.settings(dialect))
    _command(python, directory, ("init",))
    _command(python, directory, ("encryption-key", "new"))
    with serving(python, directory) as wire:
        history.write(Author(wire, dialect))
    _command(python, directory, ("encryption-key", "new"))  # the first one decrypts from now on
    history.edit_by_hand(directory / "data")


def _answers(python: Path, directory: Path, dialect: str) -> dict[str, Any]:
    """Return the answers about the packed tree, which is unpacked for that: they are to be those after an unpacking."""
    archive.unpack(tree_of(dialect), directory)
    with serving(python, directory) as wire:
        asker = Asker(wire, dialect)
        questions = [*about_resources(asker), *about_searches(asker)]
        answers = [[question, wire.ask(question)] for question in questions]
    for question, answer in answers:
        if question["method"] in {"PUT", "DELETE"} and answer["status"] < 400:
            raise SystemExit(f"this changes the tree: {question}")
    return {"answers": answers, "commands": [_command(python, directory, each) for each in COMMANDS]}


def _command(python: Path, directory: Path, arguments: tuple[str, ...]) -> list[Any]:
    done = subprocess.run(
        [str(python), "-m", "persistence.cli", *arguments, "--config", "persistence.toml"],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return [
        list(arguments),
        done.returncode,
        *(comparable(arguments, text, directory) for text in (done.stdout, done.stderr)),
    ]


def comparable(arguments: tuple[str, ...], text: str, directory: Path) -> str:
    """Return what a command prints, without its directory and its seconds.

    ``check`` and ``reencrypt`` take documents in the order in which the disk has them, so their lines are sorted.
    """
    text = _SECONDS.sub("SECONDS", text.replace(str(directory), "DIRECTORY"))
    return "".join(sorted(text.splitlines(keepends=True))) if arguments[0] in {"check", "reencrypt"} else text


_SECONDS = re.compile(r'\b[0-9.]+ s\b(, [0-9]+ a second)?|"seconds":[0-9.e-]+')


def _require_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Raise where an answer does not come from the tree alone."""
    for kind, answers in first.items():
        for one, other in zip(answers, second[kind], strict=True):
            if one != other:
                raise SystemExit(f"answered otherwise the second time:\n{one}\n{other}")


def _report(dialect: str, recorded: dict[str, Any]) -> None:
    statuses: dict[int, int] = {}
    for _, answer in recorded["answers"]:
        statuses[answer["status"]] = statuses.get(answer["status"], 0) + 1
    sizes = [file.stat().st_size for file in (tree_of(dialect), answers_of(dialect))]
    print(dialect, len(recorded["answers"]), "answers", dict(sorted(statuses.items())), "bytes", sizes)  # noqa: T201


if __name__ == "__main__":
    main()
