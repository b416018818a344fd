"""Packaging: wheel, sdist and units, one version that everything shows, and dependencies with bounds and digests."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import contextmanager
from importlib.metadata import metadata, version
from pathlib import Path

import httpx
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from persistence import CONFIG_FILES, __version__
from tests.docs import manual_page

ROOT = Path(__file__).parents[1]
SYSTEMD = shutil.which("systemd-analyze")
CRUD = "/fr/service/persistence/crud/hr/leave/data"
VERSION = {"Svc-Form-Definition-Version": "1", "Content-Type": "application/xml"}
_BUILD = "from setuptools import build_meta; print(build_meta.build_{}({!r}))"


def built(kind: str, source: Path, target: Path) -> Path:
    """Build a wheel or an sdist of a directory."""
    done = subprocess.run(
        [sys.executable, "-c", _BUILD.format(kind, str(target))], cwd=source, capture_output=True, text=True, check=True
    )
    return target / done.stdout.splitlines()[-1]


def copied(source: Path, *more: str) -> Path:
    """Copy to a directory what a build needs, and more directories."""
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in ("persistence", "config", "docs", *more):
        shutil.copytree(ROOT / name, source / name, ignore=leave)
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    return source


@contextmanager
def served(command: str, directory: Path) -> Iterator[httpx.Client]:
    """Serve a data directory by an installed command, at a socket."""
    bind = f"unix:{directory}/socket"
    environment = {**os.environ, "PERSISTENCE_TRUSTED": "unix", "PERSISTENCE_WORKERS": "1"}
    with (directory / "log").open("wb") as log:
        arguments = [command, "serve", "--init", "--data", "data", "--bind", bind]
        process = subprocess.Popen(arguments, cwd=directory, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        health = [command, "health", "--url", bind]
        while subprocess.run(health, cwd=directory, capture_output=True, check=False).returncode:
            assert process.poll() is None, (directory / "log").read_text()
            assert time.monotonic() < deadline
        with httpx.Client(transport=httpx.HTTPTransport(uds=f"{directory}/socket"), base_url="http://localhost") as own:
            yield own
    finally:
        process.terminate()
        process.wait(20)


def test_a_wheel_of_the_sdist_has_all_package_data_and_works_elsewhere(tmp_path: Path) -> None:
    source = copied(tmp_path / "source")
    (source / "docs/persistence.1").write_text(manual_page.page("2026-03-04"))
    for page in ("index.html", "docs/running.html"):  # as make site writes them
        (source / "var/site" / page).parent.mkdir(parents=True, exist_ok=True)
        (source / "var/site" / page).write_text("<p>")
    with tarfile.open(built("sdist", source, tmp_path)) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    with zipfile.ZipFile(built("wheel", unpacked, tmp_path)) as wheel:
        names = set(wheel.namelist())
        wheel.extractall(tmp_path / "installed")  # noqa: S202 - our own
    shared = {each.partition(".data/data/share/")[2] for each in names}
    documentation = {
        f"doc/persistence-service/{each}" for each in ("running.md", "html/index.html", "html/docs/running.html")
    }
    assert {"man/man1/persistence.1"} | documentation <= shared
    own = {path.relative_to(source).as_posix() for path in (source / "persistence").rglob("*") if path.is_file()}
    assert {name for name in own - names if not name.startswith("build/")} == set()
    done = subprocess.run(
        [sys.executable, "-m", "persistence.cli", "init", "made"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    settings = (ROOT / "config/persistence.toml").read_text()
    assert (tmp_path / "made/config/persistence.toml").read_text() == settings
    interface = (ROOT / "docs/openapi.yaml").read_bytes()
    assert (tmp_path / "installed/persistence/shipped/openapi.yaml").read_bytes() == interface
    assert {f"persistence/shipped/{name}" for name in CONFIG_FILES} <= names


def test_the_checkout_has_no_symbolic_link() -> None:
    """Some ways to hand on a checkout make a file of each, which holds only the path."""
    done = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is no checkout of git")
    assert [line for line in done.stdout.splitlines() if line.startswith("120000")] == []


@pytest.mark.long
def test_a_wheel_is_installed_in_a_clean_environment_and_replaced_by_another(tmp_path: Path) -> None:
    """docs/running.md: both go where the old one is. Dependencies are those of this environment."""
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    installed = str(environment / "bin/persistence")
    saved: list[int] = []
    for number in ("0.0.8", "0.0.9", "0.0.8"):
        source = copied(tmp_path / f"source-{number}")
        file = source / "persistence/__init__.py"
        file.write_text(re.sub(r'__version__ = ".*"', f'__version__ = "{number}"', file.read_text()))
        wheel = built("wheel", source, tmp_path)
        pip = (sys.executable, "-m", "pip", "--python", str(environment / "bin/python"))
        subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
        said = subprocess.run([installed, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert said.stdout.strip().endswith(number)
        shutil.rmtree(source)
        with served(installed, tmp_path) as client:
            assert client.get("/version").json()["version"] == number
            assert client.get("/openapi.yaml").content == (ROOT / "docs/openapi.yaml").read_bytes()
            saved.append(
                client.put(f"{CRUD}/{number}-{len(saved)}/data.xml", content=b"<a/>", headers=VERSION).status_code
            )
            assert client.get(f"{CRUD}/0.0.8-0/data.xml").content == b"<a/>"
    assert saved == [201, 201, 201]


@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units_and_finds_them_closed(tmp_path: Path) -> None:
    """The command is replaced: that of the unit is not there."""
    units = [f"./{name}" for name in CONFIG_FILES if Path(name).suffix in {".service", ".socket", ".timer"}]
    for unit in units:
        text = re.sub(r"(?m)^ExecStart=.*$", "ExecStart=/bin/true", (ROOT / "config" / unit).read_text())
        (tmp_path / unit).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    exposure = ["systemd-analyze", "security", "--offline=true", "--threshold=25", units[0]]
    rated = subprocess.run(exposure, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert rated.returncode == 0, rated.stdout


# The version stands in one place, persistence/__init__.py


def test_the_interface_has_the_version_and_the_licence() -> None:
    info = yaml.safe_load((ROOT / "docs/openapi.yaml").read_text())["info"]
    assert info["version"] == __version__
    assert info["license"]["identifier"] == "MIT"


def test_the_package_reads_its_version_from_the_module() -> None:
    assert "\nversion = attr: persistence.__version__\n" in (ROOT / "setup.cfg").read_text()
    assert metadata("persistence-service")["Version"] == __version__


def test_the_changelog_begins_with_the_version_and_its_date_or_with_what_is_unreleased() -> None:
    headings = re.findall(r"(?m)^## (.+)$", (ROOT / "CHANGELOG.md").read_text())
    newest = headings[1] if headings[0] == "Unreleased" else headings[0]
    assert re.fullmatch(rf"{re.escape(__version__)} - \d{{4}}-\d\d-\d\d", newest)


def test_the_upgrade_from_the_version_before_is_the_first_section_of_a_release() -> None:
    _, newest, before, *_ = re.split(r"(?m)^## (?!Unreleased)", (ROOT / "CHANGELOG.md").read_text())
    assert re.findall(r"(?m)^### (.+)$", newest)[0] == f"Upgrading from {before.split()[0]}"


# Dependencies


LOCKED = ROOT / "config" / "requirements"


def declared() -> dict[str, list[Requirement]]:
    """The requirements that each file of locked versions serves, as setup.cfg or, for benchmarks, peers.in has them."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    own = config["options"]["install_requires"]
    extras = config["options.extras_require"]
    run = own + extras["build"]
    texts = {"run": run, "engines": run + extras["postgresql"] + extras["s3"]}
    texts |= {name: own + extras[name] for name in ("dev", "audit", "generated")}
    texts["peers"] = "\n".join((LOCKED / "peers.in").read_text().splitlines()[1:])  # below its comment
    return {name: [Requirement(line) for line in text.splitlines() if line.strip()] for name, text in texts.items()}


