"""``config/Containerfile`` and ``config/compose.yaml``, as far as they can be checked where no image can be had."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from persistence import CONFIG_FILES
from persistence.settings import Settings
from tests.nginx import NGINX
from tests.service import Service
from tests.test_packaging import built

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"
_STEPS = [
    line.split(maxsplit=1)
    for line in re.sub(r"\\\n\s*", "", (CONFIG / "Containerfile").read_text()).splitlines()
    if line and not line.startswith("#")
]
COMPOSE = yaml.safe_load((CONFIG / "compose.yaml").read_text())
_KNOWN_STEPS = {
    *("ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL"),
    *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
}


def steps(name: str) -> list[str]:
    return [words for step, words in _STEPS if step == name]


def in_venv(argv: list[str]) -> list[str]:
    """Return a command with this environment's ``persistence`` in place of that of the image."""
    own = f"{Path(sys.executable).parent}/persistence"
    return [re.sub(r"(?<![\w/])persistence(?= \"| health|$)", own, word) for word in argv]


def test_its_steps_are_known_and_what_is_copied_is_all_that_a_wheel_needs(tmp_path: Path) -> None:
    assert {step for step, _ in _STEPS} <= _KNOWN_STEPS
    copied = [words.split() for words in steps("COPY") if not words.startswith("--from=build /srv/persistence ")]
    for *sources, target in copied:
        for source in (source.replace("${REQUIREMENTS}", "engines.txt") for source in sources):
            assert (ROOT / source).exists()
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
            elif not target.startswith("/"):
                to = tmp_path / target / Path(source).name if target.endswith("/") else tmp_path / target
                to.parent.mkdir(exist_ok=True)
                shutil.copy(ROOT / source, to)
    with zipfile.ZipFile(built("wheel", tmp_path, tmp_path)) as wheel:
        names = wheel.namelist()
    assert {f"persistence/shipped/{name}" for name in ("openapi.yaml", "persistence.toml", *CONFIG_FILES)} <= set(names)


def test_it_does_not_run_as_root() -> None:
    assert steps("USER") == ["${UID}:${GID}"]
    assert all(int(value) > 0 for name, value in (words.split("=") for words in steps("ARG")) if name in {"UID", "GID"})


def test_the_service_has_the_umask_of_the_environment(tmp_path: Path) -> None:
    (entry,) = (json.loads(words) for words in steps("ENTRYPOINT"))
    command = [*in_venv(entry), "init", "made"]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "UMASK": "0077"}, check=True, capture_output=True)
    assert (tmp_path / "made/config/persistence.toml").stat().st_mode & 0o777 == 0o600


def test_the_health_check_asks_the_service_of_the_environment(svc: Service, tmp_path: Path) -> None:
    (check,) = steps("HEALTHCHECK")
    command = in_venv(json.loads(check.partition("CMD ")[2]))
    environment = {**os.environ, "PERSISTENCE_BIND": f"127.0.0.1:{svc.port}"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=30)


def test_compose_names_what_is_there() -> None:
    services: dict[str, dict[str, Any]] = COMPOSE["services"]
    assert set(services) == {"nginx", "forms"}
    forms = services["forms"]
    assert forms["network_mode"] == "service:nginx"
    assert (CONFIG / forms["build"]["context"] / forms["build"]["dockerfile"]).resolve() == CONFIG / "Containerfile"
    (volume,) = forms["volumes"]
    assert volume.split(":") == [*COMPOSE["volumes"], steps("VOLUME")[0]]
    for name in forms["environment"]:
        assert name == "UMASK" or name.removeprefix("PERSISTENCE_").lower() in Settings.__struct_fields__
    (source, _, _) = services["nginx"]["volumes"][0].split(":")
    assert (CONFIG / source).is_file()
    (published,) = services["nginx"]["ports"]
    assert published == "127.0.0.1:8081:8081"


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_nginx_takes_the_site_of_compose(tmp_path: Path) -> None:
    """The command of the container, in another directory."""
    *shell, script = COMPOSE["services"]["nginx"]["command"]
    prepared = script.partition("exec nginx")[0].replace("$$", "$")
    prepared = prepared.replace("/etc/nginx/site.conf", str(CONFIG / "nginx-site.conf"))
    prepared = prepared.replace("/etc/nginx/conf.d/default.conf", str(tmp_path / "default.conf"))
    subprocess.run([*shell, prepared], check=True)
    text = (tmp_path / "default.conf").read_text()
    assert re.findall(r"(?m)^ +(allow|deny) +(\w+);", text) == [("allow", "all"), ("deny", "all")] * 2
    assert re.findall(r"(?m)^ +listen +(.*?);", text) == ["8081"]
    assert "ssl" not in text.partition("log_format")[2]
    assert "access_log  /dev/stdout persistence;" in text
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = " ".join(f"{name}_temp_path {tmp_path}/{name};" for name in names)
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid; error_log {tmp_path}/errors; events {{}}\n"
        f"http {{ {paths} include {tmp_path}/default.conf; }}\n"
    )
    command = [str(NGINX), "-t", "-e", str(tmp_path / "errors"), "-c", str(tmp_path / "nginx.conf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
