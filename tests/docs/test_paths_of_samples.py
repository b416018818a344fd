"""One set of paths: what pages and the files of config name is what ``init`` makes and ``serve`` uses.

A crontab that names other settings than the unit backs up another tree, and succeeds. A log elsewhere cannot be
written under the unit.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from persistence.cli.service_directory import make_service_directory
from persistence.settings import DEFAULT_FILE, PATHS, load
from tests.cli.command_runner import Command
from tests.docs.markdown import DOCS, README

CONFIG = DOCS.parent / "config"
UNIT = (CONFIG / "persistence.service").read_text()
PAGES = (README, *sorted(DOCS.glob("*.md")), DOCS / "openapi.yaml")
FILES = sorted(path for path in CONFIG.rglob("*") if path.is_file() and path.suffix != ".pyc")
_ABSOLUTE = re.compile(
    r"(?<![\w.}>~/])/(?:backups|bin|dev|etc|home|media|mnt|opt|root|run|srv|tmp|usr|var)/[\w./-]*[\w-]"
)

OTHERS = (
    *("/bin/kill", "/bin/sh", "/dev", "/etc/bash_completion.d/persistence", "/etc/logrotate.d/persistence"),
    *("/etc/nginx", "/run/nginx.pid", "/var/lib/nginx", "/var/log/nginx", "/etc/ssl/certs", "/etc/ssl/private"),
    *("/etc/prometheus", "/etc/systemd/system", "/root/persistence-config", "/tmp", "/var/lib/apt/lists"),
    *("/etc/default", "/etc/haproxy", "/run/haproxy", "/run/haproxy.sock", "/etc/patroni", "/run/postgresql"),
    *("/usr/lib/postgresql", "/var/lib/etcd", "/var/lib/postgresql"),
)
"""Files and directories of other programs, and of the reader."""

BACKUPS, SECOND = "/backups/forms", "/mnt/second/forms"
DISKS = ("/mnt/big/attachments", "/mnt/forms", "/mnt/copy", "/mnt/restored")
"""Disks besides that of the service, in examples of several trees, copies and restores; no file of config names one."""


def in_unit(pattern: str) -> str:
    found = re.search(pattern, UNIT)
    return found[1]


COMMAND = in_unit(r"ExecStart=(\S+) serve")
SETTINGS = in_unit(r"ExecStart=.* --config (\S+)")
DIRECTORY = in_unit(r"ReadWritePaths=(\S+)")
SOCKETS = "/run/" + in_unit(r"RuntimeDirectory=(\S+)")
CLONE = COMMAND.removesuffix("/.venv/bin/persistence")


def paths(text: str) -> list[str]:
    return [found.rstrip(".") for found in _ABSOLUTE.findall(text)]


def named() -> Iterator[tuple[str, str]]:
    """Each absolute path, with the page or file that names it."""
    return ((path.name, found) for path in (*PAGES, *FILES) for found in paths(path.read_text()))


def is_in(path: str, places: tuple[str, ...]) -> bool:
    return any(PurePosixPath(path).is_relative_to(place) for place in places)


@dataclass(frozen=True)
class Made:
    """What ``persistence init DIRECTORY`` makes and ``serve`` uses, as paths below DIRECTORY."""

    entries: frozenset[str]
    data: str
    log: str

    def has(self, path: str) -> bool:
        return path in self.entries or is_in(path, (self.data,))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    directory = tmp_path_factory.mktemp("made") / "service"
    file, data = make_service_directory(str(directory))
    settings = load(file, environment={}).settings
    assert settings.data == data
    (log,) = re.findall(r'(?m)^#log_file = "" +# "(\S+)"', Path(file).read_text())
    log = str((Path(file).parent / log).resolve())
    used = [getattr(settings, name) for name in PATHS] + [log]
    found = {str(path) for path in (directory, *directory.rglob("*"))}
    found |= {str(each) for path in used if path for each in (path, *Path(path).parents)}

    def below(path: str) -> str:
        return str(DIRECTORY / Path(path).relative_to(directory))

    inside = frozenset(below(path) for path in found if is_in(path, (str(directory),)))
    return Made(inside, below(data), below(log))


def wrong(path: str, made: Made, *, in_config: bool = False) -> bool:
    """Say whether neither ``init``, ``serve``, the clone nor another program has a path."""
    if is_in(path, (DIRECTORY,)):
        return not made.has(path)
    if is_in(path, (CLONE,)):
        inside = path.removeprefix(CLONE).strip("/")
        return not (
            inside in {"", ".venv", ".venv/bin"}
            or inside.startswith(".venv/bin/")
            or Path(README.parent, inside).exists()
        )
    return not is_in(path, (*OTHERS, SOCKETS, BACKUPS, SECOND, *(() if in_config else DISKS)))


def test_init_makes_the_settings_of_the_unit(made: Made, tmp_path: Path, command: Command) -> None:
    assert f"persistence init {DIRECTORY}" in (DOCS / "installing.md").read_text()
    assert f"{DIRECTORY}/{DEFAULT_FILE}" == SETTINGS
    assert made.has(SETTINGS)
    assert command("init", str(tmp_path / "made")).status == 0
    assert (tmp_path / "made" / Path(SETTINGS).relative_to(DIRECTORY)).is_file()


def test_every_absolute_path_is_one_of_init_serve_the_clone_or_another_program(made: Made) -> None:
    config = {path.name for path in FILES}
    found = [(name, path) for name, path in named() if wrong(path, made, in_config=name in config)]
    assert found == []


def test_nginx_logrotate_and_the_image_name_what_serve_uses(made: Made) -> None:
    (alias,) = re.findall(r"alias +(\S+);", (CONFIG / "nginx.conf").read_text())
    assert alias == f"{made.data}/.serve/"
    assert re.findall(r"(?m)^(/\S+) \{", (CONFIG / "logrotate.conf").read_text()) == [made.log]
    image = (CONFIG / "Containerfile").read_text()
    assert re.findall(r"(?m)^(?:VOLUME|WORKDIR) (/var\S+)", image) == [DIRECTORY] * 2
    assert f"ENV PATH={Path(COMMAND).parent}:" in image
    assert f"PERSISTENCE_GUNICORN={CLONE}/config/gunicorn.conf.py" in image


def test_crontabs_and_units_name_the_command_and_the_settings_of_the_service() -> None:
    lines = [line for path in (*PAGES, *FILES) for line in path.read_text().splitlines()]
    scheduled = [line for line in lines if re.search(r"^(?:[\d*]+ +){5}|^ExecStart=", line)]
    assert len(scheduled) > 4
    for line in scheduled:
        assert f"{COMMAND} " in line
        assert f"--config {SETTINGS}" in line


def test_a_path_that_differs_is_found(made: Made) -> None:
    """One mistake of each kind: in the directory, beside it, in the clone, of another disk in a file of config."""
    text = (
        "tree /var/lib/persistence/data/.serve/, settings in /etc/persistence/persistence.toml, /srv/forms,"
        " /srv/persistence/config/nginx-sites.conf, log /var/log/persistence/persistence.log, /backups/svc."
    )
    assert [path for path in paths(text) if not wrong(path, made)] == []
    assert len(paths(text)) == 6
    assert [wrong("/mnt/forms", made, in_config=each) for each in (True, False)] == [True, False]
