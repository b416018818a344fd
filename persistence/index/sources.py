"""What an index is made from: the definitions and documents of one form, read from the tree."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from persistence.errors import BadRequestError, DamagedError, MalformedXmlError, disk_errors
from persistence.forms.index_keys import DESIGNER_KEYS, read_index_keys
from persistence.forms.values import Extracted, ValueReader
from persistence.index.handing import Handed, Handing
from persistence.index.records import Owner, Record
from persistence.limits import LARGEST_TREE
from persistence.model.addresses import (
    DATA_XML,
    DESIGNER_VERSION,
    FORM_XHTML,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.form_versions import IndexKey
from persistence.storage.integrity import HandEdits
from persistence.storage.storage import Readable
from persistence.storage.stored_revision import NOTHING_THERE, Fingerprint, StoredRevision
from persistence.xml.streaming import Streaming

_CHUNK = 1 << 18
_VERSIONS = 64
"""Versions of a form of which the definition by which documents were last taken in is remembered."""

_DESIGNER_MARK = "designer"
_NOTHING = Extracted({}, "")


class State(Enum):
    """Whether a version of a form is published."""

    PUBLISHED = "published"
    DELETED = "deleted"
    UNKNOWN = "not published, or not to be read"


@dataclass(frozen=True, slots=True)
class Definition:
    """A version of a form as an index needs it; ``mark`` tells it from every other state of it."""

    mark: str
    state: State
    keys: tuple[IndexKey, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the indexed controls, in the order of the index."""
        return tuple(key.path for key in self.keys)


UNKNOWN = Definition("", State.UNKNOWN)
"""That of a version of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The definitions of forms whose data is in a tree, and which are in others.

    ``root`` is that of the tree that has the definition of a form, empty where it is the same; ``forms`` are those of
    which it is another. ``hand_edits`` tells edits from damage, in whichever tree they are.
    """

    root: Callable[[Form], str]
    forms: Callable[[], Iterable[Form]]
    hand_edits: HandEdits = HandEdits.XML


NOTHING_ELSEWHERE = Elsewhere(lambda _: "", tuple)
"""That of a tree that has the definitions of all its data."""


