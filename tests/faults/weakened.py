"""The service with one protection against faults of the disk taken out, as ``python -m tests.faults.weakened``.

The rig must notice each of these: else it would not notice them in the service as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from io import FileIO

from persistence.cli import main
from persistence.http import responses
from persistence.index.sync.updater import Updater
from persistence.model.addresses import Form
from persistence.storage import files, stored_revision
from persistence.storage.layout import FilePaths
from persistence.storage.writer import Writer
from tests.rig_service import rig

WEAKNESS = "TESTS_WEAKNESS"
"""The environment variable that names the protection that is missing."""


def _forgive_fsync() -> None:
    real = files.sync

    def sync(descriptor: int) -> None:
        with suppress(OSError):
            real(descriptor)

    files.sync = sync


def _repeat_fsync() -> None:
    real = files.sync

    def sync(descriptor: int) -> None:
        try:
            real(descriptor)
        except OSError:
            real(descriptor)

    files.sync = sync


def _leave_everything() -> None:
    def discard(_self: Writer, _place: FilePaths) -> None:
        """Nothing."""

    Writer._discard = discard  # type: ignore[assignment]  # noqa: SLF001 - the weakness


def _leak() -> None:
    def open_(path: str, *, content: bool) -> tuple[os.stat_result, FileIO | None]:
        if not content:
            return os.stat(path), None
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.fstat(descriptor), FileIO(descriptor)

    stored_revision._open = open_  # noqa: SLF001 - the weakness


def _cut_short() -> None:
    responses._whole = lambda file, size: file.read(size)  # noqa: SLF001 - the weakness


def _never_mind() -> None:
    real = Updater.changed

    def give_up(_self: Updater, _form: Form, _error: Exception | None) -> None:
        """Nothing."""

    def changed(self: Updater, form: Form, document: str) -> None:
        if self._tickets[form, document][-1] is not None:
            real(self, form, document)

    Updater._give_up = give_up  # type: ignore[method-assign]  # noqa: SLF001 - the weakness
    Updater.changed = changed  # type: ignore[method-assign]


FORGIVEN = "an fsync that fails is forgiven"
REPEATED = "an fsync that fails is tried again"
NOT_CLEANED = "a refused write is not cleaned up"
UNHEARD = "an index that cannot be told of a change is used all the same"
LEAKING = "a descriptor leaks when a content cannot be looked at"
CUT_SHORT = "a content that ends early is sent as it is"

OF_WRITING: dict[str, Callable[[], None]] = {
    FORGIVEN: _forgive_fsync,
    REPEATED: _repeat_fsync,
    NOT_CLEANED: _leave_everything,
    UNHEARD: _never_mind,
}
OF_READING: dict[str, Callable[[], None]] = {LEAKING: _leak, CUT_SHORT: _cut_short}

if __name__ == "__main__":
    rig()
    {**OF_WRITING, **OF_READING}[os.environ[WEAKNESS]]()
    main()
