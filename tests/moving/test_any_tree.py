"""Whatever is stored: moved to another tree and back it is the same tree, byte for byte."""

import tempfile
from itertools import count
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.imports.archives import tree
from tests.imports.test_any_tree import DATA, FORMS, Requests, send
from tests.moving.moves import moved
from tests.served import served
from tests.service import Service

_apps = count()


service = served(alone=True)


@settings(max_examples=8, deadline=None)
@given(st.lists(DATA | FORMS, min_size=1, max_size=12), st.integers(0, 12))
def test_there_and_back_is_the_same_tree(service: Service, requests: Requests, pause: int) -> None:
    """Some requests come between the two passes."""
    app = f"app{next(_apps)}"
    send(service, app, requests[:pause])
    with tempfile.TemporaryDirectory() as directory:
        there, back = Path(directory) / "there", Path(directory) / "back"
        moved(service.data, there, f"{app}/f", meanwhile=lambda: send(service, app, requests[pause:]))
        expected = {path: held for path, held in tree(service.data).items() if path.startswith(f"{app}/")}
        assert tree(there) == expected
        moved(there, back)
        assert tree(back) == expected
