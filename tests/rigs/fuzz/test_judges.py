"""The judges see what they are there to see."""

from __future__ import annotations

from email.message import Message
from http.client import HTTPMessage
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persistence.forms.controls import read_controls
from persistence.forms.migration import migrate
from tests.published import definition
from tests.rigs import processes
from tests.rigs.fuzz import bodies, interface, judge
from tests.rigs.fuzz.bodies import Bodies, Place, places
from tests.rigs.fuzz.documents import FR, broken, thrown
from tests.rigs.fuzz.judge import CUT_OFF, Exchange, Request
from tests.rigs.fuzz.runs import Job, measured, together
from tests.rigs.processes import Held, Worker
from tests.service import Answer, Service, running

DATA = b"/crud/a/f/data/d/data.xml"
PUBLISH = b"/fr/service/publish"
ATTACHMENTS = b"/fr/service/a/f/attachments"
LINE = {"Content-Type": "text/plain; charset=utf-8", "X-Request-Id": "1", "Content-Length": "4"}
READ = {"X-Request-Id": "1", "Content-Type": "application/xml"}
WRITTEN = {"X-Request-Id": "1", "Svc-Form-Definition-Version": "1"}
READ_ONCE = interface.read()


def answer(status: int, headers: dict[str, str], body: bytes = b"") -> Answer:
    message = HTTPMessage()
    for name, value in headers.items():
        cast("Message", message)[name] = value
    return Answer(status, message, body)


def refusal(status: int, body: bytes = b"no\n", **headers: str) -> Answer:
    return answer(status, {**LINE, **{name.replace("_", "-"): value for name, value in headers.items()}}, body)


def complaints(method: str, target: bytes, given: Answer | None, **more: Any) -> list[str]:
    request = Request(method.encode(), target, more.get("headers", ()), more.get("body"))
    return judge.complaints(Exchange(request, given, more.get("trouble", ""), more.get("rest", b""), 0.1), READ_ONCE)


@pytest.mark.parametrize(
    ("method", "target", "given", "what"),
    [
        ("PUT", DATA, answer(201, WRITTEN), None),
        ("GET", DATA, refusal(404), None),
        ("HEAD", DATA, refusal(404, b""), None),
        ("POST", DATA, refusal(405), None),
        ("GET", b"/nowhere", refusal(404), None),
        ("GET", DATA, refusal(403), None),
        ("GET", DATA, answer(200, {**READ, "Svc-Operations": "*"}), None),
        ("GET", DATA, answer(200, {**READ, "Svc-Operations": "create read list"}), None),
        ("POST", PUBLISH + b"?remote-server-url=http://a", refusal(403), None),
        ("POST", b"/fr/service/svc/builder/publish/d", refusal(410), None),
        ("GET", ATTACHMENTS + b"?document=d", answer(200, READ, b"<attachments/>"), None),
        ("HEAD", b"/fr/service/persistence/form/attachments", refusal(404, b""), None),
        ("GET", DATA, answer(400, {"Content-Type": "text/html"}, b"<html>"), None),
        ("GET", DATA, refusal(500), "status 500"),
        ("GET", DATA + b"?form-definition-format-version=4.8.0", refusal(501), "status 501"),
        ("POST", PUBLISH + b"?remote-server-url=http://a", refusal(501), "status 501"),
        ("POST", PUBLISH, refusal(410), "not documented"),
        ("GET", ATTACHMENTS, answer(200, {**READ, "Content-Type": "text/html"}, b"x"), "content type"),
        ("GET", DATA, answer(200, {**READ, "Svc-Operations": "read create"}), "Svc-Operations"),
        ("GET", DATA, answer(200, {**READ, "Svc-Operations": ""}), "Svc-Operations"),
        ("GET", DATA, refusal(503), "status 503"),
        ("GET", DATA, refusal(418), "not documented"),
        ("GET", DATA, answer(206, READ), "not documented"),
        ("GET", DATA, refusal(404, b"two\nlines\n"), "not one line"),
        ("GET", DATA, refusal(404, b"x" * 301 + b"\n"), "not one line"),
        ("GET", DATA, refusal(404, Content_Type="text/html"), "text/html"),
        ("GET", DATA, refusal(404, b"Traceback\n"), "traceback"),
        ("GET", DATA, refusal(404, X_Odd="1"), "X-Odd"),
        ("PUT", DATA, answer(204, WRITTEN, b"x"), "a body"),
        ("PUT", DATA, answer(201, {**WRITTEN, "ETag": "1", "Last-Modified": "now"}), "Last-Modified"),
        ("PUT", DATA, answer(201, {**WRITTEN, "Svc-Form-Definition-Version": "0"}), "not as documented"),
        ("GET", DATA, answer(200, {**READ, "Content-Type": "text/html"}, b"x"), "content type"),
        ("POST", b"/reindex/status", refusal(421), "nothing is documented"),
        ("GET", b"/nowhere", answer(200, {"X-Request-Id": "1"}), "nothing is documented"),
        ("POST", DATA, answer(200, {"X-Request-Id": "1"}), "nothing is documented"),
        ("GET", DATA, answer(200, {}), "without X-Request-Id"),
    ],
)
def test_bad_answers_are_told_from_good_ones(method: str, target: bytes, given: Answer, what: str | None) -> None:
    found = complaints(method, target, given)
    assert found == [] if what is None else what in " ".join(found)


