"""The check of a definition when it is published: marks that this service does not understand are refused.

A misspelt permission or mark of encryption would be ignored, and let people in, or leave secrets in plain text.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache

from persistence.errors import BadRequestError
from persistence.forms.data_marks import ATTACHMENT_MARKER, FR, VALUE_MARKER
from persistence.forms.metadata import (
    ENCRYPT,
    ENCRYPT_CLASS,
    PERMISSIONS,
    XFORMS,
    XHTML,
    MetadataReader,
    check_permissions,
    local_name,
)
from persistence.xml.streaming import SEPARATOR

_INSTANCE = f"{XFORMS}{SEPARATOR}instance"
_XML = f"http://www.w3.org/XML/1998/namespace{SEPARATOR}"
_PART = "ncrypt"
"""A part of all names about encryption, with a small or capital first letter."""
_MEANT = "encrypt"
_LONGEST_MISSPELT = 12
_OF_CONTROLS = frozenset({FR, XFORMS, XHTML, ""})
"""The namespaces of controls and of what is in them; components in others have words of their own."""
_OF_DATA = frozenset({VALUE_MARKER, ATTACHMENT_MARKER})
"""Marks of stored data, which data in a definition may have too."""


class DefinitionCheck(MetadataReader):
    """A reader of the metadata of a definition that is received, which refuses unknown marks.

    Instances hold data, in which all names are allowed; permissions are the exception.

    Raises, besides what ``MetadataReader`` does:
        BadRequestError: the permissions, or a mark of encryption, have something that is not known.
    """

    def __init__(self) -> None:
        super().__init__()
        self._instance = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Check an element that begins."""
        super().start(name, attributes)
        if self.is_in_permissions:
            _check_namespaces(attributes)
        elif not self._instance:
            _check_element(name, attributes)
            for key in attributes:
                if _PART in key or SEPARATOR in key:
                    _check_attribute(name, key)
            _check_classes(attributes)
            if name == _INSTANCE:
                self._instance = self.depth

    def end(self, name: str) -> None:
        """Leave an instance, if it ends."""
        if self.depth == self._instance:
            self._instance = 0
        super().end(name)

    def finish(self) -> None:
        """Check the permissions at the end of the document."""
        super().finish()
        said = self.metadata.permissions
        if said is not None:
            check_permissions(said)


def _check_namespaces(attributes: Mapping[str, str]) -> None:
    """Refuse attributes in a namespace, which are not kept; those of XML itself do not matter for permissions."""
    for key in attributes:
        if SEPARATOR in key and not key.startswith(_XML):
            shown = repr(local_name(key))
            raise BadRequestError(
                f"the {PERMISSIONS} of the form have the attribute {shown} in a namespace; known ones have none"
            )


def _check_element(name: str, attributes: Mapping[str, str]) -> None:
    if name == ENCRYPT:
        for key in attributes:
            if not key.startswith(_XML):
                raise _unknown(f"the attribute {local_name(key)!r} of <fr:{_MEANT}>, which has none")
    elif _is_like(name) and _namespace(name) in _OF_CONTROLS:
        raise _unknown(f"the element <{local_name(name)}>")


def _check_attribute(name: str, key: str) -> None:
    namespace = _namespace(key) if SEPARATOR in key else _namespace(name)
    is_own = namespace == FR if SEPARATOR in key else namespace in _OF_CONTROLS
    if is_own and key not in _OF_DATA and _is_like(key):
        raise _unknown(f"the attribute {local_name(key)!r}")


def _check_classes(attributes: Mapping[str, str]) -> None:
    said = attributes.get("class", "")
    for word in said.split() if _PART in said else ():
        if word.startswith("fr-") and _PART in word and word != ENCRYPT_CLASS:
            raise _unknown(f"the class {word!r}")


def _is_like(name: str) -> bool:
    """Return whether a name is about encryption, or such a word misspelt in the form runner's namespace."""
    local = local_name(name)
    if _PART in local:
        return True
    # The length first: a cache keeps its keys.
    return name.startswith(f"{FR}{SEPARATOR}") and len(local) <= _LONGEST_MISSPELT and _is_misspelt(local)


@lru_cache(1024)
def _is_misspelt(local: str) -> bool:
    return bool(difflib.get_close_matches(local, (_MEANT,), cutoff=0.8))


def _unknown(what: str) -> BadRequestError:
    return BadRequestError(
        f"the form has {what}, which does not encrypt anything: the mark is <fr:{_MEANT}/> in the control"
    )


def _namespace(name: str) -> str:
    return name.rpartition(SEPARATOR)[0]
