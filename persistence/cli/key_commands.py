"""Commands about keys: API keys, keys of encryption at rest, signing keys, access tokens, and passwords."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial

import click

from persistence.cli.declarations import REMAINS, always, command, exits, group, unless_dry
from persistence.cli.options import (
    SETTINGS,
    ChosenTree,
    all_trees,
    count_documents,
    encryption_remark,
    form_names,
    on_each,
    parts_of,
    say_where,
    seconds,
    usage_errors,
    version_number,
)
from persistence.cli.terminal import (
    Columns,
    Facts,
    counted,
    progress,
    safe,
    say_error,
    say_result,
    say_table,
    shown_path,
)
from persistence.errors import ConflictError, NotSupportedError, PersistenceError
from persistence.keys import SCOPES, WITHOUT_KEYS, Scope, limited_administrators
from persistence.maintenance import records
from persistence.model.addresses import Form, TokenSubject
from persistence.model.texts import from_epoch
from persistence.pages.service_pages import KeyUses
from persistence.properties.properties import Properties
from persistence.providers.locations import open_encryption_keys, open_keys
from persistence.services.reencryption import KeyReferences
from persistence.services.rules import GRANTABLE, AccessTokens
from persistence.settings import Effective
from persistence.storage.attachments import RevisionRewriter

_NO_KEYS = "the file of keys cannot be used"


@group("api-key", short_help="API keys, with which programs call the service.")
def api_key() -> None:
    """Make, list and retire API keys. A program that shows one may call the service.

    A change counts at once, also for a service that runs.
    """


@command("api-key new", "Make an API key and print it, this once.", SETTINGS, audits=always)
@exits("made", f"there is a key of that name, or too many; or {_NO_KEYS}")
@click.argument("name", metavar="NAME")
@click.option("--expires", type=seconds, metavar="TIME", help="Let it open nothing after this time, such as 90d.")
@click.option("--scope", "scopes", type=click.Choice(SCOPES), multiple=True, help="Let it only read: change nothing.")
@click.option(
    "--form",
    "forms",
    multiple=True,
    metavar="APP[/FORM]",
    help="Let it call for this form or application only; repeatable.",
    shell_complete=form_names,
)
def new_api_key(
    *, name: str, expires: float | None, scopes: tuple[Scope, ...], forms: tuple[str, ...], effective: Effective
) -> None:
    """Make an API key for the caller NAME and print it, this once.

    The log calls the caller NAME. Only a digest of the key is kept. A key without --scope and --form may do everything
    that the permissions of forms allow. Its limits cannot be changed: make another key, and retire this one.
    """
    settings = effective.settings
    keys = open_keys(settings)
    with usage_errors():
        is_first = not keys.read()
        secret = keys.add(name, expires, scopes, forms)
        warning = limited_administrators([key for key in keys.read() if key.name == name], settings.administrators)
    say_result({"name": name, "key": secret}, secret)
    closed = ". From now on callers who are not trusted need a key" if is_first else ""
    say_error(
        f"a digest of the key is in {settings.keys}, the key itself nowhere else; a caller sends it as "
        f"'Authorization: Bearer KEY', or as the password beside any user name{closed}"
    )
    say_where(effective, "keys")
    if warning is not None:
        say_error(f"persistence: {warning}")


@command("api-key list", "List the API keys.", SETTINGS)
@exits("listed, also where there are none", _NO_KEYS)
def list_api_keys(*, effective: Effective) -> None:
    """Print the name of each API key, when it was made, when it expires, when it was last used, and its limits.

    The service notes the last use once a minute. What is not known is left out.
    """
    settings = effective.settings
    keys = open_keys(settings).read()
    used = dict[str, float]()
    with suppress(PersistenceError):  # the keys are there without it
        used = KeyUses(settings.home).last()
    found = list[Facts]()
    for key in keys:
        last = from_epoch(used[key.name]) if key.name in used else None
        known = {"name": key.name, "made": key.created, "expires": key.expires, "expired": key.is_expired}
        found.append({**known, "last_used": last, "scopes": key.scopes, "forms": key.forms})
    say_table(found, _API_KEYS, nothing="there are no keys")


_API_KEYS: Columns = (
    "name",
    "made",
    ("EXPIRES", lambda key: f"{key['expires']} (expired)" if key["expired"] else key["expires"]),
    "last_used",
    ("LIMITS", lambda key: " ".join((*_each("--scope", key["scopes"]), *_each("--form", key["forms"])))),
)


def _each(option: str, values: Iterable[str]) -> Iterator[str]:
    return (f"{option} {value}" for value in values)


@command("api-key retire", "Let an API key open nothing from now on.", SETTINGS, audits=always, has_json=False)
@exits("retired", f"no such key; or {_NO_KEYS}")
@click.argument("name", metavar="NAME")
def retire_api_key(*, name: str, effective: Effective) -> None:
    """Forget the API key NAME: it opens nothing from now on."""
    keys = open_keys(effective.settings)
    keys.remove(name)
    if not keys.read():
        say_error(f"that was the last key: {WITHOUT_KEYS}")


@group("encryption-key", short_help="Encryption keys, with which data is encrypted.")
def encryption_key() -> None:
    """Make, list and retire the keys that encrypt stored data. The newest encrypts, all decrypt.

    A change counts at once, also for a service that runs.
    """


@command("encryption-key new", "Make a key that encrypts from now on.", SETTINGS, audits=always)
@exits("made", f"the keys are given in the environment; or {_NO_KEYS}")
@click.option("--yes", is_flag=True, help="Make one although keys are missing that stored data needs.")
def new_encryption_key(*, yes: bool, effective: Effective) -> None:
    """Make an encryption key, which encrypts from now on, and print its id.

    The keys before it stay, for reading; persistence reencrypt encrypts stored data with the new one. Back up the file
    of the keys, apart from the data: without it, encrypted data is lost.
    """
    settings = effective.settings
    keys = open_encryption_keys(settings, effective.properties)
    remark = None if yes else encryption_remark(settings, effective.properties)
    if remark is not None:
        raise ConflictError(
            f"{remark}, and a new key does not replace them: put the file of the keys back, or add one with --yes"
        )
    made = keys.new()
    records.note(settings.home, [made])
    say_result({"id": made}, made)
    say_error(f"the key is in {settings.encryption_keys}: make a copy, and keep it apart from the data")
    say_where(effective, "encryption_keys")


@command("encryption-key list", "List the encryption keys.", SETTINGS)
@exits("listed, also where there are none", _NO_KEYS)
def list_encryption_keys(*, effective: Effective) -> None:
    """Print the id of each encryption key, when it was made, and what it does."""
    settings = effective.settings
    keys = open_encryption_keys(settings, effective.properties)
    ring, made = keys.ring(), {known.id: known.created for known in keys.list()}
    found = list[Facts]()
    for key_id in ring.keys:
        since = None if keys.are_given else made[key_id]
        known = {"id": key_id, "made": since, "in_environment": keys.are_given}
        found.append({**known, "encrypts": key_id == ring.writing})
    made_at = ("MADE", lambda key: key["made"] or "from the environment")
    does = ("DOES", lambda key: "encrypts" if key["encrypts"] else "only decrypts")
    say_table(found, ("id", made_at, does), nothing="there are no encryption keys")


@command("encryption-key retire", "Take out a key with which nothing is encrypted.", SETTINGS, audits=unless_dry)
@exits(
    "retired; or with --dry-run, nothing is encrypted with it",
    f"no such key, or it encrypts, or not all places could be looked at; or {_NO_KEYS}",
    remains="something is encrypted with it, or cannot be read, as the lines say; the key is as it was",
)
@click.argument("key_id", metavar="ID")
@click.option("--dry-run", is_flag=True, help="Only look whether something is encrypted with it.")
@click.option(
    "--leave-out", metavar="PROVIDER", multiple=True, help="Do not look at this provider, which is another service."
)
def retire_encryption_key(*, key_id: str, dry_run: bool, leave_out: tuple[str, ...], effective: Effective) -> int:
    """Take the encryption key ID out of the file of the keys, if nothing is encrypted with it any more.

    All trees and databases of the settings are looked at: documents, drafts, attachments, and their older revisions.
    If something needs the key, nothing is changed: run persistence reencrypt first. What another service keeps cannot
    be looked at.

    The key goes to a file of its own beside the others. Backups and exports that were made before may need it, and so
    may what a repair has put into .quarantine: keep the file with them, and remove it when they are gone. The service
    may run. A key that is missing is needed no longer, where nothing is encrypted with it.
    """
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
    return status


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

    with tree.managing() as place:
        store = place.storage
        references = KeyReferences(RevisionRewriter(store, place.providers.bodies_by_form), key_id, elsewhere)
        forms = sorted(store.forms(), key=str)
        with progress(f"{prefix}looking", partial(count_documents, store, forms)) as bar:
            for form in forms:
                count = 0
                for document in store.documents_and_drafts(form):
                    found, problems = references.of(form, document)
                    count += found
                    bar.done(problems, tree=tree.name, prefix=prefix)
                if count:
                    line = safe(f"{prefix}{form}: {counted(count, 'revision')} encrypted with {key_id}")
                    facts = {"tree": tree.name, "form": str(form), "revisions": count}
                    bar.say_either(facts, line)
    return REMAINS if bar.lines else 0


@group("password", short_help="Passwords of administrators, for the pages.")
def password() -> None:
    """Set, list and remove the passwords with which administrators sign in to the pages at /admin/.

    Only a digest of a password is kept. A change counts at once, also for a service that runs.
    """


@command("password set", "Set the password of an administrator.", SETTINGS, audits=always, has_json=False)
@exits("set", f"there are too many; or {_NO_KEYS}")
@click.argument("name", metavar="NAME")
def set_password(*, name: str, effective: Effective) -> None:
    """Set the password of the administrator NAME, of at least 12 characters.

    It is asked for twice on a terminal, and else read from the first line of standard input. The log and the audit call
    the administrator NAME. Sessions that another password of NAME has begun end.
    """
    settings = effective.settings
    if sys.stdin.isatty():
        text = click.prompt("Password", hide_input=True, confirmation_prompt="The same again", err=True)
    else:
        text = sys.stdin.readline(4096).rstrip("\r\n")
    keys = open_keys(settings)
    with usage_errors():
        keys.set_password(name, text)
    say_error(f"{name} may sign in at /admin/ with this password; a digest of it is in {settings.keys}")
    say_where(effective, "keys")


@command("password list", "List the administrators with a password.", SETTINGS)
@exits("listed, also where there are none", _NO_KEYS)
def list_passwords(*, effective: Effective) -> None:
    """Print the name of each administrator with a password, and when it was set."""
    found = [{"name": each.name, "made": each.created} for each in open_keys(effective.settings).passwords()]
    if not found:
        say_error("there are no passwords")
    say_table(found, ("name", ("SET", "made")))


@command("password remove", "Remove the password of an administrator.", SETTINGS, audits=always, has_json=False)
@exits("removed", f"the name has none; or {_NO_KEYS}")
@click.argument("name", metavar="NAME")
def remove_password(*, name: str, effective: Effective) -> None:
    """Remove the password of NAME: the sessions that it has begun end now."""
    open_keys(effective.settings).remove_password(name)


@command("token", "Issue an access token for a document.", SETTINGS, audits=always, subject="document")
@exits("issued", _NO_KEYS, usage="wrong usage, also of an operation or a time that is not allowed")
@click.argument("document", metavar="APP/FORM/VERSION/DOCUMENT")
@click.option("--operations", metavar="LIST", default="read", show_default=True, help=f"Some of {','.join(GRANTABLE)}.")
@click.option("--expires", type=seconds, metavar="TIME", required=True, help="Time until it expires: 8h, 7d, say.")
def token(*, document: str, operations: str, expires: float, effective: Effective) -> None:
    """Print an access token: its holder may do the operations with the document until it expires.

    It is sent as the parameter fr-access-token of a request for the document or its attachments. An operation counts
    only if a permission of the form for anyone-with-token has it. The property access-token.validity of the form must
    allow the time; by default it allows none. The document need not exist.

    The first token makes a key that signs tokens, in the file of the API keys.
    """
    settings = effective.settings
    with usage_errors():
        parts = parts_of(document, "APP/FORM/VERSION/DOCUMENT")
        form, number = Form(parts["APP"], parts["FORM"]), version_number(parts["VERSION"])
        subject = TokenSubject(form, number, parts["DOCUMENT"])
        validity = effective.properties.of(subject.form).token_validity
        keys = open_keys(settings)
        tokens = AccessTokens(keys.ensured_signing_secrets)
        names = filter(None, map(str.strip, operations.split(",")))
        made = tokens.issue(subject, names, expires, validity)
    say_result({"token": made, "valid_seconds": expires}, made)
    say_error(f"this token is a secret: everybody who has it may use it for the next {expires:g} seconds")


@group("signing-key", short_help="Signing keys, with which access tokens are signed.")
def signing_key() -> None:
    """Make, list and retire keys that sign access tokens. The newest signs, all verify.

    A change counts at once, also for a service that runs.
    """


@command("signing-key new", "Make a key that signs from now on.", SETTINGS, audits=always)
@exits("made", f"there are too many; or {_NO_KEYS}")
def new_signing_key(*, effective: Effective) -> None:
    """Make a key that signs access tokens from now on, and print its id.

    Tokens that the keys before it have signed stay valid until they expire, or until their key is retired.
    """
    made = open_keys(effective.settings).add_signing()
    say_result({"id": made}, str(made))
    say_where(effective, "keys")


@command("signing-key list", "List the signing keys.", SETTINGS)
@exits("listed, also where there are none", _NO_KEYS)
def list_signing_keys(*, effective: Effective) -> None:
    """Print the id of each signing key, when it was made, and what it does."""
    keys = open_keys(effective.settings).signing()
    found = [{"id": each.id, "made": each.created, "signs": each is keys[-1]} for each in keys]
    does = ("DOES", lambda key: "signs" if key["signs"] else "only verifies")
    say_table(found, ("id", "made", does), nothing="there are no signing keys")


@command("signing-key retire", "Let a signing key verify nothing from now on.", SETTINGS, audits=always, has_json=False)
@exits("retired", f"no such key; or {_NO_KEYS}")
@click.argument("key_id", metavar="ID")
def retire_signing_key(*, key_id: str, effective: Effective) -> None:
    """Forget the signing key ID: access tokens that it has signed are refused from now on."""
    open_keys(effective.settings).remove_signing(key_id)
