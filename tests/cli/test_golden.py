"""The outputs of the commands, text and JSON, with standard error and exit status: the transcripts in ``golden``.

``$`` begins a command, ``2>`` a line of standard error, and ``[STATUS]`` ends the output, unless it is 0. ``@`` names a
step of the test, such as a fresh copy of the sample, ``put PATH BODY | HEADER=VALUE``, a request to a service over
its data, or ``sql STATEMENT`` on its database. ``{N}`` is the Nth instant of the output before, ``{digest}`` and
``{id}`` are the last ones of it, ``idNNNNNN`` is the random word that was shown so, and ``{NAME}`` one of ``BODIES``.
``pytest tests/cli/test_golden.py --update`` writes the outputs again.

Times, paths and random words are replaced: an instant by one of the same width, with its rank among the output's.
"""

import io
import os
import pwd
import re
import shlex
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psycopg
import pytest

from persistence.app import Service, create_app
from persistence.index.sqlite.tree_outbox import TreeOutbox
from persistence.model.texts import next_after
from persistence.postgresql.connections import parse
from persistence.providers.opened import init_places
from persistence.settings import load
from tests import encrypted_form, orders, trips
from tests.cli.command_runner import PREFIX, ended
from tests.cli.samples import FILES, LABELLED, SETTINGS, SEVERAL, copy, make_old, plant, tick
from tests.forms.test_diffs import TRIP
from tests.forms.vectors import published
from tests.in_process import serving
from tests.initialised import initialised
from tests.opened import close, opened
from tests.postgresql.server import fresh_schema, require_no_password, requires_postgresql
from tests.published import definition
from tests.s3.server import BUCKET, Fault, S3Server, Stored, serving_objects
from tests.service import lockinfo

BODIES = {
    "orders": orders.definition(),
    "marked": encrypted_form.DEFINITION,
    "secrets": encrypted_form.data(),
    "large": b"0123456789abcdef" * 40_000,
    "other": encrypted_form.data().replace(encrypted_form.SECRETS[0].encode(), b"other secret"),
    "trip": published(TRIP).encode(),
    "labelled": LABELLED.encode(),
    "trip 1": trips.FIRST.encode(),
    "trip 2": trips.SECOND.encode(),
    "trip other": trips.SECOND.replace("<i>it</i>", "<i>this</i>").encode(),
}

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d([:-])\d\d[:-]\d\d\.\d{3}Z")
_ID = re.compile(r"(?<![.\w])[0-9a-f]{8}(?!\w)")
_USER = pwd.getpwuid(os.getuid()).pw_name
_RANDOM: list[tuple[str, str]] = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2000-01-01T00:00:00Z"),
    (r"(?<=[ (])\d+\.\d s\b", "0.0 s"),
    (r'(?<="seconds":)\d+(\.\d+)?', "0"),
    (r'(?<=exported":)(\d+),"bytes":\d+', r'\1,"bytes":0'),
    (r"[\d,]+ a second", "0 a second"),
    (r"(?m)(?<=  )5\d\d(?=(  data)?$)", "600"),
    (r"postgresql://[^\s\"',;]*[^\s\"',;:]", "{database}"),
    (r"\bt_[0-9a-f]{12}\b", "{schema}"),
    (r"\benc2:[^\"<]+", "{encrypted}"),
    (r"\b[0-9a-f]{64}\b", "{digest}"),
    (r"\b[0-9a-f]{40}\b", "{id}"),
    (r'(?<="id":")[0-9a-f]{16}(?=")', "{id}"),
    (r'((?<=feed )|(?<=feed":")|(?<=feed is ))[0-9a-f]{16}\b', "{feed}"),
    (r"\b[\w-]{30,}\.[\w-]{43}\b", "{token}"),
    (r"(?<=127\.0\.0\.1:)\d{4,}", "{port}"),
    (rf"(?<=Z  ){_USER}(?=  )", "{user}"),
    (rf'(?<="system_user":"){_USER}(?=")', "{user}"),
    (rf'(?<="by": "){_USER}(?=")', "{user}"),
]
_LEFT_OUT = re.compile(r"Usage: |Try 'persistence|$|{\"")
"""Lines of standard error that are no part of a message: click's frame, and the log of a service in this process."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("golden")
    plant(base)
    return base


_scandir = os.scandir


class SortedEntries:
    """The entries of a directory as ``os.scandir`` has them, by name."""

    def __init__(self, path: str = ".") -> None:
        with _scandir(path) as entries:
            self._entries = iter(sorted(entries, key=lambda each: each.name))

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return self._entries

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...


def _replace(path: Path, words: str) -> None:
    old, new = shlex.split(words)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("\\n", "\n"))


def _rot(path: Path, _: str) -> None:
    """Change a byte, and keep size and time, as a faulty disk does."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


