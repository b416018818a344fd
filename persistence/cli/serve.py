"""The commands serve and config: the service, the lines with which it starts, and the settings with which it runs."""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import click
from flask import Flask
from gunicorn.app.base import Application
from gunicorn.glogging import Logger

from persistence import __version__, app, gunicorn_worker, processes
from persistence.audit.audit_log import require_outside
from persistence.cli.declarations import FAILED, Opened, command, exits, group
from persistence.cli.options import (
    SETTINGS,
    allow_open_files,
    form_and_version,
    form_names,
    load,
    read_settings,
    settings_options,
)
from persistence.cli.terminal import Facts, is_json, json_option, safe, say_error, say_result
from persistence.dialect import DIALECTS
from persistence.errors import DiskError, PersistenceError, StartupError
from persistence.http.application import Opens, Policy
from persistence.http.logs import ServerLines, announce, apply, choose, look
from persistence.keys import warnings_of
from persistence.metrics import service as metrics
from persistence.model.addresses import Form
from persistence.pages.site import Administrators
from persistence.properties.properties import ExplainedProperty, Properties, Reason
from persistence.properties.property_table import DATA, FORM, TREE, is_database, shown_address
from persistence.providers import locations
from persistence.providers.opened import init_places
from persistence.settings import Effective, Settings, inherits_socket, require_own
from persistence.storage import files, root

_UNIX = "unix:"
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared, not bound
_LONGEST_WAIT = 2.0


@dataclass(frozen=True, slots=True)
class Served:
    """The settings in force, with the policy of callers: a worker that is replaced must not decide otherwise."""

    effective: Effective
    policy: Policy

    @classmethod
    def of(cls, effective: Effective) -> Self:
        """Check whether everything can be served, and report shortcomings: once, not in every worker."""
        settings, properties = effective.settings, effective.properties
        choose(settings.log_format, settings.log_level)
        policy = app.policy_of(settings)
        app.warn_of_encryption_keys(settings, properties)
        app.open_settled_audit(settings, properties).close()
        app.warn(settings, properties)
        return cls(effective, policy)

    @property
    def settings(self) -> Settings:
        return self.effective.settings


def start_lines(served: Served, bind: str | None = None) -> Iterator[str]:
    """The lines for the log of a service that starts; ``bind`` is its address where that is not the setting's."""
    settings, properties, policy = served.settings, served.effective.properties, served.policy
    yield f"version {__version__}, dialect {settings.dialect}"
    yield _place(settings.roots.default)
    for name, place in settings.roots.named.items():
        yield f"{_place(place)} (datasource {name})"
    for path in locations.bases_of(properties):
        yield f"attachments in {path}"
    for bucket in locations.buckets_of(properties):
        yield f"attachments in {bucket}"
    for provider in properties.form_providers:
        if provider.kind != TREE:
            yield f"forms of the provider {provider.name} with {provider.uri}"
    if settings.audit != "off":
        yield f"audit: {settings.audit_file if settings.audit == 'file' else settings.audit}"
    yield f"may call: {_callers(settings, policy)}"
    yield _address(bind or settings.bind)
    yield _pages(settings, settings.admin_bind or bind or settings.bind)


def _place(place: str) -> str:
    return place if is_database(place) else f"data directory {place}"


def _callers(settings: Settings, policy: Policy) -> str:
    if policy.opens is Opens.ALWAYS:
        return "everybody who reaches the address (insecure)"
    keys = len(locations.open_keys(settings).read())
    if policy.opens is Opens.WHILE_KEYLESS and not keys:
        return "every program of this machine, until there is an API key ('persistence api-key new NAME')"
    who = [f"callers with one of {keys} API keys" if keys > 1 else "callers with the API key"] if keys else []
    if settings.trusted:
        who.append(f"without a key {', '.join(settings.trusted)}")
    return ", ".join(who) or "nobody: the API keys are gone"


def _address(bind: str) -> str:
    if bind.startswith(_UNIX):
        path = bind.removeprefix(_UNIX)
        return f"at {bind}; try: curl --unix-socket {path} http://localhost/readyz"
    url = url_of(bind)
    if url is None:
        return f"at {bind.rpartition(':')[0]}, on a port that is free: see the line 'Listening at'"
    return f"at http://{bind}; try: curl {url}/readyz"


