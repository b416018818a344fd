"""The metadata of a definition and the permissions in it, read while it streams by (spec forms 6.2, crud 6.2).

When a definition is published, marks that this service does not understand are refused. A misspelt permission or mark
of encryption would be ignored, and let people in, or leave secrets in plain text.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import unquote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

from persistence.errors import BadRequestError, MalformedXmlError
from persistence.forms.form_data import ATTACHMENT_MARKER, FR_NAMESPACE, VALUE_MARKER
from persistence.limits import LONGEST_TITLE, MOST_METADATA
from persistence.model.form_versions import FormMetadata
from persistence.model.permissions import LIST, OPERATIONS, GrantCondition, Permission, Permissions, UserRole
from persistence.xml.streaming import SEPARATOR, Streaming

_XHTML = "http://www.w3.org/1999/xhtml"
_XFORMS = "http://www.w3.org/2002/xforms"
_LANGUAGE = f"http://www.w3.org/XML/1998/namespace{SEPARATOR}lang"

_PATH: tuple[tuple[str, str | None], ...] = (
    (f"{_XHTML}{SEPARATOR}html", None),
    (f"{_XHTML}{SEPARATOR}head", None),
    (f"{_XFORMS}{SEPARATOR}model", "fr-form-model"),
    (f"{_XFORMS}{SEPARATOR}instance", "fr-form-metadata"),
    ("metadata", None),
)
"""The one place of the metadata: an element's name, and its id where it must have one."""

_ENCRYPT, _ENCRYPT_CLASS = f"{FR_NAMESPACE}{SEPARATOR}encrypt", "fr-encrypt"
_PERMISSIONS = "permissions"
_WANTED = ("title", "available", "singleton", _PERMISSIONS)

_A_TITLE = 16
"""Characters that an item counts at least."""

_BLANKS = " \t\r\n"
_NOT_LISTED = f"-{LIST}"
_PERMISSION, _USER_ROLE = "permission", "user-role"
_ATTRIBUTES = {_PERMISSION: ("operations",), _USER_ROLE: ("any-of",)}
"""The attributes of elements; others have none."""
_CONDITIONS = {condition.value: condition for condition in GrantCondition if condition is not GrantCondition.UNKNOWN}

_INSTANCE = f"{_XFORMS}{SEPARATOR}instance"
_XML = f"http://www.w3.org/XML/1998/namespace{SEPARATOR}"
_PART = "ncrypt"
"""A part of all names about encryption, with a small or capital first letter."""
_MEANT = "encrypt"
_LONGEST_MISSPELT = 12
_OF_CONTROLS = frozenset({FR_NAMESPACE, _XFORMS, _XHTML, ""})
"""The namespaces of controls and of what is in them; components in others have words of their own."""
_OF_DATA = frozenset({VALUE_MARKER, ATTACHMENT_MARKER})
"""Marks of stored data, which data in a definition may have too."""


class MetadataReader(Streaming):
    """A parser that checks a definition, and collects its ``metadata``.

    Raises, besides what ``Streaming`` does:
        BadRequestError: titles and permissions are longer than anyone's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parser.CharacterDataHandler = self._text
        self._matched = 0
        self._item: str | None = None
        self._language = ""
        self._pieces: list[str] = []
        self._kept = 0
        self._titles: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._encrypts = False

    @property
    def metadata(self) -> FormMetadata:
        """The metadata; of several elements of one name the first counts, of titles the last of each language."""
        singleton = self._values.get("singleton")
        return FormMetadata(
            titles=self._titles,
            available=self._values.get("available") != "false",
            singleton=None if singleton is None else singleton == "true",
            permissions=self._values.get(_PERMISSIONS),
            encrypts=self._encrypts,
        )

    @property
    def is_in_permissions(self) -> bool:
        """Return whether the last element that began is that of the permissions, or inside."""
        return self._item == _PERMISSIONS

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Follow the path to the metadata, and collect the wanted elements in it."""
        super().start(name, attributes)
        if name == _ENCRYPT or _ENCRYPT_CLASS in attributes.get("class", "").split():
            self._encrypts = True
        if self._item == _PERMISSIONS:
            self._keep(_start_tag(name, attributes))
        elif self._matched == len(_PATH):
            if self.depth == len(_PATH) + 1 and name in _WANTED:
                self._item = name
                self._language = attributes.get(_LANGUAGE, "")
                self._pieces = []
                self._keep(_start_tag(name, attributes) if name == _PERMISSIONS else "")
                self._count(len(self._language) + _A_TITLE)
        elif self._matched == self.depth - 1:
            wanted, identity = _PATH[self._matched]
            if name == wanted and identity in (None, attributes.get("id")):
                self._matched = self.depth

    def end(self, name: str) -> None:
        """Step back on that path, or finish an element that is collected."""
        if self._item == _PERMISSIONS:
            self._keep(f"</{_local(name)}>")
        if self._item is not None and self.depth == len(_PATH) + 1:
            self._close(self._item, "".join(self._pieces))
            self._item = None
        self._matched = min(self._matched, self.depth - 1)
        super().end(name)

    def _close(self, item: str, text: str) -> None:
        if item == "title":
            if len(text) > LONGEST_TITLE:
                raise BadRequestError(f"the form has a title of more than {LONGEST_TITLE} characters")
            self._titles[self._language] = " ".join(text.split())
        else:
            self._values.setdefault(item, text.strip())

    def _text(self, text: str) -> None:
        if self._item is not None:
            self._keep(escape(text) if self._item == _PERMISSIONS else text)

    def _keep(self, piece: str) -> None:
        self._count(len(piece))
        self._pieces.append(piece)

    def _count(self, characters: int) -> None:
        self._kept += characters
        if self._kept > MOST_METADATA:
            raise BadRequestError(f"titles and permissions of a form of more than {MOST_METADATA} characters")


