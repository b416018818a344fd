"""The least a Flask application can do for a GET: return a constant."""

from client import BODY
from flask import Flask, Response

app = Flask(__name__)


@app.get("/")
def constant() -> Response:
    """A constant of the size of the benchmark's document."""
    return Response(BODY, content_type="application/xml")
