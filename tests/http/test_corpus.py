"""Real input over HTTP: every file goes in and comes back, in the dialect of the runtime it comes from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from persistence.model.versions import DATA_FORMATS
from tests.in_process import serving
from tests.service import Service

TYPES = {
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".gif": "image/gif",
    ".xhtml": "application/xhtml+xml",
    ".xml": "application/xml",
}


@pytest.fixture(scope="module")
def orbeon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service for a real runtime."""
    with serving(tmp_path_factory.mktemp("corpus"), dialect="orbeon") as service:
        yield service


def test_every_file_comes_back(corpus: Path, orbeon: Service) -> None:
    """The issue: definitions, data, attachments and the designer's documents; attachments first."""
    files = [path for path in corpus.rglob("*") if path.is_file() and path.parent != corpus]
    assert len(files) > 50
    files.sort(key=lambda path: path.name in ("data.xml", "form.xhtml"))
    for path in files:
        name = path.relative_to(corpus).as_posix()
        kind = TYPES.get(path.suffix, "application/octet-stream")
        version = {} if "/builder/" in name or "/form/" in name else {"Form_Definition_Version": 1}
        put = orbeon.put(name, path.read_bytes(), {"Content-Type": kind}, **version)
        assert put.status == 201, (name, put.cause)
    for path in files:
        name = path.relative_to(corpus).as_posix()
        got = orbeon.get(name)
        assert (got.status, got.body) == (200, path.read_bytes()), name
        if "/data/" in name:
            assert orbeon.get(f"{name}?nonrelevant=remove").status == 200
        if name.endswith("form.xhtml"):
            for target in DATA_FORMATS:
                moved = orbeon.get(f"{name}?form-definition-format-version={target}")
                assert (moved.status, f'data-format-version="{target}"' in moved.body.decode()) == (200, True), name
        stored = orbeon.data / (name.replace("/form/", "/form/1/") if "/form/" in name else name)
        assert stored.read_bytes() == path.read_bytes()
    listed = orbeon.raw("GET", f"{orbeon.face}/form?all-forms=true").body.decode()
    forms = [path.relative_to(corpus).parts[:2] for path in files if path.name == "form.xhtml"]
    assert f'search-total="{len(forms)}"' in listed
    for app, form in forms:
        assert f"<application-name>{app}</application-name><form-name>{form}</form-name>" in listed
