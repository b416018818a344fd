"""The command ``persistence``: one module per subcommand."""

from __future__ import annotations

import sys

import click

from persistence.cli.backup import backup, restore
from persistence.cli.check import check
from persistence.cli.config import config
from persistence.cli.forms import forms
from persistence.cli.key import key
from persistence.cli.reencrypt import reencrypt
from persistence.cli.reindex import reindex
from persistence.cli.search import search
from persistence.cli.serve import serve
from persistence.cli.show import show
from persistence.cli.upgrade import upgrade
from persistence.errors import PersistenceError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="persistence")
def commands() -> None:
    """Keep forms as plain files: definitions, data, drafts and attachments, over REST."""


for command in (serve, config, key, forms, show, search, check, reindex, reencrypt, backup, restore, upgrade):
    commands.add_command(command)


def main() -> None:
    """The entry point; what cannot be done is said in one line, with status 1."""
    try:
        commands(prog_name="persistence")
    except PersistenceError as error:
        click.echo(f"persistence: {error}", err=True)
        sys.exit(1)
