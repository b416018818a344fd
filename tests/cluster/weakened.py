"""The service as an instance runs it, without one protection: ``python -m tests.cluster.weakened serve …``.

To show that the rig would notice. Only this module knows of it: the service itself has no such switch.
"""

from __future__ import annotations

import os

from persistence.cli import main
from persistence.errors import ReplacedError
from persistence.model.addresses import Address
from persistence.model.sidecar import Sidecar
from persistence.postgresql import database_writer
from persistence.postgresql.database_writer import DatabaseWriter
from persistence.postgresql.revision_rows import DatabaseUpload
from persistence.storage.stored_revision import StoredRevision

WEAKENED = "TESTS_CLUSTER_WEAKENED"
ASYNCHRONOUS = "asynchronous replication"
"""This is one of the database, not of the service."""

UNCONDITIONAL = "condition dropped"


def _without_conditions() -> None:
    """A writer takes no lock, and overwrites what is there, whatever it has decided on."""
    replace = DatabaseWriter._replace

    def overwrite(
        self: DatabaseWriter,
        address: Address,
        sidecar: Sidecar,
        upload: DatabaseUpload | None,
        over: StoredRevision | None,
    ) -> Sidecar:
        while True:
            try:
                return replace(self, address, sidecar, upload, over)
            except ReplacedError:
                self.lookup.sidecars.clear()
                over = self.current(address)

    lock = database_writer._LOCK  # noqa: SLF001 - the weakness
    without = lock.replace("pg_advisory_xact_lock(%s)", "%s::bigint")
    database_writer._LOCK = without  # noqa: SLF001 - the weakness
    if lock == without:
        raise RuntimeError("the lock that is to be left out is taken elsewhere")
    DatabaseWriter._replace = overwrite  # type: ignore[method-assign]


def _as_it_is() -> None:
    """The service lacks nothing."""


WEAKNESSES = {UNCONDITIONAL: _without_conditions, ASYNCHRONOUS: _as_it_is}

if __name__ == "__main__":
    WEAKNESSES[os.environ[WEAKENED]]()
    main()
