"""``persistence signing-key``: the keys that sign access tokens."""

from __future__ import annotations

import click

from persistence.cli.options import common_options, load
from persistence.cli.terminal import say, table, terminal_width
from persistence.providers.locations import open_keys
from persistence.storage import owner

_HEADINGS = ("ID", "MADE", "DOES")


@click.group("signing-key", short_help="Signing keys, with which access tokens are signed.")
def signing_key() -> None:
    """Make, list and retire keys that sign access tokens. The newest signs, all verify.

    What is changed counts at once, also for a service that runs.
    """


@signing_key.command("new", short_help="Make a key that signs from now on.")
@common_options
def new(**options: str | None) -> None:
    """Make a key that signs access tokens from now on, and print its id.

    Tokens that the keys before it have signed stay valid until they expire, or until their key is retired.
    """
    settings = load(options).settings
    with owner.being(owner.identity_for(settings.keys, settings.home)):
        click.echo(open_keys(settings).add_signing())


@signing_key.command("list", short_help="List the signing keys.")
@common_options
def list_keys(**options: str | None) -> None:
    """Print the id of each signing key, when it was made, and what it does."""
    settings = load(options).settings
    with owner.being(owner.identity_for(settings.keys, settings.home)):
        keys = open_keys(settings).signing()
    if not keys:
        click.echo("there are no signing keys", err=True)
        return
    rows = [(each.id, each.created, "signs" if each is keys[-1] else "only verifies") for each in keys]
    for line in table((_HEADINGS, *rows), room=terminal_width()):
        say(line)


@signing_key.command("retire", short_help="Let a signing key verify nothing from now on.")
@click.argument("key_id", metavar="ID")
@common_options
def retire(*, key_id: str, **options: str | None) -> None:
    """Forget the signing key ID: access tokens that it has signed are refused from now on."""
    settings = load(options).settings
    with owner.being(owner.identity_for(settings.keys, settings.home)):
        open_keys(settings).remove_signing(key_id)
