"""A provider: what it is sent (spec crud 2 and 11, forms 5.4 to 5.6), and what becomes of its faults."""

import http.client
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.http.stories import path_of, play, stories
from tests.in_process import serving
from tests.providers import STORED, Provider, Received, Reply, providing, wired
from tests.published import definition
from tests.service import PROVIDER, PUBLIC, V1, Service, alone

DATA = "acme/order/data/D/data.xml"
FILE = "acme/order/data/D/film.bin"
BODY = bytes(range(256)) * 1024
NEW, OLD = "ab" * 20, "cd" * 20
"""The tags of what is stored and of what was there before."""


@dataclass
class Far:
    """A provider of which a word that is not empty says what is there; ``replies`` are its answers to methods."""

    has_data: str = "yes"
    has_files: str = ""
    tag: str = "{}"
    version: str = ""
    is_singleton: str = ""
    replies: dict[str, Reply] = field(default_factory=dict)

    def __call__(self, got: Received) -> Reply:
        path = got.path.partition("?")[0]
        if got.method in self.replies and not path.endswith("form.xhtml"):
            return self.replies[got.method]
        if path.startswith("/base/form"):
            return listing(int(self.version)) if self.version else Reply(body=b'<forms search-total="0"/>')
        if got.method == "POST":
            return Reply(body=b'<documents search-total="0"/>')
        if got.method in ("PUT", "DELETE"):
            return Reply(204, {**STORED, "ETag": self.tag.replace("{}", NEW)})
        if path.endswith("form.xhtml"):
            return SINGLETON if self.is_singleton else Reply(404)
        if path.endswith("data.xml") and self.has_data:
            return Reply(200, {**STORED, "ETag": self.tag.replace("{}", OLD)}, b"<d/>")
        return Reply(200, {**STORED, "Content-Type": "video/mp4"}, BODY) if self.has_files else Reply(404)


def settings(port: int, more: str = "") -> str:
    return (
        f'remote_timeout = 0.5\n"svc.persistence.files.uri" = "http://127.0.0.1:{port}/base"\n'
        f'"svc.persistence.files.dialect" = "orbeon"\n"svc.persistence.files.datasource" = "fr"\n{more}'
    )


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with providing(Far()) as provider:
        yield provider


@pytest.fixture(scope="module")
def service(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("far"), settings=settings(provider.port), alone=True) as service:
        yield service


@pytest.fixture
def far(provider: Provider) -> Far:
    provider.answers = far = Far()
    provider.received.clear()
    return far


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        *((400, 400), (401, 502), (403, 403), (404, 404), (405, 502), (409, 409), (412, 412), (413, 413), (418, 502)),
        *((423, 423), (429, 503), (500, 502), (501, 501), (502, 502), (503, 503), (507, 507), (302, 502), (204, 502)),
    ],
)
def test_a_refusal_is_passed_on_as_it_is_meant(far: Far, service: Service, theirs: int, ours: int) -> None:
    said = {"Content-Type": "text/plain", "Location": "/elsewhere", "Retry-After": "7"}
    far.replies["GET"] = Reply(theirs, said, b"" if theirs == 204 else b"because of this\nand more")
    answer = service.get(DATA)
    assert answer.status == ours
    assert theirs in (204, 404) or "because of this" in answer.cause
    assert ("and more" not in answer.cause, answer["Retry-After"]) == (True, "7" if ours == 503 else None)


def stored(*left_out: str, **other: str) -> Reply:
    """What is found without some headers, or with others."""
    kept = {name: text for name, text in STORED.items() if not name.endswith(left_out)}
    return Reply(headers=kept | {name.replace("_", "-"): text for name, text in other.items()}, body=b"<d/>")


SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nOrbeon-Form-Definition-Version: 1\r\n"
ODD = {
    "no time": stored("Last-Modified"),
    "no version": stored("Form-Definition-Version"),
    "an odd version": stored(Orbeon_Form_Definition_Version="next"),
    "an odd time": stored(Orbeon_Last_Modified="yesterday", Last_Modified="soon"),
    "coded": stored(Content_Encoding="gzip"),
    "garbage": Reply(raw=b"\x00\x01 nothing that is HTTP\r\n\r\n"),
    "short": Reply(raw=SHORT + b"Orbeon-Last-Modified: 2025-03-04T05:06:07.089Z\r\n\r\n<d>"),
    "hung up": Reply(raw=b""),
}


@pytest.mark.parametrize("reply", ODD.values(), ids=ODD)
def test_an_odd_answer_is_a_bad_gateway_with_a_cause(far: Far, service: Service, reply: Reply) -> None:
    far.replies["GET"] = reply
    answer = service.get(DATA)
    assert (answer.status, len(answer.cause.splitlines())) == (502, 1)
    assert "127.0.0.1" not in answer.cause, "where a provider is, may have a password in it"


