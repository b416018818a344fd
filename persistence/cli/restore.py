"""``persistence restore``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import click

from persistence.cli.attachments import Attachments, attachments_option, open_attachments
from persistence.cli.backup import MEBIBYTE, key_files
from persistence.cli.completion import form_names
from persistence.cli.options import Time, TreeChoice, choose_trees, encryption_remark, tree_options, usage_errors
from persistence.cli.restoring import PathRestore, form_and_document
from persistence.cli.statuses import REMAINS
from persistence.cli.terminal import follow, json_option, quiet_option, say_json, shown_path, summarize
from persistence.errors import StartupError
from persistence.maintenance import manifest, needed_keys
from persistence.maintenance import restore as restores
from persistence.maintenance.manifest import BackupPart, Manifest
from persistence.maintenance.restore import ChosenBackup, Restore
from persistence.maintenance.storage_restore import StorageRestore
from persistence.model.addresses import Form
from persistence.model.instants import Instant
from persistence.model.texts import short
from persistence.model.users import User
from persistence.properties.property_table import is_database, resolved_place, shown_address
from persistence.providers.places import bucket_of, open_place
from persistence.providers.preparing import init_database
from persistence.services.moving.places import MoveTarget
from persistence.services.rules import Revert
from persistence.storage import root
from persistence.storage.attachment_bodies import BodiesReader
from persistence.storage.integrity import HandEdits, Integrity

_ATTACHMENTS = "attachments"
"""The kind of a part that is a directory of attachments."""


@click.command(short_help="Restore a backup.")
@click.argument("source", metavar="SRC")
@click.argument("path", metavar="[APP/FORM[/DOC]]", required=False, shell_complete=form_names)
@click.option("--at", type=Time(), help="Bring PATH back as it was then, not as it was at the time of the backup.")
@click.option("--as", "user", metavar="USER", help="The last modifier of the new revisions of PATH.")
@click.option("--dry-run", is_flag=True, help="Only say what would come back of PATH.")
@click.option("--to", metavar="NAME=PLACE", multiple=True, help="Restore this part to a directory or a database.")
@attachments_option("Bring the attachments of data to this place in S3; without it, they are beside their data.")
@click.option("--leave-out", metavar="NAME", multiple=True, help="Do not restore this part of the backup.")
@click.option("--keys", is_flag=True, help="Restore the files of keys, too, where there are none.")
@click.option("--settings", "settings_to", metavar="DIR", help="Put the settings file of the backup into DIR.")
@json_option
@quiet_option
@tree_options
def restore(  # noqa: PLR0913 - its options
    *,
    source: str,
    path: str | None,
    at: Instant | None,
    user: str | None,
    dry_run: bool,
    to: tuple[str, ...],
    attachments: Attachments | None,
    leave_out: tuple[str, ...],
    keys: bool,
    settings_to: str | None,
    as_json: bool,
    **options: str | None,
) -> None:
    """Restore a backup, or the newest one in SRC; or one document or form out of it.

    Each tree and directory of attachments goes to where the settings in force say; with --data or --datasource only one
    tree. They must be empty, and the service must not run. Every file is compared with its digest; a file that differs
    goes to .quarantine. A restore that was interrupted goes on when it is called again.

    NAME is data, datasource/NAME or attachments/PROVIDER, as the settings and properties call them. Attachments go to
    s3://BUCKET/PREFIX, or with ?endpoint=URL&region=NAME after it to another store than that of the environment.

    With APP/FORM/DOC this document comes back where it belongs, and with APP/FORM the definitions and all documents
    that the form had: as new revisions, with the attachments that they name, while the service runs. Current revisions
    stay in the history. persistence revert brings back revisions of the history, and needs no backup.
    """
    if "://" in source:
        raise click.UsageError("SRC is the directory of a backup, and not an address")
    if path is None and (at or user or dry_run):
        raise click.UsageError("--at, --as and --dry-run are options of a document or form: name it after SRC")
    if path is not None and (to or attachments or leave_out or keys or settings_to):
        raise click.UsageError("a document or form is brought back where it belongs: leave the other options out")
    choice = choose_trees(options)
    chosen = restores.choose(source)
    if path is not None:
        sys.exit(_restore_path(choice, chosen, path, at, user, is_trial=dry_run, as_json=as_json))
    extra = _extra_to_restore(choice, chosen.path, settings_to, keys=keys)
    sys.exit(_restore_all(choice, chosen, to, leave_out, attachments, extra=dict(extra), as_json=as_json))


def _restore_all(  # noqa: PLR0913 - what the command was asked
    choice: TreeChoice,
    chosen: ChosenBackup,
    to: tuple[str, ...],
    leave_out: tuple[str, ...],
    attachments: Attachments | None,
    *,
    extra: Mapping[str, str],
    as_json: bool,
) -> int:
    if attachments is not None:  # they do not come to directories of their own
        leave_out += tuple(part.name for part in chosen.manifest.parts if part.kind == _ATTACHMENTS)
    roots = _roots(chosen.manifest, choice, _given(to, leave_out, chosen.manifest))
    filled = {name: place for name, place in roots.items() if attachments is not None or is_database(place)}
    directories = {name: root for name, root in roots.items() if name not in filled}
    run = Restore(chosen, directories, extra)
    started = time.monotonic()
    filling = {name: partial(_filling, choice, chosen, name, place, attachments) for name, place in filled.items()}
    problems = _restored(run, filling, as_json=as_json)
    remark = _noted_keys(choice, chosen.manifest, roots)
    lacking = [part for part in chosen.manifest.parts if part.missing and part.name in roots]
    seconds = time.monotonic() - started
    if as_json:
        say_json(_restored_facts(run, roots, lacking, problems, seconds))
    else:
        count, shown = run.count, ", ".join(roots.values())
        files = f": {count.files} files ({count.bytes / MEBIBYTE:.1f} MiB), {count.known} were there already"
        has_files = directories or count.files or count.known
        summarize(f"{run.source} restored to {shown}{files if has_files else ''}; {seconds:.1f} s")
    if problems:
        click.echo("next: persistence check --repair", err=True)
    for part in lacking:
        click.echo(f"{part.name} is not in this backup, because it could not be saved: {part.missing}", err=True)
    if remark is not None:
        click.echo(f"{remark}: put the file of the keys there", err=True)
    return REMAINS if problems or lacking or remark else 0


def _noted_keys(choice: TreeChoice, held: Manifest, roots: Mapping[str, str]) -> str | None:
    for part in held.parts:
        if part.kind == "tree" and part.name in roots:
            restored = roots[part.name]
            needed_keys.note(choice.settings.local if is_database(restored) else restored, held.needed_keys)
    return encryption_remark(choice.settings, choice.properties, held.needed_keys)


def _restore_path(  # noqa: PLR0913 - what the command was asked
    choice: TreeChoice,
    chosen: ChosenBackup,
    path: str,
    at: Instant | None,
    user: str | None,
    *,
    is_trial: bool,
    as_json: bool,
) -> int:
    with usage_errors():
        form, document = form_and_document(path)
        asked = Revert(as_of=at, user=User(name=short(user, "user name")))
    bodies_of = partial(_bodies_in, choice, chosen)
    run = PathRestore(choice, chosen, bodies_of, form, asked, is_trial=is_trial, as_json=as_json)
    if document is None:
        return REMAINS if run.all() else 0
    run.document(document)
    return 0


def _restored(
    run: Restore, filling: Mapping[str, Callable[[], AbstractContextManager[StorageRestore]]], *, as_json: bool
) -> int:
    """Restore the directories, then the other storages; return the number of problems.

    The others must be empty at first. So a call that goes on takes one with forms as whole.
    """
    is_going_on = run.is_begun()
    for opened in filling.values() if not is_going_on else ():
        with opened() as storage:
            storage.require_empty()
    problems = follow("restoring", run.total, run.run(), as_json=as_json)
    for name, opened in filling.items():
        with opened() as storage:
            if not (is_going_on and storage.is_whole()):
                problems += _filled(name, storage, as_json=as_json)
    run.end()
    return problems


def _restored_facts(
    run: Restore, roots: Mapping[str, str], lacking: list[BackupPart], problems: int, seconds: float
) -> dict[str, object]:
    return {
        "backup": shown_path(run.source),
        "places": dict(roots),
        "files": run.count.files,
        "bytes": run.count.bytes,
        "files_there": run.count.known,
        "problems": problems,
        "missing": {part.name: part.missing for part in lacking},
        "seconds": round(seconds, 3),
    }


@contextmanager
def _filling(
    choice: TreeChoice, chosen: ChosenBackup, name: str, location: str, attachments: Attachments | None
) -> Iterator[StorageRestore]:
    settings, properties = choice.settings, choice.properties
    part = chosen.manifest.part(name)
    if part is None or part.kind != "tree" or part.missing:
        raise StartupError(f"{name} cannot be restored into {location}")
    bodies = open_attachments(settings, properties, location, attachments)
    if is_database(location):
        init_database(settings, location)
    else:
        root.init(location)
    with open_place(settings, properties, location) as place:
        target = MoveTarget(place.storage, place.arrivals, place.reports, bodies)
        run = StorageRestore(chosen, part, target, partial(_bodies_in, choice, chosen))
        if attachments is None:
            run.bucket_of = partial(bucket_of, properties)
        yield run


def _filled(name: str, run: StorageRestore, *, as_json: bool) -> int:
    problems = follow(f"restoring {name}", lambda: 0, run.run(), as_json=as_json)
    if as_json:
        say_json({"name": name, **run.report.facts()})
    else:
        summarize(f"{name}: {run.report.line()}")
    return problems


def _bodies_in(choice: TreeChoice, chosen: ChosenBackup, form: Form) -> BodiesReader | None:
    saved = [part for part in chosen.manifest.parts if part.kind == _ATTACHMENTS and not part.missing]
    provider = choice.properties.of(form).route.attachments
    own = [part for part in saved if provider is not None and part.name == manifest.attachments_name(provider.name)]
    found = own or (saved if len(saved) == 1 else [])
    return BodiesReader(f"{chosen.path}/{found[0].directory}", Integrity(HandEdits.ALL)) if found else None


def _given(to: tuple[str, ...], leave_out: tuple[str, ...], held: Manifest) -> dict[str, str | None]:
    given: dict[str, str | None] = dict.fromkeys(leave_out)
    for each in to:
        before, scheme, address = each.partition("://")
        name, _, path = before.rpartition("=")
        path += scheme + address
        if not name or not path:
            raise click.UsageError(f"--to {shown_address(each)} is not NAME=PLACE")
        given[name] = path
    known = [part.name for part in held.parts]
    for name in given:
        if name not in known:
            raise click.UsageError(f"the backup has no {name}; it has {', '.join(known)}")
    return given


def _roots(held: Manifest, choice: TreeChoice, given: Mapping[str, str | None]) -> dict[str, str]:
    known = _known(held, choice)
    roots: dict[str, str] = {}
    for part in held.parts:
        path = given[part.name] if part.name in given else known.get(part.name)
        if path is not None:
            roots[part.name] = resolved_place(path)
        elif part.name not in given and choice.is_named:
            click.echo(f"{part.name} is left out: --to {part.name}=DIR restores it", err=True)
        elif part.name not in given:
            raise StartupError(
                f"the backup has {part.name}, which the settings do not name: restore it with --to {part.name}=DIR, or "
                f"leave it out with --leave-out {part.name}"
            )
    for name, place in roots.items():
        for other, there in roots.items():
            if other == name or is_database(place) or is_database(there):
                continue
            if os.path.commonpath((place, there)) == place:
                raise StartupError(f"{name} would be restored to {place}, and {other} into it, to {there}")
    if not roots:
        raise StartupError("nothing of the backup is left to restore")
    return roots


def _known(held: Manifest, choice: TreeChoice) -> dict[str, str]:
    named = dict(choice.bases_by_name)
    if not choice.is_named:
        roots = choice.settings.roots
        trees = {manifest.tree_name(name): path for name, path in {**roots.named, "": roots.default}.items()}
        return named | trees
    tree, saved = choice.trees[0], [part.name for part in held.parts if part.kind == "tree"]
    if len(saved) == 1:
        return {**named, saved[0]: tree.place}
    if tree.name not in saved:
        raise StartupError(f"the backup has no {tree.name}; it has {', '.join(saved)}")
    return {tree.name: tree.place}


def _extra_to_restore(
    choice: TreeChoice, source: str, settings_to: str | None, *, keys: bool
) -> Iterator[tuple[str, str]]:
    if settings_to is not None:
        yield manifest.SETTINGS, f"{os.path.realpath(settings_to)}/persistence.toml"
    if not keys:
        return
    held = {name: path for name, path in key_files(choice).items() if os.path.lexists(f"{source}/{name}")}
    if not held:
        raise StartupError(f"{source} holds no keys: it was made without --keys")
    for name, path in held.items():
        yield name, os.path.abspath(path)
