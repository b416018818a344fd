"""``persistence diff``: the differences between two revisions of a document."""

from __future__ import annotations

from contextlib import ExitStack

import click

from persistence.cli.options import ChosenTree, Time, choose_trees, data_address, tree_options, usage_errors
from persistence.cli.terminal import counted, json_option, safe, say
from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, NotFoundError
from persistence.model.addresses import DocumentAddress
from persistence.model.history import ListedRevision
from persistence.model.instants import Instant
from persistence.model.users import ANONYMOUS, Bearer
from persistence.providers.locations import open_encryption_keys
from persistence.providers.opened import OfflineProviders
from persistence.services.access import as_administrator
from persistence.services.codec import AS_STORED, EncryptionCodec
from persistence.services.diffs import DiffOptions, RevisionDiffs, RevisionPair
from persistence.services.documents import Documents
from persistence.services.encryption_at_rest import EncryptionAtRest
from persistence.storage.storage import NOBODY, RevisionStorage


@click.command(short_help="Print the differences between two revisions.")
@click.argument("path")
@click.argument("older", type=Time(), required=False)
@click.argument("newer", type=Time(), required=False)
@click.option("--lang", "language", metavar="LANG", help="Language of labels; without it, the first of the form.")
@click.option("--truncate", type=click.IntRange(1), metavar="N", help="Shorten values to N characters.")
@click.option("--decrypt", is_flag=True, help="Show encrypted values, too; the keys are needed.")
@json_option
@tree_options
def diff(  # noqa: PLR0913 - its options
    *,
    path: str,
    older: Instant | None,
    newer: Instant | None,
    language: str | None,
    truncate: int | None,
    decrypt: bool,
    as_json: bool,
    **options: str | None,
) -> None:
    """Print the differences between two revisions of the document APP/FORM/data/DOCUMENT.

    OLDER and NEWER are times of revisions, as persistence history lists them. Without NEWER it is the current one, or
    of a deleted document the last one that was not deleted; without OLDER, the one before NEWER.

    They are those of the history over HTTP: values, iterations of repeats, and elements, found by the definition of
    the version. Other differences, and all of the designer's data, are one line. Encrypted values are not shown without
    --decrypt. Permissions do not count. Nothing is changed, and the service may run.
    """
    choice = choose_trees(options)
    with usage_errors():
        address = data_address(path)
        if not address.is_main:
            raise BadRequestError(f"{safe(path)} is not APP/FORM/data/DOCUMENT")
    tree = choice.tree_of(address.form)
    with ExitStack() as opened:
        documents = _documents(tree, opened, decrypt=decrypt)
        pair = _pair(documents.router.of(address.form).storage, address, older, newer)
        comparing, shown = RevisionDiffs(documents), DiffOptions(language, truncate)
        lines = comparing.lines(address, pair, Bearer(ANONYMOUS), shown, as_json=as_json)
    if as_json:
        for line in lines:
            click.echo(line)
        return
    say(f"{pair.older} -> {pair.newer}")
    for line in lines:
        say(safe(line))
    say(counted(len(lines), "difference"))


def _documents(tree: ChosenTree, opened: ExitStack, *, decrypt: bool) -> Documents:
    settings, dialect = tree.settings, DIALECTS[tree.settings.dialect]
    providers = opened.enter_context(OfflineProviders(settings, tree.properties, NOBODY))
    keys = open_encryption_keys(settings, tree.properties) if decrypt else None
    codec = AS_STORED if keys is None else EncryptionCodec(EncryptionAtRest(providers.router, dialect, keys))
    return Documents(providers.router, dialect, as_administrator(dialect), codec)


def _pair(
    storage: RevisionStorage, address: DocumentAddress, older: Instant | None, newer: Instant | None
) -> RevisionPair:
    revisions = storage.history(address)
    if revisions is None:
        raise NotFoundError(f"{address} does not exist")
    listed = (found for at in range(revisions.total) if (found := revisions.revision(at)) is not None)
    after = next((each for each in listed if (each.instant == newer if newer else _lives(each))), None)
    if after is None or after.sidecar is None:
        raise NotFoundError(f"{address} has no revision{f' of {newer}' if newer else ''} that can be compared")
    before = older or next((each.instant for each in listed if _lives(each)), None)
    if before is None:
        raise NotFoundError(f"{address} has no revision before {after.instant}")
    return RevisionPair(after.sidecar.version, before, after.instant)


def _lives(revision: ListedRevision) -> bool:
    return revision.sidecar is not None and not revision.sidecar.deleted
