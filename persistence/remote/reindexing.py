"""Indexes that another service makes anew (spec search 5)."""

from __future__ import annotations

from http import HTTPStatus

from persistence.errors import MalformedXmlError, RemoteError
from persistence.forms.messages import read_request
from persistence.index.protocol import ReindexingState, ReindexingStatus
from persistence.limits import LARGEST_ANSWER
from persistence.model.addresses import Form
from persistence.remote.caller import Caller
from persistence.remote.client import Call
from persistence.remote.names import Fields, path

_LONGEST = 24 * 3600.0
"""Seconds without a byte: the answer comes when the index is made."""

_DONE = (HTTPStatus.OK, HTTPStatus.NO_CONTENT)
_NO_PART = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


class RemoteReindexing:
    """A ``Reindexer`` that hands on what it is asked; a provider that makes no indexes takes no part."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def all(self) -> None:
        """As ``Reindexer`` says."""
        self._make("/reindex", ())

    def version(self, form: Form, number: int) -> None:
        """As ``Reindexer`` says."""
        names = self._caller.names
        version = (names.field("Form-Definition-Version", str(number)),)
        self._make(path("reindex", names.app(form.app), form.name), version)

    def status(self) -> ReindexingStatus:
        """As ``Reindexer`` says."""
        answer = self._caller.send(Call("GET", "/reindex/status"))
        if answer.status != HTTPStatus.OK:
            answer.close()
            return ReindexingStatus()
        try:
            said = read_request([answer.whole(LARGEST_ANSWER)], ()).root.attributes
            state = ReindexingState(said.get("state", ""))
            return ReindexingStatus(state, int(said.get("document-current", "0")), int(said.get("document-total", "0")))
        except (MalformedXmlError, ValueError) as error:
            raise RemoteError(f"provider {self._caller.who!r} does not say how far its index is") from error

    def _make(self, asked: str, fields: Fields) -> None:
        length = (("Content-Length", b"0"), *fields)
        answer = self._caller.send(Call("POST", asked, length, silence=_LONGEST))
        if answer.status not in (*_DONE, *_NO_PART):
            raise answer.refused(f"POST {asked}")
        answer.close()
