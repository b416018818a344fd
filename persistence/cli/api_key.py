"""``persistence api-key``: the keys with which programs call the service."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import click

from persistence.cli.completion import form_names
from persistence.cli.options import Duration, common_options, load, say_where, usage_errors
from persistence.cli.terminal import json_option, print_table, safe, say_json
from persistence.errors import PersistenceError
from persistence.keys import SCOPES, WITHOUT_KEYS, Scope, limited_administrators
from persistence.model.instants import from_datetime
from persistence.pages.key_uses import KeyUses
from persistence.providers.locations import open_keys

_API_KEY_HEADINGS = ("NAME", "MADE", "EXPIRES", "LAST USED", "LIMITS")


@click.group("api-key", short_help="API keys, with which programs call the service.")
def api_key() -> None:
    """Make, list and retire API keys. A program that shows one may call the service.

    A change counts at once, also for a service that runs.
    """


@api_key.command("new", short_help="Make an API key and print it, this once.")
@click.argument("name", metavar="NAME")
@click.option("--expires", type=Duration(), metavar="TIME", help="Let it open nothing after this time, such as 90d.")
@click.option("--scope", "scopes", type=click.Choice(SCOPES), multiple=True, help="Let it only read: change nothing.")
@click.option(
    "--form",
    "forms",
    multiple=True,
    metavar="APP[/FORM]",
    help="Let it call for this form or application only; repeatable.",
    shell_complete=form_names,
)
@json_option
@common_options
def new_api_key(
    *,
    name: str,
    expires: float | None,
    scopes: tuple[Scope, ...],
    forms: tuple[str, ...],
    as_json: bool,
    **options: str | None,
) -> None:
    """Make an API key for the caller NAME and print it, this once.

    The log calls the caller NAME. Only a digest of the key is kept. A key without --scope and --form may do everything
    that the permissions of forms allow. Its limits cannot be changed: make another key, and retire this one.
    """
    effective = load(options)
    settings = effective.settings
    keys = open_keys(settings)
    with usage_errors():
        is_first = not keys.read()
        secret = keys.add(name, expires, scopes, forms)
        warning = limited_administrators([key for key in keys.read() if key.name == name], settings.administrators)
    if as_json:
        say_json({"name": name, "key": secret})
    else:
        click.echo(secret)
    closed = ". From now on callers who are not trusted need a key" if is_first else ""
    click.echo(
        f"a digest of the key is in {settings.keys}, the key itself nowhere else; a caller sends it as "
        f"'Authorization: Bearer KEY', or as the password beside any user name{closed}",
        err=True,
    )
    say_where(effective, "keys")
    if warning is not None:
        click.echo(f"persistence: {warning}", err=True)


@api_key.command("list", short_help="List the API keys.")
@json_option
@common_options
def list_api_keys(*, as_json: bool, **options: str | None) -> None:
    """Print the name of each API key, when it was made, when it expires, when it was last used, and its limits.

    The service notes the last use once a minute. What is not known is left out.
    """
    settings = load(options).settings
    keys = open_keys(settings).read()
    used = dict[str, float]()
    with suppress(PersistenceError):  # the keys are there without it
        used = KeyUses.of(settings.home).last()
    if as_json:
        for key in keys:
            facts = {"name": key.name, "made": key.created, "expires": key.expires, "expired": key.is_expired}
            limits = {"scopes": key.scopes, "forms": key.forms}
            say_json({**facts, "last_used": _shown(used.get(key.name)) or None, **limits})
        return
    if not keys:
        click.echo("there are no keys", err=True)
        return
    rows = [_API_KEY_HEADINGS]
    for key in keys:
        end = "" if key.expires is None else f"{key.expires}{' (expired)' if key.is_expired else ''}"
        shown = " ".join((*(f"--scope {each}" for each in key.scopes), *(f"--form {each}" for each in key.forms)))
        rows.append((key.name, key.created, end, _shown(used.get(key.name)), safe(shown)))
    print_table(rows)


def _shown(used: float | None) -> str:
    return "" if used is None else from_datetime(datetime.fromtimestamp(used, UTC))


@api_key.command("retire", short_help="Let an API key open nothing from now on.")
@click.argument("name", metavar="NAME")
@common_options
def retire_api_key(*, name: str, **options: str | None) -> None:
    """Forget the API key NAME: it opens nothing from now on."""
    keys = open_keys(load(options).settings)
    keys.remove(name)
    if not keys.read():
        click.echo(f"that was the last key: {WITHOUT_KEYS}", err=True)
