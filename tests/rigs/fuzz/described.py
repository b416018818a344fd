"""Requests that schemathesis makes from the documented interface: as it says, and not as it says."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import schemathesis
import yaml
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from requests import Request as Unprepared
from schemathesis import Case, GenerationMode

from persistence.model.versions import DATA_FORMATS
from tests.rigs.fuzz.documents import definitions, documents
from tests.rigs.fuzz.interface import faces, text_of
from tests.rigs.fuzz.judge import Request

_BASE = "http://127.0.0.1"
_USUAL = {
    "app": ("hr", "hr", "Ä"),
    "form": ("leave", "builder"),
    "document": ("1b4e28ba", "ü"),
    "attachment": ("0cc175b9.bin", "e\u0301.json"),
    "Form-Definition-Version": ("1", "1", "2"),
    "If-None-Match": ("*", '"x"'),
    "If-Match": ("*",),
    "Range": ("bytes=0-0", "bytes=1-"),
    "Username": ("lea", "bob"),
    "Group": ("clerks",),
    "Roles": ("clerk", "payroll clerk,admin"),
    "Credentials": (
        '{"username": "lea", "groups": ["clerks"], "roles": [{"name": "admin"}]}',
        '{"username": "bob"}',
        "{}",
    ),
    "data-format-version": ("4.0.0", "raw"),
    "last-modified-time": ("",),
    "form-definition-format-version": DATA_FORMATS,
    "form-definition-version": ("1", "next"),
}
"""Values that come again and again: else nothing that is asked for would ever be there, or as expected."""

_ORDER = ("put", "post", "get", "head", "delete")

QUERIES = (
    *(b"<d/>", b"<search/>"),
    b"<search><filter metadata='form-version' match='exact'>latest</filter></search>",
    b"<search return-all-indexed-fields='true'><query path='a[1]' sort='asc'>x</query><drafts>only</drafts></search>",
    b"<search><query metadata='created' match='gte'>2024-05-01</query><page-number>999999999999</page-number></search>",
    b"<distinct-values><query path='a'/><query metadata='created-by'/></distinct-values>",
)
"""Bodies of which the first is a document, and the others are queries."""

_bodies = st.binary(max_size=300)


def strategies(dialect: str) -> Iterator[tuple[int, SearchStrategy[tuple[Request, ...]]]]:
    """For each operation and mode a strategy of requests, the same one below each prefix, and how many these are.

    What stores comes first, and what deletes last.
    """
    schemathesis.openapi.media_type("application/xml", documents() | definitions | st.sampled_from(QUERIES))
    schemathesis.openapi.media_type("application/xhtml+xml", documents() | definitions)
    for kind in ("*/*", "application/octet-stream", "application/zip", "application/jsonl"):
        schemathesis.openapi.media_type(kind, _bodies)
    schema = schemathesis.openapi.from_dict(yaml.safe_load(text_of(dialect)))
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in sorted(operations, key=lambda each: _ORDER.index(each.method)):
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            below = faces(schema.raw_schema, schema.raw_schema["paths"][operation.path])
            made = operation.as_strategy(generation_mode=mode)
            yield len(below), st.builds(_requests, made, _usual(dialect), st.just(below))


def _usual(dialect: str) -> SearchStrategy[dict[str, str]]:
    """Usual values for all or some of the parameters; one app is the designer's, which is called as the dialect."""
    usual = {name: st.sampled_from(values) for name, values in _USUAL.items()}
    usual["app"] |= st.just(dialect)
    return st.fixed_dictionaries(usual) | st.fixed_dictionaries({}, optional=usual)


def _requests(case: Case, usual: dict[str, str], below: list[str]) -> tuple[Request, ...]:
    for name in case.path_parameters.keys() & usual.keys():
        case.path_parameters[name] = quote(usual[name])
    for name in case.query.keys() & usual.keys():
        case.query[name] = usual[name]
    for name in list(case.headers):
        plain = name.removeprefix("Svc-").removeprefix("Orbeon-")
        if plain in usual:
            case.headers[name] = usual[plain]
    return tuple(_request(case, face) for face in below)


def _request(case: Case, face: str) -> Request:
    kept = ("method", "url", "headers", "params", "data", "json", "files")
    arguments = case.as_transport_kwargs(base_url=_BASE + face)
    ready = Unprepared(**{name: value for name, value in arguments.items() if name in kept}).prepare()
    body = ready.body.encode() if isinstance(ready.body, str) else ready.body
    headers = tuple(
        (_bytes(name), _bytes(value)) for name, value in ready.headers.items() if name.lower() != "content-length"
    )
    return Request(_bytes(ready.method or ""), ready.path_url.encode(), headers, body)


def _bytes(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()
