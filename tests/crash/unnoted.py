"""The service that tells the index of a change after it, and notes none before: ``python -m tests.crash.unnoted``.

Whoever kills it between the two is to notice.
"""

from __future__ import annotations

from persistence.cli import main
from persistence.index.sync.updater import Updater
from persistence.model.addresses import Form
from tests.rig_service import rig


def _changing(_self: Updater, _form: Form, _document: str) -> None:
    """Nothing."""


def _changed(self: Updater, form: Form, document: str) -> None:
    self._files.refresh(form, [document])


if __name__ == "__main__":
    Updater.changing = _changing  # type: ignore[method-assign]
    Updater.changed = _changed  # type: ignore[method-assign]
    rig()
    main()
