"""``persistence restore SRC PATH``: one document or form out of a backup, as new revisions, while the service runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

import click

from persistence.cli.options import ChosenTree, TreeChoice
from persistence.cli.revert import opened_documents, restored_facts, say_restored
from persistence.cli.terminal import counted, safe, say, say_json
from persistence.errors import (
    BadRequestError,
    DeletedError,
    DiskFullError,
    NotFoundError,
    PersistenceError,
    StartupError,
    disk_errors,
)
from persistence.maintenance.manifest import BackupPart
from persistence.maintenance.restore import ChosenBackup
from persistence.maintenance.storage_restore import BasesOf, source_in
from persistence.model.addresses import DATA_XML, FORM_XHTML, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.providers.router import Router
from persistence.services.definitions import Definitions
from persistence.services.reverting import Reverting, republish
from persistence.services.rules import Revert
from persistence.storage import root
from persistence.storage.layout import LAYOUT
from persistence.storage.root import FORMAT
from persistence.storage.storage import Readable, RevisionStorage


def form_and_document(text: str) -> tuple[Form, str | None]:
    """Parse ``APP/FORM`` or ``APP/FORM/DOC``."""
    match text.split("/"):
        case [app, name] if app and name:
            return Form(app, name), None
        case [app, name, document] if app and name and document:
            return Form(app, name), document
        case _:
            raise BadRequestError(f"{safe(text)} is not APP/FORM or APP/FORM/DOC")


@dataclass(frozen=True, slots=True)
class PathRestore:
    """Brings back documents of a form; ``bodies_of`` has the contents of attachments in the backup."""

    choice: TreeChoice
    chosen: ChosenBackup
    bodies_of: BasesOf
    form: Form
    asked: Revert
    is_trial: bool
    as_json: bool

    def document(self, document: str) -> None:
        with self._opened() as (reverting, _):
            if self._revert(reverting, document):
                return
        if self.as_json:
            say_json({"document": document, "files": [], "missing": [], "dry_run": self.is_trial})
        else:
            say("it is as in the backup already: nothing to do")

    def all(self) -> int:
        """Bring back all documents of the backup, and leave newer ones; report problems, and return their number."""
        problems = done = unchanged = 0
        with self._opened() as (reverting, backup):
            if self.form not in backup.forms(self.form.app):
                raise NotFoundError(f"{self.chosen.path} has nothing of {self.form}")
            definitions = Definitions(reverting.documents.router)
            for version in sorted(backup.versions(self.form)):
                main = DefinitionAddress(self.form, version, FORM_XHTML)
                for name in sorted(backup.names(main), key=lambda each: each == FORM_XHTML):
                    with self._reporting() as failed:
                        self._republish(definitions, backup, replace(main, name=name))
                    problems += len(failed)
            for document in backup.documents(self.form):
                with self._reporting() as failed:
                    if not self._was_there(reverting, document):
                        continue
                    try:
                        is_changed = self._revert(reverting, document)
                    except NotFoundError:
                        if not self.is_trial:
                            raise
                        is_changed = True  # its definition would be there
                    done, unchanged = done + is_changed, unchanged + (not is_changed)
                problems += len(failed)
        if not self.as_json:
            would = "would come" if self.is_trial else "came"
            say(f"{counted(done, 'document')} {would} back, {unchanged} as in the backup already")
        return problems

    @contextmanager
    def _opened(self) -> Iterator[tuple[Reverting, Readable]]:
        tree = self.choice.tree_of(self.form)
        part = self._part(tree)
        with opened_documents(tree) as documents:
            _require_format(f"{self.chosen.path}/{part.path(LAYOUT)}")
            source, router = source_in(self.chosen, part, self.bodies_of), documents.router
            kept = Router(
                router.properties,
                lambda form: replace(router.of(form), storage=cast("RevisionStorage", source.revisions(form))),
                lambda _: (),
                lambda: (),
            )
            yield Reverting(documents, replace(documents, router=kept)), source.storage

    @contextmanager
    def _reporting(self) -> Iterator[list[str]]:
        found: list[str] = []
        try:
            yield found
        except DiskFullError:
            raise
        except PersistenceError as error:
            found.append(str(error))
            if self.as_json:
                say_json({"problem": str(error)})
            else:
                click.echo(f"not restored: {error}", err=True)

    def _part(self, tree: ChosenTree) -> BackupPart:
        held = self.chosen.manifest
        trees = [part for part in held.parts if part.kind == "tree"]
        part = held.part(tree.name) or (trees[0] if len(trees) == 1 else None)
        if part is None or part.missing:
            raise StartupError(f"{self.chosen.path} does not have {tree.name}, where {self.form} is")
        return part

    def _revert(self, reverting: Reverting, document: str) -> bool:
        plan = reverting.plan(DocumentAddress(self.form, Collection.DATA, document, DATA_XML), self.asked)
        if plan.is_done:
            return False
        if not self.is_trial:
            reverting.restore(plan)
        if self.as_json:
            say_json({"document": document, **restored_facts(plan, dry_run=self.is_trial)})
        else:
            say(safe(document))
            say_restored(plan, dry_run=self.is_trial)
        return True

    def _was_there(self, reverting: Reverting, document: str) -> bool:
        address = DocumentAddress(self.form, Collection.DATA, document, DATA_XML)
        try:
            (reverting.elsewhere or reverting.documents).read(address, self.asked.get).found.close()
        except (NotFoundError, DeletedError):
            return False
        return True

    def _republish(self, definitions: Definitions, backup: Readable, address: DefinitionAddress) -> None:
        older = republish(definitions, backup, address, self.asked, is_trial=self.is_trial)
        if older is None:
            return
        if self.as_json:
            say_json(
                {
                    "version": address.version,
                    "file": address.name,
                    "comes_back": older.modified,
                    "dry_run": self.is_trial,
                }
            )
        else:
            would = "would come" if self.is_trial else "came"
            say(f"{safe(str(address))} {would} back")


def _require_format(path: str) -> None:
    with disk_errors(f"backup {path}"):
        layout = root.read_layout(path)
    if layout is None or layout.format != FORMAT:
        raise StartupError(
            f"{path} is not of format {FORMAT}: restore the whole backup into a new directory with --data, and run "
            "'persistence upgrade' there"
        )
