"""Calls of one provider on behalf of the client whose request is served."""

from __future__ import annotations

from dataclasses import dataclass, replace
from http import HTTPStatus

from persistence import client_request
from persistence.limits import LARGEST_ANSWER
from persistence.remote.client import Answer, Call, Client
from persistence.remote.names import Names


@dataclass(frozen=True, slots=True)
class Caller:
    """The provider ``who`` with its client and names. Methods raise ``RemoteError`` and ``BusyError``."""

    who: str
    client: Client
    names: Names

    def send(self, call: Call) -> Answer:
        """The answer to a call, whatever it is; the call says who the client is, too."""
        told = self.names.told(client_request.current())
        return self.client.send(replace(call, fields=(*told, *call.fields)))

    def ask(self, call: Call) -> bytes:
        """The body of a good answer, which is read into memory.

        Raises:
            PersistenceError: what any other answer means.
        """
        answer = self.send(call)
        if answer.status != HTTPStatus.OK:
            raise answer.refused(call.what)
        return answer.whole(LARGEST_ANSWER)

    def ask_with(self, call: Call, body: bytes) -> bytes:
        """The same for a call with a body of XML."""
        fields = (("Content-Type", b"application/xml"), ("Content-Length", b"%d" % len(body)))
        return self.ask(replace(call, fields=(*call.fields, *fields), body=[body]))
