"""etcd and three PostgreSQL servers under Patroni, with the configuration that ``config/cluster`` has.

Each server has a network of its own that can be cut. The whole rig runs in namespaces of its own (``enter``): with its
own loopback, and with an init whose end ends every process that the rig has started.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from tests.postgresql.server import free_port

EXAMPLE = Path(__file__).parents[3] / "config/cluster/patroni.yml"
NODES = (1, 2, 3)
PASSWORD = "not-secret"  # noqa: S105 - of a database that lives as long as a test
_BINARIES = "/usr/lib/postgresql/*/bin"
_MEMORY = "/dev/shm"
"""For etcd, which is to have a disk of its own that does not wait for the others."""

_SQL, _REST = 5432, 8008
_STARTING = 180.0
_BY_ITSELF = 60.0
_FOLLOWERS = "SELECT application_name FROM pg_stat_replication WHERE state = 'streaming'"
_SOCKETS = "unix_socket_directories: /run/postgresql"


def missing() -> list[str]:
    found = {"etcd-server": "etcd", "patroni": "patroni", "haproxy": "haproxy", "util-linux": "runuser"}
    lacking = [package for package, name in found.items() if which(name) is None]
    if not list(Path("/").glob(f"{_BINARIES[1:]}/postgres")):
        lacking.append("postgresql postgresql-contrib")
    return lacking


def which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


class Member(NamedTuple):
    node: int
    role: str
    state: str


class Database:
    def __init__(self, directory: Path, *, is_synchronous: bool) -> None:
        self.network = Network()
        self._directory = directory
        self._memory = tempfile.TemporaryDirectory(dir=_MEMORY if Path(_MEMORY).is_dir() else None)
        Path(self._memory.name).chmod(0o755)
        self._etcd_process: subprocess.Popen[bytes] | None = None
        self._patroni: dict[int, subprocess.Popen[bytes]] = {}
        self._etcd = f"{self.network.home}:{free_port(self.network.home)}"
        self._is_synchronous = is_synchronous
        directory.chmod(0o755)
        self._file = directory / "patroni.yml"
        text = EXAMPLE.read_text()
        if _SOCKETS not in text:
            raise ValueError(f"the example has no {_SOCKETS}")
        text = text.replace(_SOCKETS, "unix_socket_directories: ''")
        if not is_synchronous:
            text = text.replace("synchronous_mode: true", "synchronous_mode: false")
            text = text.replace("synchronous_mode_strict: true", "synchronous_mode_strict: false")
        self._file.write_text(text)

    @property
    def uri(self) -> str:
        """The address for the service: all servers, of which it takes the primary."""
        hosts = ",".join(f"{self.network.address(node)}:{_SQL}" for node in NODES)
        return f"postgresql://persistence:{PASSWORD}@{hosts}/forms?target_session_attrs=read-write&connect_timeout=3"

    def start(self) -> None:
        home = Path(self._memory.name) / "etcd"
        self._own(home)
        peers = f"http://{self.network.home}:{free_port(self.network.home)}"
        client = f"http://{self._etcd}"
        self._etcd_process = self._run(
            (
                *("etcd", "--data-dir", str(home), "--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
                *("--initial-cluster", f"default={peers}"),
            ),
            self._directory / "etcd.log",
        )
        for node in NODES:
            self.restart(node)
        self.await_whole(_STARTING)
        leader = self.leader()
        for statement in (
            f"CREATE ROLE persistence LOGIN PASSWORD '{PASSWORD}'",
            "CREATE DATABASE forms OWNER persistence",
        ):
            self.run_sql(leader, statement)

    def run_sql(self, node: int, statement: str) -> str:
        target = f"host={self.network.address(node)} port={_SQL} user=postgres dbname=postgres"
        done = subprocess.run(
            ["psql", "-XAtqc", statement, target],
            env={**os.environ, "PGPASSWORD": PASSWORD},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def restart(self, node: int) -> None:
        address = self.network.address(node)
        data = self._directory / f"node{node}"
        self._own(data)
        (binaries,) = list(Path("/").glob(_BINARIES[1:]))[-1:]
        environment = {
            "PATRONI_NAME": f"node{node}",
            "PATRONI_ETCD3_HOSTS": self._etcd,
            "PATRONI_RESTAPI_LISTEN": f"{address}:{_REST}",
            "PATRONI_RESTAPI_CONNECT_ADDRESS": f"{address}:{_REST}",
            "PATRONI_POSTGRESQL_LISTEN": f"{address}:{_SQL}",
            "PATRONI_POSTGRESQL_CONNECT_ADDRESS": f"{address}:{_SQL}",
            "PATRONI_POSTGRESQL_DATA_DIR": str(data / "data"),
            "PATRONI_POSTGRESQL_BIN_DIR": str(binaries),
            "PATRONI_POSTGRESQL_PGPASS": str(data / "pgpass"),
            "PATRONI_SUPERUSER_USERNAME": "postgres",
            "PATRONI_REPLICATION_USERNAME": "replicator",
            "PATRONI_SUPERUSER_PASSWORD": PASSWORD,
            "PATRONI_REPLICATION_PASSWORD": PASSWORD,
            "PATH": os.environ.get("PATH", os.defpath),
        }
        self._patroni[node] = self._run(
            ("patroni", str(self._file)), self._directory / f"node{node}.log", environment, self.network.command(node)
        )

    def _run(
        self, command: Sequence[str], log: Path, environment: dict[str, str] | None = None, before: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        words = [*before, "runuser", "-u", "postgres", "--", *command]
        with log.open("ab") as output:
            return subprocess.Popen(words, env=environment, stdout=output, stderr=output, start_new_session=True)

    def _own(self, path: Path) -> None:
        path.mkdir(mode=0o700, exist_ok=True)
        shutil.chown(path, "postgres")

    def members(self) -> list[Member]:
        for node in NODES:
            with suppress(OSError, ValueError, http.client.HTTPException):
                known = json.loads(self._ask_patroni(node, "GET", "/cluster", timeout=1))["members"]
                return [Member(int(each["name"][-1]), each["role"], each["state"]) for each in known]
        return []

    def _ask_patroni(self, node: int, method: str, path: str, body: bytes | None = None, *, timeout: float) -> bytes:
        connection = http.client.HTTPConnection(self.network.address(node), _REST, timeout=timeout)
        with closing(connection):
            connection.request(method, path, body, {"Content-Type": "application/json"})
            return connection.getresponse().read()

    def leader(self) -> int | None:
        found = [each.node for each in self.members() if each.role == "leader" and each.state == "running"]
        return found[0] if found else None

    def followers(self) -> list[str]:
        leader = self.leader()
        try:
            return [] if leader is None else self.run_sql(leader, _FOLLOWERS).splitlines()
        except subprocess.CalledProcessError:
            return []

    def is_whole(self) -> bool:
        """Return whether there is a primary, and both others follow.

        Where a follower has to be synchronous, Patroni must have named one, too: nobody else may become primary. The
        primary does not wait for that, but for any follower.
        """
        is_named = any(each.role == "sync_standby" for each in self.members())
        return (is_named or not self._is_synchronous) and len(self.followers()) == len(NODES) - 1

    def await_whole(self, seconds: float) -> list[str]:
        """Wait until it is whole. A node that does not follow of itself is copied again; returns the names of these."""
        began, copied = time.monotonic(), list[str]()
        while not self.is_whole():
            lasted = time.monotonic() - began
            if lasted > seconds:
                raise TimeoutError(f"the database is not whole after {seconds:g} s: {self.members()}")
            if lasted > _BY_ITSELF and not copied and (leader := self.leader()):
                copied = [f"node{node}" for node in NODES if node != leader and f"node{node}" not in self.followers()]
                for name in copied:
                    with suppress(OSError, http.client.HTTPException):
                        self._ask_patroni(int(name[-1]), "POST", "/reinitialize", b'{"force": true}', timeout=10)
            time.sleep(0.5)
        return copied

    def processes(self, node: int) -> list[int]:
        """The processes of a node: Patroni's, and PostgreSQL's, which have no parent."""
        found = descendants(self._patroni[node].pid)
        with suppress(OSError, ValueError, IndexError):
            postmaster = int((self._directory / f"node{node}/data/postmaster.pid").read_text().split()[0])
            found += descendants(postmaster)
        return list(dict.fromkeys(found))

    def kill(self, node: int) -> None:
        """End a node at once: Patroni first, which would start PostgreSQL again."""
        send(self.processes(node), signal.SIGKILL)
        self._patroni[node].wait()

    def hold_back(self, node: int) -> None:
        """Let a primary send nothing to the others any more, until it is killed."""
        send((each for each in self.processes(node) if b"walsender" in _command_line(each)), signal.SIGSTOP)

    def close(self) -> None:
        for node in self._patroni:
            self.kill(node)
        if self._etcd_process is not None:
            send(descendants(self._etcd_process.pid), signal.SIGKILL)
            self._etcd_process.wait()
        self.network.close()
        self._memory.cleanup()


def _command_line(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


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
