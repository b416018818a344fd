"""The ``*.metadata.xml`` beside each entry of an archive: every fact of a sidecar, written and read (spec crud 8.4).

It has the elements of the real system, whose facts are attributes (spec runtime 7), and beside them every fact in
elements of the service's own. A document without these is read by the names that the real system, or the interface
elsewhere, has for owner, last modifier, stage and times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from persistence.errors import BadRequestError
from persistence.forms.messages import SmallReader, attribute, element, shown_name, text, text_in
from persistence.limits import LARGEST_ARCHIVE_METADATA
from persistence.model import texts
from persistence.model.sidecar import SCHEMA, ClientHash, Sidecar, described
from persistence.model.texts import Instant, count, short
from persistence.xml import local_name

FORMAT = "1"  # The version of the shape, which the root names

_RENAMED = {
    "created": "created",
    "modified": "last-modified",
    "creator": "owner-username",
    "group": "owner-group",
    "organization": "owner-organization",
    "modifier": "last-modified-by",
    "version": "form-version",
    "metadata": "form-metadata",
}
"""Elements with another name than the field of the sidecar."""

_ELEMENTS = {
    name: _RENAMED.get(name, name.replace("_", "-"))
    for name in Sidecar.__struct_fields__
    if name not in {"schema", "body"}  # how and where this service stores the revision
}
_FIELDS = {element: name for name, element in _ELEMENTS.items()}

_LEVELS, _LEVEL = "organization-levels", "organization-level"
_REAL = ("created-by", "workflow-stage", _LEVELS)  # Elements of the real system that repeat others

_OF_FORM, _IN_FORM = ("available", "singleton", "encrypts"), ("title", "permissions")
"""Attributes and elements of the metadata of a form."""

_FOREIGN = {
    "created": ("created", "created-time"),
    "modified": ("last-modified", "last-modified-time", "modified-time", "modified"),
    "creator": ("owner-username", "owner", "username", "created-by", "created-username"),
    "group": ("owner-group", "groupname", "group"),
    "modifier": ("last-modified-by", "last-modifier", "last-modified-username", "modified-username", "modified-by"),
    "stage": ("stage", "workflow-stage"),
    "version": ("form-version", "form-definition-version", "version"),
    "content_type": ("content-type", "mediatype"),
}
_FOREIGN_FIELDS = {name: field for field, names in _FOREIGN.items() for name in names}

_FOREIGN_ATTRIBUTES = {
    ("created-by", "username"): "creator",
    ("created-by", "groupname"): "group",
    ("last-modified-by", "username"): "modifier",
}
"""Facts of the real system, which are attributes of elements."""


@dataclass(frozen=True, slots=True)
class ImportFacts:
    """The facts of a revision as far as its source has them; in this service's archives, the ``sidecar`` has all."""

    # With ``is_decrypted`` the content is plain although the sidecar says otherwise. ``tag`` is an entity tag. Without
    # ``has_own_time``, ``modified`` is that of the document. A ``version`` does not count: the path has one. With
    # ``is_as_stored`` the content is kept as it is: a runtime has encrypted it, or not.
    created: Instant | None = None
    modified: Instant | None = None
    creator: str | None = None
    group: str | None = None
    organization: tuple[str, ...] = ()
    modifier: str | None = None
    stage: str | None = None
    version: int | None = None
    content_type: str | None = None
    sidecar: Sidecar | None = None
    is_decrypted: bool = False
    has_own_time: bool = True
    valid: bool | None = None
    source: str | None = None
    tag: str | None = None
    holder: str | None = None
    client_hash: ClientHash | None = None
    is_as_stored: bool = False
    notes: tuple[str, ...] = ()


def write_metadata(sidecar: Sidecar, *, is_decrypted: bool = False) -> bytes:
    """Write the facts of a revision; where its content is elsewhere, with size and digest of that."""
    fields: Mapping[str, Any] = msgspec.to_builtins(described(sidecar))  # those that it has, in their order
    children = []
    if sidecar.creator is not None:
        group = "" if sidecar.group is None else attribute("groupname", sidecar.group)
        children.append(element("created-by", attribute("username", sidecar.creator) + group))
    if sidecar.stage is not None:
        children.append(element("workflow-stage", content=text(sidecar.stage)))
    if sidecar.organization:
        levels = "".join(element(_LEVEL, content=text(each)) for each in sidecar.organization)
        children.append(element(_LEVELS, content=levels))
    children += [_written(_ELEMENTS[name], value) for name, value in fields.items() if name in _ELEMENTS]
    root = attribute("format", FORMAT) + (attribute("decrypted", "true") if is_decrypted else "")
    return element("metadata", root, "".join(f"\n  {child}" for child in children) + "\n").encode()


