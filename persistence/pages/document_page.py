"""The page of a document or a draft: its values, attachments, XML, revisions, lease and sidecar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from flask import render_template, request

from persistence.errors import DamagedError, LockedError, NotFoundError, PersistenceError
from persistence.limits import REVISIONS_SHOWN
from persistence.maintenance.reports import DocumentReport, Unreadable, report_document
from persistence.model.addresses import Collection, DocumentAddress
from persistence.model.history import ListedRevision
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.model.users import ANONYMOUS
from persistence.model.versions import PublishedVersion
from persistence.pages.contents_routes import preview_of
from persistence.pages.document_paths import PATH, action_path, address_of, asked_instant, document_path
from persistence.pages.form_queries import page_number
from persistence.pages.forms_page import ServedForms, title_of
from persistence.pages.site import Site
from persistence.providers.provider import Route
from persistence.services.document_tables import outline_of
from persistence.services.documents import Documents
from persistence.services.form_values import ShownValues, shown_values
from persistence.services.rules import Get


@dataclass(frozen=True, slots=True)
class ShownFile:
    """An attachment that is shown: ``preview`` says how, ``image``, ``pdf`` or not at all."""

    name: str
    content_type: str
    size: int
    preview: str
    is_encrypted: bool
    is_named: bool


@dataclass(frozen=True, slots=True)
class ShownDocument:
    """A document, and its ``revision`` of the ``instant`` if one is asked for, else the current one."""

    route: Route
    report: DocumentReport
    instant: Instant | None
    revision: Sidecar | None

    @property
    def address(self) -> DocumentAddress:
        return self.report.address

    @property
    def is_deleted(self) -> bool:
        return self.report.sidecar is not None and self.report.sidecar.deleted

    def path(self, endpoint: str, **values: Any) -> str:
        return document_path(endpoint, self.address, **values)


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """The page. It reads what is stored, without keys: encrypted values and files stay encrypted."""

    forms: ServedForms
    documents: Documents

    def add_to(self, site: Site) -> None:
        site.page(PATH, "document", self.show, reads="read")

    def show(self, app: str, form: str, collection: str, document: str) -> str:
        address = address_of(app, form, collection, document)
        shown = self._shown(address, asked_instant())
        language = request.args.get("lang") or None
        outline = outline_of(shown.route, shown.revision.version if shown.revision else 1)
        values = self._contents(shown, language)
        number = page_number(request.args.get("page", "1"))
        kept = {name: request.args[name] for name in ("at", "lang") if request.args.get(name)}
        revisions, total = _revisions(shown, number)
        return render_template(
            "document.html",
            shown=shown,
            title=title_of(_published(shown)),
            values=values,
            languages=outline.languages,
            language=language if language in outline.languages else next(iter(outline.languages), None),
            files=(files := _files(shown)),
            file_names={each.name for each in files},
            named_known=isinstance(shown.report.named, frozenset),
            most=REVISIONS_SHOWN,
            other=document_path("document", address.moved(Collection.DATA if address.is_draft else Collection.DRAFT)),
            action=lambda name, **values: action_path(name, address, **values),
            here=lambda **values: shown.path("document", **(kept | values)),
            revisions=revisions,
            total=total,
            page=number,
            pages=max(1, -(-total // REVISIONS_SHOWN)),
            lease=_lease(shown),
            sidecar=msgspec.json.format(msgspec.json.encode(shown.revision)).decode() if shown.revision else "",
        )

    def _shown(self, address: DocumentAddress, instant: Instant | None) -> ShownDocument:
        route = self.documents.router.of(address.form)
        place = self.forms.place_of(route)
        if place is None:
            raise NotFoundError(f"the service {route.properties.route.data.name} has the documents of {address.form}")
        report = report_document(place, address, with_revisions=False)
        revision = report.sidecar
        if instant is not None:
            found = route.storage.read_revision(address, instant, content=False)
            if found is None:
                raise NotFoundError(f"{address} has no revision of {instant}")
            revision = found.sidecar
        return ShownDocument(route, report, instant, revision)

    def _contents(self, shown: ShownDocument, language: str | None) -> ShownValues:
        revision = shown.revision
        if revision is None or revision.deleted:
            return ShownValues()
        try:
            read = self.documents.read(shown.address, Get(instant=shown.instant))
            return shown_values(shown.address, read, outline_of(shown.route, revision.version), language)
        except DamagedError as error:
            return ShownValues(cause=f"It is damaged: {error}")


def _published(shown: ShownDocument) -> PublishedVersion | None:
    if shown.revision is None:
        return None
    try:
        return shown.route.catalog.of(shown.address.form, shown.revision.version).published
    except PersistenceError:
        return None


def _files(shown: ShownDocument) -> list[ShownFile | Unreadable]:
    named = shown.report.named if isinstance(shown.report.named, frozenset) else frozenset[str]()
    files: list[ShownFile | Unreadable] = []
    for each in shown.report.attachments:
        if isinstance(each, Unreadable):
            files.append(each)
        else:
            kind, is_encrypted = each.content_type or "", each.is_encrypted
            preview = "" if is_encrypted else preview_of(kind)
            files.append(ShownFile(each.name, kind, each.size, preview, is_encrypted, each.name in named))
    return files


def _revisions(shown: ShownDocument, number: int) -> tuple[list[ListedRevision], int]:
    if not shown.address.keeps_history:
        return [], 0
    history = shown.route.storage.history(shown.address)
    if history is None:
        return [], 0
    begin = (number - 1) * REVISIONS_SHOWN
    # One more than is shown: the last one of a page is compared with the one before it.
    return history.page(begin, begin + REVISIONS_SHOWN + 1), history.total


def _lease(shown: ShownDocument) -> LockedError | None:
    try:
        shown.route.data.leases.require(shown.address, ANONYMOUS)
    except LockedError as error:
        return error
    return None
