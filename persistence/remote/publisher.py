"""Publishing on another server: its CRUD API is called as the designer calls it there (spec crud 5.1, 8.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

from persistence.errors import RemoteError, RemoteTimeoutError
from persistence.model.addresses import DefinitionAddress, Form
from persistence.model.sidecar import ClientHash
from persistence.model.versions import VersionRequest
from persistence.remote.remote_calls import DONE, Client
from persistence.storage.commit import OutgoingFile
from persistence.wire.connection import Answer, Call, HeaderField, HeaderFields, OutgoingContent

_HASH_ALGORITHM, _HASH_VALUE = "Hash-Algorithm", "Hash-Value"
_SHA_256 = "SHA-256"
_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RemotePublisher:
    """Publishes versions of a form on another server.

    ``fields`` go with each request, and so does ``source``, the id of the unpublished definition. ``flat_view`` asks
    for flat views (spec search 7.1). With ``is_forced`` attachments are sent although the server has them.
    """

    client: Client
    form: Form
    fields: HeaderFields
    source: str | None
    flat_view: bool
    is_forced: bool

    def publish(self, asked: VersionRequest, attachments: Sequence[OutgoingFile], main: OutgoingFile) -> int:
        """Store attachments, and then ``form.xhtml``; return the version that the server names.

        With ``next`` the server numbers all of them alike, unless somebody else publishes the form meanwhile. Then the
        attachments are stored again in the version of ``form.xhtml``.
        """
        sent_to: list[int | None] = []
        for file in attachments:
            with _after(f"after {len(sent_to)} of {len(attachments)} attachments"):
                sent_to.append(self._attachment(file, asked))
        with _after(f"after all {len(attachments)} attachments" if attachments else "without attachments"):
            flat_view = (self.client.names.field("Create-Flat-View", "true"),) if self.flat_view else ()
            version = self._put(main, asked, *flat_view)
            if version is None:
                raise RemoteError("the other server has stored form.xhtml, but does not say as which version")
        with _after(f"form.xhtml is version {version} on the other server, and lacks attachments"):
            for file, number in zip(attachments, sent_to, strict=True):
                if number not in (version, None):
                    self._attachment(file, VersionRequest(number=version))
        return version

    def _attachment(self, file: OutgoingFile, asked: VersionRequest) -> int | None:
        pair = file.client_hash or ClientHash(_SHA_256, _digest(file))
        if not self.is_forced and not asked.wants_next:
            with self.client.send(Call("HEAD", self._path(file), (*self.fields, *self._asked(asked)))) as answer:
                own = self.client.own(answer)
                there = ClientHash(own.text(_HASH_ALGORITHM) or "", own.text(_HASH_VALUE) or "")
                is_ours = pair.algorithm == _SHA_256 and pair.value.lower() == _digest(file)
                if answer.status == HTTPStatus.OK and (file.may_stay or (there == pair and is_ours)):
                    return self._version(answer)
        field = self.client.names.field
        return self._put(file, asked, field(_HASH_ALGORITHM, pair.algorithm), field(_HASH_VALUE, pair.value))

    def _put(self, file: OutgoingFile, asked: VersionRequest, *more: HeaderField) -> int | None:
        query = (("document", self.source),) if self.source else ()
        fields = (*self.fields, *self._asked(asked), ("Content-Type", file.content_type.encode("latin-1")), *more)
        with file.upload.opened() as content:
            call = Call("PUT", self._path(file), fields, query, OutgoingContent(content))
            answer = self.client.send(call)
        if answer.status not in DONE:
            line = answer.line()
            raise RemoteError(f"{self.client.label} answers {answer.status} to {call.label}{line and f': {line}'}")
        answer.close()
        return self._version(answer)

    def _path(self, file: OutgoingFile) -> str:
        return self.client.names.path(DefinitionAddress(self.form, 1, file.name))

    def _asked(self, asked: VersionRequest) -> HeaderFields:
        if asked.wants_next:
            return (self.client.names.version("next"),)
        return () if asked.number is None else (self.client.names.version(asked.number),)

    def _version(self, answer: Answer) -> int | None:
        text = self.client.own(answer).text("Form-Definition-Version") or ""
        return int(text) if _NUMBER.fullmatch(text) else None


def _digest(file: OutgoingFile) -> str:
    return file.upload.digest.partition(":")[2]


@contextmanager
def _after(before: str) -> Iterator[None]:
    try:
        yield
    except RemoteError as error:
        kind = RemoteTimeoutError if isinstance(error, RemoteTimeoutError) else RemoteError
        raise kind(f"{before}: {error}") from error
