"""A run: the load on a disk, pictures of it, and a verdict on each."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from tests.rigs import judging, weakened
from tests.rigs.disks import Disk, Kind, disk
from tests.rigs.judging import Verdict
from tests.rigs.ledger import Cut, Expected, Ledger
from tests.rigs.powercut.commands import Command, Prepared, judge_command, started
from tests.rigs.powercut.writer import Writer
from tests.service import Service, running

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


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of the disk, the data directory in it, and the moment."""

    number: int
    image: Path
    data: Path
    cut: Cut


@dataclass(slots=True)
class Outcome:
    """What a run did and found, summed over its pictures but for ``writes``; ``caught`` are those with a violation."""

    kind: Kind
    at_rest: int = 0
    under_load: int = 0
    writes: int = 0
    acknowledged: int = 0
    in_flight: int = 0
    states: int = 0
    older: int = 0
    real: int = 0
    caught: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def pictures(self) -> int:
        return self.at_rest + self.under_load


class Rig:
    def __init__(self, made: Disk, directory: Path, judges: ProcessPoolExecutor) -> None:
        self._disk = made
        self._directory = directory
        self._judges = judges
        self._pictures = 0
        self._answered: list[str] = []
        """What was wrong with answers to the load."""

    def run(self, plan: Plan) -> Outcome:
        """The service as it is; nothing is synced for it, not even its new data directory."""
        began = time.monotonic()
        ledger = Ledger()
        with running(self._home("whole"), workers=_WORKERS, log=self._log("whole")) as service:
            taken = self._at_rest(service, ledger, plan.at_rest) + self._under_load(service, ledger, plan.under_load)
        outcome = self._judged(taken, ledger, plan)
        outcome.seconds = time.monotonic() - began
        return outcome

    def run_without(self, protection: str, pictures: int) -> Outcome:
        """The service with a protection taken away, under the same load at rest.

        What was there before the first picture is made durable for it, so that what is missed was acknowledged then.
        """
        began = time.monotonic()
        ledger, plan = Ledger(), Plan(pictures, 0, real_every=0, is_checked=False)
        home, log = self._home(protection), self._log(protection)
        own = {"module": weakened.__name__, "env": weakened.environment(protection)}
        with running(home, workers=_WORKERS, log=log, **own) as service:
            client = self._writer(service, ledger, 0)
            for _ in range(_WARM_UP):
                client.act()
            self._disk.settle()
            taken = [self._after(client, service, ledger) for _ in range(pictures)]
        outcome = self._judged(taken, ledger, plan)
        outcome.seconds = time.monotonic() - began
        return outcome

    def run_command(self, command: Command, pictures: int, without: str = "") -> Outcome:
        """A command beside a service that answers nobody, from its first change on, and right after its end.

        ``without`` names a protection that it does not have; what was there before is made durable for it then.
        """
        began = time.monotonic()
        ledger, name = Ledger(), f"{command.name}{without}"
        with running(self._home(name), workers=_WORKERS, log=self._log(name)) as service:
            prepared = command.prepare(service, self._directory / f"{name}-source")
            if without:
                self._disk.settle()
            with started(prepared.arguments, service.data, without) as process:
                taken = self._while_running(process, service, ledger, pictures)
            end = ledger.tick()
            last = self._picture(service, ledger)
        outcome = Outcome(self._disk.kind, under_load=len(taken), at_rest=1)
        with ThreadPoolExecutor(_JUDGES) as threads:
            verdicts = threads.map(lambda each: self._command_verdict(each, prepared, end), (*taken, last))
            for picture, verdict in zip((*taken, last), verdicts, strict=True):
                self._count(outcome, picture, verdict)
        outcome.seconds = time.monotonic() - began
        return outcome

    def _while_running(
        self, process: subprocess.Popen[bytes], service: Service, ledger: Ledger, pictures: int
    ) -> list[Picture]:
        """About as many pictures as wanted, evenly chosen from all that were taken."""
        rng, forms = random.Random(pictures), service.data / "hr"
        before, taken = _names(forms), list[Picture]()
        while process.poll() is None:
            if taken or _names(forms) != before:
                taken.append(self._picture(service, ledger))
            time.sleep(rng.uniform(0, _LONGEST_GAP))
        if process.returncode != 0:
            raise RuntimeError(f"{process.args!r} ends with {process.returncode}")
        chosen = taken[:: max(1, -(-len(taken) // pictures))]
        for each in taken:
            if each not in chosen:
                each.image.unlink()
        return chosen

    def _command_verdict(self, picture: Picture, prepared: Prepared, end: int) -> Verdict:
        with self._disk.restored(picture.image, self._directory / f"cut{picture.number}") as root:
            is_over = picture.cut.began > end
            return self._judges.submit(judge_command, root / picture.data, prepared, is_over=is_over).result()

    def _writer(self, service: Service, ledger: Ledger, number: int) -> Writer:
        client = Writer(service, ledger, number, large=_LARGE)
        client.violations = self._answered  # of all clients
        client.begin()
        return client

    def _home(self, name: str) -> Path:
        """A directory on the disk, durable as one that an administrator made long ago."""
        home = self._disk.root / name
        home.mkdir()
        self._disk.settle()
        return home

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _at_rest(self, service: Service, ledger: Ledger, pictures: int) -> list[Picture]:
        client = self._writer(service, ledger, 0)
        return [self._after(client, service, ledger) for _ in range(pictures)]

    def _after(self, client: Writer, service: Service, ledger: Ledger) -> Picture:
        """A picture right after the last of a few requests."""
        for _ in range(1 + self._pictures % _LONGEST_ROW):
            client.act()
        return self._picture(service, ledger)

    def _under_load(self, service: Service, ledger: Ledger, pictures: int) -> list[Picture]:
        """Pictures at random moments while clients write as fast as they can."""
        rng = random.Random(pictures)
        stop = threading.Event()

        def load(number: int) -> None:
            client = self._writer(service, ledger, number)
            while not stop.is_set():
                client.act()

        taken = []
        with ThreadPoolExecutor(_CLIENTS) as clients:
            loads = [clients.submit(load, number) for number in range(1, _CLIENTS + 1)]
            try:
                for _ in range(pictures):
                    stop.wait(rng.uniform(0, _LONGEST_GAP))
                    taken.append(self._picture(service, ledger))
            finally:
                stop.set()
            for each in loads:
                each.result()
        return taken

    def _picture(self, service: Service, ledger: Ledger) -> Picture:
        self._pictures += 1
        began = ledger.tick()
        image = self._disk.picture(f"picture{self._pictures}.img")
        return Picture(self._pictures, image, service.data.relative_to(self._disk.root), Cut(began, ledger.tick()))

    def _judged(self, pictures: list[Picture], ledger: Ledger, plan: Plan) -> Outcome:
        outcome = Outcome(self._disk.kind, plan.at_rest, plan.under_load, writes=ledger.writes)
        with ThreadPoolExecutor(_JUDGES) as threads:
            pending = [threads.submit(self._verdict, picture, ledger, plan) for picture in pictures]
            try:
                for picture, judged in zip(pictures, pending, strict=True):
                    self._count(outcome, picture, judged.result())
                    outcome.acknowledged += ledger.acknowledged(picture.cut)
                    outcome.in_flight += ledger.in_flight(picture.cut)
                    outcome.real += plan.is_real(picture)
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)  # the block waits for those that have begun
                raise
        outcome.violations += self._answered
        self._answered.clear()
        return outcome

    @staticmethod
    def _count(outcome: Outcome, picture: Picture, verdict: Verdict) -> None:
        outcome.states += verdict.states
        outcome.older += verdict.older
        outcome.caught += bool(verdict.violations)
        outcome.violations += [f"{outcome.kind}, picture {picture.number}: {each}" for each in verdict.violations]

    def _verdict(self, picture: Picture, ledger: Ledger, plan: Plan) -> Verdict:
        expected = ledger.at(picture.cut)
        with self._disk.restored(picture.image, self._directory / f"cut{picture.number}") as root:
            data = root / picture.data
            if plan.is_real(picture):
                verdict = self._judge_for_real(data, expected)
            else:
                verdict = self._judges.submit(judging.start_and_judge, data, expected).result()
            if plan.is_checked:
                verdict.violations += self._judges.submit(judging.check_and_repair, data).result()
        return verdict

    def _judge_for_real(self, data: Path, expected: Sequence[Expected]) -> Verdict:
        try:
            with running(data.parent, workers=_WORKERS, log=self._log(data.parents[1].name)) as service:
                return judging.judge(service, data, expected)
        except RuntimeError as error:
            return Verdict([str(error)])


def _names(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))


@contextmanager
def judges(directory: Path) -> Iterator[ProcessPoolExecutor]:
    """Processes that judge, for the length of a block; what they log goes to a file."""
    log = str(directory / "judges.log")
    with ProcessPoolExecutor(
        _JUDGES, mp_context=get_context("spawn"), initializer=judging.prepare_process, initargs=(log,)
    ) as pool:
        yield pool


@contextmanager
def rig(kind: Kind, directory: Path, pool: ProcessPoolExecutor) -> Iterator[Rig]:
    """A rig on a new disk below a directory.

    Raises:
        DiskError: such a disk cannot be had here.
    """
    with disk(kind, directory) as made:
        yield Rig(made, directory, pool)
