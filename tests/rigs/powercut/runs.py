"""Runs: the load on a disk, pictures of it, and a verdict on each.

The defects that no picture of a journaling file system shows are planted in the crash rig, whose model is of one that
promises only what POSIX does.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from click.testing import CliRunner

from persistence.cli import commands
from persistence.model.addresses import DATA_XML
from tests.rigs import judging
from tests.rigs.clients import Writer
from tests.rigs.disks import TO_CUT, Disk, disk, refusal
from tests.rigs.judging import WITH_EVENTS, Verdict
from tests.rigs.ledger import NEVER_STORED, Cut, Expected, Ledger, Resource
from tests.rigs.report import Report, Tally, prefixed
from tests.rigs.server import Variant, weak, working
from tests.rigs.weakened import CONTENT_FSYNC, OF_POWER_CUTS
from tests.service import Service, running

CAUGHT = "snapshots with violations"
_HEADINGS = (
    *("snapshots", "writes", "acknowledged before the cut", "in flight at the cut", "states read"),
    *("older revisions read", "started for real", CAUGHT),
)
_JUDGES = 2
_CLIENTS = 4
_WORKERS = 2
_LARGE = 2
_WARM_UP = 6
_LONGEST_ROW = 3
_LONGEST_GAP = 0.06


@dataclass(frozen=True, slots=True)
class Plan:
    """How many pictures: right after an answer with nothing else in flight, and under concurrent load.

    The former miss no name that was not synced, because no other request's fsync has written it by the way. On every
    ``real_every``-th picture the service is started for real (on none where that is 0), on the others in the judging
    process. Where ``is_checked``, ``persistence check`` has the last word.
    """

    at_rest: int
    under_load: int
    real_every: int = 10
    is_checked: bool = True

    def is_real(self, picture: Picture) -> bool:
        return self.real_every > 0 and picture.number % self.real_every == 0


_PLAN = Plan(at_rest=50, under_load=50)
_PICTURES = 6
"""Of a command, and of a service without a protection."""


def refusals(directory: Path) -> list[str]:
    """Return why the long run is not possible here."""
    return [reason for kind in TO_CUT if (reason := refusal(kind, directory, is_to_cut=True))]


def long_run(report: Report, directory: Path) -> None:
    """Cut the power of the service and of commands; and without a protection: a purge writes no content."""
    with judges(directory) as pool:
        for kind in TO_CUT:
            (own := directory / kind.title).mkdir()
            with disk(kind, own) as made:
                rig = Rig(made, own, pool)
                report.add(rig.run(_PLAN))
                for command in COMMANDS:
                    report.add(rig.run_command(command, _PICTURES))
                report.add(rig.run_command(IMPORT, _PICTURES, CONTENT_FSYNC), is_planted=True, found_as=CAUGHT)
                for protection in OF_POWER_CUTS:
                    report.add(rig.run_without(protection, _PICTURES), is_planted=True, found_as=CAUGHT)


@dataclass(frozen=True, slots=True)
class Picture:
    number: int
    image: Path
    data: Path
    cut: Cut
    shown: tuple[judging.FeedChange, ...]
    """Changes that a follower has seen before."""


class Rig:
    def __init__(self, made: Disk, directory: Path, judges: ProcessPoolExecutor) -> None:
        self._disk = made
        self._directory = directory
        self._judges = judges
        self._pictures = 0
        self._answered: list[str] = []
        """What was wrong with answers to the load."""

    def run(self, plan: Plan) -> Tally:
        """The service as it is; nothing is synced for it, not even its new data directory."""
        tally, ledger = self._tally("whole"), Ledger()
        with self._service("whole") as service:
            client = self._writer(service, ledger, 0)
            taken = [self._after(client, service, ledger) for _ in range(plan.at_rest)]
            taken += self._under_load(service, ledger, plan.under_load)
        return self._judged_by(ledger, tally, taken, plan)

    def run_without(self, protection: str, pictures: int) -> Tally:
        """The service with a protection taken away, under the same load at rest.

        What was there before the first picture is made durable for it, so that what is missed was acknowledged then.
        """
        tally, ledger = self._tally(f"without {protection}"), Ledger()
        with self._service(protection, weak(protection)) as service:
            client = self._writer(service, ledger, 0)
            for _ in range(_WARM_UP):
                client.act()
            self._disk.settle()
            taken = [self._after(client, service, ledger) for _ in range(pictures)]
        return self._judged_by(ledger, tally, taken, Plan(pictures, 0, real_every=0, is_checked=False))

    def run_command(self, command: str, pictures: int, without: str = "") -> Tally:
        """A command beside a service that answers nobody, from its first change on, and right after its end.

        ``without`` names a protection that it does not have; what was there before is made durable for it then.
        """
        tally, ledger = self._tally(f"{command} without {without}" if without else command), Ledger()
        name = f"{command}{without}"
        with self._service(name) as service:
            prepared = COMMANDS[command](service, self._directory / f"{name}-source")
            if without:
                self._disk.settle()
            variant = weak(without) if without else Variant()
            arguments = (*prepared.arguments, "--data", str(service.data))
            with variant.start(*arguments, directory=self._directory) as process:
                taken = self._while_running(process, service, ledger, pictures)
            end = ledger.tick()
            taken.append(self._picture(service, ledger))

        def judge(picture: Picture, data: Path) -> Verdict:
            is_over = picture.cut.began > end
            return self._judges.submit(judge_command, data, prepared, is_over=is_over).result()

        return self._judged(tally, taken, judge)

    def _tally(self, name: str) -> Tally:
        return Tally(f"{self._disk.kind}, {name}", _HEADINGS)

    def _while_running(
        self, process: subprocess.Popen[str], service: Service, ledger: Ledger, pictures: int
    ) -> list[Picture]:
        """About as many pictures as wanted, evenly chosen from all that were taken."""
        rng, forms = random.Random(pictures), service.data / "hr"
        before, taken = set(forms.rglob("*")), list[Picture]()
        while process.poll() is None:
            if taken or set(forms.rglob("*")) != before:
                taken.append(self._picture(service, ledger))
            time.sleep(rng.uniform(0, _LONGEST_GAP))
        if process.returncode != 0:
            raise RuntimeError(f"{process.args!r} ends with {process.returncode}")
        chosen = taken[:: max(1, -(-len(taken) // pictures))]
        for each in taken:
            if each not in chosen:
                each.image.unlink()
        return chosen

    def _writer(self, service: Service, ledger: Ledger, number: int) -> Writer:
        client = Writer(service, ledger, number, large=_LARGE)
        client.violations = self._answered  # of all clients
        client.begin()
        return client

    def _service(self, name: str, variant: Variant | None = None) -> AbstractContextManager[Service]:
        """A service in a directory on the disk, durable as one that an administrator made long ago."""
        home, own = self._disk.root / name, variant or Variant()
        home.mkdir()
        self._disk.settle()
        return running(
            home, workers=_WORKERS, log=self._log(name), module=own.module, env={**own.environment, **WITH_EVENTS}
        )

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _after(self, client: Writer, service: Service, ledger: Ledger) -> Picture:
        for _ in range(1 + self._pictures % _LONGEST_ROW):
            client.act()
        return self._picture(service, ledger)

    def _under_load(self, service: Service, ledger: Ledger, pictures: int) -> list[Picture]:
        rng, taken = random.Random(pictures), list[Picture]()
        clients = [self._writer(service, ledger, number) for number in range(1, _CLIENTS + 1)]
        with working([client.act for client in clients]) as over:
            for _ in range(pictures):
                over.wait(rng.uniform(0, _LONGEST_GAP))
                taken.append(self._picture(service, ledger))
        return taken

    def _picture(self, service: Service, ledger: Ledger) -> Picture:
        self._pictures += 1
        shown = tuple(judging.changes(service))
        began = ledger.tick()
        image = self._disk.picture(f"picture{self._pictures}.img")
        data = service.data.relative_to(self._disk.root)
        return Picture(self._pictures, image, data, Cut(began, ledger.tick()), shown)

    def _judged_by(self, ledger: Ledger, tally: Tally, pictures: list[Picture], plan: Plan) -> Tally:
        tally["writes"] = ledger.writes
        for picture in pictures:
            tally["acknowledged before the cut"] += ledger.acknowledged(picture.cut)
            tally["in flight at the cut"] += ledger.in_flight(picture.cut)
            tally["started for real"] += plan.is_real(picture)

        def judge(picture: Picture, data: Path) -> Verdict:
            expected = ledger.at(picture.cut)
            if not plan.is_real(picture):
                verdict = self._judges.submit(judging.start_and_judge, data, expected, picture.shown).result()
            else:
                try:
                    with running(data.parent, workers=_WORKERS, log=self._log(data.parents[1].name)) as service:
                        verdict = judging.judge(service, data, expected)
                except RuntimeError as error:
                    verdict = Verdict([str(error)])
            if plan.is_checked:
                verdict.violations += self._judges.submit(judging.check_and_repair, data).result()
            return verdict

        return self._judged(tally, pictures, judge)

    def _judged(self, tally: Tally, pictures: list[Picture], judge: Callable[[Picture, Path], Verdict]) -> Tally:
        def verdict_on(picture: Picture) -> Verdict:
            with self._disk.restored(picture.image, self._directory / f"cut{picture.number}") as root:
                return judge(picture, root / picture.data)

        with ThreadPoolExecutor(_JUDGES) as threads:
            pending = [threads.submit(verdict_on, picture) for picture in pictures]
            try:
                for picture, judged in zip(pictures, pending, strict=True):
                    verdict = judged.result()
                    tally["snapshots"] += 1
                    tally["states read"] += verdict.states
                    tally["older revisions read"] += verdict.older
                    tally[CAUGHT] += bool(verdict.violations)
                    tally.violations += prefixed(f"picture {picture.number}", verdict.violations)
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)  # the block waits for those that have begun
                raise
        tally.violations += self._answered
        self._answered.clear()
        return tally.ended()


@contextmanager
def judges(directory: Path) -> Iterator[ProcessPoolExecutor]:
    """Processes that judge, for the length of a block; what they log goes to a file."""
    log = str(directory / "judges.log")
    with ProcessPoolExecutor(
        _JUDGES, mp_context=get_context("spawn"), initializer=judging.prepare_process, initargs=(log,)
    ) as pool:
        yield pool


# Commands that the power is cut under: an import, and a purge.

_REQUESTS = 60
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
    client = _Naming(service, ledger, 0, large=1)
    client.begin()
    for _ in range(_REQUESTS):
        client.act()
    assert client.violations == []
    now = ledger.tick()
    return ledger.at(Cut(now, now))


def judge_command(data: Path, prepared: Prepared, *, is_over: bool) -> Verdict:
    """Judge a disk whose power was cut under a command; repair it, run the command again, and judge what is there."""
    with judging.fork() as own:
        cut = prepared.after if is_over else prepared.until
        in_order = prepared.in_order and not is_over
        verdict = own.submit(judging.started_and_judged, data, cut, is_written=False, in_order=in_order).result()
    for step in (_deep_faults, _again_faults):
        with judging.fork() as own:
            verdict.violations += own.submit(step, data, prepared.arguments).result()
    again = judging.start_and_judge(data, prepared.after)
    again.violations = verdict.violations + [f"after the second run: {each}" for each in again.violations]
    again.states += verdict.states
    again.older += verdict.older
    return again


def _deep_faults(data: Path, _arguments: Sequence[str]) -> list[str]:
    code, damage = judging.check(data, "--deep", "--repair")
    is_done = code in (judging.NOTHING_FOUND, judging.ALL_REPAIRED)
    return damage if is_done else [f"check --deep --repair ends with {code}: {damage}"]


def _again_faults(data: Path, arguments: Sequence[str]) -> list[str]:
    result = CliRunner().invoke(commands, [*arguments, "--data", str(data)])
    if result.exit_code != 0:
        return [f"the second run ends with {result.exit_code}: {result.output} {result.exception!r}"]
    code, damage = judging.check(data, "--deep")
    return [] if code == judging.NOTHING_FOUND else [f"check --deep after the second run ends with {code}: {damage}"]


IMPORT = "import"
COMMANDS: dict[str, Callable[[Service, Path], Prepared]] = {IMPORT: _import, "purge": _purge}
"""What makes each command ready: with a service on the disk, and a directory that is not on it."""
