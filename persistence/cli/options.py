"""The options that set settings, the same for every subcommand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from persistence import settings
from persistence.settings import DEFAULT_FILE, Settings

Command = Callable[..., Any]
Option = Callable[[Command], Command]

_BIND = click.option("--bind", metavar="HOST:PORT", help="Address and port to serve on.")
_DATA = click.option("--data", metavar="DIR", help="Directory of the tree of forms.")
_CONFIG = click.option("--config", "file", metavar="FILE", help=f"Settings file instead of {DEFAULT_FILE}.")
_DIALECT = click.option("--dialect", type=click.Choice(["svc", "orbeon"]), help="Names on the wire.")
_WORKERS = click.option("--workers", type=int, metavar="N", help="Worker processes.")
_THREADS = click.option("--threads", type=int, metavar="N", help="Threads in each worker.")
_INSECURE = click.option(
    "--insecure", is_flag=True, flag_value=True, default=None, help="Let everybody call who reaches the service."
)


def settings_options(command: Command) -> Command:
    """Add the options of a server; each overrides the setting of its name."""
    return _with(command, _BIND, _DATA, _CONFIG, _DIALECT, _WORKERS, _THREADS, _INSECURE)


def tree_options(command: Command) -> Command:
    """Add the options of what works on the tree; each overrides the setting of its name."""
    return _with(command, _DATA, _CONFIG, _DIALECT)


def file_options(command: Command) -> Command:
    """Add the options of what only asks for the names in the file; each overrides the setting of its name."""
    return _with(command, _CONFIG, _DIALECT)


def key_options(command: Command) -> Command:
    """Add the options of what works on the keys; each overrides the setting of its name."""
    return _with(command, _DATA, _CONFIG)


def settings_of(options: Mapping[str, str | None]) -> Settings:
    """The settings in force with the options of ``tree_options`` or ``key_options``.

    Raises:
        StartupError: as ``settings.load``.
    """
    flags = {name: value for name, value in options.items() if name != "file"}
    return settings.load(options["file"], flags).settings


def _with(command: Command, *options: Option) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
