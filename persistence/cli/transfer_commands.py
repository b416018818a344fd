"""``export``, ``import`` and ``move``: forms and data out, in, and from one place to another."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from io import BufferedReader, FileIO
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from persistence.cli import options
from persistence.cli.declarations import FAILED, REMAINS, always, command, exits, unless_dry
from persistence.cli.terminal import (
    ProgressBar,
    counted,
    is_json,
    progress,
    safe,
    say_error,
    say_result,
    shown_path,
    summarize,
)
from persistence.errors import BadRequestError, PersistenceError, StartupError, as_disk_error, disk_errors
from persistence.index.protocol import RebuildAim
from persistence.index.sync.staleness import OfflineJournal
from persistence.limits import MOST_NAMED
from persistence.model.addresses import Form
from persistence.model.network_addresses import Bucket
from persistence.model.queries import (
    ExportQuery,
    FormPattern,
    RevisionHistory,
    parse_contents,
    parse_history,
    parse_pattern,
    parse_patterns,
    parse_range,
)
from persistence.model.versions import Searched
from persistence.properties.properties import Properties
from persistence.properties.property_table import is_database, resolved_place
from persistence.providers.locations import base_of, place_of
from persistence.providers.opened import (
    OpenedPlace,
    Providers,
    bucket_bodies,
    bucket_of,
    moving,
    open_index,
    place_at,
    unheard,
    with_calls_of_a_move,
)
from persistence.providers.router import Router, loaded
from persistence.services.codec import EncryptionCodec
from persistence.services.document_tables import TableExport
from persistence.services.exporting import Export, Exporting, parse_search
from persistence.services.import_plans import ImportSource, OnConflict
from persistence.services.import_sources import open_source
from persistence.services.importing import Importer, ImportOptions
from persistence.services.moves import AttachmentMove, Move, MoveSource, MoveTarget
from persistence.services.transfers import ImportReport, MoveReport, TransferOutcome, TransferResult
from persistence.settings import Effective, Settings
from persistence.storage import files, owner
from persistence.storage.root import tree_around
from persistence.storage.storage import Bodies, Revisions, keeps_all

if TYPE_CHECKING:
    from persistence.services.orbeon_source import AttachmentFiles, OrbeonSource

_STDOUT = "-"


@command("export", "Export forms and data as an archive or a table.", options.SETTINGS, audits=always, is_quiet=True)
@exits(
    "done",
    "could not: no such form, no data directory, the disk refused",
    remains="something could not be exported, as its line on standard error says",
)
@click.argument("target", metavar="FILE")
@click.option("--match", "matches", multiple=True, metavar="APP/FORM/VERSION", help="Only these forms; repeatable.")
@click.option("--content", metavar="KINDS", help="form-definition, form-data, or both with a comma (default).")
@click.option(
    "--history",
    type=click.Choice([each.value for each in RevisionHistory]),
    help="Older revisions: exclude (default), include, or only.",
)
@click.option("--since", metavar="TIME", help="Only form data stored at this time or later.")
@click.option("--until", metavar="TIME", help="Only form data stored before this time.")
@click.option("--search", metavar="QUERY", help="Only documents that a search finds; in XML or JSON.")
@click.option("--drafts", is_flag=True, help="Drafts, too.")
@click.option("--decrypt", is_flag=True, help="Decrypt values and attachments.")
@click.option("--csv", is_flag=True, help="A table of one form version instead of an archive.")
@click.option("--jsonl", is_flag=True, help="A JSON object for each document instead of an archive.")
@click.option("--xlsx", is_flag=True, help="A workbook of one form instead of an archive.")
@click.option("--parquet", is_flag=True, help="Parquet files of one form in the archive.")
@click.option("--lang", metavar="LANGUAGE", help="The language of the labels in a table.")
@click.option("--all-controls", is_flag=True, help="All controls in a table, not only indexed ones.")
@click.option("--bom", is_flag=True, help="Begin the CSV file with the mark that Excel needs to read UTF-8.")
def export(  # noqa: PLR0913 - click passes each option
    *,
    target: str,
    matches: tuple[str, ...],
    content: str | None,
    history: str | None,
    since: str | None,
    until: str | None,
    search: str | None,
    drafts: bool,
    decrypt: bool,
    lang: str | None,
    all_controls: bool,
    bom: bool,
    effective: Effective,
    **tables: bool,
) -> int:
    """Export forms and data to FILE, a ZIP archive, or data as a table; - is standard output.

    Empty parts of APP/FORM/VERSION stand for everything, and parts may be missing at the end. VERSION is a number,
    latest or all. A TIME is one such as 2025-03-04T05:06:07Z, or a date. Without --match, all forms are exported that a
    request would find in a tree here. The service may run. FILE appears when it is whole, and replaces an older one.
    docs/export.md describes the archive, and the parts that are left out.

    --csv writes a row for each document of one form version, --jsonl an object in a line for each document. They have
    the current values of indexed controls, under their labels. --xlsx writes a sheet with a row for each document, and
    a sheet for each repeat, with numbers and dates as such; --parquet a ZIP archive with a file for each such sheet.
    """
    with options.usage_errors():
        period = parse_range(since, until)
        patterns, contents, revisions = parse_patterns(matches), parse_contents(content), parse_history(history)
        query = ExportQuery(patterns, contents, revisions, *period, drafts, decrypt, search=parse_search(search))
    kinds = [kind for kind, is_asked in tables.items() if is_asked]
    if len(kinds) > 1 or (kinds and (content or history)):
        raise click.UsageError("--csv, --jsonl, --xlsx and --parquet exclude each other, and --content and --history")
    if (bom and not tables["csv"]) or (lang and not kinds) or (all_controls and not (tables["csv"] or tables["jsonl"])):
        raise click.UsageError(
            "--lang is an option of --csv, --jsonl, --xlsx and --parquet, --all-controls of --csv and --jsonl,"
            " --bom of --csv"
        )
    wanted = next((each for each in tables if target.lower().endswith(f".{each}")), "")
    if wanted and not kinds:
        raise click.UsageError(f"{shown_path(target)} would be a ZIP archive: --{wanted} writes a table")
    if is_json() and target == _STDOUT:
        raise click.UsageError("--json goes with a FILE: standard output has the export")
    table = partial(TableExport, query=query, language=lang, has_all_controls=all_controls)
    begin: Callable[[Exporting], Export | TableExport] = table if kinds else lambda exporting: exporting(query)
    return _export(effective, target, begin, *kinds, has_mark=bom)


@contextmanager
def _output(file: str) -> Iterator[Callable[[bytes], None]]:
    if file == _STDOUT:

        def to_stdout(piece: bytes) -> None:
            try:
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            except OSError as error:
                if error.errno == errno.EPIPE:
                    raise
                raise as_disk_error(error, "writing", "to standard output") from error

        yield to_stdout
        return
    with disk_errors(f"writing {shown_path(file)}"):
        tree = tree_around(file)
        if tree is not None:
            raise click.UsageError(f"{shown_path(file)} lies in the data directory {shown_path(tree)}")
        if os.path.exists(file) and not stat.S_ISREG(os.stat(file).st_mode):
            raise click.UsageError(f"{shown_path(file)} is not a file: - writes to standard output")
        with files.replacing(os.path.realpath(file)) as descriptor:
            yield lambda piece: files.write_all(descriptor, piece)


def _export(
    effective: Effective,
    target: str,
    begin: Callable[[Exporting], Export | TableExport],
    kind: str = "zip",
    *,
    has_mark: bool,
) -> int:
    settings, properties = effective.settings, effective.properties
    with _output(target) as write:
        for each in properties.form_providers:
            if each.is_service:
                say_error(f"forms of provider {each.name} are with another service: export them there, or over HTTP")
        with Providers(settings, properties, listener_at=unheard) as providers:
            codec = EncryptionCodec(options.at_rest(settings, properties, providers.router))
            export = begin(partial(Export, providers.router, codec))
            pieces = export.archive if isinstance(export, Export) else export.json_lines
            if isinstance(export, TableExport) and kind != "jsonl":
                with options.usage_errors():
                    (export.only_version if kind == "csv" else export.only_form)()
                pieces = partial(export.csv, has_mark=has_mark) if kind == "csv" else partial(export.sheets, kind=kind)
            size = 0
            with progress("exporting", export.count, only_errors=not is_json()) as bar:
                for piece in pieces(lambda line: bar.say_either({"problem": line}, safe(line)), bar.step):
                    write(piece)
                    size += len(piece)
            seconds = bar.seconds
    facts = {"exported": bar.steps, "bytes": size, "problems": bar.lines, "seconds": seconds}
    kinds = "definitions, documents and drafts" if isinstance(export, Export) else "documents and drafts"
    text = (
        f"exported {bar.steps:,} {kinds}, {size / 1e6:,.1f} MB, in {seconds:.1f} s "
        f"({bar.steps / max(seconds, 0.001):,.0f} a second)"
    ) + (f"; {counted(bar.lines, 'problem')}" if bar.lines else "")
    say_result({"file": shown_path(target), **facts}, text, summarize)
    return REMAINS if bar.lines else 0


@command("import", "Import definitions, documents and drafts.", options.SETTINGS, audits=unless_dry, is_quiet=True)
@exits(
    "imported, or there already",
    "could not: no such file, no data directory, a full disk",
    remains="something was refused; the lines say what and why",
)
@click.argument("path", metavar="FILE|DIR|DATABASE")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option(
    "--on-conflict",
    type=click.Choice([each.value for each in OnConflict]),
    default=OnConflict.REFUSE.value,
    show_default=True,
    help="What to do with a document that differs here.",
)
@click.option("--match", "matches", metavar="APP/FORM", multiple=True, help="Only these forms; */FORM, APP.")
@options.attachments_option(
    "The place in which the runtime keeps attachments outside of its database.", takes_directory=True, takes_word=False
)
@click.option("--time-zone", metavar="ZONE", help="The runtime's, such as Europe/Berlin; default: this machine's.")
def import_(*, path: str, dry_run: bool, on_conflict: str, effective: Effective, **of_database: Any) -> int:
    """Import definitions, documents and drafts with their histories.

    FILE is a ZIP file of persistence export or of the real system, or has JSON lines; DIR is a folder
    with files as the paths of the interface name them. Each form goes where the settings and properties
    say. Revisions that exist are left alone, so an import that was interrupted goes on when it is called again. What
    cannot be imported is named, and the rest is imported. The service may run.

    DATABASE is that of a form runtime: postgresql://USER@HOST/DATABASE?schema=NAME, mysql://USER@HOST/DATABASE or
    sqlite:///FILE. It is only read. The last three options are for it.
    """
    settings, chosen = effective.settings, ImportOptions(dry_run, OnConflict(on_conflict))
    with ExitStack() as opened:
        if "://" in path:
            found = _database(path, opened, settings, **of_database)
            return _import(effective, found, chosen, found)
        if any(value is not None and value != () for value in of_database.values()):
            raise click.UsageError("--match, --attachments and --time-zone are for databases")
        try:
            file = None
            if not os.path.isdir(path):
                with disk_errors(f"reading {path}"):
                    file = opened.enter_context(BufferedReader(FileIO(files.open_linked(path))))
            archive = open_source(path, file, largest=settings.max_body)
        except BadRequestError as error:
            raise StartupError(f"{path}: {error}") from error
        return _import(effective, archive, chosen, None)


def _import(effective: Effective, source: ImportSource, chosen: ImportOptions, database: OrbeonSource | None) -> int:
    settings, properties, dry_run = effective.settings, effective.properties, chosen.is_dry
    report, forms = ImportReport(), set[Form]()
    started = time.monotonic()
    with ExitStack() as opened:
        journals = {path: opened.enter_context(OfflineJournal(path)) for path in settings.roots}
        providers = opened.enter_context(Providers(settings, properties, listener_at=journals.__getitem__))
        providers.at(settings.roots.default)  # which must be there, whatever is imported
        codec = EncryptionCodec(options.at_rest(settings, properties, providers.router))
        largest, largest_xml = settings.max_body, settings.largest_xml
        importer = Importer(providers.router, codec, largest, largest_xml, calls_others=False, begins_indexes=False)
        facts: dict[str, object] = {}
        lines = list[str]()
        try:
            with progress("importing", source.count) as bar:
                for outcome in importer.run(source, chosen):
                    report.add(outcome)
                    bar.step()
                    if database is not None:
                        database.add(outcome)
                    if outcome.form is not None:
                        forms.add(outcome.form)
                    if outcome.result in (TransferResult.REFUSED, TransferResult.SKIPPED):
                        _say_outcome(bar, outcome)
                    elif outcome.lacks_owner and report.without_owner <= MOST_NAMED:
                        _say_outcome(bar, replace(outcome, cause="came without an owner"))
            if database is not None:
                facts, lines = _compared(database, None if dry_run else providers.router)
        finally:
            seconds = time.monotonic() - started
            text = "\n".join((*map(safe, (*report.lines(is_dry=dry_run), *lines)), f"{seconds:.1f} s"))
            say_result({**report.facts(), **facts, "dry_run": dry_run, "seconds": seconds}, text, summarize)
        for journal in journals.values():
            journal.leave()
    _index(settings, properties, () if dry_run else forms)
    return REMAINS if report.refused or (database is not None and not database.is_complete) else 0


def _database(  # noqa: PLR0913 - the last three are options
    address: str,
    opened: ExitStack,
    settings: Settings,
    *,
    matches: tuple[str, ...],
    attachments: options.Attachments | str | None,
    time_zone: str | None,
) -> OrbeonSource:
    patterns = _patterns(matches)
    try:
        zone = None if time_zone is None else ZoneInfo(time_zone)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise click.UsageError(f"{safe(time_zone or '')} is not a time zone such as Europe/Berlin") from error
    module = "persistence.services.orbeon_source:"
    files_at: AttachmentFiles | None = None
    if isinstance(attachments, Bucket):
        files_at = bucket_bodies(with_calls_of_a_move(settings), keeps_all)(attachments).objects
    elif attachments is not None:
        if not os.path.isdir(attachments):
            raise click.UsageError(f"{shown_path(attachments)} is not a directory")
        files_at = loaded(f"{module}DirectoryFiles")(attachments)
    database = opened.enter_context(loaded("persistence.services.orbeon_database:open_database")(address))
    source: OrbeonSource = loaded(f"{module}OrbeonSource")(database, patterns, loaded(f"{module}Clock")(zone), files_at)
    for line in source.remarks():
        say_error(safe(line))
    return source


def _compared(database: OrbeonSource, router: Router | None) -> tuple[dict[str, object], list[str]]:
    """Compare rows with what came, and take over leases if a ``router`` is given; return the facts and lines."""
    leases, problems = (0, []) if router is None else database.take_leases(router)
    lines, facts = list[str](), list[dict[str, object]]()
    for form, counts in database.compared().items():
        left = database.left_out[form]
        each = ", ".join(f"{came} of {rows} rows of {kind}" for kind, (came, rows) in counts.items())
        is_whole = all(came == rows for came, rows in counts.values())
        lines.append(f"{form}: {each}{f' ({left} left out)' if left else ''}{'' if is_whole else ': NOT ALL'}")
        numbers = {kind: {"came": came, "rows": rows} for kind, (came, rows) in counts.items()}
        facts.append({"form": str(form), **numbers, "left_out": left})
    lines += [f"leases: {leases} go on"] * bool(leases) + problems
    return {"forms": facts, "leases": leases}, lines


def _index(settings: Settings, properties: Properties, forms: Collection[Form]) -> None:
    """Update or make the indexes of imported forms: else the first search has to wait."""
    by_root: defaultdict[str, list[Form]] = defaultdict(list)
    for form in forms:
        place = place_of(properties.of(form).route.data, settings.roots)
        if place is not None and not is_database(place):  # a database has its index itself
            by_root[place].append(form)
    for root, here in by_root.items():
        with suppress(OSError, PersistenceError), open_index(settings, properties, root) as index:
            index.recover()  # or the next search does it
            job = index.job([form for form in here if not index.is_ready(form)], RebuildAim.READY)
            with progress("indexing", job.count) as bar:
                job.run(bar.step)
            for form in here:
                index.sweep(form)


def _say_outcome(bar: ProgressBar, outcome: TransferOutcome) -> None:
    name, result, cause = outcome.name, outcome.result.value, outcome.cause
    bar.say_either({"name": name, "result": result, "cause": cause}, safe(f"{name}: {result}: {cause}"))


_LONG_PASS = 10.0
"""Seconds; a longer first pass is repeated before writers are kept out."""


@command("move", "Move forms to another storage.", options.ADDRESS, audits=unless_dry, is_quiet=True)
@exits("moved", "could not move, or COMMAND failed", remains="something was not moved; the lines say what and why")
@click.option("--to", "destination", metavar="PLACE", help="Move to this tree or database; it is made if missing.")
@click.option("--from", "source", metavar="PLACE", help="Move from here instead of the place of the setting data.")
@options.attachments_option(
    "Place for attachments; without it, those in S3 stay there, and others come to their data.", takes_directory=True
)
@click.option("--match", "matches", metavar="APP/FORM", multiple=True, help="Move only these forms; */FORM, APP.")
@click.option("--then", "command", metavar="COMMAND", help="Run this while the source can only be read, at the end.")
@click.option("--prepare", is_flag=True, help="Only the first pass, so that a later call has little to do.")
@click.option("--dry-run", is_flag=True, help="Only read everything, and say what would be moved.")
def move(  # noqa: PLR0913 - each is an option
    *,
    destination: str | None,
    source: str | None,
    attachments: options.Attachments | str | None,
    matches: tuple[str, ...],
    command: str | None,
    prepare: bool,
    dry_run: bool,
    effective: Effective,
) -> int:
    """Move definitions, documents and drafts, with all revisions as they are.

    PLACE is the directory of a tree, or postgresql://USER@HOST:PORT/DATABASE?schema=NAME. Attachments come to
    s3://BUCKET/PREFIX, or with ?endpoint=URL&region=NAME after it to another store than that of the environment.

    The service may run on the source. Everything is copied while clients write. A last pass copies the changes since
    then, and writes are answered 503 meanwhile. On a terminal the source stays read-only until you have changed the
    settings and press a key; with --then until COMMAND, which may restart the service, has ended. Nothing is removed
    from the source. A move that was interrupted goes on when it is called again.

    With --attachments DIR, attachments go out of the tree into this directory, to which properties must lead already.
    """
    settings = effective.settings
    patterns = _patterns(matches)
    there = resolved_place(source or settings.data)
    if isinstance(attachments, str) and attachments != options.WITH_DATA:
        if destination is not None or command is not None or prepare:
            raise click.UsageError("--attachments DIR excludes --to, --then and --prepare")
        return _move_apart(effective, there, attachments, patterns, is_dry=dry_run)
    if destination is None:
        raise click.UsageError("--to PLACE is missing, or --attachments DIR")
    here = resolved_place(destination)
    _require_places(settings, there, here)
    options.allow_open_files()
    with ExitStack() as opened:
        origin = opened.enter_context(moving(settings, effective.properties, there))
        bodies = options.open_attachments(settings, effective.properties, here, attachments)
        target = _target(effective, here, opened, bodies, is_dry=dry_run)
        run = Move(_source(effective, origin, attachments), target, patterns, is_dry=dry_run)
        run.require_matches()
        started = time.monotonic()
        status = _followed("first pass", run.first(), run)
        if not (dry_run or prepare) and time.monotonic() - started > _LONG_PASS:
            status = _followed("second pass", run.first(), run)
        if not (dry_run or prepare):
            status = _last_pass(origin, run, _advice(settings, there, here, matches, attachments), command)
    return status


def _require_places(settings: Settings, there: str, here: str) -> None:
    if is_database(there) or is_database(here):
        if there == here:
            raise click.UsageError("--from and --to are the same database")
    elif os.path.commonpath((there, here)) in (there, here):
        raise click.UsageError(f"{here} and {there} are the same directory, or one lies within the other")
    for place in (there, here):
        owner.require_closed(settings.home_of(place))


def _move_apart(effective: Effective, tree: str, base: str, patterns: Sequence[FormPattern], *, is_dry: bool) -> int:
    """Move the attachments of forms from a tree into the directory to which the properties lead them."""
    if is_database(tree):
        raise click.UsageError("a database keeps attachments in itself, or in S3: --attachments DIR is for trees")
    properties = effective.properties

    def is_led(form: Form) -> bool:
        provider = properties.of(form).route.attachments
        return provider is not None and base_of(provider) == base

    with options.ChosenTree(effective.settings, properties, "", tree).managing() as place:
        found = [form for form in place.storage.forms() if any(each.matches(form) for each in patterns)]
        forms = sorted(filter(is_led, found))
        if not forms:
            raise StartupError(f"no property leads attachments of these forms to {base}: set it first (docs/moving.md)")
        run = AttachmentMove(place.storage, place.providers.bodies_by_form, is_dry)
        run.bodies_of(forms[0])  # which must be there
        with progress("moving", partial(options.count_documents, place.storage, forms)) as bar:
            for form in forms:
                for problems in run.documents(form):
                    bar.done(problems, tree="", prefix="")
    facts = {"revisions": run.revisions, "bytes": run.size, "forms": len(forms)}
    facts |= {"problems": bar.lines, "dry_run": is_dry}
    did = "to be moved" if is_dry else "moved"
    text = f"{run.revisions:,} revisions of attachments {did} to {base}, {run.size / (1 << 20):.1f} MiB"
    say_result({**facts, "seconds": bar.seconds}, f"{text}; {bar.seconds:.1f} s", summarize)
    return REMAINS if bar.lines else 0


def _last_pass(origin: OpenedPlace, run: Move, advice: str, command: str | None) -> int:
    """Keep writers out until all is moved, and until a person or ``command`` has changed the settings."""
    with origin.storage.keeping_writers_out() as require_kept_out:
        say_error("the source can only be read now")
        status = _followed("last pass", run.last(), run)
        require_kept_out()
        if status:
            say_error("not everything was moved: solve the problems above, and call this again")
            return status
        run.end()
        say_error(advice)
        if command is not None:
            return FAILED if subprocess.run(["/bin/sh", "-c", command], check=False).returncode else 0  # noqa: S603 - theirs
        if sys.stdin.isatty():
            click.pause("the source can only be read until you press a key", err=True)
    return 0


@options.usage_errors()
def _patterns(matches: Iterable[str]) -> list[FormPattern]:
    patterns = []
    for text in matches:
        patterns.append(parse_pattern(text.replace("*", "")))
        if patterns[-1].version is not Searched.ALL:
            raise click.UsageError(f"{safe(text)} is not APP or APP/FORM: a form is moved with all its versions")
    return patterns or [FormPattern()]


def _source(effective: Effective, origin: OpenedPlace, attachments: options.Attachments | None) -> MoveSource:
    place_of, keeps_objects = partial(bucket_of, effective.properties), attachments is None

    def revisions(form: Form) -> Revisions:
        return origin.storage if keeps_objects and place_of(form) is not None else origin.revisions(form)

    return MoveSource(origin.name, origin.storage, revisions, place_of, keeps_objects)


def _target(
    effective: Effective, here: str, opened: ExitStack, bodies: Bodies | None, *, is_dry: bool
) -> MoveTarget | None:
    """Open the destination, which is made if it is missing; ``None`` if it is missing, and must not be made."""
    destination = place_at(effective.settings, here)
    if is_dry and not destination.exists():
        return None
    if not is_dry:
        destination.init()
    place = opened.enter_context(moving(effective.settings, effective.properties, here))
    return MoveTarget(place.storage, place.provider.reports, bodies)


def _followed(label: str, outcomes: Iterator[TransferOutcome], run: Move) -> int:
    report = MoveReport()
    with progress(label, run.count) as bar:
        for outcome in outcomes:
            report.add(outcome)
            bar.step()
            if outcome.result is TransferResult.REFUSED:
                _say_outcome(bar, outcome)
    for problem in run.views():
        say_error(f"persistence: {safe(problem)}")
    facts = {"pass": label, **report.facts(), "dry_run": run.is_dry, "seconds": bar.seconds}
    say_result(facts, f"{label}: {report.line(is_dry=run.is_dry)}; {bar.seconds:.1f} s", summarize)
    return REMAINS if report.refused else 0


def _advice(
    settings: Settings, there: str, here: str, matches: tuple[str, ...], attachments: options.Attachments | None
) -> str:
    names = [name for name, path in settings.roots.named.items() if path == there]
    if matches:
        change = f"let the properties lead these forms to a provider at {here}"
    elif there != settings.roots.default and names:
        change = f'set data = "{here}" in [datasource.{names[0]}]'
    else:
        change = f'set data = "{here}" in the settings'
    about = "" if attachments is None else f"; the properties must lead attachments to {attachments}"
    if attachments == options.WITH_DATA:
        about = "; attachments are with their data, so no property may lead them elsewhere"
    return f"everything is in {here}: {change}, and restart the service{about}"
