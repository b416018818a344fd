"""The examples of docs/client.md and the README, literally, against gunicorn: a new user's whole workflow."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from persistence.client import CallPolicy, FormClient, PersistenceClient, SearchResults
from tests.client.test_client import FORM, data
from tests.service import running

ROOT = Path(__file__).parents[2]


def examples(page: str) -> list[str]:
    found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert found
    return list(found)


def run(script: str, port: int, directory: Path) -> str:
    """Return what an example prints, with the service and the files of a test."""
    script = script.replace("/tmp/", f"{directory}/").replace(":8080", f":{port}")
    script = script.replace("PersistenceClient(user", f'PersistenceClient("http://127.0.0.1:{port}", user')
    script = script.replace("PersistenceClient()", f'PersistenceClient("http://127.0.0.1:{port}")')
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(script, "docs/client.md", "exec"), {})  # noqa: S102 - what the test is about
    return printed.getvalue()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("documented"), workers=2) as service:
        yield service.port


def test_the_examples_work_literally(port: int, tmp_path: Path) -> None:
    with PersistenceClient(f"http://127.0.0.1:{port}", user="lea") as client:
        trips = client.form("hr", "trip")
        trips.publish(FORM.format(""))
        for city in ("Paris", "Lisbon", "Rome"):
            trips.create(data(city))
    workflow, forms, conflict, copied, search = (run(script, port, tmp_path) for script in examples("docs/client.md"))
    assert re.fullmatch(r"[0-9a-f-]{36} \S+Z lea\n<form><name>Lea Example</name><scan>/fr/.*</scan></form>\n", workflow)
    assert "hr/leave 1 " in forms
    assert re.match(r'current ETag "\w+", saved at \S+ by bob: ', conflict)
    assert copied == ""
    assert (tmp_path / "copy.bin").stat().st_size == 1_000_000
    assert search.startswith("2 ['Lisbon', 'Paris']\n{'trip/city': ('Lisbon', 'Paris', 'Rome')")


def test_the_workflow_is_ten_lines() -> None:
    lines = [line for line in examples("docs/client.md")[0].splitlines() if line.strip()]
    assert len(lines) <= 11  # with the import


def test_the_readme_has_a_shorter_one(port: int, tmp_path: Path) -> None:
    (script,) = examples("README.md")
    assert run(script, port, tmp_path) == "<form><name>Lea Example</name></form>\n"


@pytest.mark.parametrize("name", re.findall(r"`(\w+Error)`", (ROOT / "docs/client.md").read_text()))
def test_every_error_that_is_named_is_one(name: str) -> None:
    errors = __import__("persistence.errors", fromlist=[name])
    assert issubclass(getattr(errors, name), errors.PersistenceError)


@pytest.mark.parametrize("kind", [PersistenceClient, FormClient, SearchResults, CallPolicy])
def test_every_public_name_is_described(kind: type) -> None:
    page = (ROOT / "docs/client.md").read_text()
    names = [name for name in dir(kind) if not name.startswith("_") and name not in dir(object)]
    assert [name for name in names if not re.search(rf"(?<!\w){name}(?!\w)", page)] == []
