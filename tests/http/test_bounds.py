"""What one request may cost: reproductions of what an attack got through, with the time and memory of the worker."""

import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from persistence.limits import LONGEST_NAME, LONGEST_SEARCHED, LONGEST_WORD, MOST_ROLES, MOST_SEARCHED, MOST_TOKENS
from tests.cost.measured import MIB, Process
from tests.encrypted_form import UNMARKED
from tests.published import definition
from tests.service import PUBLIC, Answer, Service, alone

_NAME = "person/name"
_FORM = f"{PUBLIC}/crud/hr/large"
_HEADERS = {"Content-Type": "application/xml", "Svc-Form-Definition-Version": "1"}
_LARGE = 1_000_000
_LONG = f"{'a' * (LONGEST_WORD - 1)} " * (_LARGE // LONGEST_WORD)
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


def test_roles_are_taken_apart_in_linear_time(service: Service) -> None:
    """Finding 18: 2 s."""
    process = worker(service)
    before = process.seconds
    for _ in range(5):
        service.raw("GET", f"{_FORM}/data/d0/data.xml", {"Svc-Username": "ann", "Svc-Roles": f"a{' ' * 16_000}b"})
    assert process.seconds - before < 0.5


def test_there_are_not_too_many_roles(service: Service) -> None:
    for number, status in ((MOST_ROLES, 200), (MOST_ROLES + 1, 400)):
        roles = {"Svc-Username": "ann", "Svc-Roles": ",".join(["clerk"] * number)}
        assert service.raw("HEAD", f"{_FORM}/data/d0/data.xml", roles).status == status


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
    for name, status in (("n" * LONGEST_NAME, 404), ("n" * (LONGEST_NAME + 1), 400), ("é" * 128, 400)):
        assert service.get(f"a/b/data/{quote(name)}/data.xml").status == status


def test_tokens_count_together(service: Service) -> None:
    """Finding 9: 40 queries of 100 tokens took 55 s."""
    one = f'<query path="{_NAME}" match="token">{" ".join(f"w{each}" for each in range(100))}</query>'
    answer = search(service, one * 40)
    assert (answer.status, answer.cause) == (400, f"more than {MOST_TOKENS} tokens in one search are not accepted")
    process = worker(service)
    before = process.seconds
    assert search(service, one * 2).status == 200
    assert process.seconds - before < 1.0


def test_what_is_looked_for_inside_values_is_not_long(service: Service) -> None:
    def one(length: int) -> str:
        return f'<query path="{_NAME}" match="substring">{"a" * length}</query>'

    for children, status in (
        (one(LONGEST_SEARCHED), 200),
        (one(LONGEST_SEARCHED + 1), 400),
        (one(LONGEST_SEARCHED) * (MOST_SEARCHED // LONGEST_SEARCHED), 200),
        (one(LONGEST_SEARCHED) * (MOST_SEARCHED // LONGEST_SEARCHED + 1), 400),
        (f"<query>{'a' * LONGEST_SEARCHED}</query>", 200),
        (f"<query>{'a' * (LONGEST_SEARCHED + 1)}</query>", 400),
        (f'<query path="{_NAME}" match="exact">{_LONG}</query>', 200),
    ):
        assert search(service, f"{children}<page-size>1</page-size>").status == status, children[:60]


def test_an_answer_is_no_larger_than_is_held_in_memory(service: Service) -> None:
    """Finding 9: the same path 199 times made 60 GB."""
    process = worker(service)
    process.rest()
    before, began = process.resident, process.seconds
    process.forget_highest()
    answer = search(service, f'<query path="{_NAME}"/>' * 199 + "<page-size>40</page-size>")
    assert (answer.status, "the answer would be larger than" in answer.cause) == (400, True)
    assert process.highest - before < 100 * MIB
    assert process.seconds - began < 1.0


def test_an_answer_counts_paths_without_values(service: Service) -> None:
    answer = search(service, f'<query path="{"p" * 5_000}"/>' * 199 + "<page-size>1000000</page-size>")
    assert answer.status == 200
    answer = search(service, f'<query path="{"p" * 1_000_000}"/>' + f'<query path="{_NAME}"/>' * 60)
    assert answer.status == 400


def test_distinct_values_are_no_more_than_are_held_in_memory(service: Service) -> None:
    def ask(times: int) -> Answer:
        queries = f'<query path="{_NAME}"/>' * times
        body = f"<d>{queries}</d>"
        return service.raw("POST", f"{PUBLIC}/distinct-values/hr/large", _HEADERS, body.encode())

    assert ask(1).status == 200
    assert ask(199).refuses(400, "the answer would be larger than")


def test_memory_comes_back(service: Service) -> None:
    process = worker(service)
    process.rest()
    before = process.resident
    for _ in range(3):
        assert search(service, f'<query path="{_NAME}"/><page-size>40</page-size>').status == 200
    deadline = time.monotonic() + 10
    while process.resident > before + 30 * MIB and time.monotonic() < deadline:
        time.sleep(0.2)
    assert process.resident <= before + 30 * MIB


def test_control_characters_are_refused_in_the_names_of_a_publication(service: Service) -> None:
    names = "<application-name>a&#x9b;b</application-name><form-name>f</form-name>"
    assert service.raw("POST", "/fr/service/publish", _HEADERS, definition(names)).refuses(400, "not allowed")
    assert not list(service.data.glob("a*"))
