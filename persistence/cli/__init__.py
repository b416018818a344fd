"""The command ``persistence``; the module of a subcommand is loaded when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import FishComplete, add_completion_class

from persistence import __version__
from persistence.cli.declarations import command, exits
from persistence.cli.terminal import say_result
from persistence.errors import PersistenceError
from persistence.model.texts import similar

_COMMANDS = (
    ("service_directory", "init config-files demo"),
    ("serve", "serve"),
    ("running_service", "health check-runtime"),
    ("serve", "config"),
    ("key_commands", "api-key encryption-key signing-key password token"),
    ("report_commands", "forms show"),
    ("document_commands", "definition"),
    ("document_commands", "change history diff revert search"),
    ("tree_commands", "leases events"),
    ("auditing", "audit"),
    ("transfer_commands", "export import"),
    ("tree_commands", "check reindex reencrypt"),
    ("backup_commands", "backup restore"),
    ("transfer_commands", "move"),
    ("removal_commands", "purge erase"),
    ("tree_commands", "upgrade"),
)
"""Modules and their subcommands, in the order of the help."""
_MODULES: Mapping[str, str] = {name: module for module, names in _COMMANDS for name in names.split()}
"""The module of each subcommand: loading those of all takes longer than most of them run."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click has it
        return [*_MODULES, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as click has it
        module = _MODULES.get(cmd_name)
        if module is None:
            return self.commands.get(cmd_name)
        name = "import_" if cmd_name == "import" else cmd_name.replace("-", "_")  # import is a word of Python
        found: click.Command = getattr(import_module(f"{__name__}.{module}"), name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in (known := self.list_commands(ctx)) and not name.startswith("-"):
            near = similar(name, known)
            raise NoSuchCommand(name, possibilities=near and [near], ctx=ctx)
        return super().resolve_command(ctx, args)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="persistence")
def commands() -> None:
    """Keep forms as plain files: definitions, data, drafts and attachments, over REST."""


@add_completion_class
class _FishCompletion(FishComplete):
    """The completion that click has for fish, without cutting each description at its first comma."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


def main() -> None:
    """Run the command; report a failure in one line, with status 1."""
    try:
        commands(prog_name="persistence")
    except PersistenceError as error:
        shown_address = import_module("persistence.properties.property_table").shown_address
        click.echo(f"persistence: {' '.join(map(shown_address, str(error).split(' ')))}", err=True)
        sys.exit(1)


@command("help", "Print the help of a command.", has_json=False)
@exits("printed", usage="wrong usage, also an unknown command")
@click.argument("names", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def help_(context: click.Context, /, names: tuple[str, ...]) -> None:
    """Print the help of a command, as its option --help does; without COMMAND, the list of the commands."""
    within = context.find_root()
    found = within.command
    for at, name in enumerate(names):
        if not isinstance(found, click.Group):
            raise click.UsageError(f"{' '.join(names[:at])} has no subcommands")
        found = found.resolve_command(within, [name])[1] or found  # an unknown name is refused there
        within = click.Context(found, parent=within, info_name=name)
    click.echo(within.get_help())


@command("version", "Print the version.")
@exits("printed")
def version() -> None:
    """Print the version, as the option --version does."""
    say_result({"version": __version__}, f"persistence, version {__version__}")


for _own in (help_, version):
    commands.add_command(_own)
