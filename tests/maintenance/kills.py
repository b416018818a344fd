"""Killing a command at every call that changes the tree, or letting that call fail.

The command runs in a child of this process that has everything imported; the child kills itself right before the call
of a given number. Between two such calls there is nothing on the disk that tells when a process died.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from persistence.cli import main
from persistence.storage.layout import INDEX

CHANGING = (
    *("rename", "replace", "link", "symlink", "unlink", "remove", "rmdir", "mkdir"),
    *("utime", "chmod", "chown", "truncate", "ftruncate", "write", "fsync", "sync"),
)
_CREATING = os.O_CREAT | os.O_TRUNC
_FEW_LOCKS = 10
Strike = Callable[[str], None]


def kill(_call: str) -> None:
    """Die as by ``kill -9``."""
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(number: int) -> Strike:
    def strike(_call: str) -> None:
        raise OSError(number, os.strerror(number))

    return strike


FULL, BROKEN, READ_ONLY, FORBIDDEN = (refuse(n) for n in (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES))


@dataclass(frozen=True)
class Ended:
    """The end of a command: its exit status (negative: a signal), whether the call was reached, and its output."""

    status: int
    struck: bool
    said: str


def run(arguments: Sequence[str], output: Path, *, at: int = 0, strike: Strike = kill) -> Ended:
    """Run ``persistence`` in a child and strike it before the changing call number ``at``, counted from 1."""
    reached = output.with_suffix(".reached")
    reached.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _be_the_command(arguments, output, reached, at, strike)
    _, status = os.waitpid(child, 0)
    return Ended(os.waitstatus_to_exitcode(status), reached.exists(), output.read_text(errors="replace"))


def _be_the_command(arguments: Sequence[str], output: Path, reached: Path, at: int, strike: Strike) -> None:
    status = 70
    try:
        signal.alarm(30)
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        sys.argv = ["persistence", *arguments]
        _count_calls(reached, at, strike)
        main()
        status = 0
    except SystemExit as exit_:
        status = exit_.code if isinstance(exit_.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent is to see it, and this child to end here
        sys.stderr.write(f"Traceback: {type(error).__name__}: {error}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _count_calls(reached: Path, at: int, strike: Strike) -> None:
    calls = 0
    real_open = os.open

    def counted(name: str) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            os.close(real_open(reached, os.O_WRONLY | os.O_CREAT))
            strike(name)

    def wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            counted(name)
            return function(*arguments, **options)

        return call

    def opening(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & _CREATING:
            counted("open")
        return real_open(path, flags, *arguments, **options)

    for name in CHANGING:
        setattr(os, name, wrapped(name, getattr(os, name)))
    os.open = opening


def copied(source: Path, target: Path) -> Path:
    """Copy a tree with times and hard links; the many lock files are shared."""
    shutil.rmtree(target, ignore_errors=True)
    firsts: dict[int, str] = {}

    def copy(path: str, to: str) -> str:
        status = os.stat(path)
        if status.st_nlink > 1 and status.st_ino in firsts:
            os.link(firsts[status.st_ino], to)
            return to
        firsts[status.st_ino] = to
        return str(shutil.copy2(path, to))

    def shared(directory: str, names: list[str]) -> list[str]:
        is_large = ".locks" in names and len(os.listdir(f"{directory}/.locks")) > _FEW_LOCKS
        return [INDEX, ".locks"] if is_large else [INDEX]

    shutil.copytree(source, target, symlinks=True, copy_function=copy, ignore=shared)
    for locks in source.rglob(".locks"):
        if not (copy_of := target / locks.relative_to(source)).exists():
            shutil.copytree(locks, copy_of, copy_function=os.link)
    return target