def test_no_answer_is_a_complaint() -> None:
    assert complaints("PUT", DATA, None, trouble="no end", body=b"x" * 100_000) == ["no end"]
    assert complaints("PUT", DATA, None, trouble=CUT_OFF, body=b"x") == [CUT_OFF]
    assert complaints("PUT", DATA, None, trouble=CUT_OFF, body=b"x" * 100_000) == []
    assert complaints("PUT", DATA, answer(201, WRITTEN), rest=b"HTTP/1.1 200 OK")


def test_growth_is_seen() -> None:
    one, two = Worker(1, 10, 4, 40_000), Worker(2, 10, 4, 40_000)
    before = Held((one, two), 0)

    def grown(*workers: Worker, leftovers: int = 0) -> int:
        return len(list(processes.growth(before, Held(workers, leftovers), most_memory=1000, most_threads=5)))

    assert grown(one, two._replace(descriptors=9, threads=5, memory=41_000)) == 0
    assert grown(one, two._replace(descriptors=11)) == 1
    assert grown(one, two._replace(threads=6)) == 1
    assert grown(one, two._replace(memory=41_001)) == 1
    assert grown(one, two._replace(pid=3)) == 1
    assert grown(one, two, leftovers=1) == 1


def test_strays_are_seen(svc: Service, form: str) -> None:
    svc.put(f"{form}/data/D/data.xml", Form_Definition_Version=1)
    svc.put(f"{form}/data/D/data.xml")
    assert processes.strays(svc) == []
    for path in (svc.data.parent / "escaped", svc.data / "x.bin", svc.data / form / "data" / "D" / ".x"):
        path.write_bytes(b"")
        assert len(processes.strays(svc)) == 1
        path.unlink()


DECLARED = f'xmlns:fr="{FR}"'


@pytest.mark.parametrize(
    ("document", "name", "is_accepted"),
    [
        (b"<r xmlns:n='http://{'/>", "a namespace that is no URI", True),
        (b"<r xmlns:n='http://{'>", None, True),
        (b"<?xml version='1.1'?><r xmlns:n='http://{'/>", "a namespace that is no URI", True),
        ("<r xmlns:n='http://{'/>".encode("utf-16-le"), "unmarked UTF-16", True),
        (b"\xef\xbb\xbf<?xml version='1.0' encoding='ISO-8859-1'?><r>\xb4</r>", None, True),
        (b"<r xml:id='1'/>", "an xml:id that is no name", True),
        ("\ufeff<?xml version='1.0' encoding='ISO-8859-1'?><é/>".encode(), "untrue declaration", False),
        ("<r/>".encode("utf-16-le"), "unmarked UTF-16", True),
        ("<?xml version='1.0' encoding='Shift_JIS'?><r/>".encode("shift_jis"), "another encoding", False),
        ("<r/>".encode("utf-32"), "another encoding", False),
        ("<?xml version='1.0' encoding='UTF-8'?><r/>".encode("utf-16"), "untrue declaration", False),
        ("<\u3005/>".encode(), "names of the fifth edition", False),
        ("<?\u2078ml standalone='maybe'?><r/>".encode(), "names of the fifth edition", False),
        (b"<r/>", None, False),
        (b"<r>", None, True),
    ],
)
def test_known_differences_are_told_from_others(document: bytes, name: str | None, *, is_accepted: bool) -> None:
    assert bodies.difference(document, bodies.opinion(document), is_accepted=is_accepted) == name


@pytest.mark.parametrize("name", bodies.DIFFERENCES)
def test_differences_have_a_decision(name: str) -> None:
    assert bodies.DIFFERENCES[name].startswith(("accepted", "refused"))


class Faulty:
    def __init__(self, defect: str) -> None:
        self._defect = defect
        self._stored = b""

    def __call__(self, request: Request) -> Exchange:
        return Exchange(request, self._answer(request), "", b"", 0.1)

    def _answer(self, request: Request) -> Answer:
        body, target, defect = request.body or b"", request.target, self._defect
        if request.method == b"PUT":
            is_malformed = body == b"<r>" and defect != "accepts what is malformed"
            is_unknown = b"fly" in body and defect != "grants what is not known"
            if is_malformed or is_unknown or defect == "refuses what is good":
                return answer(400, LINE, b"no\n")
            self._stored = body
            return answer(201, WRITTEN)
        if defect and defect.encode() in request.method + target:
            return answer(507, LINE, b"no\n") if request.method == b"POST" else answer(200, READ, b"<r>")
        if b"nonrelevant" in target:
            kept = (
                self._stored if defect == "keeps everything" else self._stored.replace(b'<a fr:relevant="false"/>', b"")
            )
            return answer(200, READ, b"<r>" if defect == "breaks the relevant part" else kept)
        if b"?" in target:
            return answer(200, READ, b"<r/>")
        return answer(200, READ, self._stored[:-1] if defect == "cuts" else self._stored)


