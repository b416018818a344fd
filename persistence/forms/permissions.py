"""The ``permissions`` element of a form definition (spec crud 6.2)."""

from __future__ import annotations

from urllib.parse import unquote
from xml.etree import ElementTree as ET

from persistence.errors import BadRequestError, MalformedXmlError
from persistence.model.operations import LIST, OPERATIONS
from persistence.model.permissions import Condition, Permission, Permissions, UserRole

_NOT_LISTED = f"-{LIST}"
_CONDITIONS = {condition.value: condition for condition in Condition if condition is not Condition.UNKNOWN}


def from_xml(text: str) -> Permissions:
    """Read the element as it is kept with a published version: without namespaces.

    What is not known grants nothing: an unknown condition never holds, an unknown operation is no operation.

    Raises:
        MalformedXmlError: it is not well-formed.
    """
    try:
        root = ET.fromstring(text)  # noqa: S314 - without a document type there is nothing to expand
    except (ET.ParseError, ValueError) as error:
        raise MalformedXmlError(f"the permissions cannot be read: {error}") from error
    return tuple(
        Permission(_operations(child), tuple(_condition(condition) for condition in child))
        for child in root
        if child.tag == "permission"
    )


def check(text: str) -> None:
    """Refuse permissions that would not mean to this service what their author meant.

    Raises:
        BadRequestError: an operation or a condition is not known.
        MalformedXmlError: it is not well-formed.
    """
    for permission in from_xml(text):
        unknown = permission.operations - frozenset(OPERATIONS)
        if unknown:
            raise BadRequestError(f"the permissions of the form name an unknown operation: {min(unknown)!r}")
        if Condition.UNKNOWN in permission.conditions:
            raise BadRequestError(
                f"the permissions of the form have an unknown condition; known are {', '.join(_CONDITIONS)}, user-role"
            )


def _operations(permission: ET.Element) -> frozenset[str]:
    named = set(permission.get("operations", "").split())
    if _NOT_LISTED in named:
        return frozenset(named - {_NOT_LISTED})
    return frozenset(named | {LIST})  # as it is in forms older than the operation


def _condition(element: ET.Element) -> Condition | UserRole:
    if element.tag == "user-role":
        return UserRole(frozenset(unquote(name) for name in element.get("any-of", "").split()))
    return _CONDITIONS.get(element.tag, Condition.UNKNOWN)
