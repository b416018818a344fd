"""File systems of their own, for real: memory, or a disk in a file that can be filled, spoilt, and pictured.

To cut the power, a disk image lies on a btrfs, where a file can be cloned in one atomic step. The clone of a mounted
image is what a power cut would leave of the disk: the writes that reached it, without what the kernel still has in
memory.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

_CLONE_FILE = 0x40049409  # FICLONE of linux/fs.h
_GROUND_SIZE = 4 << 10
_PATIENCE = 60.0
_BUSY_FOR = 20.0
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_FREEING = 20.0
"""Seconds within which a file system frees the blocks of a file that was removed."""
_FREE_BLOCK = 512


class DiskError(Exception):
    """A disk cannot be had here; the text says which step failed, and why."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How to make a file system: the command, and the size of its image in MiB. Without a command it is memory.

    ``options`` of its mount keep it from writing by itself for as long as a run takes: what was not synced must not
    become durable by the passage of time. ``clone_options`` let a picture be mounted beside its original.
    """

    title: str
    command: tuple[str, ...]
    size: int
    quota: int = 0
    options: str = ""
    clone_options: str = ""

    def __str__(self) -> str:
        return self.title


_EXT4, _XFS, _BTRFS = ("mkfs.ext4", "-q", "-m", "0"), ("mkfs.xfs", "-q"), ("mkfs.btrfs", "-q")
TMPFS = Kind("tmpfs", (), 12)
EXT4 = Kind("ext4", (*_EXT4, "-N", "4096"), 16)
EXT4_LARGE_BLOCKS = Kind("ext4, blocks of a page", (*_EXT4, "-N", "4096", "-b", "4096"), 24)
XFS = Kind("XFS", _XFS, 320)  # the least that it takes is 300 MiB
BTRFS = Kind("btrfs", (*_BTRFS, "--mixed"), 24)
FEW_INODES = Kind("ext4, few inodes", (*_EXT4, "-N", "768"), 64)
BTRFS_QUOTA = Kind("btrfs, quota", (*_BTRFS, "--mixed"), 128, quota=12)
WHOLE_SECONDS = Kind("ext4, whole seconds", (*_EXT4, "-I", "128"), 320)
"""With small inodes, whose files have times of whole seconds."""

CUT_EXT4 = Kind("ext4", _EXT4, 320, options="noauto_da_alloc,commit=300")
TO_CUT = (CUT_EXT4, Kind("xfs", _XFS, 320, clone_options="nouuid"), Kind("btrfs", _BTRFS, 320, options="commit=300"))
"""Those of which the power is cut."""


@contextmanager
def mounted(kind: Kind, directory: Path) -> Iterator[Path]:
    point = directory / "disk"
    if not kind.command:
        with _mounted(point, "-t", "tmpfs", "-o", f"size={kind.size}m", "tmpfs", is_lazy=True):
            yield point
        return
    image = _image(kind, directory / "disk.img")
    with _attached(image) as device, _mounted(point, device, is_lazy=True):
        if kind.quota:
            _run("btrfs", "quota", "enable", str(point))
            _run("btrfs", "qgroup", "limit", f"{kind.quota}m", str(point))
        yield point


def require(kind: Kind, directory: Path) -> None:
    if reason := refusal(kind, directory):
        pytest.skip(reason)


def refusal(kind: Kind, directory: Path, *, is_to_cut: bool = False) -> str | None:
    """Why such a file system cannot be had here, with pictures of it where the power is to be cut."""
    trial = directory / f"trial-{kind}".replace(" ", "-")
    trial.mkdir(parents=True)
    try:
        if not is_to_cut:
            with mounted(kind, trial):
                return None
        with (
            disk(kind, trial) as made,
            made.restored(made.picture("first"), trial / "first"),
            made.restored(made.picture("second"), trial / "second"),
        ):
            return None
    except (DiskError, OSError) as error:
        return f"{kind} cannot be mounted here: {error}"


def turn_read_only(point: Path) -> None:
    """Let an ext4 give up as it does on an error of its disk, whoever has files open."""
    _run("mount", "-o", "remount,errors=remount-ro,abort", str(point))


def remount(point: Path) -> None:
    """Unmount what nobody has files open of, and mount it again."""
    device = _run("findmnt", "--noheadings", "--output", "SOURCE", str(point)).strip()
    _run("umount", str(point))
    _run("mount", device, str(point))


def fill(path: Path) -> None:
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


@dataclass(frozen=True, slots=True)
class Disk:
    kind: Kind
    image: Path
    root: Path

    def picture(self, name: str) -> Path:
        """The disk as it is at one instant during this call, as an image of its own."""
        target = self.image.with_name(name)
        with self.image.open("rb") as source, target.open("xb") as clone:
            fcntl.ioctl(clone, _CLONE_FILE, source.fileno())
        return target

    @contextmanager
    def restored(self, picture: Path, at: Path) -> Iterator[Path]:
        """A picture mounted, as the machine would find its disk after the power cut; it is gone after the block."""
        with _attached(picture) as device, _mounted(at, *_options(self.kind.clone_options), device):
            yield at
        picture.unlink()

    def settle(self) -> None:
        _run("sync", "--file-system", str(self.root))


@contextmanager
def disk(kind: Kind, directory: Path) -> Iterator[Disk]:
    """A new disk with a file system, below a directory that may be on any file system."""
    ground = _image(Kind("ground", (*_BTRFS, "-m", "single"), _GROUND_SIZE), directory / "ground.img")
    below, root = directory / "ground", directory / "disk"
    try:
        # The ground need not survive anything itself: without barriers a flush costs no flush of the real disk.
        with _attached(ground) as device, _mounted(below, *_options("noatime,nobarrier"), device):
            image = _image(kind, below / "disk.img")
            # Direct: what the file system has written is in the image, and not in a page cache above it.
            with _attached(image, "--direct-io=on") as own, _mounted(root, *_options(kind.options), own):
                yield Disk(kind, image, root)
    finally:
        ground.unlink()


def _image(kind: Kind, path: Path) -> Path:
    with path.open("xb") as file:
        file.truncate(kind.size << 20)
    _run(*kind.command, str(path))
    return path


def _options(options: str) -> tuple[str, ...]:
    return ("-o", options) if options else ()


@contextmanager
def _attached(image: Path, *options: str) -> Iterator[str]:
    with _uninterrupted():
        device = _run("losetup", "--find", "--show", *options, str(image)).strip()
    try:
        yield device
    finally:
        with _uninterrupted():
            _run("losetup", "--detach", device)


@contextmanager
def _mounted(point: Path, *arguments: str, is_lazy: bool = False) -> Iterator[None]:
    point.mkdir(exist_ok=True)
    try:
        with _uninterrupted():
            _run("mount", *arguments, str(point))
        yield
    finally:
        if point.is_mount():
            with _uninterrupted():
                _unmount(point, is_lazy=is_lazy)


def _unmount(point: Path, *, is_lazy: bool) -> None:
    """Unmount; a process that is just ending may hold it for a moment."""
    deadline = time.monotonic() + _BUSY_FOR
    while not is_lazy:
        try:
            _run("umount", str(point))
        except DiskError:
            if time.monotonic() > deadline:
                _run("umount", "--lazy", str(point))
                raise
            time.sleep(0.05)
        else:
            return
    _run("umount", "--lazy", str(point))


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put off what would stop this process until the end of a block, where half of it would stay behind."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals come to the main thread
        return
    came: list[int] = []
    handlers = {number: signal.signal(number, lambda sent, _: came.append(sent)) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def _run(*command: str) -> str:
    """Run a tool in a process group of its own, so that Ctrl-C does not stop it half-way."""
    if (program := shutil.which(command[0], path=_PATH)) is None:
        raise DiskError(f"{command[0]} is not installed")
    own = {**os.environ, "PATH": _PATH}
    try:
        done = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
            process_group=0,
            env=own,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DiskError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise DiskError(f"{command[0]}: {' '.join(done.stderr.split()) or done.stdout.strip() or done.returncode}")
    return done.stdout
