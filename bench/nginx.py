"""An nginx for a benchmark: in front of the service with the project's own configuration, or one that serves files."""

from __future__ import annotations

import grp
import os
import pwd
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers import CONFIG, free_port, running

PROGRAM = shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")

_EDITED = re.compile(r"^(?P<indent> *)(?P<name>[a-z_]+) .*# EDIT.*$", re.MULTILINE)

_FILES = """
{user}
pid {directory}/nginx.pid;
error_log {directory}/error.log warn;
worker_processes auto;
events {{ worker_connections 1024; }}
http {{
    types {{ application/xml xml; }}
    access_log {directory}/access.log;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 75s;
    client_max_body_size 1g;
    client_body_temp_path {directory}/body;
    {unused}
    server {{
        listen 127.0.0.1:{port};
        location / {{ root {directory}/files; {dav} }}
    }}
}}
"""
_DAV = "dav_methods PUT DELETE; create_full_put_path on;"


@contextmanager
def in_front_of(service: int, data: Path, directory: Path) -> Iterator[tuple[int, int]]:
    """Run ``config/nginx.conf`` before the service at a port; yields its port and its first process."""
    port = free_port()
    user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(os.getegid()).gr_name
    values = {
        "user": f"{user} {group};",
        "pid": f"{directory}/nginx.pid;",
        "error_log": f"{directory}/error.log warn;",
        "server": f"127.0.0.1:{service};",
        "access_log": f"{directory}/access.log requests;",
        "client_body_temp_path": f"{directory}/body;",
        "proxy_temp_path": f"{directory}/proxy; {_unused(directory)}",
        "listen": f"127.0.0.1:{port};",
        "allow": "127.0.0.1;",
        "alias": f"{data}/.serve/;",
    }
    example = (CONFIG / "nginx.conf").read_text()
    written = _EDITED.sub(lambda line: f"{line['indent']}{line['name']} {values[line['name']]}", example)
    with _nginx(written, directory, port) as process:
        yield port, process


@contextmanager
def files(directory: Path, *, dav: bool) -> Iterator[tuple[int, int]]:
    """Run an nginx that sends ``files/`` below a directory, and stores there with its DAV module if that is wanted."""
    port = free_port()
    (directory / "files").mkdir(parents=True)
    user = f"user {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""
    unused = f"proxy_temp_path {directory}/proxy; {_unused(directory)}"
    written = _FILES.format(user=user, directory=directory, unused=unused, port=port, dav=_DAV if dav else "")
    with _nginx(written, directory, port) as process:
        yield port, process


def _unused(directory: Path) -> str:
    """Return paths that nginx makes at its start, which not everyone may make where it has them by default."""
    return " ".join(f"{name}_temp_path {directory}/{name};" for name in ("fastcgi", "uwsgi", "scgi"))


@contextmanager
def _nginx(configuration: str, directory: Path, port: int) -> Iterator[int]:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "nginx.conf"
    file.write_text(configuration)
    log = str(directory / "error.log")
    with running([str(PROGRAM), "-e", log, "-c", str(file), "-g", "daemon off;"], port) as process:
        yield process
