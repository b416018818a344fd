"""The administrator of a service with nothing else set, and the keys that are made there."""

from pathlib import Path

import pytest

from persistence.keys import Keys
from tests.pages.administrator import Browser, administrator, keys_of


@pytest.fixture
def found(tmp_path: Path) -> Browser:
    """The browser of an administrator of a new service."""
    return administrator(tmp_path)


@pytest.fixture
def keys(found: Browser) -> Keys:
    """The keys of that service."""
    return keys_of(found.given)
