"""Answers with lists: found documents, values, forms, histories and differences (spec search 1, 3, 4; crud 8.1).

Each is a value that is written as XML or as JSON. The JSON has the names of the XML, a list for several elements, and
leaves out what is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from xml.etree import ElementTree as ET

import msgspec

from persistence.forms.diffs import ComparedRevisions, DiffsWriter
from persistence.forms.messages import Fact, attribute, attributes_of, element, text
from persistence.limits import MOST_WRITTEN_LIST
from persistence.model.permissions import GrantCondition, Operations, Permission, in_order
from persistence.model.queries import Field, Hit, Hits
from persistence.model.sidecar import HistoryPage, ListedRevision
from persistence.model.texts import shortest
from persistence.model.versions import PublishedVersion

_TOTAL = "search-total"


def _known(facts: Mapping[str, Fact]) -> dict[str, object]:
    return {name: fact for name, fact in facts.items() if fact not in (None, "")}


def _json_list(facts: Mapping[str, Fact], name: str, listed: Iterable[object]) -> Iterator[bytes]:
    yield msgspec.json.encode({**_known(facts), name: []})[:-2]
    for number, each in enumerate(listed):
        yield (b"," if number else b"") + msgspec.json.encode(each)
    yield b"]}"


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """A page of documents, with their values at each of the ``paths``."""

    hits: Hits
    paths: Sequence[str]
    operations_of: Callable[[Hit], Operations]

    def xml(self) -> Iterator[bytes]:
        """Yield a piece for each value: a path may be requested many times."""
        total = f' {_TOTAL}="{self.hits.total}"'
        if not self.hits.page:
            yield element("documents", total).encode()
            return
        yield f"<documents{total}>".encode()
        for hit in self.hits.page:
            attributes = attributes_of(self._facts(hit))
            if not self.paths:
                yield element("document", attributes, element("details")).encode()
                continue
            yield f"<document{attributes}><details>".encode()
            for path in self.paths:
                yield element("detail", attributes_of({"path": path}), text(_value(hit, path))).encode()
            yield b"</details></document>"
        yield b"</documents>"

    def json(self) -> Iterator[bytes]:
        documents = (
            {**_known(self._facts(hit)), "details": {path: _value(hit, path) for path in self.paths}}
            for hit in self.hits.page
        )
        return _json_list({_TOTAL: self.hits.total}, "documents", documents)

    def _facts(self, hit: Hit) -> dict[str, Fact]:
        facts: dict[str, Fact] = {}
        if hit.form is not None:
            facts = {"app": hit.form.app, "form": hit.form.name, "form-version": hit.facts.version or None}
        return {
            **facts,
            "created": hit.facts.created,
            "last-modified": hit.facts.modified,
            "created-by": hit.facts.creator,
            "created-by-groupname": hit.facts.group,
            "last-modified-by": hit.facts.modifier,
            "workflow-stage": hit.facts.stage,
            "name": hit.document,
            "draft": hit.is_draft,
            "operations": self.operations_of(hit).text.split(),
        }


def _value(hit: Hit, path: str) -> str:
    """Return the values joined: another service has them so."""
    return ", ".join(hit.values.get(path, ()))


@dataclass(frozen=True, slots=True)
class DistinctAnswer:
    """The values of each control or field."""

    found: Iterable[tuple[Field | str, Iterable[str]]]

    def xml(self) -> Iterator[bytes]:
        is_empty = True
        for by, values in self.found:
            if is_empty:
                yield b"<distinct-values>"
                is_empty = False
            yield f"<query{attributes_of(_of(by))}>".encode()
            for value in values:
                yield element("value", content=text(value)).encode()
            yield b"</query>"
        yield b"<distinct-values/>" if is_empty else b"</distinct-values>"

    def json(self) -> Iterator[bytes]:
        return _json_list({}, "query", ({**_of(by), "values": tuple(values)} for by, values in self.found))


def _of(by: Field | str) -> dict[str, str]:
    return {"metadata": by.value} if isinstance(by, Field) else {"path": by}


class WrittenForms:
    """Caches the XML of versions, as far as it does not depend on the caller."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[PublishedVersion, bytes]] = {}
        self._kept = 0

    def of(self, published: PublishedVersion) -> bytes:
        known = self._known
        kept = known.get(id(published))
        # A value that is kept is alive, so that no other can have its id.
        if kept is None:
            kept = published, "".join(_children(published)).encode() + b"</form>"
            if self._kept + len(kept[1]) > MOST_WRITTEN_LIST:
                known.clear()
                self._kept = 0
            known[id(published)] = kept
            self._kept += len(kept[1])
        return kept[1]


