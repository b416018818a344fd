"""``persistence init``: make a service directory with settings and data, or only a data directory."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click

from persistence import shipped
from persistence.cli.options import choose_trees, tree_options
from persistence.cli.terminal import json_option, own_command, safe, say_json, shown_path
from persistence.errors import StartupError, disk_errors
from persistence.properties.property_table import is_database, resolved_place
from persistence.providers.preparing import init_database, init_places
from persistence.settings import DEFAULT_FILE, Settings
from persistence.storage import directories, files, owner, root

_SAMPLE = "persistence.toml"
_OF_THE_DISK = frozenset({"lost+found"})


@click.command(short_help="Make a directory for a service, or data directories.")
@click.argument("directory", metavar="[DIR]", required=False)
@json_option
@tree_options
def init(*, directory: str | None, as_json: bool, **options: str | None) -> None:
    """Make a service directory in DIR, which must be empty or missing: settings, and a data directory.

    Run it as the user of the service. With --data only a data directory, or the tables in a database, is made.
    Without DIR and --data the data directories of the settings are made: the default one and that of each datasource,
    or only that of --datasource. A data directory that exists is left as it is.
    """
    if directory is not None and is_database(directory):
        if options["data"] is not None or options["datasource"] is not None:
            raise click.UsageError("the address of a database excludes --data and --datasource")
    elif directory is not None:
        if any(value is not None for value in options.values()):
            raise click.UsageError("DIR excludes --data, --datasource, --config and --dialect")
        _say_made(*make_service_directory(resolved_place(directory)), as_json=as_json)
        return
    for place, is_new in _make({**options, "data": directory or options["data"]}):
        if as_json:
            say_json({"place": safe(place), "new": is_new})
            continue
        is_what = "is a data directory" if os.path.isabs(place) else "is prepared"
        click.echo(f"{safe(place)} {is_what} {'now' if is_new else 'already'}")


def _say_made(file: str, data: str, *, as_json: bool) -> None:
    settings, tree = shown_path(file), shown_path(data)
    if as_json:
        say_json({"settings": settings, "data": tree})
        return
    click.echo(f"settings:        {settings}")
    click.echo(f"data directory:  {tree}")
    click.echo(f"start it with:   {own_command()} serve --config {settings}")


def make_service_directory(path: str) -> tuple[str, str]:
    """Make a service directory at an absolute path; return the paths of its settings file and data directory.

    Keys will be beside the data directory, not in it.
    """
    file, data = f"{path}/{DEFAULT_FILE}", f"{path}/{Settings().data}"
    owner.require_closed(path)
    with disk_errors(f"directory {path}"):
        directories.ensure(path)
        _require_empty(path)
        root.init(data)
        directories.ensure(os.path.dirname(file))
        files.write_durably(file, shipped(_SAMPLE))
    return file, data


def _require_empty(path: str) -> None:
    found = min((name for name in os.listdir(path) if name not in _OF_THE_DISK), default=None)
    if found is not None:
        raise StartupError(
            f"{path} is not empty (it holds {found!r}): a service directory is made in an empty one;"
            " 'persistence init --data DIR' makes only a data directory"
        )


def _make(options: Mapping[str, str | None]) -> list[tuple[str, bool]]:
    if options["data"] is not None and options["datasource"] is not None:
        raise click.UsageError("--data and --datasource exclude each other")
    choice = choose_trees(options)
    if options["data"] is None and options["datasource"] is None:
        return init_places(choice.settings, choice.properties)
    if choice.trees[0].is_database:
        return [init_database(choice.settings, choice.trees[0].place)]
    path = choice.trees[0].root
    return [(path, root.init(path))]
