"""What the service reads from a form definition while it streams in (spec crud 4.12, spec forms 6.2)."""

from __future__ import annotations

from persistence.forms.wellformed import Counter, WellFormedness

XFORMS = "http://www.w3.org/2002/xforms"
_INSTANCE = f"{{{XFORMS}}}instance"
_METADATA_ID = "fr-form-metadata"
_SINGLETON = ["metadata", "singleton"]


class DefinitionReader(WellFormedness):
    """Checks a definition and finds, in its metadata, whether the form is a singleton."""

    def __init__(self) -> None:
        self._metadata = _Metadata()
        super().__init__(self._metadata)

    @property
    def is_singleton(self) -> bool | None:
        """What ``<singleton>`` says; ``None`` where the definition does not say."""
        text = self._metadata.singleton
        return None if text is None else text.strip() == "true"


class _Metadata(Counter):
    """Follows the path below the metadata instance; everything else is only counted."""

    def __init__(self) -> None:
        super().__init__()
        self.singleton: str | None = None
        self._path: list[str] | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        super().start(tag, attributes)
        if self._path is not None:
            self._path.append(tag)
            if self._path == _SINGLETON:
                self.singleton = ""
        elif tag == _INSTANCE and attributes.get("id") == _METADATA_ID:
            self._path = []

    def end(self, tag: str) -> None:
        super().end(tag)
        if self._path:
            self._path.pop()
        else:
            self._path = None

    def data(self, text: str) -> None:
        if self._path == _SINGLETON and self.singleton is not None:
            self.singleton += text
