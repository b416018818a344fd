"""A provider: what it is sent (spec crud 2 and 11, forms 5.4 to 5.6), and what becomes of its faults."""

import http.client
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.in_process import serving
from tests.providers import STORED, Provider, Received, Reply, providing, wired
from tests.published import definition
from tests.service import PROVIDER, PUBLIC, V1, Service, alone

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
def test_nothing_is_written_over_the_end_of_time(provider: Provider, service: Service, modified: str) -> None:
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


def test_a_broken_download_is_no_answer_and_a_question_is_repeated(provider: Provider, service: Service) -> None:
    head = "".join(f"{name}: {value}\r\n" for name, value in STORED.items())
    raw = f"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n{head}\r\n".encode() + bytes(500_000)
    answering(provider)
    ordinary, replies = provider.answers, [Reply(raw=b"")]
    provider.answers = lambda got: Reply(raw=raw) if got.path.endswith(".bin") else ordinary(got)
    with pytest.raises(http.client.IncompleteRead):
        service.get(FILE)
    provider.answers = lambda got: (
        replies.pop() if got.method == "GET" and got.path.endswith("xml") and replies else ordinary(got)
    )
    assert service.get(DATA).status == 200
    assert replies == []


def test_a_refused_write_is_no_success_and_is_not_sent_again(provider: Provider, service: Service) -> None:
    for status, ours in ((409, 409), (423, 423), (507, 507), (500, 502)):
        answering(provider, PUT=Reply(status), DELETE=Reply(status))
        for answer in (service.put(DATA), service.delete(DATA)):
            assert (answer.status, answer.cause.startswith("provider 'files' answers ")) == (ours, True)
    answering(provider, PUT=Reply(raw=b""), DELETE=Reply(raw=b""))
    assert service.put(DATA).status == service.delete(DATA).status == 502
    assert (len(provider.of("PUT")), len(provider.of("DELETE"))) == (1, 1)


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
        uri = f'"svc.persistence.files.uri" = "http://127.0.0.1:{wire.port}"\n'
        with serving(tmp_path, settings=f'{uri}"svc.persistence.files.dialect" = "orbeon"\n', alone=True) as service:
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


def test_a_new_document_is_put_without_existing_metadata(kept: Kept, keeper: Provider, served: Service) -> None:
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


def test_ranges_work_where_the_provider_has_none(kept: Kept, keeper: Provider, served: Service) -> None:
    kept.has_data = kept.has_files = True
    answer = served.get(FILE, {"Range": "bytes=70000-70009"})
    assert (answer.status, answer.body) == (206, BODY[70000:70010])
    assert answer["Content-Range"] == f"bytes 70000-70009/{len(BODY)}"
    (get,) = [each for each in keeper.of("GET") if each.path.endswith(".bin")]
    assert get.headers["Range"] == "bytes=70000-70009"
    assert served.get(FILE).body == BODY


def test_a_draft_is_deleted_and_a_revision_read_by_one_request(kept: Kept, keeper: Provider, served: Service) -> None:
    kept.has_data = True
    draft = DATA.replace("/data/D/", "/draft/D/")
    assert served.delete(draft).status == 204
    assert [each.path for each in keeper.of("DELETE")] == [f"/base/crud/{draft}"]
    keeper.received.clear()
    assert served.put(DATA).status == 204
    assert keeper.of("DELETE") == [], "it goes with the data that is saved (spec crud 4.11)"
    assert served.get(f"{DATA}?last-modified-time=2025-03-04T05:06:07.089Z").status == 200
    (get,) = [each for each in keeper.of("GET") if "data.xml" in each.path]
    assert get.path.endswith("?last-modified-time=2025-03-04T05%3A06%3A07.089Z")


def listing(version: int) -> Reply:
    return Reply(
        body=b"<forms><form><application-name>acme</application-name><form-name>order</form-name><form-version>%d"
        b"</form-version><last-modified-time>2025-03-04T05:06:07Z</last-modified-time></form></forms>" % version
    )


