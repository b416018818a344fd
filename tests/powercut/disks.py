"""Disks in files: made, mounted, pictured at one instant, and gone with their block.

A disk image lies on a btrfs, where a file can be cloned in one atomic step. The clone of a mounted image is what a
power cut would leave of the disk: the writes that reached it, without what the kernel still has in memory.
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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_CLONE_FILE = 0x40049409  # FICLONE of linux/fs.h
_GROUND_SIZE = 4 << 30
_DISK_SIZE = 320 << 20  # the least that XFS takes is 300 MiB
_PATIENCE = 60.0
_BUSY_FOR = 5.0
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


class DiskError(Exception):
    """A disk cannot be had here; the text says which step failed, and why."""


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A kind of file system, and how it is mounted.

    ``options`` keep it from writing by itself for as long as a run takes: what was not synced must not become durable
    by the passage of time. ``clone_options`` let a picture be mounted beside its original.
    """

    name: str
    make: tuple[str, ...]
    options: str
    clone_options: str

    def __str__(self) -> str:
        return self.name


EXT4 = FileSystem("ext4", ("mkfs.ext4", "-q", "-F", "-m", "0"), "noauto_da_alloc,commit=300", "")
XFS = FileSystem("xfs", ("mkfs.xfs", "-q", "-f"), "", "nouuid")
BTRFS = FileSystem("btrfs", ("mkfs.btrfs", "-q", "-f"), "commit=300", "")
FILE_SYSTEMS = (EXT4, XFS, BTRFS)
WHOLE_SECONDS = FileSystem("ext4", ("mkfs.ext4", "-q", "-F", "-m", "0", "-I", "128"), "", "")
"""An ext4 with small inodes, whose files have times of whole seconds; no disk to cut the power of."""


@dataclass(frozen=True, slots=True)
class Disk:
    """A mounted disk image; pictures of it lie beside it."""

    kind: FileSystem
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
        with _mounted(picture, at, self.kind.name, self.kind.clone_options):
            yield at
        picture.unlink()

    def settle(self) -> None:
        """Make everything on this disk durable."""
        _run("sync", "--file-system", str(self.root))


@contextmanager
def disk(kind: FileSystem, directory: Path) -> Iterator[Disk]:
    """A new disk with a file system, below a directory that may be on any file system.

    Raises:
        DiskError: it cannot be made or mounted here.
    """
    ground, below = directory / "ground.img", directory / "ground"
    _allocate(ground, _GROUND_SIZE)
    _run("mkfs.btrfs", "-q", "-m", "single", str(ground))
    try:
        # The ground need not survive anything itself: without barriers a flush costs no flush of the real disk.
        with _mounted(ground, below, "btrfs", "noatime,nobarrier"):
            image, root = below / "disk.img", directory / "disk"
            _allocate(image, _DISK_SIZE)
            _run(*kind.make, str(image))
            # Direct: what the file system has written is in the image, and not in a page cache above it.
            with _mounted(image, root, kind.name, kind.options, is_direct=True):
                yield Disk(kind, image, root)
    finally:
        ground.unlink()


def refusal(kind: FileSystem, directory: Path) -> str | None:
    """Why this machine cannot do the whole of it, from making a disk to mounting two pictures; ``None`` if it can."""
    if os.geteuid() != 0:
        return "only root can mount disks"
    for tool in (kind.make[0], "mkfs.btrfs", "losetup", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    trial = directory / f"trial-{kind}"
    trial.mkdir()
    try:
        with (
            disk(kind, trial) as made,
            made.restored(made.picture("first"), trial / "first"),
            made.restored(made.picture("second"), trial / "second"),
        ):
            return None
    except (DiskError, OSError) as error:
        return f"{kind} in a disk image cannot be had here: {error}"


@contextmanager
def _mounted(image: Path, at: Path, kind: str, options: str, *, is_direct: bool = False) -> Iterator[None]:
    at.mkdir(exist_ok=True)
    try:
        with _uninterrupted():
            device = _run(
                "losetup", "--find", "--show", f"--direct-io={'on' if is_direct else 'off'}", str(image)
            ).strip()
            try:
                _run("mount", "-t", kind, *(("-o", options) if options else ()), device, str(at))
            finally:
                # While it is mounted this only says that the device goes with the mount.
                _run("losetup", "--detach", device)
        yield
    finally:
        if at.is_mount():
            with _uninterrupted():
                _unmount(at)


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


def _unmount(at: Path) -> None:
    """Unmount; a process that is just ending may hold it for a moment."""
    deadline = time.monotonic() + _BUSY_FOR
    while True:
        try:
            _run("umount", str(at))
        except DiskError:
            if time.monotonic() > deadline:
                _run("umount", "--lazy", str(at))
                raise
            time.sleep(0.05)
        else:
            return


def _allocate(path: Path, size: int) -> None:
    with path.open("xb") as file:
        file.truncate(size)


def _run(*command: str) -> str:
    """Run a tool in a process group of its own, so that Ctrl-C does not stop it half-way."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE, process_group=0)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DiskError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise DiskError(f"{command[0]}: {' '.join(done.stderr.split()) or done.returncode}")
    return done.stdout
