"""Holder paths: the texts by which form data and definitions name their attachments (seed, rule 4; spec forms 6.7)."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from persistence.limits import LONGEST_PATH
from persistence.model.addresses import DATA_XML, FORM_XHTML, Collection, Form

SERVICE_PREFIX = "/fr/service"
"""Where all services of the form runtime lie."""
PUBLIC_PREFIX = f"{SERVICE_PREFIX}/persistence"
"""Where the interface lies for those who read and write forms."""

_CRUD = f"{PUBLIC_PREFIX}/crud/"
_OF_DEFINITION = 4
_OF_DOCUMENT = 5


@dataclass(frozen=True, slots=True)
class Held:
    """The attachment that a holder path names: of a document, or without a collection of a form definition.

    The version of a form definition is not in the path.
    """

    form: Form
    collection: Collection | None
    document: str
    name: str


def parse(text: str) -> Held | None:
    """Read the text of an element; ``None`` where it is not the path of an attachment."""
    path = text.strip()
    if not path.startswith(_CRUD) or len(path) > LONGEST_PATH:
        return None
    try:
        parts = [unquote(part, errors="strict") for part in path[len(_CRUD) :].partition("?")[0].split("/")]
    except UnicodeDecodeError:  # no resource is called so
        return None
    if parts[-1] in ("", DATA_XML, FORM_XHTML):
        return None
    if len(parts) == _OF_DEFINITION and parts[2] == "form":
        return Held(Form(parts[0], parts[1]), None, "", parts[3])
    if len(parts) == _OF_DOCUMENT and parts[2] in ("data", "draft"):
        return Held(Form(parts[0], parts[1]), Collection(parts[2]), parts[3], parts[4])
    return None


def of_definition(form: Form, name: str) -> str:
    """The holder path of an attachment of a form definition."""
    app, form_name, file = (quote(part, safe="") for part in (form.app, form.name, name))
    return f"{_CRUD}{app}/{form_name}/form/{file}"
