"""What a power cut could do to a tree, done by hand: the judge says so, and of an untouched tree nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.rigs.clients import Writer
from tests.rigs.judging import Verdict, check_and_repair, start_and_judge
from tests.rigs.ledger import Cut, Expected, Ledger
from tests.service import running

_SAVES = 6


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Expected]]:
    """A tree with two documents of several revisions, and what is expected of it."""
    directory = tmp_path_factory.mktemp("stored")
    ledger = Ledger()
    with running(directory) as service:
        client = Writer(service, ledger, 0, large=0)
        for _ in range(_SAVES):
            client.save_shared()
    return directory / "data", ledger.at(Cut(ledger.tick(), ledger.tick()))


@pytest.fixture
def judged(
    stored: tuple[Path, list[Expected]], tmp_path: Path, pool: ProcessPoolExecutor
) -> Callable[[Callable[[Path], None]], Verdict]:
    """Do something to a copy of the document with the most revisions, and judge the tree."""
    tree, expected = stored
    data = tmp_path / "data"
    shutil.copytree(tree, data)
    most = max(expected, key=lambda each: len(each.states))

    def judge(tamper: Callable[[Path], None]) -> Verdict:
        tamper((data / most.resource.path).parent)
        return pool.submit(start_and_judge, data, expected).result()

    return judge


def another_stage(document: Path) -> None:
    sidecar = document / "data.xml.json"
    sidecar.write_text(sidecar.read_text().replace('"stage', '"stages'))


def rolled_back(document: Path) -> None:
    last = max((document / ".history").glob("*.data.xml"))
    shutil.copy2(last, document / "data.xml")
    shutil.copy2(last.with_name(f"{last.name}.json"), document / "data.xml.json")


def forgotten(document: Path) -> None:
    for suffix in ("", ".json"):
        min((document / ".history").glob(f"*.data.xml{suffix}")).unlink()


def half_forgotten(document: Path) -> None:
    min((document / ".history").glob("*.data.xml")).unlink()


def test_of_an_untouched_tree_there_is_nothing_to_say(
    judged: Callable[[Callable[[Path], None]], Verdict], tmp_path: Path, pool: ProcessPoolExecutor
) -> None:
    verdict = judged(lambda _: None)
    assert verdict.violations == []
    assert verdict.states >= 2
    assert verdict.older >= _SAVES - 2
    assert pool.submit(check_and_repair, tmp_path / "data").result() == []


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (lambda document: os.truncate(document / "data.xml", 10), "is damaged"),
        (lambda document: (document / "data.xml.json").unlink(), "nothing is there"),
        (lambda document: os.truncate(document / "data.xml.json", 10), "is answered 500"),
        (another_stage, "unknown field `stages`"),
        (rolled_back, "is there; acknowledged was state"),
        (forgotten, "is answered 404"),
        (half_forgotten, "is answered 500"),
    ],
    ids=["truncated", "never written", "half a sidecar", "another stage", "rolled back", "forgotten", "half forgotten"],
)
def test_what_a_power_cut_could_do_is_noticed(
    tamper: Callable[[Path], None], says: str, judged: Callable[[Callable[[Path], None]], Verdict]
) -> None:
    assert says in "\n".join(judged(tamper).violations)


def test_the_check_notices_damage_too(
    judged: Callable[[Callable[[Path], None]], Verdict], tmp_path: Path, pool: ProcessPoolExecutor
) -> None:
    judged(half_forgotten)
    assert pool.submit(check_and_repair, tmp_path / "data").result() != []
