"""What a face does with resources, whichever rules hold there: those of a proxy, or those of a provider behind one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from persistence.model.addresses import DocumentAddress, Form
from persistence.services.requests import Delete, Get, Put
from persistence.services.results import Cleared, Read, Removed, Written


class DefinitionResources(Protocol):
    """Files of form definitions. Methods raise the domain errors of ``persistence.errors``."""

    def read(self, form: Form, name: str, get: Get) -> Read:
        """One file of a version, its content open if asked for."""

    def write(self, form: Form, name: str, put: Put, chunks: Iterable[bytes]) -> Written:
        """Store one file."""

    def delete(self, form: Form, name: str, delete: Delete) -> Removed:
        """Leave a tombstone of one file."""


class DocumentResources(Protocol):
    """Files of documents and drafts. Methods raise the domain errors of ``persistence.errors``."""

    def read(self, address: DocumentAddress, get: Get) -> Read:
        """A revision, its content open if asked for."""

    def write(self, address: DocumentAddress, put: Put, chunks: Iterable[bytes]) -> Written:
        """Store a revision."""

    def delete(self, address: DocumentAddress, delete: Delete) -> Removed:
        """Leave a tombstone; of a draft, nothing."""

    def delete_all(self, form: Form, delete: Delete) -> Cleared:
        """Delete all data of a form that the user may delete."""
