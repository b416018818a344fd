"""``persistence health``: ask a service whether it is alive and ready, for containers and monitoring."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from persistence.cli.options import address_options, read_settings
from persistence.cli.statuses import FAILED
from persistence.cli.terminal import json_option, say, say_json
from persistence.client.connection import CallPolicy
from persistence.client.service_client import PersistenceClient
from persistence.errors import PersistenceError, RemoteTimeoutError, StartupError, one_line
from persistence.maintenance.last_runs import LastBackup, LastCheck, last
from persistence.settings import Effective
from persistence.starting import url_of

_TIMED_STEPS = 6
"""Steps that ``--timeout`` limits: two requests, and each connects, is sent and is answered."""


url_option = click.option(
    "--url", metavar="URL", help="Address, such as http://127.0.0.1:8080, instead of that of the settings."
)
"""The option of commands that call a service."""


@click.command(short_help="Ask a service whether it is alive and ready.")
@url_option
@click.option(
    "--timeout", type=click.FloatRange(0.1, 60), default=5.0, show_default=True, help="Seconds for each step."
)
@json_option
@address_options
def health(*, url: str | None, timeout: float, as_json: bool, **options: str | None) -> None:
    """Ask /healthz and /readyz of a service, by default of that of the settings on this machine.

    One line says that it is ready, or why not. The service tells the cause only to callers that it lets in. For the
    service of the settings, a line says if there was never a backup or a check of everything.

    \b
    persistence health
    persistence health --url https://forms.example.org
    """  # noqa: D301 - click's mark for lines that stay apart
    address, home = url or "", ""
    if url is None:
        effective = read_settings(options)
        address, home = own_url(effective), effective.settings.home
    policy = CallPolicy(connect=timeout, silence=timeout, attempts=1)
    with PersistenceClient(address, policy=policy) as client, _ending(_TIMED_STEPS * timeout):
        found = client.health()
    if as_json:
        say_json({"url": address, "alive": found.is_alive, "ready": found.is_ready, "cause": found.cause})
    elif found.is_ready:
        say(f"ready: {one_line(address)}")
        for line in (*filter(None, [found.cause]), *_never(home)):
            click.echo(f"persistence: {one_line(line)}", err=True)
    else:
        state = "alive, but not ready" if found.is_alive else "not alive"
        click.echo(f"persistence: {one_line(address)} is {state}: {found.cause}", err=True)
    sys.exit(0 if found.is_ready else FAILED)


def _never(home: str) -> Iterator[str]:
    for kind, name in ((LastBackup, "backup"), (LastCheck, "check")) if home else ():
        with suppress(PersistenceError):  # a user who may only ask cannot look there
            if last(home, kind) is None:
                yield f"there was no {name} of everything yet: persistence {name} makes a note of it"


@contextmanager
def _ending(seconds: float) -> Iterator[None]:
    """End a block after some seconds: a service that sends a byte now and then never times out."""

    def give_up(_signal: int, _frame: object) -> None:
        raise RemoteTimeoutError("the service does not finish its answer")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def own_url(effective: Effective) -> str:
    bind = effective.settings.bind
    found = url_of(bind)
    if found is None:
        raise StartupError(f"the setting bind is {bind}, without a port: name the address with --url")
    return found
