"""A connection to a database: it knows the server's warnings, and gives up a server that does not answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TypeVar

import psycopg
from psycopg import ClientCursor, Connection
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

T = TypeVar("T")

_LOOKS = 0.1
"""Seconds between two looks at whether the service is being ended while a server is waited for."""


class Session(Connection[TupleRow]):
    """A connection that knows the warnings of its server, and ends when that does not answer for ``patience`` seconds.

    A server that is stopped, or has a disk that hangs, cancels nothing itself, and its network goes on answering.
    """

    patience: float | None = None

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # as libpq's wrapper gives them
        self.warnings: list[str] = []
        self.first = ClientCursor(self)
        self._block = ExitStack()
        self._pipeline_until_commit: psycopg.Pipeline | None = None
        self.add_notice_handler(self._noticed)

    def wait(self, gen: PQGen[T], interval: float = _LOOKS, timeout: float | None = None) -> T:
        """See ``Connection``."""
        began = time.monotonic()
        patience = self.patience if timeout is None else timeout
        try:
            return super().wait(gen, interval, patience)
        except psycopg.OperationalError as error:
            if timeout is None and patience is not None and time.monotonic() - began >= patience:
                self.close()
                raise psycopg.OperationalError(f"the server has not answered for {patience:g} s") from error
            raise

    def begin(self, block: ExitStack, first: str, values: Sequence[object]) -> None:
        """Begin a transaction, which ends before ``block``, and run some statements in the same round trip."""
        self._block, self._pipeline_until_commit = block, None
        self.first = ClientCursor(self)
        self.first.execute(f"BEGIN;{first}".encode(), values or None)

    def pipeline_until_commit(self) -> None:
        """Wait from here on for no statement of the transaction whose result is not fetched, until the commit."""
        self._pipeline_until_commit = self._block.enter_context(self.pipeline())

    def commit_transaction(self) -> str | None:
        """Commit, with all statements that nobody has waited for; return what the server says that it has done."""
        committed = self.execute("COMMIT")
        if self._pipeline_until_commit is not None:
            self._pipeline_until_commit.sync()
        return committed.statusmessage

    def _noticed(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            self.warnings.append(diagnostic.message_primary or "")


# The pool would log each failure to connect on standard error; the causes of the refusals say the same.
logging.getLogger("psycopg").addHandler(logging.NullHandler())
