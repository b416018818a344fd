"""Whether searches find what is stored, compared with what can be read: for rigs that know nothing of an index."""

import time
from collections.abc import Iterator
from pathlib import Path

from persistence.storage.layout import JOURNAL
from tests.orders import found
from tests.service import Answer, Service

_PATIENCE = 60.0
_PAUSE = 0.005
_USER = {"Content-Type": "application/xml", "Svc-Username": "ann"}
"""Somebody, because drafts are not shown to nobody."""


def faults(service: Service, form: str, *words: str) -> Iterator[str]:
    """All that is wrong with searches for texts, and for everything, in a form given as ``app/form``."""
    stored = dict(_stored(service, form))
    for word in (*words, ""):
        expected = {name for name, content in stored.items() if word.encode() in content}
        answer = answered(
            service, f"/search/{form}", f"<search><query>{word}</query><page-size>99</page-size></search>"
        )
        if answer.status != 200:
            yield f"a search for {word!r} is answered {answer.status}: {answer.cause}"
        elif (shown := sorted(found(answer.body))) != sorted(expected):
            yield f"a search for {word!r} finds {shown} instead of {sorted(expected)}"


def await_index(service: Service, form: str) -> None:
    """Wait until a form has an index, which is right, and until nothing is noted any more: all of it has been told."""
    found = list(faults(service, form))
    assert found == [], found
    await_notes(service)


def await_notes(service: Service) -> None:
    """Wait until nothing is noted any more: the index has taken in all changes."""
    deadline = time.monotonic() + _PATIENCE
    while any(_size(log) for log in (service.data / JOURNAL).glob("*")):
        assert time.monotonic() < deadline, "the service does not take in what is noted"
        time.sleep(_PAUSE)


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def _stored(service: Service, form: str) -> Iterator[tuple[str, bytes]]:
    """The documents and drafts that can be read, as ``orders.found`` names them."""
    for collection, ring in (("data", ""), ("draft", "°")):
        for directory in (service.data / form / collection).glob("*"):
            answer = service.get(f"{form}/{collection}/{directory.name}/data.xml")
            if answer.status == 200:
                yield f"{directory.name}{ring}", answer.body


def answered(service: Service, path: str, query: str) -> Answer:
    """The answer; a search that is too early is repeated, as it says."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        answer = service.raw("POST", path, _USER, query.encode())
        if answer.status != 503 or answer["Retry-After"] is None or time.monotonic() > deadline:
            return answer
        time.sleep(_PAUSE)
