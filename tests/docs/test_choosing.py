"""The figures of docs/choosing.md are those of the measurements, and of the code."""

import pytest

from persistence.limits import WORKER_MEMORY
from persistence.storage import root
from tests.docs.markdown import DOCS, ROOT, rows

PAGE = (DOCS / "choosing.md").read_text()

FIGURES = [
    ("17,069 acknowledged writes", "bench/results/reliability.md", "| ext4 | 100 | 524 | 17069 |"),
    ("20,812 acknowledged writes", "bench/results/reliability.md", "| xfs | 100 | 695 | 20812 |"),
    ("13,279 acknowledged writes", "bench/results/reliability.md", "| btrfs | 100 | 363 | 13279 |"),
    (
        "first backup, at 2,524 documents a second",
        "bench/results/reliability.md",
        "| backup, the first | 39.6 | 2524 |",
    ),
    ("4,024 a second | 0.49 times", "bench/results/notebook.md", "| GET | 4024 | 1715 | 0.49 |"),
    ("532 a second | 0.58 times", "bench/results/notebook.md", "| PUT new | 532 | 301 | 0.58 |"),
    ("3.2 to", "bench/results/notebook.md", "| exact on one control, 100 hits | 100 | 3.2 | 8.6 | 2.7 |"),
    ("to 6.1 ms | 1.4 to", "bench/results/notebook.md", "| substring of 5 letters, 100 hits | 100 | 6.1 | 8.7 | 1.4 |"),
    ("to 3.4 times", "bench/results/notebook.md", "| free text, 100 hits | 100 | 4.6 | 15.7 | 3.4 |"),
    ("at 1,793 documents a second", "bench/results/notebook.md", "1,793 documents a second"),
    ("at 13,000 documents a second", "bench/results/reliability.md", "| check | 7.5 | 13288 |"),
    ("takes 60 MB", "docs/reliability.md", "| memory of a worker | 60 MB"),
]


@pytest.mark.parametrize(("figure", "page", "measured"), FIGURES, ids=[figure[0] for figure in FIGURES])
def test_a_figure_is_the_measured_one(figure: str, page: str, measured: str) -> None:
    assert figure in PAGE
    assert measured in (ROOT / page).read_text()


def test_multiples_are_calculated_from_the_first_column() -> None:
    """Space is the size of one document; time is the number of documents divided by the rate."""
    space = {cells[0]: cells[1:] for cells in rows(PAGE, "5 KB of data each, without attachments")}
    assert space["disk on ext4: content, sidecar, directory"] == ["16 KB", "1.6 GB", "16 GB"]
    assert space["index"] == ["5 KB", "0.5 GB", "5 GB"]
    for name, rate, hundred, thousand in (
        ("rebuild of the index, at 1,793 documents a second", 1793, "56 s", "9 min"),
        ("`check`, at 13,000 documents a second", 13000, "8 s", "77 s"),
        ("first backup, at 2,524 documents a second", 2524, "40 s", "7 min"),
    ):
        assert space[name][1:] == [hundred, thousand]
        assert round(100_000 / rate) == int(hundred.split()[0])
        unit = 60 if thousand.endswith("min") else 1
        assert round(1_000_000 / rate / unit) == int(thousand.split()[0])


def test_bounds_are_those_of_the_code() -> None:
    least, inodes = root._LEAST_FREE, root._LEAST_INODES  # noqa: SLF001 - the bounds themselves
    assert f"| {least >> 20} MiB and {inodes} inodes free |" in PAGE
    assert f"above `worker_memory`, {WORKER_MEMORY >> 30} GiB" in PAGE
