"""Contents of documents for a browser: XML and attachments to download, and images and PDF to look at.

A content is a stranger's: it may be a page with scripts. Only a few types are shown in the browser, under a policy that
lets them load and run nothing and takes their origin from them; all else is saved as a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from flask import Response, request
from werkzeug.wrappers import Response as AnyResponse

from persistence.errors import ForbiddenError, disk_errors
from persistence.http.logs import REQUEST_ID, Unbroken
from persistence.http.responses import SHOWN_TYPES
from persistence.limits import CHUNK
from persistence.model.addresses import DocumentAddress
from persistence.pages.document_paths import PATH, address_of, asked_instant
from persistence.pages.site import Site
from persistence.services.documents import Documents
from persistence.services.rules import Get

_PDF = "application/pdf"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def preview_of(content_type: str | None) -> str:
    """Return how an attachment can be shown: ``image``, ``pdf``, or empty."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind not in SHOWN_TYPES:
        return ""
    return "image" if kind.startswith("image/") else ("pdf" if kind == _PDF else "")


@dataclass(frozen=True, slots=True)
class ContentRoutes:
    """The routes of contents. Encrypted ones are refused."""

    documents: Documents

    def add_to(self, site: Site) -> None:
        site.page(f"{PATH}/data.xml", "document-xml", self.xml, reads="read")
        site.page(f"{PATH}/attachments/<name>", "attachment", self.attachment, reads="read")

    def xml(self, app: str, form: str, collection: str, document: str) -> AnyResponse:
        return self._sent(address_of(app, form, collection, document), "application/xml")

    def attachment(self, app: str, form: str, collection: str, document: str, name: str) -> AnyResponse:
        """Answer with an attachment, shown inline if that is asked for and safe, else as a download."""
        return self._sent(address_of(app, form, collection, document, name), "")

    def _sent(self, address: DocumentAddress, content_type: str) -> AnyResponse:
        found = self.documents.read(address, Get(instant=asked_instant())).found
        if found.sidecar.encrypted and not address.is_main:
            found.close()
            raise ForbiddenError(f"{address} is encrypted, and these pages do not decrypt")
        given = (found.sidecar.content_type or "").partition(";")[0].strip().lower()
        is_shown = request.args.get("show") == "yes" and bool(preview_of(given))
        kind = content_type or (given if preview_of(given) else "application/octet-stream")
        name = _UNSAFE.sub("_", address.name)
        headers = {
            "Content-Security-Policy": _POLICY,
            "Content-Disposition": f'{"inline" if is_shown else "attachment"}; filename="{name}"',
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        body = Unbroken(_pieces(found.opened, address), request.environ.get(REQUEST_ID))
        return Response(body, content_type=kind, headers=headers)


def _pieces(file: BinaryIO, address: DocumentAddress) -> Iterator[bytes]:
    with file, disk_errors(f"reading {address}"):
        yield from iter(partial(file.read, CHUNK), b"")
