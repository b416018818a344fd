"""A second service behind the first, in the other dialect: the whole way of a form, and what only two can show.

``make test-proxy`` runs every test of the interface so.
"""

from collections.abc import Iterator

import pytest

from tests import orders
from tests.published import definition
from tests.search_faults import found
from tests.service import PUBLIC, V1, Service, pair

pytestmark = pytest.mark.xdist_group("pair")

_XML = {"Content-Type": "application/xml"}


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    with pair(tmp_path_factory.mktemp("pair"), workers=2) as services:
        yield services


@pytest.fixture
def front(services: tuple[Service, Service]) -> Service:
    return services[0]


def search(front: Service, form: str, body: str, **own: str) -> list[str]:
    answer = front.post(f"search/{form}", body, **own)
    assert answer.status == 200, answer.cause
    return found(answer.body)


def test_a_form_from_its_publication_to_the_deletion_of_its_data(services: tuple[Service, Service]) -> None:
    front, behind = services
    assert front.put("acme/order/form/form.xhtml", orders.definition()).status == 201
    for name in ("Ann", "Bob"):
        body = f"<form><customer><name>{name}</name></customer></form>".encode()
        assert front.put(f"acme/order/draft/{name}/data.xml", body, **V1, Username="kim").status == 201
        put = front.put(f"acme/order/data/{name}/data.xml", body, **V1, Username="kim")
        assert put.status == 201
        got = front.get(f"acme/order/data/{name}/data.xml")
        assert (got.body, got["ETag"], got["Svc-Username"]) == (body, put["ETag"], "kim")
        assert got["Svc-Last-Modified"] == put["Svc-Last-Modified"]
        assert front.get(f"acme/order/draft/{name}/data.xml").status == 404
    assert (behind.data / "acme/order/data/Ann/data.xml").exists()
    query = '<search><query path="customer/name" match="exact">Bob</query></search>'
    assert search(front, "acme/order", query) == ["Bob"]
    again = front.put("acme/order/data/Bob/data.xml", b"<form/>", {"If-Match": str(got["ETag"])}, Username="lea")
    assert again.status == 204
    changed = front.get("acme/order/data/Bob/data.xml")
    assert (changed["Svc-Username"], changed["Svc-Last-Modified-By-Username"]) == ("kim", "lea")
    assert front.get(f"acme/order/data/Bob/data.xml?last-modified-time={got['Svc-Last-Modified']}").body == got.body
    assert front.put("acme/order/data/Bob/data.xml", b"<form/>", {"If-Match": str(got["ETag"])}).status == 412
    assert front.delete("acme/order/data/", **V1).status == 200
    assert search(front, "acme/order", "<search/>") == []
    assert front.delete("acme/order/data/Ann/data.xml").status == 410


def test_the_designer_publishes_from_one_dialect_into_the_other(services: tuple[Service, Service]) -> None:
    front, behind = services
    holder = "/fr/service/persistence/crud/svc/builder/data/M/logo.bin"
    form = definition("<application-name>hr</application-name><form-name>made</form-name>")
    form = form.replace(b"</metadata>", f"</metadata><logo>{holder}</logo>".encode())
    assert front.put("svc/builder/data/M/logo.bin", b"picture").status == 201
    assert front.put("svc/builder/data/M/data.xml", form).status == 201
    assert (behind.data / "orbeon/builder/data/M/data.xml").exists()
    answer = front.raw("POST", "/fr/service/svc/builder/publish/M", _XML, b"")
    assert answer.status == 200, answer.cause
    assert front.get("hr/made/form/logo.bin").body == b"picture"
    assert b"<form-name>made</form-name>" in front.raw("GET", f"{PUBLIC}/form/hr/made").body


def test_permissions_are_those_of_the_definition_behind(front: Service) -> None:
    permissions = '<permissions><permission operations="read update create"><owner/></permission></permissions>'
    assert front.put("acme/own/form/form.xhtml", definition(permissions)).status == 201
    path = "acme/own/data/D/data.xml"
    assert front.put(path, **V1, Username="kim").status == 201
    statuses = [front.get(path, Username=name).status for name in ("kim", "lea")]
    assert statuses == [200, 403]
    assert front.get(path, {"Orbeon-Username": "kim"}).status == 400
    assert search(front, "acme/own", "<search/>", Username="kim") == ["D"]
    assert search(front, "acme/own", "<search/>", Username="lea") == []


def test_attachments_and_their_ranges_pass_through(front: Service) -> None:
    content = bytes(range(256)) * 4096
    front.put("acme/files/data/D/data.xml", **V1)
    sent = {"Content-Type": "video/mp4"}
    assert front.put("acme/files/data/D/film.bin", content, sent, Hash_Algorithm="x", Hash_Value="y").status == 201
    got = front.get("acme/files/data/D/film.bin")
    assert (got.status, got.body, got["Content-Type"], got["Svc-Hash-Value"]) == (200, content, "video/mp4", "y")
    for wanted, begin, end in (("0-0", 0, 1), ("70000-70009", 70_000, 70_010), ("1048570-", 1_048_570, len(content))):
        part = front.get("acme/files/data/D/film.bin", {"Range": f"bytes={wanted}"})
        assert (part.status, part.body) == (206, content[begin:end])
    assert front.get("acme/files/data/D/film.bin", {"Range": "bytes=9999999-"}).status == 416
    head = front.head("acme/files/data/D/film.bin")
    assert (head.status, head["Content-Length"]) == (200, str(len(content)))


def test_reindexing_is_handed_on(front: Service) -> None:
    assert front.raw("POST", f"{PUBLIC}/reindex", _XML, b"").status == 200
    assert front.raw("GET", f"{PUBLIC}/reindex/status").body == b'<status state="stopped"/>'


def test_searches_show_no_more_than_gets_though_the_service_behind_would(front: Service) -> None:
    """It goes by spec search 1.8: in front, it is asked only for what it cannot show too much of."""
    form, lea, bob = "acme/tight", {"Username": "lea", "Group": "staff"}, {"Username": "bob", "Group": "staff"}
    everything = '<search><operations any-of="create list"/></search>'
    values = '<distinct-values><query metadata="created-by"/></distinct-values>'

    def publish(*permissions: tuple[str, str], version: int = 1) -> None:
        each = "".join(
            f'<permission operations="{names}">{conditions}</permission>' for names, conditions in permissions
        )
        body = orders.definition(f"<permissions>{each}</permissions>")
        assert front.put(f"{form}/form/form.xhtml", body, Form_Definition_Version=version).status < 300

    def status(body: str, path: str = "search", **own: str) -> int:
        return front.post(f"{path}/{form}", body, **own).status

    publish(("create -list", ""), ("read", "<owner/>"))
    for name, user in (("A", lea), ("B", bob)):
        assert front.put(f"{form}/data/{name}/data.xml", b"<form/>", **V1, **user).status == 201
    assert search(front, form, everything) == []
    assert search(front, form, everything, **lea) == ["A"]
    assert status(values, "distinct-values", **lea) == 501
    publish(("create", ""), ("read", '<group-member/><user-role any-of="clerk"/>'))
    assert search(front, form, everything, **bob) == []
    assert status(everything, **bob, Roles="clerk") == 501
    publish(("create read", ""))
    assert sorted(search(front, form, everything)) == ["A", "B"]
    publish(("create", ""), version=2)
    assert status(everything, Form_Definition_Version="all") == 501
    assert status(everything, Form_Definition_Version="1") == 200
