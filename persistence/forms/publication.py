"""The preparation of an unpublished definition: its form, its attachments, and the metadata of the publication."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from xml.sax.saxutils import escape

from lxml import etree

from persistence.errors import BadRequestError
from persistence.forms.structure import INSTANCE, MODEL, XH
from persistence.forms.trees import Element, Tree, on_tree, serialized
from persistence.model.addresses import AttachmentRef, Form, definition_holder_path, parse_holder_path


@dataclass(frozen=True, slots=True)
class Announcement:
    """The metadata of a publication: whether the form is available for new data, and a comment or none."""

    is_available: bool = True
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedDefinition:
    """A definition ready to be stored.

    ``held`` are the attachments to copy beside it, ``libraries`` the versions of the section template libraries that it
    was made with, by their names in the metadata.
    """

    form: Form
    content: bytes
    held: tuple[AttachmentRef, ...]
    libraries: dict[str, int]


def prepare(
    data: bytes, announcement: Announcement, is_copied: Callable[[Form, AttachmentRef], bool]
) -> PreparedDefinition:
    """Make a definition ready; ``is_copied`` decides which attachments go with its form.

    Raises:
        BadRequestError: it does not say which form it is, names two attachments by one name, or is too large; or the
            comment cannot be written as XML.
        MalformedXmlError: it is not well-formed.
    """
    return on_tree(data, partial(_prepare, announcement=announcement, is_copied=is_copied))


def _prepare(
    tree: Tree, *, announcement: Announcement, is_copied: Callable[[Form, AttachmentRef], bool]
) -> PreparedDefinition:
    metadata = _metadata(tree)
    form = Form(_required(metadata, "application-name"), _required(metadata, "form-name"))
    held: dict[str, AttachmentRef] = {}
    for element, one in _holders(tree):
        if is_copied(form, one):
            if held.setdefault(one.name, one) != one:
                raise BadRequestError(f"the definition names two different attachments called {one.name!r}")
            element.text = definition_holder_path(form, one.name)
    _set(metadata, "available", None if announcement.is_available else "false")
    _set(metadata, "version-comment", announcement.comment)
    return PreparedDefinition(form, serialized(tree), tuple(held.values()), _libraries(metadata))


def _metadata(tree: Tree) -> Element:
    """Return the metadata element, which has only one place (spec forms 6.2)."""
    path = f"{XH}head/{MODEL}[@id='fr-form-model']/{INSTANCE}[@id='fr-form-metadata']/metadata"
    root = tree.getroot()
    found = root.find(path) if root.tag == f"{XH}html" else None
    if found is None:
        raise BadRequestError("the definition has no metadata: nothing says which form it is")
    return found


def _required(metadata: Element, name: str) -> str:
    text = (metadata.findtext(name) or "").strip()
    if not text:
        raise BadRequestError(f"the metadata of the definition has no {name}")
    return text


def _holders(tree: Tree) -> Iterator[tuple[Element, AttachmentRef]]:
    for element in tree.iter(etree.Element):
        is_leaf = next(element.iterchildren(etree.Element), None) is None
        held = parse_holder_path(element.text) if is_leaf and element.text else None
        if held is not None:
            yield element, held


def _set(metadata: Element, name: str, text: str | None) -> None:
    """Set the one element of a name in the metadata to a text, or remove it.

    Raises:
        BadRequestError: XML cannot hold the text.
    """
    found = metadata.findall(name)
    if text is not None:
        element = found.pop(0) if found else etree.SubElement(metadata, name)
        element[:] = []
        try:
            element.text = text
        except ValueError as error:
            raise BadRequestError(f"the {name} holds characters that XML does not have") from error
    for other in found:
        metadata.remove(other)


_VERSION = re.compile(r"[0-9]{1,9}", re.ASCII)


def _libraries(metadata: Element) -> dict[str, int]:
    versions = metadata.find("library-versions")
    texts = {} if versions is None else {each.tag: (each.text or "").strip() for each in versions.iterchildren("*")}
    return {name: int(text) for name, text in texts.items() if _VERSION.fullmatch(text)}


def write_publication_answer(form: Form, *, version: int, attachments: int) -> bytes:
    """Write the answer to a publication: the form, its version, and the number of attachments published with it."""
    app, name = escape(form.app), escape(form.name)
    return (
        f"<response><app>{app}</app><form>{name}</form><published-attachments>{attachments}</published-attachments>"
        f"<published-version>{version}</published-version></response>"
    ).encode()
