"""The layers: imports point downwards only, and each kind of work has its one place."""

import ast
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("layering")  # each process would parse all modules for itself

PACKAGE = Path(__file__).parents[1] / "persistence"
MODULES = sorted(PACKAGE.rglob("*.py"))

EVERYWHERE = {"__version__", "CONFIG_FILES", "shipped", "limits", "bounded_cache", "processes"}
"""The version, shipped files, and layers that every other may import; they import nothing else."""

OBSERVATIONS = "persistence.metrics.observations."
"""The module of a layer that every other may import, too: it only has queues, to which they append."""

ALLOWED = {
    "errors": "",
    "limits": "",
    "bounded_cache": "",
    "processes": "",
    "gunicorn_worker": "metrics",
    "client_request": "",
    "closable": "errors",
    "model": "errors",
    "dialect": "model",
    "properties": "model dialect errors",
    "settings": "properties model dialect errors",
    "xml": "errors",
    "storage": "xml model closable errors",
    "forms": "xml model closable errors",
    "wire": "model dialect closable errors",
    "client": "wire forms model dialect closable errors",
    "index": "catalog storage forms xml model closable errors",
    "keys": "storage model errors",
    "crypto": "storage model errors",
    "audit": "keys settings storage model closable errors",
    "catalog": "storage forms xml model errors",
    "remote": "wire catalog client_request xml crypto index storage forms model dialect closable errors",
    "postgresql": "catalog client_request xml crypto index storage forms model dialect closable errors",
    "s3": "storage model closable errors",
    "providers": (
        "forms wire remote s3 postgresql catalog crypto index keys storage properties model dialect"
        " settings closable errors"
    ),
    "services": "providers catalog crypto xml index storage forms properties model dialect closable errors",
    "metrics": "maintenance providers storage model settings errors",
    "http": "audit client_request metrics services keys model dialect errors",
    "maintenance": "services s3 catalog crypto xml index storage forms properties model dialect errors",
    "pages": (
        "audit http metrics maintenance services providers crypto keys storage properties model dialect settings errors"
    ),
    "__main__": "cli",
    "app": (
        "audit http keys metrics maintenance pages services providers properties model dialect settings closable errors"
    ),
    "starting": "app http pages providers properties settings errors",
    "cli": (
        "audit wire client starting gunicorn_worker app http pages keys metrics worker providers"
        " services storage maintenance index properties model dialect settings errors"
    ),
}
"""Which layers of the package a layer may import besides itself; ``cli`` writes where the pages note uses of keys."""

ONLY_IN = {
    "flask": {"http", "pages", "app", "cli"},
    "werkzeug": {"http", "pages"},
    "jinja2": {"pages"},
    "markupsafe": {"pages"},
    "xml": {"xml", "forms"},
    "lxml": {"forms"},
    "gunicorn": {"cli", "gunicorn_worker"},
    "click": {"cli"},
    "rich": {"cli"},
    "httpx": {"wire", "client"},
    "httpcore": {"wire", "client"},
    "obstore": {"s3"},
    "sqlalchemy": {"services/orbeon_database"},
    "pyarrow": {"services/parquet"},
    "prometheus_client": {"metrics"},
    "sqlite3": {"index/sqlite"},
    "psycopg": {"postgresql"},
    "psycopg_pool": {"postgresql"},
    "cryptography": {"crypto"},
    "itsdangerous": {"services/rules", "pages"},
}
"""Which layers, or packages in them, may import a library."""

ONE_PLACE = {
    "os.rename os.replace os.link os.unlink os.remove os.mkdir os.makedirs os.rmdir": {"storage/files.py"},
    "os.fsync os.utime os.chmod os.chown os.write os.ftruncate os.pwrite shutil.rmtree": {"storage/files.py"},
    "fcntl.flock": {"storage/locks.py"},
    "os.environ": {"settings.py", "metrics/service.py", "processes.py"},  # service: for the library, which looks there
    "subprocess.Popen sys.executable": {"processes.py"},
    "subprocess.run": {"cli/transfer_commands.py"},  # the command of an administrator
    "os.fork": set[str](),
    "etree.XMLParser etree.XMLPullParser etree.XML etree.fromstring": {"forms/definition_tree.py"},
    "etree.fromstringlist etree.parse etree.iterparse etree.tostring": {"forms/definition_tree.py"},
}
HOMES = {call: homes for calls, homes in ONE_PLACE.items() for call in calls.split()}
"""Calls that have one home."""


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


