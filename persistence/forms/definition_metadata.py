"""The metadata and permissions of a definition, read, checked and published (spec forms 6.2, crud 6.2)."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from urllib.parse import unquote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from persistence import limits
from persistence.errors import BadRequestError, MalformedXmlError
from persistence.forms.controls import shown_parts, unusable_marks_in
from persistence.forms.definition_tree import (
    INSTANCE,
    MODEL,
    XH,
    Bound,
    DefinitionTree,
    Element,
    Tree,
    is_content_repeat,
    on_tree,
    serialized,
)
from persistence.forms.form_data import ATTACHMENT_MARKER, FR_NAMESPACE, VALUE_MARKER
from persistence.forms.migration import cell_bound, plain_grids, repeated_grids
from persistence.model.addresses import (
    AttachmentRef,
    DocumentAddress,
    Form,
    definition_holder_path,
    document_holder_path,
    parse_holder_path,
)
from persistence.model.permissions import LIST, OPERATIONS, GrantCondition, Permission, Permissions, UserRole
from persistence.model.versions import V4_8_0, V2019_1_0, FormMetadata
from persistence.xml import SEPARATOR, Streaming, local_name, past_limits

_XHTML = "http://www.w3.org/1999/xhtml"
_XFORMS = "http://www.w3.org/2002/xforms"
_FR = f"{FR_NAMESPACE}{SEPARATOR}"
_XML = f"http://www.w3.org/XML/1998/namespace{SEPARATOR}"
_INSTANCE = f"{_XFORMS}{SEPARATOR}instance"

_PATH: tuple[tuple[str, str | None], ...] = (
    (f"{_XHTML}{SEPARATOR}html", None),
    (f"{_XHTML}{SEPARATOR}head", None),
    (f"{_XFORMS}{SEPARATOR}model", "fr-form-model"),
    (_INSTANCE, "fr-form-metadata"),
    ("metadata", None),
)
"""The one place of the metadata: an element's name, and its id where it must have one."""

_PERMISSIONS = "permissions"
_WANTED = ("title", "available", "singleton", _PERMISSIONS)
_LEADING = frozenset({name for name, _ in _PATH}.union(_WANTED))

_A_TITLE = 16  # Characters that an item counts at least

_BLANKS = " \t\r\n"
_NOT_LISTED = f"-{LIST}"
_PERMISSION, _USER_ROLE = "permission", "user-role"
_ATTRIBUTES = {_PERMISSION: ("operations",), _USER_ROLE: ("any-of",)}  # The attributes of elements; others have none
_CONDITIONS = {condition.value: condition for condition in GrantCondition if condition is not GrantCondition.UNKNOWN}

_ENCRYPT, _ENCRYPT_CLASS = f"{_FR}encrypt", "fr-encrypt"
_PART = "ncrypt"  # A part of all names about encryption, with a small or capital first letter
_MARK = re.compile("ncrypt|index|summary|fr-search|bulk-edit|sort-column")  # A part of each mark of a control
_LONGER = 13  # Characters of a name that are compared: no name as long is a misspelt encrypt
_OF_CONTROLS = frozenset({FR_NAMESPACE, _XFORMS, _XHTML, ""})
"""The namespaces of controls and of the elements in them; components in others have words of their own."""
_OF_DATA = frozenset({VALUE_MARKER, ATTACHMENT_MARKER})
"""Attributes of stored data, which data in a definition may have too."""


