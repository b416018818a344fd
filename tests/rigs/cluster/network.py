"""The network of the nodes of the database: each in a network of its own that can be cut.

The whole rig runs in namespaces of its own (``enter``): with its own loopback, and with an init whose end ends every
process that the rig has started.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

_INSIDE = "TESTS_CLUSTER_INSIDE"
_NAMESPACES = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_TRIAL = "ip link set lo up && ip link add name bridge0 type bridge && ip link add name cable0 type veth peer name end0"
_INIT = '"$@"; exit $?'
"""The shell stays as the first process of the namespace, and takes in the processes that have lost their parent."""

_SUBNET = "10.91.7"
_READY = 5.0


def enter() -> str | None:
    """Do it in namespaces of its own, and end with its status; return why that is impossible, ``None`` inside them."""
    if not os.environ.get(_INSIDE):
        if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
            return "namespaces need root, unshare and ip"
        if subprocess.run([*_NAMESPACES, "sh", "-c", _TRIAL], capture_output=True, check=False).returncode != 0:
            return "network namespaces are not allowed"
        command = [*_NAMESPACES, "sh", "-c", _INIT, "sh", sys.executable, "-m", "tests.rigs", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env={**os.environ, _INSIDE: "1"}, check=False).returncode)
    return None


def descendants(process: int) -> list[int]:
    """A process and all that it has started, and those have, from the oldest."""
    found = [process]
    for each in found:
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


class Network:
    """Each node in a network namespace, with a cable to a bridge of this one, which is taken away to cut it off."""

    home = f"{_SUBNET}.100"
    """The address at which the nodes reach what runs beside them."""

    def __init__(self) -> None:
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        _ip("link set lo up")
        _ip("link add name bridge0 type bridge")
        _ip(f"addr add {self.home}/24 dev bridge0")
        _ip("link set bridge0 up")
        for node in (1, 2, 3):
            self._plug(node)

    def _plug(self, node: int) -> None:
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._holders[node] = holder
        own, deadline = os.readlink("/proc/self/ns/net"), time.monotonic() + _READY
        while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
            if time.monotonic() > deadline:
                raise RuntimeError("no network namespace was made")
            time.sleep(0.01)
        _ip(f"link add name cable{node} type veth peer name eth0 netns {holder.pid}")
        _ip(f"link set cable{node} master bridge0 up")
        for line in ("link set lo up", f"addr add {self.address(node)}/24 dev eth0", "link set eth0 up"):
            _ip(line, self.command(node))

    def address(self, node: int) -> str:
        return f"{_SUBNET}.{node}"

    def command(self, node: int) -> Sequence[str]:
        """The words before a command that is to run at a node."""
        return ("nsenter", f"--net=/proc/{self._holders[node].pid}/ns/net")

    def cut(self, node: int) -> None:
        _ip(f"link set cable{node} down")

    def heal(self, node: int) -> None:
        _ip(f"link set cable{node} up")

    def close(self) -> None:
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
        for node in self._holders:
            with suppress(RuntimeError):  # the kernel takes it away some time after the namespace of its other end
                _ip(f"link del dev cable{node}")
        _ip("link del dev bridge0")


def send(processes: Iterable[int], what: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, what)


def _ip(line: str, before: Sequence[str] = ()) -> None:
    done = subprocess.run([*before, "ip", *line.split()], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {line}: {done.stderr.strip()}")
