"""Which versions of which forms are published elsewhere, by the form metadata API (spec crud 8.8, search 4)."""

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
from persistence.remote.caller import Caller
from persistence.remote.client import Call
from persistence.remote.names import path
from persistence.storage.stored_revision import Fingerprint

_ALL = (("all-versions", "true"), ("all-forms", "true"))
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Version:
    """A published version, and what tells it from every other state of it."""

    number: int
    modified: Instant
    sum: int

    @property
    def fingerprint(self) -> Fingerprint:
        """The mark of its ``form.xhtml``."""
        return (self.sum, epoch_nanoseconds(self.modified), self.number), None


Versions = dict[int, Version]


class Listing:
    """Asks once for each request of a client what is published: so nobody misses what anyone has published before."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def versions(self, form: Form) -> Versions:
        """The published versions of a form, highest first."""
        return client_request.current().once(self._key(form), lambda: self._asked(form.app, form.name).get(form, {}))

    def forms(self, app: str | None) -> Iterator[Form]:
        """The published forms, or those of one application."""
        request = client_request.current()
        for form, versions in request.once((*self._key(None), app), lambda: self._asked(app, None)).items():
            request.known.setdefault(self._key(form), versions)
            yield form

    def forget(self, form: Form) -> None:
        """Ask again from now on: something of a form is published, or deleted."""
        client_request.current().known.pop(self._key(form), None)

    def _key(self, form: Form | None) -> tuple[object, ...]:
        return Listing, self._caller.who, form

    def _asked(self, app: str | None, name: str | None) -> dict[Form, Versions]:
        names = self._caller.names
        segments = [segment for segment in (app if app is None else names.app(app), name) if segment is not None]
        try:
            listed = read_form_list([self._caller.ask(Call("GET", path("form", *segments), query=_ALL))])
        except MalformedXmlError as error:
            raise RemoteError(f"provider {self._caller.who!r} answers with a list of forms that is none") from error
        found: dict[Form, Versions] = {}
        for each in listed:
            version = _version(each)
            if version is not None:
                found.setdefault(Form(names.app(each.app), each.name), {})[version.number] = version
        return {form: dict(sorted(versions.items(), reverse=True)) for form, versions in found.items()}


def _version(listed: ListedVersion) -> Version | None:
    """The version that an entry means; ``None`` where it is none: another service may list what cannot be here."""
    if not (listed.app and listed.name and _NUMBER.fullmatch(listed.version) and int(listed.version)):
        return None
    try:
        modified = instants.from_datetime(instants.parse_time(listed.modified, "last-modified-time"))
    except BadRequestError:
        return None
    return Version(int(listed.version), modified, listed.sum)
