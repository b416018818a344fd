"""The CRUD API: form definitions, form data, drafts and attachments (seed, Endpoints; spec crud 4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from flask import Flask, Request, Response
from flask.globals import request_ctx

from persistence.dialect import Dialect
from persistence.errors import BadAddressError, BadRequestError, LockedError
from persistence.http.application import LEASE_METHODS, RESOURCE_METHODS, add_route
from persistence.http.audit import note_in_audit
from persistence.http.bodies import body_of
from persistence.http.callers import KeySetting
from persistence.http.contents import Contents, send_transformed
from persistence.http.parsing import Face, is_forced
from persistence.http.responses import (
    ResponseHeaders,
    empty,
    head,
    is_not_modified,
    locked,
    refusal,
    saved_as_file,
    whole,
)
from persistence.http.scopes import Touches
from persistence.limits import LARGEST_LOCK
from persistence.model.addresses import FORM_XHTML, Collection, DocumentAddress, Form
from persistence.services.leasing import holder_document
from persistence.services.rules import Read, Removed, Written
from persistence.services.transforms import migrated, removes_nonrelevant, transformed


@dataclass(frozen=True, slots=True)
class CrudApi:
    """The handlers of one face; ``max_body`` and ``max_xml`` are in bytes. ``administrators`` may purge."""

    face: Face
    dialect: Dialect
    headers: ResponseHeaders
    contents: Contents
    max_body: int
    max_xml: int
    administrators: KeySetting

    def add_to(self, app: Flask) -> None:
        form = f"{self.face.prefix}/crud/<app>/<form>"
        add_route(app, f"{form}/form/<name>", self.definition, *RESOURCE_METHODS, touches=Touches.NAMED)
        add_route(app, f"{form}/form/<name>", self.no_lease, *LEASE_METHODS, touches=Touches.ALL)
        for collection in Collection:
            path = f"{form}/{collection.value}/<document>/<name>"
            add_route(app, path, partial(self.document, collection), *RESOURCE_METHODS, touches=Touches.NAMED)
            # A lease is of the id alone, which a document of another form may have.
            add_route(app, path, partial(self.lease, collection), *LEASE_METHODS, touches=Touches.ALL)
        add_route(app, f"{form}/draft/<document>", self.discard_draft, "DELETE", touches=Touches.NAMED)
        add_route(app, f"{form}/data/", self.delete_all, "DELETE", touches=Touches.NAMED, strict_slashes=False)

    def definition(self, app: str, form: str, name: str) -> Response:
        """Answer ``/crud/$app/$form/form/$filename``."""
        request, target, parser = request_ctx.request, Form(app, form), self.face.parser
        if request.method == "PUT":
            put = parser.put(request)
            body = body_of(request.environ, self.max_xml if name == FORM_XHTML else self.max_body)
            return self._written(self.face.services(request).definitions.write(target, name, put, body))
        if request.method == "DELETE":
            definitions = self.face.services(request).definitions
            return self._removed(definitions.delete(target, name, parser.delete(request)))
        if request.query_string and is_forced(request):
            raise BadRequestError("definitions are not purged (force-delete)")
        data_format = parser.definition_format(request) if request.query_string and name == FORM_XHTML else None
        read = self.face.services(request).definitions.read(target, name, parser.get(request))
        return self._read(request, read, data_format)

    def document(self, collection: Collection, app: str, form: str, document: str, name: str) -> Response:
        """Answer ``/crud/$app/$form/data/$document/$filename``, or below ``draft/``."""
        address = DocumentAddress(Form(app, form), collection, document, name)
        request, parser = request_ctx.request, self.face.parser
        if request.method == "PUT":
            put = parser.put(request)
            body = body_of(request.environ, self.max_xml if address.is_main else self.max_body)
            return self._written(self.face.services(request).documents.write(address, put, body))
        if request.query_string and is_forced(request):
            return self._forced(request, address)
        if request.method == "DELETE":
            documents = self.face.services(request).documents
            return self._removed(documents.delete(address, parser.delete(request)))
        data_format, only_relevant = None, False
        if request.query_string:
            is_definition = address.is_main and self.dialect.is_designer(address.form)
            data_format = parser.definition_format(request) if is_definition else None
            only_relevant = removes_nonrelevant(parser.nonrelevant(request), address, self.dialect)
        read = self.face.services(request).documents.read(address, parser.get(request))
        return self._read(request, read, data_format, only_relevant=only_relevant)

    def _forced(self, request: Request, address: DocumentAddress) -> Response:
        """Answer a HEAD or DELETE with ``force-delete=true`` (spec crud 4.9)."""
        if not self.administrators.keys:
            raise BadRequestError("purging (force-delete) is not enabled on this service")
        self.administrators.require(request.environ, "purge")
        parser, forced = self.face.parser, self.face.services(request).forced_deletes
        if request.method == "DELETE":
            delete, instant = parser.forced_delete(request)
            note_in_audit(request.environ, details={"instant": instant})
            return self._removed(forced.delete(address, delete, instant))
        return self._read(request, forced.read(address, parser.get(request)), None)

    def lease(self, collection: Collection, app: str, form: str, document: str, name: str) -> Response:
        """Answer LOCK and UNLOCK of a document, by the path of anything in it (spec crud 7)."""
        address = DocumentAddress(Form(app, form), collection, document, name)
        request, parser = request_ctx.request, self.face.parser
        caller = parser.bearer(request)
        try:
            if request.method == "LOCK":
                seconds = parser.lease_seconds(request)
                body = body_of(request.environ, LARGEST_LOCK)
                holder = self.face.services(request).leasing.lock(address, caller, seconds, body)
            else:
                body = body_of(request.environ, LARGEST_LOCK)
                holder = self.face.services(request).leasing.unlock(address, caller, body)
        except LockedError as error:
            others = holder_document(error)
            if not others:
                raise
            return locked(request.environ, error, others)
        note_in_audit(request.environ, user=holder.user)
        return empty(HTTPStatus.OK, [])

    def no_lease(self, app: str, form: str, name: str) -> Response:
        """Refuse LOCK and UNLOCK of a definition (spec crud 2.1)."""
        raise BadAddressError(f"only form data can be leased, and {app}/{form}/form/{name} is a definition's")

    def discard_draft(self, app: str, form: str, document: str) -> Response:
        """Answer ``DELETE /crud/$app/$form/draft/$document``, which a service sends whose attachments are here."""
        request = request_ctx.request
        documents, delete = self.face.services(request).documents, self.face.parser.delete(request)
        return self._removed(documents.discard_draft(Form(app, form), document, delete))

    def delete_all(self, app: str, form: str) -> Response:
        """Answer ``DELETE /crud/$app/$form/data/``."""
        request = request_ctx.request
        documents = self.face.services(request).documents
        cleared = documents.delete_all(Form(app, form), self.face.parser.delete(request))
        headers = self.headers.of_clearing(cleared)
        if cleared.is_refused:
            cause = f"none of {cleared.refused} documents was deleted: {cleared.refusal}"
            return refusal(request.environ, HTTPStatus.FORBIDDEN, cause, headers)
        return empty(HTTPStatus.OK, headers)

    def _read(self, request: Request, read: Read, data_format: str | None, *, only_relevant: bool = False) -> Response:
        found, headers = read.found, self.headers.of_read(read)
        headers += saved_as_file(request.environ, headers)
        if is_not_modified(request.environ, read):
            found.close()
            return empty(HTTPStatus.NOT_MODIFIED, headers)
        is_changed = only_relevant or data_format is not None or read.decryption is not None
        if found.file is None:  # how long a changed content is, only the change would tell
            size = None if is_changed else read.size
            return head(headers if size is None else [*headers, ("Content-Length", str(size))])
        if not is_changed:
            return self.contents.send(request, read, headers)
        if data_format is not None:
            return whole(migrated(read, data_format), headers)
        return send_transformed(request, transformed(read, only_relevant=only_relevant), headers)

    def _written(self, written: Written) -> Response:
        status = HTTPStatus.CREATED if written.created else HTTPStatus.NO_CONTENT
        return empty(status, self.headers.of_write(written))

    def _removed(self, removed: Removed) -> Response:
        return empty(HTTPStatus.NO_CONTENT, self.headers.of_removal(removed))


def add_unknown_paths(app: Flask) -> None:
    """Answer 400 under all other paths of resources, to the methods that resources have; to others it stays 405."""
    for path in ("/crud", "/crud/", "/crud/<path:rest>"):
        add_route(app, path, _unknown, *RESOURCE_METHODS, touches=Touches.ALL)


def _unknown(rest: str = "") -> Response:
    raise BadAddressError(f"there are no resources under the path {rest!r}")
