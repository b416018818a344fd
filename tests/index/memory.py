"""A tree of one form in memory: an index is made from it as from files, and the oracle knows what is to be found."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import astuple

from persistence.forms.flat_tables import FlatNaming
from persistence.index.protocol import SEPARATOR, SearchIndex
from persistence.index.sources import (
    DefinitionState,
    DocumentName,
    IndexedDefinition,
    IndexedDocument,
    Source,
    SourceDescription,
)
from persistence.index.sync.rebuild import FlatViews
from persistence.index.sync.staleness import Journal
from persistence.index.sync.updater import TreeIndex
from persistence.model.addresses import Form
from persistence.model.permissions import User
from persistence.model.queries import Hit
from persistence.model.sidecar import DocumentFacts
from persistence.model.texts import OrderedType
from persistence.model.versions import IndexKey, PathStep
from persistence.storage.layout import JOURNAL, Layout
from tests.index.oracle import Oracle, Stored
from tests.opened import opened

FORM = Form("hr", "leave")

TYPES = {(1, "s/b"): OrderedType.DATE_TIME, (1, "s/r/c"): OrderedType.DECIMAL, (2, "s/r/c"): OrderedType.DATE}
"""Of controls that have one, by version and path."""


class Content(DocumentFacts, frozen=True):
    """What is saved of a document: who saved it when, and its values by path, whether they are indexed or not."""

    values: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    @property
    def facts(self) -> DocumentFacts:
        return DocumentFacts(*astuple(self)[:-1])


@dataclass
class Memory:
    """Does what ``Source`` does; who changes it tells the index of it by ``changed``."""

    form: Form = FORM
    has_own_definitions: bool = True

    def __post_init__(self) -> None:
        self.described = described(self.form, "")
        self._marks = count(1)
        self._documents: dict[tuple[str, bool], tuple[str, Content]] = {}
        self._definitions: dict[int, IndexedDefinition] = {}
        self._hidden: set[tuple[str, bool]] = set()

    # What changes it.

    def put(self, document: str, content: Content, *, is_draft: bool = False) -> None:
        """Save; whoever saves brings back what was not seen of a document."""
        self._documents[document, is_draft] = (f"m{next(self._marks)}", content)
        self._show(document)

    def delete(self, document: str, *, is_draft: bool = False) -> None:
        self._documents.pop((document, is_draft), None)
        self._show(document)

    def save(self, document: str, content: Content | None, *, is_draft: bool = False) -> None:
        if content is None:
            self.delete(document, is_draft=is_draft)
        else:
            self.put(document, content, is_draft=is_draft)

    def publish(self, version: int, paths: tuple[str, ...]) -> None:
        keys = tuple(IndexKey(path, (PathStep(path),), TYPES.get((version, path))) for path in paths)
        self._definitions[version] = IndexedDefinition(f"p{next(self._marks)}", DefinitionState.PUBLISHED, keys)
        self._hidden -= self._of(version)

    def unpublish(self, version: int) -> None:
        """Delete a definition: what is there of its documents is not seen any more (spec search 2.5)."""
        if version in self._definitions:
            if self._definitions[version].state is DefinitionState.PUBLISHED:
                self._hidden |= self._of(version)
            self._definitions[version] = IndexedDefinition(f"d{next(self._marks)}", DefinitionState.DELETED)

    def purge(self, version: int) -> None:
        """Remove a deleted definition without a trace."""
        del self._definitions[version]

    # What an index reads.

    def definition_fingerprint(self, version: int) -> str:
        return self.definition(version).fingerprint

    def is_by_rules(self, _fingerprint: str) -> bool:
        return True

    def definition(self, version: int) -> IndexedDefinition:
        return self._definitions.get(version) or IndexedDefinition("", DefinitionState.UNKNOWN)

    def fingerprints(self, document: str) -> tuple[str, str]:
        return self.fingerprint(DocumentName(document, True)), self.fingerprint(DocumentName(document, False))

    def fingerprint(self, name: DocumentName) -> str:
        found = self._documents.get(name)
        saved = self._documents.get((name.document, False), ("",))[0] if name.is_draft else ""
        return "" if found is None else found[0] + saved

    def size(self, name: DocumentName) -> int:
        found = self._documents.get(name)
        return 0 if found is None else sum(len(text) for texts in found[1].values.values() for text in texts)

    def read(
        self,
        name: DocumentName,
        fingerprint: str,
        definitions: Callable[[int], IndexedDefinition],
        _ahead: object = None,
    ) -> IndexedDocument | None:
        found = self._documents.get(name)
        if found is None:
            return None
        content = found[1]
        paths = definitions(content.version).paths
        rest = [text for path, texts in content.values.items() if path not in paths for text in texts]
        return IndexedDocument(self._hit(*name, paths), fingerprint, SEPARATOR.join(rest))

    def version(self, document: str) -> int | None:
        found = self._documents.get((document, False)) or self._documents.get((document, True))
        return None if found is None else found[1].version

    def versions(self) -> Iterator[int]:
        return iter(sorted(self._definitions, reverse=True))

    def documents(self) -> Iterator[DocumentName]:
        yield from (DocumentName(*name) for name in sorted(self._documents, key=lambda name: not name[1]))

    def _hit(self, document: str, is_draft: bool, paths: tuple[str, ...]) -> Hit:  # noqa: FBT001
        content = self._documents[document, is_draft][1]
        _, saved = self._documents.get((document, False)) or self._documents[document, True]
        return Hit(
            document=document,
            is_draft=is_draft,
            facts=content.facts,
            values={path: content.values[path] for path in paths if content.values.get(path)},
            saved_owner=User(saved.creator, saved.group, organization=saved.organization) if is_draft else None,
        )

    # What is right.

    def oracle(self) -> Oracle:
        return Oracle([self._stored(name, *name) for name in self._documents if name not in self._hidden])

    def _stored(self, name: tuple[str, bool], document: str, is_draft: bool) -> Stored:  # noqa: FBT001
        content = self._documents[name][1]
        definition = self.definition(content.version)
        hit = self._hit(document, is_draft, definition.paths)
        types = {key.path: key.type for key in definition.keys if key.type is not None}
        return Stored(hit, tuple(text for texts in content.values.values() for text in texts), types)

    def _of(self, version: int) -> set[tuple[str, bool]]:
        return {name for name, (_, content) in self._documents.items() if content.version == version}

    def _show(self, document: str) -> None:
        self._hidden -= {(document, True), (document, False)}


def described(form: Form, definitions: str) -> SourceDescription:
    naming = FlatNaming("svc_f_", 256, prefixes_in_main=False)
    return SourceDescription(form, "4.0.0", is_designer=False, naming=naming, definitions=definitions)


def source_in(root: Path, form: Form) -> Source:
    return described(form, str(root)).opened(str(root))


def index_of(root: Path, memory: Memory) -> tuple[TreeIndex, Journal]:
    """Return the index of what is in memory, its files below a root, and its journal."""
    journal = Journal(Layout(str(root)).own(JOURNAL))
    flat = FlatViews(str(root), partial(source_in, root))
    index = TreeIndex(str(root), journal, lambda _: memory, flat)  # type: ignore[arg-type, return-value]
    return opened(index), journal


class Indexed(Protocol):
    """An index of what is in memory, and changes of both."""

    memory: Memory
    index: SearchIndex

    def publish(self, version: int, paths: tuple[str, ...]) -> None:
        """Publish a version with these controls in the index."""

    def save(self, document: str, content: Content | None, *, is_draft: bool = False) -> None:
        """Save or delete."""


class IndexedTree:
    def __init__(self, root: Path) -> None:
        self.memory = Memory()
        self.index, self._journal = index_of(root, self.memory)

    def publish(self, version: int, paths: tuple[str, ...]) -> None:
        self.memory.publish(version, paths)

    def save(self, document: str, content: Content | None, *, is_draft: bool = False) -> None:
        self._journal.write(self.memory.form, document)
        self.memory.save(document, content, is_draft=is_draft)


@contextmanager
def indexed_tree() -> Iterator[IndexedTree]:
    """Nothing in memory, and its index in a directory of its own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield IndexedTree(Path(name))


def plain(hit: Hit) -> Hit:
    """A hit without the controls that have no value: whether these are named does not matter."""
    return replace(hit, values={path: texts for path, texts in hit.values.items() if texts})