def test_next_becomes_a_number_and_the_designer_is_renamed(kept: Kept, keeper: Provider, served: Service) -> None:
    kept.forms = listing(4)
    path = "acme/order/form/form.xhtml"
    answer = served.put(f"{path}?document=D7", definition(""), Form_Definition_Version="next")
    assert (answer.status, answer["Svc-Form-Definition-Version"]) == (201, "5")
    (put,) = keeper.of("PUT")
    assert (put.headers["Orbeon-Form-Definition-Version"], put.path) == ("5", f"/base/crud/{path}?document=D7")
    keeper.received.clear()
    assert served.put("svc/builder/data/D/data.xml", definition("")).status == 201
    assert keeper.of("PUT")[0].path == "/base/crud/orbeon/builder/data/D/data.xml"


def test_the_first_document_of_a_singleton_says_so(kept: Kept, keeper: Provider, served: Service) -> None:
    kept.forms, kept.definition = listing(1), Reply(200, STORED, definition("<singleton>true</singleton>"))
    ordinary = keeper.answers
    keeper.answers = lambda got: Reply(body=b'<documents search-total="0"/>') if got.method == "POST" else ordinary(got)
    assert served.put(DATA, **V1).status == 201
    assert keeper.of("PUT")[0].headers["Orbeon-Singleton"] == "true"


def test_a_search_is_told_who_asks(kept: Kept, keeper: Provider, served: Service) -> None:
    ordinary = kept.__call__
    keeper.answers = lambda got: Reply(body=b'<documents search-total="0"/>') if got.method == "POST" else ordinary(got)
    headers = {"Content-Type": "application/xml", "Svc-Username": "kim", "Svc-Form-Definition-Version": "2"}
    answer = served.raw("POST", f"{PUBLIC}/search/acme/order", headers, b"<search><query>x</query></search>")
    assert (answer.status, answer.body) == (200, b'<documents search-total="0"/>')
    (search,) = keeper.of("POST")
    assert search.path == "/base/search/acme/order"
    assert (search.headers["Orbeon-Username"], search.headers["Orbeon-Form-Definition-Version"]) == ("kim", "2")


# Bodies of attachments with a service of their own (spec forms 5.5): what it is sent, and when.

SPLIT_FILE = "acme/order/data/D/cat.bin"
WHOLE = bytes(range(256)) * 1000


class Files:
    """A far of attachments as small as the specification has it: no ranges, no tags, no times."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.fails = False

    def __call__(self, got: Received) -> Reply:
        if self.fails:
            return Reply(500)
        if got.method == "PUT":
            self.kept[got.path] = got.body
            return Reply(204)
        if got.method == "DELETE":
            self.kept = {path: body for path, body in self.kept.items() if not path.startswith(got.path)}
            return Reply(204)
        found = self.kept.get(got.path)
        return Reply(404) if found is None else Reply(200, {}, found)


@pytest.fixture(scope="module")
def far() -> Iterator[Provider]:
    with providing(Files()) as far:
        yield far


@pytest.fixture(scope="module")
def split(far: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving_before(far, tmp_path_factory.mktemp("bodies"), PERSISTENCE_TRUSTED="127.0.0.1") as service:
        yield service


@contextmanager
def serving_before(far: Provider, directory: Path, **env: str) -> Iterator[Service]:
    settings = (
        '"svc.persistence.provider.*.*.data.attachments" = "files-elsewhere"\n'
        f'"svc.persistence.files-elsewhere.uri" = "http://127.0.0.1:{far.port}"\n'
    )
    with serving(directory, settings=settings, env=env, alone=True) as service:
        yield service


@pytest.fixture
def files(far: Provider, split: Service) -> Files:
    far.answers = files = Files()
    far.received.clear()
    split.put("acme/order/data/D/data.xml", Form_Definition_Version=3)
    far.received.clear()
    return files


@pytest.mark.usefixtures("files")
def test_the_provider_is_told_whose_request_is_served(far: Provider, split: Service) -> None:
    """It may judge by the user, let in by a trusted client's own credentials, and log the id of the request."""
    caller = {"Svc-Username": "ann", "Svc-Group": "sales", "Authorization": "Basic YTpi"}
    own = SPLIT_FILE.replace("/D/", "/told/")
    assert split.put("acme/order/data/told/data.xml", Form_Definition_Version=3).status == 201
    assert split.put(own, WHOLE, caller).status == 201
    assert split.get(own, {**caller, "Range": "bytes=100-109"}).body == WHOLE[100:110]
    put, got = far.of("PUT")[0].headers, far.of("GET")[-1].headers
    assert {name: put[name] for name in caller} == {name: got[name] for name in caller} == caller
    assert put["X-Request-Id"]
    assert got["Range"] == "bytes=100-109"


