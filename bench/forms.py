"""How long the list of all published forms takes, beside a Flask application that returns the same bytes.

``python bench/forms.py`` publishes 500, 2,000 and 10,000 versions, four of each form, with titles and permissions, and
prints the median milliseconds of one GET: of 20 by a worker that knows the forms, and of 5 that are each the first.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import statistics
import tempfile
import time
from pathlib import Path

from servers import SERVICE, server

from persistence.model.sidecar import SCHEMA, Sidecar, digest_text, fresh_id, stamp
from persistence.model.texts import next_after
from persistence.model.versions import FormMetadata
from persistence.storage import stored_revision
from persistence.storage.root import init
from persistence.storage.store import Store

SIZES = (500, 2_000, 10_000)
_VERSIONS, _FORMS = 4, 25
_LIST = "/form?all-versions=true&all-forms=true"
_BODY = b"<html/>"
_DIGEST = digest_text(hashlib.sha256(_BODY).hexdigest())
_METADATA = FormMetadata(
    titles={"en": "Request for leave", "de": "Antrag auf Urlaub", "fr": "Demande de congé"},
    permissions='<permissions><permission operations="create"></permission>'
    '<permission operations="read update"><owner></owner></permission>'
    '<permission operations="read delete"><user-role any-of="clerk"></user-role></permission></permissions>',
)


def main() -> None:
    """Measure and print."""
    print("| versions | bytes | first, ms | warm, ms | Flask constant, ms | ratio |\n|--:|--:|--:|--:|--:|--:|")
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="persistence-bench-") as directory:
            _plant(Path(directory, "data"), size)
            first = [_times(f"{directory}/data", 1)[0][0] for _ in range(5)]
            warm, body = _times(f"{directory}/data", 21)
            Path(directory, "body").write_bytes(body)
            with server("same:app", directory, 1, 2) as port:
                constant = [_timed(port, "/")[0] for _ in range(21)]
            ours, theirs = statistics.median(warm[1:]), statistics.median(constant[1:])
            cold = statistics.median(first)
            print(
                f"| {size} | {len(body)} | {cold:.1f} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.1f} |", flush=True
            )


def warm_list(size: int) -> float:
    """Return the median milliseconds of the list of so many versions, by a worker that knows them."""
    with tempfile.TemporaryDirectory(prefix="persistence-bench-") as directory:
        _plant(Path(directory, "data"), size)
        return statistics.median(_times(f"{directory}/data", 21)[0][1:])


def _times(data: str, calls: int) -> tuple[list[float], bytes]:
    """Milliseconds of the calls to a service with one worker that has just started, and the body of the last."""
    with server(SERVICE, data, 1, 2) as port:
        _timed(port, "/healthz")  # the worker has started
        answers = [_timed(port, _LIST) for _ in range(calls)]
    return [milliseconds for milliseconds, _ in answers], answers[-1][1]


def _timed(port: int, path: str) -> tuple[float, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    began = time.perf_counter()
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    milliseconds = (time.perf_counter() - began) * 1000
    connection.close()
    if response.status != 200:
        raise SystemExit(f"GET {path} answered {response.status}")
    return milliseconds, body


def _plant(root: Path, count: int) -> None:
    """Lay down definitions as the service leaves them, without its fsyncs."""
    init(str(root))
    Store(str(root), lock_timeout=1).close()
    for number in range(count):
        form, version = divmod(number, _VERSIONS)
        address = f"app-{form // _FORMS:03}/form-{form % _FORMS:02}/form/{version + 1}/form.xhtml"
        file = root / address
        file.parent.mkdir(parents=True, mode=0o750)
        now = next_after(None)
        sidecar = Sidecar(
            schema=SCHEMA,
            id=fresh_id(),
            version=version + 1,
            modified=now,
            created=now,
            size=len(_BODY),
            digest=_DIGEST,
            modifier="lea",
            metadata=_METADATA,
        )
        file.write_bytes(_BODY)
        file.with_name("form.xhtml.json").write_bytes(stored_revision.encode(sidecar, address))
        os.utime(file, ns=(stamp(sidecar),) * 2)


if __name__ == "__main__":
    main()
