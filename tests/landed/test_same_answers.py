"""A tree that an earlier version has written is served, checked and searched as that version did, byte for byte.

The archives beside this file hold the tree of each dialect with its settings and keys, and questions with the answers
of the version that has written it; none of them changes the tree. Wording that was changed since, on purpose, stands in
``REWORDED``.
"""

from __future__ import annotations

import http.client
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from persistence.cli import main
from persistence.cli.terminal import counted
from tests.landed.archive import answers as answers_of
from tests.landed.archive import unpack
from tests.service import alone

pytestmark = pytest.mark.xdist_group("landed")

_FIRST_REFUSED = re.compile(r"(documents was deleted: you may not delete \S+/data/)[^/]+")

_SINCE_THEN = "?remote-server-url="
"""In requests that were not supported yet (501)."""

_ROOT = "/"
"""Says what the service is since then; it was 404."""

_CHANGED = re.compile(
    r"\S+ \S+/empty\.bin Range|PUT \S+\.bin\.json |GET /form(/acme|\?all-forms=true)? .*Orbeon-Username.*"
)
"""Questions that are answered otherwise since then: a range of nothing is all of it, attachments may be called as
sidecars would be, and the proxy of a runtime gets every version in the list of forms."""

_WITHOUT_FILE = re.compile(r"/data/[^/]+/\Z")
"""The end of paths of documents, whose 404 names the path of the data since then."""

_UNLISTED = "/fr/service/hr/secret/attachments?"
"""The attachments of a form whose definition does not list its grids: their elements are in its paths since then."""

_FOR_BROWSERS = frozenset(
    {"Cache-Control", "Content-Security-Policy", "Cross-Origin-Resource-Policy", "Vary", "X-Content-Type-Options"}
)

_COLUMNS = "BYTES", "SAVED"
"""Columns that the table of forms has since then."""

RENAMED = {("key", "list"): ("api-key", "list"), ("key", "ring"): ("encryption-key", "list")}
"""Commands by their names when they were recorded."""

_HEADINGS_OF_KEYS = "ID        MADE                      DOES\n"
"""The first line of the list of keys, which it has since then."""

_GOES_BACK = "goes back to the newest whole revision, if there is one, and keeps the damaged file in .quarantine"
_RESTORE = "restore it from a backup, or name the file to --adopt"
REWORDED: dict[str, str] = {
    '"notice":7,"mended":0,"remaining":6,"edits":0': '"notice":7,"mended":0,"remaining":6,"edits":6',
    '"notice":5,"mended":0,"remaining":6,"edits":0': '"notice":5,"mended":0,"remaining":6,"edits":4',
    '"notice":1,"mended":0,"remaining":0,"edits":0': '"notice":1,"mended":0,"remaining":0,"edits":1',
    "in no data directory\n": "in no data directory or database\n",
    "encrypted anew": "re-encrypted",
    "be made anew": "be rebuilt",
    "is made anew": "is rebuilt",
    "layout.json anew": "layout.json again",
    "--repair corrects it if one bit was flipped; else name": "restore it from a backup, or name",
    "would be repaired: corrects it if one bit was flipped; else name": "restore it from a backup, or name",
    '"remedy":"--repair","does":"corrects it if one bit was flipped; else name': (
        '"remedy":"","does":"restore it from a backup, or name'
    ),
    f"no older revision is whole; --repair {_GOES_BACK}": f"no older revision is whole; {_RESTORE}",
    f'no older revision is whole","remedy":"--repair","does":"{_GOES_BACK}': (
        f'no older revision is whole","remedy":"","does":"{_RESTORE}'
    ),
    "hand: persistence check --adopt PATH takes that in": "hand: 'persistence check --adopt PATH' adopts it",
}
"""Texts of commands that read otherwise now than when they were recorded: a summary then never counted edits, there
were no databases, a flipped bit of a sidecar was repaired, and a repair was offered where nothing is whole."""

REWORDED_CAUSES = (
    (r"in (<permission>), where elements are meant", r"in \1 instead of elements"),
    (r"(the definition has no metadata): nothing says which form it is", r"\1, which would name its form"),
    (r"(version must be sent:) of one form, (one version is)", r"\1 \2"),
    (r"there is no (metadata|operation|match|drafts) ('.+'); there are", r"\2 is not a valid \1: it must be one of"),
    (r"there are no (distinct values of \S+), only", r"\1 are not available, only"),
)
"""Causes of refused requests (400) that read otherwise now, as patterns."""


_SUMMARY = re.compile(r"(\d+) damage, (\d+) leftover, (\d+) notice; (\d+) mended, (\d+) remain\b")
"""The end of the summary of a check when it was recorded."""


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
    unpack(dialect, directory)
    return directory


@pytest.fixture(scope="module")
def recorded(dialect: str) -> dict[str, Any]:
    return answers_of(dialect)


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
            return {"status": answer.status, "headers": headers, "body": answer.read().decode("latin-1")}

        yield ask


@pytest.fixture(scope="module")
def answers(service: Ask, recorded: dict[str, Any]) -> list[tuple[Any, Any, Any]]:
    """Every question with the recorded answer and that of now; searches bring the index of the tree up to date."""
    asked = [each for each in recorded["answers"] if not _is_changed(each[0])]
    return [(question, expected, service(question)) for question, expected in asked]