@pytest.mark.usefixtures("files")
def test_a_service_without_keys_passes_no_key_on(far: Provider, tmp_path: Path) -> None:
    """A client may send the one that it is to send when the service has keys."""
    key = {"Authorization": "Bearer meant-for-this-service"}
    with serving_before(far, tmp_path) as service:
        assert service.put("acme/order/data/D/data.xml", Form_Definition_Version=3).status == 201
        assert service.put(SPLIT_FILE, WHOLE, key).status == 201
        assert service.get(SPLIT_FILE, key).body == WHOLE
    assert len(far.received) > 1
    assert not any("Authorization" in each.headers for each in far.received)


def test_the_body_is_there_and_the_record_here(files: Files, far: Provider, split: Service) -> None:
    put = split.put(SPLIT_FILE, WHOLE, {"Content-Type": "image/png"})
    assert put.status in (201, 204)
    assert files.kept == {f"/crud/{SPLIT_FILE}": WHOLE}
    assert (split.data / SPLIT_FILE).read_bytes() == b""
    assert far.of("PUT")[0].headers["Svc-Form-Definition-Version"] == "3"
    got = split.get(SPLIT_FILE)
    assert (got.status, got.body, got["Content-Type"], got["ETag"]) == (200, WHOLE, "image/png", put["ETag"])
    part = split.get(SPLIT_FILE, {"Range": "bytes=100000-100009"})
    assert (part.status, part.body) == (206, WHOLE[100_000:100_010])
    assert split.head(SPLIT_FILE)["Content-Length"] == str(len(WHOLE))
    assert split.delete(SPLIT_FILE).status == 204
    assert files.kept == {}
    assert split.get(SPLIT_FILE).status == 404


def test_without_its_body_an_attachment_is_damage_and_not_absent(files: Files, split: Service) -> None:
    """What cannot be stored there has no record here."""
    assert split.put(SPLIT_FILE, WHOLE).status in (201, 204)
    files.kept.clear()
    assert split.get(SPLIT_FILE).status == 500
    files.fails = True
    assert split.get(SPLIT_FILE).status == split.put(SPLIT_FILE, b"other").status == 502
    assert split.put(SPLIT_FILE.replace("cat", "dog"), WHOLE).status == 502
    assert split.get(SPLIT_FILE.replace("cat", "dog")).status == 404


def test_attachments_of_a_draft_go_with_it(files: Files, far: Provider, split: Service) -> None:
    draft = "acme/order/draft/D"
    assert split.put(f"{draft}/data.xml", Form_Definition_Version=3).status == 201
    assert split.put(f"{draft}/a.bin", b"a", Form_Definition_Version=3).status == 201
    assert split.put("acme/order/data/D/data.xml").status == 204
    (deleted,) = far.of("DELETE")
    assert (deleted.path, deleted.headers["Svc-Form-Definition-Version"]) == (f"/crud/{draft}", "3")
    assert files.kept == {}


def test_older_bodies_are_not_taken_for_the_one_there_is(files: Files, split: Service) -> None:
    del files
    path = SPLIT_FILE.replace("cat", "bird")
    first = split.put(path, b"first")["Svc-Last-Modified"]
    assert split.put(path, b"other").status == 204
    assert split.get(f"{path}?last-modified-time={first}").refuses(501, "has no history")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    behind, front = tmp_path_factory.mktemp("bodies-behind"), tmp_path_factory.mktemp("bodies-front")
    with serving(behind, dialect="orbeon", alone=True) as bodies:
        settings = (
            '"svc.persistence.provider.*.*.data.attachments" = "files-elsewhere"\n'
            f'"svc.persistence.files-elsewhere.uri" = "http://127.0.0.1:{bodies.port}"\n'
            '"svc.persistence.files-elsewhere.dialect" = "orbeon"\n'
        )
        with serving(front, settings=settings, alone=True) as service:
            yield service, bodies