def _pages(settings: Settings, bind: str) -> str:
    url = url_of(bind)
    path = f"{'' if url is None or url.startswith(_UNIX) else url}/admin/"
    if Administrators(locations.open_keys(settings), frozenset(settings.administrators)).exist():
        return f"pages for administrators: {path}"
    return f"pages for administrators: none until 'persistence password set NAME'; then {path}"


def url_of(bind: str) -> str | None:
    """Return the URL to call a service on its machine; ``None`` for a port that the system chooses."""
    if bind.startswith(_UNIX):
        return bind
    host, _, port = bind.rpartition(":")
    return f"http://{_EVERYWHERE.get(host, host)}:{port}" if int(port) else None


def require_free(bind: str) -> None:
    """Make sure that an address can be served on: gunicorn tries for five seconds, with a line for each."""
    if inherits_socket():
        return
    try:
        if bind.startswith(_UNIX):
            _try_path(bind.removeprefix(_UNIX))
        else:
            host, _, port = bind.rpartition(":")
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, address = found[0]
            with socket.socket(family, kind, protocol) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(address)
    except OSError as error:
        cause = "another program serves there" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise StartupError(
            f"cannot serve on {bind}: {cause}; another address: --bind HOST:PORT, PERSISTENCE_BIND or the setting bind"
        ) from error


def _try_path(path: str) -> None:
    """Raise if a process answers at the path of a socket: gunicorn would take the socket away from it."""
    with socket.socket(socket.AF_UNIX) as tried, suppress(FileNotFoundError, ConnectionRefusedError):
        tried.settimeout(_LONGEST_WAIT)
        tried.connect(path)
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


# gunicorn's log, in the format of the service.
#
# There is one log: gunicorn's lines and those of libraries are formatted as the lines of the service, and go where
# these go. gunicorn has no access log of its own, because the service logs a line for each request.
#
# With the setting log_file, gunicorn opens the file, and opens it again on SIGUSR1 and SIGHUP in every process;
# standard error then leads to it. gunicorn's own capture_output would send standard output there, too, which may be the
# audit.


def require_log(settings: Settings) -> None:
    """Make sure that the file of the log can be written to, if there is one: gunicorn shows a traceback otherwise."""
    if settings.log_file:
        try:
            os.close(files.open_shared(settings.log_file, os.O_APPEND))
        except OSError as error:
            raise StartupError(f"cannot write the log to {settings.log_file}: {error.strerror or error}") from error


class ServerLog(Logger):  # type: ignore[misc]  # gunicorn ships no annotations
    """gunicorn's logger. The settings of the service decide its format and its level, before it is made and later."""

    def setup(self, cfg: object) -> None:
        """Set up the handlers as gunicorn does; then let them format, and let the level decide, as the service does."""
        super().setup(cfg)
        self._lead_standard_error()
        lines, libraries = ServerLines(), logging.StreamHandler()
        for handler in (*self.error_log.handlers, libraries):
            handler.setFormatter(lines)
        logging.getLogger().handlers[:] = [libraries]
        apply()

    def exception(self, msg: str, *args: object, **kwargs: object) -> None:
        """Log an error with its traceback, but for a transfer that stood still: that is a client's."""
        if isinstance(sys.exception(), (BlockingIOError, TimeoutError)):
            self.warning("closed a connection on which nothing has moved: progress_timeout")
        else:
            super().exception(msg, *args, **kwargs)

    def reopen_files(self) -> None:
        """Open the file again, after it was renamed. Until then all lines go into the renamed one."""
        super().reopen_files()
        self._lead_standard_error()

    def _lead_standard_error(self) -> None:
        for handler in self.error_log.handlers:
            if isinstance(handler, logging.FileHandler) and handler.stream is not None:
                os.dup2(handler.stream.fileno(), sys.stderr.fileno())
                look()


