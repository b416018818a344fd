"""A provider: what it is sent (spec crud 2 and 11, forms 5.4 to 5.6), and what becomes of its faults."""

import http.client
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.in_process import serving
from tests.providers import STORED, Provider, Received, Reply, providing, wired
from tests.published import definition
from tests.service import PUBLIC, V1, Service, alone

DATA = "acme/order/data/D/data.xml"
FILE = "acme/order/data/D/film.bin"
EMPTY_LIST = Reply(body=b'<forms search-total="0"/>', headers={"Content-Type": "application/xml"})
FOUND = Reply(headers=STORED, body=b"<d/>")


def settings(directory: Path, port: int) -> Path:
    file = directory / "remote.toml"
    file.write_text(
        f'"svc.persistence.files.uri" = "http://127.0.0.1:{port}/base"\n"svc.persistence.files.dialect" = "orbeon"\n'
        '"svc.persistence.files.datasource" = "fr"\n'
    )
    return file


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with providing(lambda _: FOUND) as provider:
        yield provider


@pytest.fixture(scope="module")
def service(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("faults")
    env = {"PERSISTENCE_CONFIG": str(settings(directory, provider.port)), "PERSISTENCE_REMOTE_TIMEOUT": "0.5"}
    with serving(directory, env=env, alone=True) as service:
        yield service


def answering(provider: Provider, **replies: Reply) -> None:
    """Let a provider answer each method so; forms there are none, and what is not named succeeds."""

    def answer(got: Received) -> Reply:
        if got.path.startswith("/base/form"):
            return EMPTY_LIST
        if got.path.endswith("form.xhtml"):
            return Reply(404)
        return replies.get(got.method, FOUND if got.method in ("GET", "HEAD") else Reply(204, STORED))

    provider.answers = answer
    provider.received.clear()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        *((400, 400), (401, 502), (403, 403), (404, 404), (405, 502), (409, 409), (412, 412), (413, 413), (418, 502)),
        *((423, 423), (429, 503), (500, 502), (501, 501), (502, 502), (503, 503), (507, 507), (302, 502), (204, 502)),
    ],
)
def test_a_refusal_is_passed_on_as_it_is_meant(provider: Provider, service: Service, theirs: int, ours: int) -> None:
    said = {"Content-Type": "text/plain", "Location": "/elsewhere", "Retry-After": "7"}
    answering(provider, GET=Reply(theirs, said, b"" if theirs == 204 else b"because of this\nand more"))
    answer = service.get(DATA)
    assert answer.status == ours
    assert theirs in (204, 404) or "because of this" in answer.cause
    assert ("and more" not in answer.cause, answer["Retry-After"]) == (True, "7" if ours == 503 else None)


@pytest.mark.parametrize("status", [409, 423, 507, 500])
def test_a_refused_write_is_no_success(provider: Provider, service: Service, status: int) -> None:
    answering(provider, PUT=Reply(status), DELETE=Reply(status))
    for answer in (service.put(DATA), service.delete(DATA)):
        assert answer.status == (502 if status == 500 else status)
        assert answer.cause.startswith("provider 'files' answers ")


def _without(name: str) -> dict[str, str]:
    return {key: value for key, value in STORED.items() if not key.endswith(name)}


@pytest.mark.parametrize(
    "reply",
    [
        Reply(headers=_without("Last-Modified"), body=b"<d/>"),
        Reply(headers=_without("Form-Definition-Version"), body=b"<d/>"),
        Reply(headers={**STORED, "Orbeon-Form-Definition-Version": "next"}, body=b"<d/>"),
        Reply(headers={**STORED, "Orbeon-Last-Modified": "yesterday", "Last-Modified": "soon"}, body=b"<d/>"),
        Reply(headers={**STORED, "Content-Encoding": "gzip"}, body=b"<d/>"),
        Reply(raw=b"\x00\x01 nothing that is HTTP\r\n\r\n"),
        Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nOrbeon-Form-Definition-Version: 1\r\n"
              b"Orbeon-Last-Modified: 2025-03-04T05:06:07.089Z\r\n\r\n<d>"),
        Reply(raw=b""),
    ],
    ids=["no-time", "no-version", "odd-version", "odd-time", "coded", "garbage", "short", "hung-up"],
)  # fmt: skip
def test_an_odd_answer_is_a_bad_gateway_with_a_cause(provider: Provider, service: Service, reply: Reply) -> None:
    answering(provider, GET=reply)
    answer = service.get(DATA)
    assert answer.status == 502
    assert len(answer.cause.splitlines()) == 1
    assert "127.0.0.1" not in answer.cause, "where a provider is, may have a password in it"


