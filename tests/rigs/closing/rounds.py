"""A process that opens and closes an application again and again: ``python -m tests.rigs.closing.rounds FILE ROUNDS``.

It prints what it has after the warm-up and at its end, as JSON: threads, descriptors, children, and KiB of memory.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from flask.testing import FlaskClient

from persistence.app import create_app
from persistence.http.responses import rfc1123
from persistence.limits import OBSERVATIONS_KEPT
from persistence.metrics.observations import FSYNCS, LOCK_WAITS
from persistence.model.texts import epoch_seconds, from_datetime
from persistence.settings import load
from tests import encrypted_form, orders
from tests.orders import found
from tests.rigs.processes import Process
from tests.service import PUBLIC

WARM_UP = 60
"""Rounds until everything is imported, and memory has found its size."""

_INSTANTS = 1024
"""As many as the caches of ``model.texts`` and ``http.responses`` keep."""

ENVIRONMENT = {"PERSISTENCE_ENCRYPTION_KEY": f"k1:{'ab' * 32}"}

_CRUD = f"{PUBLIC}/crud"
_VERSION = {"Svc-Form-Definition-Version": "1"}
_ORDER = b"<form><customer><name>Ann</name></customer></form>"


def main() -> None:
    file, rounds = sys.argv[1], int(sys.argv[2])
    _fill_caches()
    _report(_done(file, range(WARM_UP)))
    _report(_done(file, range(WARM_UP, WARM_UP + rounds)))


def _done(file: str, numbers: Sequence[int]) -> int:
    effective = load(file, environment=ENVIRONMENT)
    for number in numbers:
        with create_app(effective.settings, effective.properties) as app:
            serve = _SERVED[number % len(_SERVED)]
            if serve is not None:
                serve(app.test_client(), number)
    return len(numbers)


def _store_and_search(client: FlaskClient, number: int) -> None:
    """In a tree, and in that of a datasource."""
    for app in ("hr", "acme"):
        put(client, f"{app}/order/form/form.xhtml", orders.definition())
        put(client, f"{app}/order/data/D{number % 10}/data.xml", _ORDER)
        answer = client.post(f"{PUBLIC}/search/{app}/order", data=b"<search><query>ann</query></search>")
        assert f"D{number % 10}" in found(answer.data), answer.text


def _call_another(client: FlaskClient, number: int) -> None:
    put(client, f"far/order/data/D{number % 10}/data.xml", _ORDER)
    assert client.get(f"{_CRUD}/far/order/data/D{number % 10}/data.xml").data == _ORDER


def _encrypt(client: FlaskClient, number: int) -> None:
    """And begin to re-encrypt everything, which the end of the application ends."""
    put(client, "hr/sealed/form/form.xhtml", encrypted_form.DEFINITION)
    put(client, f"hr/sealed/data/D{number % 10}/data.xml", encrypted_form.data())
    assert client.post(f"{PUBLIC}/reencrypt/hr/sealed").status_code in (200, 204)


_Serve = Callable[[FlaskClient, int], None]
_SERVED: Sequence[_Serve | None] = (None, _store_and_search, None, _call_another, None, _encrypt)


def put(client: FlaskClient, path: str, body: bytes) -> None:
    answer = client.put(f"{_CRUD}/{path}", data=body, headers=_VERSION)
    assert answer.status_code in (201, 204), answer.text


def _fill_caches() -> None:
    """Fill the caches of the process that are bounded by a number: they are not an application's.

    Twice for those of instants, as a dictionary grows once more when entries are replaced.
    """
    for second in range(2 * _INSTANTS):
        epoch_seconds(from_datetime(datetime.fromtimestamp(second, UTC)))
        rfc1123(from_datetime(datetime.fromtimestamp(second, UTC)))
    for observations in (FSYNCS, LOCK_WAITS):
        observations.extend(map(float, range(OBSERVATIONS_KEPT)))


def _report(rounds: int) -> None:
    """Print what the process has, without the memory that the allocator keeps for the next request."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    own = Process(os.getpid())
    tasks = Path("/proc/self/task").iterdir()
    held = {
        "rounds": rounds,
        "threads": sorted(each.name for each in threading.enumerate()),
        "descriptors": sorted(own.opened.elements()),
        "children": [pid for task in tasks for pid in (task / "children").read_text().split()],
        "memory": own.status("VmRSS"),
    }
    sys.stdout.write(json.dumps(held) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
