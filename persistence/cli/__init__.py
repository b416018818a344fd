"""The command ``persistence``; the module of a subcommand is loaded when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import FishComplete, add_completion_class

from persistence import __version__
from persistence.cli import statuses
from persistence.errors import PersistenceError
from persistence.model.texts import similar

_MODULES: Mapping[str, str] = {
    "init": "init",
    "demo": "demo",
    "serve": "serve",
    "health": "health",
    "check-runtime": "check_runtime",
    "config": "config",
    "api-key": "api_key",
    "encryption-key": "encryption_key",
    "signing-key": "token",
    "password": "password",
    "token": "token",
    "forms": "forms",
    "show": "show",
    "history": "history",
    "diff": "diff",
    "revert": "revert",
    "search": "search",
    "leases": "leases",
    "audit": "audit",
    "export": "export",
    "import": "imports",
    "check": "check",
    "reindex": "trees",
    "reencrypt": "trees",
    "backup": "backup",
    "restore": "restore",
    "move": "move",
    "purge": "purge",
    "erase": "erase",
    "upgrade": "trees",
    "help": "manual",
    "version": "manual",
}
"""The module of each subcommand: loading those of all takes longer than most of them run."""

_AS_NAMES = {"import": "import_", "help": "help_"}
"""The names in a module that differ from those of the commands, which Python has itself."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click has it
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as click has it
        module = _MODULES.get(cmd_name)
        if module is None:
            return None
        name = _AS_NAMES.get(cmd_name, cmd_name.replace("-", "_"))
        command: click.Command = getattr(import_module(f"{__name__}.{module}"), name)
        statuses.state(cmd_name, command)
        auditing = import_module(f"{__name__}.auditing")
        return auditing.audited(cmd_name, command)  # type: ignore[no-any-return]  # as it was

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _MODULES and not name.startswith("-"):
            near = similar(name, _MODULES)
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
