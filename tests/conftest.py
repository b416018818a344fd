"""Fixtures that every suite shares: a real service in both dialects, through the faces that behave alike."""

import gc
import os
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from inspect import isfunction
from pathlib import Path

import pytest
from _pytest.fixtures import FuncFixtureInfo
from _pytest.nodeid import NodeId
from hypothesis import HealthCheck, settings

from persistence import client_request
from persistence.postgresql.database import Database
from tests import cheap, forkserver, in_process, on_database, opened, proxied
from tests import service as services
from tests.cli.command_runner import Command, ended
from tests.postgresql import server as postgresql
from tests.service import PROVIDER, PUBLIC, Service, running

_TOGETHER = 25
"""Tests of a module that xdist hands to one process together: it looks at all groups after each test."""

_FIRST = (
    *("http/test_flat_views", "http/test_search", "http/test_starting", "cli/test_reindex", "http/test_encryption"),
    *("http/test_nginx", "maintenance/landed/test_same_answers", "storage/test_contract", "http/test_reencryption"),
    *("maintenance/test_damage", "maintenance/test_check", "http/test_transfers", "index/test_damage"),
)
"""Modules that take long, of which much is one group: begun last, one process would run them while others are done."""

_SLOW = [HealthCheck.too_slow]  # on a loaded machine
settings.register_profile("quick", max_examples=25, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("whole", max_examples=100, deadline=None, suppress_health_check=_SLOW)

gc.disable()  # until all tests are collected: nothing of that is garbage


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that run the same tests with a second service behind each, or over a database."""
    parser.addoption("--proxied", action="store_true", help="run services with another one behind them")
    parser.addoption("--postgresql", action="store_true", help="run services over a database")
    parser.addoption("--update", action="store_true", help="record the outputs of commands and the answers again")


def pytest_configure(config: pytest.Config) -> None:
    """Let services have others behind them where that is asked for, and make applications and rebuilds cheap."""
    services.is_proxied = config.getoption("--proxied")
    settings.load_profile(config.getoption("--hypothesis-profile") or "quick")
    cheap.leave_out()
    forkserver.fork_rebuilds()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import the modules of tests, each process of xdist from another one on: none compiles what another has compiled.

    One that cannot be imported is imported once more when it is collected, and reported.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if not worker:
        return
    config = session.config
    left_out = [Path(each).absolute() for each in config.getoption("ignore") or ()]
    found = sorted(path for each in config.args for path in Path(each).absolute().rglob("test_*.py"))
    modules = [path for path in found if not any(path.is_relative_to(each) for each in left_out)]
    first = len(modules) * int(worker) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in (*modules[first:], *modules[:first]):
        with suppress(Exception, pytest.skip.Exception), warnings.catch_warnings():
            warnings.simplefilter("error")
            import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out the long ones, and xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what differs for a pair of services, or what only the long run repeats, and group what shares fixtures."""
    if services.is_proxied:
        config.hook.pytest_deselected(items=[item for item in items if _is_left_out(item)])
        items[:] = [item for item in items if not _is_left_out(item)]
    if config.getoption("--postgresql"):
        _skip(items, on_database.FILES_ONLY)
        _mark_different(items, on_database.DIFFERENT)
    items.sort(key=_order)
    for number, item in enumerate(items):
        alone = f"long-{number}" if item.get_closest_marker("long") else None
        if services.is_proxied:
            _mark_proxied(item)
        elif _is_repetition(item):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_group(item) or alone or f"{_module(item)}-{number // _TOGETHER}"))
    if getattr(config.option, "loadgroup", False):
        for item in items:
            _name_group(item)


def pytest_collection_finish() -> None:
    """Collect garbage from here on, without a look at what the collection of the tests has made.

    An application is ten thousand objects: by the usual 700 it would be looked through again and again as it is made.
    """
    gc.set_threshold(20_000)
    gc.enable()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the database server that the processes of the session have shared."""
    factory: pytest.TempPathFactory | None = getattr(session.config, "_tmp_path_factory", None)
    if factory is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        postgresql.end_shared(factory.getbasetemp())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Take off what xdist adds to a test's name, its group, with which ``--last-failed`` would not find it."""
    if hasattr(report, "node") and report.nodeid.rfind("@") > report.nodeid.rfind("]"):
        report.nodeid = report.nodeid.rpartition("@")[0]