@pytest.mark.parametrize("modified", ["9999-12-31T23:59:59.999Z", "9999-12-31T22:59:59.9999999-01:00"])
def test_nothing_is_written_over_the_end_of_time(far: Far, provider: Provider, service: Service, modified: str) -> None:
    far.replies["HEAD"] = stored(Orbeon_Last_Modified=modified)
    for answer in (service.put(DATA), service.delete(DATA)):
        assert answer.refuses(502, ", which nothing can follow")
    assert provider.of("PUT") == provider.of("DELETE") == []


def test_lists_and_searches_that_are_none_are_bad_gateways(far: Far, service: Service) -> None:
    for body in (b"<documents", b"<documents/>", b'<documents search-total="1"><document name="d"/></documents>'):
        far.replies["POST"] = Reply(body=body)
        assert service.post("search/acme/order", "<search/>").status == 502
    far.replies["GET"] = Reply(body=b"<forms")
    assert service.raw("GET", f"{PUBLIC}/form").status == 502


def test_a_broken_download_is_no_answer_and_a_question_is_repeated(
    far: Far, provider: Provider, service: Service
) -> None:
    head = "".join(f"{name}: {value}\r\n" for name, value in STORED.items())
    raw = f"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n{head}\r\n".encode() + bytes(500_000)
    provider.answers = lambda got: Reply(raw=raw) if got.path.endswith(".bin") else far(got)
    with pytest.raises(http.client.IncompleteRead):
        service.get(FILE)
    hung_up = [Reply(raw=b"")]
    provider.answers = lambda got: (
        hung_up.pop() if got.method == "GET" and "data.xml" in got.path and hung_up else far(got)
    )
    assert service.get(DATA).status == 200
    assert hung_up == []


def test_a_refused_write_is_no_success_and_is_not_sent_again(far: Far, provider: Provider, service: Service) -> None:
    for status, ours in ((409, 409), (423, 423), (507, 507), (500, 502)):
        far.replies |= {"PUT": Reply(status), "DELETE": Reply(status)}
        for answer in (service.put(DATA), service.delete(DATA)):
            assert answer.refuses(ours, "provider 'files' answers ")
    far.replies |= {"PUT": Reply(412), "DELETE": Reply(412)}
    for answer in (service.put(DATA), service.delete(DATA), service.put(DATA, headers={"If-Match": OLD})):
        assert (answer.status, answer["Retry-After"]) == (503, "1"), "it was replaced behind: as without a lock"
    far.replies |= {"PUT": Reply(raw=b""), "DELETE": Reply(raw=b"")}
    provider.received.clear()
    assert service.put(DATA).status == service.delete(DATA).status == 502
    assert (len(provider.of("PUT")), len(provider.of("DELETE"))) == (1, 1)


