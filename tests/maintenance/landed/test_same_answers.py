"""A tree that an earlier version has written is served, checked and searched as ever, byte for byte.

The archives beside this file hold the tree of each dialect with its settings and keys, and questions with their
answers; none of them changes the tree. The answers were those of the version that has written it, and are recorded
again, with ``pytest tests/maintenance/landed --update``, after a change of them on purpose.
"""

from __future__ import annotations

import http.client
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from persistence.cli import main
from tests.maintenance.landed import archive
from tests.service import alone

pytestmark = pytest.mark.xdist_group("landed")

_FIRST_REFUSED = re.compile(r"(documents was deleted: you may not delete \S+/data/)[^/]+")
"""The name of the first document that may not be deleted: the file system orders them."""

_SECONDS = re.compile(r'\b[0-9.]+ s\b(, [0-9]+ a second)?|"seconds":[0-9.e-]+')
_OTHERWISE = frozenset({"date", "server", "x-request-id"})
"""Headers that differ by nature."""

Ask = Callable[[Any], Any]


@pytest.fixture(scope="module", params=["svc", pytest.param("orbeon", marks=pytest.mark.long)])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def tree(dialect: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the settings of a tree, with the times of its files to the nanosecond."""
    directory = tmp_path_factory.mktemp(f"landed-{dialect}")
    archive.unpack(dialect, directory)
    return directory


@pytest.fixture(scope="module")
def recorded(dialect: str) -> dict[str, Any]:
    return archive.answers(dialect)


@pytest.fixture(scope="module")
def service(dialect: str, tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Something that answers questions as they were recorded; texts are Latin-1, headers pairs in their order."""
    log, options = tmp_path_factory.mktemp("log") / "service.log", ("--config", "persistence.toml")
    with (
        alone(tree, dialect=dialect, log=log, env={"TZ": "UTC"}, options=options) as alone_,
        closing(http.client.HTTPConnection("127.0.0.1", alone_.port, timeout=60)) as connection,
    ):

        def ask(question: Any) -> Any:
            body = question["body"] and question["body"].encode("latin-1")
            connection.request(question["method"], question["path"], body, dict(question["headers"]))
            answer = connection.getresponse()
            headers = [[name, text] for name, text in answer.getheaders() if name.lower() not in _OTHERWISE]
            text = _FIRST_REFUSED.sub(r"\1", answer.read().decode("latin-1"))
            return {"status": answer.status, "headers": headers, "body": text}

        yield ask


@pytest.fixture(scope="module")
def answers(service: Ask, recorded: dict[str, Any]) -> list[list[Any]]:
    """Every question with its answer of now; searches bring the index of the tree up to date."""
    return [[question, service(question)] for question, _ in recorded["answers"]]


def test_every_request_is_answered_as_before(
    dialect: str, answers: list[list[Any]], recorded: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """Status, headers in their order, and body. The questions change nothing, so one answer leads to no other."""
    assert len(answers) >= 300
    if request.config.getoption("--update"):
        archive.record(dialect, recorded | {"answers": answers})
    pairs = zip(recorded["answers"], answers, strict=True)
    different = [(question, before, now) for (question, before), (_, now) in pairs if before != now]
    assert not different, _told(different)


@pytest.mark.usefixtures("answers")  # the commands were recorded after the requests, too
def test_every_command_prints_what_it_did_before(
    dialect: str,
    tree: Path,
    recorded: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """Exit status and both streams, of commands that change nothing."""
    monkeypatch.chdir(tree)
    monkeypatch.setenv("TZ", "UTC")
    commands = []
    for arguments, *_ in recorded["commands"]:
        monkeypatch.setattr(sys, "argv", ["persistence", *arguments, "--config", "persistence.toml"])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = [_printed(arguments, text, tree) for text in capsys.readouterr()]
        commands.append([arguments, ended.value.code or 0, *printed])
    if request.config.getoption("--update"):
        archive.record(dialect, archive.answers(dialect) | {"commands": commands})
    pairs = zip(recorded["commands"], commands, strict=True)
    different = [(before[0], before[1:], now[1:]) for before, now in pairs if before != now]
    assert not different, _told(different)


def _printed(arguments: list[str], text: str, directory: Path) -> str:
    """What a command prints, without its directory and its seconds.

    ``check`` and ``reencrypt`` take documents in the order in which the disk has them, so their lines are sorted.
    """
    text = _SECONDS.sub("SECONDS", text.replace(str(directory), "DIRECTORY"))
    return "".join(sorted(text.splitlines(keepends=True))) if arguments[0] in {"check", "reencrypt"} else text


def _told(different: list[tuple[object, object, object]]) -> str:
    """Return the first differences, for a person."""
    lines = [f"{asked}\n  was {before}\n  is  {now}" for asked, before, now in different[:5]]
    return f"{len(different)} differ:\n" + "\n".join(lines)
