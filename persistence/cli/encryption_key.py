"""``persistence encryption-key``: the keys of encryption at rest, and whether something still needs one."""

from __future__ import annotations

import sys
from collections.abc import Collection
from functools import partial

import click

from persistence.cli.managing import managing
from persistence.cli.options import ChosenTree, all_trees, common_options, encryption_remark, load, on_each, say_where
from persistence.cli.statuses import REMAINS
from persistence.cli.terminal import (
    counted,
    json_option,
    json_text,
    print_table,
    progress,
    safe,
    say_json,
    shown_path,
)
from persistence.errors import ConflictError, NotSupportedError
from persistence.maintenance import needed_keys
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from persistence.providers.locations import open_encryption_keys
from persistence.services.key_references import KeyReferences

_ENCRYPTION_KEY_HEADINGS = ("ID", "MADE", "DOES")


@click.group("encryption-key", short_help="Encryption keys, with which data is encrypted.")
def encryption_key() -> None:
    """Make, list and retire the keys that encrypt stored data. The newest encrypts, all decrypt.

    A change counts at once, also for a service that runs.
    """


@encryption_key.command("new", short_help="Make a key that encrypts from now on.")
@click.option("--yes", is_flag=True, help="Make one although keys are missing that stored data needs.")
@json_option
@common_options
def new_encryption_key(*, yes: bool, as_json: bool, **options: str | None) -> None:
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
    needed_keys.note(settings.home, [made])
    if as_json:
        say_json({"id": made})
    else:
        click.echo(made)
    click.echo(f"the key is in {settings.encryption_keys}: make a copy, and keep it apart from the data", err=True)
    say_where(effective, "encryption_keys")


@encryption_key.command("list", short_help="List the encryption keys.")
@json_option
@common_options
def list_encryption_keys(*, as_json: bool, **options: str | None) -> None:
    """Print the id of each encryption key, when it was made, and what it does."""
    effective = load(options)
    settings = effective.settings
    keys = open_encryption_keys(settings, effective.properties)
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
    print_table((_ENCRYPTION_KEY_HEADINGS, *rows))


@encryption_key.command("retire", short_help="Take out a key with which nothing is encrypted.")
@click.argument("key_id", metavar="ID")
@click.option("--dry-run", is_flag=True, help="Only look whether something is encrypted with it.")
@click.option(
    "--leave-out", metavar="PROVIDER", multiple=True, help="Do not look at this provider, which is another service."
)
@json_option
@common_options
def retire_encryption_key(
    *, key_id: str, dry_run: bool, leave_out: tuple[str, ...], as_json: bool, **options: str | None
) -> None:
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
    is_missing = key_id in needed_keys.missing(needed_keys.needed(settings.home), keys)
    if not is_missing:
        keys.require_retirable(key_id)
    _require_no_services(properties, leave_out)
    look = partial(_look, key_id=key_id, left_out=leave_out, as_json=as_json)
    status, path = on_each(all_trees(effective), look), None
    if not (status or dry_run):
        if not is_missing:
            path = keys.retire(key_id)
        needed_keys.forget(settings.home, key_id)
    if as_json:
        say_json({"id": key_id, "needed": bool(status), "file": path})
    elif status:
        first = ": run persistence reencrypt first" if status == REMAINS else ""
        click.echo(f"{key_id} is not retired{first}", err=True)
    elif path is None:
        click.echo(f"nothing is encrypted with {key_id}", err=True)
    else:
        click.echo(f"{key_id} is retired; it is in {shown_path(path)}: backups made before may need it", err=True)
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


def _look(tree: ChosenTree, prefix: str, *, key_id: str, left_out: Collection[str], as_json: bool) -> int:
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
                        bar.say_problem(problem, tree.name, prefix, as_json=as_json)
                    bar.step()
                if count:
                    line = safe(f"{prefix}{form}: {counted(count, 'revision')} encrypted with {key_id}")
                    facts = {"tree": tree.name, "form": str(form), "revisions": count}
                    bar.say(json_text(facts) if as_json else line)
    return REMAINS if bar.lines else 0
