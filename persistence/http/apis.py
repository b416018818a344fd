"""The APIs beside CRUD: queries, publishing, and work on all data of a form.

Queries are searches and distinct values (spec search 1, 3), lists of forms (search 4) and of attachments (crud 8.2).
Publishing stores a definition with its attachments in one request (crud 8.3). Work on all data of a form is rebuilding
its index (search 5), and encrypting it again (forms 4.5); the bodies of these requests have no meaning. Access tokens
are issued to callers whose API keys the settings name (crud 6.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus

from flask import Flask, Request, Response, request

from persistence.dialect import Dialect
from persistence.errors import BadRequestError
from persistence.http.application import add_route
from persistence.http.audit import note_in_audit
from persistence.http.bodies import body_of, drain
from persistence.http.callers import KeySetting
from persistence.http.parsing import Face, RequestParser
from persistence.http.responses import ResponseHeaders, empty, text, xml, xml_in_pieces
from persistence.http.scopes import Touches, is_for_some_forms
from persistence.limits import LARGEST_QUERY, LARGEST_TREE, LONGEST_COMMENT
from persistence.model.addresses import DESIGNER_FORM, SERVICE_PREFIX, Form
from persistence.model.instants import parse_time
from persistence.model.search import FormField, FormFilter, FormMatch, FormQuery
from persistence.model.server_urls import RemoteTarget
from persistence.model.texts import duration, flag, short
from persistence.model.versions import Searched
from persistence.services.duplicating import Duplicating
from persistence.services.jobs import ReencryptionJobs
from persistence.services.publishing import Publication, PublishedForm, Publishing
from persistence.services.searching import Answered, Searcher, Searching
from persistence.services.tokens import Issuing


@dataclass(frozen=True, slots=True)
class QueryApi:
    """The handlers of one face."""

    face: Face
    headers: ResponseHeaders

    def add_to(self, app: Flask) -> None:
        prefix = self.face.prefix
        for path in ("/form", "/form/<app>", "/form/<app>/<form>"):
            add_route(app, prefix + path, self.forms, "GET", touches=Touches.NAMED)
            add_route(app, prefix + path, self.forms, "POST", touches=Touches.ALL, only_reads=True)
        add_route(app, f"{prefix}/search/<app>/<form>", self.search, "POST", touches=Touches.NAMED, only_reads=True)
        distinct = f"{prefix}/distinct-values/<app>/<form>"
        add_route(app, distinct, self.distinct_values, "POST", touches=Touches.NAMED, only_reads=True)

    def forms(self, app: str | None = None, form: str | None = None) -> Response:
        """Answer ``/form/$app/$form``; the query of a POST is in its body only."""
        user = self.face.parser.user(request)
        if request.method == "POST":
            body = body_of(request.environ, LARGEST_QUERY)
            return xml(self.face.services(request).forms.search(body, user))
        return xml(self.face.services(request).forms.find(_form_query(request, app, form), user))

    def search(self, app: str, form: str) -> Response:
        """Answer ``POST /search/$app/$form``."""
        return self._answer(Searching.search, Form(app, form))

    def distinct_values(self, app: str, form: str) -> Response:
        """Answer ``POST /distinct-values/$app/$form``."""
        return self._answer(Searching.distinct, Form(app, form))

    def _answer(
        self, ask: Callable[[Searching, Form, int | Searched, Iterator[bytes], Searcher], Answered], form: Form
    ) -> Response:
        parser = self.face.parser
        searcher, version = (
            Searcher(parser.user(request), parser.is_administrator(request)),
            parser.version_to_search(request),
        )
        body = body_of(request.environ, LARGEST_QUERY)
        answered = ask(self.face.services(request).searching, form, version, body, searcher)
        notice = answered.notice
        if notice is not None and is_for_some_forms(request):  # it may name the nearest of all forms
            notice = None
        return xml_in_pieces(answered.pieces, self.headers.of_notice(notice))


def add_document_services(app: Flask, face: Face, duplicating: Duplicating) -> None:
    """Add ``GET …/attachments?document=$document`` and ``POST …/duplicate`` below ``/fr/service/$app/$form``."""

    def of_document(app: str, form: str) -> Response:
        document = request.args.get("document")
        if not document:
            raise BadRequestError("the parameter document must name the document whose attachments are asked for")
        attachments = face.services(request).attachments
        return xml(attachments.of_document(Form(app, form), document, face.parser.user(request)))

    def duplicate(app: str, form: str) -> Response:
        user, body = face.parser.user(request), body_of(request.environ, LARGEST_QUERY)
        document, answer = duplicating.duplicate(Form(app, form), body, user)
        note_in_audit(request.environ, collection="data", document=document)
        return xml(answer)

    prefix = f"{SERVICE_PREFIX}/<app>/<form>"
    add_route(app, f"{prefix}/attachments", of_document, "GET", "HEAD", touches=Touches.NAMED)
    add_route(app, f"{prefix}/duplicate", duplicate, "POST", touches=Touches.NAMED)


def _form_query(request: Request, app: str | None, form: str | None) -> FormQuery:
    """Return the query of a GET (spec search 4.1)."""
    since = request.args.get("modified-since")
    all_versions = flag(request.args.get("all-versions"), "all-versions", has_any_case=True)
    filters = []
    if since is not None:
        filters.append(FormFilter(FormField.LAST_MODIFIED, FormMatch.GT, parse_time(since, "modified-since")))
    return FormQuery(
        app=app,
        form=form,
        latest_only=None if all_versions is None else not all_versions,
        all_forms=_is_true(request.args.get("all-forms"), "all-forms"),
        ignore_admin=_is_true(request.args.get("ignore-admin-permissions"), "ignore-admin-permissions"),
        filters=tuple(filters),
    )


def _is_true(text: str | None, name: str) -> bool:
    """Return whether a parameter is true, in any letter case (spec search 4.1); false where it was not sent."""
    return flag(text, name, has_any_case=True) is True


@dataclass(frozen=True, slots=True)
class PublishApi:
    """The handlers."""

    publishing: Publishing
    dialect: Dialect
    parser: RequestParser

    def add_to(self, app: Flask) -> None:
        from_designer = f"{SERVICE_PREFIX}/{self.dialect.designer_app}/{DESIGNER_FORM}/publish/<document>"
        add_route(app, f"{SERVICE_PREFIX}/publish", self.from_body, "POST", touches=Touches.ALL)
        add_route(app, from_designer, self.from_designer, "POST", touches=Touches.ALL)

    def from_body(self) -> Response:
        """Answer ``POST /fr/service/publish[?document-id=$document]``."""
        publication = self._publication(request.args.get("document-id"))
        body = body_of(request.environ, LARGEST_TREE)
        return self._published(self.publishing.from_body(body, publication))

    def from_designer(self, document: str) -> Response:
        """Answer ``POST /fr/service/svc/builder/publish/$document``; its body has no meaning."""
        publication = self._publication(document)
        drain(request.environ)
        return self._published(self.publishing.from_designer(document, publication))

    @staticmethod
    def _published(done: PublishedForm) -> Response:
        form, version = done.form, done.version
        note_in_audit(request.environ, app=form.app, form=form.name, collection="form", version=version)
        return xml(done.answer)

    def _publication(self, source: str | None) -> Publication:
        return Publication(
            version=self.parser.version_to_publish(request),
            is_available=request.args.get("available") != "false",
            comment=_comment(request.args.get("version-comment")),
            user=self.parser.user(request),
            source=short(source, "document id"),
            flat_view=self.parser.flat_view(request),
            lists_grids=request.args.get("upgrade-form-definition") != "false",
            target=self._target(),
        )

    def _target(self) -> RemoteTarget | None:
        url = request.args.get("remote-server-url")
        if not url:
            return None
        server = self.publishing.server(url)
        note_in_audit(request.environ, details={"server": str(server)})
        is_forced = flag(request.args.get("force-attachments") or None, "force-attachments") is True
        return RemoteTarget(server, self.parser.remote_authorization(request), is_forced)


def _comment(text: str | None) -> str | None:
    comment = (text or "").strip()
    if len(comment) > LONGEST_COMMENT:
        raise BadRequestError(f"a version comment is at most {LONGEST_COMMENT} characters long")
    return comment or None


@dataclass(frozen=True, slots=True)
class ReindexApi:
    """The handlers of one face. A POST is answered when the index is rebuilt."""

    face: Face
    dialect: Dialect

    def add_to(self, app: Flask) -> None:
        prefix = f"{self.face.prefix}/reindex"
        add_route(app, prefix, self.all, "POST", touches=Touches.ALL)
        if self.dialect.has_proxy:
            is_proxys = not self.face.prefix
            by_get = self.all_by_get if is_proxys else self.status
            add_route(app, prefix, by_get, "GET", touches=Touches.ALL, only_reads=not is_proxys)
        add_route(app, f"{prefix}/<app>/<form>", self.version, "POST", touches=Touches.NAMED)
        add_route(app, f"{prefix}/status", self.status, "GET", touches=Touches.ALL)

    def all(self) -> Response:
        """Answer ``POST /reindex``: all forms."""
        drain(request.environ)
        self.face.services(request).reindexing.all()
        return empty(HTTPStatus.OK, [])

    def all_by_get(self) -> Response:
        """Answer ``GET /reindex`` of the runtimes 2023.1 and 2024.1 (spec runtime 8); a browser gets the status.

        Anything that follows links could send it.
        """
        if "HTTP_SEC_FETCH_SITE" in request.environ:
            return self.status()
        return self.all()

    def version(self, app: str, form: str) -> Response:
        """Answer ``POST /reindex/$app/$form``: the version in the header."""
        number = self.face.parser.version_to_reindex(request)
        drain(request.environ)
        self.face.services(request).reindexing.version(Form(app, form), number)
        return empty(HTTPStatus.OK, [])

    def status(self) -> Response:
        return xml(self.face.services(request).reindexing.status())


@dataclass(frozen=True, slots=True)
class ReencryptApi:
    """The handlers. A POST is answered when the work has begun."""

    face: Face
    reencrypts: ReencryptionJobs

    def add_to(self, app: Flask) -> None:
        prefix = f"{self.face.prefix}/reencrypt"
        add_route(app, prefix, self.status, "GET", touches=Touches.ALL)
        add_route(app, f"{prefix}/<app>/<form>", self.form, "POST", touches=Touches.NAMED)

    def form(self, app: str, form: str) -> Response:
        """Answer ``POST /reencrypt/$app/$form``: all data of a form, or of the version in the header."""
        number = self.face.parser.version_to_reencrypt(request)
        drain(request.environ)
        self.reencrypts.begin(Form(app, form), number)
        return empty(HTTPStatus.OK, [])

    def status(self) -> Response:
        return xml(self.reencrypts.status())


@dataclass(frozen=True, slots=True)
class TokenApi:
    """The handler. ``issuers`` are the API keys whose callers may issue access tokens (spec crud 6.6)."""

    face: Face
    issuing: Issuing
    issuers: KeySetting

    def add_to(self, app: Flask) -> None:
        add_route(app, f"{self.face.prefix}/token/<app>/<form>/<document>", self.issue, "POST", touches=Touches.NAMED)

    def issue(self, app: str, form: str, document: str) -> Response:
        """Answer ``POST /token/$app/$form/$document?operations=read,update&expires=7d``; its body has no meaning."""
        drain(request.environ)
        self.issuers.require(request.environ, "issue access tokens")
        operations = (request.args.get("operations") or "").split(",")
        seconds = duration(request.args.get("expires") or "")
        asked = self.face.parser.version_of_token(request)
        wanted = filter(None, map(str.strip, operations))
        token = self.issuing.issue(Form(app, form), document, asked, wanted, seconds)
        return text(HTTPStatus.OK, token, [("Cache-Control", "no-store")])
