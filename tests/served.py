"""Fixtures of modules whose tests share a service."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from persistence.crypto import EncryptionKeys
from persistence.dialect import DIALECTS
from tests.in_process import serving
from tests.published import Planter
from tests.service import Service


def served(
    *dialects: str,
    plant: Callable[[Planter], object] | None = None,
    then: Callable[[Service], object] | None = None,
    has_keys: bool = False,
    settings: str = "",
    start: Callable[..., AbstractContextManager[Service]] = serving,
    **more: object,
) -> Callable[..., Service]:
    """A fixture: a service of the module in each dialect, over what was planted; ``settings`` may name the {prefix}.

    With keys of encryption, they are where the service looks for them.
    """

    @pytest.fixture(scope="module", params=dialects if len(dialects) > 1 else None)
    def of_module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
        dialect = getattr(request, "param", dialects[0] if dialects else "svc")
        directory: Path = tmp_path_factory.mktemp("served")
        if has_keys:
            EncryptionKeys(str(directory / "var/encryption-keys.json"), trees=[str(directory / "data")]).new()
        if plant is not None:
            plant(Planter(directory / "data"))
        text = settings.replace("{prefix}", DIALECTS[dialect].property_prefix)
        with start(directory, dialect=dialect, settings=text or None, **more) as service:
            if then is not None:
                then(service)
            yield service

    return of_module
