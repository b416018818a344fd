"""Where the documents of an index stand, and under which numbers their controls are entered."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from persistence.model.search import Drafts, Scope
from persistence.model.users import NOBODY, OwnerSets


@dataclass(frozen=True, slots=True)
class Controls:
    """The numbers of the indexed controls by path; of ``several``, a document may have more than one value."""

    numbers: Mapping[str, int]
    several: frozenset[int]


def controls_of(connection: sqlite3.Connection) -> Controls:
    """The controls that an index knows."""
    found = connection.execute("SELECT path, number, several FROM controls").fetchall()
    return Controls({path: number for path, number, _ in found}, frozenset(row[1] for row in found if row[2]))


@dataclass(frozen=True, slots=True)
class Shelf:
    """The saved documents, or the drafts, of one version, and which controls its documents have entries of.

    ``sights`` say whose documents of the version are seen.
    """

    number: int
    documents: int
    controls: frozenset[int]
    is_draft: bool = False
    sights: OwnerSets = frozenset()


def shelves(connection: sqlite3.Connection, scope: Scope) -> list[Shelf]:
    """The shelves that a search looks at, without empty ones and those of which nobody's documents are seen."""
    found = connection.execute(
        "SELECT s.number, s.documents, e.controls, s.version, s.draft FROM shelves s JOIN editions e USING (version)"
        " WHERE NOT s.hidden AND s.documents > 0 ORDER BY s.number"
    )
    wanted = {Drafts.INCLUDE: (0, 1), Drafts.EXCLUDE: (0,), Drafts.ONLY: (1,)}[scope.drafts.kind]
    sights_of = cache(scope.seen.of_version)
    return [
        Shelf(number, documents, frozenset(json.loads(controls or "[]")), bool(draft), sights)
        for number, documents, controls, version, draft in found.fetchall()
        if draft in wanted
        and (scope.versions is None or version in scope.versions)
        and NOBODY not in (sights := sights_of(version))
    ]
