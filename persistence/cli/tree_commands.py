"""Work on whole trees and databases: ``upgrade``, ``reindex``, ``reencrypt``, ``leases``, ``events`` and ``check``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import click

from persistence import errors
from persistence.cli.declarations import EDITED, FAILED, REMAINS, REPAIRED, command, exits, unless_dry, worst
from persistence.cli.options import (
    TREES,
    ChosenTree,
    TreeChoice,
    at_rest,
    choose_data,
    chosen_forms,
    count_documents,
    encryption_remark,
    form_names,
    on_each,
    say_failed,
    seconds,
    usage_errors,
)
from persistence.cli.terminal import (
    Columns,
    Facts,
    counted,
    is_json,
    progress,
    safe,
    say,
    say_error,
    say_json,
    say_result,
    say_table,
    summarize,
)
from persistence.dialect import DIALECTS
from persistence.index.outbox import Outbox
from persistence.index.protocol import RebuildAim, ReindexingState
from persistence.index.sync.staleness import OfflineJournal
from persistence.keys import warnings_of
from persistence.maintenance import indexes
from persistence.maintenance import upgrade as upgrades
from persistence.maintenance.check import ADOPTED_AS_IS, ALL_SLICES, Parts, Slices, TreeCheck, within
from persistence.maintenance.records import LastCheck, record
from persistence.maintenance.storage_check import AttachmentsCheck, MarkCheck, ObjectsCheck, StorageCheck
from persistence.maintenance.tree_walk import FolderTree
from persistence.model.addresses import Form
from persistence.model.texts import epoch_seconds, from_epoch, next_after
from persistence.model.versions import DocumentLease
from persistence.providers.locations import buckets_of, open_keys
from persistence.providers.opened import bucket_bodies, database_at, integrity_of, managing, open_index, readable_bodies
from persistence.services.changes import OFF, facts_of, targets_of
from persistence.services.reencryption import Reencryption, ReencryptionJob
from persistence.storage import findings, owner, root
from persistence.storage.document_leases import listed, moment
from persistence.storage.layout import LAYOUT
from persistence.storage.reader import StoreReader
from persistence.storage.root import missing
from persistence.storage.storage import Readable


@command("upgrade", "Bring trees and databases to this version's format.", TREES, audits=unless_dry)
@exits("done, or nothing to do", "could not upgrade a tree, as its line says")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def upgrade(*, dry_run: bool, choice: TreeChoice) -> int:
    """Bring all trees and databases to the format of this version.

    The service must not run on a tree. Each step is recorded when it is done, in layout.json or in the database; an
    upgrade that was interrupted goes on when it is called again.
    """

    def work(tree: ChosenTree, prefix: str) -> int:
        is_current = True
        steps: Iterable[tuple[str, str]]
        if tree.is_database:
            steps = ((name, "") for name in database_at(tree.settings, tree.place).upgrade(dry_run=dry_run))
        else:
            due = upgrades.steps_due(tree.root) if dry_run else upgrades.upgrade(tree.root)
            steps = ((step.name, step.does) for step in due)
        for name, does in steps:
            is_current = False
            facts = {"tree": tree.name, "step": name, "does": does or None, "done": not dry_run}
            done = "to do" if dry_run else "done"
            say_result(facts, f"{prefix}{done}: {name}{': ' if does else ''}{does}")
        if is_json():
            say_json({"tree": tree.name, "place": tree.place, "current": is_current or not dry_run})
        elif is_current:
            kind = "tables" if tree.is_database else "format"
            say(f"{prefix}{tree.place} has the {kind} of this version: nothing to do")
        return 0

    return on_each(choice.trees, work)


@command("reindex", "Rebuild search indexes.", TREES, audits=unless_dry, subject="path", is_quiet=True)
@exits("done", "could not: no such form, no data directory, another user's")
@click.argument("path", metavar="[APP/FORM[/VERSION]]", required=False, shell_complete=form_names)
@click.option("--verify", is_flag=True, help="Only compare with the files, and index what differs.")
def reindex(*, path: str | None, verify: bool, choice: TreeChoice) -> int:
    """Rebuild the search indexes of all forms in all trees, or that of one form.

    The service may run: it answers from the old index until the new one is complete. Of two that reindex at once,
    the second waits.

    Data of versions whose definition was deleted is found again. The tables for reports are filled again, too. With
    VERSION only the data and the rows of this version are read, and the rest stays as it was.
    """
    trees, form, version = choose_data(choice, path)
    if verify and version is not None:
        raise click.UsageError("--verify compares all versions of a form: leave the VERSION out")
    aim = RebuildAim.VERIFIED if verify else RebuildAim.REBUILT
    return on_each(trees, partial(_reindex, aim=aim, form=form, version=version))


def _reindex(tree: ChosenTree, prefix: str, *, aim: RebuildAim, form: Form | None, version: int | None) -> int:
    if tree.is_database:
        return _reindex_database(tree, prefix, form, version)
    label, did = ("verifying", "compared") if aim is RebuildAim.VERIFIED else ("reindexing", "reindexed")
    with indexes.writable_tree(tree.root) as reader, open_index(tree.settings, tree.properties, tree.root) as index:
        with usage_errors():
            job = indexes.plan(reader, index, aim, form, version)
        if index.status().state is ReindexingState.INDEXING:
            say_error(f"{prefix}waiting for another index that is being made")
        with progress(f"{prefix}{label}", job.count) as bar:
            job.run(bar.step)
        seconds = bar.seconds
    facts = {"tree": tree.name, "verified": aim is RebuildAim.VERIFIED, "documents": bar.steps, "forms": job.forms}
    text = (
        f"{prefix}{did} {bar.steps:,} documents and drafts of {counted(job.forms, 'form')} in {seconds:.1f} s "
        f"({bar.steps / max(seconds, 0.001):,.0f} a second)"
    )
    say_result({**facts, "seconds": seconds}, text, summarize)
    return 0


def _reindex_database(tree: ChosenTree, prefix: str, form: Form | None, version: int | None) -> int:
    started = time.monotonic()
    with tree.managing() as place:
        if form is None:
            place.provider.reindexer.all()
        elif form in place.storage.forms(form.app):
            place.provider.reindexer.version(form, version)
        else:
            raise errors.NotFoundError(f"{form} does not exist")
    seconds = time.monotonic() - started
    facts = {"tree": tree.name, "verified": False, "seconds": seconds}
    say_result(facts, f"{prefix}reindexed in {seconds:.1f} s", summarize)
    return 0


@command("reencrypt", "Encrypt data with the current key.", TREES, audits=unless_dry, subject="path", is_quiet=True)
@exits(
    "done",
    "could not: no key, no such form, no data directory, another user's",
    remains="something could not be rewritten, and is as it was",
)
@click.argument("path", metavar="[APP/FORM[/VERSION]]", required=False, shell_complete=form_names)
@click.option("--dry-run", is_flag=True, help="Only say how much would be rewritten.")
def reencrypt(*, path: str | None, dry_run: bool, choice: TreeChoice) -> int:
    """Encrypt the data of all forms in all trees with the current key, or that of one form.

    Needed after a change of the key (persistence encryption-key new), and after a form has marked other controls. Older
    revisions, attachments and drafts are rewritten in place, too: their old contents are not kept. The service may run.
    Data that needs no change is not touched, so a run that was stopped goes on where it was.
    """
    trees, form, version = choose_data(choice, path)
    work = partial(_reencrypt, form=form, version=version, dry_run=dry_run)
    return on_each(trees, work)


def _reencrypt(tree: ChosenTree, prefix: str, *, form: Form | None, version: int | None, dry_run: bool) -> int:
    with tree.managing() as place:
        stored = at_rest(tree.settings, tree.properties, place.providers.router)
        if (remark := encryption_remark(tree.settings, tree.properties)) is not None:
            say_error(f"persistence: {remark}")
        reencryption = Reencryption(place.storage, place.providers.bodies_by_form, stored)
        forms = chosen_forms(reencryption.forms(), form)
        count, label = 0, f"{prefix}{'looking' if dry_run else 'encrypting'}"
        with progress(label, partial(count_documents, place.storage, forms)) as bar:
            done = partial(bar.done, tree=tree.name, prefix=prefix)
            for each in forms:
                if not dry_run:
                    count += ReencryptionJob(reencryption, each, version, partial(_rebuild_index, tree)).run(done)
                    continue
                for document in place.storage.documents_and_drafts(each):
                    plan = reencryption.plan(each, document, version)
                    count += len(plan.rewritings)
                    done(plan.problems)
    facts = {"tree": tree.name, "revisions": count, "forms": len(forms), "problems": bar.lines, "dry_run": dry_run}
    did = "would be re-encrypted" if dry_run else "re-encrypted"
    text = f"{prefix}{count:,} revisions of {counted(len(forms), 'form')} {did} in {bar.seconds:.1f} s"
    say_result({**facts, "seconds": bar.seconds}, text, summarize)
    return REMAINS if bar.lines else 0


def _rebuild_index(tree: ChosenTree, changed: Form) -> None:
    if not tree.is_database:
        reader = StoreReader(tree.root)
        with open_index(tree.settings, tree.properties, reader.root) as index:
            indexes.rebuild_without_trace(reader, index, changed)


@command(
    "leases",
    "List the documents that are leased, and break leases.",
    TREES,
    audits=lambda params: params.get("document") is not None,
    subject="document",
)
@exits(
    "listed, or broken",
    "could not: nobody has leased DOC, no data directory (or not in all of them), another user's",
    remains="a lease cannot be read, as its line says: persistence check --repair removes it",
)
@click.option("--break", "document", metavar="DOC", help="End the lease of this document.")
def leases(*, document: str | None, choice: TreeChoice) -> int:
    """List the documents that somebody has leased with LOCK, in all trees.

    A lease belongs to the id of a document, whatever its form. Expired ones are left out. Another service has the
    leases of its documents. Nothing is changed without --break, and the service may run.
    """
    if document is not None:
        return on_each(choice.trees, partial(_break, document=document), is_anywhere=True)
    found = list[Facts]()
    damaged = list[str]()
    now = moment()

    def read(tree: ChosenTree, prefix: str) -> int:
        for lease in listed_leases(tree):
            if isinstance(lease, errors.DamagedError):
                damaged.append(f"{prefix}{lease}")
            elif left := lease.remaining(now):
                until = from_epoch(now.wall + left)
                facts = {"document": lease.document, "user": lease.user, "group": lease.group, "seconds": left}
                found.append({**facts, "until": until, "tree": tree.name})
        return REMAINS if damaged else 0

    status = on_each(choice.trees, read)
    found.sort(key=lambda each: (each["document"], each["tree"]))
    columns: Columns = ("document", ("HOLDER", "user"), "group", ("SECONDS LEFT", "seconds"))
    say_table(found, [*columns, *["tree"] * (len(choice.trees) > 1)])
    if not is_json():
        say(f"{counted(len(found), 'document')} leased")
    for cause in damaged:
        say_error(safe(cause))
    return status


def listed_leases(tree: ChosenTree) -> Iterator[DocumentLease | errors.DamagedError]:
    if tree.is_database:
        with tree.managing() as place:
            yield from place.storage.leases.listed()
        return
    with errors.disk_errors(f"data directory {tree.root}"):
        root.require(tree.root)
        yield from (lease for _, lease in listed(tree.root))


def _break(tree: ChosenTree, prefix: str, *, document: str) -> int:
    with tree.managing() as place:
        lease = place.storage.leases.broken(document)
    facts = {"document": lease.document, "user": lease.user, "broken": True, "tree": tree.name}
    say_result(facts, safe(f"{prefix}the lease of {lease.document} by {lease.user} is broken"))
    return 0


_CHANGES = ("pause", "resume", "replay", "renew")


@command("events", None, TREES, audits=lambda params: any(params.get(each) for each in _CHANGES))
@exits("listed, or changed", "could not: no such target, no events are recorded, no data directory, another user's")
@click.option("--pause", metavar="NAME", help="Deliver nothing to this target for now.")
@click.option("--resume", metavar="NAME", help="Go on, at once.")
@click.option("--replay", metavar="NAME", help="Deliver again from the first event on that was given up.")
@click.option("--after", metavar="NUMBER", type=click.IntRange(0), help="With --replay: all events after this one.")
@click.option("--given-up", metavar="NAME", help="List the events that were given up for this target.")
@click.option("--renew", is_flag=True, help="Have those who follow /changes begin anew, after a database was restored.")
def events(*, choice: TreeChoice, after: int | None, **asked: str | bool | None) -> int:
    """List the targets of events, and how far they were delivered.

    The settings name the targets. The service may run: what is changed here applies within a second.

    \b
    persistence events
    persistence events --given-up crm
    persistence events --replay crm --after 1200
    """  # noqa: D301 - click's mark for lines that stay apart
    chosen = [name for name, value in asked.items() if value]
    if len(chosen) > 1:
        raise click.UsageError("of --pause, --resume, --replay, --given-up and --renew there can be one")
    if after is not None and chosen != ["replay"]:
        raise click.UsageError("--after needs --replay")

    def work(tree: ChosenTree, prefix: str) -> int:
        with tree.managing() as place:
            if (outbox := place.provider.outbox) is None:
                raise errors.NotFoundError(OFF)
            if not chosen:
                _list(tree, outbox, prefix)
            else:
                _act(outbox, prefix, chosen[0], str(asked[chosen[0]]), after)
        return 0

    return on_each(choice.trees, work, is_anywhere=bool(chosen))


def _list(tree: ChosenTree, outbox: Outbox, prefix: str) -> None:
    feed = facts_of(outbox)
    first, last = (feed.oldest + 1, feed.newest) if feed.newest > feed.oldest else (None, None)
    kept = "no events" if first is None else f"events {first:,} to {last:,}"
    say_result(
        {"tree": tree.name, "feed": feed.feed, "first": first, "last": last}, f"{prefix}feed {feed.feed}: {kept}"
    )
    targets: list[Facts] = []
    for each in targets_of(outbox):
        found = each.state
        due = from_epoch(found.due) if found.due > 0 and not found.is_paused else None
        facts = {"tree": tree.name, "target": each.name, "delivered": found.position, "waiting": each.waiting}
        facts |= {"missed": found.missed, "given_up": len(each.given_up), "attempts": found.attempts, "due": due}
        state = "paused" if found.is_paused else "failed" if found.cause else "in order"
        targets.append({**facts, "state": state, "cause": found.cause.removeprefix("paused: ")})

    def shown_state(target: Facts) -> str:
        cause, due = target["cause"], target["due"]
        return f"{target['state']}{cause and f': {cause}'}{f'; again at {due}' if due else ''}"

    say_table(targets, ("target", "delivered", "waiting", "given_up", ("STATE", shown_state)))


def _act(outbox: Outbox, prefix: str, action: str, name: str, after: int | None) -> None:
    facts: Facts = {"target": name, "action": action}
    if action == "given_up":
        found = [each._asdict() for target in targets_of(outbox) if target.name == name for each in target.given_up]
        say_table(found, ("number", "type", "about", "cause"), nothing=f"no event was given up for {safe(name)}")
    elif action == "renew":
        feed = outbox.renew()
        say_result({"action": action, "feed": feed}, f"{prefix}the feed is {feed} now")
    elif action == "replay":
        number = outbox.replay(name, after)
        say_result({**facts, "after": number}, safe(f"{prefix}{name} gets the events after {number:,} again"))
    else:
        outbox.pause(name, is_paused=action == "pause")
        say_result(facts, safe(f"{prefix}{name} is paused" if action == "pause" else f"{prefix}{name} goes on"))


_STYLES = {findings.Severity.DAMAGE: "red", findings.Severity.LEFTOVER: "yellow"}


@command(
    "check",
    None,
    TREES,
    audits=lambda params: unless_dry(params) and bool(params.get("repair") or params.get("adopt")),
    is_quiet=True,
)
@exits(
    "nothing found, or only notices",
    "could not check",
    repaired="something was found, and all of it is repaired",
    remains="damage or leftovers remain, or a remedy failed",
    edited="edits by hand that nobody has adopted, and nothing worse",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--repair", is_flag=True, help="Repair what is safe; what is not goes to .quarantine in the tree.")
@click.option("--adopt", is_flag=True, help="Take in files edited or added by hand, below PATH or with --all.")
@click.option("--all", "is_all", is_flag=True, help="Adopt edits wherever they are.")
@click.option("--as", "adopter", metavar="USER", help="The last modifier of the adopted files.")
@click.option("--dry-run", is_flag=True, help="Only say what --repair and --adopt would do, with a diff of XML.")
@click.option("--deep", is_flag=True, help="Read every content, and compare its digest.")
@click.option(
    "--budget", type=seconds, metavar="TIME", help="With --deep: only as much as fits, oldest first: 10m, say."
)
@click.option("--status", "is_status", is_flag=True, help="Only say how old the oldest deep look is.")
def check(*, is_status: bool, choice: TreeChoice, **options: Any) -> int:
    """Look for damage, and repair it.

    All trees and directories of attachments of the settings are checked, or the parts named, also while the service
    runs.

    PATH is relative to the data directory: hr, hr/leave, hr/leave/data/1b4e28ba. Only where PATH is that of a file,
    --adopt takes in what counts as damage, such as another content of an attachment.
    """
    run = _Check(choice, **options)
    run.require_scope()
    if is_status:
        return on_each(choice.trees, _say_coverage)
    if not (run.paths or choice.is_named):
        run.say_warnings()
    status = on_each(choice.trees, run.check_tree)
    if not run.paths:
        status = worst((status, run.check_keys()))
    if not choice.is_named:
        status = worst((status, *run.check_attachments(), *run.check_objects()))
    if (not_found := set(run.paths) - run.found_paths) and status != FAILED:
        raise click.UsageError(f"{', '.join(sorted(not_found))}: in no data directory or database")
    if not (run.paths or run.dry_run or run.budget or choice.is_named) and status != FAILED:
        record(choice.settings.home, LastCheck.of(run.totals, run.seconds, is_deep=run.deep))
    if is_json():
        totals = run.totals
        found = {severity.value: totals.found[severity] for severity in findings.Severity}
        found |= {"mended": totals.mended, "remaining": totals.remaining, "edits": totals.edits}
        say_json({"folders": totals.folders, **found, "seconds": run.seconds})
    return status


@dataclass(slots=True)
class _Check:
    """One run over trees and directories of attachments, by its options; ``budget`` is in seconds.

    ``totals`` counts the findings of all.
    """

    choice: TreeChoice
    paths: tuple[str, ...]
    repair: bool
    adopt: bool
    is_all: bool
    adopter: str | None
    dry_run: bool
    deep: bool
    budget: float | None
    totals: findings.FindingTotals = field(default_factory=findings.FindingTotals)
    seconds: float = 0.0
    found_paths: set[str] = field(default_factory=set)
    usable: dict[str, FolderTree] = field(default_factory=dict)
    usable_databases: list[str] = field(default_factory=list)

    def require_scope(self) -> None:
        has_scope = bool(self.paths) != self.is_all
        if (self.adopt and not has_scope) or (self.is_all and not self.adopt):
            raise click.UsageError("--adopt needs a PATH to adopt, or --all without a PATH")
        if self.adopter is not None and not self.adopt:
            raise click.UsageError("--as goes with --adopt")
        if self.budget is not None and (not self.deep or self.paths):
            raise click.UsageError("--budget goes with --deep, without a PATH")

    @property
    def remedies(self) -> frozenset[findings.Remedy]:
        return frozenset([findings.Remedy.REPAIR] * self.repair + [findings.Remedy.ADOPT] * self.adopt)

    def say_warnings(self) -> None:
        settings = self.choice.settings
        try:
            warnings = warnings_of(open_keys(settings), settings.administrators, settings.token_issuers)
        except errors.PersistenceError as error:  # the service cannot read them either
            warnings = [str(error)]
        for warning in warnings:
            say_error(f"persistence: {warning}")

    def check_tree(self, chosen: ChosenTree, prefix: str) -> int:
        if chosen.is_database:
            return self._check_database(chosen, prefix)
        settings, root = chosen.settings, chosen.root
        with ExitStack() as stack:
            journal = stack.enter_context(OfflineJournal(root))
            tree = FolderTree(root, lock_timeout=settings.lock_timeout, listener=journal)
            if not os.path.isdir(tree.root):
                raise missing(tree.root)
            parts = self._parts(tree.parts, is_only=not prefix)
            index = stack.enter_context(open_index(settings, chosen.properties, root))
            integrity = integrity_of(settings)
            bodies_of = readable_bodies(settings, chosen.properties, integrity)
            dialect, reader = DIALECTS[settings.dialect], chosen.reader
            treatment = findings.Treatment(self.remedies, self.dry_run)
            run = TreeCheck(tree, index, dialect, integrity, bodies_of, reader, treatment, self.adopter, self.deep)
            found = self._found(tree, run, parts)
            status = self._say_reports(prefix, treatment, found, partial(_count, tree, parts), tree.inside)
            if os.path.lexists(tree.layout.own(LAYOUT)):  # else the records may be in another directory
                self.usable[tree.root] = tree
            if self.remedies:
                journal.leave()
                with suppress(OSError, errors.PersistenceError):  # else the next search reads the journal
                    index.recover()
            return status

    def _check_database(self, chosen: ChosenTree, prefix: str) -> int:
        if self.adopt or self.budget is not None:
            raise errors.NotSupportedError("--adopt and --budget are for data directories")
        with chosen.managing() as place:
            database, catalog_of = place.provider.database, place.provider.index_catalog
            if database is None or catalog_of is None:
                raise errors.NotSupportedError(f"{chosen.place} is with another service")
            bodies_of = readable_bodies(chosen.settings, chosen.properties, integrity_of(chosen.settings))
            run = StorageCheck(database, bodies_of, MarkCheck(catalog_of), self.deep)
            found = run.findings(self._parts(run.part, is_only=not prefix))
            self.usable_databases.append(chosen.place)
            return self._say_reports(prefix, findings.Treatment(self.remedies, self.dry_run), found, run.count)

    def _found(
        self, tree: FolderTree, run: TreeCheck, parts: Parts
    ) -> Iterator[findings.Finding | findings.Report | None]:
        if self.budget is not None:
            owner.require(tree.root)  # the slices are recorded in the tree
            budget = self.budget / len(self.choice.trees)
            yield from within(budget, Slices(tree.root), partial(run.findings, parts))
            return
        began = next_after(None)
        yield from run.findings(parts)
        if self.deep and parts == [()] and owner.of(tree.root) == os.geteuid():
            with suppress(OSError):
                Slices(tree.root).record(ALL_SLICES, began)

    def check_keys(self) -> int:
        settings = self.choice.settings
        remark = encryption_remark(settings, self.choice.properties)
        if remark is None:
            return 0
        if self.choice.is_named:  # the settings of the tree may be others, with another file of keys
            say_error(f"persistence: {remark}")
            return 0
        found = [findings.FindingKind.KEY_MISSING.at(settings.encryption_keys, remark)]
        return self._say_reports("keys: ", findings.Treatment(), found)

    def check_attachments(self) -> Iterator[int]:
        for name, base in self.choice.bases.items():
            try:
                owner.require_closed(base)
                records_of = partial(self.choice.records_of, place=base)
                run = AttachmentsCheck(base, records_of, self.usable, self.choice.settings.lock_timeout)
                if parts := self._parts(run.tree.parts):
                    count = partial(_count, run.tree, parts)
                    found = run.findings(parts)
                    yield self._say_reports(f"{name}: ", self._elsewhere(), found, count, run.tree.inside)
            except errors.PersistenceError as error:
                say_failed(name, error)
                yield FAILED

    def check_objects(self) -> Iterator[int]:
        choice, parts = self.choice, [tuple(path.strip("/").split("/")) for path in self.paths] or [()]
        bodies_at = bucket_bodies(choice.settings, choice.properties.keeps_history)
        for place in buckets_of(choice.properties):
            try:
                with ExitStack() as opened:
                    records: dict[str, Readable] = {root: StoreReader(root) for root in self.usable}
                    for address in self.usable_databases:
                        found = opened.enter_context(managing(choice.settings, choice.properties, address))
                        records[address] = found.storage
                    run = ObjectsCheck(bodies_at(place), partial(choice.records_of, place=place), records)
                    yield self._say_reports(f"{place}: ", self._elsewhere(), run.findings(parts), are_folders=False)
            except errors.PersistenceError as error:
                say_failed(str(place), error)
                yield FAILED

    def _elsewhere(self) -> findings.Treatment:
        """Return the treatment of bodies outside trees and databases, whose repair is not foretold."""
        return findings.Treatment(frozenset() if self.dry_run else self.remedies)

    def _parts(self, part: Callable[[str], tuple[str, ...]], *, is_only: bool = False) -> Parts:
        parts: list[tuple[str, ...]] = [] if self.paths else [()]
        for path in self.paths:
            with usage_errors() if is_only else suppress(errors.BadRequestError):
                parts.append(part(path))
                self.found_paths.add(path)
        return parts

    def _say_reports(  # noqa: PLR0913 - how they are shown
        self,
        prefix: str,
        treatment: findings.Treatment,
        found: Iterable[findings.Finding | findings.Report | None],
        count: Callable[[], int] = lambda: 0,
        inside: Callable[[str], str] = str,
        *,
        are_folders: bool = True,
    ) -> int:
        """Say what is found in a place: with a prefix before each line, and a bar of ``count`` steps."""
        totals, place = treatment.totals, {"tree": prefix.removesuffix(": ")} if prefix else {}
        with progress(f"{prefix}checking", count) as bar:
            for report in treatment.reports(found, are_folders=are_folders):
                if report is None:
                    bar.step()
                else:
                    path = errors.one_line(os.fsencode(inside(report.finding.path)).decode("utf-8", "replace"))
                    style = _STYLES.get(report.finding.kind.severity, "")
                    bar.say_either({**place, **_facts(path, report)}, f"{prefix}{_line(path, report)}", style)
        seconds = bar.seconds
        if not is_json():
            speed = f"{seconds:.1f} s, {totals.folders / seconds:.0f} a second" if seconds else "at once"
            harmless = counted(totals.found[findings.Severity.LEFTOVER], "leftover")
            summarize(
                f"{prefix}{totals.folders} documents, drafts and form versions ({speed}): "
                f"{totals.found[findings.Severity.DAMAGE]} damaged, {harmless}, "
                f"{counted(totals.found[findings.Severity.NOTICE], 'notice')}; "
                f"{totals.mended} repaired, {totals.remaining} remaining"
            )
        self.totals.include(totals)
        self.seconds += seconds
        return REMAINS if totals.remaining else EDITED if totals.edits else REPAIRED if totals.mended else 0


def _say_coverage(tree: ChosenTree, prefix: str) -> int:
    root = StoreReader(tree.root).root
    with errors.disk_errors(f"data directory {tree.root}"):
        coverage = Slices(root).coverage()
    text = "no part of the tree was ever looked at deeply (check --deep)"
    if coverage.oldest is not None:
        days = (time.time() - epoch_seconds(coverage.oldest)) / (24 * 3600)
        rest = f"; {coverage.never} of {coverage.slices} parts never" if coverage.never else ""
        text = f"the oldest deep look is of {coverage.oldest}, {max(days, 0):.1f} days ago{rest}"
    say_result({"tree": prefix.removesuffix(": "), **asdict(coverage)}, f"{prefix}{text}")
    return 0


def _count(tree: FolderTree, parts: Parts) -> int:
    return sum(map(tree.count, parts))


def _line(path: str, report: findings.Report) -> str:
    finding, kind = report.finding, report.finding.kind
    if report.outcome is findings.Outcome.MENDED:
        remedy = findings.Remedy.ADOPT if report.said == ADOPTED_AS_IS else kind.remedy
        end = f"{remedy.value} {kind.deed}: done"
        if report.said != kind.deed:
            end = f"{remedy.value}: {errors.one_line(report.said)}"
    elif report.outcome is findings.Outcome.FOUND and report.said:
        end = "\n    ".join(map(errors.one_line, (report.said, *report.difference)))
    elif report.outcome is findings.Outcome.FAILED:
        end = f"{kind.remedy.value} failed: {errors.one_line(report.said)}"
    else:
        end = finding.deed if finding.remedy is findings.Remedy.NONE else f"{finding.remedy.value} {finding.deed}"
    return f"{kind.severity.value}: {path}: {kind.label}: {errors.one_line(finding.what)}; {end}"


def _facts(path: str, report: findings.Report) -> dict[str, object]:
    finding, kind = report.finding, report.finding.kind
    return {
        "path": path,
        "kind": kind.label,
        "severity": kind.severity.value,
        "what": errors.one_line(finding.what),
        "remedy": finding.remedy.value,
        "does": finding.deed,
        "outcome": report.outcome.value,
        "said": errors.one_line(report.said),
        "difference": "\n".join(report.difference),
    }
