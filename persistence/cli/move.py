"""``persistence move``: forms from one tree or database to another, while the service runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import click

from persistence.cli.attachments import WITH_DATA, Attachments, attachments_option, open_attachments
from persistence.cli.options import address_options, allow_open_files, read_settings, usage_errors
from persistence.cli.statuses import FAILED, REMAINS
from persistence.cli.terminal import json_option, json_text, progress, quiet_option, safe, say_json, summarize
from persistence.errors import BadRequestError
from persistence.model.addresses import Form
from persistence.model.exports import FormPattern, parse_pattern
from persistence.model.versions import Searched
from persistence.properties.property_table import is_database, resolved_place
from persistence.providers.places import Place, bucket_of, open_place
from persistence.providers.preparing import init_database, upgrade_database
from persistence.services.moving.moving import Move
from persistence.services.moving.outcomes import MoveOutcome, MoveReport, MoveResult
from persistence.services.moving.places import MoveSource, MoveTarget
from persistence.settings import Effective, Settings
from persistence.storage import owner, root
from persistence.storage.layout import LAYOUT
from persistence.storage.managed import ListedBodies
from persistence.storage.storage import Revisions

_LONG_PASS = 10.0
"""Seconds; a longer first pass is repeated before writers are kept out."""


@click.command(short_help="Move forms to another storage.")
@click.option(
    "--to", "destination", metavar="PLACE", required=True, help="Move to this tree or database; it is made if missing."
)
@click.option("--from", "source", metavar="PLACE", help="Move from here instead of the place of the setting data.")
@attachments_option("Place for attachments; without it, those in S3 stay there, and others come to their data.")
@click.option("--match", "matches", metavar="APP/FORM", multiple=True, help="Move only these forms; */FORM, APP.")
@click.option("--then", "command", metavar="COMMAND", help="Run this while the source can only be read, at the end.")
@click.option("--prepare", is_flag=True, help="Only the first pass, so that a later call has little to do.")
@click.option("--dry-run", is_flag=True, help="Only read everything, and say what would be moved.")
@json_option
@quiet_option
@address_options
def move(  # noqa: PLR0913 - each is an option
    *,
    destination: str,
    source: str | None,
    attachments: Attachments | None,
    matches: tuple[str, ...],
    command: str | None,
    prepare: bool,
    dry_run: bool,
    as_json: bool,
    **options: str | None,
) -> None:
    """Move definitions, documents and drafts, with all revisions as they are.

    PLACE is the directory of a tree, or postgresql://USER@HOST:PORT/DATABASE?schema=NAME. Attachments come to
    s3://BUCKET/PREFIX, or with ?endpoint=URL&region=NAME after it to another store than that of the environment.

    The service may run on the source. Everything is copied while clients write. A last pass copies the changes since
    then, and writes are answered 503 meanwhile. On a terminal the source stays read-only until you have changed the
    settings and press Enter; with --then until COMMAND, which may restart the service, has ended. Nothing is removed
    from the source. A move that was interrupted goes on when it is called again.
    """
    settings = (effective := read_settings(options)).settings
    with usage_errors():
        patterns = [_pattern(match) for match in matches] or [FormPattern()]
    there, here = _apart(resolved_place(source or settings.data), resolved_place(destination))
    allow_open_files()
    for place in (there, here):
        owner.require_closed(settings.local if is_database(place) else place)
    with ExitStack() as opened:
        origin = opened.enter_context(open_place(settings, effective.properties, there))
        bodies = open_attachments(settings, effective.properties, here, attachments)
        target = _target(effective, here, opened, bodies, is_dry=dry_run)
        run = Move(_source(effective, origin, attachments), target, patterns, is_dry=dry_run)
        run.require_matches()
        started = time.monotonic()
        status = _followed("first pass", run.first(), run, as_json=as_json)
        if not (dry_run or prepare) and time.monotonic() - started > _LONG_PASS:
            status = _followed("second pass", run.first(), run, as_json=as_json)
        if not (dry_run or prepare):
            advice = _advice(settings, there, here, matches)
            if attachments == WITH_DATA:
                advice += "; attachments are with their data, so no property may lead them elsewhere"
            elif attachments is not None:
                advice += f"; the properties must lead attachments to {attachments}"
            line = f"everything is in {here}: {advice}"
            status = opened.enter_context(_last_pass(origin, run, line, as_json=as_json))
            if not status:
                status = _switched(command)
    sys.exit(status)


@contextmanager
def _last_pass(origin: Place, run: Move, advice: str, *, as_json: bool) -> Iterator[int]:
    with origin.keeping_writers_out() as require_kept_out:
        click.echo("the source can only be read now", err=True)
        status = _followed("last pass", run.last(), run, as_json=as_json)
        require_kept_out()
        if status:
            click.echo("not everything was moved: solve the problems above, and call this again", err=True)
        else:
            run.end()
            click.echo(advice, err=True)
        yield status


def _pattern(text: str) -> FormPattern:
    pattern = parse_pattern(text.replace("*", ""))
    if pattern.version is not Searched.ALL:
        raise BadRequestError(f"{safe(text)} is not APP or APP/FORM: a form is moved with all its versions")
    return pattern


def _source(effective: Effective, origin: Place, attachments: Attachments | None) -> MoveSource:
    place_of, keeps_objects = partial(bucket_of, effective.properties), attachments is None

    def revisions(form: Form) -> Revisions:
        return origin.storage if keeps_objects and place_of(form) is not None else origin.revisions(form)

    return MoveSource(origin.name, origin.storage, revisions, place_of, keeps_objects)


def _apart(there: str, here: str) -> tuple[str, str]:
    if is_database(there) or is_database(here):
        if there == here:
            raise click.UsageError("--from and --to are the same database")
    elif os.path.commonpath((there, here)) in (there, here):
        raise click.UsageError(f"{here} and {there} are the same directory, or one lies within the other")
    return there, here


def _target(
    effective: Effective, here: str, opened: ExitStack, bodies: ListedBodies | None, *, is_dry: bool
) -> MoveTarget | None:
    """Open the destination, which is made if it is missing; ``None`` if it is missing, and must not be made."""
    if is_database(here):
        if is_dry and upgrade_database(effective.settings, here, dry_run=True):
            return None
        init_database(effective.settings, here)
    elif is_dry and not os.path.lexists(f"{here}/{LAYOUT}"):
        return None
    elif not is_dry:
        root.init(here)
    place = opened.enter_context(open_place(effective.settings, effective.properties, here))
    return MoveTarget(place.storage, place.arrivals, place.reports, bodies)


def _followed(label: str, outcomes: Iterator[MoveOutcome], run: Move, *, as_json: bool) -> int:
    report, started = MoveReport(), time.monotonic()
    with progress(label, run.count) as bar:
        for outcome in outcomes:
            report.add(outcome)
            bar.step()
            if outcome.result is MoveResult.REFUSED:
                refused = {"name": outcome.name, "result": outcome.result.value, "cause": outcome.cause}
                line = safe(f"{outcome.name}: refused: {outcome.cause}")
                bar.say(json_text(refused) if as_json else line)
    for problem in run.views():
        click.echo(f"persistence: {safe(problem)}", err=True)
    seconds = time.monotonic() - started
    if as_json:
        say_json({"pass": label, **report.facts(), "dry_run": run.is_dry, "seconds": round(seconds, 3)})
    else:
        summarize(f"{label}: {report.line(is_dry=run.is_dry)}; {seconds:.1f} s")
    return REMAINS if report.refused else 0


def _advice(settings: Settings, there: str, here: str, matches: tuple[str, ...]) -> str:
    if matches:
        return f"let the properties lead these forms to a provider at {here}, and restart the service"
    names = [name for name, path in settings.roots.named.items() if path == there]
    if there != settings.roots.default and names:
        return f'set data = "{here}" in [datasource.{names[0]}], and restart the service'
    return f'set data = "{here}" in the settings, and restart the service'


def _switched(command: str | None) -> int:
    if command is not None:
        return FAILED if subprocess.run(["/bin/sh", "-c", command], check=False).returncode else 0  # noqa: S603 - theirs
    if sys.stdin.isatty():
        click.pause("the source can only be read until you press a key", err=True)
    return 0
