"""The paths of the pages of a document, and the parameters that choose a revision."""

from __future__ import annotations

from typing import Any

from flask import request, url_for

from persistence.errors import NotFoundError
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.instants import Instant, parse
from persistence.pages.site import NAME

PATH = "/admin/forms/<app>/<form>/<any(data, draft):collection>/<document>"
"""The rule of the page of a document or a draft, below which others are."""


def address_of(app: str, form: str, collection: str, document: str, name: str = DATA_XML) -> DocumentAddress:
    return DocumentAddress(Form(app, form), Collection(collection), document, name)


def document_path(endpoint: str, address: DocumentAddress, **values: Any) -> str:
    form = address.form
    collection, document = address.collection.value, address.document
    return url_for(
        f"{NAME}.{endpoint}", app=form.app, form=form.name, collection=collection, document=document, **values
    )


def action_path(action: str, address: DocumentAddress, **values: Any) -> str:
    form = address.form
    return url_for(f"{NAME}.{action}", app=form.app, form=form.name, document=address.document, **values)


def asked_instant(name: str = "at") -> Instant | None:
    return instant_of(request.args.get(name, ""))


def instant_of(text: str) -> Instant | None:
    """Return the instant of a revision; ``None`` for no text."""
    try:
        return parse(text) if text else None
    except (ValueError, OverflowError):
        raise NotFoundError(f"{text[:60]!r} is not a time of a revision") from None
