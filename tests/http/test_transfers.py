"""Large bodies over HTTP: streamed both ways, whatever their size."""

import hashlib
import http.client
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.service import V1, Service, running

pytestmark = pytest.mark.xdist_group("transfers")  # the large content is stored once

SIZE = 256 << 20
PIECE = bytes(range(256)) * 4096
ALLOWED_GROWTH = 16 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of its own, so that its memory is its own."""
    with running(tmp_path_factory.mktemp("large"), threads=1, env={"PERSISTENCE_MAX_XML": str(1 << 30)}) as service:
        service.timeout = 100
        service.put("a/b/data/D/data.xml", **V1)
        yield service


def digest(pieces: Iterable[bytes]) -> bytes:
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece)
    return total.digest()


def digest_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return digest(iter(lambda: file.read(1 << 20), b""))


@cache
def expected() -> bytes:
    return digest([PIECE] * (SIZE // len(PIECE)))


def reset_peak(pid: int) -> int:
    """Forget the peak of a process's memory and return what it uses now, in bytes."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return resident(pid, "VmRSS")


def resident(pid: int, name: str) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def upload(service: Service, name: str, *, chunked: bool) -> None:
    path = f"{service.face}/crud/a/b/data/D/{name}"
    pieces = iter([PIECE] * (SIZE // len(PIECE)))
    headers = {"Content-Type": "video/mp4"} | ({} if chunked else {"Content-Length": str(SIZE)})
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=100)
    connection.request("PUT", path, pieces, headers, encode_chunked=chunked)
    assert connection.getresponse().status == 201
    connection.close()


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_an_upload_does_not_grow_the_worker(large: Service, *, chunked: bool) -> None:
    """The issue: 256 MiB raise a worker's memory by less than 16 MiB; announced by length or chunked."""
    (worker,) = large.workers()
    large.put("a/b/data/D/warm.bin", PIECE)
    before = reset_peak(worker)
    upload(large, f"large-{chunked}.bin", chunked=chunked)
    assert resident(worker, "VmHWM") - before < ALLOWED_GROWTH
    assert digest_of(large.data / f"a/b/data/D/large-{chunked}.bin") == expected()


def test_a_download_does_not_grow_the_worker(large: Service) -> None:
    (worker,) = large.workers()
    large.put("a/b/data/D/warm.bin", PIECE)
    large.get("a/b/data/D/warm.bin")
    upload(large, "film.bin", chunked=False)
    before = reset_peak(worker)
    connection = http.client.HTTPConnection("127.0.0.1", large.port, timeout=100)
    path = f"{large.face}/crud/a/b/data/D/film.bin"
    connection.request("GET", path)
    response = connection.getresponse()
    assert response.headers["Content-Length"] == str(SIZE)
    received = digest(iter(lambda: response.read(1 << 20), b""))
    connection.close()
    assert received == expected()
    assert resident(worker, "VmHWM") - before < ALLOWED_GROWTH


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_downloads_go_out_by_sendfile(large: Service, tmp_path: Path) -> None:
    """The issue: the kernel copies, the worker does not; of a range, too."""
    (worker,) = large.workers()
    large.put("a/b/data/D/sent.bin", PIECE)
    log = tmp_path / "trace"
    tracer = subprocess.Popen(
        ["strace", "-f", "-o", str(log), "-e", "trace=sendfile", "-p", str(worker)], stderr=subprocess.PIPE, text=True
    )
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    if "attached" not in said:
        tracer.wait()
        pytest.skip(f"strace cannot attach here: {said.strip()}")
    assert large.get("a/b/data/D/sent.bin").body == PIECE
    assert large.get("a/b/data/D/sent.bin", {"Range": "bytes=1000-500999"}).body == PIECE[1000:501000]
    tracer.terminate()
    tracer.communicate(timeout=20)
    sent = [int(match[1]) for match in re.finditer(r"sendfile.*= (\d+)$", log.read_text(), re.MULTILINE)]
    assert sum(sent) == len(PIECE) + 500_000


def test_large_xml_does_not_grow_the_worker(large: Service) -> None:
    """The pre-pass and the removal of what is not relevant stream too: no tree is built of 64 MiB."""
    (worker,) = large.workers()
    row = b"<row>" + b"x" * 4000 + b"</row>\n"
    body = b"<d>" + row * ((64 << 20) // len(row)) + b"</d>"
    large.put("a/b/data/X/data.xml", b"<d/>", **V1)
    large.get("a/b/data/X/data.xml?nonrelevant=remove")
    before = reset_peak(worker)
    assert large.put("a/b/data/X/data.xml", body).status == 204
    assert large.get("a/b/data/X/data.xml?nonrelevant=remove").body == body
    assert resident(worker, "VmHWM") - before < 2 * ALLOWED_GROWTH
