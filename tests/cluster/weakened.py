"""The service as an instance runs it, without one protection: ``python -m tests.cluster.weakened serve …``.

To show that the rig would notice. Only this module knows of it: the service itself has no such switch.
"""

from __future__ import annotations

import os

from persistence.cli import main

WEAKENED = "TESTS_CLUSTER_WEAKENED"
ASYNCHRONOUS = "asynchronous replication"
"""This is one of the database, not of the service."""

UNCONDITIONAL = "condition dropped"


def _without_conditions() -> None:
    """Every writer overwrites what is there, whatever that is."""


def _as_it_is() -> None:
    """The service lacks nothing."""


WEAKNESSES = {UNCONDITIONAL: _without_conditions, ASYNCHRONOUS: _as_it_is}

if __name__ == "__main__":
    WEAKNESSES[os.environ[WEAKENED]]()
    main()
