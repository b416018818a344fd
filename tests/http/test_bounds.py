"""What one request may cost: reproductions of what an attack got through, with the time and memory of the worker."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from persistence import limits
from persistence.crypto import EncryptionKeys
from persistence.errors import BusyError
from persistence.services.transforms import parsing
from tests.encrypted_form import DEFINITION, UNMARKED
from tests.forms.vectors import Form, bind, section
from tests.in_process import serving
from tests.rigs.processes import MIB, Process
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service, alone
from tests.waiting import eventually

_NAME = "person/name"
_FORM = f"{PUBLIC}/crud/hr/large"
_HEADERS = {"Content-Type": "application/xml", "Svc-Form-Definition-Version": "1"}
_LARGE = 1_000_000
_LONG = f"{'a' * (limits.LONGEST_WORD - 1)} " * (_LARGE // limits.LONGEST_WORD)
_DOCUMENTS = 8


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with alone(tmp_path_factory.mktemp("bounds")) as running:
        assert running.raw("PUT", f"{_FORM}/form/form.xhtml", _HEADERS, UNMARKED).status == 201
        for number in range(_DOCUMENTS):
            text = (_LONG, "a b " * (_LARGE // 4))[number % 2]
            body = f"<form><person><name>{text}</name></person></form>".encode()
            assert running.raw("PUT", f"{_FORM}/data/d{number}/data.xml", _HEADERS, body).status == 201
        assert len(search(running, f'<query path="{_NAME}"/>').body) > _DOCUMENTS * _LARGE
        yield running


def search(service: Service, children: str) -> Answer:
    return service.raw("POST", f"{PUBLIC}/search/hr/large", _HEADERS, f"<search>{children}</search>".encode())


def worker(service: Service) -> Process:
    return Process(service.workers()[0])


def test_names_that_are_refused_are_not_kept(service: Service) -> None:
    """Finding 6: 9,000 of these took a worker from 44 to 1,109 MB for good."""
    process = worker(service)
    before = process.resident
    for number in range(100):
        name = f"{number}%F0%9F%98%80{':' * 7_900}"
        for path in (f"a/b/data/{name}/data.xml", f"{name}/b/data/d/data.xml", f"a/b/data/d/{name}"):
            assert service.get(path).status == 400
    assert process.resident - before < 10 * MIB


def test_roles_are_few_and_taken_apart_in_linear_time(service: Service) -> None:
    """Finding 18: 2 s."""
    process = worker(service)
    before = process.seconds
    for roles, status in (
        *((f"a{' ' * 16_000}b", 200),) * 5,
        (",".join(["clerk"] * limits.MOST_ROLES), 200),
        (",".join(["clerk"] * (limits.MOST_ROLES + 1)), 400),
    ):
        headers = {"Svc-Username": "ann", "Svc-Roles": roles}
        assert service.raw("HEAD", f"{_FORM}/data/d0/data.xml", headers).status == status
    assert process.seconds - before < 0.5


@pytest.mark.parametrize("character", ["\x01", "\x1f", "\x7f", "\x80", "\x85", "\x9b", "\x9f"])
def test_control_characters_are_refused_in_names_and_do_not_reach_the_log(service: Service, character: str) -> None:
    """Finding 21: CSI and NEL reached the log and the names of files."""
    name = quote(f"a{character}b")
    for path in (f"{name}/b/data/d/data.xml", f"a/b/data/{name}/data.xml", f"a/b/data/d/{name}"):
        answer = service.put(path, b"<d/>", Svc_Form_Definition_Version="1")
        assert (answer.status, character not in answer.cause) == (400, True)
    service.raw("GET", f"/{name}")
    assert character.encode() not in service.log.read_bytes().replace(b"\n", b"")
    assert f'"path":"/{name}"'.encode() in service.log.read_bytes()


def test_a_name_has_as_many_bytes_as_a_file_system_takes(service: Service) -> None:
    for name, status in (("n" * limits.LONGEST_NAME, 404), ("n" * (limits.LONGEST_NAME + 1), 400), ("é" * 128, 400)):
        assert service.get(f"a/b/data/{quote(name)}/data.xml").status == status


def test_tokens_count_together(service: Service) -> None:
    """Finding 9: 40 queries of 100 tokens took 55 s."""
    one = f'<query path="{_NAME}" match="token">{" ".join(f"w{each}" for each in range(100))}</query>'
    answer = search(service, one * 40)
    assert (answer.status, answer.cause) == (
        400,
        f"more than {limits.MOST_TOKENS} tokens in one search are not accepted",
    )
    process = worker(service)
    before = process.seconds
    assert search(service, one * 2).status == 200
    assert process.seconds - before < 1.0


def test_what_is_looked_for_inside_values_is_not_long(service: Service) -> None:
    def one(length: int) -> str:
        return f'<query path="{_NAME}" match="substring">{"a" * length}</query>'

    for children, status in (
        (one(limits.LONGEST_SEARCHED), 200),
        (one(limits.LONGEST_SEARCHED + 1), 400),
        (one(limits.LONGEST_SEARCHED) * (limits.MOST_SEARCHED // limits.LONGEST_SEARCHED), 200),
        (one(limits.LONGEST_SEARCHED) * (limits.MOST_SEARCHED // limits.LONGEST_SEARCHED + 1), 400),
        (f"<query>{'a' * limits.LONGEST_SEARCHED}</query>", 200),
        (f"<query>{'a' * (limits.LONGEST_SEARCHED + 1)}</query>", 400),
        (f'<query path="{_NAME}" match="exact">{_LONG}</query>', 200),
    ):
        assert search(service, f"{children}<page-size>1</page-size>").status == status, children[:60]


def test_an_answer_is_no_larger_than_is_held_in_memory(service: Service) -> None:
    """Finding 9: the same path 199 times made 60 GB."""
    process, one = worker(service), f'<query path="{_NAME}"/>'
    process.rest()
    before, began = process.resident, process.seconds
    process.forget_highest()
    assert search(service, f"{one * 199}<page-size>40</page-size>").refuses(400, "the answer would be larger than")
    assert process.highest - before < 100 * MIB
    assert process.seconds - began < 1.0
    for times, status in ((1, 200), (199, 400)):
        body = f"<d>{one * times}</d>".encode()
        answer = service.raw("POST", f"{PUBLIC}/distinct-values/hr/large", _HEADERS, body)
        assert (answer.status, "the answer would be larger than" in answer.cause) == (status, status == 400)
    paths = f'<query path="{"p" * 5_000}"/>' * 199 + "<page-size>1000000</page-size>"  # they count without values, too
    assert search(service, paths).status == 200
    assert search(service, f'<query path="{"p" * 1_000_000}"/>' + one * 60).status == 400


def test_memory_comes_back(service: Service) -> None:
    process = worker(service)
    process.rest()
    before = process.resident
    for _ in range(3):
        assert search(service, f'<query path="{_NAME}"/><page-size>40</page-size>').status == 200
    eventually(lambda: process.resident <= before + 30 * MIB)


# What XML may cost a worker: reproductions of attacks with processor time and memory, and bounds of large XML.

LONG = "u" * 999
QUOTED = "''"
SECONDS = 2.0
"""Processor time that nothing here may take; what it took was 7 to 60 s."""

GROWN = 40 * MIB
"""Memory that nothing here may take at any time, unless it says so; what it took was 270 to 2,750 MB."""


@pytest.fixture(scope="module")
def encrypting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("xml")
    EncryptionKeys(str(directory / "var/keys.json"), trees=[str(directory / "data")]).new()
    with alone(directory, settings='encryption_keys = "var/keys.json"\n') as running:
        assert running.put("hr/warm/form/form.xhtml", DEFINITION).status == 201
        for _ in range(4):
            running.put("hr/warm/data/d/data.xml", b"<form/>", **V1)
        migrated(running, "hr/warm")
        yield running


@contextmanager
def costs(encrypting: Service, highest: int = 0, kept: int = 0) -> Iterator[None]:
    """What is done in the block takes less than ``SECONDS``, and, where that is said, not more bytes than these."""
    process = Process(encrypting.workers()[0])
    process.rest(0.2)
    process.forget_highest()
    seconds, resident = process.seconds, process.resident
    yield
    process.rest(0.2)
    assert process.seconds - seconds < SECONDS
    assert not highest or process.highest - resident < highest
    assert not kept or process.resident - resident < kept


def migrated(encrypting: Service, form: str) -> Answer:
    return encrypting.get(f"{form}/form/form.xhtml?form-definition-format-version=4.0.0")


def attributes(number: int) -> str:
    written = " ".join(f"a:x{each}=''" for each in range(number))
    return f"<search xmlns:a='{LONG}' {written}/>"


def inside(pieces: Iterable[str], more: str = "") -> str:
    return f"<f{more}>{''.join(pieces)}</f>"


NAMES = {
    "attributes": attributes(300_000),
    "elements": inside((f"<b{each}/>" for each in range(400_000)), f" xmlns='{LONG}'"),
    "attributes by hundreds": inside(
        (f"<b {' '.join(f'a:x{each}-{one}={QUOTED}' for one in range(100))}/>" for each in range(3_000)),
        f" xmlns:a='{LONG}'",
    ),
    "prefixes": inside(f"<b xmlns:p{each}='{LONG}'/>" for each in range(3_000)),
    "attributes of 1 MB": inside(["<b x='%s\U0001f600'/>" % ("y" * (MIB - 100))] * 6),
}


@pytest.mark.parametrize(
    "name", ["attributes", "elements", *(pytest.param(name, marks=pytest.mark.long) for name in list(NAMES)[2:])]
)
def test_names_are_not_multiplied_by_their_namespaces(encrypting: Service, name: str) -> None:
    """Finding 3: 687 and 937 MB, which stayed."""
    with costs(encrypting, GROWN, 30 * MIB):
        answer = encrypting.put("hr/x/data/d/data.xml", NAMES[name].encode(), **V1)
        assert answer.status in ((201, 204) if name in {"prefixes", "attributes of 1 MB"} else (400,))


@pytest.mark.parametrize("what", ["search/hr/warm", "form"])
def test_a_query_is_bounded_as_well(encrypting: Service, what: str) -> None:
    """Finding 3: 670 MB for 986 KB."""
    with costs(encrypting, GROWN):
        for body in (attributes(70_000), f"<search>{'<x/>' * 200_000}</search>"):
            assert len(body) < MIB
            assert encrypting.call("POST", what, body).status == 400


def test_blanks_in_a_tag_do_not_stop_a_worker(encrypting: Service) -> None:
    """Finding 1: two workers gave no answer for 50 s, and were killed."""
    document = f'<a encrypted="true"{" " * 150_000}>x</a>'.encode()
    with costs(encrypting):
        put = encrypting.raw("PUT", "/crud/x/y/data/d/data.xml", {"Svc-Form-Definition-Version": "1"}, document)
        assert put.status == 201
        for _ in range(4):
            assert encrypting.get("x/y/data/d/data.xml").status in (200, 500)
        assert encrypting.put("x/y/data/e/data.xml", document, **V1).status == 201


def test_prefixes_and_comments_do_not_make_encryption_slow(encrypting: Service) -> None:
    """Finding 7: 18,000 declarations and as many values took 40 s. What is in a value besides text counts, too."""
    declared = "".join(f' xmlns:fr{number or ""}="u"' for number in range(990))
    data = f"<form{declared}><person>{'<ssn>1</ssn>' * 10_000}</person></form>"
    with costs(encrypting):
        assert encrypting.put("hr/warm/data/p/data.xml", data.encode(), **V1).status == 201
    more = f"<form><person>{'<ssn>1</ssn>' * (limits.MOST_ENCRYPTED + 1)}</person></form>"
    assert encrypting.put("hr/warm/data/p/data.xml", more.encode(), **V1).refuses(413, str(limits.MOST_ENCRYPTED))
    comments = f"<!--{'y' * 900_000}-->" * 7
    with costs(encrypting, GROWN):
        data = f"<form><person><ssn>1{comments}</ssn></person></form>"
        assert encrypting.put("hr/warm/data/c/data.xml", data.encode(), **V1).status == 201


BINDING = '<xbl:binding class="fr-section-component" element="xbl|a"><xbl:template>'
MIGRATED = {
    "nested bindings": Form(
        "<form/>",
        "",
        "",
        xbl=BINDING * 60
        + "".join(f'<a id="{each}"/>' for each in range(60_000))
        + "</xbl:template></xbl:binding>" * 60,
    ),
    "deep binds": Form(
        "<form/>",
        bind("b"),
        section("s", "".join(f'<fr:grid id="g{each}-grid" bind="b-bind" repeat="content"/>' for each in range(20_000))),
    ),
    "cells of grids in grids": Form(
        "<form/>",
        "",
        "".join(f'<fr:grid id="g{each}-grid">' for each in range(200)) + "<fr:c/>" * 40_000 + "</fr:grid>" * 200,
    ),
}


@pytest.mark.parametrize("name", MIGRATED)
def test_a_definition_is_taken_apart_once(encrypting: Service, name: str) -> None:
    """Finding 8: 1,273 MB and 9.5 s, for each migration."""
    form = f"hr/{name.split(maxsplit=1)[0]}"
    assert encrypting.put(f"{form}/form/form.xhtml", MIGRATED[name].document().encode()).status == 201
    with costs(encrypting, 100 * MIB, 30 * MIB):
        assert migrated(encrypting, form).status == (400 if name.startswith("cells") else 200)


def test_titles_are_bounded(encrypting: Service) -> None:
    """Finding 10: 1,000 titles of 65,000 characters made a list of 1 GB."""

    def titled(title: str) -> str:
        return DEFINITION.decode().replace("</metadata>", f"<title>{title}</title></metadata>")

    answer = encrypting.put("hr/titled/form/form.xhtml", titled("\U0001f600" * (limits.LONGEST_TITLE + 1)).encode())
    assert (answer.status, "title" in answer.cause) == (400, True)
    assert (
        encrypting.put("hr/titled/form/form.xhtml", titled("\U0001f600" * limits.LONGEST_TITLE).encode()).status == 201
    )


# Large XML: a bound of its own when it is sent, and turns for requests that parse what is stored (limits.py).


LARGEST = 2 << 20
HEADERS = {"Svc-Form-Definition-Version": "1", "Content-Type": "application/xml"}


@pytest.mark.parametrize("face", [PUBLIC, PROVIDER], ids=["public", "provider"])
def test_data_and_definitions_have_a_bound_of_their_own(tmp_path: Path, face: str) -> None:
    with serving(tmp_path, env={"PERSISTENCE_MAX_XML": str(LARGEST)}) as encrypting:
        large, small = b"<d>%s</d>" % (b"x" * LARGEST), b"<d>%s</d>" % (b"x" * (LARGEST - 7))
        for path in ("form/form.xhtml", "data/D/data.xml", "draft/D/data.xml"):
            url = f"{face}/crud/a/b/{path}"
            refused = encrypting.raw("PUT", url, HEADERS, large)
            assert (refused.status, refused.cause) == (413, f"the body is larger than the limit of {LARGEST} bytes")
            pieces = b"%x\r\n%s\r\n0\r\n\r\n" % (len(large), large)
            assert encrypting.raw("PUT", url, {**HEADERS, "Transfer-Encoding": "chunked"}, pieces).status == 413
            assert encrypting.raw("GET", url, HEADERS).status == 404
            assert encrypting.raw("PUT", url, HEADERS, small).status == 201
        assert encrypting.raw("PUT", f"{face}/crud/a/b/data/D/a.bin", HEADERS, large).status == 201


def test_few_large_documents_are_parsed_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PARSING_PATIENCE", 0.2)
    with serving(tmp_path) as encrypting:
        for document, size in (("large", 2 * limits.SMALL), ("small", 10)):
            body = b"<d>%s</d>" % (b"x" * size)
            assert encrypting.raw("PUT", f"{PUBLIC}/crud/a/b/data/{document}/data.xml", HEADERS, body).status == 201
        assert encrypting.raw("PUT", f"{PUBLIC}/crud/a/b/form/form.xhtml", HEADERS, b"<html/>").status == 201
        began = time.monotonic()
        with parsing(limits.SMALL + 1), parsing(limits.SMALL + 1):
            for path in ("crud/a/b/data/{}/data.xml?nonrelevant=remove", "../a/b/attachments?document={}"):
                url = f"{PUBLIC}/{path}".replace("/persistence/..", "")
                busy = encrypting.raw("GET", url.format("large"), HEADERS)
                assert (busy.status, busy["Retry-After"]) == (503, "1"), busy.cause
                assert encrypting.raw("GET", url.format("small"), HEADERS).status == 200
            with pytest.raises(BusyError), parsing(limits.SMALL + 1):
                pass
        assert time.monotonic() - began < 10
        assert encrypting.raw("GET", f"{PUBLIC}/crud/a/b/data/large/data.xml?nonrelevant=remove", HEADERS).status == 200


def test_a_turn_is_given_back() -> None:
    for _ in range(3 * limits.MOST_PARSED):
        with pytest.raises(RuntimeError), parsing(limits.SMALL + 1):
            raise RuntimeError
    taken = [threading.Event() for _ in range(limits.MOST_PARSED)]

    def take(event: threading.Event) -> None:
        with parsing(limits.SMALL + 1):
            event.set()

    for each in taken:
        threading.Thread(target=take, args=(each,)).start()
    assert all(each.wait(10) for each in taken)
