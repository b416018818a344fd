"""The least a Flask application can do for a list: return bytes that it was given."""

import os
from pathlib import Path

from flask import Flask, Response

BODY = Path(os.environ["BENCH_DATA"], "body").read_bytes()

app = Flask(__name__)


@app.get("/")
def same() -> Response:
    """The bytes of the file."""
    return Response(BODY, content_type="application/xml")
