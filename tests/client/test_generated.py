"""A client can be generated from the description: what generators do not understand is not in it (docs/client.md)."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from persistence import __version__
from tests.in_process import serving
from tests.service import PUBLIC, is_proxied

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "openapi.yaml"
CONFIG = ROOT / "config" / "openapi-python-client.yaml"
METHODS = {"get", "put", "post", "delete", "head"}
FORM = b'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>Leave</title></head></html>'

Json = dict[str, Any]


@pytest.fixture(scope="module")
def described() -> Json:
    document: Json = yaml.safe_load(DOCUMENT.read_text())
    return document


@pytest.fixture(scope="module")
def as_bytes() -> set[str]:
    """The media types that the generator is told to take for bytes."""
    overrides = yaml.safe_load(CONFIG.read_text())["content_type_overrides"]
    assert set(overrides.values()) == {"application/octet-stream"}
    return set(overrides)


def _nodes(node: object) -> Iterator[Json]:
    if isinstance(node, dict):
        yield node
        for each in node.values():
            yield from _nodes(each)
    elif isinstance(node, list):
        for each in node:
            yield from _nodes(each)


def _operation_ids(document: Json) -> set[str]:
    items = document["paths"].values()
    return {own["operationId"] for item in items for method, own in item.items() if method in METHODS}


def test_every_parameter_has_a_schema_and_none_has_content(described: Json) -> None:
    parameters = [node for node in _nodes(described) if {"name", "in"} <= node.keys()]
    assert len(parameters) > 40
    assert [node["name"] for node in parameters if "content" in node or "schema" not in node] == []


def test_every_body_is_bytes_or_a_form(described: Json, as_bytes: set[str]) -> None:
    """Bytes have a schema that says so: a string would be sent as no generator expects it."""
    bodies = [node["requestBody"] for node in _nodes(described["paths"]) if "requestBody" in node]
    bodies += described["components"]["requestBodies"].values()
    kinds = {kind: media["schema"] for body in bodies for kind, media in body.get("content", {}).items()}
    objects = {"application/x-www-form-urlencoded", "application/json"}
    only_answered = {"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"}
    assert kinds.keys() | only_answered == as_bytes | {"application/octet-stream"} | objects
    assert not kinds.keys() & only_answered
    for kind in objects:
        assert _resolved(described, kinds.pop(kind))["type"] == "object"
    for kind, schema in kinds.items():
        assert _is_binary(described, schema), kind


def test_every_answer_is_bytes_or_text_or_json(described: Json, as_bytes: set[str]) -> None:
    answers = [node for node in _nodes(described) if {"description", "content"} <= node.keys() and "in" not in node]
    assert len(answers) > 40
    for answer in answers:
        for kind, media in answer["content"].items():
            if kind in as_bytes:
                assert _is_binary(described, media["schema"]), (kind, answer["description"])
            else:
                known = ("text/", "application/json", "application/problem+json", "application/octet-stream")
                assert kind.startswith((*known, "application/x-www-form-urlencoded")), (kind, answer["description"])
        first = next(iter(answer["content"]))  # a generated client reads the first type that it knows
        assert len(answer["content"]) == 1 or "json" not in first, answer["description"]


def test_no_head_has_json(described: Json) -> None:
    """A generated client would parse the body that a HEAD does not have."""
    for path, item in described["paths"].items():
        for answer in item.get("head", {}).get("responses", {}).values():
            assert "application/json" not in answer.get("content", {}), path


def _resolved(document: Json, schema: Json) -> Json:
    found: Json = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def _is_binary(document: Json, schema: Json) -> bool:
    own = _resolved(document, schema)
    return bool(own["type"] == "string" and own["format"] == "binary")


def test_no_schema_has_a_default_that_a_generated_client_would_send_twice(described: Json) -> None:
    """A generated client sends defaults. What is in the query of an export and in its body is refused."""
    export = described["paths"]["/fr/service/persistence/export"]["post"]
    assert [node["name"] for node in export["parameters"] if "default" in node.get("schema", {})] == []


def test_the_description_is_valid(described: Json) -> None:
    validator = pytest.importorskip("openapi_spec_validator", reason="openapi-spec-validator is not installed")
    validator.validate(described)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    if find_spec("openapi_python_client") is None:
        pytest.skip("openapi-python-client is not installed")
    directory = tmp_path_factory.mktemp("generated")
    command = (sys.executable, "-m", "openapi_python_client", "generate", "--path", DOCUMENT, "--config", CONFIG)
    options = ("--output-path", directory / "generated_client", "--meta", "none", "--fail-on-warning")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # it calls ruff
    done = subprocess.run(
        (*command, *options), check=False, capture_output=True, text=True, timeout=100, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(directory))
    try:
        return importlib.import_module("generated_client")
    finally:
        sys.path.remove(str(directory))


def _calling(module: ModuleType, operation: str) -> Any:
    return importlib.import_module(f"{module.__name__}.api.{operation}").sync_detailed


def test_every_operation_is_generated(generated: ModuleType, described: Json) -> None:
    api = Path(str(generated.__file__)).parent / "api"
    made = {path.stem.replace("_", "") for path in api.glob("*/*.py") if path.stem != "__init__"}
    assert made == {name.lower() for name in _operation_ids(described)}


def test_a_generated_client_saves_reads_and_searches(generated: ModuleType, tmp_path: Path) -> None:
    file = importlib.import_module("generated_client.types").File
    address: Json = {"app": "hr", "form": "leave"}
    document = {**address, "document_path": "1b4e28ba"}
    with serving(tmp_path) as service, generated.Client(base_url=f"http://127.0.0.1:{service.port}{PUBLIC}") as client:
        put = _calling(generated, "definitions.put_definition")
        assert put(**address, client=client, body=file(BytesIO(FORM))).status_code == 201
        body = file(BytesIO(b"<form><name>Lea</name></form>"))
        saved = _calling(generated, "data.put_data")(**document, client=client, body=body, svc_username="lea")
        assert saved.status_code == 201
        image = file(BytesIO(b"any bytes"))
        attach = _calling(generated, "data.put_data_attachment")
        assert attach(**document, attachment="0cc1.bin", client=client, body=image).status_code == 201
        get = _calling(generated, "data.get_data_attachment")
        read = get(**address, document="1b4e28ba", attachment="0cc1.bin", client=client)
        assert read.parsed.payload.read() == b"any bytes"
        assert is_proxied or read.headers["Content-Type"] == "application/octet-stream"
        query = file(BytesIO(b"<search><query>lea</query></search>"))
        found = _calling(generated, "search.search")(**address, client=client, body=query)
        assert b'search-total="1"' in found.parsed.payload.read()
        _says_its_version(generated, service.port)
        missing = _calling(generated, "data.get_data")(**address, document="other", client=client)
        assert (missing.status_code, missing.parsed) == (404, "hr/leave/data/other/data.xml does not exist\n")


def _says_its_version(generated: ModuleType, port: int) -> None:
    with generated.Client(base_url=f"http://127.0.0.1:{port}") as client:
        assert _calling(generated, "health.version")(client=client).parsed.version == __version__
        assert _calling(generated, "health.head_version")(client=client).status_code == 200
