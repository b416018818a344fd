"""Processes that judge what is left on disks."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.rigs.powercut.rig import judges


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessPoolExecutor]:
    with judges(tmp_path_factory.mktemp("judges")) as made:
        yield made
