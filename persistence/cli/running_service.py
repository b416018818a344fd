"""``health`` and ``check-runtime``: whether a service answers, and whether it and a runtime of a release fit."""

from __future__ import annotations

import secrets
import signal
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from functools import partial
from typing import BinaryIO

import click

from persistence.cli.declarations import FAILED, REMAINS, command, exits
from persistence.cli.options import ADDRESS, SETTINGS, choose_trees, read_settings, reading, unread
from persistence.cli.serve import url_of
from persistence.cli.terminal import Facts, counted, is_json, safe, say, say_error, say_json, say_result, say_table
from persistence.client.form_client import PersistenceClient
from persistence.client.runtime_proxy import RELEASES, RuntimeProxy
from persistence.client.runtime_sequences import StepResult, play
from persistence.client.service_connection import ServiceConnection, authorization
from persistence.errors import PersistenceError, RemoteTimeoutError, StartupError, one_line
from persistence.limits import LONGEST_CREDENTIAL
from persistence.maintenance.records import LastBackup, LastCheck, last
from persistence.maintenance.runtime_properties import RuntimeProperties
from persistence.model.addresses import Form
from persistence.properties.property_table import ANY, shown_address
from persistence.settings import Effective
from persistence.wire import CallPolicy

_TIMED_STEPS = 6
"""Steps that ``--timeout`` limits: two requests, and each connects, is sent and is answered."""


url_option = click.option(
    "--url", metavar="URL", help="Address, such as http://127.0.0.1:8080, instead of that of the settings."
)
"""The option of commands that call a service."""


@command("health", "Ask a service whether it is alive and ready.", unread(ADDRESS))
@exits("ready", "not ready, not alive, or cannot be reached")
@url_option
@click.option(
    "--timeout", type=click.FloatRange(0.1, 60), default=5.0, show_default=True, help="Seconds for each step."
)
def health(*, url: str | None, timeout: float, options: Mapping[str, str | None]) -> int:
    """Ask /healthz and /readyz of a service, by default of that of the settings on this machine.

    One line says that it is ready, or why not. The service tells the cause only to callers that it lets in. For the
    service of the settings, a line says if there was never a backup or a check of everything.

    \b
    persistence health
    persistence health --url https://forms.example.org
    """  # noqa: D301 - click's mark for lines that stay apart
    address, home = url or "", ""
    if url is None:
        effective = read_settings(**options)
        address, home = own_url(effective), effective.settings.home

    def give_up(_signal: int, _frame: object) -> None:  # a service that sends a byte now and then never times out
        raise RemoteTimeoutError("the service does not finish its answer")

    with PersistenceClient(address, policy=CallPolicy(timeout, timeout, attempts=1)) as client:
        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, _TIMED_STEPS * timeout)
        try:
            found = client.health()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    if is_json():
        say_json({"url": address, "alive": found.is_alive, "ready": found.is_ready, "cause": found.cause})
    elif found.is_ready:
        say(f"ready: {one_line(address)}")
        if found.cause:
            say_error(f"persistence: {one_line(found.cause)}")
        for kind, name in ((LastBackup, "backup"), (LastCheck, "check")) if home else ():
            with suppress(PersistenceError):  # a user who may only ask cannot look there
                if last(home, kind) is None:
                    note = f"there was no {name} of everything yet: persistence {name} makes a note of it"
                    say_error(f"persistence: {note}")
    else:
        state = "alive, but not ready" if found.is_alive else "not alive"
        say_error(f"persistence: {one_line(address)} is {state}: {found.cause}")
    return 0 if found.is_ready else FAILED


def own_url(effective: Effective) -> str:
    bind = effective.settings.bind
    found = url_of(bind)
    if found is None:
        raise StartupError(f"the setting bind is {bind}, without a port: name the address with --url")
    return found


_APP = "check-runtime-"
_EVERY_FORM = Form(ANY, ANY)
_PARTS = ("definition", "data", "attachments")


@command("check-runtime", "Tell whether this service and a release of the form runtime fit.", unread(SETTINGS))
@exits(
    "no step failed, and nothing is missing in FILE",
    "could not check: the service cannot be reached or refuses the caller, or FILE cannot be read",
    remains="a step failed, something was not removed, or something is missing in FILE",
)
@click.option("--release", type=click.Choice(tuple(RELEASES)), help="Send what the proxy of this release sends.")
@click.option("--properties", metavar="FILE", help="Read a runtime's properties-local.xml, and say what is missing.")
@url_option
@click.option("--key-file", type=click.File("rb"), metavar="FILE", help="File with the caller's API key; - is stdin.")
def check_runtime(
    *,
    release: str | None,
    properties: str | None,
    url: str | None,
    key_file: BinaryIO | None,
    options: Mapping[str, str | None],
) -> int:
    """Tell whether this service and a release of the form runtime fit. No runtime is needed.

    With --release, the running service gets the requests that the proxy of that release sends in daily use, in an
    application of its own, which is removed afterwards. Releases 2023.1 and 2024.1 rebuild all indexes. The steps of a
    purge need the key of an administrator.

    With --properties, no service is called: print the provider that each form would get, and the properties to add.
    The defaults that count are those of the release, or of the current one.

    \b
    persistence check-runtime --release 2024.1
    persistence check-runtime --release 2024.1 --properties properties-local.xml
    """  # noqa: D301 - click's mark for lines that stay apart
    if properties is not None:
        return _check_properties(RuntimeProperties.load(properties, release or "current"), options)
    if release is None:
        raise click.UsageError("--release or --properties must say what to check")
    key = None if key_file is None else key_file.read(LONGEST_CREDENTIAL).decode(errors="replace")
    return _check_service(release, url, key, options)


