"""Packaging: wheel and sdist have everything, and systemd takes the units."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from persistence import CONFIG_FILES
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


def copied(source: Path) -> Path:
    """Copy to a directory what a build needs."""
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("persistence", "config", "docs"):
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
    """docs/upgrading.md: both go where the old one is. Dependencies are those of this environment."""
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
