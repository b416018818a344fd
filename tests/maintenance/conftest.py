"""The furnished tree of most tests of maintenance."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.maintenance.workshop import Workshop, furnished


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return furnished(tmp_path / "data")
