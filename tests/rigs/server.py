"""A service that is killed as a whole and started again on the same port, and what asks it meanwhile."""

from __future__ import annotations

import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.rigs import weakened
from tests.service import Answer, Service, alone

_PATIENCE = 60.0
_PAUSE = 0.05


class NoAnswerError(Exception):
    """A request was not answered for a minute, or refused where it must not be; the text says how."""


@dataclass(frozen=True, slots=True)
class Variant:
    """How the service is run: its module, and what is in the environment of the service and its commands."""

    module: str = "persistence.cli"
    environment: Mapping[str, str] = field(default_factory=dict)
    workers: int = 2
    options: tuple[str, ...] = ()

    def start(self, *command: str, directory: Path) -> subprocess.Popen[str]:
        """Start a command, in a process group of its own."""
        arguments, env = [sys.executable, "-m", self.module, *command], {**os.environ, **self.environment}
        pipe = subprocess.PIPE
        return subprocess.Popen(arguments, cwd=directory, env=env, stdout=pipe, stderr=pipe, text=True, process_group=0)


def kill_early(process: subprocess.Popen[str], rng: random.Random, latest: float) -> bool:
    """Kill a command at some moment with all that it has started, unless it has ended before."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(rng.uniform(0.2, latest))
    is_killed = False
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
        is_killed = True
    process.communicate()
    return is_killed


def weak(weakness: str) -> Variant:
    return Variant(weakened.__name__, weakened.environment(weakness))


class Server:
    """Starts and kills a service; ``service`` is the one of now."""

    def __init__(self, directory: Path, variant: Variant) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.variant = variant
        self.kills: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._starts = 0
        self.service = self._started("127.0.0.1:0")

    def close(self) -> None:
        self._stack.close()

    def kill_worker(self, rng: random.Random) -> None:
        with self._lock, suppress(ProcessLookupError, FileNotFoundError):
            if workers := self.service.workers():
                os.kill(rng.choice(workers), signal.SIGKILL)
                self.kills["workers killed"] += 1

    def kill(self) -> None:
        with self._lock:
            master = self.service.process.pid
            os.kill(master, signal.SIGSTOP)  # it must not start new workers meanwhile
            for pid in (*self.service.workers(), master):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._stack.close()
            self.kills["services killed"] += 1
            self.service = self._started(f"127.0.0.1:{self.service.port}")

    def _started(self, bind: str) -> Service:
        self._starts += 1
        log = self.directory / f"service-{self._starts}.log"
        variant = self.variant
        return self._stack.enter_context(
            alone(
                self.directory,
                workers=variant.workers,
                module=variant.module,
                env=variant.environment,
                bind=bind,
                log=log,
                options=variant.options,
            )
        )


class Line:
    """Requests of one client to the service of each time; those that were lost with a worker count as ``unknown``."""

    def __init__(self, service: Callable[[], Service]) -> None:
        self._service = service
        self.unknown = 0
        self.asked: Counter[str] = Counter()

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, **own: object
    ) -> Answer | None:
        """The answer, or ``None`` where it cannot be known whether the request was carried out.

        Where nobody listens, or it is 503 with ``Retry-After``, nothing was done: it is sent again.
        """
        deadline = time.monotonic() + _PATIENCE
        self.asked[method] += 1
        said = "nobody listens"
        while time.monotonic() < deadline:
            service = self._service()
            sent = {service.prefix + name.replace("_", "-"): str(value) for name, value in own.items()}
            try:
                answer = service.raw(method, path, {**(headers or {}), **sent}, body)
            except ConnectionRefusedError:
                time.sleep(_PAUSE)
                continue
            except TimeoutError as error:
                raise NoAnswerError(f"{method} {path} is not answered for {service.timeout:g} seconds") from error
            except (OSError, http.client.HTTPException):
                self.unknown += 1
                return None
            if answer.status != 503 or answer["Retry-After"] is None:
                return answer
            said = answer.cause
            time.sleep(_PAUSE)
        raise NoAnswerError(f"{method} {path} is not answered for {_PATIENCE:g} seconds: {said}")

    def read(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, **own: object
    ) -> Answer:
        """The answer to what changes nothing: it is sent until there is one."""
        while (answer := self.ask(method, path, body, headers, **own)) is None:
            pass
        return answer


class Actor:
    """Does one of its actions after the other, chosen by chance and their weights, and notes what is wrong."""

    def __init__(self, service: Callable[[], Service], number: int, seed: int) -> None:
        self.line = Line(service)
        self.violations: list[str] = []
        self.done: Counter[str] = Counter()
        self._rng = random.Random(seed * 1000 + number)
        self._number = number
        self._count = 0
        self._actions: dict[Callable[[], None], int] = {}

    def act(self) -> None:
        (action,) = self._rng.choices(list(self._actions), list(self._actions.values()))
        action()
        self.done[action.__name__] += 1

    def _expect(self, answer: Answer, what: str, *statuses: int) -> bool:
        if answer.status in statuses:
            return True
        self.violations.append(f"{what} is answered {answer.status}: {answer.body[:200]!r}")
        return False


# Clients at work, each in a thread, and what disturbs them now and then.

Disturbance = tuple[Callable[[], object], tuple[float, float] | None]
"""What is done, and the shortest and the longest pause before it in seconds; ``None`` where it is not."""


@contextmanager
def working(
    acts: Iterable[Callable[[], object]], disturbing: Iterable[Disturbance] = (), seed: int = 1
) -> Iterator[threading.Event]:
    """Do each act over and over for the length of a block; the event is for pauses in it."""
    over = threading.Event()
    every = [*((act, (0.0, 0.0)) for act in acts), *((act, pauses) for act, pauses in disturbing if pauses)]

    def repeat(number: int, act: Callable[[], object], pauses: tuple[float, float]) -> None:
        chance = random.Random(f"{seed} {number}")
        while not over.wait(chance.uniform(*pauses)):
            act()

    with ThreadPoolExecutor(len(every)) as threads:
        running = [threads.submit(repeat, number, *each) for number, each in enumerate(every)]
        try:
            yield over
        finally:
            over.set()
        for each in running:
            each.result()
