"""Values that a client reads in answers, with the instants, versions, users and forms of the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import httpx

from persistence.client.refusals import whole_number
from persistence.dialect import Dialect
from persistence.errors import RemoteError
from persistence.model.addresses import DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.users import User


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """Facts in the headers of an answer about a revision; an empty ``etag`` is that of a draft that is gone."""

    etag: str
    version: int
    modified: Instant
    operations: frozenset[str]

    @classmethod
    def of(cls, headers: httpx.Headers, dialect: Dialect) -> Self:
        """Raise ``RemoteError`` where there is no version: another kind of service has answered."""
        version = whole_number(headers.get(dialect.header("Form-Definition-Version"), ""))
        if version is None:
            raise RemoteError(
                f"the answer names no form definition version: is it a service of dialect {dialect.name}?"
            )
        return cls(
            etag=headers.get("ETag", ""),
            version=version,
            modified=Instant(headers.get(dialect.header("Last-Modified"), "")),
            operations=frozenset(headers.get(dialect.header("Operations"), "").split()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDocument:
    """A document as it was saved, loaded or brought back. With it, a save is refused if somebody else has saved since.

    ``address`` says whether it is a draft. ``etag`` and ``modified`` are those of the revision. ``operations`` are the
    words of what the caller may do, ``*`` for everything. ``is_new`` says that it was created. ``notice`` is a line
    about attachments that did not come back.
    """

    address: DocumentAddress
    etag: str
    version: int
    modified: Instant
    operations: frozenset[str] = frozenset()
    is_new: bool = False
    notice: str | None = None

    @property
    def document(self) -> str:
        """The id of the document."""
        return self.address.document


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDocument(SavedDocument):
    """A document with its content ``xml``, in the encoding that it declares (UTF-8 if none).

    ``stage`` and ``is_valid`` are ``None`` where the revision was saved without; ``modifier`` has saved it.
    """

    xml: bytes
    created: Instant
    owner: User
    modifier: str | None
    stage: str | None
    is_valid: bool | None


def loaded(address: DocumentAddress, headers: httpx.Headers, xml: bytes, dialect: Dialect) -> LoadedDocument:
    """Read the answer to a GET of form data."""
    facts, own = AnswerFacts.of(headers, dialect), dialect.header
    valid = headers.get(own("Valid"))
    return LoadedDocument(
        address=address,
        etag=facts.etag,
        version=facts.version,
        modified=facts.modified,
        operations=facts.operations,
        xml=xml,
        created=Instant(headers.get(own("Created"), "")),
        owner=User(
            name=headers.get(own("Username")),
            group=headers.get(own("Group")),
            organization=tuple(headers.get_list(own("Organization"))),
        ),
        modifier=headers.get(own("Last-Modified-By-Username")),
        stage=headers.get(own("Workflow-Stage")),
        is_valid=None if valid is None else valid == "true",
    )


@dataclass(frozen=True, slots=True)
class SavedAttachment:
    """An attachment that was stored. ``path`` is what the data of the document says to name it."""

    address: DocumentAddress
    path: str
    etag: str
    version: int
    is_encrypted: bool


@dataclass(frozen=True, slots=True)
class LoadedDefinition:
    """A published definition: ``xhtml`` is ``form.xhtml`` as it was answered."""

    form: Form
    version: int
    etag: str
    xhtml: bytes
    modified: Instant
    created: Instant
    modifier: str | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A found document. ``values`` has the text at each path that was asked for; several values are joined by ``, ``.

    What is not known is ``None``. ``operations`` are the words of what the caller may do, ``*`` for everything.
    """

    document: str
    is_draft: bool
    created: Instant
    modified: Instant
    creator: str | None
    group: str | None
    modifier: str | None
    stage: str | None
    operations: frozenset[str]
    values: dict[str, str]


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A revision in a history. ``modified`` names it: ``load`` and ``revert`` take it as ``revision``.

    Of one that ``is_damaged`` only the time is known. ``restored`` is the revision that it has brought back.
    """

    modified: Instant
    modifier: str | None
    owner: str | None
    group: str | None
    is_deleted: bool
    is_damaged: bool
    stage: str | None
    restored: Instant | None


@dataclass(frozen=True, slots=True)
class DeletedData:
    """The result of deleting all data of a form: how many documents were ``deleted``, and how many ``refused``.

    The user may not delete the refused ones.
    """

    deleted: int
    refused: int


@dataclass(frozen=True, slots=True)
class ServiceHealth:
    """The health of a service: whether its process ``is_alive``, and ``is_ready`` to store.

    ``cause`` is why not, or what is wrong with a service that is ready nevertheless.
    """

    is_alive: bool
    is_ready: bool
    cause: str = ""
