"""What a check finds wrong with the search index, and what is done about it.

The index is a cache, so nothing is lost whatever becomes of it. A document about which something else is said is not
compared: what takes care of that lets the index hear of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cached_property, partial

from persistence.errors import BusyError, DiskError, StartupError, disk_errors
from persistence.index.protocol import Discrepancy, IndexAudit, IndexFault, MaintainedIndex
from persistence.maintenance.findings import Finding, Kind
from persistence.maintenance.tree import Folder, Tree
from persistence.model.addresses import Collection, Form
from persistence.storage import files, owner
from persistence.storage.layout import INDEX, is_escaped, unescape
from persistence.storage.view import View

_ABANDONED_AFTER = 60.0
"""Seconds for which the service may take to look at what a killed process has noted."""

_WHOLE_FORM = 2
"""How many names lead to a form."""

Remediable = tuple[Finding, Callable[[], object]]
"""A finding, and what takes care of it."""


class IndexInspector:
    """Compares the indexes of a tree with it; ``deep`` reads every document again, and all of the index.

    Whoever is not the tree's user, or may not write, compares nothing: he could not even open an index without leaving
    files of his own beside it. Methods raise nothing about what cannot be read: that is found where it lies.
    """

    def __init__(self, tree: Tree, index: MaintainedIndex, *, deep: bool) -> None:
        self._tree = tree
        self._index = index
        self._deep = deep
        self._directory = tree.layout.own(INDEX)
        self._form: Form | None = None
        self._audit: IndexAudit | None = None

    def of_folder(self, folder: Folder) -> Iterator[Remediable]:
        """What is wrong with the rows of a document or draft."""
        if self._is_possible and folder.collection is not None:
            yield from self._of_document(folder.form, folder.name, is_draft=folder.collection is Collection.DRAFT)

    def of_forms(self, only: tuple[str, ...]) -> Iterator[Remediable]:
        """What is wrong with the indexes of the forms below some names, and beside them."""
        if not self._is_possible or len(only) > _WHOLE_FORM:
            return
        for form in self._forms(only):
            yield from self._of_form(form)
        self._close()
        if not only:
            with disk_errors("looking what the index has still to take in"):
                for path in self._index.orphaned(_ABANDONED_AFTER):
                    what = "a process that has ended has noted changes, and nobody has taken them in"
                    yield Finding(Kind.INDEX_NOTES, path, what), self._index.recover

    @cached_property
    def _is_possible(self) -> bool:
        """Whether anything can be compared, found out when all of the root that could be repaired has been."""
        root = self._tree.root
        try:
            View(root)
        except StartupError:
            return False
        return os.path.isdir(self._directory) and owner.of(root) == os.geteuid() and os.access(self._directory, os.W_OK)

    def _of_form(self, form: Form) -> Iterator[Remediable]:
        path = self._tree.layout.index(form)
        if not os.path.isdir(self._tree.layout.form(form)):
            yield Finding(Kind.STRAY_OWN, path, "the index of a form that is gone"), partial(files.remove_tree, path)
            return
        with disk_errors("looking at the index of", form):
            left = self._index.leftovers(form)
        for each in left:
            yield Finding(Kind.STRAY_OWN, each, "left by who was killed making an index"), partial(files.remove, each)
        audit = self._of(form)
        looks = (audit.throughout, audit.counts) if self._deep else (audit.counts,)
        for look in looks:
            yield from self._found(form, path, look())
        for document, is_draft in audit.names():
            if not os.path.lexists(self._document(form, document, is_draft=is_draft)):
                yield from self._of_document(form, document, is_draft=is_draft)

    def _of_document(self, form: Form, document: str, *, is_draft: bool) -> Iterator[Remediable]:
        audit = self._of(form)
        path = self._document(form, document, is_draft=is_draft)
        try:
            found = audit.document(document, is_draft=is_draft)
            if found is None and self._deep:
                found = audit.contents(document, is_draft=is_draft)
        except BusyError:  # it is being written
            return
        except DiskError as error:
            yield Finding(Kind.UNREADABLE, path, str(error)), _nothing
            return
        yield from self._found(form, path, found, document)

    def _found(
        self, form: Form, path: str, found: Discrepancy | None, document: str | None = None
    ) -> Iterator[Remediable]:
        if found is None:
            return
        if found.fault is IndexFault.STALE and document is not None:
            yield Finding(Kind.INDEX_STALE, path, found.what), partial(self._index.update, form, [document])
        elif found.fault is IndexFault.WRONG:
            yield Finding(Kind.INDEX_WRONG, path, found.what), partial(self._index.invalidate, form)
        else:
            directory = self._tree.layout.index(form)
            yield Finding(Kind.INDEX_DAMAGED, directory, found.what), partial(self._index.invalidate, form)

    def _of(self, form: Form) -> IndexAudit:
        """What compares a form; the tree is walked form by form, so one at a time is kept open."""
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

    def _forms(self, only: tuple[str, ...]) -> Iterator[Form]:
        for app in _names(self._directory, only[:1]):
            for form in _names(f"{self._directory}/{app}", only[1:2]):
                yield Form(unescape(app), unescape(form))


def _names(directory: str, only: tuple[str, ...]) -> list[str]:
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in names if is_escaped(name) and (not only or name == only[0]))


def _nothing() -> None:
    """What there is no remedy for."""