def test_a_provider_that_is_down_is_a_bad_gateway(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with serving(tmp_path, settings=settings(port), alone=True) as service:
        for answer in (service.get(DATA), service.put(DATA), service.delete(DATA)):
            assert answer.refuses(502, "provider 'files' cannot be reached: ")
        assert service.raw("GET", f"{PUBLIC}/form").status == 502
        assert service.raw("GET", "/readyz").status == 200, "what is kept here can be served"


def test_a_provider_that_hangs_is_given_up_and_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections, and says nothing
        own = settings(silent.getsockname()[1], '"svc.persistence.provider.here.*.*" = "tree"\n')
        with serving(tmp_path, settings=own, alone=True) as service:
            assert service.get(DATA).refuses(504, "provider 'files' does not answer in time")
            assert service.put(DATA).status == 504
            assert service.put("here/order/data/D/data.xml", **V1).status == 201


def test_what_is_cut_off_half_way_is_not_there(tmp_path: Path) -> None:
    """The remote is down in the middle of a PUT: 502, and nothing is half-done."""
    with alone(tmp_path / "behind", dialect="orbeon") as behind, wired(behind.port) as wire:
        uri = f'"svc.persistence.files.uri" = "http://127.0.0.1:{wire.port}"\n'
        with serving(tmp_path, settings=f'{uri}"svc.persistence.files.dialect" = "orbeon"\n', alone=True) as service:
            assert service.put(DATA, **V1).status == 201
            wire.cut_after = 1 << 20
            assert service.put(FILE, bytes(4 << 20)).refuses(502, "provider 'files' ")
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

EXISTING = "Created-Existing=2025-03-01T00:00:00.000Z Username-Existing=lea Group-Existing=staff"
SINGLETON = Reply(200, STORED, definition("<singleton>true</singleton>"))


def listing(version: int) -> Reply:
    return Reply(
        body=b"<forms><form><application-name>acme</application-name><form-name>order</form-name><form-version>%d"
        b"</form-version><last-modified-time>2025-03-04T05:06:07Z</last-modified-time></form></forms>" % version
    )


@stories(
    {
        "new data has no metadata of what exists": """
            FAR has_data=
            PUT data/D?valid=false&data-format-version=4.0.0&nonrelevant=remove v=3 by=kim stage=new <d>x</d> \
                Created-Existing=x -> 201 v=3 ETag={new} Last-Modified=2025-03-04T05:06:07.089Z
            GOT PUT data/D?valid=false&data-format-version=4.0.0 v=3 by=kim stage=new Datasource=fr Singleton= \
                Created-Existing= Username-Existing= Group-Existing= Content-Length=8 Content-Type=application/xml""",
        "what is there is changed with its metadata, after a HEAD": f"""
            PUT data/D by=kim -> 204 v=1
            GOT PUT data/D v=1 by=kim {EXISTING}
            DELETE data/D by=kim -> 204 v=1
            GOT DELETE data/D v=1 by=kim {EXISTING}""",
        "conditions and versions are judged here, and the condition is not the client's": """
            PUT data/D If-Match=other -> 412
            PUT data/D v=2 -> 400
            PUT data/D v=next -> 400
            GOT PUT
            PUT data/D If-Match={old} -> 204
            GOT PUT data/D If-Match={old}
            PUT data/D If-Match=* -> 204
            GOT PUT data/D If-Match={old}
            PUT data/D -> 204
            GOT PUT data/D If-Match={old}""",
        "a tag is read however the provider writes it: bare, as the real system, quoted, or weakened by a proxy": """
            HEAD data/D -> 200 ETag={old}
            FAR tag="{}"
            HEAD data/D -> 200 ETag={old}
            FAR tag=W/"{}"
            HEAD data/D -> 200 ETag={old}
            PUT data/D If-Match={new} -> 412
            PUT data/D If-Match={old} -> 204 ETag={new}""",
        "an attachment has the client's hash": """
            PUT data/D/film.bin Content-Type=video/mp4 Hash-Algorithm=SHA-256 Hash-Value=abc Path-To-Holder=a/b -> 201
            GOT PUT data/D/film.bin Content-Type=video/mp4 Hash-Algorithm=SHA-256 Hash-Value=abc Path-To-Holder=a/b""",
        "a draft is deleted by one request, and goes with the data that is saved (4.11)": """
            DELETE draft/D -> 204
            GOT DELETE draft/D
            PUT data/D -> 204
            GOT DELETE""",
        "a revision is read by one request": """
            GET data/D?last-modified-time=2025-03-04T05:06:07.089Z -> 200
            GOT GET data/D?last-modified-time=2025-03-04T05%3A06%3A07.089Z""",
        "next becomes a number": """
            FAR version=4
            PUT form?document=D7 v=next {definition} -> 201 v=5
            GOT PUT form?document=D7 v=5""",
        "the designer is renamed": """
            FAR has_data=
            PUT /svc/builder/data/D {definition} -> 201
            GOT PUT /orbeon/builder/data/D v=1""",
        "the first document of a singleton says so": """
            FAR has_data= version=1 is_singleton=yes
            PUT data/D v=1 -> 201
            GOT PUT data/D Singleton=true""",
        "a search is told who asks": """
            SEARCH v=2 by=kim <search><query>x</query></search> -> found=
            GOT POST v=2 by=kim""",
    }
)
def test_what_the_provider_is_sent(far: Far, provider: Provider, service: Service, story: str) -> None:
    def set_up(_: Service, __: str, headers: dict[str, str], *___: str) -> str:
        for name, value in headers.items():
            setattr(far, name.removeprefix("Svc-").lower(), value)
        return ""

    def got(_: Service, form: str, headers: dict[str, str], method: str, *paths: str) -> str:
        lists = ("/base/form", "/base/crud/acme/order/form/form.xhtml?")
        sent = [
            each for each in provider.of(method) if not f"{each.path}?".startswith(lists) or "document=" in each.path
        ]
        assert len(sent) == (1 if paths or headers else 0)
        assert [each.path for each in sent][: len(paths)] == [f"/base/crud/{path_of(form, each)}" for each in paths]
        for name, value in headers.items():
            found = sent[0].headers[name.replace("Svc-", "Orbeon-")]
            assert found == (value or None) or str(found) == value.strip('"'), name
        assert not [name for each in sent for name in each.headers if name.startswith("Svc-")]
        assert all(each.headers["X-Request-Id"] for each in sent)
        before = [each.method for each in provider.received[: provider.received.index(sent[0])]] if sent else []
        assert "data/D" not in paths or method == "GET" or "HEAD" in before
        assert "Transfer-Encoding" not in "".join(each.headers.as_string() for each in sent)
        provider.received.clear()
        return ""

    words = {"new": f'"{NEW}"', "old": f'"{OLD}"', "definition": definition("").decode()}
    play(service, "acme/order", story, verbs={"FAR": set_up, "GOT": got}, **words)


def test_ranges_work_where_the_provider_has_none(far: Far, provider: Provider, service: Service) -> None:
    far.has_files = "yes"
    answer = service.get(FILE, {"Range": "bytes=70000-70009"})
    assert (answer.status, answer.body) == (206, BODY[70000:70010])
    assert answer["Content-Range"] == f"bytes 70000-70009/{len(BODY)}"
    (get,) = [each for each in provider.of("GET") if each.path.endswith(".bin")]
    assert get.headers["Range"] == "bytes=70000-70009"
    assert service.get(FILE).body == BODY


# Bodies of attachments with a service of their own (spec forms 5.5): what it is sent, and when.

SPLIT_FILE = "acme/order/data/D/cat.bin"
WHOLE = BODY[:256_000]
ELSEWHERE = """"svc.persistence.provider.*.*.data.attachments" = "files-elsewhere"
"svc.persistence.files-elsewhere.uri" = "http://127.0.0.1:{}"
"""


class Files:
    """A holder of attachments as small as the specification has it: no ranges, no tags, no times."""

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
def holder() -> Iterator[Provider]:
    with providing(Files()) as holder:
        yield holder


@pytest.fixture(scope="module")
def split(holder: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving_before(holder, tmp_path_factory.mktemp("bodies"), PERSISTENCE_TRUSTED="127.0.0.1") as service:
        yield service


@contextmanager
def serving_before(holder: Provider, directory: Path, **env: str) -> Iterator[Service]:
    with serving(directory, settings=ELSEWHERE.format(holder.port), env=env, alone=True) as service:
        yield service


@pytest.fixture
def files(holder: Provider, split: Service) -> Files:
    holder.answers = files = Files()
    holder.received.clear()
    split.put("acme/order/data/D/data.xml", Form_Definition_Version=3)
    holder.received.clear()
    return files


@pytest.mark.usefixtures("files")
def test_the_provider_is_told_whose_request_is_served(holder: Provider, split: Service) -> None:
    """It may judge by the user, let in by a trusted client's own credentials, and log the id of the request."""
    caller = {"Svc-Username": "ann", "Svc-Group": "sales", "Authorization": "Basic YTpi"}
    own = SPLIT_FILE.replace("/D/", "/told/")
    assert split.put("acme/order/data/told/data.xml", Form_Definition_Version=3).status == 201
    assert split.put(own, WHOLE, caller).status == 201
    assert split.get(own, {**caller, "Range": "bytes=100-109"}).body == WHOLE[100:110]
    put, got = holder.of("PUT")[0].headers, holder.of("GET")[-1].headers
    assert {name: put[name] for name in caller} == {name: got[name] for name in caller} == caller
    assert put["X-Request-Id"]
    assert got["Range"] == "bytes=100-109"


@pytest.mark.usefixtures("files")
def test_a_service_without_keys_passes_no_key_on(holder: Provider, tmp_path: Path) -> None:
    """A client may send the one that it is to send when the service has keys."""
    key = {"Authorization": "Bearer meant-for-this-service"}
    with serving_before(holder, tmp_path) as service:
        assert service.put("acme/order/data/D/data.xml", Form_Definition_Version=3).status == 201
        assert service.put(SPLIT_FILE, WHOLE, key).status == 201
        assert service.get(SPLIT_FILE, key).body == WHOLE
    assert len(holder.received) > 1
    assert not any("Authorization" in each.headers for each in holder.received)


def test_the_body_is_there_and_the_record_here(files: Files, holder: Provider, split: Service) -> None:
    put = split.put(SPLIT_FILE, WHOLE, {"Content-Type": "image/png"})
    assert put.status in (201, 204)
    assert files.kept == {f"/crud/{SPLIT_FILE}": WHOLE}
    assert (split.data / SPLIT_FILE).read_bytes() == b""
    assert holder.of("PUT")[0].headers["Svc-Form-Definition-Version"] == "3"
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
        settings = ELSEWHERE.format(bodies.port) + '"svc.persistence.files-elsewhere.dialect" = "orbeon"\n'
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