def _order(item: pytest.Item) -> tuple[bool, bool]:
    """Long tests, each by itself, come first, then the modules that take long."""
    is_first = _module(item).startswith(tuple(f"tests/{name}" for name in _FIRST))
    return item.get_closest_marker("long") is None, not is_first


def _is_left_out(item: pytest.Item) -> bool:
    """Return whether a test says nothing of a pair, or uses the provider API, which leads to the front's own trees."""
    callspec = getattr(item, "callspec", None)
    is_provider = callspec is not None and "provider" in callspec.id.split("-")
    return is_provider or proxied.reason(proxied.NOT_OF_A_PAIR, item.nodeid) is not None


def _mark_proxied(item: pytest.Item) -> None:
    if differs := proxied.reason(proxied.DIFFERENT, item.nodeid):
        item.add_marker(pytest.mark.xfail(reason=differs))


def _skip(items: list[pytest.Item], reasons: dict[str, str]) -> None:
    """Mark what is not there, with the reasons."""
    for item in items:
        if reason := proxied.reason(reasons, item.nodeid):
            item.add_marker(pytest.mark.skip(reason=reason))


def _mark_different(items: list[pytest.Item], reasons: dict[str, str]) -> None:
    """Mark what a database does otherwise, with the reasons."""
    for item in items:
        if differs := proxied.reason(reasons, item.nodeid):
            item.add_marker(pytest.mark.xfail(reason=differs, strict=True))


def _is_repetition(item: pytest.Item) -> bool:
    """Whether another case has what this one has: of a dialect or face that the test does not look at, or of a kind."""
    params: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    if any(params.get(name, "svc") not in _REFERENCE for name in _IN_DIALECTS):
        return not _looks_at_dialect(getattr(item, "function", None))
    kinds = _KINDS.get(getattr(getattr(item, "cls", None), "__name__", ""))
    return kinds is not None and "kind" in params and params["kind"] not in kinds


@cache
def _looks_at_dialect(function: Callable[..., object]) -> bool:
    code, names = function.__code__, function.__globals__
    called = [names.get(name) for name in code.co_names if names.get(name) is not function]
    own = (each for each in called if isfunction(each) and each.__module__ == function.__module__)
    return not _OF_A_PAIR.isdisjoint(code.co_names) or any(map(_looks_at_dialect, own))


_OF_A_PAIR = {"dialect", "face", "designer", "deleted"}
"""What tells services of different pairs apart; the prefix of headers does not count, for all have one."""

_IN_DIALECTS = ("service", "planted", "acme", "started", "switched", "strict", "restricted", "rig")
"""Fixtures of a service in each dialect, through each API; ``make test`` takes the others where a test looks at them.

That all else is alike, tests/http/test_dialects.py shows.
"""

_REFERENCE = ("svc", PUBLIC, ("svc", PUBLIC))

_KINDS = {
    "TestTreeWithoutUnnamedFiles": ("data", "attachment"),
    "TestAttachmentsInAnotherDirectory": ("data", "attachment", "attachment of a definition"),
    "TestRemote": ("data", "draft", "attachment", "definition"),
    "TestDatabaseWithPieces": ("data", "attachment"),
    "TestBucket": ("data", "attachment"),
    "TestBucketBesideDatabase": ("attachment", "attachment of a draft"),
}
"""Kinds with which the contract is asked of storages that differ little from one of which it is asked with all."""


def _group(item: pytest.Item) -> str | None:
    """One group for the tests that share fixtures of a module: else each process would make them for itself."""
    info: FuncFixtureInfo | None = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs.items() if info is not None else ()
    shared = [name for name, found in definitions if found[-1].scope == "module"]
    if not shared:
        return None
    params: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    return "-".join([_module(item), *(str(params[name]) for name in shared if name in params)])


def _name_group(item: pytest.Item) -> None:
    """Put a test's group behind its name, where xdist looks for it.

    xdist 3.8 does so itself, but sets what pytest 9.2 does not read any more: each test would be a group.
    """
    group = item.get_closest_marker("xdist_group")
    item._id = NodeId.parse(f"{item.nodeid}@{group.args[0]}")  # noqa: SLF001 - there is no other way
    assert item.nodeid.endswith(f"@{group.args[0]}"), "another pytest: look how it names tests"


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> None:
    """Settings in the environment of whoever runs the tests must not reach them."""
    for name in [name for name in os.environ if name.startswith("PERSISTENCE_")]:
        del os.environ[name]