class Server(Application):  # type: ignore[misc]  # gunicorn ships no annotations
    """gunicorn, configured by the settings instead of its own command line. ``read`` reads them again on SIGHUP."""

    def __init__(self, served: Served, read: Callable[[], Served]) -> None:
        self._served = served
        self._read = read
        super().__init__()

    def load_config(self) -> None:
        settings = self._served.settings
        # What nginx relies on, also where gunicorn's own file is not there; the file says why.
        self.cfg.set("keepalive", 75)
        self.cfg.set("limit_request_line", 8190)
        self.cfg.set("limit_request_field_size", 16380)
        self.cfg.set("forwarder_headers", "")
        if os.path.exists(settings.gunicorn):
            require_own(settings.gunicorn)
            self.load_config_from_file(settings.gunicorn)
            if self.cfg.preload_app:
                raise StartupError(f"{settings.gunicorn}: {gunicorn_worker.NO_PRELOADING}")
        # Slow clients block sync workers, which are then killed in the middle of a transfer.
        self.cfg.set("worker_class", "persistence.gunicorn_worker.Worker")
        self.cfg.set("logger_class", "persistence.cli.serve.ServerLog")
        self.cfg.set("errorlog", settings.log_file or "-")
        self.cfg.set("bind", list(settings.binds))
        self.cfg.set("workers", processes.workers(settings.workers))
        self.cfg.set("threads", settings.threads)
        self.cfg.set("post_worker_init", lambda _: signal.signal(signal.SIGINT, signal.SIG_IGN))  # the master acts
        self.cfg.set("on_starting", _begin_metrics)
        self.cfg.set("child_exit", gunicorn_worker.forget)
        # Its default path is one per user: two services would share it.
        self.cfg.set("control_socket_disable", True)  # noqa: FBT003 - gunicorn's signature

    def reload(self) -> None:
        """Read the settings again; if they cannot be served, the old ones stay in force, and the log says why."""
        before, config = self._served, self.cfg  # type: ignore[has-type]  # gunicorn ships no annotations
        try:
            self._served = self._read()
            require_log(self._served.settings)
            for bind in set(self._served.settings.binds) - set(before.settings.binds):
                require_free(bind)
            super().reload()
        except (PersistenceError, SystemExit) as error:  # gunicorn exits where its own file cannot be read
            self._served, self.cfg = before, config
            cause = error if isinstance(error, PersistenceError) else f"{before.settings.gunicorn} is not acceptable"
            choose(before.settings.log_format, before.settings.log_level)
            announce(f"the settings were read again and not taken, the old ones count: {cause}", "error")
        else:
            _announce(self._served, "the settings were read again")

    def load(self) -> Flask:
        """Return the application; called once in each worker."""
        served = self._served
        return app.wired(served.effective, served.policy)


def _begin_metrics(_arbiter: object) -> None:
    try:
        metrics.begin()
    except DiskError as error:
        announce(str(error), "error")


def _announce(served: Served, *first: str) -> None:
    for line in (*first, *start_lines(served)):
        announce(line)


@command("serve", "Serve forms over HTTP until stopped.", has_json=False)
@exits(
    "stopped by a signal",
    "could not start, as its line says",
    others={
        3: "a worker could not start, as the log says",
        4: "a worker could not load the application, as the log says",
    },
)
@click.option("--init", "is_init", is_flag=True, help="Make data directories that are missing or empty.")
@settings_options
def serve(*, is_init: bool, **options: object) -> None:
    """Serve forms over HTTP until stopped. Run it as the user to whom the data directories belong.

    \b
    Signals: TERM   stop when the requests that run are answered
             HUP    read the settings again, and replace the workers
             USR1   open the file of the log again, after it was renamed
             USR2   start a new service on the same address, for new
                    software; then TERM to this one
    """  # noqa: D301 - click's mark for lines that stay apart
    allow_open_files()
    effective = load(**options)
    if is_init:
        init_places(effective.settings, effective.properties)
    served = Served.of(effective)
    for bind in served.settings.binds:
        require_free(bind)
    require_log(served.settings)
    _announce(served)
    sys.argv = sys.orig_argv[1:]  # what gunicorn starts again on SIGUSR2: without this, -m would be lost
    # Workers share what is loaded by now for as long as nobody visits it, and end without visiting it one by one.
    gc.freeze()
    Server(served, lambda: Served.of(load(**options))).run()


_NO_SETTINGS = "the settings cannot be read, or one is not acceptable"
_TREE = "a tree here"


