"""``persistence help`` and ``persistence version``."""

from __future__ import annotations

import click

from persistence import __version__
from persistence.cli.terminal import json_option, say_json


@click.command("help", short_help="Print the help of a command.")
@click.argument("names", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def help_(context: click.Context, /, names: tuple[str, ...]) -> None:
    """Print the help of a command, as its option --help does; without COMMAND, the list of the commands."""
    within = context.find_root()
    command: click.Command | None = within.command
    for at, name in enumerate(names):
        if not isinstance(command, click.Group):
            raise click.UsageError(f"{' '.join(names[:at])} has no subcommands")
        _, command, _ = command.resolve_command(within, [name])
        if command is None:
            raise click.UsageError(f"there is no command {name}")
        within = click.Context(command, parent=within, info_name=name)
    click.echo(within.get_help())


@click.command(short_help="Print the version.")
@json_option
def version(*, as_json: bool) -> None:
    """Print the version, as the option --version does."""
    if as_json:
        say_json({"version": __version__})
    else:
        click.echo(f"persistence, version {__version__}")
