"""``persistence export``: forms and data as a ZIP archive, for other programs and other services."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial

import click

from persistence.cli.options import common_options, load, usage_errors
from persistence.cli.statuses import REMAINS
from persistence.cli.terminal import (
    counted,
    json_option,
    json_text,
    progress,
    quiet_option,
    safe,
    say_json,
    shown_path,
    summarize,
)
from persistence.dialect import DIALECTS
from persistence.errors import as_disk_error, disk_errors
from persistence.model.exports import (
    ExportQuery,
    RevisionHistory,
    parse_contents,
    parse_history,
    parse_patterns,
    parse_range,
)
from persistence.providers.locations import open_encryption_keys
from persistence.providers.opened import OfflineProviders
from persistence.services.codec import EncryptionCodec
from persistence.services.encryption_at_rest import EncryptionAtRest
from persistence.services.export_tables import TableExport, TableOptions
from persistence.services.exporting import Exporting
from persistence.settings import Effective
from persistence.storage import files
from persistence.storage.root import tree_around
from persistence.storage.storage import NOBODY

_STDOUT = "-"

Pieces = Callable[[Callable[[str], None], Callable[[], None]], Iterator[bytes]]
"""Yields an export; calls the first with a line for each part that is left out, the second after each step."""


@click.command(short_help="Export forms and data as an archive or a table.")
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
@click.option("--drafts", is_flag=True, help="Drafts, too.")
@click.option("--decrypt", is_flag=True, help="Decrypt values and attachments.")
@click.option("--csv", "as_csv", is_flag=True, help="A table of one form version instead of an archive.")
@click.option("--jsonl", "as_jsonl", is_flag=True, help="A JSON object for each document instead of an archive.")
@click.option("--lang", metavar="LANGUAGE", help="The language of the labels in a table.")
@click.option("--all-controls", is_flag=True, help="All controls in a table, not only indexed ones.")
@click.option("--bom", is_flag=True, help="Begin the CSV file with the mark that Excel needs to read UTF-8.")
@json_option
@quiet_option
@common_options
def export(  # noqa: PLR0913 - click passes each option
    *,
    target: str,
    matches: tuple[str, ...],
    content: str | None,
    history: str | None,
    since: str | None,
    until: str | None,
    drafts: bool,
    decrypt: bool,
    as_csv: bool,
    as_jsonl: bool,
    lang: str | None,
    all_controls: bool,
    bom: bool,
    as_json: bool,
    **options: str | None,
) -> None:
    """Export forms and data to FILE, a ZIP archive, or data as a table; - is standard output.

    Empty parts of APP/FORM/VERSION stand for everything, and parts may be missing at the end. VERSION is a number,
    latest or all. A TIME is one such as 2025-03-04T05:06:07Z, or a date. Without --match, all forms are exported that a
    request would find in a tree here. The service may run. FILE appears when it is whole, and replaces an older one.
    docs/export.md describes the archive, and the parts that are left out.

    --csv writes a row for each document of one form version, --jsonl an object in a line for each document. They have
    the current values of indexed controls, under their labels.
    """
    with usage_errors():
        begin, end = parse_range(since, until)
        patterns, contents, revisions = parse_patterns(matches), parse_contents(content), parse_history(history)
        query = ExportQuery(patterns, contents, revisions, begin, end, with_drafts=drafts, decrypts=decrypt)
    if (as_csv and as_jsonl) or ((as_csv or as_jsonl) and (content or history)):
        raise click.UsageError("--csv and --jsonl exclude each other, and --content and --history")
    if (bom and not as_csv) or ((lang or all_controls) and not (as_csv or as_jsonl)):
        raise click.UsageError("--lang and --all-controls are options of --csv and --jsonl, and --bom of --csv")
    wanted = next((each for each in (".csv", ".jsonl") if target.lower().endswith(each)), "")
    if wanted and not (as_csv or as_jsonl):
        raise click.UsageError(f"{shown_path(target)} would be a ZIP archive: --{wanted[1:]} writes a table")
    if as_json and target == _STDOUT:
        raise click.UsageError("--json goes with a FILE: standard output has the export")
    chosen = _Chosen(query, TableOptions(lang, has_all_controls=all_controls), as_csv, as_jsonl, bom)
    effective = load(options)
    with _output(target) as write:
        done = _export(effective, chosen, write, as_json=as_json)
    _say_done(done, chosen, target, as_json=as_json)
    sys.exit(REMAINS if done.problems else 0)


@contextmanager
def _output(file: str) -> Iterator[Callable[[bytes], None]]:
    if file == _STDOUT:
        yield _to_stdout
        return
    with disk_errors(f"writing {shown_path(file)}"):
        tree = tree_around(file)
        if tree is not None:
            raise click.UsageError(f"{shown_path(file)} lies in the data directory {shown_path(tree)}")
        if os.path.exists(file) and not stat.S_ISREG(os.stat(file).st_mode):
            raise click.UsageError(f"{shown_path(file)} is not a file: - writes to standard output")
        with files.replacing(os.path.realpath(file)) as descriptor:
            yield lambda piece: files.write_all(descriptor, piece)


def _to_stdout(piece: bytes) -> None:
    try:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise as_disk_error(error, "writing", "to standard output") from error


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The query, and its format: an archive, CSV or JSON lines."""

    query: ExportQuery
    table: TableOptions
    is_csv: bool
    is_json: bool
    has_mark: bool

    @property
    def kinds(self) -> str:
        return "documents and drafts" if self.is_csv or self.is_json else "definitions, documents and drafts"

    def begin(self, exporting: Exporting) -> tuple[Callable[[], int], Pieces]:
        """Return a function that counts the steps, and the pieces."""
        if not (self.is_csv or self.is_json):
            export = exporting.begin(self.query)
            return export.count, export.archive
        table = TableExport(exporting, self.query, self.table)
        if self.is_json:
            return table.count, table.json_lines
        with usage_errors():
            table.only_version()
        return table.count, partial(table.csv, has_mark=self.has_mark)


@dataclass(frozen=True, slots=True)
class _Done:
    exported: int
    bytes: int
    problems: int
    seconds: float


def _say_done(done: _Done, chosen: _Chosen, target: str, *, as_json: bool) -> None:
    if as_json:
        say_json({"file": shown_path(target), **asdict(done)})
        return
    left_out = f"; {counted(done.problems, 'problem')}" if done.problems else ""
    summarize(
        f"exported {done.exported:,} {chosen.kinds}, {done.bytes / 1e6:,.1f} MB, in {done.seconds:.1f} s "
        f"({done.exported / max(done.seconds, 0.001):,.0f} a second){left_out}"
    )


def _export(effective: Effective, chosen: _Chosen, write: Callable[[bytes], None], *, as_json: bool) -> _Done:
    settings, properties = effective.settings, effective.properties
    for each in properties.form_providers:
        if each.is_service:
            click.echo(
                f"forms of provider {each.name} are with another service: export them there, or over HTTP", err=True
            )
    keys = open_encryption_keys(settings, properties)
    with OfflineProviders(settings, properties, NOBODY) as providers:
        at_rest = EncryptionAtRest(providers.router, DIALECTS[settings.dialect], keys)
        count, pieces = chosen.begin(Exporting(providers.router, EncryptionCodec(at_rest)))
        started, size = time.monotonic(), 0
        with progress("exporting", count, only_errors=not as_json) as bar:
            for piece in pieces(
                lambda line: bar.say(json_text({"problem": line}) if as_json else safe(line)), bar.step
            ):
                write(piece)
                size += len(piece)
    return _Done(bar.steps, size, bar.lines, round(time.monotonic() - started, 3))
