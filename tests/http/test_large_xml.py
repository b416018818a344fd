"""Large XML: a bound of its own when it is sent, and turns for requests that parse what is stored (limits.py)."""

import threading
import time
from pathlib import Path

import pytest

from persistence.errors import BusyError
from persistence.limits import MOST_PARSED, PARSING_PATIENCE, SMALL
from persistence.services.transforms import parsing
from tests.in_process import serving
from tests.service import PROVIDER, PUBLIC

LARGEST = 2 << 20
HEADERS = {"Svc-Form-Definition-Version": "1", "Content-Type": "application/xml"}


@pytest.mark.parametrize("face", [PUBLIC, PROVIDER], ids=["public", "provider"])
def test_data_and_definitions_have_a_bound_of_their_own(tmp_path: Path, face: str) -> None:
    with serving(tmp_path, env={"PERSISTENCE_MAX_XML": str(LARGEST)}) as service:
        large, small = b"<d>%s</d>" % (b"x" * LARGEST), b"<d>%s</d>" % (b"x" * (LARGEST - 7))
        for path in ("form/form.xhtml", "data/D/data.xml", "draft/D/data.xml"):
            url = f"{face}/crud/a/b/{path}"
            refused = service.raw("PUT", url, HEADERS, large)
            assert (refused.status, refused.cause) == (413, f"the body is larger than the limit of {LARGEST} bytes")
            pieces = b"%x\r\n%s\r\n0\r\n\r\n" % (len(large), large)
            assert service.raw("PUT", url, {**HEADERS, "Transfer-Encoding": "chunked"}, pieces).status == 413
            assert service.raw("GET", url, HEADERS).status == 404
            assert service.raw("PUT", url, HEADERS, small).status == 201
        assert service.raw("PUT", f"{face}/crud/a/b/data/D/a.bin", HEADERS, large).status == 201


def test_few_large_documents_are_parsed_at_a_time_and_small_ones_always(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        for document, size in (("large", 2 * SMALL), ("small", 10)):
            body = b"<d>%s</d>" % (b"x" * size)
            assert service.raw("PUT", f"{PUBLIC}/crud/a/b/data/{document}/data.xml", HEADERS, body).status == 201
        assert service.raw("PUT", f"{PUBLIC}/crud/a/b/form/form.xhtml", HEADERS, b"<html/>").status == 201
        began = time.monotonic()
        with parsing(SMALL + 1), parsing(SMALL + 1):
            for path in ("crud/a/b/data/{}/data.xml?nonrelevant=remove", "../a/b/attachments?document={}"):
                url = f"{PUBLIC}/{path}".replace("/persistence/..", "")
                busy = service.raw("GET", url.format("large"), HEADERS)
                assert (busy.status, busy["Retry-After"]) == (503, "1"), busy.cause
                assert service.raw("GET", url.format("small"), HEADERS).status == 200
            with pytest.raises(BusyError), parsing(SMALL + 1):
                pass
        assert time.monotonic() - began < 10 * PARSING_PATIENCE
        assert service.raw("GET", f"{PUBLIC}/crud/a/b/data/large/data.xml?nonrelevant=remove", HEADERS).status == 200


def test_a_turn_is_given_back(tmp_path: Path) -> None:
    del tmp_path
    for _ in range(3 * MOST_PARSED):
        with pytest.raises(RuntimeError), parsing(SMALL + 1):
            raise RuntimeError
    taken = [threading.Event() for _ in range(MOST_PARSED)]

    def take(event: threading.Event) -> None:
        with parsing(SMALL + 1):
            event.set()

    for each in taken:
        threading.Thread(target=take, args=(each,)).start()
    assert all(each.wait(10) for each in taken)
