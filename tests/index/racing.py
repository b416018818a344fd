"""Writers who look, after each answer, whether they find what they have stored, and nothing else any more."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from itertools import count

from tests import orders
from tests.orders import found
from tests.published import Planter
from tests.rigs.report import Tally
from tests.rigs.server import working
from tests.service import Service

_FORM = "acme/order"
_PATIENCE = 60.0
_PAUSE = 0.05
_DOCUMENTS = 4
_LONGEST = "longest wait, ms"
_HEADINGS = ("times", "writes", "searches", "told to come back", _LONGEST)


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

    def __init__(self, service: Service, name: str = "") -> None:
        self.raced = Tally(name, _HEADINGS)
        self._service = service
        self._numbers = count()

    def run(self, seconds: float, writers: int, disturb: Callable[[], None] | None = None, *, least: int = 0) -> Tally:
        """Race for some seconds, and on a busy machine until there were so many writes."""
        end, raced = time.monotonic() + _PATIENCE, self.raced
        acts = [partial(self._write, number, random.Random(number), {}) for number in range(writers)]
        if disturb is not None:
            acts.append(partial(self._disturb, disturb))
        with working(acts) as over:
            over.wait(seconds)
            while raced["writes"] < least and not raced.violations and time.monotonic() < end:
                over.wait(_PAUSE)
        return raced.ended()

    def search(self, text: str, user: str = "ann") -> list[str]:
        """What is found; a search that is too early is repeated, as the answer says."""
        began, raced = time.monotonic(), self.raced
        headers = {"Content-Type": "application/xml", "Svc-Username": user}
        while True:
            answer = self._service.raw("POST", f"{self._service.face}/search/{_FORM}", headers, text.encode())
            raced["searches"] += 1
            raced[_LONGEST] = max(raced[_LONGEST], round(1000 * (time.monotonic() - began)))
            if answer.status == 200:
                return found(answer.body)
            if answer.status != 503 or answer["Retry-After"] is None or time.monotonic() > began + _PATIENCE:
                raced.violations.append(f"a search is answered {answer.status}: {answer.cause}")
                return []
            raced["told to come back"] += 1
            time.sleep(_PAUSE)

    def _disturb(self, disturb: Callable[[], None]) -> None:
        disturb()
        self.raced["times"] += 1

    def _write(self, number: int, rng: random.Random, stored: dict[str, str]) -> None:
        """Store, replace or delete a document or draft, and look for it, for what was there, and for its draft."""
        name = f"w{number}-{rng.randrange(_DOCUMENTS)}"
        collection = rng.choice(("data", "data", "draft"))
        old = stored.pop(f"{collection}/{name}", None)
        drafted = stored.pop(f"draft/{name}", None) if collection == "data" else None
        text, path = f"t{number}x{next(self._numbers)}x", f"{_FORM}/{collection}/{name}/data.xml"
        if old is not None and rng.random() < 0.3:
            answer = self._service.delete(path, Username="ann", Form_Definition_Version="1")
        else:
            answer = self._service.put(path, body(text), Username="ann", Form_Definition_Version="1")
            stored[f"{collection}/{name}"] = text
        if answer.status not in (201, 204):
            self.raced.violations.append(f"a write is answered {answer.status}: {answer.cause}")
            return
        self.raced["writes"] += 1
        if stored.get(f"{collection}/{name}") == text:
            self._expect(rng, text, [name + ("°" if collection == "draft" else "")])
        for gone in filter(None, (old, drafted)):
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
            self.raced.violations.append(f"{query} finds {seen} instead of {names}")


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
