"""Bodies of attachments with a service of their own (spec forms 5.5): what it is sent, and when."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.in_process import serving
from tests.providers import Provider, Received, Reply, providing
from tests.service import PROVIDER, PUBLIC, Service

FILE = "acme/order/data/D/cat.bin"
BODY = bytes(range(256)) * 1000


class Files:
    """A provider of attachments as small as the specification has it: no ranges, no tags, no times."""

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
def provider() -> Iterator[Provider]:
    with providing(Files()) as provider:
        yield provider


@pytest.fixture(scope="module")
def served(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving_before(provider, tmp_path_factory.mktemp("bodies"), PERSISTENCE_TRUSTED="127.0.0.1") as service:
        yield service


@contextmanager
def serving_before(provider: Provider, directory: Path, **env: str) -> Iterator[Service]:
    file = directory / "settings.toml"
    file.write_text(
        '"svc.persistence.provider.*.*.data.attachments" = "files-elsewhere"\n'
        f'"svc.persistence.files-elsewhere.uri" = "http://127.0.0.1:{provider.port}"\n'
    )
    with serving(directory, env={"PERSISTENCE_CONFIG": str(file), **env}, alone=True) as service:
        yield service


@pytest.fixture
def files(provider: Provider, served: Service) -> Files:
    provider.answers = files = Files()
    provider.received.clear()
    served.put("acme/order/data/D/data.xml", Form_Definition_Version=3)
    provider.received.clear()
    return files


@pytest.mark.usefixtures("files")
def test_the_provider_is_told_whose_request_is_served(provider: Provider, served: Service) -> None:
    """It may judge by the user, let in by a trusted client's own credentials, and log the id of the request."""
    caller = {"Svc-Username": "ann", "Svc-Group": "sales", "Authorization": "Basic YTpi"}
    own = FILE.replace("/D/", "/told/")
    assert served.put("acme/order/data/told/data.xml", Form_Definition_Version=3).status == 201
    assert served.put(own, BODY, caller).status == 201
    assert served.get(own, {**caller, "Range": "bytes=100-109"}).body == BODY[100:110]
    put, got = provider.of("PUT")[0].headers, provider.of("GET")[-1].headers
    assert {name: put[name] for name in caller} == {name: got[name] for name in caller} == caller
    assert put["X-Request-Id"]
    assert got["Range"] == "bytes=100-109"


@pytest.mark.usefixtures("files")
def test_a_service_without_keys_passes_no_key_on(provider: Provider, tmp_path: Path) -> None:
    """A client may send the one that it is to send when the service has keys."""
    key = {"Authorization": "Bearer meant-for-this-service"}
    with serving_before(provider, tmp_path) as service:
        assert service.put("acme/order/data/D/data.xml", Form_Definition_Version=3).status == 201
        assert service.put(FILE, BODY, key).status == 201
        assert service.get(FILE, key).body == BODY
    assert len(provider.received) > 1
    assert not any("Authorization" in each.headers for each in provider.received)


def test_the_body_is_there_and_the_record_here(files: Files, provider: Provider, served: Service) -> None:
    put = served.put(FILE, BODY, {"Content-Type": "image/png"})
    assert put.status in (201, 204)
    assert files.kept == {f"/crud/{FILE}": BODY}
    assert (served.data / FILE).read_bytes() == b""
    assert provider.of("PUT")[0].headers["Svc-Form-Definition-Version"] == "3"
    got = served.get(FILE)
    assert (got.status, got.body, got["Content-Type"], got["ETag"]) == (200, BODY, "image/png", put["ETag"])
    part = served.get(FILE, {"Range": "bytes=100000-100009"})
    assert (part.status, part.body) == (206, BODY[100_000:100_010])
    assert served.head(FILE)["Content-Length"] == str(len(BODY))
    assert served.delete(FILE).status == 204
    assert files.kept == {}
    assert served.get(FILE).status == 404


def test_without_its_body_an_attachment_is_damage_and_not_absent(files: Files, served: Service) -> None:
    assert served.put(FILE, BODY).status in (201, 204)
    files.kept.clear()
    assert served.get(FILE).status == 500
    files.fails = True
    assert served.get(FILE).status == served.put(FILE, b"other").status == 502


def test_what_cannot_be_stored_there_has_no_record_here(files: Files, served: Service) -> None:
    files.fails = True
    assert served.put(FILE.replace("cat", "dog"), BODY).status == 502
    assert served.get(FILE.replace("cat", "dog")).status == 404


def test_attachments_of_a_draft_go_with_it(files: Files, provider: Provider, served: Service) -> None:
    draft = "acme/order/draft/D"
    assert served.put(f"{draft}/data.xml", Form_Definition_Version=3).status == 201
    assert served.put(f"{draft}/a.bin", b"a", Form_Definition_Version=3).status == 201
    assert served.put("acme/order/data/D/data.xml").status == 204
    (deleted,) = provider.of("DELETE")
    assert (deleted.path, deleted.headers["Svc-Form-Definition-Version"]) == (f"/crud/{draft}", "3")
    assert files.kept == {}


def test_older_bodies_are_not_taken_for_the_one_there_is(files: Files, served: Service) -> None:
    del files
    path = FILE.replace("cat", "bird")
    first = served.put(path, b"first")["Svc-Last-Modified"]
    assert served.put(path, b"other").status == 204
    assert served.get(f"{path}?last-modified-time={first}").refuses(501, "has no history")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    behind, front = tmp_path_factory.mktemp("bodies-behind"), tmp_path_factory.mktemp("bodies-front")
    with serving(behind, dialect="orbeon", alone=True) as bodies:
        (front / "settings.toml").write_text(
            '"svc.persistence.provider.*.*.data.attachments" = "files-elsewhere"\n'
            f'"svc.persistence.files-elsewhere.uri" = "http://127.0.0.1:{bodies.port}"\n'
            '"svc.persistence.files-elsewhere.dialect" = "orbeon"\n'
        )
        with serving(front, options=("--config", "settings.toml"), alone=True) as service:
            yield service, bodies


def test_older_bodies_are_found_in_the_history_of_the_other_service(places: tuple[Service, Service]) -> None:
    """By their digest: its clock is another one, and it may have bodies that have no record here."""
    service, bodies = places
    service.put("acme/order/data/D/data.xml", Form_Definition_Version=3)
    contents = [bytes([number]) * (size + 70_000) for number, size in enumerate((1, 1, 2, 1, 3, 1, 1, 0))]
    instants = []
    for number, content in enumerate(contents):
        if number in (2, 5):  # stored by nobody here, as by a PUT that was cut off after the body had arrived
            assert bodies.put(FILE, b"?" * len(contents[number - 1]), Form_Definition_Version=3).status == 204
        if number == 4:
            assert service.delete(FILE).status == 204
        put = service.put(FILE, content)
        assert put.status in (201, 204)
        instants.append(put["Svc-Last-Modified"])
    for instant, content in zip(instants, contents, strict=True):
        for query in (f"last-modified-time={instant}", f"as-of={instant}"):
            found = service.get(f"{FILE}?{query}")
            assert (found.status, found.body == content, found["Svc-Last-Modified"]) == (200, True, instant), (
                found.cause
            )
            assert service.head(f"{FILE}?{query}")["Content-Length"] == str(len(content))
        part = service.get(f"{FILE}?last-modified-time={instant}", {"Range": "bytes=69990-69999"})
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
