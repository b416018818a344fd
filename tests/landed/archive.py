"""Pack a directory into an archive and unpack it again, with the times of its files to the nanosecond."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

_NANOSECONDS = 10**9


def pack(directory: Path, archive: Path) -> None:
    """Write everything below a directory into a tar.xz.

    The archive names no user, because whoever unpacks it is to own the files.
    """
    with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as tar:
        for path in sorted(directory.rglob("*")):
            if not (path.is_file() or path.is_dir()) or path.is_symlink():
                continue
            member = tar.gettarinfo(str(path), arcname=str(path.relative_to(directory)))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.type = tarfile.DIRTYPE if path.is_dir() else tarfile.REGTYPE  # a second name is a file, too
            member.size = 0 if path.is_dir() else path.stat().st_size
            seconds, rest = divmod(path.stat().st_mtime_ns, _NANOSECONDS)
            member.pax_headers = {"mtime": f"{seconds}.{rest:09}"}
            if path.is_dir():
                tar.addfile(member)
            else:
                with path.open("rb") as content:
                    tar.addfile(member, content)


def unpack(archive: Path, directory: Path) -> None:
    """Lay down what an archive holds. Times are set at the end: a file that is made changes that of its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "r:xz") as tar:
        members = tar.getmembers()
        tar.extractall(directory, members, filter=_owned)  # noqa: S202 - the filter keeps them inside
    for member in reversed(members):
        seconds, _, rest = member.pax_headers["mtime"].partition(".")
        modified = int(seconds) * _NANOSECONDS + int(rest)
        os.utime(directory / member.name, ns=(modified, modified))


def _owned(member: tarfile.TarInfo, directory: str) -> tarfile.TarInfo | None:
    """Let nothing leave the directory, and keep the modes: that of the key file matters."""
    checked = tarfile.data_filter(member, directory)
    return checked.replace(mode=member.mode, deep=False)
