"""``persistence password``: the passwords with which administrators sign in to the pages."""

from __future__ import annotations

import sys

import click

from persistence.cli.options import common_options, load, say_where, usage_errors
from persistence.cli.terminal import json_option, print_table, say_json
from persistence.providers.locations import open_keys

_PASSWORD_HEADINGS = ("NAME", "SET")
_LINE = 4096


@click.group(short_help="Passwords of administrators, for the pages.")
def password() -> None:
    """Set, list and remove the passwords with which administrators sign in to the pages at /admin/.

    Only a digest of a password is kept. A change counts at once, also for a service that runs.
    """


@password.command("set", short_help="Set the password of an administrator.")
@click.argument("name", metavar="NAME")
@common_options
def set_password(*, name: str, **options: str | None) -> None:
    """Set the password of the administrator NAME, of at least 12 characters.

    It is asked for twice on a terminal, and else read from the first line of standard input. The log and the audit call
    the administrator NAME. Sessions that another password of NAME has begun end.
    """
    effective = load(options)
    settings = effective.settings
    if sys.stdin.isatty():
        text = click.prompt("Password", hide_input=True, confirmation_prompt="The same again", err=True)
    else:
        text = sys.stdin.readline(_LINE).rstrip("\r\n")
    keys = open_keys(settings)
    with usage_errors():
        keys.set_password(name, text)
    click.echo(f"{name} may sign in at /admin/ with this password; a digest of it is in {settings.keys}", err=True)
    say_where(effective, "keys")


@password.command("list", short_help="List the administrators with a password.")
@json_option
@common_options
def list_passwords(*, as_json: bool, **options: str | None) -> None:
    """Print the name of each administrator with a password, and when it was set."""
    passwords = open_keys(load(options).settings).passwords()
    if not passwords:
        click.echo("there are no passwords", err=True)
    elif as_json:
        for each in passwords:
            say_json({"name": each.name, "made": each.created})
    else:
        print_table((_PASSWORD_HEADINGS, *((each.name, each.created) for each in passwords)))


@password.command("remove", short_help="Remove the password of an administrator.")
@click.argument("name", metavar="NAME")
@common_options
def remove_password(*, name: str, **options: str | None) -> None:
    """Remove the password of NAME: the sessions that it has begun end now."""
    open_keys(load(options).settings).remove_password(name)