def test_older_bodies_are_found_in_the_history_of_the_other_service(places: tuple[Service, Service]) -> None:
    """By their digest: its clock is another one, and it may have bodies that have no record here."""
    service, bodies = places
    service.put("acme/order/data/D/data.xml", Form_Definition_Version=3)
    contents = [bytes([number]) * (size + 70_000) for number, size in enumerate((1, 1, 2, 1, 3, 1, 1, 0))]
    instants = []
    for number, content in enumerate(contents):
        if number in (2, 5):  # stored by nobody here, as by a PUT that was cut off after the body had arrived
            assert bodies.put(SPLIT_FILE, b"?" * len(contents[number - 1]), Form_Definition_Version=3).status == 204
        if number == 4:
            assert service.delete(SPLIT_FILE).status == 204
        put = service.put(SPLIT_FILE, content)
        assert put.status in (201, 204)
        instants.append(put["Svc-Last-Modified"])
    for instant, content in zip(instants, contents, strict=True):
        for query in (f"last-modified-time={instant}", f"as-of={instant}"):
            found = service.get(f"{SPLIT_FILE}?{query}")
            assert (found.status, found.body == content, found["Svc-Last-Modified"]) == (200, True, instant), (
                found.cause
            )
            assert service.head(f"{SPLIT_FILE}?{query}")["Content-Length"] == str(len(content))
        part = service.get(f"{SPLIT_FILE}?last-modified-time={instant}", {"Range": "bytes=69990-69999"})
        assert (part.status, part.body) == (206, content[69_990:70_000])
    listed = service.raw("GET", f"{PUBLIC}/history/acme/order/D/cat.bin")
    assert listed.body.count(b"<document ") == len(contents) + 1


def test_an_older_body_that_is_not_there_any_more_is_501(places: tuple[Service, Service]) -> None:
    service, bodies = places
    path = "acme/order/data/gone/cat.bin"
    service.put("acme/order/data/gone/data.xml", Form_Definition_Version=3)
    first = service.put(path, b"first")["Svc-Last-Modified"]
    assert service.put(path, b"other").status == 204
    for file in (bodies.data / "acme/order/data/gone/.history").iterdir():
        file.unlink()
    assert service.get(f"{path}?last-modified-time={first}").refuses(501, "does not show the body")
    assert service.get(path).body == b"other"


def test_attachments_of_a_draft_go_from_the_other_service_too(places: tuple[Service, Service]) -> None:
    service, bodies = places
    draft, data = "acme/order/draft/saved", "acme/order/data/saved/data.xml"
    for finish, status in ((service.put, 201), (service.delete, 204)):
        assert service.put(f"{draft}/data.xml", Form_Definition_Version=3).status == 201
        assert service.put(f"{draft}/a.bin", b"a", Form_Definition_Version=3).status == 201
        assert (bodies.data / draft / "a.bin").read_bytes() == b"a"
        assert finish(data, Form_Definition_Version=3).status == status
        assert not (bodies.data / draft).exists()


def test_only_a_proxy_discards_a_draft_without_naming_its_data(places: tuple[Service, Service]) -> None:
    service, bodies = places
    draft = "acme/order/draft/left"
    behind = replace(bodies, face=PROVIDER)
    for each in (service, bodies, replace(service, face=PROVIDER)):
        assert each.put(f"{draft}/data.xml", Form_Definition_Version=3).status in (201, 204)
        assert each.delete(draft, Form_Definition_Version=3).status == 400
        assert each.get(f"{draft}/data.xml").status == 200
    assert behind.delete(draft).status == 400
    assert [behind.delete(draft, Form_Definition_Version=3).status for _ in range(2)] == [204, 204]
    assert bodies.get(f"{draft}/data.xml").status == 404
    assert behind.get(draft).status == 400
