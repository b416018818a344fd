"""A request about data in which nothing is encrypted passes the codec quickly."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from flask.testing import FlaskClient

from persistence.app import create_app
from persistence.services import codec
from persistence.settings import Settings
from tests.encrypted_form import UNMARKED
from tests.initialised import initialised
from tests.opened import opened
from tests.service import PUBLIC

MODULES = {codec.__file__, codec.__file__}
DATA = f"{PUBLIC}/crud/a/b/data/1/data.xml"
SAVED = {"data": b"<form><person><name>Ada</name></person></form>", "headers": {"Svc-Form-Definition-Version": "1"}}


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    client = opened(create_app(Settings(data=initialised(tmp_path / "data")))).test_client()
    assert client.put(f"{PUBLIC}/crud/a/b/form/form.xhtml", data=UNMARKED).status_code == 201
    assert client.put(DATA, **SAVED).status_code == 201
    return client


def passed(ask: Callable[[], int], status: int) -> list[str]:
    """The functions of the codec that are called for a request, each time they are, and generators when they go on."""
    calls = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename in MODULES:
            calls.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        answered = ask()
    finally:
        sys.setprofile(None)
    assert answered == status
    return calls


def test_reading_passes_the_codec_in_three_calls(client: FlaskClient) -> None:
    assert len(passed(lambda: client.get(DATA).status_code, 200)) <= 3
    assert len(passed(lambda: client.head(DATA).status_code, 200)) <= 3


def test_saving_passes_the_codec_in_fifteen_calls(client: FlaskClient) -> None:
    calls = passed(lambda: client.put(DATA, **SAVED).status_code, 204)
    assert 0 < len(calls) <= 15, calls
