"""The documents of a form and their attachments: saved data, or drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from persistence.client.service_connection import ServiceAnswer, ServiceConnection
from persistence.dialect import Dialect
from persistence.errors import BadAddressError, BadRequestError, RemoteError
from persistence.model.addresses import DATA_XML, PUBLIC_PREFIX, Collection, DocumentAddress, Form
from persistence.model.permissions import User, credentials_of
from persistence.model.texts import Instant, without_encoding
from persistence.wire import XML, Answer, Call, Content, OutgoingContent, OwnFields, path_of

HeaderPairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ServiceCaller:
    """The connection of a client, with the dialect of the service and the user of its requests."""

    connection: ServiceConnection
    dialect: Dialect
    user: User

    def path(self, api: str, *names: str) -> str:
        """Return the path of something below the public API.

        Raises ``BadAddressError`` for an empty name or one that begins with a dot, which would lead elsewhere.
        """
        for name in names:
            if not name or name.startswith("."):
                raise BadAddressError(f"a name in a path is empty or begins with a dot: {name!r}")
        return PUBLIC_PREFIX + path_of(api, *names)

    def fields(self, version: int | str | None = None, **own: str | None) -> HeaderPairs:
        """Return the headers of a request: the user, the version, and the service's own that have a value.

        The names of these are without prefix, in small letters, with ``_`` for ``-``.
        """
        given = [("Form-Definition-Version", None if version is None else str(version))]
        given += [(name.replace("_", "-").title(), value) for name, value in own.items()]
        user = self.user
        if user.organization or any({",", "|"} & {*role.name} or role.organization for role in user.roles):
            identity: list[tuple[str, str | None]] = [("Credentials", credentials_of(user))]
        else:
            roles = ",".join(role.name for role in user.roles)
            identity = [pair for pair in (("Username", user.name), ("Group", user.group), ("Roles", roles)) if pair[1]]
        pairs = (*identity, *given)
        return tuple((self.dialect.header(name), text) for name, text in pairs if text is not None)

    def send(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        path: str | Sequence[str],
        fields: HeaderPairs | None = None,
        query: Sequence[tuple[str, str]] = (),
        content: Content | None = None,
        *,
        is_safe: bool = False,
    ) -> ServiceAnswer:
        """Send a request, by default with ``fields()``, to a path, or to that of these names; return the answer."""
        path = path if isinstance(path, str) else self.path(*path)
        body = None if content is None else OutgoingContent(content)
        sent = self.fields() if fields is None else fields
        return self.connection.read(Call(method, path, sent, query, body, is_safe=is_safe))

    def own(self, answer: ServiceAnswer) -> OwnFields:
        return OwnFields(answer.headers, self.dialect)

    def version(self, answer: ServiceAnswer) -> int:
        """Raise ``RemoteError`` where there is no version: another kind of service has answered."""
        version = self.own(answer).number("Form-Definition-Version")
        if version is None:
            name = self.dialect.name
            raise RemoteError(f"the answer names no form definition version: is it a service of dialect {name}?")
        return version

    def revision(self, answer: ServiceAnswer) -> dict[str, Any]:
        """Return the facts of every ``SavedDocument``; an empty ``etag`` is that of a draft that is gone."""
        own = self.own(answer)
        return {
            "etag": answer.headers.get("ETag", ""),
            "version": self.version(answer),
            "modified": Instant(own.text("Last-Modified") or ""),
            "operations": frozenset((own.text("Operations") or "").split()),
        }


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

    xml: bytes = field(repr=False)
    created: Instant
    owner: User
    modifier: str | None
    stage: str | None
    is_valid: bool | None


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
    xhtml: bytes = field(repr=False)
    modified: Instant
    created: Instant
    modifier: str | None


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


DocumentName = str | SavedDocument
"""A document by its id; or as it was saved or loaded, so that a change is refused if somebody else has saved since."""


class DocumentsClient:
    """Saves, loads and deletes documents of a form in one collection, saved data or drafts, with their attachments.

    A document is named by its id, or by a value that a method here has returned: then a change is refused by
    ``PreconditionError`` if somebody else has saved meanwhile, and it is repeated if its answer is lost. ``version`` is
    that of the form definition for new data, by default the latest published one; in dialect ``orbeon`` there must be
    one.

    Methods raise ``ForbiddenError``, ``NotFoundError``, ``DeletedError`` (410; in dialect ``svc`` a read of something
    deleted is ``NotFoundError``), ``LockedError`` (somebody has leased it), ``BadRequestError``, ``BusyError`` (503,
    with ``retry_after`` in seconds), ``DiskFullError`` (507), and ``RemoteError`` or ``RemoteTimeoutError`` if the
    service cannot be reached, fails, or is too slow.
    """

    def __init__(self, caller: ServiceCaller, form: Form, collection: Collection, version: int | None = None) -> None:
        self.form = form
        self.version = version
        self._caller = caller
        self._collection = collection

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.form)!r}, {self._collection.value!r}, version={self.version})"

    def create(
        self, xml: Content, document: str | None = None, *, stage: str | None = None, valid: bool | None = None
    ) -> SavedDocument:
        """Save a new document. Without an id it gets one.

        ``stage`` is the workflow stage, and ``valid`` whether the data is valid. Raises ``PreconditionError`` if there
        is a document of this id, and ``ConflictError`` if the form has only one document, and it exists.
        """
        address = self.address(document or str(uuid4()))
        only_new = ("If-None-Match", "*")
        return self._saved(address, xml, (only_new, *self._headers(self.version, stage)), valid=valid, is_safe=True)

    def save(
        self, document: DocumentName, xml: Content, *, stage: str | None = None, valid: bool | None = None
    ) -> SavedDocument:
        """Save a document, as ``create`` does. One that is named by its id is overwritten, or created.

        Raises ``PreconditionError`` if somebody else has saved since, and ``etag`` and ``saved`` say what and when; or
        has deleted it, and they are ``None``.
        """
        condition = self._condition(document)
        headers = (*condition, *self._headers(self._version_of(document), stage))
        return self._saved(self.address(document), xml, headers, valid=valid, is_safe=bool(condition))

    def load(
        self, document: DocumentName, *, revision: Instant | None = None, as_of: Instant | None = None
    ) -> LoadedDocument:
        """Return a document with its content, which is read into memory.

        ``revision`` reads an older one, by its ``modified`` in the history, ``as_of`` the one that was current then.
        """
        address = self.address(document)
        answer = self._caller.send("GET", self._path(address), query=older(revision, as_of), is_safe=True)
        own = self._caller.own(answer)
        return LoadedDocument(
            address=address,
            **self._caller.revision(answer),
            xml=answer.body,
            created=Instant(own.text("Created") or ""),
            owner=User(own.text("Username"), own.text("Group"), organization=tuple(own.texts("Organization"))),
            modifier=own.text("Last-Modified-By-Username"),
            stage=own.text("Workflow-Stage"),
            is_valid=own.flag("Valid"),
        )

    def exists(self, document: DocumentName) -> bool:
        """Return whether there is such a document, which is not deleted, and that the user may read it."""
        path, also = self._path(self.address(document)), (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
        call = Call("HEAD", path, self._caller.fields(), is_safe=True, also=also)
        with self._caller.connection.open(call) as answer:
            return answer.status == HTTPStatus.OK

    def delete(self, document: DocumentName) -> None:
        """Delete a document; saved data can be brought back by ``revert``, a draft cannot."""
        self._delete(self.address(document), self._condition(document))

    def attach(
        self,
        document: DocumentName,
        content: Content,
        name: str | None = None,
        *,
        content_type: str = "application/octet-stream",
        holder: str | None = None,
    ) -> SavedAttachment:
        """Store an attachment, which is sent in pieces. Without a file name it gets one.

        The data names it by the ``path`` of the returned value. It may be stored before the data. ``holder`` is the
        path of its control, which decides whether it is encrypted.
        """
        address = self._attachment(document, f"{uuid4().hex}.bin" if name is None else name)
        own = self._version_of(document)
        fields = (("Content-Type", content_type), *self._condition(document))
        # Not safe to repeat: the condition is on the document, which an attachment does not change.
        fields += self._caller.fields(own, path_to_holder=holder)
        answer = self._caller.send("PUT", self._path(address), fields, content=content)
        is_encrypted, etag = self._caller.own(answer).flag("Did-Encrypt") or False, answer.headers.get("ETag", "")
        return SavedAttachment(address, self._path(address), etag, self._caller.version(answer), is_encrypted)

    def attachment(
        self,
        document: DocumentName,
        name: str,
        *,
        revision: Instant | None = None,
        as_of: Instant | None = None,
        decrypt: bool = False,
    ) -> Answer:
        """Open an attachment, to be read in pieces in a ``with`` block; ``revision`` and ``as_of`` as for ``load``.

        ``decrypt`` asks for an encrypted one decrypted.
        """
        path = self._path(self._attachment(document, name))
        asked = self._caller.fields(decrypt="true" if decrypt else None)
        call = Call("GET", path, asked, older(revision, as_of), is_safe=True)
        return self._caller.connection.open(call)

    def delete_attachment(self, document: DocumentName, name: str) -> None:
        """Delete an attachment."""
        self._delete(self._attachment(document, name), self._condition(document))

    def address(self, document: DocumentName) -> DocumentAddress:
        """Return the address of a document; raise ``BadRequestError`` for one of another form."""
        if isinstance(document, SavedDocument):
            if document.address.form != self.form:
                raise BadRequestError(f"{document.address} is not a document of {self.form}")
            document = document.document
        return DocumentAddress(self.form, self._collection, document)

    def _condition(self, document: DocumentName) -> HeaderPairs:
        if isinstance(document, str) or document.address.collection is not self._collection:
            return ()
        return (("If-Match", document.etag),)

    def _attachment(self, document: DocumentName, name: str) -> DocumentAddress:
        if name == DATA_XML:
            raise BadAddressError(f"{DATA_XML} is not an attachment, but the document itself")
        return replace(self.address(document), name=name)

    def _version_of(self, document: DocumentName) -> int | None:
        return document.version if isinstance(document, SavedDocument) else self.version

    def _headers(self, version: int | None, stage: str | None) -> HeaderPairs:
        return (XML, *self._caller.fields(version, workflow_stage=stage))

    def _saved(
        self, address: DocumentAddress, xml: Content, fields: HeaderPairs, *, valid: bool | None, is_safe: bool
    ) -> SavedDocument:
        query = () if valid is None else (("valid", str(valid).lower()),)
        xml = without_encoding(xml) if isinstance(xml, str) else xml
        answer = self._caller.send("PUT", self._path(address), fields, query, xml, is_safe=is_safe)
        return self._stored(address, answer)

    def _stored(self, address: DocumentAddress, answer: ServiceAnswer) -> SavedDocument:
        is_new, notice = answer.status == HTTPStatus.CREATED, self._caller.own(answer).text("Notice")
        return SavedDocument(address=address, **self._caller.revision(answer), is_new=is_new, notice=notice)

    def _delete(self, address: DocumentAddress, condition: HeaderPairs) -> None:
        fields = (*condition, *self._caller.fields())
        self._caller.send("DELETE", self._path(address), fields, is_safe=bool(condition))

    def _path(self, address: DocumentAddress) -> str:
        names = (address.form.app, address.form.name, address.collection.value, address.document, address.name)
        return self._caller.path("crud", *names)


def older(revision: Instant | None, as_of: Instant | None) -> tuple[tuple[str, str], ...]:
    pairs = (("last-modified-time", revision), ("as-of", as_of))
    return tuple((name, instant) for name, instant in pairs if instant is not None)
