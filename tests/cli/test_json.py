"""``--json``: every command that prints facts has it, and prints the objects that docs/cli.md describes."""

import io
import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from persistence.cli.terminal import safe, say_json
from tests.cli.command_runner import Command
from tests.cli.samples import FILES
from tests.docs.commands import leaves
from tests.docs.markdown import DOCS, rows, spans

WITHOUT = {
    "demo": "it prints commands for people to try",
    "definition show": "it prints a definition",
    "serve": "its log has a format of its own",
    "help": "it prints pages for people",
    "password set": "nothing but that it was done",
    "password remove": "nothing",
    "api-key retire": "nothing",
    "signing-key retire": "nothing",
}
"""The commands that print no facts, and what they print."""

_FIELD = re.compile(r"[a-z_]+\??")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_INSTANTS = frozenset({"saved", "modified", "created", "made", "expires", "last_used", "until", "oldest", "comes_back"})


class Kind(NamedTuple):
    """An object of a command as the page describes it."""

    name: str
    required: frozenset[str]
    optional: frozenset[str]

    def fits(self, found: dict[str, object]) -> bool:
        return self.required <= found.keys() and (
            found.keys() <= self.required | self.optional or self.name.startswith("audit show")
        )


def described() -> dict[str, list[Kind]]:
    """Return the kinds of objects of each command."""
    kinds: dict[str, list[Kind]] = {}
    for command, what, said in rows((DOCS / "cli.md").read_text(), "With `--json`"):
        words = spans(command)[0].split()
        name = " ".join(word for word in words if word.islower() and not word.startswith("-"))
        fields = [each for each in spans(said.split(";")[0]) if _FIELD.fullmatch(each) and each != "false"]
        optional = {each.rstrip("?") for each in fields if each.endswith("?")}
        required = {each for each in fields if not each.endswith("?")}
        kinds.setdefault(name, []).append(Kind(f"{name}: {what}", frozenset(required), frozenset(optional)))
    return kinds


DESCRIBED = described()


def printed() -> dict[str, list[dict[str, object]]]:
    """Return the objects of each command in the transcripts of ``golden``."""
    found: dict[str, list[dict[str, object]]] = {}
    for file in FILES:
        for block in file.read_text().split("\n$ "):
            first, *lines = block.splitlines()
            if "--json" in first.split():
                name = max((each for each in DESCRIBED if f"{first} ".startswith(f"{each} ")), key=len)
                found.setdefault(name, []).extend(json.loads(each) for each in lines if each.startswith("{"))
    return found


PRINTED = printed()


def test_every_command_prints_json_or_no_facts() -> None:
    """And the page describes what each prints, and nothing else."""
    options = {
        " ".join(path): any("--json" in parameter.opts for parameter in command.params) for path, command in leaves()
    }
    assert {name for name, has_json in options.items() if not has_json} == WITHOUT.keys()
    with_json = options.keys() - WITHOUT.keys()
    assert (set(DESCRIBED), set(PRINTED)) == (with_json, with_json)


@pytest.mark.parametrize("command", DESCRIBED)
def test_objects_are_those_of_the_page(command: str) -> None:
    kinds, found = DESCRIBED[command], PRINTED[command]
    assert not [each for each in found if not any(kind.fits(each) for kind in kinds)]
    assert not [kind.name for kind in kinds if not any(kind.fits(each) for each in found)]
    assert all(_is_as_said(name, value) for each in found for name, value in each.items())


def _is_as_said(name: str, value: object) -> bool:
    """Check the type of a field by its name: instants, and numbers of bytes and seconds."""
    if isinstance(value, list):
        return all(_is_as_said(key, each) for item in value if isinstance(item, dict) for key, each in item.items())
    if name in _INSTANTS and value is not None:
        return isinstance(value, str) and _INSTANT.fullmatch(value) is not None
    return isinstance(value, int | float) if name in {"bytes", "size", "seconds"} else True


@pytest.mark.parametrize("name", ["forms", "show", "search", "check", "backup"])
def test_an_error_is_one_line_and_no_object(name: str, tmp_path: Path, command: Command) -> None:
    arguments = {"show": ["hr/leave"], "search": ["hr/leave"], "backup": [str(tmp_path / "b")]}.get(name, [])
    given = [name, *arguments, "--data", str(tmp_path / "none")]
    plain, as_json = (command(*given, *more) for more in ([], ["--json"]))
    assert (as_json.status, as_json.out, len(as_json.errors)) == (1, "", 1)
    assert as_json == plain


def test_an_object_is_whole_in_every_encoding_and_harmless_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for facts in ({"name": "caf\u00e9 \u8bf7 \U0001f600 \x9b31m \u202e \x1b"}, {"file": "a\udcffb"}):
        for encoding in ("utf-8", "latin-1", "ascii"):
            output = io.BytesIO()
            monkeypatch.setattr("sys.stdout", io.TextIOWrapper(output, encoding=encoding))
            say_json(facts)
            text = output.getvalue().decode(encoding).removesuffix("\n")
            assert json.loads(text) == facts
            assert safe(text) == text