@group("config", invoke_without_command=True, short_help="Print the effective settings and properties.")
@exits("printed, and they can be served", f"{_NO_SETTINGS}; or serve would refuse them")
@json_option
@settings_options
@click.pass_context
def config(context: click.Context, /, **options: Any) -> None:
    """Print the effective settings and properties, and where each came from; say whether they can be served.

    What differs from its default says so. Nothing is changed, and no address is tried.
    """
    context.obj = options
    if context.invoked_subcommand is not None:
        if is_json():
            raise click.UsageError(f"--json goes after {context.invoked_subcommand}")
        return
    effective = read_settings(**options)
    for kind, found in (
        ("setting", locations.effective_settings(effective)),
        ("property", locations.effective_properties(effective)),
    ):
        for each in found:
            facts = {kind: each.name, "value": each.plain, "origin": each.origin, "meaning": each.meaning}
            usual = f", not {each.comparison}" if each.comparison else ""
            name = each.name if kind == "setting" else locations.as_toml(each.name)
            facts |= {} if each.default is None else {"default": each.default}
            say_result(facts, f"{name} = {each.value}  # {each.origin}{usual}: {each.meaning}")
    refusals, warnings = _doubts(effective)
    for text in warnings:
        say_error(f"persistence: {text}")
    for text in refusals:
        say_error(f"persistence: serve would refuse this: {text}")
    if refusals:
        context.exit(FAILED)


def _doubts(effective: Effective) -> tuple[list[str], list[str]]:
    """Return why ``serve`` would refuse these settings, and what it would warn of; nothing is changed."""
    settings, properties, warnings, refusals = effective.settings, effective.properties, list[str](), list[str]()
    looks: list[Callable[[], object]] = [
        partial(locations.check, properties, settings.roots),
        *(partial(root.require_layout, each) for each in settings.roots),  # root may look at the tree of another user
        partial(app.policy_of, settings),
        lambda: warnings.extend(
            warnings_of(locations.open_keys(settings), settings.administrators, settings.token_issuers)
        ),
        lambda: locations.open_encryption_keys(settings, properties).ring(),
    ]
    if settings.audit == "file":
        looks.append(partial(require_outside, settings.audit_file, locations.own_directories(settings, properties)))
    if os.path.exists(settings.gunicorn):
        looks.append(partial(require_own, settings.gunicorn))
    for ask in looks:
        try:
            ask()
        except PersistenceError as error:
            refusals.append(str(error))
    needed = dict.fromkeys(locations.bases_of(properties), "attachments")
    if settings.log_file:
        needed[os.path.dirname(settings.log_file)] = "the log"
    refusals += [f"there is no directory {path} for {what}" for path, what in needed.items() if not os.path.isdir(path)]
    return list(dict.fromkeys(refusals)), warnings


def _within(**given: str | None) -> Effective:
    """Read the settings of a command of the group, whose options count where the command has none."""
    own = {option: value for option, value in given.items() if value is not None}
    return read_settings(**{**click.get_current_context().obj, **own})


_WITHIN = Opened("effective", SETTINGS.options, _within)


@command("config property", None, _WITHIN)
@exits("printed", f"no such property; or {_NO_SETTINGS}")
@click.argument("name")
def property_(*, name: str, effective: Effective) -> None:
    """Say what a property is, which entry wins, and why.

    NAME is a full name without wildcards: svc.persistence.provider.hr.leave.data, svc.persistence.files.autosave.

    An application or form whose own name has a dot cannot be told apart in NAME; for it only entries with * count.
    """
    properties = effective.properties
    facts = _explanation_facts(properties.explain(name), properties)
    say_result(facts, "\n".join(_explained(facts)))