@pytest.mark.parametrize("modified", ["9999-12-31T23:59:59.999Z", "9999-12-31T22:59:59.9999999-01:00"])
def test_nothing_is_written_over_what_was_modified_at_the_end_of_time(
    provider: Provider, service: Service, modified: str
) -> None:
    answering(provider, HEAD=Reply(headers={**STORED, "Orbeon-Last-Modified": modified}))
    for answer in (service.put(DATA), service.delete(DATA)):
        assert answer.status == 502
        assert answer.cause.endswith(", which nothing can follow")
    assert provider.of("PUT") == provider.of("DELETE") == []


def test_lists_and_searches_that_are_none_are_bad_gateways(provider: Provider, service: Service) -> None:
    provider.answers = lambda _: Reply(body=b"<forms")
    assert service.raw("GET", f"{PUBLIC}/form").status == 502
    for body in (b"<documents", b"<documents/>", b'<documents search-total="1"><document name="d"/></documents>'):
        answering(provider, POST=Reply(body=body))
        headers = {"Content-Type": "application/xml"}
        assert service.raw("POST", f"{PUBLIC}/search/acme/order", headers, b"<search/>").status == 502


def test_a_download_that_breaks_off_is_no_whole_answer(provider: Provider, service: Service) -> None:
    head = "".join(f"{name}: {value}\r\n" for name, value in STORED.items())
    raw = f"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n{head}\r\n".encode() + bytes(500_000)
    answering(provider)
    ordinary = provider.answers
    provider.answers = lambda got: Reply(raw=raw) if got.path.endswith(".bin") else ordinary(got)
    with pytest.raises(http.client.IncompleteRead):
        service.get(FILE)


def test_nothing_that_was_sent_is_sent_again(provider: Provider, service: Service) -> None:
    answering(provider, PUT=Reply(raw=b""), DELETE=Reply(raw=b""))
    assert service.put(DATA).status == service.delete(DATA).status == 502
    assert (len(provider.of("PUT")), len(provider.of("DELETE"))) == (1, 1)


def test_a_question_is_asked_again_once(provider: Provider, service: Service) -> None:
    answering(provider)
    replies = [Reply(raw=b"")]
    ordinary = provider.answers
    provider.answers = lambda got: (
        replies.pop() if got.method == "GET" and got.path.endswith("xml") and replies else ordinary(got)
    )
    assert service.get(DATA).status == 200


