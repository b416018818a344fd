"""Rebuilding the indexes of a tree by a command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from persistence.errors import NotFoundError, disk_errors
from persistence.index.protocol import MaintainedIndex, RebuildAim, RebuildJob
from persistence.model.addresses import Form
from persistence.storage import lease, locks, owner, root
from persistence.storage.layout import SERVICE
from persistence.storage.view import View


@contextmanager
def tended(path: str) -> Iterator[View]:
    """Open the tree of a root to write into its index: during the block nobody restores or upgrades it.

    Raises:
        StartupError: there is none, it has another format, is not whole, belongs to another user, or is open
            on another machine.
        BusyError: it is being restored or upgraded.
        DiskError: it cannot be looked at, or not be written.
    """
    view = View(path)
    with ExitStack() as stack:
        with disk_errors(f"data directory {view.root}"):
            owner.require(view.root)
            root.make_own(view.root)  # a copy may have come without
            stack.callback(os.close, locks.share(f"{view.root}/{SERVICE}"))
            stack.enter_context(lease.held(view.root))
        yield view


def job_on(
    view: View, index: MaintainedIndex, aim: RebuildAim, form: Form | None = None, version: int | None = None
) -> RebuildJob:
    """Return the rebuild of the index of a form, of one of its versions, or of all indexes.

    Raises:
        NotFoundError: there is no such form or version.
        BadAddressError: a name cannot be that of a directory.
    """
    if form is None:
        return index.job(sorted(view.forms(), key=lambda form: (form.app, form.name)), aim)
    require_form(view, index, form)
    if version is not None and version not in index.versions(form):
        raise NotFoundError(f"{form} has no version {version}")
    return index.job((form,), aim, version)


def require_form(view: View, index: MaintainedIndex, form: Form) -> None:
    """Make sure that there is a form: in a tree, or with a definition elsewhere and without data until now.

    Raises:
        NotFoundError: there is none.
        BadAddressError: a name cannot be that of a directory.
    """
    if form not in view.forms(form.app) and not index.has_definition(form):
        raise NotFoundError(f"{form} does not exist")