def _local(name: str) -> str:
    return name.rpartition(SEPARATOR)[2]


def _start_tag(name: str, attributes: dict[str, str]) -> str:
    """Write a start tag without namespaces: attributes in one are left out."""
    own = (f" {key}={quoteattr(value)}" for key, value in attributes.items() if SEPARATOR not in key)
    return f"<{_local(name)}{''.join(own)}>"


def read_permissions(text: str) -> Permissions:
    """Read the permissions element as it is kept with a published version: without namespaces.

    Unknown words grant nothing: an unknown condition never holds, an unknown operation is no operation.

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


def check_permissions(text: str) -> None:
    """Refuse permissions that this service would not understand as their author meant them.

    Raises:
        BadRequestError: an operation, a condition, an element or an attribute is not known, or there is text.
        MalformedXmlError: it is not well-formed.
    """
    _check_elements(_parsed(text))
    for permission in read_permissions(text):
        unknown = permission.operations - frozenset(OPERATIONS)
        if unknown:
            raise BadRequestError(f"the permissions of the form name an unknown operation: {min(unknown)!r}")
        if GrantCondition.UNKNOWN in permission.conditions:
            raise BadRequestError(
                f"the permissions of the form have an unknown condition; known are {', '.join(_CONDITIONS)}, user-role"
            )


def _check_elements(root: ET.Element) -> None:
    """Refuse elements and attributes that the designer does not write: they may be misspelt ones."""
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
        found = self.metadata.permissions
        if found is not None:
            check_permissions(found)


def _check_namespaces(attributes: Mapping[str, str]) -> None:
    """Refuse attributes in a namespace, which are not kept; those of XML itself do not matter for permissions."""
    for key in attributes:
        if SEPARATOR in key and not key.startswith(_XML):
            shown = repr(_local(key))
            raise BadRequestError(
                f"the {_PERMISSIONS} of the form have the attribute {shown} in a namespace; known ones have none"
            )


def _check_element(name: str, attributes: Mapping[str, str]) -> None:
    if name == _ENCRYPT:
        for key in attributes:
            if not key.startswith(_XML):
                raise _unknown_mark(f"the attribute {_local(key)!r} of <fr:{_MEANT}>, which has none")
    elif _is_like(name) and _namespace(name) in _OF_CONTROLS:
        raise _unknown_mark(f"the element <{_local(name)}>")


def _check_attribute(name: str, key: str) -> None:
    namespace = _namespace(key) if SEPARATOR in key else _namespace(name)
    is_own = namespace == FR_NAMESPACE if SEPARATOR in key else namespace in _OF_CONTROLS
    if is_own and key not in _OF_DATA and _is_like(key):
        raise _unknown_mark(f"the attribute {_local(key)!r}")


def _check_classes(attributes: Mapping[str, str]) -> None:
    classes = attributes.get("class", "")
    for word in classes.split() if _PART in classes else ():
        if word.startswith("fr-") and _PART in word and word != _ENCRYPT_CLASS:
            raise _unknown_mark(f"the class {word!r}")


def _is_like(name: str) -> bool:
    """Return whether a name is about encryption, or such a word misspelt in the form runner's namespace."""
    local = _local(name)
    if _PART in local:
        return True
    # The length first: a cache keeps its keys.
    return name.startswith(f"{FR_NAMESPACE}{SEPARATOR}") and len(local) <= _LONGEST_MISSPELT and _is_misspelt(local)


@lru_cache(1024)
def _is_misspelt(local: str) -> bool:
    return bool(difflib.get_close_matches(local, (_MEANT,), cutoff=0.8))


def _unknown_mark(what: str) -> BadRequestError:
    return BadRequestError(
        f"the form has {what}, which does not encrypt anything: the mark is <fr:{_MEANT}/> in the control"
    )


def _namespace(name: str) -> str:
    return name.rpartition(SEPARATOR)[0]
