"""The documented interface is the real one: the same paths, methods, statuses, parameters and headers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
import yaml
from flask import Flask
from werkzeug.routing import Rule

from persistence.app import create_app
from persistence.dialect import DIALECTS
from persistence.errors import STATUS
from persistence.http import application, form_routes, parsing, service_routes
from persistence.http.application import HEALTH_PATHS, ROOT_PATH
from persistence.http.responses import RESPONSE_NAMES
from persistence.settings import Settings
from tests.initialised import initialised
from tests.opened import opened
from tests.rigs.fuzz import interface

HTTP = Path(__file__).parents[3] / "persistence" / "http"
_SUCCESSES = {200, 201, 204, 206, 304}
_SAMPLES = {"{app}": "a", "{form}": "f", "{document}": "d", "{attachment}": "x.bin"}


@pytest.fixture
def app(tmp_path: Path) -> Flask:
    return opened(create_app(Settings(data=initialised(tmp_path))))


def documented() -> Iterator[tuple[str, str]]:
    for operation in interface.read().operations:
        path = re.sub(r"{\w+}", lambda match: _SAMPLES[match[0]], operation.path)
        yield operation.method, operation.face + path


_OF_BROWSERS = {"host", "origin", "sec-fetch-mode", "sec-fetch-site"}
_OF_BODIES = {"content-digest", "content-md5", "content-range", "expect", "repr-digest"}
_OF_PROXIES = {"x-forwarded-for", "x-forwarded-proto"}


def asked_for() -> set[str]:
    """The request headers that the code looks at, in small letters, the service's own without their prefix."""
    names: set[str] = set()
    for file in HTTP.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Constant(value=str(text)) if re.fullmatch("HTTP_[A-Z_]{2,}[A-Z][0-9]?", text):
                    names.add(text.removeprefix("HTTP_"))
                case ast.Call(
                    func=ast.Attribute(
                        value=ast.Name(id="sent") | ast.Call(func=ast.Attribute(attr="_sent")), attr="get"
                    ),
                    args=[ast.Constant(value=str(text)), *_],
                ):
                    names.add(text)
                case ast.Subscript(value=ast.Attribute(attr="_keys"), slice=ast.Constant(value=str(text))):
                    names.add(text)
    return {name.replace("_", "-").lower() for name in names}


def test_it_loads() -> None:
    """Schemathesis checks the document against the schema of OpenAPI itself."""
    schema = schemathesis.openapi.from_dict(yaml.safe_load(interface.text_of("svc")))
    schema.validate()
    assert len(list(schema.get_all_operations())) == 83


def test_every_documented_operation_is_routed_and_the_reverse(app: Flask) -> None:
    # Pages for browsers are not in the description.
    rules = [rule for rule in app.url_map.iter_rules() if not rule.rule.startswith(("/admin", "/api"))]
    routed = {(method, rule.rule) for rule in rules for method in rule.methods or ()}
    adapter = app.url_map.bind("")
    matched: set[tuple[str, str]] = set()
    for method, path in documented():
        rule, _ = adapter.match(path, method, return_rule=True)
        assert isinstance(rule, Rule)
        matched.add((method, rule.rule))
    assert matched == routed


def test_every_documented_status_occurs_and_the_reverse() -> None:
    """405 belongs to the methods that are not documented, and 503 of ``/readyz`` is no error of the table."""
    known = {status for _, status in STATUS} | _SUCCESSES
    said = {status for operation in interface.read().operations for status in operation.headers}
    assert said == known


def test_every_header_of_requests_is_documented() -> None:
    """The transfer coding is that of the body, authorization a scheme, Accept the types of answers; OpenAPI has it so.

    What browsers send by themselves is no parameter either: the text about callers says what it does. Nor is what only
    some values of fit the body: the text about bodies has it. What a proxy says
    of the caller's address is noted in the audit, and decides nothing; docs/running.md has their other headers.
    """
    said = {name.lower() for one in interface.read().operations for where, name in one.parameters if where == "header"}
    others = {"transfer-encoding", "authorization", "accept"} | _OF_BROWSERS | _OF_BODIES | _OF_PROXIES
    assert {name.removeprefix("svc-") for name in said} == asked_for() - others
    for subject, names in (("**Callers.**", _OF_BROWSERS), ("**Bodies.**", _OF_BODIES)):
        told = interface.read().document["info"]["description"].partition(subject)[2].partition("\n\n")[0]
        assert {name for name in names if f"`{name}`" in told.lower()} == names


def test_every_scheme_of_authorization_is_documented(app: Flask) -> None:
    """It is optional, but for health and the root, which ask for none; other schemes are those of proxies in front."""
    document = interface.read().document
    schemes = document["components"]["securitySchemes"]
    assert {scheme["scheme"] for scheme in schemes.values()} == set(application.SCHEMES)
    assert document["security"] == [{}, *({name: []} for name in schemes)]
    asking = {path: item["get"].get("security") for path, item in document["paths"].items() if "get" in item}
    assert {path for path, own in asking.items() if own == []} == {*HEALTH_PATHS, ROOT_PATH}
    views = {rule.rule: app.view_functions[rule.endpoint] for rule in app.url_map.iter_rules()}
    checks = {path for path, view in views.items() if getattr(view, "__qualname__", "").startswith("health.")}
    assert checks == set(HEALTH_PATHS)


def test_every_parameter_of_queries_is_documented() -> None:
    said = {name for one in interface.read().operations for where, name in one.parameters if where == "query"}
    code = "".join(file.read_text() for file in HTTP.glob("*.py"))
    literal = re.findall(r'args\.get\("([a-z-]+)"\)', code)
    constants = {**vars(service_routes), **vars(parsing), **vars(form_routes)}
    named = [constants[name] for name in re.findall(r"args\.get\(([A-Z_]+)\)", code)]
    assert {
        *literal,
        *named,
        *service_routes.EXPORT_PARAMETERS,
        *service_routes.IMPORT_PARAMETERS,
        *service_routes.CHANGES_PARAMETERS,
        *service_routes.FACTS_PARAMETERS,
    } == said


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_header_of_answers_is_documented(dialect: str) -> None:
    operations = interface.read(dialect).operations
    said = {name for operation in operations for headers in operation.headers.values() for name in headers}
    assert {DIALECTS[dialect].header(name) for name in RESPONSE_NAMES} <= said


def test_examples_are_as_the_schemas_say() -> None:
    """An example that is not allowed would teach the wrong thing."""
    document = interface.read().document
    nodes = [node for node in document["components"]["parameters"].values() if "schema" in node]
    schemas = [interface.resolved(document, node["schema"]) for node in nodes]
    pairs = [
        (node["example"], schema["pattern"]) for node, schema in zip(nodes, schemas, strict=True) if "pattern" in schema
    ]
    assert len(pairs) > 10
    assert [example for example, pattern in pairs if not re.search(pattern, example)] == []