def locked(name: str) -> dict[str, str]:
    text = (LOCKED / f"{name}.txt").read_text()
    return {canonicalize_name(package): at for package, at in re.findall(r"(?m)^([\w.-]+)==(\S+)", text)}


@pytest.mark.parametrize("name", ["run", "engines", "dev", "audit", "generated", "peers"])
def test_locked_versions_are_allowed_and_have_digests(name: str) -> None:
    versions = locked(name)
    for requirement in declared()[name]:
        assert versions[canonicalize_name(requirement.name)] in requirement.specifier, requirement
    entries = re.split(r"(?m)^(?=[\w.-]+==)", (LOCKED / f"{name}.txt").read_text())[1:]
    assert len(entries) == len(versions)
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


def test_every_dependency_has_an_upper_bound() -> None:
    for requirements in declared().values():
        for requirement in requirements:
            assert any(bound.operator == "<" for bound in requirement.specifier), requirement


def test_files_of_locked_versions_agree() -> None:
    dev = locked("dev")
    for name in ("run", "engines", "audit", "generated"):
        assert {package: at for package, at in locked(name).items() if dev.get(package, at) != at} == {}
    for name in ("run", "engines"):  # of which dev has all: what it has no more, nothing needs
        assert set(locked(name)) - set(dev) == set()


def test_installed_is_what_is_locked() -> None:
    for name, at in locked("run").items():
        assert version(name) == at


LOADING = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
sys.modules |= dict.fromkeys(("obstore", "psycopg", "psycopg_pool", "pyarrow", "pymysql", "sqlalchemy"))
import persistence
for module in pkgutil.walk_packages(persistence.__path__, "persistence."):
    if not module.name.startswith(NEEDING) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
NEEDING = (
    *("persistence.s3.object", "persistence.postgresql.", "persistence.providers.database_provider"),
    *("persistence.services.orbeon_", "persistence.services.parquet"),
)


def test_every_module_but_those_of_the_engines_loads_without_their_libraries() -> None:
    code = f"NEEDING = {NEEDING!r}{LOADING}"
    done = subprocess.run([sys.executable, "-I", "-c", code, str(ROOT)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
