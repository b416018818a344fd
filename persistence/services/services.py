"""The services that answer requests, wired to each other."""

from __future__ import annotations

from dataclasses import dataclass

from persistence.index.protocol import Reindexer
from persistence.services.attachments import Attachments
from persistence.services.published_forms import PublishedForms
from persistence.services.publishing import Publishing
from persistence.services.resources import DefinitionResources, DocumentResources
from persistence.services.searching import Searching


@dataclass(frozen=True, slots=True)
class Services:
    """What answers requests."""

    definitions: DefinitionResources
    documents: DocumentResources
    publishing: Publishing
    attachments: Attachments
    forms: PublishedForms
    searching: Searching
    reindexing: Reindexer
