"""The ``permissions`` element of a form definition (spec crud 6.2)."""

from __future__ import annotations

from urllib.parse import unquote
from xml.etree import ElementTree as ET

from persistence.errors import BadRequestError, MalformedXmlError
from persistence.model.permissions import LIST, OPERATIONS, GrantCondition, Permission, Permissions, UserRole

_BLANKS = " \t\r\n"
_NOT_LISTED = f"-{LIST}"
_PERMISSION, _USER_ROLE = "permission", "user-role"
_ATTRIBUTES = {_PERMISSION: ("operations",), _USER_ROLE: ("any-of",)}
"""The attributes of elements; others have none."""
_CONDITIONS = {condition.value: condition for condition in GrantCondition if condition is not GrantCondition.UNKNOWN}


def from_xml(text: str) -> Permissions:
    """Read the element as it is kept with a published version: without namespaces.

    What is not known grants nothing: an unknown condition never holds, an unknown operation is no operation.

    Raises:
        MalformedXmlError: it is not well-formed.
    """
    root = _parsed(text)
    return tuple(
        Permission(_operations(child), tuple(_condition(condition) for condition in child))
        for child in root
        if child.tag == _PERMISSION
    )


def _parsed(text: str) -> ET.Element:
    try:
        return ET.fromstring(text)  # noqa: S314 - without a document type there is nothing to expand
    except (ET.ParseError, ValueError) as error:
        raise MalformedXmlError(f"the permissions cannot be read: {error}") from error


def check(text: str) -> None:
    """Refuse permissions that would not mean to this service what their author meant.

    Raises:
        BadRequestError: an operation, a condition, an element or an attribute is not known, or there is text.
        MalformedXmlError: it is not well-formed.
    """
    _check_elements(_parsed(text))
    for permission in from_xml(text):
        unknown = permission.operations - frozenset(OPERATIONS)
        if unknown:
            raise BadRequestError(f"the permissions of the form name an unknown operation: {min(unknown)!r}")
        if GrantCondition.UNKNOWN in permission.conditions:
            raise BadRequestError(
                f"the permissions of the form have an unknown condition; known are {', '.join(_CONDITIONS)}, user-role"
            )


def _check_elements(root: ET.Element) -> None:
    """Refuse what the designer does not write: misspelt, it would mean something else, or nothing."""
    for child in root:
        if child.tag != _PERMISSION:
            raise BadRequestError(_unknown(f"the element <{child.tag}>", (_PERMISSION,)))
    for inner in root.iterfind("*/*/*"):
        raise BadRequestError(_unknown(f"the element <{inner.tag}> in a condition", ()))
    for element in root.iter():
        allowed = _ATTRIBUTES.get(element.tag, ())
        for name in element.attrib:
            if name not in allowed:
                raise BadRequestError(_unknown(f"the attribute {name!r} of <{element.tag}>", allowed))
        if any((text or "").strip(_BLANKS) for text in (element.text, *(child.tail for child in element))):
            raise BadRequestError(f"the permissions of the form have text in <{element.tag}>, where elements are meant")


def _unknown(what: str, known: tuple[str, ...]) -> str:
    meant = f"; known is {', '.join(known)}" if known else ""
    return f"the permissions of the form have {what}, which is not known{meant}"


def _operations(permission: ET.Element) -> frozenset[str]:
    named = set(permission.get("operations", "").split())
    if _NOT_LISTED in named:
        return frozenset(named - {_NOT_LISTED})
    return frozenset(named | {LIST})  # as it is in forms older than the operation


def _condition(element: ET.Element) -> GrantCondition | UserRole:
    if element.tag == _USER_ROLE:
        return UserRole(frozenset(unquote(name) for name in element.get("any-of", "").split()))
    return _CONDITIONS.get(element.tag, GrantCondition.UNKNOWN)
