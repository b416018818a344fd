"""A small S3 server in the process of the tests: the verbs that are used, in memory, with faults on demand.

It judges no signatures, only which key they are made with. Everything else is as the documentation of S3 has it, also
that a multipart upload is invisible until it is completed.
"""

from __future__ import annotations

import hashlib
import re
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

ACCESS_KEY = "TESTKEY"
SECRET_KEY = "not-to-be-shown"  # noqa: S105
BUCKET = "forms"
_PAGE = 7
"""Keys in a page of a list: so few that a list of some has several."""


@dataclass
class Fault:
    """A fault of the next ``times`` requests whose ``METHOD key?query`` matches.

    With a ``status`` they are answered so, with ``seconds`` they wait, and with ``is_cut`` the connection breaks in the
    middle: of the answer of a GET, or of the body of a PUT. With ``after`` so many that match go well before. With
    ``drips`` a body is sent in ten pieces, so many seconds apart.
    """

    pattern: str
    status: int = 0
    code: str = ""
    seconds: float = 0.0
    is_cut: bool = False
    times: int = 1_000_000
    after: int = 0
    drips: float = 0.0


@dataclass
class Stored:
    data: bytes
    time: float = field(default_factory=time.time)

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


class S3Server(socketserver.ThreadingTCPServer):
    """The server; ``objects`` are those of the bucket, ``parts`` those of uploads that are not complete."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.faults: list[Fault] = []
        self.seen: list[str] = []
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_ENDPOINT_URL": self.url}

    def keys_of(self, prefix: str = "") -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))

    def fault_of(self, what: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and re.search(fault.pattern, what):
                    if fault.after:
                        fault.after -= 1
                        continue
                    fault.times -= 1
                    return fault
        return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    server: S3Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Say nothing."""

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        what = f"{self.command} {key}{'?' if query else ''}{'&'.join(query)}"
        self.server.seen.append(what)
        self.fault = self.server.fault_of(what)
        if self.fault is not None and self._failed(self.fault):
            return
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if f"Credential={ACCESS_KEY}/" not in (self.headers.get("Authorization") or ""):
            self._refuse(403, "InvalidAccessKeyId")
        elif bucket != BUCKET:
            self._refuse(404, "NoSuchBucket")
        else:
            with self.server.lock:
                answer = getattr(self, f"_{self.command.lower()}")(key, query, data)
            self._send(*answer)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _handle  # noqa: N815 - as the library calls them

    def _failed(self, fault: Fault) -> bool:
        if fault.seconds:
            time.sleep(fault.seconds)
        if fault.is_cut and self.command != "GET":
            self.rfile.read(int(self.headers.get("Content-Length") or 0) // 2)
            self.close_connection = True
            return True
        if fault.status:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._refuse(fault.status, fault.code)
            return True
        return False

    def _refuse(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>m</Message><AWSAccessKeyId>{ACCESS_KEY}</AWSAccessKeyId></Error>"
        self._send(status, body.encode(), {})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.fault is not None and self.fault.is_cut:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        if self.fault is not None and self.fault.drips:
            for begin in range(0, len(body), step := -(-len(body) // 10)):
                self.wfile.write(body[begin : begin + step])
                time.sleep(self.fault.drips)
            return
        self.wfile.write(body)

    def _get(self, key: str, query: dict[str, str], _: bytes) -> tuple[int, bytes, dict[str, str]]:
        if not key:
            return self._list(query)
        stored = self.server.objects.get(key)
        if stored is None:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>", {}
        when = format_datetime(datetime.fromtimestamp(stored.time, UTC), usegmt=True)
        headers = {"ETag": stored.etag, "Last-Modified": when}
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if match is None:
            return 200, stored.data, headers
        first, size = int(match[1]), len(stored.data)
        if first >= size:
            return 416, b"<Error><Code>InvalidRange</Code></Error>", {}
        last = min(int(match[2] or size - 1), size - 1)
        return 206, stored.data[first : last + 1], {**headers, "Content-Range": f"bytes {first}-{last}/{size}"}

    def _head(self, key: str, query: dict[str, str], data: bytes) -> tuple[int, bytes, dict[str, str]]:
        return self._get(key, query, data)

    def _put(self, key: str, query: dict[str, str], data: bytes) -> tuple[int, bytes, dict[str, str]]:
        if "uploadId" in query:
            self.server.parts[query["uploadId"]][int(query["partNumber"])] = data
            return 200, b"", {"ETag": Stored(data).etag}
        if self.headers.get("If-None-Match") == "*" and key in self.server.objects:
            return 412, b"<Error><Code>PreconditionFailed</Code></Error>", {}
        self.server.objects[key] = stored = Stored(data)
        return 200, b"", {"ETag": stored.etag}

    def _post(self, key: str, query: dict[str, str], _: bytes) -> tuple[int, bytes, dict[str, str]]:
        if "uploads" in query:
            upload = f"u{len(self.server.seen)}"
            self.server.parts[upload] = {}
            body = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            return 200, body.encode(), {}
        parts = self.server.parts.pop(query["uploadId"])
        self.server.objects[key] = stored = Stored(b"".join(parts[number] for number in sorted(parts)))
        body = f"<CompleteMultipartUploadResult><ETag>{escape(stored.etag)}</ETag></CompleteMultipartUploadResult>"
        return 200, body.encode(), {}

    def _delete(self, key: str, query: dict[str, str], _: bytes) -> tuple[int, bytes, dict[str, str]]:
        if "uploadId" in query:
            self.server.parts.pop(query["uploadId"], None)
        else:
            self.server.objects.pop(key, None)
        return 204, b"", {}

    def _list(self, query: dict[str, str]) -> tuple[int, bytes, dict[str, str]]:
        after = query.get("continuation-token") or query.get("start-after", "")
        found = [key for key in self.server.keys_of(query.get("prefix", "")) if key > after]
        entries = "".join(map(self._entry, found[:_PAGE]))
        is_cut = len(found) > _PAGE
        token = f"<NextContinuationToken>{escape(found[_PAGE - 1])}</NextContinuationToken>" if is_cut else ""
        truncated = f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>"
        return 200, f"<ListBucketResult>{truncated}{token}{entries}</ListBucketResult>".encode(), {}

    def _entry(self, key: str) -> str:
        stored = self.server.objects[key]
        when = datetime.fromtimestamp(stored.time, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return (
            f"<Contents><Key>{escape(key)}</Key><LastModified>{when}</LastModified><ETag>{escape(stored.etag)}</ETag>"
            f"<Size>{len(stored.data)}</Size></Contents>"
        )


@contextmanager
def serving_objects() -> Iterator[S3Server]:
    server = S3Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
