"""Writers who look, after each answer, whether they find what they have stored, and nothing else any more."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests import orders
from tests.orders import found
from tests.published import Planter
from tests.service import Service

_FORM = "acme/order"
_PATIENCE = 60.0
_PAUSE = 0.05
_DOCUMENTS = 4


@dataclass(slots=True)
class Raced:
    """What was done, and what was wrong; ``longest`` in seconds is how long a search had to be repeated."""

    writes: int = 0
    searches: int = 0
    busy: int = 0
    longest: float = 0.0
    disturbances: int = 0
    violations: list[str] = field(default_factory=list)


def body(text: str) -> bytes:
    values = f"<name>{text}</name><email>{text}@example.org</email><notes>of {text}</notes>"
    return f"<form><customer>{values}</customer></form>".encode()


def plant(planter: Planter, documents: int) -> None:
    """The form, and documents that nobody changes."""
    planter.define(_FORM, 1, orders.definition(), orders.PUBLISHED)
    for number in range(documents):
        planter.save(_FORM, f"old-{number}", body(f"old {number}"), f"2024-05-01T10:00:00.{number % 1000:03}Z")


class Racer:
    """Threads that write and search; ``disturb`` is done over and over meanwhile."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.raced = Raced()

    def run(self, seconds: float, writers: int, disturb: Callable[[], None] | None = None, *, least: int = 0) -> Raced:
        """Race for some seconds, and on a busy machine until there were so many writes."""
        end = time.monotonic() + _PATIENCE
        with ThreadPoolExecutor(writers + 1) as threads:
            running = [threads.submit(self._write, number) for number in range(writers)]
            if disturb is not None:
                running.append(threads.submit(self._disturb, disturb))
            self._stop.wait(seconds)
            while self.raced.writes < least and not self.raced.violations and time.monotonic() < end:
                self._stop.wait(_PAUSE)
            self._stop.set()
            for each in running:
                each.result()
        return self.raced

    def search(self, text: str, user: str = "ann") -> list[str]:
        """What is found; a search that is too early is repeated, as the answer says."""
        began = time.monotonic()
        path = f"{self._service.face}/search/{_FORM}"
        while True:
            answer = self._service.raw(
                "POST", path, {"Content-Type": "application/xml", "Svc-Username": user}, text.encode()
            )
            with self._lock:
                self.raced.searches += 1
                self.raced.longest = max(self.raced.longest, time.monotonic() - began)
            if answer.status == 200:
                return found(answer.body)
            if answer.status != 503 or answer["Retry-After"] is None or time.monotonic() > began + _PATIENCE:
                self._wrong(f"a search is answered {answer.status}: {answer.cause}")
                return []
            with self._lock:
                self.raced.busy += 1
            time.sleep(_PAUSE)

    def _wrong(self, text: str) -> None:
        with self._lock:
            self.raced.violations.append(text)

    def _disturb(self, disturb: Callable[[], None]) -> None:
        while not self._stop.is_set():
            disturb()
            self.raced.disturbances += 1

    def _write(self, number: int) -> None:
        rng = random.Random(number)
        stored: dict[str, str] = {}
        for turn in range(1_000_000):
            if self._stop.is_set():
                return
            name = f"w{number}-{rng.randrange(_DOCUMENTS)}"
            collection = rng.choice(("data", "data", "draft"))
            old = stored.pop(f"{collection}/{name}", None)
            drafted = stored.pop(f"draft/{name}", None) if collection == "data" else None
            text, ring = f"t{number}x{turn}x", "°" if collection == "draft" else ""
            path = f"{_FORM}/{collection}/{name}/data.xml"
            if old is not None and rng.random() < 0.3:
                answer = self._service.delete(path, Username="ann", Form_Definition_Version="1")
            else:
                answer = self._service.put(path, body(text), Username="ann", Form_Definition_Version="1")
                stored[f"{collection}/{name}"] = text
            if answer.status not in (201, 204):
                self._wrong(f"a write is answered {answer.status}: {answer.cause}")
                return
            with self._lock:
                self.raced.writes += 1
            if stored.get(f"{collection}/{name}") == text:
                self._expect(rng, text, [name + ring])
            for gone in (old, drafted):
                if gone is not None:
                    self._expect(rng, gone, [])

    def _expect(self, rng: random.Random, text: str, names: list[str]) -> None:
        query = rng.choice(
            (
                f"<search><query>{text}</query></search>",
                f'<search><query path="customer/name" match="exact">{text}</query></search>',
                f'<search><query path="customer/name" match="substring">{text.upper()}</query></search>',
            )
        )
        seen = self.search(query)
        if seen != names:
            self._wrong(f"{query} finds {seen} instead of {names}")


def reindexing(service: Service) -> Callable[[], None]:
    """Rebuild the index, over HTTP."""

    def once() -> None:
        answer = service.raw("POST", f"{service.face}/reindex", {}, b"")
        assert answer.status == 200, answer.cause

    return once


def republishing(service: Service) -> Callable[[], None]:
    """Publish the form with one control more in the index, and with one less."""
    whole = orders.definition()
    fewer = whole.replace(b' class="fr-search"/>', b"/>", 1)
    assert fewer != whole
    turns = 0

    def once() -> None:
        nonlocal turns
        turns += 1
        answer = service.put(
            f"{_FORM}/form/form.xhtml",
            fewer if turns % 2 else whole,
            {"Content-Type": "application/xhtml+xml"},
            Form_Definition_Version="1",
        )
        assert answer.status == 204, answer.cause
        time.sleep(0.2)

    return once
