"""What the service reads from a form definition while it streams in (spec crud 4.12, spec forms 6.2)."""

from __future__ import annotations

from persistence.forms.streaming import SEPARATOR, Streaming

XFORMS = "http://www.w3.org/2002/xforms"
_INSTANCE = f"{XFORMS}{SEPARATOR}instance"
_METADATA_ID = "fr-form-metadata"
_SINGLETON = ["metadata", "singleton"]


class DefinitionReader(Streaming):
    """Checks a definition and finds, below its metadata instance, whether the form is a singleton."""

    def __init__(self) -> None:
        super().__init__()
        self.parser.CharacterDataHandler = self._text
        self._said: str | None = None
        self._path: list[str] | None = None

    @property
    def is_singleton(self) -> bool | None:
        """What ``<singleton>`` says; ``None`` where the definition does not say."""
        return None if self._said is None else self._said.strip() == "true"

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Follow the path below the metadata instance."""
        super().start(name, attributes)
        if self._path is not None:
            self._path.append(name)
            if self._path == _SINGLETON:
                self._said = ""
        elif name == _INSTANCE and attributes.get("id") == _METADATA_ID:
            self._path = []

    def end(self, name: str) -> None:
        """Step back on that path, or leave it."""
        super().end(name)
        if self._path:
            self._path.pop()
        else:
            self._path = None

    def _text(self, text: str) -> None:
        if self._path == _SINGLETON and self._said is not None:
            self._said += text
