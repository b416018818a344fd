"""The definitions and documents of one form as an index needs them, and their rows in flat views.

Values that were extracted from a document while it was received are cached, so that it is not read again for the index.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import NamedTuple

import msgspec

from persistence.bounded_cache import BoundedCache
from persistence.catalog import Catalog, Definition, IndexKeys
from persistence.errors import BadRequestError, DamagedError, MalformedXmlError, disk_errors
from persistence.forms.controls import DESIGNER_KEYS, PATH_RULES
from persistence.forms.flat_tables import Cell, FlatNaming, FlatView, RowReader
from persistence.forms.form_data import ExtractedText, TextExtraction, ValueReader
from persistence.limits import (
    CHUNK,
    DEFINITIONS_KEPT,
    DEFINITIONS_KEPT_BYTES,
    LARGEST_HANDED,
    LARGEST_TREE,
    MOST_HANDED,
    MOST_HANDED_CHARACTERS,
    VALUE_COSTS,
)
from persistence.model.addresses import DATA_XML, DESIGNER_VERSION, Collection, DocumentAddress, Form
from persistence.model.queries import Hit, Hits
from persistence.model.sidecar import Sidecar
from persistence.model.versions import IndexKey
from persistence.storage.reader import StoreReader
from persistence.storage.storage import Readable
from persistence.storage.stored_revision import NOTHING_THERE, Fingerprint, HandEdits, Integrity, StoredRevision
from persistence.xml import Streaming, XmlCheck

_DESIGNER_FINGERPRINT = "designer"
_RULES = f"{PATH_RULES} "


class DocumentName(NamedTuple):
    """A document, or the draft of one."""

    document: str
    is_draft: bool


ReadAhead = Mapping[DocumentName, StoredRevision]
"""Documents and drafts that were read together, each with its content, open; deleted ones are not in it."""


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document or draft as an index reads it and finds it."""

    hit: Hit  # its saved owner, of a draft, decides who may read it; else the draft's own
    fingerprint: str  # computed from its files
    free_text: str = ""  # outside of its indexed controls; empty in a found one
    tokens: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tokens of the encrypted values of its indexed controls, by path; empty in a found one."""


class IndexedPage(NamedTuple):
    """The answer of an index: a total, the documents on the page, and whether there are more, as ``Hits`` has it."""

    total: int = 0
    documents: Sequence[IndexedDocument] = ()
    has_more: bool = False

    @property
    def hits(self) -> Hits:
        return Hits(self.total, tuple(each.hit for each in self.documents), self.has_more)


class ExtractionCache:
    """The values of documents that this process has received, by content id, and readers of values. For all threads."""

    def __init__(self) -> None:
        self.readers: BoundedCache[ValueReader] = BoundedCache(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)
        self.kept: OrderedDict[str, tuple[str, ExtractedText, int]] = OrderedDict()
        """By content id, the definition that was used, the values, and their size in characters."""
        self._size = 0
        self._lock = threading.Lock()

    def put(self, content: str, definition: str, extracted: ExtractedText) -> None:
        """Keep the values of a content, extracted by a definition; it need not be committed yet."""
        # Each value takes some memory besides its characters.
        texts = (each for of in (*extracted.values.values(), *extracted.tokens.values()) for each in of)
        size = len(extracted.rest) + sum(VALUE_COSTS + len(each) for each in texts)
        with self._lock:
            self.kept[content] = definition, extracted, size
            self._size += size
            while len(self.kept) > MOST_HANDED or self._size > MOST_HANDED_CHARACTERS:
                self._size -= self.kept.popitem(last=False)[1][2]

    def pop(self, content: str, definition: str) -> ExtractedText | None:
        """Return the values of a content, once; ``None`` where none are kept, or by another definition."""
        with self._lock:
            by, extracted, size = self.kept.pop(content, ("", None, 0))
            self._size -= size
        return extracted if by == definition else None


class CachingExtraction(TextExtraction):
    """Checks a document while it is received, and extracts its values by a definition for the cache."""

    def __init__(self, reader: ValueReader, definition: str, cache: ExtractionCache) -> None:
        super().__init__(reader)
        self._definition = definition
        self._cache = cache
        self._size = 0

    def feed(self, piece: bytes) -> None:
        """Parse the next piece. Nothing more is extracted from a large document."""
        super().feed(piece)
        self._size += len(piece)
        if self._size > LARGEST_HANDED:
            self.stop_extracting()

    def keep(self, content: str) -> None:
        if self._size <= LARGEST_HANDED:
            self._cache.put(content, self._definition, self.extracted())


class DefinitionState(Enum):
    """The state of a form version that matters to an index."""

    PUBLISHED = "published"
    DELETED = "deleted"
    UNKNOWN = "not published, or not to be read"


@dataclass(frozen=True, slots=True)
class IndexedDefinition:
    """A version of a form as an index needs it; ``fingerprint`` distinguishes it from every other state of it."""

    fingerprint: str
    state: DefinitionState
    keys: tuple[IndexKey, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(key.path for key in self.keys)


_DESIGNER = IndexedDefinition(_DESIGNER_FINGERPRINT, DefinitionState.PUBLISHED, DESIGNER_KEYS)
UNKNOWN = IndexedDefinition("", DefinitionState.UNKNOWN)  # The definition of a version of which nothing is known


class SourceDescription(msgspec.Struct, frozen=True):
    """A source by values, from which another process opens it too."""

    form: Form
    data_format: str  # that of the form's data
    is_designer: bool  # whether it is the designer's own storage
    naming: FlatNaming  # for its flat views
    definitions: str  # the root of the tree with its definitions
    hand_edits: HandEdits = HandEdits.XML  # distinguishes edits from damage, in whichever tree they are

    def opened(self, root: str) -> Source:
        integrity = Integrity(self.hand_edits)
        return Source(self, StoreReader(root, integrity), Catalog(StoreReader(self.definitions, integrity)))


@dataclass(frozen=True, slots=True)
class Source:
    """The stored state of one form. Raises ``DiskError``, and ``BusyError`` if writers were always in the way."""

    described: SourceDescription
    view: Readable  # of its data
    catalog: Catalog
    cache: ExtractionCache = field(default_factory=ExtractionCache)  # of documents that were received
    found: tuple[int, Fingerprint] | None = None  # a definition that the request found already, by its version

    @property
    def form(self) -> Form:
        return self.described.form

    @property
    def has_own_definitions(self) -> bool:
        """Return whether its definitions are known for good, or are where its data is."""
        return self.described.is_designer or self.catalog.storage is self.view

    def definition_fingerprint(self, version: int) -> str:
        if self.described.is_designer:
            return _DESIGNER_FINGERPRINT
        if self.found is not None and self.found[0] == version:
            return self._stated(self.found[1])
        return self._stated(self.catalog.of(self.described.form, version).fingerprint)

    def definition(self, version: int) -> IndexedDefinition:
        if self.described.is_designer:
            return _DESIGNER
        definition = self.catalog.of(self.form, version)
        return self._indexed(definition, definition.index_keys(self.described.data_format))

    def checking(self, definition: Definition) -> Streaming:
        """Return a parser that checks a document while it is received."""
        # It extracts the values by the definition, unless its keys would have to be read first: the updater reads them.
        if self.described.is_designer:
            return CachingExtraction(self._reader(definition.version, _DESIGNER), _DESIGNER_FINGERPRINT, self.cache)
        keys = definition.known_index_keys(self.described.data_format)
        if keys is None:
            return XmlCheck()
        indexed = self._indexed(definition, keys)
        return CachingExtraction(self._reader(definition.version, indexed), indexed.fingerprint, self.cache)

    def fingerprint(self, name: DocumentName) -> str:
        """Return the fingerprint of a document or draft; empty where nothing was ever stored."""
        # The fingerprint of a draft includes the saved document's, which decides who may read the draft.
        return self.fingerprints(name.document)[0] if name.is_draft else self._fingerprint(name)

    def fingerprints(self, document: str) -> tuple[str, str]:
        """Return the fingerprints of the draft and of the saved document; the draft is looked at first."""
        draft = self._fingerprint(DocumentName(document, is_draft=True))
        saved = self._fingerprint(DocumentName(document, is_draft=False))
        return (f"{draft} {saved}" if draft and saved else draft), saved

    def size(self, name: DocumentName) -> int:
        content = self.view.fingerprint(self._address(name))[1]
        return 0 if content is None else content[2]

    def read(
        self,
        name: DocumentName,
        fingerprint: str,
        definitions: Callable[[int], IndexedDefinition],
        ahead: ReadAhead | None = None,
    ) -> IndexedDocument | None:
        """Read a document by the definition of its version; ``None`` if there is none."""
        # ``fingerprint`` was taken before. Damage counts as nothing, also of a draft's saved document: searches go on,
        # and ``check`` reports it. A draft of a saved document has its version, which decides who may read it. What is
        # not in ``ahead`` is not there.
        if ahead is not None:
            found, beside = ahead.get(name), ahead.get(DocumentName(name.document, is_draft=False))
            saved = beside.sidecar if name.is_draft and beside is not None else None
            return None if found is None else self._indexed_document(name, fingerprint, found, saved, definitions)
        if not fingerprint:
            return None
        with suppress(DamagedError):
            for content in (False, True) if self.cache.kept else (True,):
                main = self._address(DocumentName(name.document, is_draft=False))
                saved = self.view.sidecar(main) if name.is_draft else None
                found = self.view.read(self._address(name), content=content)
                if found is None or found.sidecar.deleted:
                    return None
                saved = None if saved is None or saved.deleted else saved
                read = self._indexed_document(name, fingerprint, found, saved, definitions)
                if read is not None:
                    return read
        return None

    def version(self, document: str) -> int | None:
        """Return the version of a document, or of its draft where it was not saved; ``None`` where there is neither."""
        # A damaged one has none: ``check`` reports it.
        for is_draft in (False, True):
            with suppress(DamagedError):
                sidecar = self.view.sidecar(self._address(DocumentName(document, is_draft)))
                if sidecar is not None and not sidecar.deleted:
                    return sidecar.version
        return None

    def versions(self) -> Iterator[int]:
        return iter((DESIGNER_VERSION,)) if self.described.is_designer else self.catalog.storage.versions(self.form)

    def documents(self) -> Iterator[DocumentName]:
        """Yield every document that has a directory, and every draft."""
        # Drafts first: one that is saved meanwhile is then met in one of them, and not missed in both.
        for collection in (Collection.DRAFT, Collection.DATA):
            for document in self.view.documents(self.form, collection):
                yield DocumentName(document, collection is Collection.DRAFT)

    def _indexed_document(
        self,
        name: DocumentName,
        fingerprint: str,
        found: StoredRevision,
        saved: Sidecar | None,
        definitions: Callable[[int], IndexedDefinition],
    ) -> IndexedDocument | None:
        decides = saved or found.sidecar
        extracted = self._extracted(found, decides.version, definitions(decides.version))
        if extracted is None:
            return None
        hit = Hit(
            document=name.document,
            is_draft=name.is_draft,
            facts=msgspec.structs.replace(found.sidecar.facts, version=decides.version),
            values=extracted.values,
            saved_owner=decides.facts.owner if name.is_draft else None,
        )
        return IndexedDocument(hit, fingerprint, extracted.rest, extracted.tokens)

    def _extracted(self, found: StoredRevision, version: int, definition: IndexedDefinition) -> ExtractedText | None:
        with closing(found):
            if found.etag == found.sidecar.id:
                cached = self.cache.pop(found.etag, definition.fingerprint)
                if cached is not None:
                    return cached
            if found.file is None:
                return None
            with disk_errors("reading", self.form):
                try:
                    return self._reader(version, definition).read(iter(partial(found.file.read, CHUNK), b""))
                except MalformedXmlError:  # edited by hand: it is found by its sidecar
                    return ExtractedText({}, "")

    def _fingerprint(self, name: DocumentName) -> str:
        found = self.view.fingerprint(self._address(name))
        return "" if found == NOTHING_THERE else _text(found)

    def _address(self, name: DocumentName) -> DocumentAddress:
        return DocumentAddress(
            self.described.form, Collection.DRAFT if name.is_draft else Collection.DATA, name.document, DATA_XML
        )

    def _reader(self, version: int, definition: IndexedDefinition) -> ValueReader:
        key = (self.form, version, definition.fingerprint, definition.state)
        return self.cache.readers.get(key, lambda: ValueReader(definition.keys))

    def _indexed(self, definition: Definition, keys: IndexKeys) -> IndexedDefinition:
        state = DefinitionState.DELETED if keys.is_deleted else DefinitionState.UNKNOWN
        state = DefinitionState.PUBLISHED if keys.is_published else state
        return IndexedDefinition(self._stated(definition.fingerprint), state, keys.keys)

    def is_by_rules(self, fingerprint: str) -> bool:
        """Return whether the keys of a definition were read by the rules that hold now."""
        return self.described.is_designer or fingerprint.startswith(_RULES)

    def _stated(self, fingerprint: Fingerprint) -> str:
        return f"{_RULES}{self.described.data_format}{_text(fingerprint)}"


def _text(fingerprint: Fingerprint) -> str:
    return ";".join("" if part is None else f"{part[0]:x}.{part[1]:x}.{part[2]:x}" for part in fingerprint)


@dataclass(frozen=True, slots=True)
class DocumentRows:
    """The rows of a document by the name of the view; ``metadata`` are the values of ``METADATA_COLUMNS``."""

    version: int
    views: tuple[FlatView, ...]
    metadata: tuple[Cell, ...]
    rows: Mapping[str, list[tuple[Cell, ...]]]


def flat_definition(catalog: Catalog, form: Form, version: int) -> tuple[str, bytes] | None:
    """Return the entity tag and the content of a stored definition; ``None`` if it is deleted."""
    definition = catalog.of(form, version)
    found = definition.stored()
    if found is None or found.file is None:
        return None
    with found.file as file, disk_errors("reading", definition.address):
        return found.etag, file.read(LARGEST_TREE + 1)


def flat_rows(view: Readable, form: Form, readers: Mapping[int, RowReader], document: str) -> DocumentRows | None:
    """Return the rows of a saved document, by the readers of versions; ``None`` where there is none of these."""
    # A damaged document counts as none, and ``check`` reports it. One that cannot be parsed has no values. Raises
    # ``DiskError``, and ``BusyError`` where writers were always in the way.
    address = DocumentAddress(form, Collection.DATA, document)
    try:
        found = view.read(address, content=True)
    except DamagedError:
        return None
    if found is None or found.file is None:
        return None
    sidecar = found.sidecar
    with found.file as file, disk_errors("reading", address):
        reader = readers.get(sidecar.version)
        if reader is None:
            return None
        try:
            rows = reader.read(iter(partial(file.read, CHUNK), b""))
        except BadRequestError:  # edited by hand, or too large for tables
            rows = {each.name: [] for each in reader.views}
            rows[reader.views[0].name] = [(None,) * len(reader.views[0].columns)]
    metadata = document, sidecar.created, sidecar.modified, sidecar.modifier
    return DocumentRows(sidecar.version, reader.views, metadata, rows)
