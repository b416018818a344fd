"""Whoever has stored something finds it, while others write, indexes are rebuilt and forms are published."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests import orders
from tests.rigs.clients import XHTML, Searcher
from tests.rigs.ledger import FORM
from tests.rigs.modelled.runs import Plan, run
from tests.service import Service

RACE = Plan("nothing else", 2.0, client=Searcher, documents=10, worker_kills=None, service_kills=None, commands=None)


def reindexing(service: Service) -> Callable[[], None]:
    def once() -> None:
        answer = service.raw("POST", f"{service.face}/reindex", {}, b"")
        assert answer.status == 200, answer.cause

    return once


def republishing(service: Service) -> Callable[[], None]:
    """Publish the form with one control more in the index, and with one less."""
    whole = orders.definition()
    fewer = whole.replace(b' class="fr-search"/>', b"/>", 1)
    assert fewer != whole
    turns = 0

    def once() -> None:
        nonlocal turns
        turns += 1
        answer = service.put(
            f"{FORM}/form/form.xhtml",
            fewer if turns % 2 else whole,
            {"Content-Type": XHTML},
            Form_Definition_Version="1",
        )
        assert answer.status == 204, answer.cause
        time.sleep(0.2)

    return once


@pytest.mark.parametrize(
    "race",
    [RACE, replace(RACE, beside=reindexing), replace(RACE, beside=republishing, documents=100)],
    ids=["writers", "reindexing", "republishing"],
)
def test_no_search_is_late(race: Plan, tmp_path: Path) -> None:
    outcome = run(race, tmp_path)
    assert outcome.violations == []
    assert outcome["writes"] > race.documents + race.clients
