"""Addresses: the resource that a request or the text of an element names (spec seed, rule 4; spec forms 6.7)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from urllib.parse import quote, unquote

from persistence.limits import LONGEST_PATH

SERVICE_PREFIX = "/fr/service"
"""The path of all services of the form runtime."""
PUBLIC_PREFIX = f"{SERVICE_PREFIX}/persistence"
"""The path of the interface that reads and writes forms."""

_CRUD = f"{PUBLIC_PREFIX}/crud/"
DATA_XML = "data.xml"
FORM_XHTML = "form.xhtml"
DESIGNER_FORM = "builder"
LIBRARY_FORM = "library"
"""The form that holds the section templates of an application."""

DESIGNER_VERSION = 1
"""The only version of the designer's own data (seed, Versioning 5)."""


class Collection(Enum):
    """The two collections of form data: saved data, and drafts written by autosave."""

    DATA = "data"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True)
class Form:
    """A form: application name and form name."""

    app: str
    name: str

    def __str__(self) -> str:
        return f"{self.app}/{self.name}"


@dataclass(frozen=True, slots=True)
class DefinitionAddress:
    """One file of one version of a form definition: with ``is_main`` the definition itself, else an attachment."""

    form: Form
    version: int
    name: str
    is_main: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_main", self.name == FORM_XHTML)

    @property
    def main(self) -> DefinitionAddress:
        """The ``form.xhtml`` of the same version."""
        return self if self.is_main else replace(self, name=FORM_XHTML)

    @property
    def keeps_history(self) -> bool:
        """Return True: published definitions are journaled (spec crud 4.4)."""
        return True

    @property
    def scope(self) -> tuple[str, ...]:
        """The unit that a writer locks: all versions of the form, because ``next`` depends on all of them."""
        return (self.form.app, self.form.name, "form")

    def __str__(self) -> str:
        return f"{self.form}/form/{self.name} version {self.version}"


@dataclass(frozen=True, slots=True)
class DocumentAddress:
    """One file of a document, saved or draft: with ``is_main`` the form data itself, else an attachment."""

    form: Form
    collection: Collection
    document: str
    name: str
    is_main: bool = field(init=False, repr=False, compare=False)
    is_draft: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_main", self.name == DATA_XML)
        object.__setattr__(self, "is_draft", self.collection is Collection.DRAFT)

    @property
    def main(self) -> DocumentAddress:
        """The ``data.xml`` of the same document in the same collection."""
        return self if self.is_main else replace(self, name=DATA_XML)

    @property
    def keeps_history(self) -> bool:
        """Return whether old revisions are kept: a draft has one only, and leaves no trace (spec crud 4.11)."""
        return not self.is_draft

    @property
    def scope(self) -> tuple[str, ...]:
        """The unit that a writer locks: the document with its draft, because saving one removes the other."""
        return (self.form.app, self.form.name, "data", self.document)

    def moved(self, collection: Collection, name: str | None = None) -> DocumentAddress:
        """Return the same document in another collection, under the same or another file name."""
        return replace(self, collection=collection, name=name or self.name)

    def __str__(self) -> str:
        return f"{self.form}/{self.collection.value}/{self.document}/{self.name}"


Address = DefinitionAddress | DocumentAddress


@dataclass(frozen=True, slots=True)
class AttachmentRef:
    """The attachment that a holder path names: of a document, or without ``collection`` of any version of a form."""

    form: Form
    collection: Collection | None
    document: str
    name: str


def parse_holder_path(text: str) -> AttachmentRef | None:
    """Read the text of an element; return ``None`` where it is not the path of an attachment."""
    path = text.strip()
    if not path.startswith(_CRUD) or len(path) > LONGEST_PATH:
        return None
    try:
        parts = [unquote(part, errors="strict") for part in path[len(_CRUD) :].partition("?")[0].split("/")]
    except UnicodeDecodeError:  # no resource is called so
        return None
    if parts[-1] in ("", DATA_XML, FORM_XHTML):
        return None
    match parts:
        case [app, form, "form", name]:
            return AttachmentRef(Form(app, form), None, "", name)
        case [app, form, "data" | "draft" as collection, document, name]:
            return AttachmentRef(Form(app, form), Collection(collection), document, name)
    return None


def definition_holder_path(form: Form, name: str) -> str:
    """Return the path by which data names an attachment of a form definition."""
    app, form_name, file = (quote(part, safe="") for part in (form.app, form.name, name))
    return f"{_CRUD}{app}/{form_name}/form/{file}"


def document_holder_path(address: DocumentAddress) -> str:
    """Return the path by which data names an attachment of a document."""
    names = (address.form.app, address.form.name, address.collection.value, address.document, address.name)
    return _CRUD + "/".join(quote(name, safe="") for name in names)


@dataclass(frozen=True, slots=True)
class TokenSubject:
    """The one document that an access token is for, in one version of its form."""

    form: Form
    version: int
    document: str
