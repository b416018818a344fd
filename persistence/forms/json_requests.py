"""JSON in requests: its objects, and queries in JSON as the elements that they would be in XML.

A query has the names of the XML. An attribute is a member of the object; an element is a text, or an object with its
attributes, ``lang`` for ``xml:lang``, and its text as ``value``; several elements of one name are a list.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any
from xml.etree import ElementTree as ET

from persistence.errors import BadRequestError
from persistence.forms.messages import LANGUAGE, NOT_IN_XML, Vocabulary, hint, shown_name
from persistence.limits import LONGEST_SHOWN, MOST_CHILDREN, MOST_QUERY_ELEMENTS, MOST_TREE_NODES

_LANGUAGE, _VALUE = "lang", "value"


def read_json(data: bytes, members: str, most: int = 2 * MOST_TREE_NODES) -> dict[str, Any]:
    """Read a body: an object, whose numbers are texts as they were sent; ``members`` are named in its refusal."""
    if data.count(b",") + data.count(b"{") + data.count(b"[") > most:  # a value takes some 100 bytes
        raise BadRequestError(f"the body has more than {most} commas and brackets, which is too many")
    try:
        found = json.loads(data, object_pairs_hook=_object, parse_int=str, parse_float=str, parse_constant=int)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadRequestError(f"the body must be a JSON object of the {members}")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"an object has the name {twice[:LONGEST_SHOWN]!r} twice")
    return found


def read_json_request(pieces: Iterable[bytes], names: Collection[str], vocabulary: Vocabulary) -> ET.Element:
    """Return the root with the children of these names; a name that is not in the ``vocabulary`` is refused."""
    root, request = ET.Element(""), f"a {vocabulary.request}"
    for name, value in read_json(b"".join(pieces), f"names of {request}", MOST_QUERY_ELEMENTS).items():
        if name in vocabulary.children:
            values = value if isinstance(value, list) else [value]
            if len(root) + len(values) > MOST_CHILDREN:
                raise BadRequestError(f"more than {MOST_CHILDREN} {', '.join(names)} are not accepted at once")
            children = [_child(name, each, vocabulary) for each in values]
            root.extend(children if name in names else ())
        elif name in vocabulary.root or name == _LANGUAGE:
            _set(root, name, value, request)
        else:
            raise _unknown(request, name, {*vocabulary.root, *vocabulary.children})
    return root


def _child(name: str, value: Any, vocabulary: Vocabulary) -> ET.Element:
    child, subject, known = ET.Element(name), f"{name!r} of a {vocabulary.request}", vocabulary.children[name]
    if not isinstance(value, dict):
        child.text = _text(value, subject)
        return child
    for own, inner in value.items():
        if own == _VALUE:
            child.text = _text(inner, subject)
        elif own in known or own == _LANGUAGE:
            _set(child, own, inner, subject)
        else:
            raise _unknown(subject, own, {*known, _VALUE})
    return child


def _set(element: ET.Element, name: str, value: Any, subject: str) -> None:
    if value is not None and value is not False:  # some attributes count if they are there
        element.set(LANGUAGE if name == _LANGUAGE else name, _text(value, f"{name!r} of {subject}"))


def _unknown(subject: str, name: str, known: Collection[str]) -> BadRequestError:
    return BadRequestError(f"{subject} has no {shown_name(name)!r}{hint(name, known)}")


def _text(value: Any, subject: str) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = " ".join(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is not None and not isinstance(value, str):
        raise BadRequestError(f"{subject} must be a text, a number, true, false, or a list of words")
    if value and NOT_IN_XML.search(value):
        raise BadRequestError(f"{subject} has a character that XML does not allow")
    return value or ""
