"""Making the index anew, and how far that is (spec search 5)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from persistence.forms.writing import attribute, element
from persistence.model.addresses import Form


class State(Enum):
    """What is being done, by its name in answers."""

    STOPPED = "stopped"
    INDEXING = "indexing"


@dataclass(frozen=True, slots=True)
class Status:
    """How far it is: with which document, of how many."""

    state: State = State.STOPPED
    current: int = 0
    total: int = 0

    def as_xml(self) -> bytes:
        """The answer to whoever asks."""
        said = attribute("state", self.state.value)
        if self.state is State.INDEXING:
            said += attribute("document-current", str(self.current)) + attribute("document-total", str(self.total))
        return element("status", said).encode()


class Reindexing(Protocol):
    """What makes the index anew. Each call ends when it is done; of two at once the second waits."""

    def all(self) -> None:
        """That of every form."""

    def version(self, form: Form, number: int) -> None:
        """That of one version of a form; where there is none, nothing is done."""

    def status(self) -> Status:
        """How far it is, whoever has begun it."""
