"""The output of wrk is read, and its script sends the shares and the numbers that it should."""

from __future__ import annotations

import re
import shutil
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from client import MARK, binary, putting, request
from wrk import Kind, Load, mixed, parse


def test_the_result_is_the_line_of_json() -> None:
    output = """Running 1s test @ http://127.0.0.1:1/
  23 requests in 1.00s, 12.73KB read
{"requests":23,"seconds":2.0,"p50":1.5,"p99":4.25,"failed":1,"broken":0,"kinds":[{"failed":1,"classes":[[0.5,3]]}]}
"""
    assert parse(output) == Load(23, 2.0, 1.5, 4.25, 1, 0, (Kind(1, ((0.5, 3),)),))
    assert parse(output).rate == 11.5


def test_output_without_a_result_is_refused() -> None:
    with pytest.raises(ValueError, match="unable to connect"):
        parse("unable to connect to 127.0.0.1:1")


@pytest.mark.parametrize(("part", "milliseconds"), [(0.5, 2.0), (0.75, 2.0), (0.76, 8.0), (1, 8.0)])
def test_a_percentile_is_the_class_that_holds_it(part: float, milliseconds: float) -> None:
    assert Kind(0, ((8.0, 1), (1.0, 1), (2.0, 2))).percentile(part) == milliseconds


def test_a_kind_without_responses_has_no_percentile() -> None:
    assert Kind(0, ()).percentile(0.5) == 0


def test_attachments_have_no_byte_that_parts_requests() -> None:
    assert len(binary(100_000)) == 100_000
    assert b"\0" not in binary(100_000)


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_wrk_sends_each_kind_with_its_share_and_each_number_once() -> None:
    seen: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(204)

        def do_GET(self) -> None:
            self._answer(404 if self.path == "/none" else 200)

        def _answer(self, status: int) -> None:
            seen[self.path] += 1
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        kinds = {
            "get": (3.0, [request("GET", "/a"), request("GET", "/b")]),
            "put": (1.0, [putting(f"/new-{MARK}", b"<form/>")]),
            "none": (1.0, [request("GET", "/none")]),
        }
        load = mixed(server.server_port, kinds, 2, 1, threads=2)
        server.shutdown()
        thread.join()
    gets, puts, missing = load.kinds
    new = [path for path in seen if path.startswith("/new-")]
    assert load.broken == 0
    assert (gets.failed, puts.failed, missing.failed) == (0, 0, missing.requests)
    assert gets.requests > puts.requests > 0
    assert seen["/a"] > 0
    assert seen["/b"] > 0
    assert all(re.fullmatch(r"/new-\d{10}", path) and seen[path] == 1 for path in new)
    assert len(new) >= puts.requests
