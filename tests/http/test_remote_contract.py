"""What a provider is sent, request by request (spec crud 2 and 11, forms 5.4 to 5.6)."""

from collections.abc import Iterator

import pytest

from tests.http.test_remote_faults import DATA, EMPTY_LIST, FILE, settings
from tests.in_process import serving
from tests.providers import STORED, Provider, Received, Reply, providing
from tests.published import definition
from tests.service import PUBLIC, V1, Service

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
def provider() -> Iterator[Provider]:
    with providing(Kept()) as provider:
        yield provider


@pytest.fixture(scope="module")
def served(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("contract")
    with serving(directory, env={"PERSISTENCE_CONFIG": str(settings(directory, provider.port))}, alone=True) as service:
        yield service


@pytest.fixture
def kept(provider: Provider, served: Service) -> Kept:
    del served
    provider.answers = kept = Kept()
    provider.received.clear()
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
    kept: Kept, provider: Provider, served: Service
) -> None:
    del kept
    query = "?valid=false&data-format-version=4.0.0&nonrelevant=remove"
    answer = served.put(
        DATA + query, b"<d>x</d>", Form_Definition_Version=3, Username="kim", Workflow_Stage="new", Created_Existing="x"
    )
    assert (answer.status, answer["Svc-Form-Definition-Version"]) == (201, "3")
    assert (answer["ETag"], answer["Svc-Last-Modified"]) == (f'"{"ab" * 20}"', "2025-03-04T05:06:07.089Z")
    (put,) = provider.of("PUT")
    assert (put.path, put.body) == (f"/base/crud/{DATA}?valid=false&data-format-version=4.0.0", b"<d>x</d>")
    said = put.headers
    assert (said["Orbeon-Form-Definition-Version"], said["Orbeon-Username"]) == ("3", "kim")
    assert (said["Orbeon-Workflow-Stage"], said["Orbeon-Datasource"]) == ("new", "fr")
    assert (said["Content-Length"], said["Transfer-Encoding"], said["Content-Type"]) == ("8", None, "application/xml")
    assert not [name for name in said if name.endswith("-Existing") or name.startswith("Svc-")]
    assert (said["Orbeon-Singleton"], said["X-Request-Id"]) == (None, answer["X-Request-Id"])


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_what_is_there_is_changed_with_its_metadata(
    kept: Kept, provider: Provider, served: Service, method: str
) -> None:
    kept.has_data = True
    answer = served.ask(
        method, DATA, b"<d/>" if method == "PUT" else None, {"Content-Type": "text/xml"}, Username="kim"
    )
    assert (answer.status, answer["Svc-Form-Definition-Version"]) == (204, "1")
    (sent,) = provider.of(method)
    existing = {name: value for name, value in sent.headers.items() if name.endswith("-Existing")}
    assert existing == {
        "Orbeon-Created-Existing": "2025-03-01T00:00:00.000Z",
        "Orbeon-Username-Existing": "lea",
        "Orbeon-Group-Existing": "staff",
    }
    assert (sent.headers["Orbeon-Form-Definition-Version"], sent.headers["Orbeon-Username"]) == ("1", "kim")
    assert provider.received.index(provider.of("HEAD")[0]) < provider.received.index(sent), "HEAD comes first"


def test_conditions_and_versions_are_judged_here(kept: Kept, provider: Provider, served: Service) -> None:
    kept.has_data = True
    assert served.put(DATA, headers={"If-Match": "other"}).status == 412
    assert served.put(DATA, Form_Definition_Version=2).status == 400
    assert served.put(DATA, Form_Definition_Version="next").status == 400
    assert provider.of("PUT") == []
    assert served.put(DATA, headers={"If-Match": "cd" * 20}).status == 204
    assert served.put(DATA, headers={"If-Match": "*"}).status == served.put(DATA).status == 204
    tag = "cd" * 20
    assert [put.headers["If-Match"].strip('"') for put in provider.of("PUT")] == [tag] * 3, "not the client's"


def test_what_was_replaced_behind_meanwhile_is_not_overwritten(kept: Kept, provider: Provider, served: Service) -> None:
    """The provider says so; the client is to come back, as where a lock was not to be had."""
    kept.has_data = True
    answers = provider.answers
    provider.answers = lambda got: Reply(412) if got.method in {"PUT", "DELETE"} else answers(got)
    for answer in (served.put(DATA), served.delete(DATA), served.put(DATA, headers={"If-Match": "cd" * 20})):
        assert (answer.status, answer["Retry-After"]) == (503, "1")


