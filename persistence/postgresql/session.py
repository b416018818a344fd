"""A connection to a database: it knows the server's warnings, and gives up a server that does not answer."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeVar

import psycopg
from psycopg import ClientCursor, Connection
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

T = TypeVar("T")

_LOOKS = 0.1
"""Seconds between two looks at whether the service is being ended while a server is waited for."""

_LOOKS_OVERDUE = 2.0
"""Seconds between two looks what keeps a statement that is overdue."""


class Session(Connection[TupleRow]):
    """A connection that knows the warnings of its server, and ends when that does not answer for ``patience`` seconds.

    A stopped server, or one with a disk that hangs, cancels nothing itself, and its network goes on answering. All
    waits of a pipelined transaction together have that time. After ``overdue_after`` seconds it calls ``on_overdue``
    now and then with the seconds waited, which may raise to give the statement up; ``on_silence`` hears that the server
    was given up. ``asked`` are the questions of a pipelined transaction, by subject.
    """

    patience: float | None = None
    overdue_after = math.inf
    is_pooled = True

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # as libpq's wrapper gives them
        self.warnings: list[str] = []
        self.on_overdue: Callable[[Session, float], None] = lambda *_: None
        self.on_silence: Callable[[str], None] = lambda _: None
        self.first = ClientCursor(self)
        self.asked: dict[object, object] = {}
        self._pipelined = ExitStack()
        self._waited: float | None = None
        self.add_notice_handler(self._noticed)

    def wait(self, gen: PQGen[T], interval: float = _LOOKS, timeout: float | None = None) -> T:
        if timeout is not None or self.patience is None:
            return super().wait(gen, interval, timeout)
        began = time.monotonic()
        try:
            return self._wait_patiently(gen, interval, max(_LOOKS, self.patience - (self._waited or 0)), began)
        finally:
            if self._waited is not None:
                self._waited += time.monotonic() - began

    def _wait_patiently(self, gen: PQGen[T], interval: float, patience: float, began: float) -> T:
        until = min(patience, self.overdue_after)
        while True:
            try:
                return super().wait(gen, interval, max(0.0, until - (time.monotonic() - began)))
            except psycopg.OperationalError as error:
                waited = time.monotonic() - began
                if self.closed or waited < until or getattr(gen, "gi_frame", None) is None:  # it did not time out
                    raise
                if waited >= patience:
                    self.close()
                    cause = f"the server has not answered for {patience:.3g} s"
                    self.on_silence(cause)
                    raise psycopg.OperationalError(cause) from error
                self.on_overdue(self, waited)
                until = min(patience, waited + _LOOKS_OVERDUE)

    def begin(self, block: ExitStack, first: str | None, values: Sequence[object]) -> None:
        """Begin a transaction, which ends before ``block``, and run ``first`` in the same round trip.

        Without any, the next statement whose result is fetched begins it: ``pipeline_until_commit``.
        """
        self.asked = {}
        block.callback(setattr, self, "_waited", None)
        self._pipelined = block.enter_context(ExitStack())
        if first is None:
            self._waited = 0.0
            self.pipeline_until_commit()
            self.execute("BEGIN")
        else:
            self.first = ClientCursor(self)
            self.first.execute(f"BEGIN;{first}".encode(), values or None)

    def pipeline_until_commit(self) -> None:
        """From here on, wait only for statements whose results are fetched, and for the commit."""
        self._pipelined.enter_context(self.pipeline())

    def commit_transaction(self) -> str | None:
        """Commit, with all statements that were not waited for; return the status that the server reports."""
        committed = self.execute("COMMIT")
        self._pipelined.close()
        return committed.statusmessage

    def _noticed(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            self.warnings.append(diagnostic.message_primary or "")


# The pool would log each failure to connect on standard error; the causes of the refusals say the same.
logging.getLogger("psycopg").addHandler(logging.NullHandler())