class MetadataReader(Streaming):
    """A parser that collects the ``metadata`` of a definition; a definition that is received ``is_checked``."""

    # The check refuses unknown permissions, and unknown names of encryption outside of instances, which hold data. For
    # speed the ends of elements are counted in C, by a list of names: ``end`` is only called where text is collected.
    def __init__(self, *, is_checked: bool = False) -> None:
        super().__init__()
        self._is_checked = is_checked
        self._ended: list[str] = []
        self.parser.EndElementHandler = self._ended.append
        self._instance = 0
        self._matched = 0
        self._item: str | None = None
        self._language = ""
        self._pieces: list[str] = []
        self._kept = 0
        self._titles: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._encrypts = False
        self.has_marks = False  # True if there may be marks of controls, of encryption or of the index

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

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        self.depth = depth = self._elements - len(self._ended)
        if (
            depth > limits.DEEPEST
            or self._elements > limits.MOST_ELEMENTS
            or len(name) > limits.LONGEST_XML_NAME
            or len(attributes) > limits.MOST_ATTRIBUTES
        ):
            raise past_limits(name, attributes, depth, limits.MOST_ELEMENTS)
        words = "\n".join((name, attributes.get("class", ""), *attributes))
        self.has_marks = self.has_marks or _MARK.search(words) is not None
        if _PART in words:
            self._encrypts |= name == _ENCRYPT or _ENCRYPT_CLASS in attributes.get("class", "").split()
        self._matched = min(self._matched, depth - 1)  # of the path, only elements around this one count
        if self._instance >= depth:
            self._instance = 0
        if self._item == _PERMISSIONS:
            self._keep_tag(name, attributes)
        elif self._item is None and self._matched == depth - 1 and name in _LEADING:
            if depth > len(_PATH):
                self._begin_item(name, attributes)
            elif _PATH[self._matched] in {(name, None), (name, attributes.get("id"))}:
                self._matched = depth
        if self._is_checked and not self._instance:
            own = [each.removeprefix(_FR)[:_LONGER] for each in words.split("\n") if each.startswith(_FR)]
            if _PART in words or any(map(_is_misspelt, own)):
                _check_names(name, attributes)
            self._instance = depth if name == _INSTANCE else 0

    def end(self, name: str) -> None:
        self._ended.append(name)
        item = self._item
        if item == _PERMISSIONS:
            self._keep(f"</{local_name(name)}>")
        if item is None or self._elements - len(self._ended) != len(_PATH):
            return
        self._item = self.parser.CharacterDataHandler = None
        self.parser.EndElementHandler = self._ended.append
        text = "".join(self._pieces)
        if item != "title":
            self._values.setdefault(item, text.strip())
        elif len(text) > limits.LONGEST_TITLE:
            raise BadRequestError(f"the form has a title of more than {limits.LONGEST_TITLE} characters")
        else:
            self._titles[self._language] = " ".join(text.split())

    def finish(self) -> None:
        super().finish()
        if self._is_checked and _PERMISSIONS in self._values:
            check_permissions(self._values[_PERMISSIONS])

    def _begin_item(self, name: str, attributes: dict[str, str]) -> None:
        if name not in _WANTED:
            return
        self._item, self._pieces = name, []
        self._language = attributes.get(f"{_XML}lang", "")
        self._count(len(self._language) + _A_TITLE)
        self.parser.CharacterDataHandler, self.parser.EndElementHandler = self._text, self.end
        if name == _PERMISSIONS:
            self._keep_tag(name, attributes)

    def _text(self, text: str) -> None:
        self._keep(escape(text) if self._item == _PERMISSIONS else text)

    def _keep_tag(self, name: str, attributes: dict[str, str]) -> None:
        # Attributes in a namespace are left out; the check refuses them, except those of XML itself.
        own = [f" {key}={quoteattr(value)}" for key, value in attributes.items() if SEPARATOR not in key]
        self._keep(f"<{local_name(name)}{''.join(own)}>")
        for key in attributes if self._is_checked else ():
            if SEPARATOR in key and not key.startswith(_XML):
                shown = repr(local_name(key))
                raise BadRequestError(
                    f"the {_PERMISSIONS} of the form have the attribute {shown} in a namespace; known ones have none"
                )

    def _keep(self, piece: str) -> None:
        self._count(len(piece))
        self._pieces.append(piece)

    def _count(self, characters: int) -> None:
        self._kept += characters
        if self._kept > limits.MOST_METADATA:
            raise BadRequestError(
                f"the titles and permissions of the form have more than {limits.MOST_METADATA} characters"
            )


def _check_names(name: str, attributes: dict[str, str]) -> None:
    namespace, _, local = name.rpartition(SEPARATOR)
    if name == _ENCRYPT:
        for key in attributes:
            if not key.startswith(_XML):
                raise _unknown_encryption(f"the attribute {local_name(key)!r} of <fr:encrypt>, which has none")
    elif namespace in _OF_CONTROLS and (
        _PART in local or (namespace == FR_NAMESPACE and _is_misspelt(local[:_LONGER]))
    ):
        raise _unknown_encryption(f"the element <{local}>")
    for key in attributes:
        own, separator, local = key.rpartition(SEPARATOR)
        is_known = (own != FR_NAMESPACE if separator else namespace not in _OF_CONTROLS) or key in _OF_DATA
        if not is_known and (_PART in local or (own == FR_NAMESPACE and _is_misspelt(local[:_LONGER]))):
            raise _unknown_encryption(f"the attribute {local!r}")
    for word in attributes.get("class", "").split():
        if word.startswith("fr-") and _PART in word and word != _ENCRYPT_CLASS:
            raise _unknown_encryption(f"the class {word!r}")


