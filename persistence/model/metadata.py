"""What is kept of a form definition's metadata when it is published, so that nobody has to parse it again."""

from __future__ import annotations

from sys import getsizeof

import msgspec


class FormMetadata(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The parts of ``fr-form-metadata`` that the service acts on (spec crud 6.2, spec forms 6.2).

    ``titles`` holds the title of each language, in document order; the language is empty where none is given.
    ``permissions`` is the element as XML without namespaces, ``None`` where there is none: an empty element is not the
    same. ``singleton`` is ``None`` where the definition does not say. ``encrypts`` says that it marks something to be
    encrypted (spec forms 4.1): known still when the definition is deleted.
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
