"""Commands that the power is cut under: an import, and a purge."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from persistence.model.addresses import DATA_XML
from tests.powercut.clients import Client
from tests.powercut.ledger import NEVER_STORED, Cut, Expected, Ledger, Resource
from tests.powercut.weakened import VARIABLE
from tests.service import Service, running

_REPOSITORY = Path(__file__).parents[2]
_REQUESTS = 60
_LARGE = 1
_NAMED = "scan0.bin"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A command's arguments, and what may be there until it has ended, and after that.

    ``in_order``: until it has ended, no file of a document may be older than the document's data has it.
    """

    arguments: tuple[str, ...]
    until: Sequence[Expected]
    after: Sequence[Expected]
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command, and what makes it ready: a service on the disk, and a directory that is not on it."""

    name: str
    prepare: Callable[[Service, Path], Prepared]


class _Naming(Client):
    """Clients whose data names one of its attachments."""

    def _xml(self) -> bytes:
        return super()._xml().replace(b"</d>", f"<f>{_NAMED}</f></d>".encode())


def started(arguments: Sequence[str], data: Path, without: str = "") -> subprocess.Popen[bytes]:
    """Start a command on a data directory, with a protection taken away where one is named."""
    module = "tests.powercut.weakened" if without else "persistence.cli"
    line = [sys.executable, "-m", module, *arguments, "--data", str(data)]
    env = {**os.environ, VARIABLE: without, "PYTHONPATH": str(_REPOSITORY)}
    return subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env)


def _import(_service: Service, directory: Path) -> Prepared:
    """An archive with histories, deletions and drafts; each file may be in any state of its history until the end."""
    archive = directory / "archive.zip"
    directory.mkdir()
    with running(directory) as source:
        after = _loaded(source)
        _finished("export", str(archive), "--history", "include", "--drafts", data=source.data)
    until = [Expected(each.resource, each.states, 0) for each in after]
    return Prepared(("import", str(archive)), until, after, in_order=True)


def _purge(service: Service, _directory: Path) -> Prepared:
    """Everything that may go. What is current stays; drafts, and attachments that no data names, go."""
    loaded = _loaded(service)
    instant = max(state.instant for each in loaded for state in each.states)
    living = {each.resource for each in loaded if each.states[-1].revision is not None}
    service.put("hr/later/data/later/data.xml")  # so that the instant of the last change is before the limit
    later = str(service.get("hr/later/data/later/data.xml")["Svc-Last-Modified"])
    assert instant < later
    kinds = ("--revisions", "--tombstones", "--drafts", "--orphans")
    return Prepared(
        ("purge", *kinds, "--older-than", later, "--yes"),
        [_purged(each, living, is_over=False) for each in loaded],
        [_purged(each, living, is_over=True) for each in loaded],
    )


def _purged(each: Expected, living: set[Resource], *, is_over: bool) -> Expected:
    resource, last = each.resource, each.states[-1]
    if resource.is_published:
        return each
    if last.revision is None:
        return Expected(resource, (NEVER_STORED,), 0)
    stays = not resource.is_draft and resource.main in living and resource.path.endswith((DATA_XML, _NAMED))
    if stays:
        return Expected(resource, (NEVER_STORED, last), 1)
    return Expected(resource, (NEVER_STORED,) if is_over else (NEVER_STORED, last), 0)


def _loaded(service: Service) -> list[Expected]:
    """Send requests of one client, and return what is there then."""
    ledger = Ledger()
    client = _Naming(service, ledger, 0, large=_LARGE)
    for _ in range(_REQUESTS):
        client.act()
    now = ledger.tick()
    return ledger.at(Cut(now, now))


def _finished(*arguments: str, data: Path) -> None:
    process = started(arguments, data)
    output, _ = process.communicate()
    assert process.returncode == 0, output


IMPORT = Command("import", _import)
COMMANDS = (IMPORT, Command("purge", _purge))