def test_every_request_is_answered_as_before(answers: list[tuple[Any, Any, Any]]) -> None:
    """Status, headers in their order, and body. The questions change nothing, so one answer leads to no other."""
    assert len(answers) >= 300
    changed = (_SINCE_THEN, _UNLISTED)
    paths = ((each, each[0]["path"]) for each in answers)
    asked_as_before = (each for each, path in paths if path != _ROOT and not any(part in path for part in changed))
    different = [
        (question, expected, now)
        for question, expected, now in asked_as_before
        if _comparable(_in_present_words(question, expected)) != _comparable(now)
    ]
    assert not different, _told(different)


@pytest.mark.usefixtures("answers")  # the commands were recorded after the requests, too
def test_every_command_prints_what_it_did_before(
    tree: Path, recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status and both streams, of commands that change nothing."""
    monkeypatch.chdir(tree)
    monkeypatch.setenv("TZ", "UTC")
    different = []
    for arguments, *expected in recorded["commands"]:
        named = RENAMED.get(tuple(arguments), arguments)
        monkeypatch.setattr(sys, "argv", ["persistence", *named, "--config", "persistence.toml"])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = [_without_columns(_printed(arguments, text, tree)) for text in capsys.readouterr()]
        if [ended.value.code or 0, *printed] != [expected[0], *map(_reworded, expected[1:])]:
            different.append((arguments, expected, [ended.value.code, *printed]))
    assert not different, _told(different)


def _printed(arguments: list[str], text: str, directory: Path) -> str:
    """What a command prints, without its directory and its seconds.

    ``check`` and ``reencrypt`` take documents in the order in which the disk has them, so their lines are sorted.
    """
    text = _SECONDS.sub("SECONDS", text.replace(str(directory), "DIRECTORY"))
    return "".join(sorted(text.splitlines(keepends=True))) if arguments[0] in {"check", "reencrypt"} else text


def _is_changed(question: Any) -> bool:
    names = " ".join(name for name, _ in question["headers"])
    return _CHANGED.fullmatch(f"{question['method']} {question['path']} {names}") is not None


def _in_present_words(question: Any, answer: Any) -> Any:
    """The recorded answer with LOCK and UNLOCK among the methods, a 400 in its words of now, a 404 with a hint."""
    status, body, path, fields = answer["status"], answer["body"], question["path"], dict[str, str]()
    before, since, nothing = (
        "DELETE, GET, HEAD, PUT",
        "DELETE, GET, HEAD, LOCK, PUT, UNLOCK",
        "there is nothing under this path",
    )
    if status == HTTPStatus.METHOD_NOT_ALLOWED and ["Allow", before] in answer["headers"]:
        body, fields = body.replace(before, since), {"Allow": since}
    elif status == HTTPStatus.BAD_REQUEST and body:
        for old, new in REWORDED_CAUSES:
            body = re.sub(old, new, body)
    elif status == HTTPStatus.NOT_FOUND and body == f"{nothing}\n" and _WITHOUT_FILE.search(path):
        body = f"{nothing}; the document is {path}data.xml\n"
    if body == answer["body"]:
        return answer
    fields["Content-Length"] = str(len(body.encode()))
    return {**answer, "headers": [[name, fields.get(name, value)] for name, value in answer["headers"]], "body": body}


def _without_columns(text: str) -> str:
    """A table of forms without the columns that it had not when it was recorded, a list of keys without headings."""
    head, *lines = text.removeprefix(_HEADINGS_OF_KEYS).split("\n")
    if not head.startswith("FORM ") or not all(name in head for name in _COLUMNS):
        return text.removeprefix(_HEADINGS_OF_KEYS)
    begin = len(head[: head.index(_COLUMNS[0])].rstrip())
    after = re.match(rf"\s+{_COLUMNS[0]}\s+{_COLUMNS[1]}\s+", head[begin:])
    end = begin + after.end() - 2
    is_total = re.compile(r"\d+ forms?, ").match
    return "\n".join(line if is_total(line) else line[:begin] + line[end:] for line in (head, *lines))


def _comparable(answer: Any) -> Any:
    """The answer without the headers for browsers and caches, of which most came since then.

    And without the name of the first document that may not be deleted: the file system orders them.
    """
    body, fields = answer["body"], [each for each in answer["headers"] if each[0] not in _FOR_BROWSERS]
    without = _FIRST_REFUSED.sub(r"\1", body) if isinstance(body, str) else body
    return {**answer, "headers": fields, "body": without}


def _reworded(text: str) -> str:
    for old, new in REWORDED.items():
        text = text.replace(old, new)
    return _SUMMARY.sub(_summary, text)


def _summary(found: re.Match[str]) -> str:
    """Return a summary of a check in its present words."""
    damage, leftover, notice, mended, remaining = map(int, found.groups())
    return (
        f"{damage} damaged, {counted(leftover, 'leftover')}, {counted(notice, 'notice')}; "
        f"{mended} repaired, {remaining} remaining"
    )


def _told(different: list[tuple[object, object, object]]) -> str:
    """Return the first differences, for a person."""
    lines = [f"{asked}\n  was {before}\n  is  {now}" for asked, before, now in different[:5]]
    return f"{len(different)} differ:\n" + "\n".join(lines)
