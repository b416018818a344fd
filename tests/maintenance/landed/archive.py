"""Trees that earlier versions have written, in archives beside this file."""

from __future__ import annotations

import json
import lzma
import os
import tarfile
from pathlib import Path
from typing import Any


def unpack(name: str, directory: Path) -> None:
    """Unpack ``tree-NAME.tar.xz``, with the times of its files to the nanosecond."""
    with tarfile.open(Path(__file__).with_name(f"tree-{name}.tar.xz"), "r:xz") as tar:
        members = tar.getmembers()
        tar.extractall(directory, members, filter=_owned)  # noqa: S202 - the filter keeps them inside
    for member in reversed(members):  # a file that is made changes the time of its directory
        seconds, _, rest = member.pax_headers["mtime"].partition(".")
        modified = int(seconds) * 10**9 + int(rest)
        os.utime(directory / member.name, ns=(modified, modified))


def _owned(member: tarfile.TarInfo, directory: str) -> tarfile.TarInfo | None:
    """Let nothing leave the directory, and keep the modes: that of the key file matters."""
    return tarfile.data_filter(member, directory).replace(mode=member.mode, deep=False)


def answers(name: str) -> dict[str, Any]:
    """Return what is recorded in ``answers-NAME.json.xz``."""
    found: dict[str, Any] = json.loads(lzma.decompress(_answers(name).read_bytes()))
    return found


def record(name: str, found: dict[str, Any]) -> None:
    _answers(name).write_bytes(lzma.compress(json.dumps(found, ensure_ascii=False).encode()))


def _answers(name: str) -> Path:
    return Path(__file__).with_name(f"answers-{name}.json.xz")
