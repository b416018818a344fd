"""Headers and parameters of a request, read once into the values the service works with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Request

from persistence.dialect import Dialect
from persistence.errors import BadRequestError
from persistence.model import users, versions
from persistence.model.instants import Instant
from persistence.model.instants import parse as parse_instant
from persistence.model.preconditions import parse as parse_precondition
from persistence.model.sidecar import ClientHash
from persistence.model.texts import flag, short
from persistence.model.users import User
from persistence.model.versions import Searched, VersionRequest
from persistence.services.migrating import target_of
from persistence.services.requests import Delete, Get, Put

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


class RequestParser:
    """Reads requests in one dialect. Every method raises ``BadRequestError`` for what is malformed."""

    def __init__(self, dialect: Dialect) -> None:
        self._prefix = "HTTP_" + dialect.header("").upper().replace("-", "_")

    def get(self, request: Request) -> Get:
        """A GET or HEAD."""
        is_get, environ = request.method == "GET", request.environ
        decrypt = environ.get(self._prefix + "DECRYPT") == "true"
        if not request.query_string:
            return Get(version=self._version(environ), content=is_get, user=self.user(request), decrypt=decrypt)
        self._refuse_purge(request)
        return Get(
            version=self._version(environ),
            instant=instant_of(request.args.get("last-modified-time"), "last-modified-time"),
            content=is_get,
            user=self.user(request),
            data_format=request.args.get("data-format-version"),
            decrypt=decrypt,
        )

    def put(self, request: Request) -> Put:
        """A PUT, but for its body."""
        environ = request.environ
        algorithm, value = self._own(environ, "HASH_ALGORITHM"), self._own(environ, "HASH_VALUE")
        return Put(
            version=self._version(environ),
            precondition=parse_precondition(environ.get("HTTP_IF_MATCH"), environ.get("HTTP_IF_NONE_MATCH")),
            data_format=request.args.get("data-format-version"),
            user=self.user(request),
            content_type=environ.get("CONTENT_TYPE"),
            valid=flag(request.args.get("valid") or None, "valid"),
            stage=short(self._own(environ, "WORKFLOW_STAGE"), "workflow stage"),
            source=short(request.args.get("document"), "document parameter"),
            client_hash=_client_hash(algorithm, value),
            flat_view=self.flat_view(request),
            holder=self._own(environ, "PATH_TO_HOLDER"),
        )

    def delete(self, request: Request) -> Delete:
        """A DELETE."""
        self._refuse_purge(request)
        if request.args.get("last-modified-time"):
            raise BadRequestError("deleting a single revision is not enabled on this service")
        environ = request.environ
        return Delete(
            version=self._version(environ),
            precondition=parse_precondition(environ.get("HTTP_IF_MATCH"), environ.get("HTTP_IF_NONE_MATCH")),
            user=self.user(request),
        )

    def definition_format(self, request: Request) -> str | None:
        """The format in which a definition is asked for; a HEAD may say anything (spec forms 1.1)."""
        word = request.args.get("form-definition-format-version") if request.query_string else None
        return target_of(word) if request.method == "GET" else word or None

    def nonrelevant(self, request: Request) -> str | None:
        """What is said about data that is not relevant (spec forms 3.1)."""
        return request.args.get("nonrelevant") if request.query_string else None

    def _version(self, environ: WSGIEnvironment) -> VersionRequest:
        return versions.parse(
            environ.get(self._prefix + "FORM_DEFINITION_VERSION"),
            self._own(environ, "FOR_DOCUMENT_ID"),
            environ.get(self._prefix + "FOR_DOCUMENT_ISDRAFT"),
        )

    def version_to_publish(self, request: Request) -> VersionRequest:
        """The version of a publication: the parameter, else the header (spec crud 8.3)."""
        said = request.args.get("form-definition-version")
        return versions.parse(said, None, None) if said else self._version(request.environ)

    def version_to_search(self, request: Request) -> int | Searched:
        """The version of which documents are looked for (spec search 1.4)."""
        return versions.parse_searched(request.environ.get(self._prefix + "FORM_DEFINITION_VERSION"))

    def version_to_reindex(self, request: Request) -> int:
        """The version that is indexed anew (spec search 5)."""
        return versions.parse_reindexed(request.environ.get(self._prefix + "FORM_DEFINITION_VERSION"))

    def version_to_reencrypt(self, request: Request) -> int | None:
        """The version whose data is encrypted anew; ``None`` for all (spec forms 4.5)."""
        return versions.number_only(self._version(request.environ), "encrypting anew")

    def user(self, request: Request) -> User:
        """Who is calling, as the caller says (spec crud 6.1)."""
        environ = request.environ
        credentials = self._own(environ, "CREDENTIALS", is_exact=True)
        if credentials and credentials.strip():
            return users.parse_credentials(credentials)
        return users.from_headers(
            self._own(environ, "USERNAME", is_exact=True),
            self._own(environ, "GROUP", is_exact=True),
            self._own(environ, "ROLES", is_exact=True),
        )

    def datasource(self, request: Request) -> str:
        """The name of the tree that is asked for; empty where none is named (spec crud 10.2)."""
        return (self._own(request.environ, "DATASOURCE") or "").strip()

    def flat_view(self, request: Request) -> bool:
        """Whether flat views are asked for (spec search 7.1)."""
        return (request.environ.get(self._prefix + "CREATE_FLAT_VIEW") or "").strip().lower() == "true"

    def _own(self, environ: WSGIEnvironment, name: str, *, is_exact: bool = False) -> str | None:
        """The text of a header; where ``is_exact``, bytes that are not UTF-8 are refused."""
        try:
            return _text(environ.get(self._prefix + name), is_exact=is_exact)
        except UnicodeError:
            raise BadRequestError(f"the header that ends in {name.title().replace('_', '-')} is not UTF-8") from None

    @staticmethod
    def _refuse_purge(request: Request) -> None:
        if request.method != "GET" and flag(request.args.get("force-delete") or None, "force-delete"):
            raise BadRequestError("purging (force-delete) is not enabled on this service")


def _text(value: str | None, *, is_exact: bool) -> str | None:
    """The text of a header: UTF-8 where its bytes are, Latin-1 otherwise (PEP 3333 hands on Latin-1).

    Raises:
        UnicodeError: they are not UTF-8, and ``is_exact``: guessed at, they could be the name of another user.
    """
    if value is None or value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        if is_exact:
            raise
        return value


def instant_of(value: str | None, name: str) -> Instant | None:
    """An instant; ``None`` where nothing, or only blanks, was sent. ``name`` is the error's word for it.

    Raises:
        BadRequestError: it is none.
    """
    if not value or not value.strip():
        return None
    try:
        return parse_instant(value.strip())
    except (ValueError, OverflowError) as error:
        raise BadRequestError(f"{name} must be an instant such as 2025-03-04T05:06:07.089Z, not {value!r}") from error


def _client_hash(algorithm: str | None, value: str | None) -> ClientHash | None:
    name, digest = short(algorithm, "hash algorithm"), short(value, "hash value")
    return ClientHash(name, digest) if name and digest else None