def test_an_attachment_is_put_with_the_clients_hash(kept: Kept, provider: Provider, served: Service) -> None:
    kept.has_data = True
    sent = {"Hash_Algorithm": "SHA-256", "Hash_Value": "abc", "Path_To_Holder": "a/b"}
    assert served.put(FILE, BODY, {"Content-Type": "video/mp4"}, **sent).status == 201
    said = provider.of("PUT")[0].headers
    assert (said["Orbeon-Hash-Algorithm"], said["Orbeon-Hash-Value"]) == ("SHA-256", "abc")
    assert (said["Orbeon-Path-To-Holder"], said["Content-Type"]) == ("a/b", "video/mp4")
    assert provider.of("PUT")[0].body == BODY


def test_ranges_are_asked_for_and_work_where_the_provider_has_none(
    kept: Kept, provider: Provider, served: Service
) -> None:
    kept.has_data = kept.has_files = True
    answer = served.get(FILE, {"Range": "bytes=70000-70009"})
    assert (answer.status, answer.body) == (206, BODY[70000:70010])
    assert answer["Content-Range"] == f"bytes 70000-70009/{len(BODY)}"
    (get,) = [each for each in provider.of("GET") if each.path.endswith(".bin")]
    assert get.headers["Range"] == "bytes=70000-70009"
    assert served.get(FILE).body == BODY


def test_an_older_revision_is_asked_for_by_its_instant(kept: Kept, provider: Provider, served: Service) -> None:
    kept.has_data = True
    assert served.get(f"{DATA}?last-modified-time=2025-03-04T05:06:07.089Z").status == 200
    (get,) = [each for each in provider.of("GET") if "data.xml" in each.path]
    assert get.path.endswith("?last-modified-time=2025-03-04T05%3A06%3A07.089Z")


def test_a_draft_is_deleted_by_one_request(kept: Kept, provider: Provider, served: Service) -> None:
    kept.has_data = True
    draft = DATA.replace("/data/D/", "/draft/D/")
    assert served.delete(draft).status == 204
    assert [each.path for each in provider.of("DELETE")] == [f"/base/crud/{draft}"]
    provider.received.clear()
    assert served.put(DATA).status == 204
    assert provider.of("DELETE") == [], "it goes with the data that is saved (spec crud 4.11)"


def test_next_becomes_a_number(kept: Kept, provider: Provider, served: Service) -> None:
    listed = (
        b"<forms><form><application-name>acme</application-name><form-name>order</form-name><form-version>4"
        b"</form-version><last-modified-time>2025-03-04T05:06:07Z</last-modified-time></form></forms>"
    )
    kept.forms = Reply(body=listed)
    path = "acme/order/form/form.xhtml"
    answer = served.put(f"{path}?document=D7", definition(""), Form_Definition_Version="next")
    assert (answer.status, answer["Svc-Form-Definition-Version"]) == (201, "5")
    (put,) = provider.of("PUT")
    assert (put.headers["Orbeon-Form-Definition-Version"], put.path) == ("5", f"/base/crud/{path}?document=D7")


def test_the_first_document_of_a_singleton_says_so(kept: Kept, provider: Provider, served: Service) -> None:
    form = definition("<singleton>true</singleton>")
    kept.forms = Reply(
        body=b"<forms><form><application-name>acme</application-name><form-name>order</form-name><form-version>1"
        b"</form-version><last-modified-time>2025-03-04T05:06:07Z</last-modified-time></form></forms>"
    )
    kept.definition = Reply(200, STORED, form)
    ordinary = provider.answers
    provider.answers = lambda got: (
        Reply(body=b'<documents search-total="0"/>') if got.method == "POST" else ordinary(got)
    )
    assert served.put(DATA, **V1).status == 201
    assert provider.of("PUT")[0].headers["Orbeon-Singleton"] == "true"


def test_the_designers_application_is_called_as_it_is_there(kept: Kept, provider: Provider, served: Service) -> None:
    del kept
    assert served.put("svc/builder/data/D/data.xml", definition("")).status == 201
    assert provider.of("PUT")[0].path == "/base/crud/orbeon/builder/data/D/data.xml"


def test_a_search_is_told_who_asks(kept: Kept, provider: Provider, served: Service) -> None:
    ordinary = kept.__call__
    provider.answers = lambda got: (
        Reply(body=b'<documents search-total="0"/>') if got.method == "POST" else ordinary(got)
    )
    headers = {"Content-Type": "application/xml", "Svc-Username": "kim", "Svc-Form-Definition-Version": "2"}
    answer = served.raw("POST", f"{PUBLIC}/search/acme/order", headers, b"<search><query>x</query></search>")
    assert (answer.status, answer.body) == (200, b'<documents search-total="0"/>')
    (search,) = provider.of("POST")
    assert search.path == "/base/search/acme/order"
    assert (search.headers["Orbeon-Username"], search.headers["Orbeon-Form-Definition-Version"]) == ("kim", "2")
