"""``persistence key``: make, list and remove the API keys with which programs call the service."""

from __future__ import annotations

import click

from persistence.app import open_keys
from persistence.cli.options import key_options, settings_of
from persistence.errors import BadRequestError


@click.group()
def key() -> None:
    """Make, list and remove API keys.

    What is changed counts at once, also for a service that runs.
    """


@key.command()
@click.argument("name", metavar="NAME")
@key_options
def add(*, name: str, **options: str | None) -> None:
    """Make a key for the caller NAME and print it, this once.

    NAME is what the log calls the caller. Only a digest of the key is kept.
    """
    settings = settings_of(options)
    try:
        secret = open_keys(settings).add(name)
    except BadRequestError as error:
        raise click.UsageError(str(error)) from error
    click.echo(secret)
    click.echo(
        f"a digest of the key is in {settings.keys}, the key itself nowhere else; a caller sends it as "
        "'Authorization: Bearer KEY', or as the password beside any user name. From now on whoever is not trusted "
        "needs a key",
        err=True,
    )


@key.command("list")
@key_options
def list_keys(**options: str | None) -> None:
    """Print the name of each key and when it was made."""
    keys = open_keys(settings_of(options)).read()
    for known in keys:
        click.echo(f"{known.name}  {known.created}")
    if not keys:
        click.echo("there are no keys", err=True)


@key.command()
@click.argument("name", metavar="NAME")
@key_options
def remove(*, name: str, **options: str | None) -> None:
    """Remove the key NAME: it opens nothing from now on."""
    open_keys(settings_of(options)).remove(name)
