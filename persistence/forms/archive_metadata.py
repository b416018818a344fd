"""The ``*.metadata.xml`` beside each entry of an archive: every fact of a sidecar, written and read (spec crud 8.4).

It has the elements of the real system, whose facts are attributes (spec runtime 7), and beside them every fact in
elements of the service's own. A document without these is read by the names that the real system, or the interface
elsewhere, has for owner, last modifier, stage and times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from persistence.errors import BadRequestError
from persistence.forms.messages import ChildReader, attribute, element, text, text_in
from persistence.limits.documents import LARGEST_ARCHIVE_METADATA
from persistence.limits.requests import LONGEST_SHOWN
from persistence.limits.search import MOST_QUERY_ELEMENTS, MOST_QUERY_NAMES
from persistence.model import instants
from persistence.model.instants import Instant
from persistence.model.sidecar import SCHEMA, Sidecar, described
from persistence.model.texts import count, short
from persistence.xml.streaming import SEPARATOR

FORMAT = "1"
"""The version of the shape, which the root names."""

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
"""Elements that are not called as the field of the sidecar."""

_LEFT_OUT = frozenset({"schema", "body"})
"""Fields that say how and where this service keeps the revision."""

_ELEMENTS = {
    name: _RENAMED.get(name, name.replace("_", "-")) for name in Sidecar.__struct_fields__ if name not in _LEFT_OUT
}
_FIELDS = {element: name for name, element in _ELEMENTS.items()}

_LEVELS, _LEVEL = "organization-levels", "organization-level"
_REAL = ("created-by", "workflow-stage", _LEVELS)
"""Elements of the real system that say again what others say."""

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
class ForeignFacts:
    """Facts that a document of another shape says, as far as they are understood."""

    created: Instant | None = None
    modified: Instant | None = None
    creator: str | None = None
    group: str | None = None
    organization: tuple[str, ...] = ()
    modifier: str | None = None
    stage: str | None = None
    version: int | None = None
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class ArchiveMetadata:
    """The facts of a revision in an archive.

    ``sidecar`` is whole; it is ``None`` where the document has another shape, of which ``foreign`` has the facts.
    ``is_decrypted`` says that the content in the archive is plain, while the stored one is encrypted. ``unknown`` has
    the names of elements that are not understood.
    """

    sidecar: Sidecar | None
    foreign: ForeignFacts = ForeignFacts()
    is_decrypted: bool = False
    unknown: tuple[str, ...] = ()


def write_metadata(sidecar: Sidecar, *, is_decrypted: bool = False) -> bytes:
    """Write the facts of a revision; where its body is elsewhere, those of the body."""
    fields: Mapping[str, Any] = msgspec.to_builtins(described(sidecar))  # those that it has, in their order
    children = [*_as_real(sidecar)]
    children += [_written(_ELEMENTS[name], value) for name, value in fields.items() if name in _ELEMENTS]
    root = attribute("format", FORMAT) + (attribute("decrypted", "true") if is_decrypted else "")
    return element("metadata", root, "".join(f"\n  {child}" for child in children) + "\n").encode()


def _as_real(sidecar: Sidecar) -> Iterator[str]:
    if sidecar.creator is not None:
        group = "" if sidecar.group is None else attribute("groupname", sidecar.group)
        yield element("created-by", attribute("username", sidecar.creator) + group)
    if sidecar.stage is not None:
        yield element("workflow-stage", content=text(sidecar.stage))
    if sidecar.organization:
        yield element(_LEVELS, content="".join(element(_LEVEL, content=text(each)) for each in sidecar.organization))


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
            return _form_metadata(tag, value)
        case _:
            return "".join(element(tag, content=text(each)) for each in value)


def _form_metadata(tag: str, value: Mapping[str, Any]) -> str:
    flags = "".join(attribute(name, str(each).lower()) for name, each in value.items() if isinstance(each, bool))
    titles = (element("title", attribute("lang", lang), text(title)) for lang, title in value.get("titles", {}).items())
    permissions = value.get("permissions")
    last = "" if permissions is None else element("permissions", content=text(permissions))
    return element(tag, flags, "".join(titles) + last)


class _MetadataReader(ChildReader):
    """A reader whose document is as small as a request."""

    most_elements = MOST_QUERY_ELEMENTS
    most_names = MOST_QUERY_NAMES


def read_metadata(pieces: Iterable[bytes]) -> ArchiveMetadata:
    """Read the facts of a revision."""
    children: list[ET.Element] = []
    with _MetadataReader(children.append) as reader:
        root = reader.read(_measured(pieces)).root
    form = root.get("format")
    if form is None:
        return _foreign(root.attrib, children)
    if form != FORMAT:
        raise BadRequestError(f"metadata of format {_shown(form)!r} is not understood, only {FORMAT}")
    is_decrypted = root.get("decrypted") == "true"
    known = [child for child in children if child.tag in _FIELDS]
    unknown = tuple(map(_shown, _unknown(children)))
    return ArchiveMetadata(_sidecar(known), is_decrypted=is_decrypted, unknown=unknown)


def _unknown(children: Iterable[ET.Element]) -> Iterator[str]:
    for child in children:
        if child.tag not in _FIELDS:
            if child.tag not in _REAL:
                yield child.tag
        elif _FIELDS[child.tag] == "metadata":
            yield from (name for name in child.attrib if name not in _OF_FORM)
            yield from (each.tag for each in child if each.tag not in _IN_FORM)


def _measured(pieces: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > LARGEST_ARCHIVE_METADATA:
            raise BadRequestError(f"the metadata of a revision has more than {LARGEST_ARCHIVE_METADATA} bytes")
        yield piece


def _sidecar(children: Iterable[ET.Element]) -> Sidecar:
    fields: dict[str, Any] = {"schema": SCHEMA}
    for child in children:
        name = _FIELDS[child.tag]
        if name == "organization":
            fields.setdefault(name, []).append(text_in(child))
        elif name in fields:
            raise BadRequestError(f"the metadata of a revision says <{child.tag}> twice")
        else:
            fields[name] = _value(name, child)
    try:
        sidecar = msgspec.convert(fields, Sidecar, strict=False)
        _check_times(sidecar)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"the metadata of a revision has a value that is none: {error}") from error
    return sidecar


def _check_times(sidecar: Sidecar) -> None:
    times = (sidecar.modified, sidecar.created, sidecar.restored)
    if not all(time is None or instants.is_in_calendar(time) for time in times):
        raise BadRequestError("the metadata of a revision has a time that is in no calendar")


def _value(name: str, child: ET.Element) -> Any:
    if name == "client_hash":
        return {"algorithm": child.get("algorithm"), "value": text_in(child)}
    if name != "metadata":
        return text_in(child)
    read: dict[str, Any] = dict(child.attrib)
    read["titles"] = {title.get("lang", ""): text_in(title) for title in child.findall("title")}
    permissions = child.find("permissions")
    return read if permissions is None else read | {"permissions": text_in(permissions)}


def _foreign(attributes: Mapping[str, str], children: Iterable[ET.Element]) -> ArchiveMetadata:
    found: dict[str, str] = {}
    unknown: list[str] = []
    said = [(_local(name), value) for name, value in attributes.items()]
    for each in (each for child in children for each in child.iter()):
        tag = _local(each.tag)
        own = {_FOREIGN_ATTRIBUTES.get((tag, _local(name))): value.strip() for name, value in each.attrib.items()}
        found |= {field: value for field, value in own.items() if field is not None and value}
        said.append((tag, each.text or ""))
    for name, value in said:
        field = _FOREIGN_FIELDS.get(name)
        if field is None and name not in (_LEVELS, _LEVEL):
            unknown.append(_shown(name))
        elif field is not None and value.strip():
            found.setdefault(field, value.strip())
    levels = [short(value.strip(), "owner's organization") for name, value in said if name == _LEVEL]
    return ArchiveMetadata(None, _foreign_facts(found, levels), unknown=tuple(dict.fromkeys(unknown)))


def _foreign_facts(found: Mapping[str, str], levels: Iterable[str | None]) -> ForeignFacts:
    return ForeignFacts(
        created=_time(found.get("created")),
        modified=_time(found.get("modified")),
        creator=short(found.get("creator"), "owner's name"),
        group=short(found.get("group"), "owner's group"),
        organization=tuple(filter(None, levels)),
        modifier=short(found.get("modifier"), "last modifier's name"),
        stage=short(found.get("stage"), "workflow stage"),
        version=count(found.get("version", ""), "the form version in metadata", 0) or None,
        content_type=short(found.get("content_type"), "content type"),
    )


def _time(said: str | None) -> Instant | None:
    return None if said is None else instants.from_datetime(instants.parse_time(said, "a time in metadata"))


def _local(name: str) -> str:
    return name.rpartition(SEPARATOR)[2]


def _shown(name: str) -> str:
    return name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}…"
