"""The least a Flask application can do: return a constant for a GET, and take what is sent."""

from client import BODY
from flask import Flask, Response

app = Flask(__name__)


@app.get("/")
def constant() -> Response:
    """A constant of the size of the benchmark's document."""
    return Response(BODY, content_type="application/xml")


@app.post("/")
def take() -> tuple[str, int]:
    return "", 204
