"""Small file systems of their own, for real: a disk image on a loop device, or memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

_FREEING = 20.0
"""Seconds within which a file system frees the blocks of a file that was removed."""
_FREE_BLOCK = 512


class DiskError(Exception):
    """A file system cannot be made or mounted here; the text is why."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How to make a file system: the command, and the size of its image in MiB. Without a command it is memory."""

    title: str
    command: tuple[str, ...]
    size: int
    quota: int = 0


TMPFS = Kind("tmpfs", (), 12)
EXT4 = Kind("ext4", ("mkfs.ext4", "-q", "-m", "0", "-N", "4096"), 16)
EXT4_LARGE_BLOCKS = Kind("ext4, blocks of a page", ("mkfs.ext4", "-q", "-m", "0", "-N", "4096", "-b", "4096"), 24)
XFS = Kind("XFS", ("mkfs.xfs", "-q"), 320)
BTRFS = Kind("btrfs", ("mkfs.btrfs", "-q", "--mixed"), 24)
FEW_INODES = Kind("ext4, few inodes", ("mkfs.ext4", "-q", "-m", "0", "-N", "768"), 64)
BTRFS_QUOTA = Kind("btrfs, quota", ("mkfs.btrfs", "-q", "--mixed"), 128, quota=12)


@contextmanager
def mounted(kind: Kind, directory: Path) -> Iterator[Path]:
    """A fresh file system below a directory, for the length of a block.

    Raises:
        DiskError: it cannot be made or mounted.
    """
    point = directory / "disk"
    point.mkdir()
    if not kind.command:
        with _mounted(point, "-t", "tmpfs", "-o", f"size={kind.size}m", "tmpfs"):
            yield point
        return
    image = directory / "disk.img"
    with image.open("wb") as file:
        file.truncate(kind.size << 20)
    _run(*kind.command, str(image))
    with _attached(image) as device, _mounted(point, device):
        if kind.quota:
            _run("btrfs", "quota", "enable", str(point))
            _run("btrfs", "qgroup", "limit", f"{kind.quota}m", str(point))
        yield point


def require(kind: Kind, directory: Path) -> None:
    """Skip the calling test where such a file system cannot be had."""
    trial = directory / "trial"
    trial.mkdir()
    try:
        with mounted(kind, trial):
            pass
    except DiskError as error:
        pytest.skip(f"{kind.title} cannot be mounted here: {error}")


def turn_read_only(point: Path) -> None:
    """Let an ext4 give up as it does on an error of its disk, whoever has files open."""
    _run("mount", "-o", "remount,errors=remount-ro,abort", str(point))


def remount(point: Path) -> None:
    """Unmount what nobody has files open of, and mount it again."""
    device = _run("findmnt", "--noheadings", "--output", "SOURCE", str(point)).strip()
    _run("umount", str(point))
    _run("mount", device, str(point))


def fill(path: Path) -> None:
    """Let a file take all the room that is left."""
    with path.open("ab", buffering=0) as file, suppress(OSError):
        while file.write(bytes(_FREE_BLOCK)):
            pass


def make_room(path: Path) -> None:
    """Remove a file that has taken room, and wait until there is some: XFS frees blocks after the removal."""
    size = path.stat().st_size
    path.unlink()
    os.sync()
    ends = time.monotonic() + _FREEING
    while os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize < size // 2:
        assert time.monotonic() < ends, "the file system frees nothing"
        time.sleep(0.02)


@contextmanager
def _attached(image: Path) -> Iterator[str]:
    device = _run("losetup", "--find", "--show", str(image)).strip()
    try:
        yield device
    finally:
        _run("losetup", "--detach", device)


@contextmanager
def _mounted(point: Path, *arguments: str) -> Iterator[None]:
    _run("mount", *arguments, str(point))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=False, capture_output=True)


def _run(*command: str) -> str:
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    if shutil.which(command[0], path=path) is None:
        raise DiskError(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
    if done.returncode != 0:
        raise DiskError(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
