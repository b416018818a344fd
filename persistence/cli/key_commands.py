"""Commands about keys: API keys, keys of encryption at rest, signing keys, access tokens, and passwords."""

from __future__ import annotations

import sys
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import click

from persistence.cli.options import (
    ChosenTree,
    Duration,
    all_trees,
    common_options,
    encryption_remark,
    form_names,
    load,
    managing,
    on_each,
    say_where,
    usage_errors,
    version_number,
)
from persistence.cli.statuses import REMAINS
from persistence.cli.terminal import (
    counted,
    is_json,
    json_option,
    print_table,
    progress,
    safe,
    say_error,
    say_json,
    say_list,
    say_result,
    shown_path,
)
from persistence.errors import BadRequestError, ConflictError, NotSupportedError, PersistenceError
from persistence.keys import SCOPES, WITHOUT_KEYS, Scope, limited_administrators
from persistence.maintenance import records
from persistence.model.addresses import Form, TokenSubject
from persistence.model.instants import from_datetime
from persistence.pages.page_files import KeyUses
from persistence.properties.properties import Properties
from persistence.providers.locations import open_encryption_keys, open_keys
from persistence.services.access import GRANTABLE, AccessTokens
from persistence.services.reencryption import KeyReferences

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
    say_result({"name": name, "key": secret}, secret, click.echo)
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
def list_api_keys(**options: str | None) -> None:
    """Print the name of each API key, when it was made, when it expires, when it was last used, and its limits.

    The service notes the last use once a minute. What is not known is left out.
    """
    settings = load(options).settings
    keys = open_keys(settings).read()
    used = dict[str, float]()
    with suppress(PersistenceError):  # the keys are there without it
        used = KeyUses.of(settings.home).last()
    facts, rows = [], [_API_KEY_HEADINGS]
    for key in keys:
        at = used.get(key.name)
        last = "" if at is None else from_datetime(datetime.fromtimestamp(at, UTC))
        known = {"name": key.name, "made": key.created, "expires": key.expires, "expired": key.is_expired}
        facts.append({**known, "last_used": last or None, "scopes": key.scopes, "forms": key.forms})
        end = "" if key.expires is None else f"{key.expires}{' (expired)' if key.is_expired else ''}"
        limits = " ".join((*(f"--scope {each}" for each in key.scopes), *(f"--form {each}" for each in key.forms)))
        rows.append((key.name, key.created, end, last, safe(limits)))
    say_list(facts, rows, "there are no keys")


@api_key.command("retire", short_help="Let an API key open nothing from now on.")
@click.argument("name", metavar="NAME")
@common_options
def retire_api_key(*, name: str, **options: str | None) -> None:
    """Forget the API key NAME: it opens nothing from now on."""
    keys = open_keys(load(options).settings)
    keys.remove(name)
    if not keys.read():
        click.echo(f"that was the last key: {WITHOUT_KEYS}", err=True)


_KEY_HEADINGS = ("ID", "MADE", "DOES")


@click.group("encryption-key", short_help="Encryption keys, with which data is encrypted.")
def encryption_key() -> None:
    """Make, list and retire the keys that encrypt stored data. The newest encrypts, all decrypt.

    A change counts at once, also for a service that runs.
    """


@encryption_key.command("new", short_help="Make a key that encrypts from now on.")
@click.option("--yes", is_flag=True, help="Make one although keys are missing that stored data needs.")
@json_option
@common_options
def new_encryption_key(*, yes: bool, **options: str | None) -> None:
    """Make an encryption key, which encrypts from now on, and print its id.

    The keys before it stay, for reading; persistence reencrypt encrypts stored data with the new one. Back up the file
    of the keys, apart from the data: without it, encrypted data is lost.
    """
    effective = load(options)
    settings = effective.settings
    keys = open_encryption_keys(settings, effective.properties)
    remark = None if yes else encryption_remark(settings, effective.properties)
    if remark is not None:
        raise ConflictError(
            f"{remark}, and a new key does not replace them: put the file of the keys back, or add one with --yes"
        )
    made = keys.new()
    records.note(settings.home, [made])
    say_result({"id": made}, made, click.echo)
    click.echo(f"the key is in {settings.encryption_keys}: make a copy, and keep it apart from the data", err=True)
    say_where(effective, "encryption_keys")


@encryption_key.command("list", short_help="List the encryption keys.")
@json_option
@common_options
def list_encryption_keys(**options: str | None) -> None:
    """Print the id of each encryption key, when it was made, and what it does."""
    effective = load(options)
    settings = effective.settings
    keys = open_encryption_keys(settings, effective.properties)
    ring, made = keys.ring(), {known.id: known.created for known in keys.list()}
    facts, rows = [], [_KEY_HEADINGS]
    for key_id in ring.keys:
        since, encrypts = None if keys.are_given else made[key_id], key_id == ring.writing
        facts.append({"id": key_id, "made": since, "in_environment": keys.are_given, "encrypts": encrypts})
        rows.append((key_id, since or "from the environment", "encrypts" if encrypts else "only decrypts"))
    say_list(facts, rows, "there are no encryption keys")


