"""Texts that a search looks for in the values of controls.

A control with few different values is found by those that have the text; for others, an index of trigrams finds the
values. The values of a control are asked in the round trip that begins the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from persistence.limits import FOLDS_TRIED
from persistence.model.search import ControlFilter, Query, TextMatch
from persistence.postgresql.selections import BoundSql, Reach, Selection, joined

TRIGRAM = 3
"""Characters of the shortest text that an index of texts helps to find."""

_NEXT = """
    SELECT fold FROM entry WHERE entry.control = control.number AND entry.partition = {} AND entry.fold > {}
    ORDER BY fold LIMIT 1
"""
_OF_CONTROL = f"""
SELECT %s::int, is_long, few.number, few.folds FROM control, LATERAL (
    WITH RECURSIVE leaps AS (
        SELECT partition.number AS partition, ({_NEXT.format("partition.number", "''")}) AS fold
        FROM partition WHERE partition.form = control.form
        UNION ALL
        SELECT leaps.partition, ({_NEXT.format("leaps.partition", "leaps.fold")}) FROM leaps WHERE fold IS NOT NULL
    )
    SELECT count(*) AS number, array_agg(DISTINCT fold) FILTER (WHERE {{}}) AS folds
    FROM (SELECT fold FROM leaps WHERE fold IS NOT NULL LIMIT %s) AS tried
) AS few, LATERAL (
    SELECT EXISTS (
        SELECT FROM partition JOIN entry ON entry.control = control.number AND entry.partition = partition.number
        WHERE partition.form = control.form AND whole IS NOT NULL
    ) AS is_long
) AS long WHERE form = %s AND path = %s
"""


@dataclass(frozen=True, slots=True)
class KnownValues:
    """Knowledge about a control: if some values are longer than their folds, and the folds with a text.

    ``folds`` is ``None`` where a control has too many to look at each.
    """

    is_long: bool = True
    folds: tuple[str, ...] | None = None


KnownTexts = Mapping[ControlFilter, KnownValues]


def select_texts(form: int, query: Query) -> BoundSql | None:
    """Return the statement that looks at the controls in which a query looks for texts."""
    asked = []
    for place, control in enumerate(_texts_of(query)):
        tests = joined(" AND ", _over("fold", _tests(control)))
        parameters = place, *tests.parameters, FOLDS_TRIED + 1, form, control.path
        asked.append(BoundSql(_OF_CONTROL.format(tests.text), parameters))
    return joined(" UNION ALL ", asked) if asked else None


def known(query: Query, rows: Iterable[tuple[int, bool, int, list[str] | None]]) -> KnownTexts:
    controls = _texts_of(query)
    return {
        controls[place]: KnownValues(is_long, tuple(folds or ()) if number <= FOLDS_TRIED else None)
        for place, is_long, number, folds in rows
    }


def _texts_of(query: Query) -> list[ControlFilter]:
    return [each for each in dict.fromkeys(query.controls) if each.match is not TextMatch.EXACT]


def like(text: str) -> str:
    """Return the LIKE pattern of a text with anything around it."""
    for special in "\\%_":
        text = text.replace(special, f"\\{special}")
    return f"%{text}%"


def matching(number: int, control: ControlFilter, partitions: list[int], values: KnownValues) -> Selection:
    """Return the selection of documents with a value that has a text, or all its words."""
    if values.folds is not None and not values.is_long:
        on = "control = %s AND partition = ANY(%s::int[]) AND fold = ANY(%s::text[])"
        return Selection(_entries(BoundSql(on, (number, partitions, list(values.folds)))), Reach.RANGES)
    on_control = BoundSql("control = %s AND control > 0 AND partition = ANY(%s::int[])", (number, partitions))
    # A text in the fold, which is the beginning, is in the value too.
    columns = ("fold", "whole") if values.is_long else ("fold",)
    arms = [joined(" AND ", [on_control, *_over(column, _tests(control))]) for column in columns]
    has_trigrams = any(len(text) >= TRIGRAM for text in _looked_for(control))
    return Selection(joined(" UNION ALL ", map(_entries, arms)), Reach.TEXTS if has_trigrams else Reach.SCAN)


def _looked_for(control: ControlFilter) -> list[str]:
    folded = control.text.casefold()
    return [folded] if control.match is TextMatch.SUBSTRING else list(dict.fromkeys(folded.split()))


def _tests(control: ControlFilter) -> list[BoundSql]:
    texts = _looked_for(control)
    if control.match is TextMatch.SUBSTRING:
        return [BoundSql("{} LIKE %s", (like(text),)) for text in texts]
    narrow = [BoundSql("{} LIKE %s", (like(text),)) for text in texts if len(text) >= TRIGRAM]
    words = [BoundSql("strpos(' ' || {} || ' ', %s) <> 0", (f" {word} ",)) for word in texts]
    return [*narrow, *(words or [BoundSql("{} <> ''")])]


def _over(column: str, tests: Iterable[BoundSql]) -> list[BoundSql]:
    return [BoundSql(test.text.format(column), test.parameters) for test in tests]


def _entries(where: BoundSql) -> BoundSql:
    return BoundSql(f"SELECT seq FROM entry WHERE {where.text}", where.parameters)
