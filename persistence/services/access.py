"""Access: the permissions in force, and decisions about documents (spec crud 6)."""

from __future__ import annotations

from dataclasses import dataclass

from persistence.definitions.catalog import Definition
from persistence.dialect import Dialect
from persistence.errors import ForbiddenError
from persistence.model import permissions
from persistence.model.addresses import Collection, DocumentAddress
from persistence.model.form_versions import PublishedVersion
from persistence.model.permissions import Operations, Permissions
from persistence.model.sidecar import Sidecar
from persistence.model.users import User
from persistence.properties.properties import FormProperties
from persistence.providers.provider import Route

_READ = (permissions.READ,)
_CREATE = (permissions.CREATE,)
_CREATE_ATTACHMENT = (permissions.CREATE, permissions.UPDATE)
_UPDATE = (permissions.UPDATE,)
_DELETE = (permissions.DELETE,)
_DELETE_ATTACHMENT = (permissions.DELETE, permissions.UPDATE)
_DISCARD = (permissions.UPDATE, permissions.DELETE)


def permissions_of(published: PublishedVersion, configured: FormProperties) -> Permissions | None:
    """Return the permissions of a published version: its own, else those of the property (spec crud 6.3)."""
    if not configured.has_permissions:
        return None
    return configured.permissions if published.permissions is None else published.permissions


def permissions_on_data(definition: Definition, configured: FormProperties) -> Permissions | None:
    """Return the permissions for data of a version: those of its definition, else those of the property.

    Raises:
        DamagedError: the definition cannot be read; nobody is let in.
    """
    if not configured.has_permissions:
        return None
    own = definition.permissions
    return configured.permissions if own is None else own


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a decision: a resource of a document, and the definition whose permissions hold for it.

    ``document`` is the sidecar of the living ``data.xml`` that decides: version and owner count for the attachments of
    a document too. A draft of a saved document ``is_of_saved``: the saved document decides. ``document`` is ``None``
    where a document is being created.
    """

    address: DocumentAddress
    document: Sidecar | None
    is_of_saved: bool
    definition: Definition
    configured: FormProperties


def subject_of(route: Route, address: DocumentAddress, document: Sidecar | None, version: int) -> Subject:
    """Find out what decides about a resource; ``version`` is that of a document that is being created."""
    saved = _saved(route, address) if address.is_draft else None
    decides = saved or document
    definition = route.catalog.of(address.form, version if decides is None else decides.version)
    return Subject(address, decides, saved is not None, definition, route.properties)


def _saved(route: Route, draft: DocumentAddress) -> Sidecar | None:
    saved = route.storage.sidecar(draft.main.moved(Collection.DATA))
    return None if saved is None or saved.deleted else saved


@dataclass(frozen=True, slots=True)
class Access:
    """Lets requests for documents go on or not; returns what else the user may do with the document.

    Who may save a document may write and discard the draft of it, whoever began that. Methods raise
    ``ForbiddenError``.
    """

    dialect: Dialect

    def to_read(self, subject: Subject, user: User) -> Operations:
        """Decide about a GET or HEAD."""
        return self._allow(_READ, subject, user)

    def to_write(self, subject: Subject, user: User) -> Operations:
        """Decide about a PUT. A draft of a saved document needs what a save would need."""
        if subject.document is not None:
            return self._allow(_UPDATE, subject, user)
        return self._allow(_CREATE if subject.address.is_main else _CREATE_ATTACHMENT, subject, user)

    def to_delete(self, subject: Subject, user: User) -> Operations:
        """Decide about a DELETE."""
        if subject.is_of_saved:
            return self._allow(_DISCARD, subject, user)
        return self._allow(_DELETE if subject.address.is_main else _DELETE_ATTACHMENT, subject, user)

    def _allow(self, any_of: tuple[str, ...], subject: Subject, user: User) -> Operations:
        defined = permissions_on_data(subject.definition, subject.configured)
        if subject.document is None:
            allowed = permissions.on_creation(defined, user)
        else:
            allowed = permissions.on_data(defined, user, subject.document.facts.owner)
        if not allowed.allows(*any_of):
            reason = self._reason(defined, any_of, user)
            raise ForbiddenError(f"you may not {' or '.join(any_of)} {subject.address}{reason}")
        return allowed

    def _reason(self, defined: Permissions | None, any_of: tuple[str, ...], user: User) -> str:
        """Return the headers that a permission asks for and that were not sent: often the cause."""
        missing = permissions.missing_headers(defined, user, any_of)
        if not missing:
            return ""
        if user.is_nameless:
            return f": roles and groups count only together with a user name ({self.dialect.header('Username')})"
        headers = " or ".join(map(self.dialect.header, missing))
        return f": the request was sent without {headers}"
