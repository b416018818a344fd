"""``persistence encryption-key``: the keys of encryption at rest."""

from __future__ import annotations

import click

from persistence.cli.options import common_options, load
from persistence.cli.terminal import json_option, print_table, say_json
from persistence.providers.locations import open_encryption_keys
from persistence.storage import owner

_HEADINGS = ("ID", "MADE", "DOES")


@click.group("encryption-key", short_help="Encryption keys, with which data is encrypted.")
def encryption_key() -> None:
    """Make and list the keys that encrypt what is stored. The newest encrypts, all decrypt.

    What is changed counts at once, also for a service that runs.
    """


@encryption_key.command("new", short_help="Make a key that encrypts from now on.")
@json_option
@common_options
def new(*, as_json: bool, **options: str | None) -> None:
    """Make an encryption key, which encrypts from now on, and print its id.

    The keys before it stay, for reading; persistence reencrypt encrypts with the new one what is stored. The file of
    the keys must be backed up, and apart from the data: without it, what is encrypted is lost.
    """
    effective = load(options)
    settings = effective.settings
    keys = open_encryption_keys(settings, effective.properties)
    with owner.being(owner.identity_for(settings.encryption_keys, settings.home)):
        made = keys.new()
    if as_json:
        say_json({"id": made})
    else:
        click.echo(made)
    click.echo(f"the key is in {settings.encryption_keys}: make a copy, and keep it apart from the data", err=True)


@encryption_key.command("list", short_help="List the encryption keys.")
@json_option
@common_options
def list_keys(*, as_json: bool, **options: str | None) -> None:
    """Print the id of each encryption key, when it was made, and what it does."""
    effective = load(options)
    settings = effective.settings
    keys = open_encryption_keys(settings, effective.properties)
    with owner.being(owner.identity_for(settings.encryption_keys, settings.home)):
        ring, made = keys.ring(), {known.id: known.created for known in keys.list()}
    if as_json:
        for key_id in ring.keys:
            facts = {"id": key_id, "made": None if keys.are_given else made[key_id], "in_environment": keys.are_given}
            say_json({**facts, "encrypts": key_id == ring.writing})
        return
    if not ring.keys:
        click.echo("there are no encryption keys", err=True)
        return
    rows = [
        (
            key_id,
            "from the environment" if keys.are_given else made[key_id],
            "encrypts" if key_id == ring.writing else "only decrypts",
        )
        for key_id in ring.keys
    ]
    print_table((_HEADINGS, *rows))
