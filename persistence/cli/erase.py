"""``persistence erase``: remove everything of a document, or of all documents of a user, with a certificate."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from persistence.cli.managing import managing
from persistence.cli.options import ChosenTree, TreeChoice, choose_trees, tree_options, usage_errors
from persistence.cli.terminal import counted, json_option, safe, say, say_json, shown_path
from persistence.errors import BadRequestError, BusyError, NotFoundError, StartupError, disk_errors
from persistence.maintenance import backup_erasure, indexes
from persistence.model.addresses import Collection, Form
from persistence.model.instants import next_after
from persistence.providers.trees import open_index
from persistence.services.erasing import (
    Certificate,
    ErasedCopies,
    ErasedDocument,
    ErasedFile,
    Erasing,
)
from persistence.services.purging import StoragePurge
from persistence.storage import files, owner
from persistence.storage.reader import StoreReader
from persistence.storage.root import tree_around

_FORMAT = 1
_MODE = 0o600
_LEFT = (
    "logs and the audit log, which name documents and users and have no form content",
    "blocks of the disk, snapshots and copies of other programs, where removed files may be read until overwritten",
)
_LEFT_IN_DATABASE = "the files of the database until it is vacuumed, and its write-ahead log, archives and replicas"


@click.command(short_help="Remove everything of documents, with a certificate.")
@click.argument("paths", metavar="[APP/FORM/data/DOC]...", nargs=-1)
@click.option("--owner", "user", metavar="USER", help="All documents and drafts of this owner.")
@click.option("--certificate", metavar="FILE", help="A record of the erasure; required with --yes.")
@click.option("--reason", metavar="TEXT", help="A reason for the certificate.")
@click.option("--backups", metavar="DIR", help="Also look for copies in these backups: what DIR was to 'backup'.")
@click.option("--from-backups", is_flag=True, help="Remove these copies, too, and from the lists of the backups.")
@click.option("--yes", is_flag=True, help="Do it. Without a backup it cannot be undone.")
@json_option
@tree_options
def erase(*, paths: tuple[str, ...], yes: bool, as_json: bool, **options: Any) -> None:
    """Remove documents completely, as law may require: data, attachments, history, drafts and leases.

    The indexes and tables for reports of their forms are rebuilt, so that no removed value stays in their files. Their
    files in the quarantine are removed, too. Without --yes the files are listed, and nothing is changed. The
    certificate is JSON: paths, sizes and digests of the removed files, when and by whom, without contents. With
    --backups, documents that only backups have may be named.

    The service may run. A run that was stopped goes on when it is called again with the same certificate.
    """
    with usage_errors():
        request = _Request.of(paths, options, is_trial=not yes)
        before = request.begun()
    choice = choose_trees(options)
    known = before.documents if before is not None else ()
    missing = {each.tree for each in known} - {tree.name for tree in choice.trees}
    if missing:
        raise StartupError(f"the certificate has documents of {', '.join(sorted(missing))}: choose that tree, too")
    found = _Found({(each.tree, Form(each.app, each.form), each.document): each for each in known})
    for tree in choice.trees:
        with _opened(tree) as erasing:
            found.look(tree, erasing, choice, request)
    if not found.known:
        raise NotFoundError(f"no document has the owner {safe(request.user or '')}")
    documents = list(found.known.values())
    copies = request.copies(documents, before)
    (_list_facts if as_json else _list)(documents, copies)
    if found.damaged and not as_json:
        say(f"{_damaged(found)}: not erased")
    if not yes:
        _say_end(len(documents), found, None, as_json=as_json)
        return
    begun = request.beginning(documents, copies, before)
    for tree in choice.trees:
        own = [each for each in documents if each.tree == tree.name and each.files]
        with _opened(tree) as erasing:
            for each in own:
                erasing.erase(Form(each.app, each.form), each.document)
        if own and not tree.is_database:
            _rebuild(tree, dict.fromkeys(Form(each.app, each.form) for each in own))
    request.end(begun, found)
    _say_end(len(begun.documents), found, request.certificate, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Request:
    """The options of the command, but for the trees."""

    asked: tuple[tuple[Form, str], ...]
    user: str | None
    reason: str | None
    certificate: str | None
    backups: str | None
    removes_copies: bool

    @classmethod
    def of(cls, paths: Iterable[str], options: dict[str, Any], *, is_trial: bool) -> _Request:
        names = ("user", "reason", "certificate", "backups", "from_backups")
        user, reason, certificate, backups, removes_copies = (options.pop(name) for name in names)
        asked = tuple(map(_document, paths))
        if bool(asked) == (user is not None):
            raise BadRequestError("name documents as APP/FORM/data/DOC, or with --owner a user")
        if certificate is None and not is_trial:
            raise BadRequestError("--yes needs a --certificate FILE")
        if removes_copies and backups is None:
            raise BadRequestError("--from-backups needs --backups DIR")
        tree = None if certificate is None else tree_around(certificate)
        if tree is not None:
            raise BadRequestError(f"{certificate} lies in the data directory {tree}")
        return cls(asked, user, reason, certificate, backups, removes_copies)

    def begun(self) -> Certificate | None:
        if self.certificate is None or not os.path.lexists(self.certificate):
            return None
        if not os.path.isfile(self.certificate):
            raise BadRequestError(f"{self.certificate} is not a file")
        try:
            with disk_errors(self.certificate), open(self.certificate, "rb") as file:
                found = msgspec.json.decode(file.read(), type=Certificate)
        except msgspec.DecodeError as error:
            raise BadRequestError(f"{self.certificate} exists, and is not a certificate") from error
        if found.ended is not None:
            raise BadRequestError(f"the erasure of {self.certificate} is complete: name another file")
        return found

    def copies(self, documents: Sequence[ErasedDocument], before: Certificate | None) -> list[ErasedCopies]:
        """Return the files of documents in each backup, with those that a run ``before`` has found, or removed."""
        found = {each.backup: each for each in (before.backups if before is not None else ())}
        for backup in backup_erasure.backups_in(self.backups) if self.backups is not None else ():
            if self.removes_copies:
                owner.refuse_root(backup)
            files_ = backup_erasure.copies(backup, _names(documents))
            known = found.get(backup, ErasedCopies(backup, self.removes_copies, ()))
            erased = {each.path: each for each in known.files}
            erased |= {each.path: ErasedFile(each.path, each.size, each.digest) for each in files_}
            if erased:
                found[backup] = ErasedCopies(backup, known.removed or self.removes_copies, tuple(erased.values()))
        return list(found.values())

    def beginning(
        self, documents: Sequence[ErasedDocument], copies: Sequence[ErasedCopies], before: Certificate | None
    ) -> Certificate:
        first = before or Certificate(_FORMAT, next_after(None), owner.name(os.geteuid()), ())
        begun = msgspec.structs.replace(
            first,
            documents=tuple(documents),
            reason=self.reason or first.reason,
            owner=self.user or first.owner,
            backups=tuple(copies),
        )
        self.write(begun)
        return begun

    def write(self, certificate: Certificate) -> None:
        path = os.path.abspath(self.certificate or "")
        with disk_errors(path):
            files.write_durably(path, msgspec.json.format(msgspec.json.encode(certificate), indent=2) + b"\n", _MODE)

    def end(self, begun: Certificate, found: _Found) -> None:
        remaining = [*_LEFT, _LEFT_IN_DATABASE] if found.is_in_database else list(_LEFT)
        for each in begun.backups:
            if each.removed:
                if os.path.lexists(each.backup):  # it may have gone since the run before
                    backup_erasure.remove_copies(each.backup, _names(begun.documents))
            else:
                remaining.append(f"{counted(len(each.files), 'file')} in the backup {each.backup}")
        if self.backups is None and not begun.backups:
            remaining.append("backups, which were not looked at")
        if found.mentions:
            remaining.append(f"{counted(found.mentions, 'revision')} of documents of others, which name the user")
        if found.damaged:
            remaining.append(_damaged(found))
        ended = msgspec.structs.replace(begun, ended=next_after(None), remaining=tuple(remaining))
        self.write(ended)


@contextmanager
def _opened(tree: ChosenTree) -> Iterator[Erasing]:
    with managing(tree) as place:
        store, bodies_of = place.storage, place.providers.bodies_by_form
        yield Erasing(tree.name, store, StoragePurge(store, bodies_of), bodies_of)


def _document(path: str) -> tuple[Form, str]:
    match path.split("/"):
        case [app, name, Collection.DATA.value, document] if app and name and document:
            return Form(app, name), document
        case _:
            raise BadRequestError(f"{safe(path)} is not APP/FORM/data/DOC")


@dataclass(slots=True)
class _Found:
    """The documents to erase by tree, form and name.

    ``mentions`` counts revisions of others that name the user, ``damaged`` documents that may be the user's.
    """

    known: dict[tuple[str, Form, str], ErasedDocument]
    mentions: int = 0
    damaged: int = 0
    is_in_database: bool = False

    def look(self, tree: ChosenTree, erasing: Erasing, choice: TreeChoice, request: _Request) -> None:
        wanted = [each for each in request.asked if choice.tree_of(each[0]) == tree]
        if request.user is not None:
            owned = erasing.owned(request.user)
            self.mentions += owned.mentions
            self.damaged += owned.damaged
            wanted += owned.documents
        for form, document in wanted:
            if (tree.name, form, document) not in self.known:
                try:
                    known = erasing.describe(form, document)
                except NotFoundError:
                    known = ErasedDocument(tree.name, form.app, form.name, document, None, ())
                    if not request.copies([known], None):
                        raise
                self.known[tree.name, form, document] = known
        self.is_in_database |= tree.is_database and any(name == tree.name for name, _, _ in self.known)


def _rebuild(tree: ChosenTree, forms: Iterable[Form]) -> None:
    reader = StoreReader(tree.root)
    with open_index(tree.settings, tree.properties, tree.root) as index:
        for form in forms:
            indexes.rebuild_without_trace(reader, index, form)
        with disk_errors("working off the journal of the index"), suppress(BusyError):  # else the service does
            index.recover()


def _damaged(found: _Found) -> str:
    return f"{counted(found.damaged, 'damaged document')}, whose owner cannot be read"


def _list(documents: Sequence[ErasedDocument], copies: Sequence[ErasedCopies]) -> None:
    for each in documents:
        size = sum(file.size for file in each.files)
        found = f"{counted(len(each.files), 'file')}, {size} bytes" if each.files else "only in backups"
        say(safe(f"{each.app}/{each.form}/data/{each.document}: {found}"))
    for copy in copies:
        stays = "" if copy.removed else ", which stay: --from-backups removes them"
        say(safe(f"{copy.backup}: {counted(len(copy.files), 'file')}{stays}"))


def _list_facts(documents: Sequence[ErasedDocument], copies: Sequence[ErasedCopies]) -> None:
    for each in documents:
        size = sum(file.size for file in each.files)
        facts = {"tree": each.tree, "form": f"{each.app}/{each.form}", "document": each.document}
        say_json({**facts, "owner": each.owner, "files": len(each.files), "bytes": size})
    for copy in copies:
        say_json({"backup": shown_path(copy.backup), "files": len(copy.files), "removed": copy.removed})


def _say_end(documents: int, found: _Found, certificate: str | None, *, as_json: bool) -> None:
    if as_json:
        path = None if certificate is None else shown_path(certificate)
        say_json({"documents": documents, "erased": path is not None, "certificate": path, "damaged": found.damaged})
    elif certificate is None:
        say("nothing was changed: --yes does it")
    else:
        say(f"{counted(documents, 'document')} erased; the certificate is {safe(certificate)}")


def _names(documents: Iterable[ErasedDocument]) -> list[tuple[Form, str]]:
    return [(Form(each.app, each.form), each.document) for each in documents]