@command("config route", "Say which provider has a form's definitions or data.", _WITHIN)
@exits("printed", f"no provider has the form; or {_NO_SETTINGS}")
@click.argument("path", metavar="APP/FORM", shell_complete=form_names)
@click.argument("kind", type=click.Choice([FORM, DATA]))
def route(*, path: str, kind: str, effective: Effective) -> None:
    """Say which provider has the definitions (form) or the data of a form, and why.

    Then its place, whether it is active, the headers that tell it its own properties, and the place of the attachments.
    """
    form, version = form_and_version(path)
    if version is not None:
        raise click.UsageError(f"{safe(path)} is not APP/FORM: all versions of a form have one provider")
    facts = _route_facts(effective, form, kind)
    attachments = facts["attachments"]
    name = f"the datasource {facts['datasource']}" if facts["datasource"] else "the default"
    end = f" ({name})" if facts["is"] == _TREE else ""
    lines = [*_explained(facts["property"])]
    lines.append(f"provider {facts['provider']} is {facts['is']}, {facts['place']}{end}")
    if not facts["active"]:
        lines.append("  not active: requests to all providers leave it out")
    lines += (f"  {header}: {value}" for header, value in facts["headers"].items())
    if attachments is not None:
        lines += _explained(attachments["property"])
        lines.append(f"attachments are {attachments['place']}")
    else:
        lines.append(f"attachments {'of definitions are always' if kind == FORM else 'are'} with it")
    say_result(facts, "\n".join(map(safe, lines)))


def _route_facts(effective: Effective, form: Form, kind: str) -> Facts:
    properties = effective.properties
    found = properties.of(form).route
    provider = found.definition if kind == FORM else found.data
    attachments = None if kind == FORM else found.attachments
    dialect = DIALECTS[provider.dialect or effective.settings.dialect]
    place = locations.place_of(provider, effective.settings.roots)
    kind_of_place = "another service" if place is None else "a database" if is_database(place) else _TREE
    explained, attachments_place = properties.explain_provider(form, kind), ""
    if attachments is not None and attachments.place is not None:
        endpoint = attachments.place.endpoint or "the endpoint of the environment, or that of AWS"
        attachments_place = f"in {attachments.place}, at {endpoint}"
    elif attachments is not None:
        base = locations.base_of(attachments)
        attachments_place = f"with another service, {attachments.uri}" if base is None else f"below {base}"
    return {
        "form": str(form),
        "kind": kind,
        "provider": provider.name,
        "is": kind_of_place,
        "place": place or provider.uri,
        "datasource": provider.datasource or None,
        "active": provider.is_active,
        "headers": {dialect.header(name): shown_address(value) for name, value in provider.mirrored},
        "property": _explanation_facts(explained, properties),
        "attachments": None
        if attachments is None
        else {
            "provider": attachments.name,
            "place": attachments_place,
            "property": _explanation_facts(properties.explain_provider(form, kind, attachments=True), properties),
        },
    }


def _explanation_facts(answer: ExplainedProperty, properties: Properties) -> Facts:
    def reason(each: Reason) -> Facts:
        entry = properties.entry(each.name)
        value = locations.plain_property(entry.known, entry.value)
        return {"name": str(entry), "value": value, "origin": entry.origin, "reason": each.text}

    explanation = answer.explanation
    return {
        "name": ".".join(answer.name),
        "value": None if answer.value is None else locations.plain_property(answer.known, answer.value),
        "meaning": answer.known.meaning,
        "effect": answer.known.effect.value,
        "winner": None if explanation.winner is None else reason(explanation.winner),
        "losers": list(map(reason, explanation.losers)),
        "left": [{"name": ".".join(each.name), "reason": each.text} for each in explanation.failed],
    }


def _explained(facts: Facts) -> Iterator[str]:
    winner, value = facts["winner"], "is not configured" if facts["value"] is None else f"= {_toml(facts['value'])}"
    yield f"{facts['name']} {value}"
    yield f"  {facts['meaning']}; {facts['effect']}"
    if winner is not None:
        yield _reason("wins", winner)
    if winner is None or (isinstance(winner["value"], str) and not winner["value"].strip()):
        cause = "nothing matches" if winner is None else "the winner is blank, and the search does not go on"
        yield f"  {cause}: {'not configured' if facts['value'] is None else 'the default'}"
    yield from (_reason("loses", each) for each in facts["losers"])
    yield from (f"  left {each['name']}: {each['reason']}" for each in facts["left"])


def _reason(word: str, facts: Facts) -> str:
    return f"  {word} {facts['name']} = {_toml(facts['value'])} ({facts['origin']}): {facts['reason']}"


def _toml(value: object) -> str:
    return locations.NOT_SHOWN if value == locations.NOT_SHOWN else locations.as_toml(value)