LAYERS = {name: tuple(paths) for name, paths in groupby(sorted(MODULES, key=layer), layer)}
"""The modules of each layer."""


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> Iterator[str]:
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_in(path: Path, packages: set[str]) -> bool:
    inside = path.relative_to(PACKAGE).as_posix()
    return any(inside == f"{each}.py" or inside.startswith(f"{each}/") for each in packages)


KNOWN_IN = {
    "persistence.index.sqlite": {"index/sqlite", "index/sync", "providers/opened"},  # it opens the outbox
    "persistence.index.sync": {"index/sync", "index/__main__", "providers", "maintenance", "cli"},
}
"""Which packages may know the engine of the index, and its synchronisation with a file tree; others know protocols."""


@pytest.mark.parametrize("own", LAYERS)
def test_the_index_is_known_by_its_protocol(own: str) -> None:
    for path in LAYERS[own]:
        for name in imports(path):
            for package, homes in KNOWN_IN.items():
                assert not f"{name}.".startswith(f"{package}.") or _is_in(path, homes), f"{path} imports {name}"


SYNC = sorted((PACKAGE / "index/sync").glob("*.py"))


@pytest.mark.parametrize("path", SYNC, ids=lambda path: path.name)
def test_the_synchronisation_knows_one_module_of_the_engine_and_no_sql(path: Path) -> None:
    """It uses what ``engine`` lends: no connection, no statement."""
    for name in imports(path):
        known = f"{name}.".startswith("persistence.index.sqlite.")
        assert not known or f"{name}.".startswith("persistence.index.sqlite.engine."), f"{path.name} imports {name}"
    for node in _nodes(path):
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"connection", "execute", "executemany"}, f"{path.name}:{node.lineno} runs SQL"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not node.value.startswith(("PRAGMA ", "SELECT ", "BEGIN")), f"{path.name}:{node.lineno} has SQL"


@pytest.mark.parametrize("own", LAYERS)
def test_imports_point_downwards(own: str) -> None:
    for path in LAYERS[own]:
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "persistence" and own != "__init__" and not name.startswith(OBSERVATIONS):
                assert parts[1] in {own, *EVERYWHERE, *ALLOWED[own].split()}, f"{path} imports {name}"
            elif parts[0] in ONLY_IN:
                assert _is_in(path, ONLY_IN[parts[0]]), f"{path} imports {name}"


@pytest.mark.parametrize("own", LAYERS)
def test_each_kind_of_work_has_one_place(own: str) -> None:
    for path in LAYERS[own]:
        _require_one_place(path, str(path.relative_to(PACKAGE)))


def _require_one_place(path: Path, own: str) -> None:
    for node in _nodes(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            call = f"{node.value.id}.{node.attr}"
            assert own in HOMES.get(call, {own}), f"{own}:{node.lineno} uses {call}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            assert not own.startswith("http/"), f"{own}:{node.lineno} opens a file"
            modes = [argument.value for argument in node.args[1:2] if isinstance(argument, ast.Constant)]
            assert all(not set(str(mode)) & set("wxa+") for mode in modes), f"{own}:{node.lineno} writes a file"


def test_only_the_dialect_knows_the_names_of_the_worlds() -> None:
    for path in MODULES:
        if layer(path) != "dialect":
            strings = {node.value for node in _nodes(path) if isinstance(node, ast.Constant)}
            texts = {text for text in strings if isinstance(text, str) and "\n" not in text}
            assert not [text for text in texts if text.startswith(("Svc-", "Orbeon-", "oxf.", "svc."))], path
