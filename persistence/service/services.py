"""The services that answer requests, wired to each other."""

from __future__ import annotations

from dataclasses import dataclass

from persistence.service.attachments import Attachments
from persistence.service.published_forms import PublishedForms
from persistence.service.publishing import Publishing
from persistence.service.reindexing import Reindexes
from persistence.service.resources import DefinitionResources, DocumentResources
from persistence.service.searching import Searching


@dataclass(frozen=True, slots=True)
class Services:
    """What answers requests."""

    definitions: DefinitionResources
    documents: DocumentResources
    publishing: Publishing
    attachments: Attachments
    forms: PublishedForms
    searching: Searching
    reindexing: Reindexes
