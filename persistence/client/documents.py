"""The documents of a form and their attachments: saved data, or drafts."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from uuid import uuid4

from persistence.client.caller import XML, HeaderPairs, ServiceCaller
from persistence.client.connection import Download, ServiceAnswer, ServiceCall
from persistence.client.content import Content, OutgoingContent
from persistence.client.values import AnswerFacts, LoadedDocument, SavedAttachment, SavedDocument, loaded
from persistence.errors import BadAddressError, BadRequestError
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.texts import without_encoding

_NOT_THERE = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)

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

    def create(
        self,
        xml: Content,
        document: str | None = None,
        *,
        stage: str | None = None,
        valid: bool | None = None,
    ) -> SavedDocument:
        """Save a new document. Without an id it gets one.

        ``stage`` is the workflow stage, and ``valid`` whether the data is valid.

        Raises:
            PreconditionError: there is a document of this id.
            ConflictError: the form has only one document, and it exists.
        """
        address = self.address(document or str(uuid4()))
        only_new = ("If-None-Match", "*")
        return self._saved(address, xml, (only_new, *self._headers(self.version, stage)), valid=valid, is_safe=True)

    def save(
        self,
        document: DocumentName,
        xml: Content,
        *,
        stage: str | None = None,
        valid: bool | None = None,
    ) -> SavedDocument:
        """Save a document, as ``create`` does. One that is named by its id is overwritten, or created.

        Raises:
            PreconditionError: somebody else has saved since, and ``etag`` and ``saved`` say what and when; or has
                deleted it, and they are ``None``.
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
        answer = self._caller.connection.read(self._get(address, _older(revision, as_of)))
        return loaded(address, answer.headers, answer.body, self._caller.dialect)

    def exists(self, document: DocumentName) -> bool:
        """Return whether there is such a document, which is not deleted, and that the user may read it."""
        call = ServiceCall(
            "HEAD", self._path(self.address(document)), self._caller.fields(), is_safe=True, also=_NOT_THERE
        )
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
        answer = self._put(address, content, (*fields, *self._caller.fields(own, path_to_holder=holder)))
        facts = AnswerFacts.of(answer.headers, self._caller.dialect)
        is_encrypted = answer.headers.get(self._caller.dialect.header("Did-Encrypt")) == "true"
        return SavedAttachment(address, self._path(address), facts.etag, facts.version, is_encrypted)

    def attachment(
        self,
        document: DocumentName,
        name: str,
        *,
        revision: Instant | None = None,
        as_of: Instant | None = None,
        decrypt: bool = False,
    ) -> Download:
        """Open an attachment, to be read in pieces in a ``with`` block; ``revision`` and ``as_of`` as for ``load``.

        ``decrypt`` asks for an encrypted one decrypted.
        """
        address = self._attachment(document, name)
        asked = self._caller.fields(decrypt="true" if decrypt else None)
        return self._caller.connection.open(self._get(address, _older(revision, as_of), asked))

    def delete_attachment(self, document: DocumentName, name: str) -> None:
        """Delete an attachment."""
        self._delete(self._attachment(document, name), self._condition(document))

    def address(self, document: DocumentName) -> DocumentAddress:
        """Return the address of a document; raise ``BadRequestError`` for one of another form."""
        if isinstance(document, str):
            return DocumentAddress(self.form, self._collection, document, DATA_XML)
        if document.address.form != self.form:
            raise BadRequestError(f"{document.address} is not a document of {self.form}")
        return DocumentAddress(self.form, self._collection, document.document, DATA_XML)

    def _condition(self, document: DocumentName) -> HeaderPairs:
        if isinstance(document, str) or document.address.collection is not self._collection:
            return ()
        return (("If-Match", document.etag),)

    def _attachment(self, document: DocumentName, name: str) -> DocumentAddress:
        if name == DATA_XML:
            raise BadAddressError(f"{DATA_XML} is not an attachment, but the document itself")
        main = self.address(document)
        return DocumentAddress(main.form, main.collection, main.document, name)

    def _version_of(self, document: DocumentName) -> int | None:
        return document.version if isinstance(document, SavedDocument) else self.version

    def _headers(self, version: int | None, stage: str | None) -> HeaderPairs:
        return (XML, *self._caller.fields(version, workflow_stage=stage))

    def _saved(
        self, address: DocumentAddress, xml: Content, fields: HeaderPairs, *, valid: bool | None, is_safe: bool
    ) -> SavedDocument:
        query = () if valid is None else (("valid", str(valid).lower()),)
        xml = without_encoding(xml) if isinstance(xml, str) else xml
        return saved(address, self._put(address, xml, fields, query, is_safe=is_safe), self._caller)

    def _put(
        self,
        address: DocumentAddress,
        content: Content,
        fields: HeaderPairs,
        query: Sequence[tuple[str, str]] = (),
        *,
        is_safe: bool = False,
    ) -> ServiceAnswer:
        call = ServiceCall("PUT", self._path(address), fields, query, OutgoingContent(content), is_safe=is_safe)
        return self._caller.connection.read(call)

    def _get(
        self, address: DocumentAddress, query: Sequence[tuple[str, str]], fields: HeaderPairs | None = None
    ) -> ServiceCall:
        asked = self._caller.fields() if fields is None else fields
        return ServiceCall("GET", self._path(address), asked, query, is_safe=True)

    def _delete(self, address: DocumentAddress, condition: HeaderPairs) -> None:
        fields = (*condition, *self._caller.fields())
        self._caller.connection.read(ServiceCall("DELETE", self._path(address), fields, is_safe=bool(condition)))

    def _path(self, address: DocumentAddress) -> str:
        names = (address.form.app, address.form.name, address.collection.value, address.document, address.name)
        return self._caller.path("crud", *names)


def saved(address: DocumentAddress, answer: ServiceAnswer, caller: ServiceCaller) -> SavedDocument:
    """Read the answer to a change of a document."""
    facts = AnswerFacts.of(answer.headers, caller.dialect)
    is_new, notice = answer.status == HTTPStatus.CREATED, answer.headers.get(caller.dialect.header("Notice"))
    return SavedDocument(
        address=address,
        etag=facts.etag,
        version=facts.version,
        modified=facts.modified,
        operations=facts.operations,
        is_new=is_new,
        notice=notice,
    )


def _older(revision: Instant | None, as_of: Instant | None) -> tuple[tuple[str, str], ...]:
    pairs = (("last-modified-time", revision), ("as-of", as_of))
    return tuple((name, instant) for name, instant in pairs if instant is not None)
