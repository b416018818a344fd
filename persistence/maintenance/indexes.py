"""The indexes of a tree, as those who look after it make them and look in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from persistence.errors import DiskError, NotFoundError, disk_errors
from persistence.index.building import Progress
from persistence.index.index import Index
from persistence.index.making import processors
from persistence.index.reindexing import progress_in, reported
from persistence.index.work import Aim, FlatTask, Work
from persistence.model.addresses import Form
from persistence.storage import lease, locks, owner, root
from persistence.storage.layout import SERVICE
from persistence.storage.reader import StoreReader


@contextmanager
def tended(path: str) -> Iterator[StoreReader]:
    """The tree of a root, for whoever writes into its index: for the block nobody restores or upgrades it.

    Raises:
        StartupError: there is none, it has another format, is not whole, belongs to another user, or is open
            on another machine.
        BusyError: it is being restored or upgraded.
        DiskError: it cannot be looked at, or not be written.
    """
    view = StoreReader(path)
    with ExitStack() as stack:
        with disk_errors(f"data directory {view.root}"):
            owner.require(view.root)
            root.make_own(view.root)  # a copy may have come without
            stack.callback(os.close, locks.share(f"{view.root}/{SERVICE}"))
            stack.enter_context(lease.held(view.root))
        yield view


def work_on(view: StoreReader, index: Index, aim: Aim, form: Form | None = None, version: int | None = None) -> Work:
    """What is to be done about the index of a form, one of its versions, or all.

    Raises:
        NotFoundError: there is no such form or version.
        BadAddressError: a name cannot be that of a directory.
    """
    if form is None:
        forms = _forms(view)
        return Work(view.root, tuple(index.task(each, aim) for each in forms), _flat_tasks(index, aim, forms))
    require_form(view, index, form)
    if version is not None and version not in index.maker(form).source.versions():
        raise NotFoundError(f"{form} has no version {version}")
    return Work(view.root, (index.task(form, aim, version),), _flat_tasks(index, aim, [form], version))


def require_form(view: StoreReader, index: Index, form: Form) -> None:
    """Make sure that there is a form: in a tree, or with a definition elsewhere and without data until now.

    Raises:
        NotFoundError: there is none.
        BadAddressError: a name cannot be that of a directory.
    """
    if form in view.forms(form.app):
        return
    source = index.maker(form).source
    if source.is_designer or next(source.versions(), None) is None:
        raise NotFoundError(f"{form} does not exist")


def is_being_made(view: StoreReader) -> bool:
    """Whether somebody is making an index, for whom others wait. Raises ``DiskError``."""
    with disk_errors("looking how far the index is"):
        return progress_in(view.root) is not None


def make(work: Work, progress: Progress) -> None:
    """Do the work, after whoever makes an index already, with all processors.

    This process must have no other threads but that of the lease, which nothing here waits for.

    Raises:
        DiskError: the tree cannot be read, or an index not be written.
        BusyError: somebody else made one for very long.
    """
    with disk_errors("making the index"), reported(work) as report:

        def both(documents: int) -> None:
            report(documents)
            progress(documents)

        work.run(processes=processors(), progress=both)
    for cause in work.make_flat_views():
        raise DiskError(f"no flat views of {cause}")


def _flat_tasks(index: Index, aim: Aim, forms: list[Form], version: int | None = None) -> tuple[FlatTask, ...]:
    """The flat views whose rows are read anew, as no others know what was changed by hand."""
    if index.flat is None or aim is Aim.READY:
        return ()
    return tuple(index.flat.task(form, version) for form in forms)


def _forms(view: StoreReader) -> list[Form]:
    return sorted(view.forms(), key=lambda form: (form.app, form.name))
