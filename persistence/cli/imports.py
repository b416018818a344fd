"""``persistence import``: an archive, a folder or JSON lines into the trees."""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from io import BufferedReader, FileIO

import click

from persistence.cli.options import common_options, load
from persistence.cli.statuses import REMAINS
from persistence.cli.terminal import json_option, json_text, progress, quiet_option, safe, say_json, summarize
from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, ConfigurationError, PersistenceError, StartupError, disk_errors
from persistence.index.protocol import RebuildAim
from persistence.index.sync.journal import OfflineJournal
from persistence.limits import MOST_NAMED
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from persistence.providers.locations import open_encryption_keys, root_of
from persistence.providers.opened import OfflineProviders
from persistence.providers.trees import open_index
from persistence.services.codec import EncryptionCodec
from persistence.services.encryption_at_rest import EncryptionAtRest
from persistence.services.imports.importer import Importer, ImportOptions
from persistence.services.imports.planning import OnConflict
from persistence.services.imports.report import ImportReport
from persistence.services.imports.revisions import ImportOutcome, ImportResult, ImportSource
from persistence.services.imports.sources import open_source
from persistence.settings import Settings
from persistence.storage import nofollow

_NAMED = (ImportResult.REFUSED, ImportResult.SKIPPED)


@click.command("import", short_help="Import definitions, documents and drafts.")
@click.argument("path", metavar="FILE|DIR")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option(
    "--on-conflict",
    type=click.Choice([each.value for each in OnConflict]),
    default=OnConflict.REFUSE.value,
    show_default=True,
    help="What to do with a document that differs here.",
)
@json_option
@quiet_option
@common_options
def import_(*, path: str, dry_run: bool, on_conflict: str, as_json: bool, **options: str | None) -> None:
    """Import definitions, documents and drafts with their histories.

    FILE is a ZIP file of persistence export or of the real system, or has JSON lines; DIR is a folder
    with files as the paths of the interface name them. Each form goes where the settings and properties
    say. Revisions that exist are left alone, so an import that was interrupted goes on when it is called again. What
    cannot be imported is named, and the rest is imported. The service may run.
    """
    effective = load(options)
    settings, properties = effective.settings, effective.properties
    chosen = ImportOptions(dry_run, OnConflict(on_conflict))
    report, forms = ImportReport(), set[Form]()
    started = time.monotonic()
    with ExitStack() as opened:
        source = _opened(path, opened, settings.max_body)
        importer = _importer(settings, properties, opened)
        try:
            with progress("importing", source.count) as bar:
                for outcome in importer.run(source, chosen):
                    report.add(outcome)
                    bar.step()
                    if outcome.form is not None:
                        forms.add(outcome.form)
                    if outcome.result in _NAMED:
                        bar.say(_named(outcome, as_json=as_json))
                    elif outcome.lacks_owner and report.without_owner <= MOST_NAMED:
                        bar.say(_named(replace(outcome, cause="came without an owner"), as_json=as_json))
        finally:
            seconds = time.monotonic() - started
            if as_json:
                say_json({**report.facts(), "dry_run": dry_run, "seconds": round(seconds, 3)})
            else:
                for line in report.lines(is_dry=dry_run):
                    summarize(safe(line))
                summarize(f"{seconds:.1f} s")
    _index(settings, properties, () if dry_run else forms)
    sys.exit(REMAINS if report.refused else 0)


def _index(settings: Settings, properties: Properties, forms: Collection[Form]) -> None:
    """Update or make the indexes of imported forms: else the first search has to wait."""
    by_root: defaultdict[str | None, list[Form]] = defaultdict(list)
    for form in forms:
        by_root[root_of(properties.of(form).route.data, settings.roots)].append(form)
    by_root.pop(None, None)  # a database has its index itself
    for root, here in by_root.items():
        with suppress(OSError, PersistenceError), open_index(settings, properties, str(root)) as index:
            index.recover()  # or the next search does it
            job = index.job([form for form in here if not index.is_ready(form)], RebuildAim.READY)
            with progress("indexing", job.count) as bar:
                job.run(bar.step)


def _opened(path: str, opened: ExitStack, largest: int) -> ImportSource:
    try:
        if os.path.isdir(path):
            return open_source(path, None, largest=largest)
        with disk_errors(f"reading {path}"):
            file = opened.enter_context(BufferedReader(FileIO(nofollow.open_linked(path))))
        return open_source(path, file, largest=largest)
    except BadRequestError as error:
        raise StartupError(f"{path}: {error}") from error


def _importer(settings: Settings, properties: Properties, opened: ExitStack) -> Importer:
    journals = opened.enter_context(_Journals.of(settings, properties))
    providers = opened.enter_context(OfflineProviders(settings, properties, journals))
    providers.at(settings.roots.default)  # which must be there, whatever is imported
    keys = open_encryption_keys(settings, properties)
    codec = EncryptionCodec(EncryptionAtRest(providers.router, DIALECTS[settings.dialect], keys))
    largest, largest_xml = settings.max_body, settings.largest_xml
    return Importer(providers.router, codec, largest, largest_xml, calls_others=False, begins_indexes=False)


def _named(outcome: ImportOutcome, *, as_json: bool) -> str:
    if as_json:
        return json_text({"name": outcome.name, "result": outcome.result.value, "cause": outcome.cause})
    return safe(f"{outcome.name}: {outcome.result.value}: {outcome.cause}")


class _Journals:
    """A ``ChangeListener`` that writes the journal of the tree that has the data of a form."""

    def __init__(self, settings: Settings, properties: Properties, opened: ExitStack) -> None:
        self._roots = settings.roots
        self._properties = properties
        self._at = {root: opened.enter_context(OfflineJournal(root)) for root in settings.roots}

    @classmethod
    @contextmanager
    def of(cls, settings: Settings, properties: Properties) -> Iterator[_Journals]:
        with ExitStack() as opened:
            journals = cls(settings, properties, opened)
            yield journals
            for journal in journals._at.values():
                journal.leave()

    def changing(self, form: Form, document: str) -> None:
        self._of(form).changing(form, document)

    def changed(self, form: Form, document: str) -> None:
        self._of(form).changed(form, document)

    def _of(self, form: Form) -> OfflineJournal:
        root = root_of(self._properties.of(form).route.data, self._roots)
        if root is None:
            raise ConfigurationError(f"the data of {form} is not in a tree")
        return self._at[root]