@lru_cache(1024)
def _is_misspelt(local: str) -> bool:
    # Only the first ``_LONGER`` characters may be passed: a cache keeps its keys.
    return bool(difflib.get_close_matches(local, ("encrypt",), cutoff=0.8))


def _unknown_encryption(part: str) -> BadRequestError:
    return BadRequestError(
        f"the form has {part}, which does not encrypt anything: the mark is <fr:encrypt/> in the control"
    )


def read_permissions(text: str) -> Permissions:
    """Read the permissions element of a published version, without namespaces; unknown words grant nothing."""
    found = []
    for child in _parsed(text):
        if child.tag == _PERMISSION:
            named = frozenset(child.get("operations", "").split())
            # Forms that are older than the operation do not name it.
            operations = named - {_NOT_LISTED} if _NOT_LISTED in named else named | {LIST}
            found.append(Permission(operations, tuple(map(_condition, child))))
    return tuple(found)


def _parsed(text: str) -> ET.Element:
    if "<!ENTITY" in text:
        raise MalformedXmlError("the permissions cannot be read: they declare entities")
    try:
        return ET.fromstring(text)  # noqa: S314 - without entities there is nothing to expand
    except (ET.ParseError, ValueError) as error:
        raise MalformedXmlError(f"the permissions cannot be read: {error}") from error


def check_permissions(text: str) -> None:
    """Refuse permissions that this service might understand in another way than their author."""
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
    for child in root:
        if child.tag != _PERMISSION:
            raise _unknown(f"the element <{child.tag}>", (_PERMISSION,))
    for inner in root.iterfind("*/*/*"):
        raise _unknown(f"the element <{inner.tag}> in a condition", ())
    for element in root.iter():
        allowed = _ATTRIBUTES.get(element.tag, ())
        for name in element.attrib:
            if name not in allowed:
                raise _unknown(f"the attribute {name!r} of <{element.tag}>", allowed)
        if any((text or "").strip(_BLANKS) for text in (element.text, *(child.tail for child in element))):
            raise BadRequestError(f"the permissions of the form have text in <{element.tag}> instead of elements")


def _unknown(part: str, known: tuple[str, ...]) -> BadRequestError:
    hint = f"; known is {', '.join(known)}" if known else ""
    return BadRequestError(f"the permissions of the form have {part}, which is not known{hint}")


def _condition(element: ET.Element) -> GrantCondition | UserRole:
    if element.tag == _USER_ROLE:
        return UserRole(frozenset(unquote(name) for name in element.get("any-of", "").split()))
    return _CONDITIONS.get(element.tag, GrantCondition.UNKNOWN)


_VERSION = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Announcement:
    """The metadata of a publication: availability for new data, and a comment."""

    is_available: bool = True
    comment: str | None = None
    lists_grids: bool = True  # lists of grids are written, by which data of older formats is read (spec forms 1.5)


@dataclass(frozen=True, slots=True)
class PreparedDefinition:
    """A definition ready to be stored; ``held`` attachments are copied, and ``libraries`` are versions by name."""

    form: Form
    content: bytes
    held: tuple[AttachmentRef, ...]
    libraries: dict[str, int]


def prepare(
    data: bytes, announcement: Announcement, is_copied: Callable[[Form, AttachmentRef], bool]
) -> PreparedDefinition:
    """Make a definition ready; ``is_copied`` decides which attachments go with its form."""

    def work(tree: Tree) -> PreparedDefinition:
        metadata, form = _named_form(tree)
        held: dict[str, AttachmentRef] = {}
        for element, one in _holders(tree):
            if is_copied(form, one):
                if held.setdefault(one.name, one) != one:
                    raise BadRequestError(f"the definition names two different attachments called {one.name!r}")
                element.text = definition_holder_path(form, one.name)
        _set(metadata, "available", None if announcement.is_available else "false")
        _set(metadata, "version-comment", announcement.comment)
        for mark in unusable_marks_in(tree):  # which would leave secrets in plain text
            raise BadRequestError(mark.cause)
        definition = DefinitionTree.read(tree) if announcement.lists_grids else None
        if definition is not None:
            _list_grids(definition, metadata)
        versions = metadata.find("library-versions")
        texts = {} if versions is None else {each.tag: (each.text or "").strip() for each in versions.iterchildren("*")}
        libraries = {name: int(text) for name, text in texts.items() if _VERSION.fullmatch(text)}
        return PreparedDefinition(form, serialized(tree), tuple(held.values()), libraries)

    return on_tree(data, work)