class Source:
    """The tree of one form. Methods raise ``DiskError``, and ``BusyError`` where writers were always in the way.

    ``data_format`` is that of its data, and ``is_designer`` says whether it is the designer's own storage. What was
    read of documents already is in ``handed``.
    """

    def __init__(
        self,
        view: Readable,
        form: Form,
        data_format: str,
        *,
        is_designer: bool,
        handed: Handed | None = None,
    ) -> None:
        self.form = form
        self.data_format = data_format
        self.is_designer = is_designer
        self._view = view
        self._handed = handed
        self._read = handed or Handed()
        self._last: dict[int, str] = {}

    def definition_mark(self, version: int) -> str:
        """What tells the state of a definition; cheaper than reading it."""
        if self.is_designer:
            return _DESIGNER_MARK
        return self.data_format + _text(self._view.fingerprint(DefinitionAddress(self.form, version, FORM_XHTML)))

    def definition(self, version: int) -> Definition:
        """The definition of a version."""
        mark = self.definition_mark(version)
        if len(self._last) < _VERSIONS or version in self._last:
            self._last[version] = mark
        return self._read.definitions.of((self.form, version, mark), lambda: self._read_definition(version, mark))

    def checking(self, version: int) -> Streaming:
        """What checks a document of a version while it is received; it reads it too, where the keys are known.

        They are those by which documents were last taken in. If they have changed since, what was read is not used.
        """
        mark = self._last.get(version)
        if self._handed is None or mark is None:
            return Streaming()
        last = self._read.definitions.known((self.form, version, mark))
        if last is None or last.state is not State.PUBLISHED:
            return Streaming()
        return Handing(self._reader(version, last), mark, self._handed)

    def mark(self, document: str, *, is_draft: bool) -> str:
        """The mark of the state of a document; empty where nothing was ever stored.

        That of a draft tells the state of the saved document too, which decides who may read the draft.
        """
        mark = self._view.fingerprint(self._address(document, is_draft=is_draft))
        if mark == NOTHING_THERE:
            return ""
        saved = self._view.fingerprint(self._address(document, is_draft=False)) if is_draft else NOTHING_THERE
        return _text(mark) if saved == NOTHING_THERE else f"{_text(mark)} {_text(saved)}"

    def size(self, document: str, *, is_draft: bool) -> int:
        """The bytes of a document; 0 where there is none."""
        content = self._view.fingerprint(self._address(document, is_draft=is_draft))[1]
        return 0 if content is None else content[2]

    def read(
        self, document: str, *, is_draft: bool, mark: str, definitions: Callable[[int], Definition]
    ) -> Record | None:
        """A document by the definition of its version, with the mark that was taken before; ``None`` if there is none.

        One that is damaged counts as none: searches go on, and ``check`` tells of it. So does a draft whose saved
        document is damaged. A draft of a saved document is one of the version of that, which decides who may read it.
        """
        if not mark:
            return None
        try:
            saved = self._view.sidecar(self._address(document, is_draft=False)) if is_draft else None
            found = self._view.read(self._address(document, is_draft=is_draft), content=True)
        except DamagedError:
            return None
        if found is None or found.file is None:
            return None
        sidecar = found.sidecar
        decides = sidecar if saved is None or saved.deleted else saved
        extracted = self._extracted(found, decides.version, definitions(decides.version))
        return Record(
            document=document,
            is_draft=is_draft,
            version=decides.version,
            mark=mark,
            created=sidecar.created,
            modified=sidecar.modified,
            creator=sidecar.creator,
            group=sidecar.group,
            organization=sidecar.organization,
            modifier=sidecar.modifier,
            stage=sidecar.stage,
            values=extracted.values,
            rest=extracted.rest,
            reader=Owner(decides.creator, decides.group, decides.organization) if is_draft else None,
        )

    def versions(self) -> Iterator[int]:
        """The versions that have a definition, or had one."""
        return iter((DESIGNER_VERSION,)) if self.is_designer else self._view.versions(self.form)

    def documents(self) -> Iterator[tuple[str, bool]]:
        """Every document that has a directory, and every draft, each with whether it is a draft.

        Drafts first: one that is saved meanwhile is then met in one of them, and not missed in both.
        """
        for collection in (Collection.DRAFT, Collection.DATA):
            for document in self._view.documents(self.form, collection):
                yield document, collection is Collection.DRAFT

    def _extracted(self, found: StoredRevision, version: int, definition: Definition) -> Extracted:
        with found.opened as file, disk_errors("reading", self.form):
            if self._handed is not None and found.etag == found.sidecar.id:
                handed = self._handed.take(found.etag, definition.mark)
                if handed is not None:
                    return handed
            try:
                return self._reader(version, definition).read(iter(partial(os.read, file.fileno(), _CHUNK), b""))
            except MalformedXmlError:  # edited by hand: it is found by what its sidecar says
                return _NOTHING

    def _address(self, document: str, *, is_draft: bool) -> DocumentAddress:
        return DocumentAddress(self.form, Collection.DRAFT if is_draft else Collection.DATA, document, DATA_XML)

    def _reader(self, version: int, definition: Definition) -> ValueReader:
        key = (self.form, version, definition.mark, definition.state)
        return self._read.readers.of(key, lambda: ValueReader(definition.keys))

    def _read_definition(self, version: int, mark: str) -> Definition:
        if self.is_designer:
            return Definition(mark, State.PUBLISHED, DESIGNER_KEYS)
        address = DefinitionAddress(self.form, version, FORM_XHTML)
        try:
            found = self._view.read(address, content=True)
            if found is None or found.file is None:
                return Definition(mark, State.UNKNOWN if found is None else State.DELETED)
            with found.file as file, disk_errors(f"reading {address}"):
                return Definition(mark, State.PUBLISHED, read_index_keys(file.read(LARGEST_TREE + 1), self.data_format))
        except (DamagedError, BadRequestError):
            return Definition(mark, State.UNKNOWN)


def _text(mark: Fingerprint) -> str:
    return ";".join("" if part is None else f"{part[0]:x}.{part[1]:x}.{part[2]:x}" for part in mark)