@pytest.fixture(scope="session", autouse=True)
def _over_a_database(request: pytest.FixtureRequest) -> None:
    """Let services have databases where that is asked for."""
    if request.config.getoption("--postgresql"):
        server = request.getfixturevalue("database_server")
        services.place_of = partial(on_database.address, server)
        services.prepare = partial(on_database.prepare, server)


@pytest.fixture(autouse=True)
def _everything_closed() -> Iterator[None]:
    """What a test opens in this process is closed at its end, and none of its threads is left.

    The threads of a service that several tests share are not looked at.
    """
    yield
    client_request.begin(None)  # what other services answered is known for as long as it is served
    opened.close_all()
    assert in_process.is_serving() or opened.threads() == []


@pytest.fixture(scope="session")
def in_dialect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Service]]:
    """One service in each dialect, shared by the tests of a process."""
    with ExitStack() as stack:

        @cache
        def started(dialect: str) -> Service:
            directory = tmp_path_factory.mktemp(f"service-{dialect}")
            return stack.enter_context(running(directory, dialect=dialect, env={"PERSISTENCE_MAX_BODY": str(8 << 20)}))

        yield started


@pytest.fixture(
    params=[("svc", PROVIDER), ("svc", PUBLIC), ("orbeon", PUBLIC)], ids=["svc-provider", "svc-public", "orbeon-public"]
)
def service(request: pytest.FixtureRequest, in_dialect: Callable[[str], Service]) -> Service:
    """The service of each dialect through each face that behaves as the public one; ``make test-long`` takes all.

    Orbeon's provider API has a contract of its own, and tests of its own: tests/http/test_provider_contract.py.
    """
    dialect, face = request.param
    return replace(in_dialect(dialect), face=face)


@pytest.fixture(scope="session")
def svc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service in the default dialect, for what does not depend on dialect or face."""
    with running(tmp_path_factory.mktemp("service"), env={"PERSISTENCE_MAX_BODY": str(8 << 20)}) as service:
        yield service


@pytest.fixture(scope="session")
def database_server(tmp_path_factory: pytest.TempPathFactory) -> postgresql.Server:
    """The database server of the session; without PostgreSQL, a test is skipped that wants it."""
    if postgresql.MISSING:
        pytest.skip(postgresql.MISSING)
    return postgresql.shared(postgresql.session_directory(tmp_path_factory))


@pytest.fixture
def database_uri(database_server: postgresql.Server) -> Iterator[str]:
    """The address of a database with empty tables, in a schema that no other test uses."""
    name = postgresql.fresh_schema()
    yield postgresql.prepared(database_server.uri(name))
    database_server.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@pytest.fixture(scope="session")
def _shared_schema(database_server: postgresql.Server) -> Iterator[Database]:
    name = postgresql.fresh_schema()
    with Database(postgresql.prepared(database_server.uri(name)), lock_timeout=10) as database:
        yield database
    database_server.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@pytest.fixture
def storage_uri(_shared_schema: Database, database_server: postgresql.Server) -> str:
    """The address of a database with empty tables, for a storage without an index; tests of a process share it."""
    with _shared_schema.apart("emptying") as connection:
        for table in ("revision", "form", "piece", "unclaimed", "lease", "job"):
            connection.execute(f"DELETE FROM {table}".encode())  # noqa: S608 - one of its own
    return database_server.uri(_shared_schema.address.schema)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the service's command to its end in this process, as its entry point does."""
    return lambda *arguments: ended(list(arguments), monkeypatch, capsys)


@pytest.fixture
def form() -> str:
    """An application and form that no other test uses, as they stand in a path."""
    return f"app-{uuid.uuid4().hex[:8]}/form"


@pytest.fixture
def corpus() -> Path:
    """The folder of real input, where there is one beside the project."""
    folder = Path(__file__).parents[2] / "shared" / "corpus"
    if not folder.is_dir():
        pytest.skip("no folder of real input beside the project")
    return folder
