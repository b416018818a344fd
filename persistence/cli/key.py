"""``persistence key``: the API keys with which programs call the service, and the keys of encryption at rest."""

from __future__ import annotations

import click

from persistence.cli.options import Duration, key_options, load, property_options, usage_errors
from persistence.providers.locations import open_encryption_keys, open_keys
from persistence.settings import Settings
from persistence.storage import owner
from persistence.storage.owner import Identity


@click.group(short_help="Keys: of callers, of access tokens, of encryption.")
def key() -> None:
    """API keys: add, list and remove. Encryption keys: new and ring. Signing keys: those with -signing.

    An API key lets a program call the service. An encryption key encrypts what is stored. A signing key signs access
    tokens. One has nothing to do with the other. What is changed counts at once, also for a service that runs.
    """


@key.command(short_help="Make an API key and print it, this once.")
@click.argument("name", metavar="NAME")
@click.option("--expires", type=Duration(), metavar="TIME", help="Let it open nothing after this time, such as 90d.")
@key_options
def add(*, name: str, expires: float | None, **options: str | None) -> None:
    """Make an API key for the caller NAME and print it, this once.

    NAME is what the log calls the caller. Only a digest of the key is kept.
    """
    effective = load(options).settings
    with owner.being(owner.identity_for(effective.keys, effective.data)), usage_errors():
        secret = open_keys(effective).add(name, expires)
    click.echo(secret)
    click.echo(
        f"a digest of the key is in {effective.keys}, the key itself nowhere else; a caller sends it as "
        "'Authorization: Bearer KEY', or as the password beside any user name. From now on whoever is not trusted "
        "needs a key",
        err=True,
    )


@key.command("list", short_help="List the API keys.")
@key_options
def list_keys(**options: str | None) -> None:
    """Print the name of each API key, when it was made, and when it expires."""
    effective = load(options).settings
    with owner.being(owner.identity_for(effective.keys, effective.data)):
        keys = open_keys(effective).read()
    for known in keys:
        end = "" if known.expires is None else f"  {'expired' if known.is_expired else 'expires'} {known.expires}"
        click.echo(f"{known.name}  {known.created}{end}")
    if not keys:
        click.echo("there are no keys", err=True)


@key.command()
@click.argument("name", metavar="NAME")
@key_options
def remove(*, name: str, **options: str | None) -> None:
    """Remove the API key NAME: it opens nothing from now on."""
    effective = load(options).settings
    with owner.being(owner.identity_for(effective.keys, effective.data)):
        open_keys(effective).remove(name)


@key.command("add-signing", short_help="Make a key that signs access tokens from now on.")
@key_options
def add_signing(**options: str | None) -> None:
    """Make a key that signs access tokens from now on, and print its id.

    Tokens that the keys before it have signed stay valid until they expire, or until their key is removed.
    """
    effective = load(options).settings
    with owner.being(owner.identity_for(effective.keys, effective.data)):
        click.echo(open_keys(effective).add_signing())


@key.command("list-signing", short_help="List the keys of access tokens.")
@key_options
def list_signing(**options: str | None) -> None:
    """Print the id of each key of access tokens, when it was made, and what it does."""
    effective = load(options).settings
    with owner.being(owner.identity_for(effective.keys, effective.data)):
        keys = open_keys(effective).signing()
    for known in keys:
        click.echo(f"{known.id}  {known.created}  {'signs' if known is keys[-1] else 'only verifies'}")
    if not keys:
        click.echo("there are no signing keys", err=True)


@key.command("remove-signing", short_help="Remove a key of access tokens.")
@click.argument("key_id", metavar="ID")
@key_options
def remove_signing(*, key_id: str, **options: str | None) -> None:
    """Remove the key ID: access tokens that it has signed are refused from now on."""
    effective = load(options).settings
    with owner.being(owner.identity_for(effective.keys, effective.data)):
        open_keys(effective).remove_signing(key_id)


@key.command()
@property_options
def new(**options: str | None) -> None:
    """Make an encryption key, which encrypts from now on.

    The keys before it stay, for reading; persistence reencrypt encrypts with the new one what is stored. The file of
    the keys must be backed up, and apart from the data: without it, what is encrypted is lost.
    """
    effective = load(options)
    keys = open_encryption_keys(effective.settings, effective.properties)
    with owner.being(_identity(effective.settings)):
        made = keys.new()
    click.echo(made)
    click.echo(
        f"the key is in {effective.settings.encryption_keys}: make a copy, and keep it apart from the data", err=True
    )


@key.command()
@property_options
def ring(**options: str | None) -> None:
    """Print the id of each encryption key and what it does."""
    effective = load(options)
    keys = open_encryption_keys(effective.settings, effective.properties)
    with owner.being(_identity(effective.settings)):
        in_use, made = keys.ring(), {known.id: known.created for known in keys.list()}
    for key_id in in_use.keys:
        does = "encrypts" if key_id == in_use.writing else "only decrypts"
        click.echo(f"{key_id}  {'from the environment' if keys.are_given else made[key_id]}  {does}")
    if not in_use.keys:
        click.echo("there are no encryption keys", err=True)


def _identity(effective: Settings) -> Identity:
    """Return the identity that works on the encryption keys; those of the environment are in no file."""
    return owner.identity_for(effective.encryption_keys, effective.data)