def _written(tag: str, value: Any) -> str:
    match value:
        case str():
            own = attribute("username", value) if tag == _ELEMENTS["modifier"] else ""
            return element(tag, own, text(value))
        case bool():
            return element(tag, content=str(value).lower())
        case int():
            return element(tag, content=str(value))
        case {"algorithm": algorithm, "value": digest}:
            return element(tag, attribute("algorithm", algorithm), text(digest))
        case dict():
            flags = "".join(
                attribute(name, str(flag).lower()) for name, flag in value.items() if isinstance(flag, bool)
            )
            titles = value.get("titles", {}).items()
            content = "".join(element("title", attribute("lang", lang), text(title)) for lang, title in titles)
            if (permissions := value.get("permissions")) is not None:
                content += element("permissions", content=text(permissions))
            return element(tag, flags, content)
        case _:
            return "".join(element(tag, content=text(each)) for each in value)


def read_metadata(pieces: Iterable[bytes]) -> ImportFacts:
    """Read the facts of a revision in an archive; a note names each element that is not understood."""
    children: list[ET.Element] = []
    size = 0
    with SmallReader(children.append) as reader:
        for piece in pieces:
            size += len(piece)
            if size > LARGEST_ARCHIVE_METADATA:
                raise BadRequestError(f"the metadata of a revision has more than {LARGEST_ARCHIVE_METADATA} bytes")
            reader.feed(piece)
        reader.finish()
        root = reader.root
    form = root.get("format")
    if form is None:
        return _foreign(root.attrib, children)
    if form != FORMAT:
        raise BadRequestError(f"metadata of format {shown_name(form)!r} is not understood, only {FORMAT}")
    unknown: list[str] = []
    for child in children:
        if child.tag not in _FIELDS:
            unknown += [child.tag] if child.tag not in _REAL else []
        elif _FIELDS[child.tag] == "metadata":
            unknown += [name for name in child.attrib if name not in _OF_FORM]
            unknown += [each.tag for each in child if each.tag not in _IN_FORM]
    sidecar = _sidecar(child for child in children if child.tag in _FIELDS)
    is_decrypted = root.get("decrypted") == "true"
    return ImportFacts(sidecar=sidecar, is_decrypted=is_decrypted, notes=_left_out(map(shown_name, unknown)))


def _left_out(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"the element <{each}> of the metadata is not known, and left out" for each in names)


def _sidecar(children: Iterable[ET.Element]) -> Sidecar:
    fields: dict[str, Any] = {"schema": SCHEMA}
    for child in children:
        name = _FIELDS[child.tag]
        if name == "organization":
            fields.setdefault(name, []).append(text_in(child))
        elif name in fields:
            raise BadRequestError(f"the metadata of a revision has <{child.tag}> twice")
        elif name == "client_hash":
            fields[name] = {"algorithm": child.get("algorithm"), "value": text_in(child)}
        elif name == "metadata":
            titles = {title.get("lang", ""): text_in(title) for title in child.findall("title")}
            fields[name] = {**child.attrib, "titles": titles}
            if (permissions := child.find("permissions")) is not None:
                fields[name]["permissions"] = text_in(permissions)
        else:
            fields[name] = text_in(child)
    try:
        sidecar = msgspec.convert(fields, Sidecar, strict=False)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"the metadata of a revision has an invalid value: {error}") from error
    times = (sidecar.modified, sidecar.created, sidecar.restored)
    if not all(time is None or texts.is_in_calendar(time) for time in times):
        raise BadRequestError("the metadata of a revision has a time that does not exist in the calendar")
    return sidecar


def _foreign(attributes: Mapping[str, str], children: Iterable[ET.Element]) -> ImportFacts:
    found: dict[str, str] = {}
    unknown: list[str] = []
    given = [(local_name(name), value) for name, value in attributes.items()]
    for each in (each for child in children for each in child.iter()):
        tag = local_name(each.tag)
        own = {_FOREIGN_ATTRIBUTES.get((tag, local_name(name))): value.strip() for name, value in each.attrib.items()}
        found |= {field: value for field, value in own.items() if field is not None and value}
        given.append((tag, each.text or ""))
    for name, value in given:
        field = _FOREIGN_FIELDS.get(name)
        if field is None and name not in (_LEVELS, _LEVEL):
            unknown.append(shown_name(name))
        elif field is not None and value.strip():
            found.setdefault(field, value.strip())
    levels = [short(value.strip(), "owner's organization") for name, value in given if name == _LEVEL]
    return ImportFacts(
        created=_time(found.get("created")),
        modified=_time(found.get("modified")),
        creator=short(found.get("creator"), "owner's name"),
        group=short(found.get("group"), "owner's group"),
        organization=tuple(filter(None, levels)),
        modifier=short(found.get("modifier"), "last modifier's name"),
        stage=short(found.get("stage"), "workflow stage"),
        version=count(found.get("version", ""), "the form version in metadata", 0) or None,
        content_type=short(found.get("content_type"), "content type"),
        notes=_left_out(dict.fromkeys(unknown)),
    )


def _time(given: str | None) -> Instant | None:
    return None if given is None else texts.from_datetime(texts.parse_time(given, "a time in metadata"))
