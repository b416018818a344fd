"""Faults while something is read: an error or the whole content, and never half of it as if it were whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.rigs.faults.judge import Outcome, refusal_faults
from tests.rigs.faults.trial import LOOKING, logs_below, open_below
from tests.rigs.scenarios import LARGE, OLD
from tests.rigs.strikes import Injector, Point, Struck
from tests.rigs.views import view_of
from tests.service import Answer, Service

READING = ("openat", "openat2", *LOOKING, "sendfile")
"""The calls by which content, sidecars and lists of names come from the disk."""

ENDS_EARLY = "ends early"
_PATIENCE = 5.0
_RELEVANT = b"<d><a>" + b"text" * 100 + b"</a>" + b"<b relevant='false'>text</b>" * 20 + b"</d>"


@dataclass(frozen=True, slots=True)
class Reading:
    title: str
    path: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()

    def ask(self, service: Service) -> Answer:
        return service.ask(self.method, f"app/form/{self.path}", None, dict(self.headers))


def prepared(service: Service) -> tuple[Reading, ...]:
    first = service.put("app/form/data/D/data.xml", OLD)
    stored = (
        first,
        service.put("app/form/data/D/data.xml", _RELEVANT),
        service.put("app/form/data/L/data.xml", b"<d>" + _RELEVANT * 400 + b"</d>"),
        service.put("app/form/data/D/file.bin", OLD),
        service.put("app/form/data/D/large.bin", LARGE),
        service.put("app/form/form/form.xhtml", OLD, Form_Definition_Version=1),
        service.put("app/form/form/form.xhtml", OLD, Form_Definition_Version="next"),
    )
    assert {answer.status for answer in stored} <= {201, 204}
    return (
        Reading("GET data", "data/D/data.xml"),
        Reading("HEAD data", "data/D/data.xml", "HEAD"),
        Reading("GET older data", f"data/D/data.xml?last-modified-time={first['Svc-Last-Modified']}"),
        Reading("GET relevant data", "data/D/data.xml?nonrelevant=remove"),
        Reading("GET large relevant data", "data/L/data.xml?nonrelevant=remove"),
        Reading("GET attachment", "data/D/file.bin"),
        Reading("GET large attachment", "data/D/large.bin"),
        Reading("GET range", "data/D/large.bin", headers=(("Range", "bytes=100-300000"),)),
        Reading("GET form", "form/form.xhtml"),
    )


def meet(service: Service, directory: Path, reading: Reading) -> Iterator[Outcome]:
    """Let every call of a reading request fail in turn, with each error that may come of it."""
    patient = replace(service, timeout=_PATIENCE)
    (worker,) = service.workers()
    injector = Injector(service, directory)
    ask = partial(reading.ask, patient)
    whole = ask()
    held = _held(service, worker) | logs_below(service.data)
    points = [point for point in injector.points(ask, READING) if point.about]
    for point in points:
        for error in _errors_of(point):
            effect = "retval=0" if error == ENDS_EARLY else f"error={error}"
            struck = injector.strike(point, effect, ask)
            if struck.hit and not struck.is_at(point):  # the interpreter made a call of its own
                struck = injector.strike(point, effect, ask)
            kind, faults = _judged(point, points[-1], error, struck, whole)
            again = ask()
            if view_of(again) != view_of(whole):
                faults.append(f"the next time it is answered {again.status}")
            if more := _held(service, worker) - held:
                faults.append(f"the worker holds {more}")
                held += more
            yield Outcome(point, error, kind, tuple(faults))


def _held(service: Service, worker: int) -> Counter[str]:
    service.raw("GET", "/healthz")  # the only thread has ended what it did before
    return open_below(worker, service.data)


def _errors_of(point: Point) -> tuple[str, ...]:
    if point.call in {"openat", "openat2"}:
        return "EIO", "EMFILE"
    if point.call in {"read", "sendfile"}:
        return "EIO", ENDS_EARLY
    return ("EIO",)


def _judged(point: Point, last: Point, error: str, struck: Struck, whole: Answer) -> tuple[str, list[str]]:
    answer, missed = struck.answer, not struck.is_at(point)
    # The last look for more, after the last byte has gone out, may come too late to be traced.
    is_late = not struck.hit and point == last and answer is not None and view_of(answer) == view_of(whole)
    faults = [f"the fault struck {struck.hit}"] if missed and not is_late else []
    if answer is None:
        if not struck.broken.startswith(("IncompleteRead", "RemoteDisconnected")):
            faults.append(f"the connection was not closed: {struck.broken}")
        return "cut off", faults
    if answer.status == whole.status:
        if view_of(answer) != view_of(whole):
            faults.append("answered as whole, and it is not")
        return "whole", faults
    if error != ENDS_EARLY and whole.body:
        faults += refusal_faults(answer, error)
    elif answer.status != 500 or answer.body.count(b"\n") != bool(whole.body):
        faults.append(f"answered {answer.status}: {answer.body[:100]!r}")
    return "refused", faults
