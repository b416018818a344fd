"""``persistence token`` issues access tokens (spec crud 6.6), and ``persistence signing-key`` has what signs them."""

from __future__ import annotations

import click

from persistence.cli.options import Duration, common_options, load, say_where, usage_errors, version_number
from persistence.cli.terminal import json_option, print_table, safe, say_json
from persistence.errors import BadRequestError
from persistence.model.addresses import Form, TokenSubject
from persistence.providers.locations import open_keys
from persistence.services.tokens import GRANTABLE, AccessTokens

_SIGNING_KEY_HEADINGS = ("ID", "MADE", "DOES")


@click.command(short_help="Issue an access token for a document.")
@click.argument("document", metavar="APP/FORM/VERSION/DOCUMENT")
@click.option("--operations", metavar="LIST", default="read", show_default=True, help=f"Some of {','.join(GRANTABLE)}.")
@click.option("--expires", type=Duration(), metavar="TIME", required=True, help="Time until it expires: 8h, 7d, say.")
@json_option
@common_options
def token(*, document: str, operations: str, expires: float, as_json: bool, **options: str | None) -> None:
    """Print an access token: its holder may do the operations with the document until it expires.

    It is sent as the parameter fr-access-token of a request for the document or its attachments. An operation counts
    only if a permission of the form for anyone-with-token has it. The property access-token.validity of the form must
    allow the time; by default it allows none. The document need not exist.

    The first token makes a key that signs tokens, in the file of the API keys.
    """
    effective = load(options)
    settings = effective.settings
    with usage_errors():
        subject = _subject(document)
        validity = effective.properties.of(subject.form).token_validity
        keys = open_keys(settings)
        tokens = AccessTokens(keys.ensured_signing_secrets)
        names = filter(None, map(str.strip, operations.split(",")))
        made = tokens.issue(subject, names, expires, validity)
    if as_json:
        say_json({"token": made, "valid_seconds": expires})
    else:
        click.echo(made)
    click.echo(f"this token is a secret: everybody who has it may use it for the next {expires:g} seconds", err=True)


def _subject(text: str) -> TokenSubject:
    match text.split("/"):
        case [app, name, number, document] if app and name and document:
            return TokenSubject(Form(app, name), version_number(number), document)
        case _:
            raise BadRequestError(f"{safe(text)} is not APP/FORM/VERSION/DOCUMENT")


@click.group("signing-key", short_help="Signing keys, with which access tokens are signed.")
def signing_key() -> None:
    """Make, list and retire keys that sign access tokens. The newest signs, all verify.

    A change counts at once, also for a service that runs.
    """


@signing_key.command("new", short_help="Make a key that signs from now on.")
@json_option
@common_options
def new_signing_key(*, as_json: bool, **options: str | None) -> None:
    """Make a key that signs access tokens from now on, and print its id.

    Tokens that the keys before it have signed stay valid until they expire, or until their key is retired.
    """
    effective = load(options)
    made = open_keys(effective.settings).add_signing()
    if as_json:
        say_json({"id": made})
    else:
        click.echo(made)
    say_where(effective, "keys")


@signing_key.command("list", short_help="List the signing keys.")
@json_option
@common_options
def list_signing_keys(*, as_json: bool, **options: str | None) -> None:
    """Print the id of each signing key, when it was made, and what it does."""
    keys = open_keys(load(options).settings).signing()
    if as_json:
        for each in keys:
            say_json({"id": each.id, "made": each.created, "signs": each is keys[-1]})
        return
    if not keys:
        click.echo("there are no signing keys", err=True)
        return
    rows = [(each.id, each.created, "signs" if each is keys[-1] else "only verifies") for each in keys]
    print_table((_SIGNING_KEY_HEADINGS, *rows))


@signing_key.command("retire", short_help="Let a signing key verify nothing from now on.")
@click.argument("key_id", metavar="ID")
@common_options
def retire_signing_key(*, key_id: str, **options: str | None) -> None:
    """Forget the signing key ID: access tokens that it has signed are refused from now on."""
    open_keys(load(options).settings).remove_signing(key_id)
