"""The public API alone: publishing, duplicates, lists of attachments, access tokens.

Publishing stores a definition with its attachments in one request (spec crud 8.3). Access tokens are issued to callers
whose API keys the settings name (crud 6.6).
"""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint, Response, request

from persistence.errors import BadRequestError
from persistence.http.application import RouteScope, api
from persistence.http.audit import note_in_audit
from persistence.http.parsing import body_of, drain
from persistence.http.responses import text, xml
from persistence.limits import LARGEST_QUERY, LARGEST_TREE, LONGEST_COMMENT
from persistence.model.addresses import Form
from persistence.model.network_addresses import RemoteTarget
from persistence.model.texts import duration, flag, short
from persistence.model.versions import parse
from persistence.services.definitions import Publication, PublishedForm

publish = Blueprint("publish", __name__)
designer = Blueprint("designer", __name__)  # Its prefix is the form in which definitions are drawn

document_services = Blueprint("document_services", __name__)
tokens = Blueprint("tokens", __name__)


@publish.post("/publish", scope=RouteScope.ALL)
def from_body() -> Response:
    """Answer ``POST /fr/service/publish[?document-id=$document]``."""
    publication = _publication(request.args.get("document-id"))
    body = body_of(request.environ, LARGEST_TREE)
    return _published(api.shared.publishing.from_body(body, publication))


@designer.post("/publish/<document>", scope=RouteScope.ALL)
def from_designer(document: str) -> Response:
    """Answer ``POST /fr/service/svc/builder/publish/$document``; its body has no meaning."""
    publication = _publication(document)
    drain(request.environ)
    return _published(api.shared.publishing.from_designer(document, publication))


def _published(done: PublishedForm) -> Response:
    form, version, answer = done
    note_in_audit(request.environ, app=form.app, form=form.name, collection="form", version=version)
    return xml(answer)


def _publication(source: str | None) -> Publication:
    # The parameter, else the header (spec crud 8.3).
    parameter = request.args.get("form-definition-version")
    version = parse(parameter, None, None) if parameter else api.parser.version(request)
    comment = (request.args.get("version-comment") or "").strip()
    if len(comment) > LONGEST_COMMENT:
        raise BadRequestError(f"a version comment is at most {LONGEST_COMMENT} characters long")
    return Publication(
        version=version,
        is_available=request.args.get("available") != "false",
        comment=comment or None,
        user=api.parser.user(request),
        source=short(source, "document id"),
        flat_view=api.parser.flat_view(request),
        lists_grids=request.args.get("upgrade-form-definition") != "false",
        target=_target(),
    )


def _target() -> RemoteTarget | None:
    url = request.args.get("remote-server-url")
    if not url:
        return None
    server = api.shared.publishing.servers.require_allowed(url)
    note_in_audit(request.environ, details={"server": str(server)})
    is_forced = flag(request.args.get("force-attachments") or None, "force-attachments") is True
    return RemoteTarget(server, api.parser.remote_authorization(request), is_forced)


@document_services.route("/<app>/<form>/attachments", methods=("GET", "HEAD"), scope=RouteScope.NAMED)
def attachments(app: str, form: str) -> Response:
    """Answer ``GET /fr/service/$app/$form/attachments?document=$document`` (spec crud 8.2)."""
    document = request.args.get("document")
    if not document:
        raise BadRequestError("the parameter document must name the document whose attachments are asked for")
    return xml(api.services.attachments.of_document(Form(app, form), document, api.parser.user(request)))


@document_services.post("/<app>/<form>/duplicate", scope=RouteScope.NAMED)
def duplicate(app: str, form: str) -> Response:
    user, body = api.parser.user(request), body_of(request.environ, LARGEST_QUERY)
    document, answer = api.shared.duplicating.duplicate(Form(app, form), body, user)
    note_in_audit(request.environ, collection="data", document=document)
    return xml(answer)


@tokens.post("/token/<app>/<form>/<document>", scope=RouteScope.NAMED)
def issue_token(app: str, form: str, document: str) -> Response:
    """Answer ``POST /token/$app/$form/$document?operations=read,update&expires=7d``; its body has no meaning."""
    drain(request.environ)
    api.shared.token_issuers.require(request.environ, "issue access tokens")
    operations = (request.args.get("operations") or "").split(",")
    seconds = duration(request.args.get("expires") or "")
    asked = api.parser.version(request)
    wanted = filter(None, map(str.strip, operations))
    token = api.shared.issuing.issue(Form(app, form), document, asked, wanted, seconds)
    return text(HTTPStatus.OK, token, [("Cache-Control", "no-store")])
