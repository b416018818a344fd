"""Who may read, write and delete which resource of a document (spec crud 6.4, last table)."""

from __future__ import annotations

from persistence.dialect import Dialect
from persistence.errors import ForbiddenError
from persistence.model import permissions
from persistence.model.addresses import Address, Collection, DocumentAddress, Form
from persistence.model.permissions import CREATE, DELETE, READ, UPDATE, Operations
from persistence.model.sidecar import Sidecar
from persistence.model.users import User
from persistence.services.rights import Rights
from persistence.storage.storage import Readable

_READ = (READ,)
_CREATE = (CREATE,)
_CREATE_ATTACHMENT = (CREATE, UPDATE)
_UPDATE = (UPDATE,)
_DELETE = (DELETE,)
_DELETE_ATTACHMENT = (DELETE, UPDATE)
_DISCARD = (UPDATE, DELETE)


class Access:
    """Lets requests go on or not; returns what else the user may do with the document.

    ``document`` is the sidecar of the living ``data.xml`` in the same collection, whose owner counts for its
    attachments too. A draft of a saved document is part of that: version and owner of the saved document decide, and
    who may save it may write and discard the draft, whoever began it. Methods raise ``ForbiddenError``.
    """

    def __init__(self, store: Readable, rights: Rights, dialect: Dialect) -> None:
        self._store = store
        self._rights = rights
        self._dialect = dialect

    def to_read(self, address: DocumentAddress, document: Sidecar, user: User) -> Operations:
        """A GET or HEAD."""
        return self._to(_READ, address, self.saved_beside(address) or document, user)

    def to_update(self, address: DocumentAddress, document: Sidecar, user: User) -> Operations:
        """A PUT to a document that is there."""
        return self._to(_UPDATE, address, self.saved_beside(address) or document, user)

    def to_create(self, address: DocumentAddress, version: int, user: User) -> Operations:
        """A PUT to a document that is not there. A draft of a saved document needs what a save would need."""
        saved = self.saved_beside(address)
        if saved is not None:
            return self._to(_UPDATE, address, saved, user)
        allowed = self._rights.on_creation(address.form, version, user)
        self._must_allow(allowed, _CREATE if address.is_main else _CREATE_ATTACHMENT, address, version, user)
        return allowed

    def to_delete(self, address: DocumentAddress, document: Sidecar, user: User) -> Operations:
        """A DELETE."""
        saved = self.saved_beside(address)
        if saved is not None:
            return self._to(_DISCARD, address, saved, user)
        return self._to(_DELETE if address.is_main else _DELETE_ATTACHMENT, address, document, user)

    def saved_beside(self, address: DocumentAddress) -> Sidecar | None:
        """The living saved document of a draft; ``None`` where there is none, and for what is no draft."""
        if not address.is_draft:
            return None
        saved = self._store.sidecar(address.main.moved(Collection.DATA))
        return None if saved is None or saved.deleted else saved

    def _to(self, any_of: tuple[str, ...], address: DocumentAddress, document: Sidecar, user: User) -> Operations:
        allowed = self._rights.on_data(address.form, document, user)
        self._must_allow(allowed, any_of, address, document.version, user)
        return allowed

    def _must_allow(
        self, allowed: Operations, any_of: tuple[str, ...], address: Address, version: int, user: User
    ) -> None:
        if not allowed.allows(*any_of):
            reason = self._reason(address.form, version, any_of, user)
            raise ForbiddenError(f"you may not {' or '.join(any_of)} {address}{reason}")

    def _reason(self, form: Form, version: int, any_of: tuple[str, ...], user: User) -> str:
        """The headers that a permission asks for and that were not sent: often the cause."""
        missing = permissions.missing_headers(self._rights.of_data(form, version), user, any_of)
        if not missing:
            return ""
        if user.is_nameless:
            return f": roles and groups count only together with a user name ({self._dialect.header('Username')})"
        headers = " or ".join(map(self._dialect.header, missing))
        return f": the request was sent without {headers}"
