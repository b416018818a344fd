"""The cost of the audit and of events for a PUT: the same service with and without them, in turn, in one run.

In the process itself (no network), and by one client on one worker: the tenth part of the times, PUT by PUT in turn, so
that what else the machine does counts little. By eight clients on two workers: the best tenth of the rates of short
spans. Prints ratios to the service without either; judges nothing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import BytesIO

from client import BODY, Connection, new, putting
from servers import SERVICE, served, server
from wrk import rate

from persistence.app import create_app
from persistence.providers.opened import init_places
from persistence.settings import load

_MODES: dict[str, dict[str, str]] = {
    "off": {"AUDIT": "off"},
    "file": {"AUDIT": "file"},
    "signed": {"AUDIT": "file", "AUDIT_SIGNED": "true"},
    "required": {"AUDIT": "file", "AUDIT_REQUIRED": "true"},
    "each line synced": {"AUDIT": "file", "AUDIT_SYNC": "line"},
    "events": {"EVENTS": "true"},
    "a webhook": {"EVENTS": "true"},
}
_PATH = "/crud/bench/form/data/{}/data.xml"
_TENTH = 10


def _environment(mode: str, directory: str, target: int) -> dict[str, str]:
    """Return the settings of a mode; ``target`` is the port of a webhook."""
    os.makedirs(directory, exist_ok=True)
    with open(f"{directory}/persistence.toml", "w", encoding="utf-8") as file:
        if mode == "a webhook":
            file.write(f'[webhook.bench]\nurl = "http://127.0.0.1:{target}/"\nsecret = "whsec_{"QUFB" * 8}"\n')
    own = {
        "CONFIG": file.name,
        "DATA": f"{directory}/data",
        "KEYS": f"{directory}/keys.json",
        "AUDIT_FILE": f"{directory}/audit/audit.jsonl",
        "AUDIT_REQUIRED": "false",
        "AUDIT_SIGNED": "false",
        "AUDIT_SYNC": "second",
        "EVENTS": "false",
    }
    return {f"PERSISTENCE_{name}": value for name, value in {**own, **_MODES[mode]}.items()}


@contextmanager
def _in_process(mode: str, directory: str, target: int) -> Iterator[Callable[[], None]]:
    """Yield a PUT of a new document that calls the application."""
    effective = load(environment=_environment(mode, directory, target))
    init_places(effective.settings, effective.properties)
    with create_app(effective.settings, effective.properties) as app:

        def put() -> None:
            path = _PATH.format(uuid.uuid4().hex)
            environ = {
                "REQUEST_METHOD": "PUT",
                "RAW_URI": path,
                "PATH_INFO": path,
                "SCRIPT_NAME": "",
                "SERVER_NAME": "localhost",
                "SERVER_PORT": "80",
                "SERVER_PROTOCOL": "HTTP/1.1",
                "REMOTE_ADDR": "127.0.0.1",
                "CONTENT_TYPE": "application/xml",
                "CONTENT_LENGTH": str(len(BODY)),
                "HTTP_HOST": "localhost",
                "HTTP_SVC_USERNAME": "lea",
                "wsgi.url_scheme": "http",
                "wsgi.input": BytesIO(BODY),
            }
            app.wsgi_app(environ, lambda *_: lambda _: None)

        yield put


@contextmanager
def _served(mode: str, directory: str, workers: int, target: int) -> Iterator[int]:
    os.environ.update(_environment(mode, directory, target))
    with server(SERVICE, f"{directory}/data", workers, 8) as port:
        yield port


@contextmanager
def _client(port: int) -> Iterator[Callable[[], None]]:
    """Yield a PUT of a new document on a connection of its own."""
    connection = Connection(port)
    try:

        def put() -> None:
            connection.seconds(putting(_PATH.format(uuid.uuid4().hex)))

        yield put
    finally:
        connection.close()


def _times(puts: Mapping[str, Callable[[], None]], count: int) -> dict[str, float]:
    """Return the tenth part of the times of each, in seconds."""
    times: dict[str, list[float]] = {mode: [] for mode in puts}
    order = list(puts)
    for number in range(count):
        for mode in order[number % len(order) :] + order[: number % len(order)]:
            began = time.perf_counter()
            puts[mode]()
            times[mode].append(time.perf_counter() - began)
    return {mode: sorted(found)[count // _TENTH] for mode, found in times.items()}


def _spans(ports: Mapping[str, int], clients: int, count: int, seconds: int) -> dict[str, float]:
    """Return the seconds for each PUT in the best tenth of the spans of each."""
    rates: dict[str, list[float]] = {mode: [] for mode in ports}
    order = list(ports)
    for number in range(count):
        for mode in order[number % len(order) :] + order[: number % len(order)]:
            rates[mode].append(rate(ports[mode], [putting(new(_PATH))], clients, seconds))
    return {mode: 1 / sorted(found, reverse=True)[count // _TENTH] for mode, found in rates.items()}


def _say(what: str, found: Mapping[str, float]) -> None:
    shown = "  ".join(f"{mode} {seconds / found['off']:.3f}" for mode, seconds in found.items() if mode != "off")
    print(f"{what}: {found['off'] * 1e3:.3f} ms without; times that: {shown}", flush=True)


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--puts", type=int, default=1000, help="PUTs of each, in turn")
    arguments.add_argument("--spans", type=int, default=20, help="spans of a second of each with eight clients")
    arguments.add_argument("--modes", nargs="+", default=tuple(_MODES), choices=tuple(_MODES), help="beside off")
    arguments.add_argument("--data", default=None, help="directory to write in (default: a temporary one)")
    options = arguments.parse_args()
    chosen = ("off", *(each for each in _MODES if each in options.modes and each != "off"))
    with served("constant:app", {}, 1, 8) as (target, _):
        with tempfile.TemporaryDirectory(dir=options.data) as directory, ExitStack() as stack:
            own = {mode: stack.enter_context(_in_process(mode, f"{directory}/{mode}", target)) for mode in chosen}
            _say("in the process", _times(own, options.puts))
        with tempfile.TemporaryDirectory(dir=options.data) as directory, ExitStack() as stack:
            ports = {mode: stack.enter_context(_served(mode, f"{directory}/{mode}", 1, target)) for mode in chosen}
            clients = {mode: stack.enter_context(_client(port)) for mode, port in ports.items()}
            _say("1 client, 1 worker", _times(clients, options.puts))
        with tempfile.TemporaryDirectory(dir=options.data) as directory, ExitStack() as stack:
            ports = {mode: stack.enter_context(_served(mode, f"{directory}/{mode}", 2, target)) for mode in chosen}
            _say("8 clients, 2 workers", _spans(ports, 8, options.spans, 1))


if __name__ == "__main__":
    main()
