"""Errors that nobody foresaw: one line, no traceback on the wire, everything in the log."""

import io
import json
import sys

import pytest
from flask import Response

from persistence.dialect import SVC
from persistence.http.application import ExactFlask, RouteScope
from persistence.http.logs import RequestLog
from persistence.http.middleware import CleanRequests


def test_a_defect_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stderr", written)
    app = ExactFlask(SVC)
    app.wsgi_app = RequestLog(CleanRequests(app.wsgi_app, SVC, accepts_foreign=False))  # type: ignore[method-assign]

    @app.get("/defect", scope=RouteScope.NOTHING)
    def defect() -> Response:
        raise RuntimeError("inner\nworkings")

    answer = app.test_client().get("/defect", headers={"X-Request-Id": "defect-1"})
    assert answer.status_code == 500
    assert answer.text == "internal error; the log has the details under this request's id\n"
    lines = [json.loads(line) for line in written.buffer.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert [(line["id"], line["event"]) for line in lines] == [("defect-1", "unexpected"), ("defect-1", "request")]
    assert "RuntimeError" in lines[0]["exception"]
