"""The interface as ``docs/openapi.yaml`` has it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import yaml

DOCUMENT = Path(__file__).parents[3] / "docs" / "openapi.yaml"
_METHODS = ("get", "head", "put", "post", "delete", "x-lock", "x-unlock")
_IN_FRONT = {"Date", "Server", "Connection", "Transfer-Encoding"}
"""Headers of the server, whatever the service answers."""

_IN_ORBEON = {
    "Svc-": "Orbeon-",
    "/svc/builder": "/orbeon/builder",
    "x-orbeon-get:": "get:",
    """'^"[0-9a-f]{40}"$'""": "'^[0-9a-f]{40}$'",
}
"""What differs between the dialects, as the text says, and can be written in the document."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    face: str
    path: str
    parameters: frozenset[tuple[str, str]]
    headers: Mapping[int, Mapping[str, re.Pattern[str]]]
    types: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Interface:
    document: Json
    operations: tuple[Operation, ...]

    def find(self, method: str, target: bytes) -> Operation | None:
        """The operation that a request line means; ``None`` where there is none.

        Literal names in a path win over parameters, among the paths that have the method.
        """
        fitting = [own for own in self.at(target) if own.method == method]
        return min(fitting, key=lambda own: own.path.count("{"), default=None)

    def at(self, target: bytes) -> list[Operation]:
        asked = _segments(target)
        return [own for own in self.operations if _fits(own, asked)]


@cache
def read(dialect: str = "svc") -> Interface:
    document = yaml.safe_load(text_of(dialect))
    return Interface(document, tuple(_operations(document)))


def text_of(dialect: str) -> str:
    text = DOCUMENT.read_text()
    for own, other in _IN_ORBEON.items() if dialect == "orbeon" else ():
        assert own in text, own
        text = text.replace(own, other)
    return text


def faces(document: Json, item: Json) -> list[str]:
    server = (item.get("servers") or document["servers"])[0]
    return server["variables"]["face"]["enum"] if "variables" in server else [""]


def resolved(document: Json, node: Json) -> Json:
    if "$ref" not in node:
        return node
    found: Json = document
    for step in node["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return found


def _operations(document: Json) -> Iterator[Operation]:
    for path, item in document["paths"].items():
        shared = item.get("parameters", [])
        for method in _METHODS:
            if method not in item:
                continue
            own = [resolved(document, node) for node in (*shared, *item[method].get("parameters", []))]
            responses = {int(status): resolved(document, node) for status, node in item[method]["responses"].items()}
            for face in faces(document, item):
                yield Operation(
                    method=method.removeprefix("x-").upper(),
                    face=face,
                    path=path,
                    parameters=frozenset((node["in"], node["name"]) for node in own),
                    headers={status: _headers(document, node) for status, node in responses.items()},
                    types={status: tuple(node.get("content", ())) for status, node in responses.items()},
                )


def _headers(document: Json, response: Json) -> Mapping[str, re.Pattern[str]]:
    documented = {
        name: _header(document, resolved(document, resolved(document, node)["schema"]))
        for name, node in response.get("headers", {}).items()
    }
    anything = re.compile(".*", re.DOTALL)
    return {**documented, "Content-Type": anything, **dict.fromkeys(_IN_FRONT, anything)}


def _header(document: Json, schema: Json) -> re.Pattern[str]:
    plain = resolved(document, schema)
    if "pattern" in plain:
        return re.compile(plain["pattern"].removeprefix("^").removesuffix("$"))
    words = [plain["const"]] if "const" in plain else plain.get("enum")
    return re.compile("|".join(map(re.escape, words)) if words else ".*", re.DOTALL)


def _segments(target: bytes) -> list[str]:
    """The names in a target's path; doubled slashes count once, and a final one is an empty name."""
    path = target.partition(b"?")[0]
    if not path.startswith(b"/"):
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    names = [unquote_to_bytes(part).decode(errors="replace") for part in path.split(b"/") if part]
    return [*names, ""] if names and path.endswith(b"/") else names


def _fits(operation: Operation, asked: list[str]) -> bool:
    own = [*filter(None, operation.face.split("/")), *operation.path.removeprefix("/").split("/")]
    if own[-1] == "" and asked[-1:] != [""]:
        own = own[:-1]  # the final slash may be left out
    pairs = zip(own, asked, strict=False)
    return len(own) == len(asked) and all(have == name or (have.startswith("{") and name) for have, name in pairs)
