"""The options that set settings, the same for every subcommand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from persistence import settings
from persistence.places import elsewhere
from persistence.properties.properties import Properties
from persistence.settings import DEFAULT_FILE, Settings
from persistence.store.integrity import HandEdits
from persistence.upkeep.sight import Sight

Command = Callable[..., Any]
Option = Callable[[Command], Command]

_BIND = click.option("--bind", metavar="HOST:PORT", help="Address and port to serve on.")
_DATA = click.option("--data", metavar="DIR", help="Directory of the tree of forms.")
_DATASOURCE = click.option("--datasource", metavar="NAME", help="Work on the tree of this datasource of the settings.")
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
    """Add the options of what works on a tree: each overrides the setting of its name, but for ``--datasource``."""
    return _with(command, _DATA, _DATASOURCE, _CONFIG, _DIALECT)


def file_options(command: Command) -> Command:
    """Add the options of what only asks for the names in the file; each overrides the setting of its name."""
    return _with(command, _CONFIG, _DIALECT)


def key_options(command: Command) -> Command:
    """Add the options of what works on the keys; each overrides the setting of its name."""
    return _with(command, _DATA, _CONFIG)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is in force, and the root of the tree that a command works on."""

    settings: Settings
    properties: Properties
    root: str

    def sight(self) -> Sight:
        """A look at the tree. Raises what ``Sight.of`` does."""
        hand_edits = HandEdits(self.settings.hand_edits)
        there = elsewhere(self.root, self.properties, self.settings.roots, hand_edits)
        return Sight.of(self.root, self.properties, there)


def chosen(options: Mapping[str, object]) -> Chosen:
    """What the options of ``tree_options`` choose.

    Raises:
        StartupError: as ``settings.load``.
        click.UsageError: there is no such datasource.
    """
    flags = {name: value for name, value in options.items() if name not in ("file", "datasource")}
    file, datasource = options["file"], options["datasource"]
    effective = settings.load(None if file is None else str(file), flags)
    root = effective.settings.data
    if datasource is not None:
        named = effective.settings.datasource.get(str(datasource))
        if named is None:
            raise click.UsageError(f"the settings have no datasource {datasource!r}")
        root = named.data
    return Chosen(effective.settings, effective.properties, root)


def settings_of(options: Mapping[str, str | None]) -> Settings:
    """The settings in force with the options of ``key_options``.

    Raises:
        StartupError: as ``settings.load``.
    """
    flags = {name: value for name, value in options.items() if name != "file"}
    return settings.load(options["file"], flags).settings


def _with(command: Command, *options: Option) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
