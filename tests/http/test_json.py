"""JSON over HTTP: lists and searches with the facts of the XML, which stays the default; data, definitions, errors."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests import orders
from tests.published import PERMISSIONS
from tests.service import V1, Answer, Service

JSON = {"Accept": "application/json"}
SENT = {"Content-Type": "application/json"}
_FORM = (
    "<form><customer><name>{}</name><status>new</status></customer>"
    "<items><lines><product>ink</product></lines><lines><product>{}</product></lines></items></form>"
)
LEA = {"Username": "lea", "Group": "staff"}
_NUMBERS = {"search-total", "total", "form-version", "page-size", "page-number", "count"}
_FLAGS = {"true": True, "false": False}


@pytest.fixture
def stored(service: Service, form: str) -> str:
    """A form with a document of two revisions, another one, and a draft; beside it one with permissions."""
    service.publish(form, orders.definition())
    service.publish(f"{form}-2", orders.definition(PERMISSIONS))
    service.save(f"{form}-2", "D", _FORM.format("Lea", "").encode(), **LEA)
    service.save(form, "D", _FORM.format("Lea", "pen").encode(), **LEA, Workflow_Stage="review")
    service.save(form, "D", _FORM.format("Léa &amp; co.", "pencil").encode(), **LEA)
    service.save(form, "E", _FORM.format("Bob", "").encode(), **LEA)
    service.save(form, "F", _FORM.format("Draft", "").encode(), "draft", **LEA)
    return form


def parsed(body: bytes) -> ET.Element:
    return ET.fromstring(body)  # noqa: S314 - our own


def fact(name: str, text: str) -> object:
    words = name == "operations"
    return text.split() if words else int(text) if name in _NUMBERS else _FLAGS.get(text, text)


def facts(element: ET.Element) -> dict[str, Any]:
    return {name: fact(name, text) for name, text in element.items() if text or name == "operations"}


def found(root: ET.Element) -> dict[str, Any]:
    documents = [
        {**facts(each), "details": {detail.attrib["path"]: detail.text or "" for detail in each[0]}} for each in root
    ]
    return {**facts(root), "documents": documents}


def distinct(root: ET.Element) -> dict[str, Any]:
    return {"query": [{**facts(each), "values": [value.text or "" for value in each]} for each in root]}


def condition(element: ET.Element) -> dict[str, Any]:
    words = element.get("any-of")
    return {"name": element.tag} | ({} if words is None else {"any-of": words.split()})


def permission(element: ET.Element) -> dict[str, Any]:
    words = element.attrib["operations"].split()
    allowed = {*words} | ({"list"} if "-list" not in words else set())  # spec forms: a permission lists, too
    names = ("create", "read", "update", "delete", "list")
    return {"operations": [each for each in names if each in allowed], "conditions": list(map(condition, element))}


def listed(root: ET.Element) -> dict[str, Any]:
    language = "{http://www.w3.org/XML/1998/namespace}lang"
    forms = []
    for each in root:
        own = {
            child.tag: fact(child.tag, child.text or "") for child in each if child.tag not in ("title", "permissions")
        }
        titles = {title.get(language, ""): title.text or "" for title in each.findall("title")}
        permissions = [{"permissions": list(map(permission, found))} for found in each.findall("permissions")]
        forms.append({**facts(each), **own, "title": titles, **(permissions[0] if permissions else {})})
    return {**facts(root), "forms": forms}


def value(element: ET.Element) -> dict[str, Any]:
    return {"text": element.text or "", **element.attrib}


def differences(root: ET.Element) -> dict[str, Any]:
    diffs = []
    for each in root:
        inside = {child.tag: child.text if child.tag == "label" else value(child) for child in each}
        diffs.append({**facts(each), **inside})
    return {**facts(root), "diffs": diffs}


def history(root: ET.Element) -> dict[str, Any]:
    documents = [{**facts(each), **{diffs.tag: differences(diffs) for diffs in each}} for each in root]
    return {**facts(root), "documents": documents}


def without_places(values: Any) -> Any:
    """The JSON without the place of a difference, which the XML does not have."""
    if isinstance(values, dict):
        return {name: without_places(each) for name, each in values.items() if name != "place"}
    return list(map(without_places, values)) if isinstance(values, list) else values


_SEARCH = (
    '<search><query>pen</query><query path="customer/name" match="substring" sort="asc">LÉA</query>'
    '<query path="items/lines/product"/><query path="customer/status"/>'
    '<query metadata="created" match="gte">2020-01-01</query><drafts>exclude</drafts>'
    '<operations any-of="read update"/><page-size>5</page-size><page-number>1</page-number></search>'
)
_SEARCH_SENT = {
    "query": [
        "pen",
        {"path": "customer/name", "match": "substring", "sort": "asc", "value": "LÉA"},
        {"path": "items/lines/product"},
        {"path": "customer/status", "value": None},
        {"metadata": "created", "match": "gte", "value": "2020-01-01"},
    ],
    "drafts": "exclude",
    "operations": {"any-of": ["read", "update"]},
    "page-size": 5,
    "page-number": 1,
}
_FILTER = (
    '<search><filter metadata="form-version" match="exact">latest</filter>'
    '<filter metadata="title" match="substring" xml:lang="de">BESTELL</filter>'
    '<filter metadata="application-name" match="exact">{app}</filter>'
    '<filter metadata="available" match="exact">true</filter>'
    '<sort metadata="title" direction="desc"/><pagination page-number="1" page-size="3"/></search>'
)
_FILTER_SENT = {
    "filter": [
        {"metadata": "form-version", "match": "exact", "value": "latest"},
        {"metadata": "title", "match": "substring", "lang": "de", "value": "BESTELL"},
        {"metadata": "application-name", "match": "exact", "value": "{app}"},
        {"metadata": "available", "match": "exact", "value": True},
    ],
    "sort": {"metadata": "title", "direction": "desc"},
    "pagination": {"page-number": 1, "page-size": 3},
}
_DISTINCT = '<d><query path="customer/name"/><query metadata="created-by"/><query path="items/lines/product"/></d>'
_DISTINCT_SENT = {"query": [{"path": "customer/name"}, {"metadata": "created-by"}, {"path": "items/lines/product"}]}

_TIMES = "older-modified-time={older}&newer-modified-time={newer}"
READ: dict[str, tuple[str, Callable[[ET.Element], dict[str, Any]]]] = {
    "forms": ("form", listed),
    "of an application": ("form/{app}?all-versions=true", listed),
    "one form": ("form/{form}", listed),
    "no form": ("form/{app}/none", listed),
    "history": ("history/{form}/D", history),
    "a page of it": ("history/{form}/D?page-size=1&page-number=2", history),
    "nothing stored": ("history/{form}/none", history),
    "with differences": ("history/{form}/D?include-diffs=true&lang=en&truncation-size=5", history),
    "differences": (f"history/{{form}}/D/diff?form-version=1&{_TIMES}", differences),
}  # fmt: skip
ASKED: dict[str, tuple[str, str, object, Callable[[ET.Element], dict[str, Any]]]] = {
    "everything": ("search/{form}", "<search/>", {}, found),
    "with permissions": ("search/{form}-2", "<search/>", {}, found),
    "a search": ("search/{form}", _SEARCH, _SEARCH_SENT, found),
    "all fields": (
        "search/{form}",
        '<search return-all-indexed-fields="true"/>',
        {"return-all-indexed-fields": True},
        found,
    ),
    "drafts": (
        "search/{form}",
        '<search><query path="customer/name"/><drafts for-never-saved-document="true">only</drafts></search>',
        {"query": {"path": "customer/name"}, "drafts": {"for-never-saved-document": True, "value": "only"}, "lang": ""},
        found,
    ),
    "past the end": ("search/{form}", "<search><page-number>9</page-number></search>", {"page-number": "9"}, found),
    "values": ("distinct-values/{form}", _DISTINCT, _DISTINCT_SENT, distinct),
    "no values": ("distinct-values/{form}", "<d/>", {}, distinct),
    "forms": ("form", _FILTER, _FILTER_SENT, listed),
}  # fmt: skip


def named(service: Service, form: str, text: str) -> str:
    """Fill in what a path or body names."""
    if "{older}" in text:
        times = [each.attrib["modified-time"] for each in parsed(service.call("GET", f"history/{form}/D", **LEA).body)]
        text = text.replace("{newer}", times[0]).replace("{older}", times[1])
    return text.replace("{app}", form.split("/", maxsplit=1)[0]).replace("{form}", form)


def read(answer: Answer) -> Any:
    assert (answer.status, answer["Content-Type"]) == (200, "application/json"), answer.body
    assert answer["Content-Length"] == str(len(answer.body))
    assert answer["Vary"] == "Accept"
    return json.loads(answer.body)


@pytest.mark.parametrize("case", READ)
def test_what_is_read_has_the_same_facts(service: Service, stored: str, case: str) -> None:
    path, expected = READ[case]
    path = named(service, stored, path)
    plain, answer = service.call("GET", path, **LEA), service.call("GET", path, None, JSON, **LEA)
    assert (plain.status, plain["Content-Type"], plain["Vary"]) == (200, "application/xml", None)
    assert without_places(read(answer)) == expected(parsed(plain.body))
    for accept in ("*/*", "application/xml", "application/json;q=0.5, application/xml", "application/json;q=0"):
        assert service.call("GET", path, None, {"Accept": accept}, **LEA).body == plain.body


@pytest.mark.parametrize("case", ASKED)
def test_what_is_asked_for_in_json_is_that_in_xml(service: Service, stored: str, case: str) -> None:
    path, body, sent, expected = ASKED[case]
    path, body = named(service, stored, path), named(service, stored, body)
    values = named(service, stored, json.dumps(sent))
    plain, answer = service.post(path, body, **LEA), service.post(path, body, headers=JSON, **LEA)
    assert (plain.status, plain["Content-Type"], plain["Vary"]) == (200, "application/xml", None)
    assert read(answer) == expected(parsed(plain.body))
    assert service.post(path, values, headers=SENT, **LEA).body == plain.body
    coded = {"Content-Type": "application/json; charset=utf-8", **JSON}
    assert service.post(path, values, headers=coded, **LEA).body == answer.body
    assert service.post(path, body, headers={"Accept": "application/xml, application/json"}, **LEA).body == plain.body


REFUSED = {
    "an array": ("search/{form}", [], "the body must be a JSON object of the names of a search"),
    "no JSON": ("search/{form}", None, "the body is not JSON"),
    "a name": ("search/{form}", {"qurey": "x"}, "a search has no 'qurey'; the nearest is query"),
    "an attribute": ("search/{form}", {"query": {"pth": "x"}}, "'query' of a search has no 'pth'; the nearest is path"),
    "of the root": ("form", {"all-from": True}, "a query for forms has no 'all-from'; the nearest is all-forms"),
    "of a filter": ("form", {"filter": [{"metdata": "title"}]}, "has no 'metdata'; the nearest is metadata"),
    "of values": ("distinct-values/{form}", {"drafts": "only"}, "a request for distinct values has no 'drafts'"),
    "an object": ("search/{form}", {"query": {"path": {}}}, "'path' of 'query' of a search must be a text"),
    "a list": ("search/{form}", {"query": [[1, [2]]]}, "'query' of a search must be a text"),
    "a word": ("search/{form}", {"drafts": "some"}, "'some' is not a valid drafts"),
    "a number": ("search/{form}", {"page-size": 0}, "page-size must be a positive integer"),
    "a character": ("search/{form}", {"query": "a\0b"}, "'query' of a search has a character that XML does not allow"),
    "half a character": ("search/{form}", {"query": "\ud800"}, "has a character that XML does not allow"),
    "too much": ("search/{form}", {"query": ["x"] * 201}, "more than 200 query"),
    "too many commas": ("search/{form}", {"lang": [""] * 10_001}, "the body has more than 10000 commas and brackets"),
    "to one of the XML": ("form", "<search/>", "the body is not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_misspelt_is_refused_with_the_nearest_name(service: Service, stored: str, case: str) -> None:
    path, sent, cause = REFUSED[case]
    body = "{" if sent is None else sent if isinstance(sent, str) else json.dumps(sent)
    answer = service.post(named(service, stored, path), body, headers=SENT, **LEA)
    assert answer.refuses(400, cause), answer.cause
    problem = service.post(named(service, stored, path), body, headers={**SENT, **JSON}, **LEA)
    assert (problem.status, problem["Content-Type"]) == (400, "application/problem+json")
    assert cause in json.loads(problem.body)["detail"]


def test_a_large_answer_is_sent_as_it_is_made(service: Service, form: str) -> None:
    service.publish(form, orders.definition())
    for number in range(3):
        body = _FORM.format("é" * 20_000, "ink").encode()
        assert service.put(f"{form}/data/{number}/data.xml", body, **V1).status == 201
    query = {"query": {"path": "customer/name"}}
    answer = service.post(f"search/{form}", json.dumps(query), headers={**SENT, **JSON})
    assert (answer.status, answer["Content-Length"], answer["Vary"]) == (200, None, "Accept")
    documents = json.loads(answer.body)["documents"]
    assert len({each["details"]["customer/name"] for each in documents}) == 1
    assert len(documents) == 3


def test_a_search_in_json_names_what_there_is_not(service: Service, stored: str) -> None:
    answer = service.post(f"search/{stored}", '{"query": {"path": "customer/nmae"}}', headers={**SENT, **JSON}, **LEA)
    assert read(answer)["documents"][0]["details"] == {"customer/nmae": ""}
    assert "customer/name" in (answer[f"{service.prefix}Notice"] or "")


# Form data, definitions and errors.

DATA = b"<form><customer><name>Lea</name></customer><items><lines><product>ink</product></lines></items></form>"
VALUES = {"customer": {"name": "Lea"}, "items": {"lines": [{"product": "ink"}]}}


def put(service: Service, form: str, values: object, headers: Mapping[str, str] | None = None, **own: object) -> Answer:
    body = json.dumps(values).encode()
    return service.put(f"{form}/data/D/data.xml", body, {**SENT, **(headers or {})}, **own)


@pytest.fixture
def document(service: Service, form: str) -> str:
    """A form with a document."""
    service.publish(form, orders.definition())
    service.save(form, body=DATA)
    return form


def values(answer: Answer) -> Any:
    assert answer["Content-Type"] == "application/json"
    return json.loads(answer.body)


def test_data_is_json_for_whom_asks_for_it(service: Service, document: str) -> None:
    path = f"{document}/data/D/data.xml"
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


def test_its_entity_tag_is_one_of_its_own_which_writes_accept(service: Service, document: str) -> None:
    path = f"{document}/data/D/data.xml"
    plain, found = str(service.get(path)["ETag"]), str(service.get(path, JSON)["ETag"])
    assert plain != found
    assert service.get(path, {**JSON, "If-None-Match": found}).status == 304
    assert service.get(path, {**JSON, "If-None-Match": plain}).status == 200
    assert put(service, document, {"customer": {"name": "Bob"}}, {"If-Match": found}).status == 204
    assert put(service, document, {"customer": {"name": "Cid"}}, {"If-Match": found}).refuses(412, "somebody has saved")
    assert values(service.get(path, JSON))["customer"]["name"] == "Bob"


def test_values_are_written_over_what_is_stored(service: Service, document: str) -> None:
    path = f"{document}/data/D/data.xml"
    answer = put(
        service, document, {"customer": {"email": "l@example.org"}, "items": {"lines": [{}, {"product": "pen"}]}}
    )
    assert answer.status == 204
    found = service.get(path)
    assert found["Content-Type"] == "application/xml"
    assert b"<name>Lea</name><email>l@example.org</email>" in found.body
    assert b"<lines><product>ink</product></lines><lines><product>pen</product></lines>" in found.body
    assert service.call("GET", f"history/{document}/D").body.count(b"<document ") == 2


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


def test_two_who_write_different_values_at_a_time_both_succeed(service: Service, document: str) -> None:
    def write(name: str) -> list[int]:
        return [put(service, document, {"customer": {name: str(number)}}).status for number in range(10)]

    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(write, ("name", "email")))
    assert {status for each in both for status in each} <= {204, 503}
    last = [max(number for number, status in enumerate(each) if status == 204) for each in both]
    found = values(service.get(f"{document}/data/D/data.xml", JSON))["customer"]
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


def test_a_definition_is_its_structure_and_other_files_are_as_they_are(service: Service, document: str) -> None:
    found = values(service.get(f"{document}/form/form.xhtml", JSON))
    assert found["customer"]["contains"]["name"]["kind"] == "control"
    assert service.get(f"{document}/form/form.xhtml").body == orders.definition()
    path = f"{document}/data/D/a.json"
    assert service.put(path, b"{", {"Content-Type": "application/json"}, **V1).status == 201
    assert service.get(path, JSON).body == b"{"
    builder = f"{service.designer}/builder/data/{document.split('/', maxsplit=1)[0]}/data.xml"
    service.put(builder, orders.definition())
    assert service.get(builder, JSON).body == orders.definition()
