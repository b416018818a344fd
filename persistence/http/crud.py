"""The CRUD interface: form definitions, form data, drafts and attachments (seed, Endpoints; spec crud 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from flask import Blueprint, Request, Response
from flask import request as current_request

from persistence.dialect import Dialect
from persistence.http import bodies
from persistence.http.contents import Contents
from persistence.http.datasources import ServicesOf
from persistence.http.parsing import RequestParser
from persistence.http.responses import ResponseHeaders, empty, head, is_not_modified, refusal, whole
from persistence.model.addresses import FORM_XHTML, Collection, DocumentAddress, Form
from persistence.services.migrating import migrated
from persistence.services.parts import opened
from persistence.services.parts import whole as whole_part
from persistence.services.relevance import is_removed, relevant_part
from persistence.services.results import Read, Removed, Written
from persistence.storage.stored_revision import UNKNOWN_SIZE

METHODS = ("GET", "HEAD", "PUT", "DELETE")
"""The methods of resources."""


@dataclass(frozen=True, slots=True)
class Crud:
    """The handlers of one face, which share everything but their prefix; ``max_body`` is in bytes."""

    services: ServicesOf
    dialect: Dialect
    parser: RequestParser
    headers: ResponseHeaders
    contents: Contents
    max_body: int

    def blueprint(self, name: str, prefix: str) -> Blueprint:
        """The routes below ``prefix``."""
        blueprint = Blueprint(name, __name__, url_prefix=prefix)
        routes: tuple[tuple[str, str, Callable[..., Response], tuple[str, ...]], ...] = (
            ("definition", "form/<name>", self.definition, METHODS),
            ("data", "data/<document>/<name>", partial(self.document, Collection.DATA), METHODS),
            ("draft", "draft/<document>/<name>", partial(self.document, Collection.DRAFT), METHODS),
            ("all_data", "data/", self.delete_all, ("DELETE",)),
        )
        for endpoint, rest, view, methods in routes:
            blueprint.add_url_rule(
                f"/crud/<app>/<form>/{rest}",
                endpoint=endpoint,
                view_func=view,
                methods=methods,
                strict_slashes=endpoint != "all_data",
                provide_automatic_options=False,
            )
        return blueprint

    def definition(self, app: str, form: str, name: str) -> Response:
        """``/crud/$app/$form/form/$filename``."""
        request, target = _request(), Form(app, form)
        if request.method == "PUT":
            put = self.parser.put(request)
            body = bodies.chunks(request.environ, self.max_body)
            return self._written(self.services().definitions.write(target, name, put, body))
        if request.method == "DELETE":
            return self._removed(self.services().definitions.delete(target, name, self.parser.delete(request)))
        data_format = self.parser.definition_format(request) if name == FORM_XHTML else None
        return self._read(
            request, self.services().definitions.read(target, name, self.parser.get(request)), data_format
        )

    def document(self, collection: Collection, app: str, form: str, document: str, name: str) -> Response:
        """``/crud/$app/$form/$data-or-draft/$document/$filename``."""
        request = _request()
        address = DocumentAddress(Form(app, form), collection, document, name)
        if request.method == "PUT":
            put = self.parser.put(request)
            body = bodies.chunks(request.environ, self.max_body)
            return self._written(self.services().documents.write(address, put, body))
        if request.method == "DELETE":
            return self._removed(self.services().documents.delete(address, self.parser.delete(request)))
        is_definition = address.is_main and self.dialect.is_designer(address.form)
        data_format = self.parser.definition_format(request) if is_definition else None
        only_relevant = is_removed(self.parser.nonrelevant(request), address, self.dialect)
        read = self.services().documents.read(address, self.parser.get(request))
        return self._read(request, read, data_format, only_relevant=only_relevant)

    def delete_all(self, app: str, form: str) -> Response:
        """``DELETE /crud/$app/$form/data/``."""
        request = _request()
        cleared = self.services().documents.delete_all(Form(app, form), self.parser.delete(request))
        headers = self.headers.of_clearing(cleared)
        if cleared.is_refused:
            cause = f"none of {cleared.refused} documents was deleted: {cleared.refusal}"
            return refusal(request.environ, HTTPStatus.FORBIDDEN, cause, headers)
        return empty(HTTPStatus.OK, headers)

    def _read(self, request: Request, read: Read, data_format: str | None, *, only_relevant: bool = False) -> Response:
        found, headers = read.found, self.headers.of_read(read)
        if is_not_modified(request.environ, read):
            if found.file is not None:
                found.file.close()
            return empty(HTTPStatus.NOT_MODIFIED, headers)
        if found.file is None:  # how long it is then, only the transform would know
            is_changed = (
                only_relevant or data_format is not None or read.opening is not None or found.size == UNKNOWN_SIZE
            )
            return head(headers if is_changed else [*headers, ("Content-Length", str(found.size))])
        if data_format is not None:
            return whole(migrated(read, data_format), headers)
        if only_relevant or read.opening is not None:  # in this order (spec forms 3.2)
            part = relevant_part(found.file, found.size) if only_relevant else whole_part(found.file, found.size)
            return self.contents.send_part(part if read.opening is None else opened(part, read.opening), headers)
        return self.contents.send(request, read, headers)

    def _written(self, written: Written) -> Response:
        status = HTTPStatus.CREATED if written.created else HTTPStatus.NO_CONTENT
        return empty(status, self.headers.of_write(written))

    def _removed(self, removed: Removed) -> Response:
        return empty(HTTPStatus.NO_CONTENT, self.headers.of_removal(removed))


def _request() -> Request:
    return current_request._get_current_object()  # type: ignore[attr-defined,no-any-return] # noqa: SLF001
