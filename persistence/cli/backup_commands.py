"""``backup`` and ``restore``: save all trees and databases, and bring them or single documents back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from io import FileIO
from itertools import permutations
from typing import Any, cast

import click

from persistence.cli import options
from persistence.cli.declarations import FAILED, REMAINS, always, command, exits, unless_dry, worst
from persistence.cli.document_commands import opened_documents, say_restored
from persistence.cli.terminal import counted, follow, is_json, safe, say, say_error, say_result, shown_path, summarize
from persistence.errors import DeletedError, DiskFullError, NotFoundError, PersistenceError, StartupError, disk_errors
from persistence.maintenance import backup_files, records
from persistence.maintenance.backup import Backup
from persistence.maintenance.restore import ChosenBackup, Restore, StorageRestore, choose, source_in
from persistence.maintenance.tree_walk import FolderTree
from persistence.model.addresses import FORM_XHTML, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.permissions import User
from persistence.model.texts import Instant, next_after, short
from persistence.properties.property_table import is_database, resolved_place, shown_address
from persistence.providers.locations import open_encryption_keys
from persistence.providers.opened import bucket_of, integrity_of, moving, place_at, readable_bodies
from persistence.providers.router import Router
from persistence.services.definitions import Definitions
from persistence.services.histories import Reverting, republish
from persistence.services.moves import MoveTarget
from persistence.services.rules import Get
from persistence.storage import files, root
from persistence.storage.attachments import BodiesReader
from persistence.storage.layout import LAYOUT
from persistence.storage.root import FORMAT
from persistence.storage.storage import MaintainedDatabase, Readable, RevisionStorage
from persistence.storage.stored_revision import HandEdits, Integrity

MEBIBYTE = 1 << 20


@command("backup", "Save all trees into a new directory.", options.TREES, audits=always, is_quiet=True)
@exits(
    "saved",
    "could not save, or not all trees and directories; the lines say which",
    remains="saved, but some files are damaged, or were written wrongly (--verify); the lines say which",
)
@click.argument("destination", metavar="DEST")
@click.option("--keys", is_flag=True, help="Save the API keys and the encryption keys, too: they open the data.")
@click.option("--verify", is_flag=True, help="Read the finished backup from the disk, and compare the digests.")
def backup(*, destination: str, keys: bool, verify: bool, choice: options.TreeChoice) -> int:
    """Save all trees and directories of attachments into a new directory in DEST.

    The service may run. Files that have not changed since the last backup in DEST become hard links to it, where the
    file system has them. Each backup is whole: remove old ones with rm -r. The settings file is saved, too.
    """
    if "://" in destination:
        raise click.UsageError("DEST is a directory, and not an address")
    options.allow_open_files()
    timeout = choice.settings.lock_timeout
    trees = {t.name: FolderTree(t.root, lock_timeout=timeout) for t in choice.trees if not t.is_database}
    bodies_of = readable_bodies(choice.settings, choice.properties, Integrity(HandEdits.ALL))
    extra = dict(_extra_to_save(choice, keys=keys))
    needed, saved = _encryption_keys(choice, keys=keys)
    started = time.monotonic()
    with ExitStack() as opened:
        databases = dict[str, MaintainedDatabase]()
        for tree in choice.trees:
            if tree.is_database and (found := opened.enter_context(tree.managing()).provider.database) is not None:
                databases[tree.name] = found
        integrity = integrity_of(choice.settings)
        run = Backup(destination, trees, choice.bases, bodies_of, integrity, extra, databases, needed, saved)
        problems = follow("saving", lambda: sum(tree.count() for tree in trees.values()), run.run())
    if verify:
        problems += follow("verifying", run.total, run.verify())
    for name, cause in run.missing.items():
        say_error(f"persistence: {name} is not saved: {cause}")
    _say_saved(run, problems, time.monotonic() - started)
    if lacking := [each for each in needed if each not in saved]:
        where = "of the environment" if choice.settings.encryption_key else f"in {choice.settings.encryption_keys}"
        summarize(
            f"the encryption keys {where} are not in the backup, and nobody can read encrypted data without them: "
            f"keep a copy of them, or save them with --keys ({', '.join(lacking)})"
        )
    if not choice.is_named:
        last = records.LastBackup(next_after(None), run.path, run.folders, problems, len(run.missing))
        records.record(choice.settings.home, last)
    return worst((REMAINS if problems else 0, FAILED if run.missing else 0))


def _say_saved(run: Backup, problems: int, seconds: float) -> None:
    count = run.count
    facts = {
        "backup": shown_path(run.path),
        "folders": run.folders,
        "files_copied": count.copied,
        "bytes_copied": count.copied_bytes,
        "files_linked": count.linked,
        "problems": problems,
        "missing": dict(run.missing),
        "seconds": seconds,
    }
    text = (
        f"{run.path}: {run.folders} documents, drafts and form versions; "
        f"{count.copied} files copied ({count.copied_bytes / MEBIBYTE:.1f} MiB), {count.linked} linked; "
        f"{seconds:.1f} s"
    )
    say_result(facts, text, summarize)


def _encryption_keys(choice: options.TreeChoice, *, keys: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    settings = choice.settings
    try:
        known = open_encryption_keys(settings, choice.properties)
    except StartupError:  # no service starts with such a file, and says why
        return tuple(sorted(records.needed(settings.home))), ()
    records.note_all(settings.home, known)
    needed = records.needed(settings.home)
    lacking = records.missing(needed, known)
    return tuple(sorted(needed)), tuple(sorted(needed.difference(lacking))) if keys and not known.are_given else ()


def _extra_to_save(choice: options.TreeChoice, *, keys: bool) -> Iterator[tuple[str, bytes]]:
    settings = choice.settings
    if choice.file:
        yield backup_files.SETTINGS, _read(choice.file)
    if not keys:
        return
    if settings.encryption_key:
        say_error("the encryption keys of the environment are not saved: they are in no file")
    there = {name: path for name, path in key_files(choice).items() if os.path.exists(path)}
    for name, path in there.items():
        yield name, _read(path)
    has_keys = "the backup holds keys: everybody who can read it can read all data"
    say_error(has_keys if there else "there are no files of keys to save")


def key_files(choice: options.TreeChoice) -> dict[str, str]:
    """Return the paths of the files of keys by their paths in a backup."""
    return {backup_files.API_KEYS: choice.settings.keys, backup_files.ENCRYPTION_KEYS: choice.settings.encryption_keys}


def _read(path: str) -> bytes:
    with disk_errors(f"reading {path}"), FileIO(files.open_linked(path)) as file:
        return files.read_small(file.fileno())


@dataclass(frozen=True, slots=True)
class PathRestore:
    """Brings back documents of a form."""

    choice: options.TreeChoice
    chosen: ChosenBackup
    form: Form
    asked: Get
    is_trial: bool

    def document(self, document: str) -> None:
        with self._opened() as (reverting, _):
            if self._revert(reverting, document):
                return
        facts = {"document": document, "files": [], "missing": [], "dry_run": self.is_trial}
        say_result(facts, "it is as in the backup already: nothing to do")

    def all(self) -> int:
        """Bring back all documents of the backup, and leave newer ones; report problems, and return their number."""
        problems, done, unchanged = list[str](), 0, 0
        would = "would come" if self.is_trial else "came"
        with self._opened() as (reverting, backup):
            if self.form not in backup.forms(self.form.app):
                raise NotFoundError(f"{self.chosen.path} has nothing of {self.form}")
            definitions = Definitions(reverting.documents.router)
            for version in sorted(backup.versions(self.form)):
                main = DefinitionAddress(self.form, version)
                for name in sorted(backup.names(main), key=lambda each: each == FORM_XHTML):
                    address = replace(main, name=name)
                    with _reporting(problems):
                        older = republish(definitions, backup, address, self.asked, is_trial=self.is_trial)
                        if older is not None:
                            facts = {"version": version, "file": name, "comes_back": older.modified}
                            say_result({**facts, "dry_run": self.is_trial}, f"{safe(str(address))} {would} back")
            for document in backup.documents(self.form):
                with _reporting(problems):
                    data = DocumentAddress(self.form, Collection.DATA, document)
                    try:
                        (reverting.elsewhere or reverting.documents).read(data, self.asked).found.close()
                    except (NotFoundError, DeletedError):  # it was not there
                        continue
                    try:
                        is_changed = self._revert(reverting, document)
                    except NotFoundError:
                        if not self.is_trial:
                            raise
                        is_changed = True  # its definition would be there
                    done, unchanged = done + is_changed, unchanged + (not is_changed)
        if not is_json():
            say(f"{counted(done, 'document')} {would} back, {unchanged} as in the backup already")
        return len(problems)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Reverting, Readable]]:
        tree, held = self.choice.tree_of(self.form), self.chosen.manifest
        trees = [part for part in held.parts if part.kind == "tree"]
        part = held.part(tree.name) or (trees[0] if len(trees) == 1 else None)
        if part is None or part.missing:
            raise StartupError(f"{self.chosen.path} does not have {tree.name}, where {self.form} is")
        with opened_documents(tree) as documents:
            path = f"{self.chosen.path}/{part.path(LAYOUT)}"
            with disk_errors(f"backup {path}"):
                layout = root.read_layout(path)
            if layout is None or layout.format != FORMAT:
                raise StartupError(
                    f"{path} is not of format {FORMAT}: restore the whole backup into a new directory with --data, and "
                    "run 'persistence upgrade' there"
                )
            source = source_in(self.chosen, part, partial(_bodies_in, self.choice, self.chosen))
            router = documents.router
            kept = Router(
                router.properties,
                lambda form: replace(router.of(form), storage=cast("RevisionStorage", source.revisions(form))),
                lambda _: (),
                lambda: (),
            )
            yield Reverting(documents, replace(documents, router=kept)), source.storage

    def _revert(self, reverting: Reverting, document: str) -> bool:
        plan = reverting.plan(DocumentAddress(self.form, Collection.DATA, document), self.asked)
        if plan.is_done:
            return False
        if not self.is_trial:
            reverting.restore(plan)
        say_restored(plan, document, is_trial=self.is_trial)
        return True


@contextmanager
def _reporting(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except DiskFullError:
        raise
    except PersistenceError as error:
        problems.append(str(error))
        say_result({"problem": str(error)}, f"not restored: {error}", say_error)


_ATTACHMENTS = "attachments"
"""The kind of a part that is a directory of attachments."""


@command("restore", "Restore a backup.", options.TREES, audits=unless_dry, subject="path", is_quiet=True)
@exits(
    "restored",
    "could not restore, or the backup has no such document",
    remains="restored, but some files were damaged, the backup lacks a part, or encryption keys are missing; the lines "
    "say which",
)
@click.argument("source", metavar="SRC")
@click.argument("path", metavar="[APP/FORM[/DOC]]", required=False, shell_complete=options.form_names)
@click.option(
    "--at", type=options.instant, help="Bring PATH back as it was then, not as it was at the time of the backup."
)
@click.option("--as", "user", metavar="USER", help="The last modifier of the new revisions of PATH.")
@click.option("--dry-run", is_flag=True, help="Only say what would come back of PATH.")
@click.option("--to", metavar="NAME=PLACE", multiple=True, help="Restore this part to a directory or a database.")
@options.attachments_option(
    "Bring the attachments of data to this place in S3; without it, they are beside their data."
)
@click.option("--leave-out", metavar="NAME", multiple=True, help="Do not restore this part of the backup.")
@click.option("--keys", is_flag=True, help="Restore the files of keys, too, where there are none.")
@click.option("--settings", "settings_to", metavar="DIR", help="Put the settings file of the backup into DIR.")
def restore(  # noqa: PLR0913 - its options
    *,
    source: str,
    path: str | None,
    at: Instant | None,
    user: str | None,
    dry_run: bool,
    choice: options.TreeChoice,
    **of_all: Any,
) -> int:
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
    if path is not None and any(of_all.values()):
        raise click.UsageError("a document or form is brought back where it belongs: leave the other options out")
    chosen = choose(source)
    if path is None:
        return _restore_all(choice, chosen, **of_all)
    with options.usage_errors():
        parts = options.parts_of(path, "APP/FORM", "APP/FORM/DOC")
        asked = Get(as_of=at, user=User(name=short(user, "user name")))
    run = PathRestore(choice, chosen, Form(parts["APP"], parts["FORM"]), asked, is_trial=dry_run)
    if "DOC" not in parts:
        return REMAINS if run.all() else 0
    run.document(parts["DOC"])
    return 0


def _restore_all(  # noqa: PLR0913 - options of the command
    choice: options.TreeChoice,
    chosen: ChosenBackup,
    *,
    to: tuple[str, ...],
    leave_out: tuple[str, ...],
    attachments: options.Attachments | None,
    keys: bool,
    settings_to: str | None,
) -> int:
    extra = dict(_extra_to_restore(choice, chosen.path, settings_to, keys=keys))
    if attachments is not None:  # they do not come to directories of their own
        leave_out += tuple(part.name for part in chosen.manifest.parts if part.kind == _ATTACHMENTS)
    roots = _roots(chosen.manifest, choice, _given(to, leave_out, chosen.manifest))
    filled = {name: place for name, place in roots.items() if attachments is not None or is_database(place)}
    directories = {name: root for name, root in roots.items() if name not in filled}
    run = Restore(chosen, directories, extra)
    started = time.monotonic()
    filling = {name: partial(_filling, choice, chosen, name, place, attachments) for name, place in filled.items()}
    problems = _restored(run, filling)
    for part in chosen.manifest.parts:
        if part.kind == "tree" and part.name in roots:
            records.note(choice.settings.home_of(roots[part.name]), chosen.manifest.needed_keys)
    remark = options.encryption_remark(choice.settings, choice.properties, chosen.manifest.needed_keys)
    lacking = [part for part in chosen.manifest.parts if part.missing and part.name in roots]
    seconds = time.monotonic() - started
    shown = ", ".join(roots.values())
    files = f": {run.files} files ({run.bytes / MEBIBYTE:.1f} MiB), {run.known} were there already"
    has_files = directories or run.files or run.known
    facts = {
        "backup": shown_path(run.source),
        "places": dict(roots),
        "files": run.files,
        "bytes": run.bytes,
        "files_there": run.known,
        "problems": problems,
        "missing": {part.name: part.missing for part in lacking},
        "seconds": seconds,
    }
    say_result(facts, f"{run.source} restored to {shown}{files if has_files else ''}; {seconds:.1f} s", summarize)
    if problems:
        say_error("next: persistence check --repair")
    for part in lacking:
        say_error(f"{part.name} is not in this backup, because it could not be saved: {part.missing}")
    if remark is not None:
        say_error(f"{remark}: put the file of the keys there")
    return REMAINS if problems or lacking or remark else 0


def _restored(run: Restore, filling: Mapping[str, Callable[[], AbstractContextManager[StorageRestore]]]) -> int:
    """Restore the directories, then the other storages; return the number of problems.

    The others must be empty at first. So a call that goes on takes one with forms as whole.
    """
    is_going_on = run.is_begun()
    for opened in filling.values() if not is_going_on else ():
        with opened() as storage:
            storage.require_empty()
    problems = follow("restoring", run.total, run.run())
    for name, opened in filling.items():
        with opened() as storage:
            if not (is_going_on and storage.is_whole()):
                problems += follow(f"restoring {name}", lambda: 0, storage.run())
                say_result({"name": name, **storage.report.facts()}, f"{name}: {storage.report.line()}", summarize)
    run.end()
    return problems


@contextmanager
def _filling(
    choice: options.TreeChoice, chosen: ChosenBackup, name: str, location: str, attachments: options.Attachments | None
) -> Iterator[StorageRestore]:
    settings, properties = choice.settings, choice.properties
    part = chosen.manifest.part(name)
    if part is None or part.kind != "tree" or part.missing:
        raise StartupError(f"{name} cannot be restored into {location}")
    bodies = options.open_attachments(settings, properties, location, attachments)
    place_at(settings, location).init()
    with moving(settings, properties, location) as place:
        target = MoveTarget(place.storage, place.provider.reports, bodies)
        source = source_in(chosen, part, partial(_bodies_in, choice, chosen))
        if attachments is None:
            source = replace(source, bucket_of=partial(bucket_of, properties))
        yield StorageRestore(chosen, part, source, target)


def _bodies_in(choice: options.TreeChoice, chosen: ChosenBackup, form: Form) -> BodiesReader | None:
    saved = [part for part in chosen.manifest.parts if part.kind == _ATTACHMENTS and not part.missing]
    provider = choice.properties.of(form).route.attachments
    own = [part for part in saved if provider is not None and part.name == backup_files.attachments_name(provider.name)]
    found = own or (saved if len(saved) == 1 else [])
    return BodiesReader(f"{chosen.path}/{found[0].directory}", Integrity(HandEdits.ALL)) if found else None


def _given(to: tuple[str, ...], leave_out: tuple[str, ...], held: backup_files.Manifest) -> dict[str, str | None]:
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


def _roots(held: backup_files.Manifest, choice: options.TreeChoice, given: Mapping[str, str | None]) -> dict[str, str]:
    known, roots = _known(held, choice), dict[str, str]()
    for part in held.parts:
        path = given[part.name] if part.name in given else known.get(part.name)
        if path is not None:
            roots[part.name] = resolved_place(path)
        elif part.name not in given and choice.is_named:
            say_error(f"{part.name} is left out: --to {part.name}=DIR restores it")
        elif part.name not in given:
            raise StartupError(
                f"the backup has {part.name}, which the settings do not name: restore it with --to {part.name}=DIR, or "
                f"leave it out with --leave-out {part.name}"
            )
    for (name, place), (other, there) in permutations(roots.items(), 2):
        if not (is_database(place) or is_database(there)) and os.path.commonpath((place, there)) == place:
            raise StartupError(f"{name} would be restored to {place}, and {other} into it, to {there}")
    if not roots:
        raise StartupError("nothing of the backup is left to restore")
    return roots


def _known(held: backup_files.Manifest, choice: options.TreeChoice) -> dict[str, str]:
    named, roots = dict(choice.bases_by_name), choice.settings.roots
    if not choice.is_named:
        return named | {backup_files.tree_name(name): at for name, at in {**roots.named, "": roots.default}.items()}
    tree, saved = choice.trees[0], [part.name for part in held.parts if part.kind == "tree"]
    if len(saved) == 1:
        return {**named, saved[0]: tree.place}
    if tree.name not in saved:
        raise StartupError(f"the backup has no {tree.name}; it has {', '.join(saved)}")
    return {tree.name: tree.place}


def _extra_to_restore(
    choice: options.TreeChoice, source: str, settings_to: str | None, *, keys: bool
) -> Iterator[tuple[str, str]]:
    if settings_to is not None:
        yield backup_files.SETTINGS, f"{os.path.realpath(settings_to)}/persistence.toml"
    held = [name for name in key_files(choice) if keys and os.path.lexists(f"{source}/{name}")]
    if keys and not held:
        raise StartupError(f"{source} holds no keys: it was made without --keys")
    yield from ((name, os.path.abspath(key_files(choice)[name])) for name in held)
