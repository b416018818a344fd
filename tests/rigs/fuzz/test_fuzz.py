"""The quick part of the fuzzing: always the same requests, so that it fails for a change and not by chance."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.fuzz import leaks
from tests.rigs.fuzz.runs import Job, run
from tests.service import running


@pytest.mark.parametrize(
    ("kind", "dialect", "requests"),
    [
        *(("described", "svc", 12), ("odd", "orbeon", 100), ("XML", "svc", 60)),
        pytest.param("described", "svc", 40, marks=pytest.mark.long),
    ],
)
def test_nothing_is_wrong_and_nothing_is_left(tmp_path: Path, kind: str, dialect: str, requests: int) -> None:
    """No 5xx but the documented one, only documented answers, no traceback, and nothing held or left at the end."""
    with running(tmp_path, dialect=dialect, workers=1, threads=2) as service:
        before = leaks.held(service)
        totals = run(Job(kind, service.port, dialect, requests, None))
        after = leaks.held(service)
        assert totals.violations == []
        assert totals["requests"] >= requests
        assert totals["2xx"] > 0 < totals["4xx"]
        assert list(leaks.growth(before, after, most_memory=64 << 10, most_threads=2 + leaks.OTHER_THREADS)) == []
        assert leaks.strays(service) == []
