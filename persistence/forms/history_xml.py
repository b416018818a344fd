"""The XML of revision histories: answers are written, and those of other services are read (spec crud 8.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import starmap, zip_longest
from xml.etree import ElementTree as ET

from persistence.forms.messages import attribute, element, read_children
from persistence.model.history import HistoryPage, ListedRevision


def write_history(page: HistoryPage, diffs: Iterable[str] = (), *, lists_restored: bool = False) -> bytes:
    """Write a page of a history. Unknown attributes are empty, those without a revision absent.

    ``diffs`` are the written differences of the first revisions, each to the one before it. With ``lists_restored`` a
    revision names the one that it restores.
    """
    address, asked = page.address, page.asked
    attributes = {
        "application-name": address.form.app,
        "form-name": address.form.name,
        "document-id": address.document,
        "total": str(page.total),
    }
    if page.newest is not None and page.oldest is not None:
        attributes |= {"min-last-modified-time": page.oldest, "max-last-modified-time": page.newest}
    attributes |= {"page-size": str(asked.size), "page-number": str(asked.number)}
    if page.revisions:
        first = page.revisions[0].sidecar
        attributes |= {
            "form-version": "" if first is None else str(first.version),
            "created-time": "" if first is None else first.created,
        }
    rows = zip_longest(page.revisions, diffs, fillvalue="")
    write = partial(write_revision, lists_restored=lists_restored)
    return element("documents", _written(attributes), "".join(starmap(write, rows))).encode()


def write_revision(revision: ListedRevision, content: str = "", *, lists_restored: bool = False) -> str:
    """Write one revision; ``content`` is XML."""
    sidecar = revision.sidecar
    if sidecar is None:
        known = {"modified-username": "", "owner-username": "", "owner-group": "", "deleted": "false"}
        return element("document", _written({"modified-time": revision.instant, **known, "damaged": "true"}), content)
    attributes = {
        "modified-time": revision.instant,
        "modified-username": sidecar.modifier or "",
        "owner-username": sidecar.creator or "",
        "owner-group": sidecar.group or "",
        "deleted": "true" if sidecar.deleted else "false",
    }
    if sidecar.stage is not None:
        attributes["stage"] = sidecar.stage
    if sidecar.restored is not None and lists_restored:
        attributes["restored-time"] = sidecar.restored
    return element("document", _written(attributes), content)


def _written(attributes: Mapping[str, str]) -> str:
    return "".join(attribute(name, value) for name, value in attributes.items())


@dataclass(frozen=True, slots=True)
class FoundHistory:
    """A page of another service: the attributes of the list, and those of each revision."""

    attributes: Mapping[str, str]
    revisions: list[Mapping[str, str]]


def read_history(pieces: Iterable[bytes]) -> FoundHistory:
    revisions: list[Mapping[str, str]] = []

    def take(document: ET.Element) -> None:
        if document.tag == "document":
            revisions.append(document.attrib)

    return FoundHistory(read_children(pieces, take).attrib, revisions)
