"""The indexes of a tree, as commands and checks use them: rebuilds, searches by an administrator, comparison."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property, partial

from persistence.dialect import Dialect
from persistence.errors import BusyError, DiskError, NotFoundError, StartupError, disk_errors
from persistence.index.protocol import (
    Discrepancy,
    IndexAudit,
    IndexFault,
    MaintainedIndex,
    RebuildAim,
    RebuildJob,
    SearchIndex,
)
from persistence.maintenance.reports import TreeReader
from persistence.maintenance.tree_walk import FORM_DEPTH, Folder, FolderTree
from persistence.model.addresses import Collection, Form
from persistence.model.queries import DraftFilter, Hits, Query, Scope
from persistence.model.versions import Searched
from persistence.services.access import searched_versions
from persistence.services.searching import unknown_controls, unpublished_version
from persistence.storage import files, owner, root
from persistence.storage.findings import Finding, FindingKind
from persistence.storage.layout import INDEX, SERVICE, Layout, is_escaped, unescape
from persistence.storage.locks import Lease, LockFile
from persistence.storage.reader import StoreReader

_PATIENCE = 600.0  # Seconds to wait for documents that are being indexed
_PAUSE = 0.2
_ABANDONED_AFTER = 60.0  # Seconds that the service may take to find the notes of a killed process


@contextmanager
def writable_tree(path: str) -> Iterator[StoreReader]:
    """Open a tree to write its index; it cannot be restored or upgraded during the block."""
    view = StoreReader(path)
    with ExitStack() as stack:
        with disk_errors(f"data directory {view.root}"):
            owner.require(view.root)
            root.make_own(view.root)  # a copy may have come without
            stack.enter_context(LockFile(Layout(view.root).own(SERVICE)).shared())
            stack.enter_context(closing(Lease(view.root)))
        yield view


def plan(
    view: StoreReader, index: MaintainedIndex, aim: RebuildAim, form: Form | None = None, version: int | None = None
) -> RebuildJob:
    if form is None:
        return index.job(sorted(view.forms()), aim)
    require_form(view, index, form)
    if version is not None and version not in index.versions(form):
        raise NotFoundError(f"{form} has no version {version}")
    return index.job((form,), aim, version)


def rebuild_without_trace(view: StoreReader, index: MaintainedIndex, form: Form) -> None:
    """Rebuild the index of a form, so that no value that is not there any more stays in a file of it."""
    plan(view, index, RebuildAim.REBUILT, form).run(lambda _: None)
    with disk_errors("removing what the index had of", form):
        for path in index.stray_files(form):
            files.remove(path)


def require_form(view: StoreReader, index: MaintainedIndex, form: Form) -> None:
    """Check that a form has data or a definition in the tree, or a definition elsewhere."""
    if form not in view.forms(form.app) and not index.has_definition(form):
        raise NotFoundError(f"{form} does not exist")


class FormSearch:
    """Searches a form for an administrator, who may see everything, in the versions of a request (spec search 1.4)."""

    def __init__(
        self, reader: TreeReader, index: SearchIndex, dialect: Dialect, form: Form, version: int | Searched
    ) -> None:
        self._index = index
        self._form = form
        self._asked = version
        self._versions = searched_versions(form, reader.properties.of(form), reader.catalog_of(form), version, dialect)

    def require_controls(self, paths: Iterable[str]) -> None:
        """Check that all paths are those of indexed controls, by the definition that counts for the search."""
        indexed = self._versions.index_paths or ()
        unknown = unknown_controls(self._form, self._versions.definition.version, indexed, paths)
        if unknown is not None:
            raise NotFoundError(unknown)

    def run(self, query: Query, drafts: DraftFilter) -> Hits:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                hits = self._index.search(self._form, Scope(self._versions.numbers, drafts), query)
                break
            except BusyError:
                if time.monotonic() > end:
                    raise
                time.sleep(_PAUSE)
        if hits.total == 0 and isinstance(self._asked, int) and self._versions.definition.published is None:
            published = (each.version for each in self._versions.catalog.published(self._form, skips_damaged=True))
            raise NotFoundError(unpublished_version(self._form, self._asked, published))
        return hits


class IndexInspector:
    """Compares the indexes of a tree with it; ``deep`` reads every document again, and all of the index."""

    # A document with another finding is not compared, because its repair updates the index. A user who may not write
    # the tree compares nothing: opening an index would leave files beside it.
    def __init__(self, tree: FolderTree, index: MaintainedIndex, *, deep: bool) -> None:
        self._tree = tree
        self._index = index
        self._deep = deep
        self._directory = tree.layout.own(INDEX)
        self._form: Form | None = None
        self._audit: IndexAudit | None = None

    def of_folder(self, folder: Folder) -> Iterator[Finding]:
        """Find wrong rows of a document or draft."""
        if self._is_possible and folder.collection is not None:
            yield from self._of_document(folder.form, folder.name, is_draft=folder.collection is Collection.DRAFT)

    def of_forms(self, only: tuple[str, ...]) -> Iterator[Finding]:
        """Find fault with the indexes of the forms below some names, and with what lies beside them."""
        if not self._is_possible or len(only) > FORM_DEPTH:
            return
        for app in _names(self._directory, only[:1]):
            for name in _names(f"{self._directory}/{app}", only[1:2]):
                yield from self._of_form(Form(unescape(app), unescape(name)))
        self._close()
        if not only:
            with disk_errors("looking what the index has still to take in"):
                for path in self._index.orphaned(_ABANDONED_AFTER):
                    what = "a process that has ended has noted changes, and nobody has taken them in"
                    yield FindingKind.INDEX_NOTES.at(path, what, mend=self._index.recover)

    @cached_property
    def _is_possible(self) -> bool:
        try:
            StoreReader(self._tree.root)
        except StartupError:
            return False
        is_own = owner.of(self._tree.root) == os.geteuid()
        return os.path.isdir(self._directory) and is_own and os.access(self._directory, os.W_OK)

    def _of_form(self, form: Form) -> Iterator[Finding]:
        path = self._tree.layout.index(form)
        if not os.path.isdir(self._tree.layout.form(form)):
            what = "the index of a form that is gone"
            yield FindingKind.STRAY_OWN.at(path, what, mend=partial(files.remove_tree, path))
            return
        with disk_errors("looking at the index of", form):
            left = self._index.stray_files(form)
        for each in left:
            what = "left by who was killed making an index"
            yield FindingKind.STRAY_OWN.at(each, what, mend=partial(files.remove, each))
        audit = self._audit_of(form)
        for compare in (audit.throughout, audit.counts) if self._deep else (audit.counts,):
            yield from self._found(form, path, compare())
        for document, is_draft in audit.names():
            if not os.path.lexists(self._document(form, document, is_draft=is_draft)):
                yield from self._of_document(form, document, is_draft=is_draft)

    def _of_document(self, form: Form, document: str, *, is_draft: bool) -> Iterator[Finding]:
        audit, path = self._audit_of(form), self._document(form, document, is_draft=is_draft)
        try:
            found = audit.document(document, is_draft=is_draft)
            if found is None and self._deep:
                found = audit.contents(document, is_draft=is_draft)
        except BusyError:  # it is being written
            return
        except DiskError as error:
            yield FindingKind.UNREADABLE.at(path, str(error))
            return
        yield from self._found(form, path, found, document)

    def _found(
        self, form: Form, path: str, found: Discrepancy | None, document: str | None = None
    ) -> Iterator[Finding]:
        invalidate = partial(self._index.invalidate, form)
        if found is None:
            return
        if found.fault is IndexFault.STALE and document is not None:
            update = partial(self._index.update, form, [document])
            yield FindingKind.INDEX_STALE.at(path, found.message, mend=update)
        elif found.fault is IndexFault.WRONG:
            yield FindingKind.INDEX_WRONG.at(path, found.message, mend=invalidate)
        else:
            yield FindingKind.INDEX_DAMAGED.at(self._tree.layout.index(form), found.message, mend=invalidate)

    def _audit_of(self, form: Form) -> IndexAudit:
        """Return the audit of a form; only one is open, because the tree is walked form by form."""
        if self._audit is None or self._form != form:
            self._close()
            self._form, self._audit = form, self._index.audit(form)
        return self._audit

    def _close(self) -> None:
        if self._audit is not None:
            self._audit.close()
            self._audit = None

    def _document(self, form: Form, document: str, *, is_draft: bool) -> str:
        return self._tree.layout.document(form, Collection.DRAFT if is_draft else Collection.DATA, document)


def _names(directory: str, only: tuple[str, ...]) -> list[str]:
    names = files.names_in(directory)
    return sorted(name for name in names if is_escaped(name) and (not only or name == only[0]))
