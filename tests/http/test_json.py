"""Form data, definitions and errors as JSON over HTTP."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests import orders
from tests.published import PERMISSIONS
from tests.service import V1, Answer, Service

JSON = {"Accept": "application/json"}
SENT = {"Content-Type": "application/json"}
DATA = b"<form><customer><name>Lea</name></customer><items><lines><product>ink</product></lines></items></form>"
VALUES = {"customer": {"name": "Lea"}, "items": {"lines": [{"product": "ink"}]}}


def put(service: Service, form: str, values: object, headers: Mapping[str, str] | None = None, **own: object) -> Answer:
    body = json.dumps(values).encode()
    return service.put(f"{form}/data/D/data.xml", body, {**SENT, **(headers or {})}, **own)


@pytest.fixture
def stored(service: Service, form: str) -> str:
    """A form with a document."""
    service.publish(form, orders.definition())
    service.save(form, body=DATA)
    return form


def values(answer: Answer) -> Any:
    assert answer["Content-Type"] == "application/json"
    return json.loads(answer.body)


def test_data_is_json_for_whom_asks_for_it(service: Service, stored: str) -> None:
    path = f"{stored}/data/D/data.xml"
    plain, found = service.get(path), service.get(path, JSON)
    assert (found.status, values(found)) == (200, VALUES)
    assert found["Content-Length"] == str(len(found.body))
    alike = ("Last-Modified", service.prefix + "Form-Definition-Version", service.prefix + "Operations")
    assert [found[each] for each in alike] == [plain[each] for each in alike]
    assert "Accept" in (found.headers.get_all("Vary") or [])
    for other in ("*/*", "application/xml", "text/html, application/xml;q=0.9, */*;q=0.8", "application/json;q=0"):
        assert service.get(path, {"Accept": other}).body == DATA
    both = "application/xml;q=0.5, application/json"
    assert values(service.get(path, {"Accept": both})) == VALUES
    headed = service.head(path, JSON)
    assert (headed.status, headed["Content-Type"], headed["ETag"]) == (200, "application/json", found["ETag"])


def test_its_entity_tag_is_one_of_its_own_which_writes_accept(service: Service, stored: str) -> None:
    path = f"{stored}/data/D/data.xml"
    plain, found = str(service.get(path)["ETag"]), str(service.get(path, JSON)["ETag"])
    assert plain != found
    assert service.get(path, {**JSON, "If-None-Match": found}).status == 304
    assert service.get(path, {**JSON, "If-None-Match": plain}).status == 200
    assert put(service, stored, {"customer": {"name": "Bob"}}, {"If-Match": found}).status == 204
    assert put(service, stored, {"customer": {"name": "Cid"}}, {"If-Match": found}).refuses(412, "somebody has saved")
    assert values(service.get(path, JSON))["customer"]["name"] == "Bob"


def test_values_are_written_over_what_is_stored(service: Service, stored: str) -> None:
    path = f"{stored}/data/D/data.xml"
    answer = put(
        service, stored, {"customer": {"email": "l@example.org"}, "items": {"lines": [{}, {"product": "pen"}]}}
    )
    assert answer.status == 204
    found = service.get(path)
    assert found["Content-Type"] == "application/xml"
    assert b"<name>Lea</name><email>l@example.org</email>" in found.body
    assert b"<lines><product>ink</product></lines><lines><product>pen</product></lines>" in found.body
    assert service.call("GET", f"history/{stored}/D").body.count(b"<document ") == 2


def test_new_data_is_made_by_the_definition(service: Service, form: str) -> None:
    service.publish(form, orders.definition())
    assert put(service, form, VALUES, {"If-None-Match": "*"}, **V1).status == 201
    found = service.get(f"{form}/data/D/data.xml")
    assert b"<name>Lea</name><email/><notes/><topics/><status/></customer>" in found.body
    assert put(service, form, VALUES, {"If-None-Match": "*"}, **V1).refuses(412, "already exists")
    assert put(service, form, {"customer": {"nmae": ""}}).refuses(400, "no 'customer/nmae'; the nearest is 'name'")
    assert put(service, form, []).refuses(400, "the body must be a JSON object")
    service.delete(f"{form}/data/D/data.xml")
    assert put(service, form, {}, **V1).status == 201
    assert b"<name/>" in service.get(f"{form}/data/D/data.xml").body


def test_without_its_definition_data_is_written_as_xml_only(service: Service, form: str) -> None:
    assert put(service, form, VALUES, **V1).refuses(404, "version 1 of")
    service.save(form, body=DATA)
    assert values(service.get(f"{form}/data/D/data.xml", JSON)) == {
        "customer": {"name": "Lea"},
        "items": {"lines": {"product": "ink"}},
    }


def test_two_who_write_different_values_at_a_time_both_succeed(service: Service, stored: str) -> None:
    def write(name: str) -> list[int]:
        return [put(service, stored, {"customer": {name: str(number)}}).status for number in range(10)]

    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(write, ("name", "email")))
    assert {status for each in both for status in each} <= {204, 503}
    last = [max(number for number, status in enumerate(each) if status == 204) for each in both]
    found = values(service.get(f"{stored}/data/D/data.xml", JSON))["customer"]
    assert [found["name"], found["email"]] == list(map(str, last))


def test_who_may_not_read_may_not_write_values(service: Service, form: str) -> None:
    service.publish(form, orders.definition(PERMISSIONS))
    service.save(form, body=DATA, Username="lea")
    assert put(service, form, {"customer": {"name": "x"}}, Username="bob").status == 403
    assert put(service, form, {"customer": {"name": "x"}}, Username="lea").status == 204
    assert service.get(f"{form}/data/D/data.xml", JSON, Username="bob").status == 403


def test_errors_are_problem_details_for_whom_asks_for_json(service: Service, form: str) -> None:
    for accept in ("application/json", "application/problem+json"):
        answer = service.get(f"{form}/data/none/data.xml", {"Accept": accept})
        assert (answer.status, answer["Content-Type"]) == (404, "application/problem+json")
        problem = json.loads(answer.body)
        assert (problem["status"], problem["title"], problem["type"]) == (404, "Not Found", "about:blank")
        assert problem["detail"].endswith("does not exist")
    assert service.get(f"{form}/data/none/data.xml", {"Accept": "*/*"})["Content-Type"].startswith("text/plain")
    assert service.raw("GET", "/nothing", {"Accept": "application/json"})["Content-Type"] == "application/problem+json"


def test_a_definition_is_its_structure_and_other_files_are_as_they_are(service: Service, stored: str) -> None:
    found = values(service.get(f"{stored}/form/form.xhtml", JSON))
    assert found["customer"]["contains"]["name"]["kind"] == "control"
    assert service.get(f"{stored}/form/form.xhtml").body == orders.definition()
    path = f"{stored}/data/D/a.json"
    assert service.put(path, b"{", {"Content-Type": "application/json"}, **V1).status == 201
    assert service.get(path, JSON).body == b"{"
    builder = f"{service.designer}/builder/data/{stored.split('/', maxsplit=1)[0]}/data.xml"
    service.put(builder, orders.definition())
    assert service.get(builder, JSON).body == orders.definition()