def test_a_provider_that_is_down_is_a_bad_gateway(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with serving(tmp_path, env={"PERSISTENCE_CONFIG": str(settings(tmp_path, port))}, alone=True) as service:
        for answer in (service.get(DATA), service.put(DATA), service.delete(DATA)):
            assert answer.status == 502
            assert answer.cause.startswith("provider 'files' cannot be reached: ")
        assert service.raw("GET", f"{PUBLIC}/form").status == 502
        assert service.raw("GET", "/readyz").status == 200, "what is kept here can be served"


def test_a_provider_that_hangs_is_given_up_and_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections, and says nothing
        file = settings(tmp_path, silent.getsockname()[1])
        file.write_text(file.read_text() + '"svc.persistence.provider.here.*.*" = "tree"\n')
        env = {"PERSISTENCE_CONFIG": str(file), "PERSISTENCE_REMOTE_TIMEOUT": "0.5"}
        with serving(tmp_path, env=env, alone=True) as service:
            answer = service.get(DATA)
            assert (answer.status, answer.cause.split(": ")[0]) == (504, "provider 'files' does not answer in time")
            assert service.put(DATA).status == 504
            assert service.put("here/order/data/D/data.xml", **V1).status == 201


def test_what_is_cut_off_half_way_is_not_there(tmp_path: Path) -> None:
    """The issue: the remote down in the middle of a PUT is 502, and nothing is half-done."""
    with alone(tmp_path / "behind", dialect="orbeon") as behind, wired(behind.port) as wire:
        with serving(
            tmp_path, env={"PERSISTENCE_CONFIG": str(settings_at(tmp_path, wire.port))}, alone=True
        ) as service:
            assert service.put(DATA, **V1).status == 201
            wire.cut_after = 1 << 20
            answer = service.put(FILE, bytes(4 << 20))
            assert (answer.status, answer.cause.startswith("provider 'files' ")) == (502, True)
            wire.cut_after = None
            assert service.get(FILE).status == 404
            assert behind.leftovers() == []
            assert service.put(FILE, bytes(4 << 20)).status == 201
            assert len(service.get(FILE).body) == 4 << 20
            for pid in (behind.process.pid, *behind.workers()):
                os.kill(pid, signal.SIGKILL)
            assert service.put(FILE, bytes(4 << 20)).status == 502
        assert service.leftovers() == []


def settings_at(directory: Path, port: int) -> Path:
    file = settings(directory, port)
    file.write_text(
        "\n".join(line for line in file.read_text().replace("/base", "").splitlines() if "source" not in line)
    )
    return file


# What a provider is sent, request by request.


BODY = bytes(range(256)) * 1024


class Kept:
    def __init__(self) -> None:
        self.has_data = self.has_files = False
        self.tag = "{}"
        self.forms = EMPTY_LIST
        self.definition = Reply(404)

    def __call__(self, got: Received) -> Reply:
        path = got.path.partition("?")[0]
        if path.startswith("/base/form"):
            return self.forms
        if got.method in ("PUT", "DELETE"):
            return Reply(204, {**STORED, "ETag": self.tag.format("ab" * 20)})
        if path.endswith("form.xhtml"):
            return self.definition
        there = self.has_data if path.endswith("data.xml") else self.has_files
        if not there:
            return Reply(404)
        if path.endswith("data.xml"):
            return Reply(200, {**STORED, "ETag": self.tag.format("cd" * 20)}, b"<d/>")
        return Reply(200, {**STORED, "Content-Type": "video/mp4"}, BODY)


@pytest.fixture(scope="module")
def keeper() -> Iterator[Provider]:
    with providing(Kept()) as keeper:
        yield keeper


@pytest.fixture(scope="module")
def served(keeper: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("contract")
    with serving(directory, env={"PERSISTENCE_CONFIG": str(settings(directory, keeper.port))}, alone=True) as service:
        yield service


@pytest.fixture
def kept(keeper: Provider, served: Service) -> Kept:
    del served
    keeper.answers = kept = Kept()
    keeper.received.clear()
    return kept


@pytest.mark.parametrize("tag", ["{}", '"{}"', 'W/"{}"'])
def test_a_tag_is_read_however_the_provider_writes_it(kept: Kept, served: Service, tag: str) -> None:
    """The real system sends it bare, others quote it, and a proxy between may weaken it."""
    kept.tag, kept.has_data = tag, True
    current, stored = f'"{"cd" * 20}"', f'"{"ab" * 20}"'
    assert served.head(DATA)["ETag"] == current
    assert served.put(DATA, headers={"If-Match": stored}).status == 412
    assert served.put(DATA, headers={"If-Match": current})["ETag"] == stored


def test_a_new_document_is_put_with_its_version_and_without_existing_metadata(
    kept: Kept, keeper: Provider, served: Service
) -> None:
    del kept
    query = "?valid=false&data-format-version=4.0.0&nonrelevant=remove"
    answer = served.put(
        DATA + query, b"<d>x</d>", Form_Definition_Version=3, Username="kim", Workflow_Stage="new", Created_Existing="x"
    )
    assert (answer.status, answer["Svc-Form-Definition-Version"]) == (201, "3")
    assert (answer["ETag"], answer["Svc-Last-Modified"]) == (f'"{"ab" * 20}"', "2025-03-04T05:06:07.089Z")
    (put,) = keeper.of("PUT")
    assert (put.path, put.body) == (f"/base/crud/{DATA}?valid=false&data-format-version=4.0.0", b"<d>x</d>")
    said = put.headers
    assert (said["Orbeon-Form-Definition-Version"], said["Orbeon-Username"]) == ("3", "kim")
    assert (said["Orbeon-Workflow-Stage"], said["Orbeon-Datasource"]) == ("new", "fr")
    assert (said["Content-Length"], said["Transfer-Encoding"], said["Content-Type"]) == ("8", None, "application/xml")
    assert not [name for name in said if name.endswith("-Existing") or name.startswith("Svc-")]
    assert (said["Orbeon-Singleton"], said["X-Request-Id"]) == (None, answer["X-Request-Id"])


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_what_is_there_is_changed_with_its_metadata(kept: Kept, keeper: Provider, served: Service, method: str) -> None:
    kept.has_data = True
    answer = served.ask(
        method, DATA, b"<d/>" if method == "PUT" else None, {"Content-Type": "text/xml"}, Username="kim"
    )
    assert (answer.status, answer["Svc-Form-Definition-Version"]) == (204, "1")
    (sent,) = keeper.of(method)
    existing = {name: value for name, value in sent.headers.items() if name.endswith("-Existing")}
    assert existing == {
        "Orbeon-Created-Existing": "2025-03-01T00:00:00.000Z",
        "Orbeon-Username-Existing": "lea",
        "Orbeon-Group-Existing": "staff",
    }
    assert (sent.headers["Orbeon-Form-Definition-Version"], sent.headers["Orbeon-Username"]) == ("1", "kim")
    assert keeper.received.index(keeper.of("HEAD")[0]) < keeper.received.index(sent), "HEAD comes first"


def test_conditions_and_versions_are_judged_here(kept: Kept, keeper: Provider, served: Service) -> None:
    kept.has_data = True
    assert served.put(DATA, headers={"If-Match": "other"}).status == 412
    assert served.put(DATA, Form_Definition_Version=2).status == 400
    assert served.put(DATA, Form_Definition_Version="next").status == 400
    assert keeper.of("PUT") == []
    assert served.put(DATA, headers={"If-Match": "cd" * 20}).status == 204
    assert served.put(DATA, headers={"If-Match": "*"}).status == served.put(DATA).status == 204
    tag = "cd" * 20
    assert [put.headers["If-Match"].strip('"') for put in keeper.of("PUT")] == [tag] * 3, "not the client's"


def test_what_was_replaced_behind_meanwhile_is_not_overwritten(kept: Kept, keeper: Provider, served: Service) -> None:
    """The provider says so; the client is to come back, as where a lock was not to be had."""
    kept.has_data = True
    answers = keeper.answers
    keeper.answers = lambda got: Reply(412) if got.method in {"PUT", "DELETE"} else answers(got)
    for answer in (served.put(DATA), served.delete(DATA), served.put(DATA, headers={"If-Match": "cd" * 20})):
        assert (answer.status, answer["Retry-After"]) == (503, "1")


def test_an_attachment_is_put_with_the_clients_hash(kept: Kept, keeper: Provider, served: Service) -> None:
    kept.has_data = True
    sent = {"Hash_Algorithm": "SHA-256", "Hash_Value": "abc", "Path_To_Holder": "a/b"}
    assert served.put(FILE, BODY, {"Content-Type": "video/mp4"}, **sent).status == 201
    said = keeper.of("PUT")[0].headers
    assert (said["Orbeon-Hash-Algorithm"], said["Orbeon-Hash-Value"]) == ("SHA-256", "abc")
    assert (said["Orbeon-Path-To-Holder"], said["Content-Type"]) == ("a/b", "video/mp4")
    assert keeper.of("PUT")[0].body == BODY


def test_ranges_are_asked_for_and_work_where_the_provider_has_none(
    kept: Kept, keeper: Provider, served: Service
) -> None:
    kept.has_data = kept.has_files = True
    answer = served.get(FILE, {"Range": "bytes=70000-70009"})
    assert (answer.status, answer.body) == (206, BODY[70000:70010])
    assert answer["Content-Range"] == f"bytes 70000-70009/{len(BODY)}"
    (get,) = [each for each in keeper.of("GET") if each.path.endswith(".bin")]
    assert get.headers["Range"] == "bytes=70000-70009"
    assert served.get(FILE).body == BODY


def test_an_older_revision_is_asked_for_by_its_instant(kept: Kept, keeper: Provider, served: Service) -> None:
    kept.has_data = True
    assert served.get(f"{DATA}?last-modified-time=2025-03-04T05:06:07.089Z").status == 200
    (get,) = [each for each in keeper.of("GET") if "data.xml" in each.path]
    assert get.path.endswith("?last-modified-time=2025-03-04T05%3A06%3A07.089Z")


def test_a_draft_is_deleted_by_one_request(kept: Kept, keeper: Provider, served: Service) -> None:
    kept.has_data = True
    draft = DATA.replace("/data/D/", "/draft/D/")
    assert served.delete(draft).status == 204
    assert [each.path for each in keeper.of("DELETE")] == [f"/base/crud/{draft}"]
    keeper.received.clear()
    assert served.put(DATA).status == 204
    assert keeper.of("DELETE") == [], "it goes with the data that is saved (spec crud 4.11)"


def test_next_becomes_a_number(kept: Kept, keeper: Provider, served: Service) -> None:
    listed = (
        b"<forms><form><application-name>acme</application-name><form-name>order</form-name><form-version>4"
        b"</form-version><last-modified-time>2025-03-04T05:06:07Z</last-modified-time></form></forms>"
    )
    kept.forms = Reply(body=listed)
    path = "acme/order/form/form.xhtml"
    answer = served.put(f"{path}?document=D7", definition(""), Form_Definition_Version="next")
    assert (answer.status, answer["Svc-Form-Definition-Version"]) == (201, "5")
    (put,) = keeper.of("PUT")
    assert (put.headers["Orbeon-Form-Definition-Version"], put.path) == ("5", f"/base/crud/{path}?document=D7")


def test_the_first_document_of_a_singleton_says_so(kept: Kept, keeper: Provider, served: Service) -> None:
    form = definition("<singleton>true</singleton>")
    kept.forms = Reply(
        body=b"<forms><form><application-name>acme</application-name><form-name>order</form-name><form-version>1"
        b"</form-version><last-modified-time>2025-03-04T05:06:07Z</last-modified-time></form></forms>"
    )
    kept.definition = Reply(200, STORED, form)
    ordinary = keeper.answers
    keeper.answers = lambda got: Reply(body=b'<documents search-total="0"/>') if got.method == "POST" else ordinary(got)
    assert served.put(DATA, **V1).status == 201
    assert keeper.of("PUT")[0].headers["Orbeon-Singleton"] == "true"


def test_the_designers_application_is_called_as_it_is_there(kept: Kept, keeper: Provider, served: Service) -> None:
    del kept
    assert served.put("svc/builder/data/D/data.xml", definition("")).status == 201
    assert keeper.of("PUT")[0].path == "/base/crud/orbeon/builder/data/D/data.xml"


def test_a_search_is_told_who_asks(kept: Kept, keeper: Provider, served: Service) -> None:
    ordinary = kept.__call__
    keeper.answers = lambda got: Reply(body=b'<documents search-total="0"/>') if got.method == "POST" else ordinary(got)
    headers = {"Content-Type": "application/xml", "Svc-Username": "kim", "Svc-Form-Definition-Version": "2"}
    answer = served.raw("POST", f"{PUBLIC}/search/acme/order", headers, b"<search><query>x</query></search>")
    assert (answer.status, answer.body) == (200, b'<documents search-total="0"/>')
    (search,) = keeper.of("POST")
    assert search.path == "/base/search/acme/order"
    assert (search.headers["Orbeon-Username"], search.headers["Orbeon-Form-Definition-Version"]) == ("kim", "2")