@encryption_key.command("retire", short_help="Take out a key with which nothing is encrypted.")
@click.argument("key_id", metavar="ID")
@click.option("--dry-run", is_flag=True, help="Only look whether something is encrypted with it.")
@click.option(
    "--leave-out", metavar="PROVIDER", multiple=True, help="Do not look at this provider, which is another service."
)
@json_option
@common_options
def retire_encryption_key(*, key_id: str, dry_run: bool, leave_out: tuple[str, ...], **options: str | None) -> None:
    """Take the encryption key ID out of the file of the keys, if nothing is encrypted with it any more.

    All trees and databases of the settings are looked at: documents, drafts, attachments, and their older revisions.
    If something needs the key, nothing is changed: run persistence reencrypt first. What another service keeps cannot
    be looked at.

    The key goes to a file of its own beside the others. Backups and exports that were made before may need it, and so
    may what a repair has put into .quarantine: keep the file with them, and remove it when they are gone. The service
    may run. A key that is missing is needed no longer, where nothing is encrypted with it.
    """
    effective = load(options)
    settings, properties = effective.settings, effective.properties
    keys = open_encryption_keys(settings, properties)
    is_missing = key_id in records.missing(records.needed(settings.home), keys)
    if not is_missing:
        keys.require_retirable(key_id)
    _require_no_services(properties, leave_out)
    look = partial(_look, key_id=key_id, left_out=leave_out)
    status, path = on_each(all_trees(effective), look), None
    if not (status or dry_run):
        if not is_missing:
            path = keys.retire(key_id)
        records.forget(settings.home, key_id)
    if status:
        text = f"{key_id} is not retired{': run persistence reencrypt first' if status == REMAINS else ''}"
    elif path is None:
        text = f"nothing is encrypted with {key_id}"
    else:
        text = f"{key_id} is retired; it is in {shown_path(path)}: backups made before may need it"
    say_result({"id": key_id, "needed": bool(status), "file": path}, text, say_error)
    sys.exit(status)


def _require_no_services(properties: Properties, left_out: Collection[str]) -> None:
    others = [each for each in (*properties.form_providers, *properties.attachment_providers) if each.is_service]
    for name in left_out:
        if name not in {each.name for each in others}:
            raise click.UsageError(f"--leave-out {safe(name)}: no provider of that name is another service")
    for each in others:
        if each.name not in left_out:
            raise NotSupportedError(
                f"provider {each.name} is another service, {each.uri}, where this command cannot look: "
                f"--leave-out {each.name} if nothing there is encrypted with the key"
            )


def _look(tree: ChosenTree, prefix: str, *, key_id: str, left_out: Collection[str]) -> int:
    def elsewhere(form: Form) -> bool:
        attachments = tree.properties.of(form).route.attachments
        return attachments is not None and attachments.name in left_out

    with managing(tree) as place:
        store = place.storage
        references = KeyReferences(store, place.providers.bodies_by_form, key_id, elsewhere)
        forms = sorted(store.forms(), key=str)
        listed = (store.documents_and_drafts(form) for form in forms)
        with progress(f"{prefix}looking", lambda: sum(1 for documents in listed for _ in documents)) as bar:
            for form in forms:
                count = 0
                for document in store.documents_and_drafts(form):
                    found, problems = references.of(form, document)
                    count += found
                    for problem in problems:
                        bar.say_problem(problem, tree.name, prefix)
                    bar.step()
                if count:
                    line = safe(f"{prefix}{form}: {counted(count, 'revision')} encrypted with {key_id}")
                    facts = {"tree": tree.name, "form": str(form), "revisions": count}
                    bar.say_either(facts, line)
    return REMAINS if bar.lines else 0


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
def list_passwords(**options: str | None) -> None:
    """Print the name of each administrator with a password, and when it was set."""
    passwords = open_keys(load(options).settings).passwords()
    if not passwords:
        click.echo("there are no passwords", err=True)
    elif is_json():
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


@click.command(short_help="Issue an access token for a document.")
@click.argument("document", metavar="APP/FORM/VERSION/DOCUMENT")
@click.option("--operations", metavar="LIST", default="read", show_default=True, help=f"Some of {','.join(GRANTABLE)}.")
@click.option("--expires", type=Duration(), metavar="TIME", required=True, help="Time until it expires: 8h, 7d, say.")
@json_option
@common_options
def token(*, document: str, operations: str, expires: float, **options: str | None) -> None:
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
    say_result({"token": made, "valid_seconds": expires}, made, click.echo)
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
def new_signing_key(**options: str | None) -> None:
    """Make a key that signs access tokens from now on, and print its id.

    Tokens that the keys before it have signed stay valid until they expire, or until their key is retired.
    """
    effective = load(options)
    made = open_keys(effective.settings).add_signing()
    say_result({"id": made}, str(made), click.echo)
    say_where(effective, "keys")


@signing_key.command("list", short_help="List the signing keys.")
@json_option
@common_options
def list_signing_keys(**options: str | None) -> None:
    """Print the id of each signing key, when it was made, and what it does."""
    keys = open_keys(load(options).settings).signing()
    facts = [{"id": each.id, "made": each.created, "signs": each is keys[-1]} for each in keys]
    rows = [(each.id, each.created, "signs" if each is keys[-1] else "only verifies") for each in keys]
    say_list(facts, (_KEY_HEADINGS, *rows), "there are no signing keys")


@signing_key.command("retire", short_help="Let a signing key verify nothing from now on.")
@click.argument("key_id", metavar="ID")
@common_options
def retire_signing_key(*, key_id: str, **options: str | None) -> None:
    """Forget the signing key ID: access tokens that it has signed are refused from now on."""
    open_keys(load(options).settings).remove_signing(key_id)
