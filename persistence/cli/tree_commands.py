"""``upgrade``, ``reindex``, ``reencrypt``, ``leases`` and ``events``: work on whole trees and databases."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial

import click

from persistence.cli.declarations import REMAINS, command, exits, unless_dry
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
from persistence.errors import DamagedError, NotFoundError, disk_errors
from persistence.index.outbox import Outbox
from persistence.index.protocol import RebuildAim, ReindexingState
from persistence.maintenance import indexes
from persistence.maintenance import upgrade as upgrades
from persistence.model.addresses import Form
from persistence.model.texts import from_epoch
from persistence.model.versions import DocumentLease
from persistence.providers.opened import database_at, open_index
from persistence.services.changes import OFF, facts_of, targets_of
from persistence.services.reencryption import Reencryption, ReencryptionJob
from persistence.storage import root
from persistence.storage.document_leases import listed, moment
from persistence.storage.reader import StoreReader


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
            say_result(facts, f"{prefix}{done}: {name}{': ' if does else ''}{does}", click.echo)
        if is_json():
            say_json({"tree": tree.name, "place": tree.place, "current": is_current or not dry_run})
        elif is_current:
            kind = "tables" if tree.is_database else "format"
            click.echo(f"{prefix}{tree.place} has the {kind} of this version: nothing to do")
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
            raise NotFoundError(f"{form} does not exist")
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
        for lease in _listed(tree):
            if isinstance(lease, DamagedError):
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


def _listed(tree: ChosenTree) -> Iterator[DocumentLease | DamagedError]:
    if tree.is_database:
        with tree.managing() as place:
            yield from place.storage.leases.listed()
        return
    with disk_errors(f"data directory {tree.root}"):
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
                raise NotFoundError(OFF)
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
