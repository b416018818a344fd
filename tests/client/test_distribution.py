"""``persistence-client``, the client as a distribution of its own: what is in it, and that it works alone."""

import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.service import Service
from tests.test_packaging import built, copied

ROOT = Path(__file__).parents[2]
_USE = """
import json, sys
from datetime import UTC, datetime
from importlib.metadata import version
from persistence.client import PersistenceClient, from_datetime, to_datetime
from persistence.errors import NotFoundError
with PersistenceClient(sys.argv[1], user="lea") as client:
    form = client.form(sys.argv[2], "leave", 1)
    saved = form.create("<form><name>Lea</name></form>", "one")
    form.attach(saved, b"any bytes at all")
    assert form.load("one", as_of=from_datetime(datetime.now(UTC))).xml == b"<form><name>Lea</name></form>"
    assert abs((datetime.now(UTC) - to_datetime(saved.modified)).total_seconds()) < 60
    form.drafts.save("one", "<form><name>Le</name></form>")
    assert [each.modifier for each in form.history("one")] == ["lea"]
    assert form.search().total == 1
    try:
        form.load("none")
    except NotFoundError as error:
        said = str(error)
    print(json.dumps({"said": said, "modules": sorted(sys.modules), "version": version("persistence-client")}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("client")
    return built("wheel", copied(directory / "checkout", "distributions") / "distributions/client", directory)


def required(wheel: Path) -> set[str]:
    """The distributions that the wheel requires, and those that they require."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    found, left = set[str](), re.findall(r"(?m)^Requires-Dist: (.*)$", metadata)
    while left:
        requirement = Requirement(left.pop())
        is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_needed and requirement.name not in found:
            found.add(requirement.name)
            left += distribution(requirement.name).requires or ()
    return found


def environment(directory: Path, wheel: Path) -> Path:
    """Make an environment with nothing but the wheel and what it requires; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    for name in required(wheel):
        for file in distribution(name).files or ():
            top = file.parts[0]
            if top not in {"..", "__pycache__"} and not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    python = directory / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-index", wheel], check=True)
    return python


def test_it_has_the_modules_that_the_client_loads_and_no_others(wheel: Path) -> None:
    tree = ast.parse((ROOT / "distributions/client/setup.py").read_text())
    (listed,) = (
        ast.literal_eval(each.value)
        for each in tree.body
        if isinstance(each, ast.Assign) and "MODULES" in ast.dump(each)
    )
    script = "import json, sys, persistence.client; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {each for each in json.loads(done.stdout) if each.partition(".")[0] == "persistence"}
    assert {
        f"{package}.{name}".removesuffix(".__init__") for package, names in listed.items() for name in names
    } == loaded
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    modules = {f"{package.replace('.', '/')}/{name}.py" for package, each in listed.items() for name in each}
    assert names == modules | {"persistence/py.typed", "persistence/client/LICENSE"}


def test_it_is_used_alone_against_a_service(wheel: Path, svc: Service, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv", wheel)
    url, app = f"http://127.0.0.1:{svc.port}", "client-alone"
    env = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [python, "-c", _USE, url, app], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["said"] == f"{app}/leave/data/none/data.xml does not exist"
    assert {
        each for each in found["modules"] if each in {"flask", "gunicorn", "lxml", "cryptography", "click"}
    } == set()
    assert wheel.name == f"persistence_client-{found['version']}-py3-none-any.whl"
