"""The options that set settings, the same for every subcommand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from persistence import settings
from persistence.errors import NotSupportedError
from persistence.maintenance.manifest import attachments_name, tree_name
from persistence.maintenance.tree_reader import TreeReader
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from persistence.properties.property_table import DATA, FORM
from persistence.providers.places import base_of, elsewhere, root_of
from persistence.settings import DEFAULT_FILE, Settings
from persistence.storage.integrity import HandEdits

Command = Callable[..., Any]
Option = Callable[[Command], Command]

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
    """What is in force, and a tree that a command works on: the root, and the name that people know it by."""

    settings: Settings
    properties: Properties
    name: str
    root: str

    def reader(self) -> TreeReader:
        """A look at the tree. Raises what ``TreeReader.of`` does."""
        hand_edits = HandEdits(self.settings.hand_edits)
        there = elsewhere(self.root, self.properties, self.settings.roots, hand_edits)
        return TreeReader.of(self.root, self.properties, there)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is in force, and the trees that a command works on, the default one first.

    ``is_told`` says that an option names the one tree. ``file`` is the settings file, empty where there is none.
    """

    settings: Settings
    properties: Properties
    trees: tuple[Chosen, ...]
    is_told: bool
    file: str

    @property
    def bases(self) -> dict[str, str]:
        """The directories of attachments, each once, by name. Raises ``StartupError`` where a provider has none."""
        first = {base: name for name, base in reversed(self.bases_by_name)}
        return {name: base for name, base in self.bases_by_name if first[base] == name}

    @property
    def bases_by_name(self) -> list[tuple[str, str]]:
        """The names of the directories of attachments, each with its path; several may have one."""
        providers = (each for each in self.properties.attachment_providers if not each.is_remote)
        return [(attachments_name(each.name), base_of(each)) for each in providers]

    def with_data(self, form: Form) -> Chosen:
        """The tree of the data of a form: that which an option names, else where the properties say.

        Raises:
            NotSupportedError: the data is with another service.
            ConfigurationError, StartupError: it has no provider, or the provider no tree.
        """
        return self._of(form, DATA)

    def with_definition(self, form: Form) -> Chosen:
        """The tree of the definition of a form, likewise."""
        return self._of(form, FORM)

    def root_of_records(self, form: Form, base: str) -> str | None:
        """The root of the tree with the records of a form's bodies below ``base``, empty where another service has it.

        ``None`` where the properties lead to another directory, or to none.

        Raises:
            ConfigurationError, StartupError: the form has no provider, or the provider no tree.
        """
        route = self.properties.of(form).route
        if route.attachments is None or route.attachments.is_remote or base_of(route.attachments) != base:
            return None
        return "" if route.data.is_remote else root_of(route.data, self.settings.roots)

    def _of(self, form: Form, kind: str) -> Chosen:
        if self.is_told:
            return self.trees[0]
        route = self.properties.of(form).route
        provider = route.data if kind == DATA else route.definition
        if provider.is_remote:
            what = "data" if kind == DATA else "definition"
            raise NotSupportedError(f"the {what} of {form} is with another service, {provider.address}: look there")
        root = root_of(provider, self.settings.roots)
        return next(each for each in self.trees if each.root == root)


def chosen(options: Mapping[str, object]) -> Choice:
    """What the options of ``tree_options`` choose: the tree that one of them names, else all that the settings name.

    Raises:
        StartupError: as ``settings.load``.
        click.UsageError: there is no such datasource.
    """
    flags = {name: value for name, value in options.items() if name not in ("file", "datasource")}
    file, datasource = options["file"], options["datasource"]
    effective = settings.load(None if file is None else str(file), flags)
    roots = effective.settings.roots
    if datasource is not None and str(datasource) not in roots.named:
        raise click.UsageError(f"the settings have no datasource {datasource!r}")
    if datasource is not None:
        names = {str(datasource): roots.named[str(datasource)]}
    elif flags.get("data") is not None:
        names = {"": roots.default}
    else:
        names = {"": roots.default, **roots.named}
    by_root = {root: name for name, root in reversed(names.items())}
    trees = [
        Chosen(effective.settings, effective.properties, tree_name(name), root)
        for name, root in names.items()
        if by_root[root] == name
    ]
    is_told = datasource is not None or flags.get("data") is not None
    return Choice(effective.settings, effective.properties, tuple(trees), is_told, effective.file)


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
