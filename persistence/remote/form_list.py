"""The list of forms that are published elsewhere, by the form metadata API (spec crud 8.8, search 4)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from persistence import client_request
from persistence.errors import BadRequestError, MalformedXmlError, RemoteError
from persistence.forms.form_list_xml import read_form_list
from persistence.model import instants
from persistence.model.addresses import Form
from persistence.model.form_query import ListedVersion
from persistence.model.instants import Instant, epoch_nanoseconds
from persistence.remote.client import Client
from persistence.remote.provider_names import path
from persistence.storage.stored_revision import Fingerprint

_ALL = (("all-versions", "true"), ("all-forms", "true"))
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ListedDefinition:
    """A published version, and a checksum of its entry in the list."""

    number: int
    modified: Instant
    sum: int

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of its ``form.xhtml``."""
        return (self.sum, epoch_nanoseconds(self.modified), self.number), None


Definitions = dict[int, ListedDefinition]


class PublishedList:
    """Asks for the list once for each request of a client, so that nobody misses what was published before."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def versions(self, form: Form) -> Definitions:
        """Return the published versions of a form, highest first."""
        return client_request.current().once(self._key(form), lambda: self._asked(form.app, form.name).get(form, {}))

    def forms(self, app: str | None) -> Iterator[Form]:
        """Yield the published forms, or those of one application."""
        request = client_request.current()
        for form, versions in request.once((*self._key(None), app), lambda: self._asked(app, None)).items():
            request.known.setdefault(self._key(form), versions)
            yield form

    def ask_again(self, form: Form) -> None:
        """Ask again from now on: something of a form was published, or deleted."""
        client_request.current().known.pop(self._key(form), None)

    def _key(self, form: Form | None) -> tuple[object, ...]:
        return PublishedList, self._client.who, form

    def _asked(self, app: str | None, name: str | None) -> dict[Form, Definitions]:
        names = self._client.names
        segments = [segment for segment in (app if app is None else names.app(app), name) if segment is not None]
        try:
            listed = read_form_list([self._client.ask(path("form", *segments), _ALL)])
        except MalformedXmlError as error:
            raise RemoteError(f"provider {self._client.who!r} answers with a list of forms that is none") from error
        found: dict[Form, Definitions] = {}
        for each in listed:
            definition = _definition(each)
            if definition is not None:
                found.setdefault(Form(names.app(each.app), each.name), {})[definition.number] = definition
        return {form: dict(sorted(versions.items(), reverse=True)) for form, versions in found.items()}


def _definition(listed: ListedVersion) -> ListedDefinition | None:
    """Return the version of an entry; ``None`` where it is none: another service may list what cannot be here."""
    if not (listed.app and listed.name and _NUMBER.fullmatch(listed.version) and int(listed.version)):
        return None
    try:
        modified = instants.from_datetime(instants.parse_time(listed.modified, "last-modified-time"))
    except BadRequestError:
        return None
    return ListedDefinition(int(listed.version), modified, listed.sum)
