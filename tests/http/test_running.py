"""The running service: health, readiness, logs and limits of waiting."""

import fcntl
import json
import shutil
import time
from pathlib import Path

import pytest

from persistence.storage.locks import stripe
from tests.in_process import serving
from tests.served import served
from tests.service import PUBLIC, V1, Service, running
from tests.sidecars import resealed


def test_a_healthy_service_says_so_and_one_with_too_little_space_is_not_ready(svc: Service, tmp_path: Path) -> None:
    for path in ("/healthz", "/readyz"):
        answer = svc.raw("GET", path)
        assert (answer.status, answer["Content-Type"]) == (200, "text/plain; charset=utf-8")
    with serving(tmp_path, env={"PERSISTENCE_MIN_FREE": str(1 << 60)}) as service:
        assert service.raw("GET", "/readyz").refuses(503, "bytes are free")
        assert service.raw("GET", "/healthz").status == 200


def test_a_writer_that_waits_too_long_is_told_to_retry(tmp_path: Path) -> None:
    """Design, section 3: a deadline, 503 with Retry-After; readers and other documents go on."""
    with running(tmp_path, env={"PERSISTENCE_LOCK_TIMEOUT": "0.3"}) as service:
        service.put("a/b/data/D/data.xml", **V1)
        lock = service.data / ".locks" / f"{stripe(('a', 'b', 'data', 'D')):02x}"
        with lock.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            began = time.monotonic()
            busy = service.put("a/b/data/D/data.xml")
            assert (busy.status, busy["Retry-After"]) == (503, "1")
            assert 0.25 < time.monotonic() - began < 10
            assert service.get("a/b/data/D/data.xml").status == 200
            assert service.put("a/b/data/other/data.xml", **V1).status == 201
        assert service.put("a/b/data/D/data.xml").status == 204


def test_damage_is_said_and_not_taken_for_absence(svc: Service, form: str) -> None:
    """Design, section 3: 500 with a reason, on reading and on writing; other documents go on."""
    svc.put(f"{form}/data/D/data.xml", **V1)
    (svc.data / f"{form}/data/D/data.xml.json").write_text("{")
    for answer in (svc.get(f"{form}/data/D/data.xml"), svc.put(f"{form}/data/D/data.xml")):
        assert (answer.status, "data.xml.json cannot be read" in answer.cause) == (500, True)
    assert svc.put(f"{form}/data/E/data.xml", **V1).status == 201
    assert svc.delete(f"{form}/data/").status == 500
    assert svc.get(f"{form}/data/E/data.xml").status == 404


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("content_type", "a/b\r\nX: y"),
        ("content_type", "a/b; x=\0\u20ac"),
        ("id", "0" * 40 + "\n"),
        ("modified", "2025-03-04T05:06:07.089Z\n"),
        ("stage", "a\r\nX: y"),
    ],
)
def test_no_line_of_a_sidecar_becomes_a_header(svc: Service, form: str, field: str, value: str) -> None:
    """A sidecar edited by hand is damage, said in one line; once taken in, its texts go out as one line each."""
    svc.put(f"{form}/data/D/data.xml", **V1)
    path = svc.data / f"{form}/data/D/data.xml.json"
    whole = path.read_bytes()
    is_malformed = field in ("id", "modified")
    path.write_text(json.dumps(json.loads(whole) | {field: value}))
    answer = svc.get(f"{form}/data/D/data.xml")
    assert answer["X-Request-Id"]
    assert (answer.status, answer["X"], answer.body.count(b"\n")) == (500, None, 1)
    assert ("cannot be read" if is_malformed else "was changed since it was written") in answer.cause
    if not is_malformed:
        path.write_bytes(whole)
        resealed(path, **{field: value})
        answer = svc.get(f"{form}/data/D/data.xml")
        assert answer["X-Request-Id"]
        assert (answer.status, answer["X"]) == (200, None)


by_gunicorn = served(start=running, command="gunicorn")


@pytest.mark.parametrize("served", ["svc", "by_gunicorn"])
def test_no_header_moves_the_path(request: pytest.FixtureRequest, served: str, form: str) -> None:
    """What gunicorn believes of a proxy by default; a path that does not begin with it would be answered 500."""
    service: Service = request.getfixturevalue(served)
    for name in ("SCRIPT_NAME", "PATH_INFO"):
        assert service.raw("GET", "/healthz", {name: "/crud"}).status == 200
        assert service.raw("GET", "/crud/healthz", {name: "/crud"}).status == 404
    assert service.put(f"{form}/data/D/data.xml", **V1).status == 201
    assert service.get(f"{form}/data/D/data.xml").status == 200


def test_nothing_is_made_in_the_place_of_a_disk_that_is_gone(tmp_path: Path) -> None:
    """An unmounted disk leaves an empty directory; what is written there would hide below the disk that comes back."""
    with running(tmp_path, workers=1) as service:
        assert service.put("hr/leave/data/d/data.xml", b"<d/>", **V1).status == 201
        shutil.rmtree(service.data / ".pages", ignore_errors=True)
        gone = service.data.rename(tmp_path / "gone")
        service.data.mkdir()
        for _ in range(5):
            assert service.get("hr/leave/data/d/data.xml").status >= 404
            assert service.put("hr/leave/data/e/data.xml", b"<d/>", **V1).status >= 500
            assert service.raw("GET", "/readyz").status == 503
            service.raw("GET", "/admin/")
            service.raw("POST", f"{PUBLIC}/search/hr/leave", {"Content-Type": "application/xml"}, b"<search/>")
        time.sleep(2.5)  # what is noted about once a second
        assert list(service.data.iterdir()) == []
        service.data.rmdir()
        gone.rename(service.data)
        assert service.get("hr/leave/data/d/data.xml").status == 200
        assert service.put("hr/leave/data/e/data.xml", b"<d/>", **V1).status == 201