_CHANGES: dict[str, Callable[[Path, str], object]] = {
    "age": lambda path, _: os.utime(path, (time.time() - 86_400,) * 2),
    "copy": shutil.copyfile,  # without the times
    "directory": lambda path, _: path.mkdir(parents=True),
    "link": _link,
    "mode": lambda path, mode: path.chmod(int(mode, 8)),
    "remove": lambda path, _: shutil.rmtree(path) if path.is_dir() else path.unlink(),
    "rename": Path.rename,
    "replace": _replace,
    "rot": _rot,
    "write": _write,
}
"""Steps that change the file of a path; what follows the path is the other argument."""


class Session:
    """The steps and commands of a transcript, below a directory."""

    def __init__(
        self,
        directory: Path,
        planted: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        database: Callable[[], str],
        opened: ExitStack,
    ) -> None:
        self._base, self._planted, self._patch, self._capsys = directory, planted, monkeypatch, capsys
        listed = os.listdir  # each file system has an order of its own
        monkeypatch.setattr(os, "listdir", lambda path=".": sorted(listed(path)))
        monkeypatch.setattr(os, "scandir", SortedEntries)
        self._database = database
        self._databases = dict[str, str]()
        self._number = 0
        self._ids = dict[str, int]()
        self._opened = opened
        opened.callback(os.umask, os.umask(0o027))  # what a step writes is not open to others
        self._url = self._printed = ""
        self._app: Service | None = None
        self._store: S3Server

    def step(self, name: str) -> Iterable[str]:
        """Do a step, and return the lines of the transcript."""
        match name.split():
            case ["fresh" | "empty" as which]:
                self._begin(SETTINGS, is_planted=which == "fresh")
            case ["put" | "delete" | "get" | "post" | "lock" as method, path, *_]:
                words, _, headers = name.partition(" | ")
                return self._ask(method, path, words.partition(path)[2][1:].encode(), headers)
            case ["publish", form, *_]:
                words, _, headers = name.partition(" | ")
                body = definition(words.partition(form)[2][1:])
                return self._ask("put", f"{form}/form/form.xhtml", body, headers)
            case ["several"]:
                self._begin(SETTINGS + SEVERAL)
                for each in ("big", "disk2"):
                    (self._here / each).mkdir()
                shutil.copy("data/layout.json", "disk2/layout.json")
                shutil.rmtree("data/.index")
                Path("data/acme").rename("disk2/acme")
            case ["serve"]:
                service = self._opened.enter_context(serving(self._here / "served", dialect="orbeon", alone=True))
                self._url = f"http://127.0.0.1:{service.port}"
            case ["bucket", *words]:
                self._change_bucket(words)
            case ["sql" | "objects" as what, *_]:
                return self._masked("\n".join(self._rows(name[4:]) if what == "sql" else self._objects())).splitlines()
            case ["cat" | "files" | "mode" | "unzip" as what, path]:
                self._printed = "\n".join(self._shown(what, self._found(self._filled(path))))
                return self._masked(self._printed).splitlines()
            case _:
                self._change(name)
        return ()

    def _shown(self, what: str, path: Path) -> Iterator[str]:
        """Yield the lines of a file, its mode, the files of a directory, or what an archive has beside its metadata."""
        if what == "cat":
            yield from path.read_text().splitlines()
        elif what == "mode":
            yield f"{path.stat().st_mode & 0o777:o}"
        elif what == "files":
            files = (each.relative_to(self._here) for each in path.rglob("*") if each.is_file())
            yield from sorted(str(each) for each in files if ".locks" not in each.parts)
        else:
            with zipfile.ZipFile(path) as archive:
                assert archive.testzip() is None
                names = [name for name in archive.namelist() if not name.endswith(".metadata.xml")]
                assert len(archive.namelist()) == 2 * len(names) - ("export-errors.txt" in names)
                yield from (f"{name}: {archive.read(name).decode()}" for name in names)

    def _rows(self, statement: str) -> list[str]:
        """Change rows of the database behind the service's back, or ask for some, as a report does."""
        address = parse(self._filled("{database}"))
        with psycopg.connect(address.conninfo) as connection:
            connection.execute(f"SET search_path TO {address.schema}, {address.flat_schema}, public".encode())
            cursor = connection.execute(statement.encode())
            return [" | ".join(map(str, row)) for row in cursor] if cursor.description else []

    def _keys(self) -> list[str]:
        """Return the keys of the bucket, those that were stored first at the beginning."""
        return sorted(self._store.objects, key=lambda key: self._store.objects[key].time)

    def _objects(self) -> list[str]:
        return [f"{key} {self._store.objects[key].data.decode()}" for key in self._keys()]

    def _change_bucket(self, words: list[str]) -> None:
        """Lead all attachments to a bucket, or change what it has and answers; objects have numbers by their age."""
        match words:
            case []:
                self._store = self._opened.enter_context(serving_objects())
                for variable, value in self._store.environment.items():
                    self._patch.setenv(variable, value)
                settings = {"big.base-path": f"s3://{BUCKET}/x", "big.endpoint": self._store.url}
                for each, value in (settings | {"provider.*.*.data.attachments": "big"}).items():
                    self._change(f'setting "svc.persistence.{each}" = "{value}"')
            case ["answers", *status]:
                self._store.faults = [Fault(".", int(status[0]), status[1])] if status else []
            case ["loses", number]:
                del self._store.objects[self._keys()[int(number)]]
            case ["has", key, body, *age]:
                key = self._keys()[int(key)] if key.isdigit() else key
                time_of = self._store.objects[key].time if key in self._store.objects else time.time()
                self._store.objects[key] = Stored(body.encode(), time_of - 4000 * len(age))

    def _change(self, name: str) -> None:
        """Do a step that changes files."""
        what, _, rest = self._filled(name).partition(" ")
        path, _, text = rest.partition(" ")
        match what:
            case "setting":
                file = self._here / "config/persistence.toml"
                kept = [each for each in file.read_text().splitlines() if each.split("=")[0] != rest.split("=")[0]]
                file.write_text("\n".join((rest, *kept, "")))
                self._end_service()
            case "environment":
                self._patch.setenv(*rest.split("=", 1))
            case "give-up":  # the first event
                self._end_service()
                with TreeOutbox(f"{self._here}/data") as outbox:
                    outbox.settle()
                    known, (event,) = outbox.begin_target(rest), outbox.after(0, 1)
                    state = known._replace(position=event.number, cause="the target answers 500")
                    outbox.change_target(rest, known, state, event)
            case "format-1":
                make_old(self._here)
            case _:
                _CHANGES[what](self._found(path), text)

    def _found(self, path: str) -> Path:
        """Return the first file of a pattern, or what a path without ``*`` leads to."""
        return min(self._here.glob(path)) if "*" in path else self._here / path

    def run(self, line: str) -> Iterator[str]:
        """Run a command, and yield the lines of the transcript."""
        line, _, shown = line.partition(" | ")
        line, _, given = line.partition(" < ")
        tick()
        arguments = [self._filled(each) for each in shlex.split(line)]
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{given}\n".encode())))
        done = ended(arguments, self._patch, self._capsys)
        require_no_password("\n".join((done.out, *done.errors)))
        errors = [f"2> {each}" for each in done.errors if not _LEFT_OUT.match(each)]
        self._printed = done.out
        lines = self._masked("\n".join((done.out, *errors))).splitlines()
        out = done.out.count("\n")
        yield from _part(lines[:out], *shown.split())
        yield from lines[out + 1 :]
        if done.status:
            yield f"[{done.status}]"

    def _ask(self, method: str, path: str, body: bytes, headers: str) -> list[str]:
        """Send a request, and return the lines of an answer to GET that have ``body``, or of one that refuses."""
        if self._app is None:
            effective = load("config/persistence.toml", environment={})
            init_places(effective.settings, effective.properties)
            self._app = opened(create_app(effective.settings, effective.properties))
        tick()
        given = {"Svc-Form-Definition-Version": "1"}
        if method == "lock":  # by the user of this name
            headers = f"Username={body.decode()} Content-Type=application/xml Timeout=Second-600"
            body = lockinfo(body.decode())
        for each in shlex.split(headers):
            name, _, value = each.partition("=")
            given[name if name in ("Content-Type", "Timeout", "Authorization") else f"Svc-{name}"] = value
        for name, named in BODIES.items():
            body = body.replace(b"{%s}" % name.encode(), named)
        url = path if path.startswith("/") else PREFIX + quote(path)
        query = {"valid": "true"} if method == "put" else None
        answer = self._app.test_client().open(url, method=method.upper(), data=body, headers=given, query_string=query)
        if answer.status_code < 300 and method != "get":
            return []
        status = [] if answer.status_code < 300 else [f"[{answer.status_code}]"]
        lines = self._masked(answer.data.decode(errors="replace")).splitlines()
        return [*(line for line in lines if method != "get" or body.decode() in line), *status]

    def _end_service(self) -> None:
        if self._app is not None:
            close(self._app)
            self._app = None

    def _begin(self, settings: str, *, is_planted: bool = True) -> None:
        self._end_service()
        self._number += 1
        directory = self._base / str(self._number)
        directory.mkdir()
        self._patch.chdir(directory)
        if is_planted:
            copy(self._planted, directory, settings)
        else:
            initialised(directory / "data")
            (directory / "config").mkdir()
            (directory / "config/persistence.toml").write_text(settings)
        self._here = directory

    def _filled(self, text: str) -> str:
        text = text.replace("{here}", str(self._here))
        for word, number in self._ids.items():
            text = text.replace(f"id{number:06}", word)
        for what, length in (("{digest}", 64), ("{id}", 40)):
            found = re.findall(rf"\b[0-9a-f]{{{length}}}\b", self._printed) if what in text else ()
            text = text.replace(what, found[-1]) if found else text
        if "{now}" in text:
            text = text.replace("{now}", next_after(None))
            tick()
        text = text.replace("{url}", self._url)
        for number, instant in enumerate(_INSTANT.finditer(self._printed), start=1):
            text = text.replace(f"{{{number}}}", instant.group())
        for name in ("{database}", "{other}"):
            if name in text:
                self._databases.setdefault(name, self._database())
                text = text.replace(name, self._databases[name])
        return text

    def _masked(self, text: str) -> str:
        text = text.replace(str(self._here), "{here}")
        text = re.sub(r'(?<="until":")[^"]+', "2000-01-01T00:00:00.000Z", text)
        ranks = sorted({found.group().replace(":", "-") for found in _INSTANT.finditer(text)})

        def rank(found: re.Match[str]) -> str:
            return f"2000-01-01T00:00:00.{ranks.index(found.group().replace(':', '-')):03}Z".replace(":", found[1])

        text = _INSTANT.sub(rank, text)
        text = _ID.sub(lambda found: f"id{self._ids.setdefault(found.group(), len(self._ids) + 1):06}", text)
        for pattern, shown in _RANDOM:
            text = re.sub(pattern, shown, text)
        return text


def _new_database(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("database_server").uri(fresh_schema()))


def _part(lines: list[str], end: str = "first", number: str = "") -> list[str]:
    if not number:
        return lines
    return lines[: int(number)] if end == "first" else lines[-int(number) :]


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(each, marks=[requires_postgresql] if "database" in each.stem else [], id=each.stem)
        for each in FILES
    ],
)
def test_outputs_are_those_of_the_transcript(
    file: Path,
    planted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    expected, found = file.read_text().splitlines(), list[str]()
    with ExitStack() as opened:
        session = Session(tmp_path, planted, monkeypatch, capsys, partial(_new_database, request), opened)
        for line in expected:
            if line.startswith(("@ ", "$ ")):
                found.append(line)
            if line.startswith("@ "):
                found += session.step(line[2:])
            elif line.startswith("$ "):
                found += session.run(line[2:])
    if request.config.getoption("--update"):
        file.write_text("\n".join((*found, "")))
    else:
        assert found == expected
