"""Ceph's radosgw over a cluster of one host: a monitor and one OSD that keeps everything in memory, on loopback.

All of it is in one directory, and ends with the block. It runs as whoever runs the tests.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import S3Store

from tests.postgresql.server import free_port
from tests.s3.server import ACCESS_KEY, BUCKET, SECRET_KEY

PROGRAMS = ("ceph-mon", "ceph-osd", "ceph", "radosgw", "radosgw-admin", "monmaptool")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
"""Programs that are not installed."""

_START = 60.0
_CONFIG = """[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{monitor}
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
auth allow insecure global id reclaim = true
keyring = {root}/keyring
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
mon allow pool size one = true
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 4294967296
osd heartbeat grace = 600
mon data avail crit = 1
mon data avail warn = 1
mon data = {root}/mon
osd data = {root}/osd
run dir = {root}/run
admin socket = {root}/run/$name.asok
pid file = {root}/run/$name.pid
log file = {root}/$name.log
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind ipv6 = false
rgw frontends = beast endpoint=127.0.0.1:{gateway}
rgw run sync thread = false
rgw dynamic resharding = false
"""


class NotStartedError(Exception):
    """A cluster that does not come up; the text says where it stopped."""


@dataclass
class Gateway:
    root: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "us-east-1"}

    @property
    def store(self) -> S3Store:
        return S3Store(
            BUCKET,
            endpoint=self.url,
            region="us-east-1",
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True},
        )

    def keys(self) -> list[str]:
        return sorted(each["path"] for page in obstore.list(self.store) for each in page)

    def uploads(self) -> int:
        """Count the multipart uploads that are not complete, as the index of the bucket has them."""
        listed = _said("radosgw-admin", "-c", f"{self.root}/ceph.conf", "bi", "list", f"--bucket={BUCKET}")
        return sum(".meta" in line and "_multipart_" in line and '"idx"' in line for line in listed.splitlines())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def start(self) -> None:
        self.process = _begun(self.root, "radosgw", "-n", "client.rgw")
        _wait_for(self.url, self.root)


@contextmanager
def serving_gateway(root: Path) -> Iterator[Gateway]:
    """Serve S3 by a new cluster in a directory for a block.

    Raises:
        NotStartedError: it does not come up.
    """
    for name in ("mon", "osd", "run"):
        (root / name).mkdir(parents=True)
    (root / "keyring").touch()
    fsid, monitor, port = str(uuid.uuid4()), free_port(), free_port()
    (root / "ceph.conf").write_text(_CONFIG.format(fsid=fsid, root=root, monitor=monitor, gateway=port))
    config = f"{root}/ceph.conf"
    with ExitStack() as stack:
        _said("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v1:127.0.0.1:{monitor}]", f"{root}/monmap")
        _said("ceph-mon", "--mkfs", "-i", "a", "--monmap", f"{root}/monmap", "-c", config)
        stack.callback(_end, _begun(root, "ceph-mon", "-i", "a"))
        osd = str(uuid.uuid4())
        _said("ceph", "-c", config, "osd", "new", osd)
        _said("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd, "-c", config)
        stack.enter_context(_osd(root, config))
        keys = ("--access-key", ACCESS_KEY, "--secret", SECRET_KEY)
        _said("radosgw-admin", "-c", config, "user", "create", "--uid", "test", "--display-name", "test", *keys)
        gateway = Gateway(root, port, _begun(root, "radosgw", "-n", "client.rgw"))
        stack.callback(lambda: _end(gateway.process))
        _wait_for(gateway.url, root)
        _make_bucket(gateway)
        yield gateway


@contextmanager
def _osd(root: Path, config: str) -> Iterator[None]:
    """Run the OSD for a block; it is begun again where it gives up, because the monitor was not ready for it."""
    process, deadline = _begun(root, "ceph-osd", "-i", "0"), time.monotonic() + _START
    try:
        while "1 up" not in _said("ceph", "-c", config, "osd", "stat"):
            if time.monotonic() > deadline:
                raise NotStartedError(f"the OSD does not come up: see {root}")
            if process.poll() is not None:
                process = _begun(root, "ceph-osd", "-i", "0")
            time.sleep(0.5)
        yield
    finally:
        _end(process)


def _make_bucket(gateway: Gateway) -> None:
    """Make the bucket, by a signed address: the library makes none."""
    signed = obstore.sign(gateway.store, "PUT", "", dt.timedelta(seconds=60))
    with urllib.request.urlopen(urllib.request.Request(signed, method="PUT")) as answer:  # noqa: S310
        assert answer.status == 200


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_START, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        output = str(getattr(error, "stderr", "") or error)
        raise NotStartedError(f"{command[0]}: {output.strip().splitlines()[-1:]}") from error
    return done.stdout


def _begun(root: Path, *command: str) -> subprocess.Popen[bytes]:
    with (root / f"{command[0]}.out").open("ab") as output:
        arguments = [*command, "-c", f"{root}/ceph.conf", "-f"]
        return subprocess.Popen(arguments, stdout=output, stderr=output, env={**os.environ, "TMPDIR": str(root)})


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGCONT)
    process.kill()  # everything is in memory
    process.wait()


def _wait_for(url: str, root: Path) -> None:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline:
        with suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=5):  # noqa: S310
            return
        time.sleep(0.2)
    raise NotStartedError(f"radosgw does not answer at {url}: see {root}")
