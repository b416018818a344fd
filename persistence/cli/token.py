"""``persistence token``: issue an access token for one document (spec crud 6.6)."""

from __future__ import annotations

import click

from persistence.cli.options import Duration, common_options, load, usage_errors, version_number
from persistence.cli.terminal import safe
from persistence.errors import BadRequestError
from persistence.model.addresses import Form, TokenSubject
from persistence.providers.locations import open_keys
from persistence.services.tokens import GRANTABLE, AccessTokens
from persistence.storage import owner


@click.command(short_help="Issue an access token for a document.")
@click.argument("document", metavar="APP/FORM/VERSION/DOCUMENT")
@click.option("--operations", metavar="LIST", default="read", show_default=True, help=f"Some of {','.join(GRANTABLE)}.")
@click.option("--expires", type=Duration(), metavar="TIME", required=True, help="Time until it expires: 8h, 7d, say.")
@common_options
def token(*, document: str, operations: str, expires: float, **options: str | None) -> None:
    """Print an access token: whoever has it may do the operations with the document until it expires.

    It is sent as the parameter fr-access-token of a request for the document or its attachments. An operation counts
    only if a permission of the form for anyone-with-token has it. The property access-token.validity of the form must
    allow the time; by default it allows none. The document is not looked for.

    The first token makes a key that signs tokens, in the file of the API keys.
    """
    effective = load(options)
    settings = effective.settings
    with usage_errors():
        subject = _subject(document)
        validity = effective.properties.of(subject.form).token_validity
        with owner.being(owner.identity_for(settings.keys, settings.home)):
            keys = open_keys(settings)
            tokens = AccessTokens(keys.ensured_signing_secrets)
            names = filter(None, map(str.strip, operations.split(",")))
            made = tokens.issue(subject, names, expires, validity)
    click.echo(made)
    click.echo(f"this token is a secret: whoever has it may use it for {expires:g} seconds from now on", err=True)


def _subject(text: str) -> TokenSubject:
    match text.split("/"):
        case [app, name, number, document] if app and name and document:
            return TokenSubject(Form(app, name), version_number(number), document)
        case _:
            raise BadRequestError(f"{safe(text)} is not APP/FORM/VERSION/DOCUMENT")