@dataclass(frozen=True, slots=True)
class FormListAnswer:
    """A page of a list, each version with the words for the caller's operations; ``total`` counts all pages."""

    total: int
    listed: Sequence[tuple[PublishedVersion, Sequence[str]]]
    written: WrittenForms

    def xml(self) -> Iterable[bytes]:
        pieces = [b'<forms search-total="%d">' % self.total]
        for published, operations in self.listed:
            pieces += (b'<form operations="', " ".join(operations).encode(), b'">', self.written.of(published))
        pieces.append(b"</forms>")
        return [b"".join(pieces)]

    def json(self) -> Iterator[bytes]:
        return _json_list({_TOTAL: self.total}, "forms", (_object(*each) for each in self.listed))


def _object(published: PublishedVersion, operations: Sequence[str]) -> dict[str, object]:
    metadata, permissions = published.metadata, published.permissions
    own = {} if permissions is None else {"permissions": list(map(_permission, permissions))}
    facts = {"operations": operations, **_known(_facts(published))}
    return {**facts, "title": metadata.titles, "available": metadata.available, **own}


def _facts(published: PublishedVersion) -> dict[str, Fact]:
    return {
        "application-name": published.form.app,
        "form-name": published.form.name,
        "form-version": published.version,
        "last-modified-time": shortest(published.modified),
        "last-modified-by": published.modifier,
        "created": shortest(published.created),
    }


def _children(published: PublishedVersion) -> Iterator[str]:
    for name, fact in _facts(published).items():
        if fact is not None:
            yield element(name, content=text(str(fact)))
    metadata = published.metadata
    for language, title in metadata.titles.items():
        yield element("title", attribute("xml:lang", language) if language else "", text(title))
    yield f"<available>{'true' if metadata.available else 'false'}</available>"
    if metadata.permissions is not None:
        permissions = metadata.permissions
        if "<?" in permissions or "<!" in permissions:
            root = ET.fromstring(permissions)  # noqa: S314 - it was parsed when it was read
            permissions = ET.tostring(root, encoding="unicode")
        yield permissions


def _permission(permission: Permission) -> dict[str, object]:
    conditions = [
        {"name": each.value or "unknown"}
        if isinstance(each, GrantCondition)
        else {"name": "user-role", "any-of": sorted(each.any_of)}
        for each in permission.conditions
    ]
    return {"operations": in_order(permission.operations).allowed, "conditions": conditions}


@dataclass(frozen=True, slots=True)
class HistoryAnswer:
    """A page of a history; of its first revisions the differences to the one before, if they are asked for."""

    page: HistoryPage
    compared: Iterable[ComparedRevisions]
    writer: DiffsWriter
    lists_restored: bool = False  # a revision names the one that it restores

    def xml(self) -> Iterable[bytes]:
        """Return the whole, so that an error has a status. What is not known of a revision is empty."""
        written = chain(map(self.writer.xml, self.compared), repeat(""))
        documents = [
            element("document", attributes_of(self._of(revision)), diffs)
            for revision, diffs in zip(self.page.revisions, written, strict=False)
        ]
        return [element("documents", attributes_of(self._facts()), "".join(documents)).encode()]

    def json(self) -> Iterable[bytes]:
        written = chain(({"diffs": msgspec.Raw(self.writer.json(each).encode())} for each in self.compared), repeat({}))
        documents = (
            {**_known(self._of(revision)), **diffs}
            for revision, diffs in zip(self.page.revisions, written, strict=False)
        )
        return [b"".join(_json_list(self._facts(), "documents", documents))]

    def _facts(self) -> dict[str, Fact]:
        page = self.page
        first = page.revisions[0].sidecar if page.revisions else None
        unknown = "" if page.revisions else None
        return {
            "application-name": page.address.form.app,
            "form-name": page.address.form.name,
            "document-id": page.address.document,
            "total": page.total,
            "min-last-modified-time": page.oldest,
            "max-last-modified-time": page.newest,
            "page-size": page.asked.size,
            "page-number": page.asked.number,
            "form-version": unknown if first is None else first.version,
            "created-time": unknown if first is None else first.created,
        }

    def _of(self, revision: ListedRevision) -> dict[str, Fact]:
        sidecar = revision.sidecar
        return {
            "modified-time": revision.instant,
            "modified-username": (sidecar and sidecar.modifier) or "",
            "owner-username": (sidecar and sidecar.creator) or "",
            "owner-group": (sidecar and sidecar.group) or "",
            "deleted": sidecar is not None and sidecar.deleted,
            "damaged": True if sidecar is None else None,
            "stage": None if sidecar is None else sidecar.stage,
            "restored-time": sidecar.restored if sidecar is not None and self.lists_restored else None,
        }


@dataclass(frozen=True, slots=True)
class DiffsAnswer:
    """The differences between two revisions."""

    compared: ComparedRevisions
    writer: DiffsWriter

    def xml(self) -> Iterable[bytes]:
        return [self.writer.xml(self.compared).encode()]

    def json(self) -> Iterable[bytes]:
        return [self.writer.json(self.compared).encode()]
