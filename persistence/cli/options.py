"""Options and arguments that several subcommands have."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable, Mapping
from typing import Any

import click

from persistence import settings
from persistence.cli.terminal import safe
from persistence.errors import BadRequestError
from persistence.model.addresses import Form
from persistence.model.sidecar import LARGEST_VERSION
from persistence.settings import DEFAULT_FILE, Settings

Command = Callable[..., Any]
Option = Callable[[Command], Command]

_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s?)?", re.ASCII)
_VERSION = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)

_BIND = click.option("--bind", metavar="HOST:PORT", help="Address and port to serve on.")
_DATA = click.option("--data", metavar="DIR", help="Directory of a tree of forms; only this tree.")
_DATASOURCE = click.option(
    "--datasource", metavar="NAME", help="Work only on the tree of this datasource of the settings."
)
_CONFIG = click.option("--config", "file", metavar="FILE", help=f"Settings file instead of {DEFAULT_FILE}.")
_DIALECT = click.option("--dialect", type=click.Choice(["svc", "orbeon"]), help="Names on the wire.")
_WORKERS = click.option("--workers", type=int, metavar="N", help="Worker processes.")
_THREADS = click.option("--threads", type=int, metavar="N", help="Threads in each worker.")
_INSECURE = click.option(
    "--insecure", is_flag=True, flag_value=True, default=None, help="Let everybody call who reaches the service."
)


def _options(*options: Option) -> Option:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


settings_options = _options(_BIND, _DATA, _CONFIG, _DIALECT, _WORKERS, _THREADS, _INSECURE)
"""The options of a server; each overrides the setting of its name."""

tree_options = _options(_DATA, _DATASOURCE, _CONFIG, _DIALECT)
"""The options of commands on trees; each overrides the setting of its name, but for ``--datasource``."""

file_options = _options(_CONFIG, _DIALECT)
"""The options of commands that only look up names; each overrides the setting of its name."""

key_options = _options(_DATA, _CONFIG)
"""The options of commands on keys; each overrides the setting of its name."""


def settings_of(options: Mapping[str, str | None]) -> Settings:
    """Return the settings in force with the options of ``key_options``.

    Raises:
        StartupError: as ``settings.load``.
    """
    flags = {name: value for name, value in options.items() if name != "file"}
    return settings.load(options["file"], flags).settings


class Duration(click.ParamType[float]):
    """A duration such as 90s, 10m or 1h30m, in seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read hours, minutes and seconds, each at most once and in this order; a bare number is seconds."""
        if isinstance(value, float):
            return value
        match = _DURATION.fullmatch(str(value))
        hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
        total = hours * 3600 + minutes * 60 + seconds
        if not total:
            self.fail(f"{value!r} is no time span such as 90s, 10m or 1h30m", param, ctx)
        return float(total)


def form_and_version(text: str) -> tuple[Form, int | None]:
    """Parse ``APP/FORM`` or ``APP/FORM/VERSION``.

    Raises:
        BadRequestError: it is neither.
    """
    match text.split("/"):
        case [app, name] if app and name:
            return Form(app, name), None
        case [app, name, number] if app and name:
            return Form(app, name), version_number(number)
        case _:
            raise BadRequestError(f"{safe(text)} is not APP/FORM or APP/FORM/VERSION")


def version_number(text: str) -> int:
    """Parse the version of a form.

    Raises:
        BadRequestError: it is none.
    """
    if not _VERSION.fullmatch(text) or int(text) > LARGEST_VERSION:
        raise BadRequestError(f"{text!r} is no version of a form: a number from 1 is")
    return int(text)


def allow_open_files() -> None:
    """Raise the limit of open files as far as the system allows: all attachments of a document are open at once."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
