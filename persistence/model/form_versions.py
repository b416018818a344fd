"""A version of a form definition as the service keeps it: formats, metadata, publication, and the keys of its index."""

from __future__ import annotations

from dataclasses import dataclass
from sys import getsizeof

import msgspec

from persistence.model.addresses import Form
from persistence.model.instants import Instant
from persistence.model.permissions import Permissions

V4_0_0 = "4.0.0"
"""Only sections and repeats are elements; a repeated grid is one element for each iteration."""

V4_8_0 = "4.8.0"
"""A repeated grid is one element with its iterations inside."""

V2019_1_0 = "2019.1.0"
"""A plain grid is an element as well. Also known as the edge format."""

DATA_FORMATS = (V4_0_0, V4_8_0, V2019_1_0)
"""The data formats of form data and of the data inside a definition, oldest first (spec forms 1.2)."""


class FormMetadata(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The parts of ``fr-form-metadata`` that the service acts on (spec crud 6.2, spec forms 6.2).

    They are kept when a definition is published, so that it is not parsed again.

    ``titles`` holds the title of each language, in document order; the language is empty where none is given.
    ``permissions`` is the element as XML without namespaces, ``None`` where there is none: an empty element is not the
    same. ``singleton`` is ``None`` where the definition does not say. ``encrypts`` says that it has encrypted
    controls (spec forms 4.1): still known when the definition is deleted.
    """

    titles: dict[str, str] = {}
    available: bool = True
    singleton: bool | None = None
    permissions: str | None = None
    encrypts: bool = False

    @property
    def weight(self) -> int:
        """The bytes that the texts take in memory."""
        titles = sum(getsizeof(text) for title in self.titles.items() for text in title)
        return titles + getsizeof(self.permissions or "")


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A version that is published, or was until it was deleted.

    ``created`` is the first PUT of its ``form.xhtml`` and ``modified`` the last, by ``modifier`` where that is known.
    ``permissions`` are parsed from the element in its metadata, ``None`` where it has none. ``weight`` is how many
    bytes the texts of the metadata take in memory.
    """

    form: Form
    version: int
    created: Instant
    modified: Instant
    modifier: str | None
    metadata: FormMetadata
    permissions: Permissions | None
    deleted: bool = False
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PathStep:
    """An element on the way to a value: its local name, its namespace and, if one is given, its ``id``.

    An empty ``name`` stands for any element.
    """

    name: str
    namespace: str = ""
    id: str | None = None


@dataclass(frozen=True, slots=True)
class IndexKey:
    """An indexed control (spec search 2.2 to 2.4).

    ``path`` is exactly as requests send it, and ``steps`` lead from the root element of the data to the values.
    """

    path: str
    steps: tuple[PathStep, ...]
