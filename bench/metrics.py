"""The cost of the metrics: processor time of GETs and PUTs with and without them, in turn, in one process.

What a worker does once a second is counted as often as 300 requests a second would have it. The time of gunicorn is not
in it, so the true part is smaller. Prints the ratio of the fastest tenths of the batches; judges nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from io import BytesIO

from client import BODY

from persistence.app import Service, create_app
from persistence.providers.opened import init_places
from persistence.settings import load

_PATH = "/crud/bench/form/data/{}/data.xml"
_BATCH = 20
_BATCHES_OF_A_SECOND = 15


def _application(directory: str, *, has_metrics: bool) -> Service:
    environment = {
        "PERSISTENCE_DATA": f"{directory}/data",
        "PERSISTENCE_KEYS": f"{directory}/keys.json",
        "PERSISTENCE_METRICS": str(has_metrics).lower(),
    }
    effective = load(environment=environment)
    init_places(effective.settings, effective.properties)
    return create_app(effective.settings, effective.properties)


def _ask(app: Service, method: str, number: int) -> None:
    path = _PATH.format(number)
    environ = {
        "REQUEST_METHOD": method,
        "RAW_URI": path,
        "PATH_INFO": path,
        "SCRIPT_NAME": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "localhost",
        "HTTP_SVC_USERNAME": "lea",
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(BODY),
    }
    if method == "PUT":
        environ |= {"CONTENT_TYPE": "application/xml", "CONTENT_LENGTH": str(len(BODY))}
    body = app.wsgi_app(environ, lambda *_: lambda _: None)
    for _ in body:
        pass
    close = getattr(body, "close", None)
    if close is not None:
        close()


def _seconds(app: Service, method: str, first: int) -> float:
    """Return the processor time of a request in this thread, on average of a batch."""
    began = time.thread_time()
    for number in range(_BATCH):
        _ask(app, method, first + number)
    return (time.thread_time() - began) / _BATCH


def _tick(app: Service) -> float:
    began = time.thread_time()
    app.tick()
    return (time.thread_time() - began) / _BATCH / _BATCHES_OF_A_SECOND


def _measure(apps: tuple[Service, Service], method: str, batches: int) -> None:
    times: tuple[list[float], list[float]] = ([], [])
    ticks: list[float] = []
    for batch in range(batches):
        for which in (0, 1) if batch % 2 else (1, 0):
            first = 0 if method == "GET" else batch * _BATCH
            times[which].append(_seconds(apps[which], method, first))
        if batch % _BATCHES_OF_A_SECOND == 0:
            ticks.append(_tick(apps[1]))
    without, own, tick = (sorted(each)[len(each) // 10] for each in (*times, ticks))
    print(f"{method}: {without * 1e6:.0f} µs, with metrics {(own + tick) / without:.3f} times that", flush=True)


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--batches", type=int, default=1500, help="batches of each")
    arguments.add_argument("--data", default=None, help="directory to write in (default: a temporary one)")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.data) as directory, ExitStack() as stack:
        without = stack.enter_context(_application(f"{directory}/without", has_metrics=False))
        own = stack.enter_context(_application(f"{directory}/with", has_metrics=True))
        for method in ("PUT", "GET"):
            _measure((without, own), method, options.batches)


if __name__ == "__main__":
    main()
