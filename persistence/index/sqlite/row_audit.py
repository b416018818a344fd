"""Comparing the rows of an index with what they should be, and with each other."""

from __future__ import annotations

import sqlite3
from itertools import islice

from persistence.index.protocol import Discrepancy, IndexFault
from persistence.index.sqlite.records import PreparedDocument, decode, entries
from persistence.index.sqlite.schema import FIELDS
from persistence.index.sqlite.trigrams import TRIGRAM

_TEXTS = f"SELECT {', '.join(f'c{number}' for number in range(len(FIELDS)))} FROM fields_content WHERE id = ?"


def difference(connection: sqlite3.Connection, expected: PreparedDocument) -> str | None:
    """Return how the rows of a document differ from what they should be; ``None`` where they are right.

    The rows are of the state of ``expected``; a document with no such row is right.
    """
    row = connection.execute(
        "SELECT d.row, d.text, d.shelf, d.created, d.card, s.version, s.draft FROM documents d"
        " JOIN shelves s ON s.number = d.shelf WHERE d.document = ? AND d.draft = ? AND d.mark = ?",
        (expected.document, expected.is_draft, expected.fingerprint),
    ).fetchone()
    if row is None:
        return None
    number, text, partition, created, card, version, draft = row
    if (version, bool(draft), created) != (expected.version, expected.is_draft, expected.created):
        return "the index has it at another place"
    if decode(card) != decode(expected.card):
        return "the index has other values of it"
    return _entered(connection, expected, partition, number) or _written(connection, expected, number, text)


def _entered(connection: sqlite3.Connection, expected: PreparedDocument, partition: int, row: int) -> str | None:
    for number, fold, value, edge in expected.entries:
        found = connection.execute(
            "SELECT edge FROM entries WHERE number = ? AND shelf = ? AND fold = ? AND value = ? AND row = ?",
            (number, partition, fold, value, row),
        ).fetchone()
        if found is None or found[0] != edge:
            return "the index has not entered all its values"
    return None


def _written(connection: sqlite3.Connection, expected: PreparedDocument, row: int, text: int) -> str | None:
    of = connection.execute("SELECT row FROM texts WHERE text = ?", (text,)).fetchone()
    fields = connection.execute(_TEXTS, (text,)).fetchone()
    rest = connection.execute("SELECT c0 FROM rests_content WHERE id = ?", (text,)).fetchone()
    if of != (row,) or fields != expected.fields or rest != (expected.rest,):
        return "the index has other text of it"
    columns = (("fields", f"{{{name}}} : ", said) for name, said in zip(FIELDS, fields, strict=True) if said)
    for table, column, said in (*islice(columns, 1), ("rests", "", expected.rest)):  # one of each: it takes long
        if not _is_found(connection, table, column, text, said or ""):
            return "the index does not find its text"
    return None


def _is_found(connection: sqlite3.Connection, table: str, column: str, number: int, text: str) -> bool:
    """Return whether a document is found by three characters of its text; one that is shorter is not found so."""
    middle = max(len(text) // 2 - 1, 0)
    trigram = text[middle : middle + TRIGRAM]
    if len(trigram) < TRIGRAM:
        return True
    quoted = trigram.replace('"', '""')
    asked = f"SELECT 1 FROM {table} WHERE {table} MATCH ? AND rowid = ?"
    return connection.execute(asked, (f'{column}"{quoted}"', number)).fetchone() is not None


def counts(connection: sqlite3.Connection) -> Discrepancy | None:
    """Check that partitions count their documents right."""
    wrong = connection.execute(
        "SELECT 1 FROM shelves s WHERE s.documents <> (SELECT count(*) FROM documents d WHERE d.shelf = s.number)"
        " UNION ALL SELECT 1 FROM documents WHERE shelf NOT IN (SELECT number FROM shelves) LIMIT 1"
    ).fetchone()
    return None if wrong is None else Discrepancy(IndexFault.BROKEN, "it counts its documents wrong")


def integrity(connection: sqlite3.Connection) -> Discrepancy | None:
    """Check that the whole file can be read, and that cards and entries belong together."""
    said = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if said != "ok":
        return Discrepancy(IndexFault.BROKEN, said)
    connection.execute("BEGIN")
    try:
        cards = connection.execute("SELECT card FROM documents")
        expected = sum(sum(1 for _ in entries(decode(card))) for (card,) in cards)
        found = connection.execute("SELECT count(*) FROM entries").fetchone()[0]
    finally:
        connection.execute("ROLLBACK")
    if found == expected:
        return None
    return Discrepancy(IndexFault.BROKEN, f"it has {found} entries instead of {expected}")
