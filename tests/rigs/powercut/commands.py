"""Commands that the power is cut under: an import, and a purge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from persistence.cli import commands
from persistence.model.addresses import DATA_XML
from tests.rigs.clients import Writer
from tests.rigs.judging import ALL_REPAIRED, NOTHING_FOUND, Verdict, check, fork, start_and_judge, started_and_judged
from tests.rigs.ledger import NEVER_STORED, Cut, Expected, Ledger, Resource
from tests.rigs.server import Variant
from tests.service import Service, running

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


class _Naming(Writer):
    def _content(self, resource: Resource, token: str) -> bytes:
        return super()._content(resource, token).replace(b"</form>", f"<f>{_NAMED}</f></form>".encode())


def _import(_service: Service, directory: Path) -> Prepared:
    """An archive with histories, deletions and drafts; each file may be in any state of its history until the end."""
    archive = directory / "archive.zip"
    directory.mkdir()
    with running(directory) as source:
        after = _loaded(source)
        options = ("--history", "include", "--drafts", "--data", str(source.data))
        process = Variant().start("export", str(archive), *options, directory=directory)
        _, said = process.communicate()
        assert process.returncode == 0, said
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
    ledger = Ledger()
    client = _Naming(service, ledger, 0, large=_LARGE)
    client.begin()
    for _ in range(_REQUESTS):
        client.act()
    assert client.violations == []
    now = ledger.tick()
    return ledger.at(Cut(now, now))


def judge_command(data: Path, prepared: Prepared, *, is_over: bool) -> Verdict:
    """Judge a disk whose power was cut under a command; repair it, run the command again, and judge what is there."""
    with fork() as own:
        cut = prepared.after if is_over else prepared.until
        in_order = prepared.in_order and not is_over
        verdict = own.submit(started_and_judged, data, cut, is_written=False, in_order=in_order).result()
    for step in (_deep_faults, _again_faults):
        with fork() as own:
            verdict.violations += own.submit(step, data, prepared.arguments).result()
    again = start_and_judge(data, prepared.after)
    again.violations = verdict.violations + [f"after the second run: {each}" for each in again.violations]
    again.states += verdict.states
    again.older += verdict.older
    return again


def _deep_faults(data: Path, _arguments: Sequence[str]) -> list[str]:
    code, damage = check(data, "--deep", "--repair")
    return damage if code in (NOTHING_FOUND, ALL_REPAIRED) else [f"check --deep --repair ends with {code}: {damage}"]


def _again_faults(data: Path, arguments: Sequence[str]) -> list[str]:
    result = CliRunner().invoke(commands, [*arguments, "--data", str(data)])
    if result.exit_code != 0:
        return [f"the second run ends with {result.exit_code}: {result.output} {result.exception!r}"]
    code, damage = check(data, "--deep")
    return [] if code == NOTHING_FOUND else [f"check --deep after the second run ends with {code}: {damage}"]


IMPORT = "import"
COMMANDS: dict[str, Callable[[Service, Path], Prepared]] = {IMPORT: _import, "purge": _purge}
"""What makes each command ready: with a service on the disk, and a directory that is not on it."""
