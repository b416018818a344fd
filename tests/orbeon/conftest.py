"""A database of each engine, and each place into which it is imported."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.command_runner import Command, Ended
from tests.orbeon import databases
from tests.orbeon.databases import ZONE, RuntimeDatabase

ENGINES = ("postgresql", "mariadb", "sqlite", "sqlite-texts")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Path]:
    with databases.mariadb_server() as socket:
        yield socket


@pytest.fixture(params=ENGINES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RuntimeDatabase]:
    """An empty database of each engine."""
    match request.param:
        case "postgresql":
            opened = databases.on_postgresql(request.getfixturevalue("database_server"))
        case "mariadb":
            opened = databases.on_mariadb(request.getfixturevalue("mariadb"))
        case _:
            opened = databases.sqlite(tmp_path, has_texts=request.param == "sqlite-texts")
    with opened as found:
        yield found


@pytest.fixture
def small(tmp_path: Path) -> Iterator[RuntimeDatabase]:
    """An empty database in SQLite."""
    with databases.sqlite(tmp_path) as found:
        yield found


@pytest.fixture
def texts(tmp_path: Path) -> Iterator[RuntimeDatabase]:
    """An empty database in SQLite that has times as texts, so that they depend on the time zone."""
    with databases.sqlite(tmp_path, has_texts=True) as found:
        yield found


@pytest.fixture(params=["tree", "database"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty place for forms."""
    if request.param == "database":
        return str(request.getfixturevalue("database_uri"))
    return str(tmp_path / "to" / "data")


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Run:
    """Imports a database into a place, with the time zone of Berlin unless another one is given."""
    (tmp_path / "to").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "to")

    def imported(found: RuntimeDatabase, to: str, *options: str, zone: str = ZONE) -> Ended:
        own = ["--data", to, "--dialect", "orbeon"]
        if not Path(to).is_dir():
            command("init", *own)
        return command("import", found.address, *own, "--time-zone", zone, *options)

    return imported
