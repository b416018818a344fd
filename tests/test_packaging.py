"""Packaging: wheel and sdist have everything, and the files of config are ones that their programs take."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.nginx import NGINX

ROOT = Path(__file__).parents[1]
UNIT = ROOT / "config/persistence.service"
SYSTEMD = shutil.which("systemd-analyze")
_BUILD = "from setuptools import build_meta; print(build_meta.build_{}({!r}))"


def built(kind: str, source: Path, target: Path) -> Path:
    """Build a wheel or an sdist of a directory."""
    done = subprocess.run(
        [sys.executable, "-c", _BUILD.format(kind, str(target))], cwd=source, capture_output=True, text=True, check=True
    )
    return target / done.stdout.splitlines()[-1]


def test_a_wheel_of_the_sdist_has_all_package_data_and_works_elsewhere(tmp_path: Path) -> None:
    source = tmp_path / "source"
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("persistence", "config", "docs"):
        shutil.copytree(ROOT / name, source / name, ignore=leave)
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    with tarfile.open(built("sdist", source, tmp_path)) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    with zipfile.ZipFile(built("wheel", unpacked, tmp_path)) as wheel:
        names = set(wheel.namelist())
        wheel.extractall(tmp_path / "installed")  # noqa: S202 - our own
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
    assert (tmp_path / "installed/persistence/openapi.yaml").read_bytes() == interface


def test_the_checkout_has_no_symbolic_link() -> None:
    """Some ways to hand on a checkout make a file of each, which holds only the path."""
    done = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is no checkout of git")
    assert [line for line in done.stdout.splitlines() if line.startswith("120000")] == []


@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units_and_finds_them_closed(tmp_path: Path) -> None:
    """The command is replaced: that of the unit is not there."""
    text = re.sub(r"(?m)^ExecStart=.*$", "ExecStart=/bin/true", UNIT.read_text())
    (tmp_path / "persistence.service").write_text(text)
    shutil.copy(UNIT.with_suffix(".socket"), tmp_path)
    units = ["./persistence.service", "./persistence.socket"]
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    exposure = ["systemd-analyze", "security", "--offline=true", "--threshold=25", units[0]]
    rated = subprocess.run(exposure, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert rated.returncode == 0, rated.stdout


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_nginx_takes_the_site_beside_others(tmp_path: Path) -> None:
    site = (ROOT / "config/nginx-site.conf").read_text().replace("/var/log/nginx", str(tmp_path))
    (tmp_path / "site.conf").write_text(site)
    paths = " ".join(
        f"{name}_temp_path {tmp_path}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    other = "server { listen 8082; }"
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid; error_log {tmp_path}/errors; events {{}}\n"
        f"http {{ access_log off; {paths} {other} include {tmp_path}/site.conf; }}\n"
    )
    errors = str(tmp_path / "errors")
    command = [str(NGINX), "-t", "-e", errors, "-c", str(tmp_path / "nginx.conf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