def unpublish(stored: bytes, form: Form, document: DocumentAddress) -> tuple[bytes, tuple[str, ...]]:
    """Return a published definition as the designer's document has it, with the names of the attachments it holds."""

    def work(tree: Tree) -> tuple[bytes, tuple[str, ...]]:
        _, named = _named_form(tree)
        if named != form:
            raise BadRequestError(f"the definition of {form} says that it is {named}: it would be published as that")
        names: dict[str, None] = {}
        for element, held in _holders(tree):
            if held.collection is None and held.form == form:
                element.text = document_holder_path(replace(document, name=held.name))
                names[held.name] = None
        return serialized(tree), tuple(names)

    return on_tree(stored, work, is_stored=True)


def _named_form(tree: Tree) -> tuple[Element, Form]:
    path = f"{XH}head/{MODEL}[@id='fr-form-model']/{INSTANCE}[@id='fr-form-metadata']/metadata"  # spec forms 6.2
    root = tree.getroot()
    metadata = root.find(path) if root.tag == f"{XH}html" else None
    if metadata is None:
        raise BadRequestError("the definition has no metadata, which would name its form")
    return metadata, Form(_required(metadata, "application-name"), _required(metadata, "form-name"))


def _holders(tree: Tree) -> Iterator[tuple[Element, AttachmentRef]]:
    for element in tree.iter(etree.Element):
        is_leaf = next(element.iterchildren(etree.Element), None) is None
        held = parse_holder_path(element.text) if is_leaf and element.text else None
        if held is not None:
            yield element, held


def _required(metadata: Element, name: str) -> str:
    text = (metadata.findtext(name) or "").strip()
    if not text:
        raise BadRequestError(f"the metadata of the definition has no {name}")
    return text


def _set(metadata: Element, name: str, text: str | None) -> None:
    found = metadata.findall(name)
    if text is not None:
        element = found.pop(0) if found else etree.SubElement(metadata, name)
        element[:] = []
        try:
            element.text = text
        except ValueError as error:
            raise BadRequestError(f"the {name} has characters that XML cannot have") from error
    for other in found:
        metadata.remove(other)


def _list_grids(definition: DefinitionTree, metadata: Element) -> None:
    repeated, plain = list[dict[str, str]](), list[dict[str, object]]()
    cells = cell_bound()
    # Of a template that is shown often, elements without data are looked at once.
    repeated_in = cache(lambda part: list(repeated_grids(part)))
    plain_in = cache(
        lambda part: [(grid, own) for grid in plain_grids(part, cells) if (own := part.paths(grid.view)[0])]
    )
    size = Bound(limits.MOST_STEPS, "the grids of the form are too many, or too deeply nested")
    for part, start in shown_parts(definition):
        for each in repeated_in(part):
            if is_content_repeat(each.element) or each.is_wrapped:
                path = (*start, *each.container, each.name)
                size.count(len(path))
                repeated.append({"path": "/".join(path), "iteration-name": each.iteration})
        for grid, own in plain_in(part):
            path = start + own
            size.count(len(path) + len(grid.content))
            plain.append(
                {
                    "containerPath": [{"value": name} for name in path[:-1]],
                    "newGridElem": {"value": path[-1]},
                    "afterElem": None if grid.after is None else {"value": grid.after},
                    "content": [{"value": name} for name in grid.content],
                    "topLevel": part is definition.main,
                }
            )
    _write_list(metadata, V4_8_0, repeated)
    _write_list(metadata, V2019_1_0, {"migrations": plain} if plain else None)


def _write_list(metadata: Element, version: str, listed: object) -> None:
    for element in metadata.findall("migration"):
        if element.get("version") == version:
            metadata.remove(element)
    if listed:
        etree.SubElement(metadata, "migration", version=version).text = json.dumps(listed)


def write_publication_answer(form: Form, *, version: int, attachments: int) -> bytes:
    app, name = escape(form.app), escape(form.name)
    return (
        f"<response><app>{app}</app><form>{name}</form><published-attachments>{attachments}</published-attachments>"
        f"<published-version>{version}</published-version></response>"
    ).encode()