def _check_service(release: str, url: str | None, key: str | None, options: Mapping[str, str | None]) -> int:
    effective = read_settings(**options)
    data_format = effective.properties.of(_EVERY_FORM).data_format
    began, results = time.monotonic(), list[StepResult]()
    policy = CallPolicy(attempts=1)
    with closing(ServiceConnection(url or own_url(effective), authorization(key), policy)) as connection:
        proxy = RuntimeProxy(connection, RELEASES[release], _APP + secrets.token_hex(4), data_format)
        proxy.require_unused()
        try:
            for result in play(proxy):
                results.append(result)
                if is_json():
                    say_json(asdict(result))
        finally:
            is_removed = _remove(proxy)
            if not is_json():
                say_table([asdict(each) for each in results], ("sequence", "step", "result"))
            for each in () if is_json() else results:
                if each.result != "ok":
                    say(safe(f"{each.sequence}, {each.step}: {each.result}: {one_line(each.detail)}"))
                if each.see:
                    say(f"  see docs/orbeon.md, If a step fails: {each.see}")
    counts = Counter(each.result for each in results)
    seconds = time.monotonic() - began
    numbers = {name: counts[name] for name in ("ok", "failed", "skipped")}
    facts = {"release": release, "application": proxy.app, **numbers, "removed": is_removed, "seconds": seconds}
    text = f"{release}: {counted(counts['ok'], 'step')} ok, {counts['failed']} failed, {counts['skipped']} skipped"
    say_result(facts, text)
    return REMAINS if counts["failed"] or not is_removed else 0


def _remove(proxy: RuntimeProxy) -> bool:
    """Remove the application, and return whether it is gone.

    Tombstones do not count: only an administrator can purge those of documents, and nobody those of definitions.
    """
    try:
        problems, documents, definitions = proxy.remove()
    except (PersistenceError, KeyboardInterrupt) as error:
        cause = str(error) or "interrupted"
        say_error(f"persistence: the application {proxy.app} was not removed: {cause}")
        if isinstance(error, KeyboardInterrupt):
            raise
        return False
    for problem in problems:
        say_error(f"persistence: {one_line(problem)}")
    stay = [counted(definitions, "definition")] if definitions else []
    if documents:
        command = f"persistence purge {proxy.app} --tombstones --older-than 1m --yes"
        stay.insert(0, f"{counted(documents, 'document')} (for an administrator: {command})")
    if stay:
        say_error(f"tombstones stay in the application {proxy.app}: {', '.join(stay)}")
    return not problems


def _check_properties(runtime: RuntimeProperties, options: Mapping[str, str | None]) -> int:
    routes = [runtime.route(form) for form in runtime.forms(_stored(options))]
    needed = runtime.needed(read_settings(**options).properties.of(_EVERY_FORM))
    problems, notes = list(runtime.problems()), list(runtime.notes(routes))
    forms = [{"form": str(each.form), **{part: getattr(each, part) or None for part in _PARTS}} for each in routes]
    say_table(forms, ["form", *((part.upper(), partial(_shown_provider, runtime, part)) for part in _PARTS)])
    if is_json():
        for each in needed:
            say_json({"property": each.name, "needed": each.value, "found": each.found or None})
        for key, lines in {"problem": problems, "note": notes}.items():
            for line in lines:
                say_json({key: line})
        return REMAINS if needed or problems else 0
    lines = [*notes, *problems]
    for each in needed:
        found = f"is {each.found}" if each.found else "is missing"
        lines.append(f"{each.name} {found}: it must be {each.value}{each.reason and f', because {each.reason}'}")
    if needed:
        lines += ["Add to properties-local.xml, in place of what has the same name:", ""]
    for line in (*lines, *(each.line for each in needed)):
        say(safe(line))
    if not needed and not problems:
        say("nothing is missing")
    return REMAINS if needed or problems else 0


def _shown_provider(runtime: RuntimeProperties, part: str, form: Facts) -> str:
    name = form[part] or ("with the data" if part == "attachments" else "-")
    uri = runtime.services.get(name)
    return f"{name} ({shown_address(uri)})" if uri else name


def _stored(options: Mapping[str, str | None]) -> set[Form]:
    found = set[Form]()
    for tree in choose_trees(**options).trees:
        try:
            with reading(tree) as reader:
                found.update(form for form in reader.store.forms() if not form.app.startswith(_APP))
        except PersistenceError as error:
            say_error(f"persistence: the forms in {tree.name} are not listed: {error}")
    return found