DATA_PLACE, *_, DEFINITION_PLACE = places("a")
DEFINITION = definition("<permissions><permission operations='read'/></permissions>")
BODIES = {
    DATA_PLACE: (f'<r {DECLARED}><a fr:relevant="false"/>text</r>'.encode(), b"<r>"),
    DEFINITION_PLACE: (DEFINITION, DEFINITION.replace(b"'read'", b"'fly'")),
}
"""For each place a document that is taken, and one that is refused."""


@pytest.mark.parametrize(
    ("place", "defect"),
    [
        *((DATA_PLACE, each) for each in ("", "accepts what is malformed", "refuses what is good", "cuts")),
        *((DATA_PLACE, each) for each in ("breaks the relevant part", "keeps everything")),
        *((DEFINITION_PLACE, each) for each in ("", "grants what is not known", "format-version=", "publish")),
        (DEFINITION_PLACE, "attachments?"),
    ],
    ids=str,
)
def test_only_a_service_with_a_defect_is_complained_of(place: Place, defect: str) -> None:
    own = Bodies(Faulty(defect), "Svc-")
    assert bool([what for body in BODIES[place] for what in own.put(place, body)]) is bool(defect)


def test_the_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    (tmp_path / "data").mkdir()
    service = cast("Service", type("Stub", (), {"data": tmp_path / "data", "log": log}))
    for text, count in (("fine\n", 0), ("Traceback (most recent call last)\n", 1), ('{"event":"unexpected"}\n', 1)):
        log.write_text(text)
        assert len(processes.strays(service)) == count


def test_broken_real_input_is_judged_as_by_libxml2(corpus: Path) -> None:
    """Real definitions and data, each with accidents: accepted where libxml2 accepts, but for the differences."""
    files = sorted(path for path in corpus.rglob("*") if path.suffix in (".xml", ".xhtml"))
    wholes = [path.read_bytes() for path in files if path.stat().st_size < 100_000]
    assert len(wholes) > 10

    @settings(max_examples=300, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(broken(st.sampled_from(wholes)))
    def same(document: bytes) -> None:
        own, is_accepted = bodies.opinion(document), bodies.is_taken(document)
        assert is_accepted == (own.tree is not None) or bodies.difference(document, own, is_accepted=is_accepted)

    same()


@pytest.mark.parametrize("target", [b"/nowhere", b"/fr/service/persistence/reindex/status"])
def test_another_host_may_be_refused_where_nothing_is_documented(target: bytes) -> None:
    """Who may call is decided before the path and the method are looked at."""
    refused = answer(421, LINE, b"no\n")
    assert complaints("POST", target, refused, headers=((b"Host", b"a b"),)) == []
    assert complaints("POST", target, refused) != []


# Definitions in the fuzzer: they reach the code that they are for.


def test_thrown_definitions_reach_what_takes_them_apart() -> None:
    """Most are well-formed; many have controls, and change when they are migrated."""
    thrown_ones = list[bytes]()

    @settings(max_examples=200, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(thrown(st.just("")))
    def keep(document: str) -> None:
        thrown_ones.append(document.encode())

    keep()
    whole = [document for document in thrown_ones if bodies.opinion(document).tree is not None]
    assert len(whole) > 150
    assert sum(bool(read_controls(document)) for document in whole) > 50
    assert sum(b"<xf:bind" in migrate(document, "2019.1.0", is_unpublished=True) for document in whole) > 100
    assert sum(not bodies.has_unknown_marks(document) for document in whole) in range(100, len(whole))


# The quick part of the fuzzing: always the same requests, so that it fails for a change and not by chance.


@pytest.mark.timeout(600)  # a busy machine takes two minutes
@pytest.mark.parametrize(
    ("kind", "dialect", "requests"),
    [
        *(("described", "svc", 12), ("odd", "orbeon", 100), ("XML", "svc", 60)),
        pytest.param("described", "svc", 40, marks=pytest.mark.long),
    ],
)
def test_nothing_is_wrong_and_nothing_is_left(tmp_path: Path, kind: str, dialect: str, requests: int) -> None:
    """No 5xx but the documented one, only documented answers, no traceback, and nothing held or left at the end."""
    with running(tmp_path, dialect=dialect, workers=1, threads=2) as service:
        together("warming", [Job("XML", service.port, dialect, 10, 0)])
        totals = measured(service, [Job(kind, service.port, dialect, requests, None)], most_memory=64 << 10, threads=2)
    assert totals.violations == []
    assert totals["requests"] >= requests
    assert totals["2xx"] > 0 < totals["4xx"]
