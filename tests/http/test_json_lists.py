"""Searches, values, lists of forms and histories as JSON: the same facts as in XML, which stays the default."""

import json
from collections.abc import Callable
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


def test_the_shapes(service: Service, stored: str) -> None:
    """What docs/http.md shows, in full."""
    app, name = stored.split("/")
    found = read(service.post(f"search/{stored}", json.dumps(_SEARCH_SENT), headers={**SENT, **JSON}, **LEA))
    (document,) = found["documents"]
    times = {document.pop(each) for each in ("created", "last-modified")}
    assert len(times) == 2
    assert (found["search-total"], document) == (
        1,
        {
            "created-by": "lea",
            "created-by-groupname": "staff",
            "last-modified-by": "lea",
            "name": "D",
            "draft": False,
            "operations": ["*"],
            "details": {"customer/name": "Léa & co.", "items/lines/product": "ink, pencil", "customer/status": "new"},
        },
    )
    values = read(service.post(f"distinct-values/{stored}", _DISTINCT, headers=JSON, **LEA))
    assert values["query"][2] == {"metadata": "created-by", "values": ["lea"]}
    forms = {each["form-name"]: each for each in read(service.call("GET", f"form/{app}", None, JSON, **LEA))["forms"]}
    listed, restricted = forms[name], forms[f"{name}-2"]
    assert (listed["application-name"], listed["form-name"], listed["form-version"]) == (app, name, 1)
    assert (listed["title"], listed["available"]) == ({"en": "Order", "de": "Bestellung"}, True)
    assert (listed["operations"], "permissions" in listed) == (["*"], False)
    assert restricted["permissions"] == [
        {"operations": ["create", "list"], "conditions": []},
        {"operations": ["read", "update", "list"], "conditions": [{"name": "owner"}]},
        {"operations": ["read", "list"], "conditions": [{"name": "user-role", "any-of": ["clerk"]}]},
    ]
    revisions = read(service.call("GET", f"history/{stored}/D?include-diffs=true", None, JSON, **LEA))
    assert [(each["deleted"], "diffs" in each) for each in revisions["documents"]] == [(False, True), (False, False)]
    assert revisions["documents"][0]["diffs"]["diffs"][0] == {
        "type": "value-changed",
        "name": "name",
        "place": "customer/name",
        "from": {"text": "Lea"},
        "to": {"text": "Léa & co."},
    }


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
