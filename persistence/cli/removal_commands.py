"""``purge`` and ``erase``: remove data that is old enough, or everything of documents, for good."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click
import msgspec

from persistence.cli import options
from persistence.cli.declarations import REMAINS, command, exits, if_yes
from persistence.cli.terminal import (
    Facts,
    counted,
    is_json,
    is_quiet,
    progress,
    safe,
    say,
    say_error,
    say_result,
    shown_path,
    summarize,
)
from persistence.errors import BadRequestError, BusyError, NotFoundError, PersistenceError, StartupError, disk_errors
from persistence.limits import MOST_PURGE_PROBLEMS
from persistence.maintenance import backup as backup_erasure
from persistence.maintenance import indexes
from persistence.model.addresses import Form
from persistence.model.texts import cutoff, next_after
from persistence.providers.opened import open_index
from persistence.services import purging
from persistence.storage import files, owner
from persistence.storage.reader import StoreReader
from persistence.storage.root import tree_around

_KINDS = ("revisions", "tombstones", "drafts", "orphans")


@command(
    "purge", "Remove data that is old enough, for good.", options.TREES, audits=if_yes, subject="path", is_quiet=True
)
@exits(
    "done",
    "could not: no such form or document, no data directory, another user's",
    usage="wrong usage, or a date in the future",
    remains="something could not be purged, as its line says",
)
@click.argument("path", metavar="[APP[/FORM[/DOC]]]", required=False, shell_complete=options.form_names)
@click.option("--older-than", metavar="DATE|SPAN", help="Stored before a date, or a time span ago: 30d, 2y.")
@click.option("--revisions", is_flag=True, help="Older revisions of documents and attachments.")
@click.option("--tombstones", is_flag=True, help="Deleted documents and attachments, with all their history.")
@click.option("--drafts", is_flag=True, help="Drafts.")
@click.option("--orphans", is_flag=True, help="Attachments that no data names, and those of deleted documents.")
@click.option("--retention", is_flag=True, help="What is older than the properties of its form allow; for cron.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed and freed: the default.")
@click.option("--yes", is_flag=True, help="Do it. It cannot be undone but by a backup.")
def purge(*, path: str | None, dry_run: bool, yes: bool, choice: options.TreeChoice, **given: Any) -> int:
    """Remove data that is old enough, without a trace: of all forms, of an application, a form or a document.

    At least one of --revisions, --tombstones, --drafts and --orphans chooses what will be removed, or --retention, with
    which the properties of each form choose that and its age. Current revisions stay, except of deleted documents, and
    definitions stay with their history. Without --yes nothing is changed.

    The service may run: no request waits for more than a few revisions of its own document. A run that was stopped
    goes on where it was when it is called again.
    """
    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes exclude each other")
    rules = _rules(**given)
    parts = {} if path is None else options.parts_of(path, "APP", "APP/FORM", "APP/FORM/DOC")
    form = Form(parts["APP"], parts["FORM"]) if "FORM" in parts else None
    trees = choice.trees if form is None else (choice.tree_of(form),)
    run = _Purge(parts.get("APP"), form, parts.get("DOC"), rules, is_trial=not yes)
    return options.on_each(trees, run.on)


@options.usage_errors()
def _rules(*, older_than: str | None, retention: bool, **kinds: bool) -> purging.PurgeRules | None:
    if retention:
        if older_than is not None or any(kinds.values()):
            raise BadRequestError("--retention goes by the properties: leave out --older-than and the kinds")
        return None
    if older_than is None or not any(kinds.values()):
        raise BadRequestError(f"name an age with --older-than, and a kind: --{', --'.join(_KINDS)}")
    before = cutoff(older_than, datetime.now(UTC))
    return purging.PurgeRules(**{name: before for name, is_asked in kinds.items() if is_asked})


@dataclass(slots=True)
class _Purge:
    """One run over trees. Without ``rules`` the properties of each form have them."""

    app: str | None
    form: Form | None
    document: str | None
    rules: purging.PurgeRules | None
    is_trial: bool
    now: datetime = field(default_factory=partial(datetime.now, UTC))
    problems: int = 0

    def on(self, tree: options.ChosenTree, prefix: str) -> int:
        total, before, is_shown = purging.PurgeTotals(), self.problems, is_json() or not is_quiet()
        with tree.managing() as place:
            stored = purging.StoragePurge(place.storage, place.providers.bodies_by_form)
            forms = options.chosen_forms(sorted(stored.store.forms(self.app)), self.form)
            label = f"{prefix}{'looking' if self.is_trial else 'purging'}"
            with progress(label, lambda: sum(1 for form in forms for _ in self._documents(stored, form))) as bar:
                for form in forms:
                    of_form = purging.PurgeTotals()
                    for result in self._results(stored, tree, form):
                        bar.step()
                        if not isinstance(result, PersistenceError):
                            of_form.add(result)
                            continue
                        self.problems += 1
                        if self.problems <= MOST_PURGE_PROBLEMS:
                            say_error(safe(f"{prefix}{result}"))
                    if not of_form.is_empty and is_shown:
                        facts = {"tree": tree.name, "form": str(form), **_facts(of_form)}
                        bar.say_either(facts, safe(f"{prefix}{form}: {_line(of_form)}"))
                    total.add(of_form)
        problems = self.problems - before
        if is_shown:
            facts = {"tree": tree.name, **_facts(total), "problems": problems, "dry_run": self.is_trial}
            done = "would go" if self.is_trial else "purged"
            text = f"{prefix}{_line(total)} {done} in {bar.seconds:.1f} s"
            say_result({**facts, "seconds": bar.seconds}, text)
        if self.is_trial and not total.is_empty:
            summarize("nothing was changed: --yes does it")
        return REMAINS if problems else 0

    def _results(
        self, stored: purging.StoragePurge, tree: options.ChosenTree, form: Form
    ) -> Iterator[purging.PurgeTotals | PersistenceError]:
        rules = self.rules
        if rules is None:
            try:
                rules = purging.retention_rules(tree.properties.of(form).retention, self.now)
            except PersistenceError as error:  # it has no provider any more, so nothing says how long it is kept
                yield error
                return
        yield from purging.purge_documents(stored, form, self._documents(stored, form), rules, is_trial=self.is_trial)

    def _documents(self, stored: purging.StoragePurge, form: Form) -> Iterator[str]:
        if self.document is None:
            yield from stored.store.documents_and_drafts(form)
        elif stored.has(form, self.document):
            yield self.document
        else:
            raise NotFoundError(f"{form} has no document {safe(self.document)}")


def _facts(totals: purging.PurgeTotals) -> Facts:
    return {"deleted_documents" if name == "documents" else name: number for name, number in asdict(totals).items()}


def _line(totals: purging.PurgeTotals) -> str:
    numbers = list(_facts(totals).items())[:-1]
    parts = [counted(number, name.replace("_", " ").removesuffix("s")) for name, number in numbers if number]
    return f"{', '.join(parts) or 'nothing'}, {totals.bytes} bytes"


_LEFT = (
    "logs and the audit log, which name documents and users and have no form content",
    "blocks of the disk, snapshots and copies of other programs, where removed files may be read until overwritten",
)
_LEFT_IN_DATABASE = "the files of the database until it is vacuumed, and its write-ahead log, archives and replicas"


@command("erase", "Remove everything of documents, with a certificate.", options.TREES, audits=if_yes, subject="paths")
@exits("done, or listed", "could not: no such document, no backup, another user's tree")
@click.argument("paths", metavar="[APP/FORM/data/DOC]...", nargs=-1)
@click.option("--owner", "user", metavar="USER", help="All documents and drafts of this owner.")
@click.option("--certificate", metavar="FILE", help="A record of the erasure; required with --yes.")
@click.option("--reason", metavar="TEXT", help="A reason for the certificate.")
@click.option("--backups", metavar="DIR", help="Also look for copies in these backups: what DIR was to 'backup'.")
@click.option("--from-backups", is_flag=True, help="Remove these copies, too, and from the lists of the backups.")
@click.option("--yes", is_flag=True, help="Do it. Without a backup it cannot be undone.")
def erase(*, paths: tuple[str, ...], yes: bool, choice: options.TreeChoice, **given: Any) -> None:
    """Remove documents completely, as law may require: data, attachments, history, drafts and leases.

    The indexes and tables for reports of their forms are rebuilt, so that no removed value stays in their files. Their
    files in the quarantine are removed, too. Without --yes the files are listed, and nothing is changed. The
    certificate is JSON: paths, sizes and digests of the removed files, when and by whom, without contents. With
    --backups, documents that only backups have may be named.

    The service may run. A run that was stopped goes on when it is called again with the same certificate.
    """
    with options.usage_errors():
        asked = [options.parts_of(path, "APP/FORM/data/DOC") for path in paths]
        run = _Erasure([(Form(parts["APP"], parts["FORM"]), parts["DOC"]) for parts in asked], **given)
        run.check(is_trial=not yes)
        run.resume()
    if missing := {tree for tree, _, _ in run.known} - {tree.name for tree in choice.trees}:
        raise StartupError(f"the certificate has documents of {', '.join(sorted(missing))}: choose that tree, too")
    for tree in choice.trees:
        with _opened(tree) as erasing:
            run.look(tree, erasing, [each for each in run.asked if choice.tree_of(each[0]) == tree])
    if not run.known:
        raise NotFoundError(f"no document has the owner {safe(run.user or '')}")
    documents = list(run.known.values())
    run.find_copies()
    run.say_list()
    path, text = None, "nothing was changed: --yes does it"
    if yes and run.certificate is not None:
        begun = run.begin()
        for tree in choice.trees:
            own = [each for each in documents if each.tree == tree.name and each.files]
            with _opened(tree) as erasing:
                for each in own:
                    erasing.erase(Form(each.app, each.form), each.document)
            if own and not tree.is_database:
                _rebuild(tree, dict.fromkeys(Form(each.app, each.form) for each in own))
        run.end(begun)
        path = shown_path(run.certificate)
        text = f"{counted(len(documents), 'document')} erased; the certificate is {safe(run.certificate)}"
    facts = {"documents": len(documents), "erased": path is not None, "certificate": path, "damaged": run.damaged}
    say_result(facts, text)


@dataclass(slots=True)
class _Erasure:
    """One erasure: its options, the documents to erase by tree, form and name, and their copies by backup.

    ``mentions`` counts revisions of others that name the user, ``damaged`` documents that may be the user's. ``first``
    is the certificate of a run that was stopped.
    """

    asked: Sequence[tuple[Form, str]]
    user: str | None
    certificate: str | None
    reason: str | None
    backups: str | None
    from_backups: bool
    known: dict[tuple[str, Form, str], purging.ErasedDocument] = field(default_factory=dict)
    copies: dict[str, purging.ErasedCopies] = field(default_factory=dict)
    mentions: int = 0
    damaged: int = 0
    is_in_database: bool = False
    first: purging.Certificate | None = None

    def check(self, *, is_trial: bool) -> None:
        if bool(self.asked) == (self.user is not None):
            raise BadRequestError("name documents as APP/FORM/data/DOC, or with --owner a user")
        if self.certificate is None and not is_trial:
            raise BadRequestError("--yes needs a --certificate FILE")
        if self.from_backups and self.backups is None:
            raise BadRequestError("--from-backups needs --backups DIR")
        tree = None if self.certificate is None else tree_around(self.certificate)
        if tree is not None:
            raise BadRequestError(f"{self.certificate} lies in the data directory {tree}")

    def resume(self) -> None:
        if self.certificate is None or not os.path.lexists(self.certificate):
            return
        if not os.path.isfile(self.certificate):
            raise BadRequestError(f"{self.certificate} is not a file")
        try:
            with disk_errors(self.certificate), open(self.certificate, "rb") as file:
                self.first = first = msgspec.json.decode(file.read(), type=purging.Certificate)
        except msgspec.DecodeError as error:
            raise BadRequestError(f"{self.certificate} exists, and is not a certificate") from error
        if first.ended is not None:
            raise BadRequestError(f"the erasure of {self.certificate} is complete: name another file")
        self.known = {(each.tree, Form(each.app, each.form), each.document): each for each in first.documents}
        self.copies = {each.backup: each for each in first.backups}

    def look(self, tree: options.ChosenTree, erasing: purging.Erasing, wanted: list[tuple[Form, str]]) -> None:
        if self.user is not None:
            owned, mentions, damaged = erasing.owned(self.user)
            self.mentions += mentions
            self.damaged += damaged
            wanted += owned
        for form, document in wanted:
            if (tree.name, form, document) not in self.known:
                try:
                    known = erasing.describe(form, document)
                except NotFoundError:
                    known = purging.ErasedDocument(tree.name, form.app, form.name, document, None, ())
                    if not any(backup_erasure.copies(each, [(form, document)]) for each in self._backups()):
                        raise
                self.known[tree.name, form, document] = known
        self.is_in_database |= tree.is_database and any(name == tree.name for name, _, _ in self.known)

    def find_copies(self) -> None:
        """Find the files of the documents in each backup, beside those that a run before has found, or removed."""
        for backup in self._backups():
            if self.from_backups:
                owner.refuse_root(backup)
            known = self.copies.get(backup, purging.ErasedCopies(backup, self.from_backups, ()))
            erased = {each.path: each for each in (*known.files, *backup_erasure.copies(backup, self._names))}
            if erased:
                removed = known.removed or self.from_backups
                self.copies[backup] = purging.ErasedCopies(backup, removed, tuple(erased.values()))

    def _backups(self) -> list[str]:
        return [] if self.backups is None else list(backup_erasure.backups_in(self.backups))

    def say_list(self) -> None:
        for each in self.known.values():
            form, count, size = f"{each.app}/{each.form}", len(each.files), sum(file.size for file in each.files)
            facts = {"tree": each.tree, "form": form, "document": each.document, "owner": each.owner}
            found = f"{counted(count, 'file')}, {size} bytes" if count else "only in backups"
            say_result({**facts, "files": count, "bytes": size}, safe(f"{form}/data/{each.document}: {found}"))
        for copy in self.copies.values():
            stays = "" if copy.removed else ", which stay: --from-backups removes them"
            kept = {"backup": shown_path(copy.backup), "files": len(copy.files), "removed": copy.removed}
            say_result(kept, safe(f"{copy.backup}: {counted(len(copy.files), 'file')}{stays}"))
        if self.damaged and not is_json():
            say(f"{self._damaged}: not erased")

    def begin(self) -> purging.Certificate:
        first = self.first or purging.Certificate(1, next_after(None), owner.name(os.geteuid()), ())
        begun = msgspec.structs.replace(
            first,
            documents=tuple(self.known.values()),
            reason=self.reason or first.reason,
            owner=self.user or first.owner,
            backups=tuple(self.copies.values()),
        )
        self._write(begun)
        return begun

    def _write(self, certificate: purging.Certificate) -> None:
        path = os.path.abspath(self.certificate or "")
        with disk_errors(path):
            files.write_durably(path, msgspec.json.format(msgspec.json.encode(certificate), indent=2) + b"\n", 0o600)

    def end(self, begun: purging.Certificate) -> None:
        remaining = [*_LEFT, *[_LEFT_IN_DATABASE] * self.is_in_database]
        for each in self.copies.values():
            if each.removed:
                if os.path.lexists(each.backup):  # it may have gone since the run before
                    backup_erasure.remove_copies(each.backup, self._names)
            else:
                remaining.append(f"{counted(len(each.files), 'file')} in the backup {each.backup}")
        if self.backups is None and not self.copies:
            remaining.append("backups, which were not looked at")
        if self.mentions:
            remaining.append(f"{counted(self.mentions, 'revision')} of documents of others, which name the user")
        if self.damaged:
            remaining.append(self._damaged)
        self._write(msgspec.structs.replace(begun, ended=next_after(None), remaining=tuple(remaining)))

    @property
    def _names(self) -> list[tuple[Form, str]]:
        return [(Form(each.app, each.form), each.document) for each in self.known.values()]

    @property
    def _damaged(self) -> str:
        return f"{counted(self.damaged, 'damaged document')}, whose owner cannot be read"


@contextmanager
def _opened(tree: options.ChosenTree) -> Iterator[purging.Erasing]:
    with tree.managing() as place:
        store, bodies_of = place.storage, place.providers.bodies_by_form
        yield purging.Erasing(tree.name, store, purging.StoragePurge(store, bodies_of), bodies_of)


def _rebuild(tree: options.ChosenTree, forms: Iterable[Form]) -> None:
    reader = StoreReader(tree.root)
    with open_index(tree.settings, tree.properties, tree.root) as index:
        for form in forms:
            indexes.rebuild_without_trace(reader, index, form)
        with disk_errors("working off the journal of the index"), suppress(BusyError):  # else the service does
            index.recover()
