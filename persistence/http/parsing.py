"""Requests as values: headers and parameters, read once, and the services that are asked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
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
from persistence.services.requests import Delete, Get, Put
from persistence.services.services import Services
from persistence.services.transforms import migration_target

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

REQUEST_NAMES = frozenset(
    {
        "Created-Existing",
        "Create-Flat-View",
        "Credentials",
        "Datasource",
        "Decrypt",
        "For-Document-Id",
        "For-Document-IsDraft",
        "Form-Definition-Version",
        "Group",
        "Group-Existing",
        "Hash-Algorithm",
        "Hash-Value",
        "Path-To-Holder",
        "Roles",
        "Singleton",
        "Username",
        "Username-Existing",
        "Workflow-Stage",
    }
)
"""Headers of requests that are read, without the prefix of the dialect (spec crud 3)."""


def environ_key(header: str) -> str:
    """Return the key of a header in a WSGI environment."""
    return "HTTP_" + header.upper().replace("-", "_")


class RequestParser:
    """Reads requests in one dialect. Every method raises ``BadRequestError`` for what is malformed."""

    def __init__(self, dialect: Dialect) -> None:
        self._keys = {name: environ_key(dialect.header(name)) for name in REQUEST_NAMES}

    def get(self, request: Request) -> Get:
        """Read a GET or HEAD."""
        is_get, environ = request.method == "GET", request.environ
        decrypt = environ.get(self._keys["Decrypt"]) == "true"
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
        """Read a PUT without its body."""
        environ = request.environ
        algorithm, value = self._text(environ, "Hash-Algorithm"), self._text(environ, "Hash-Value")
        return Put(
            version=self._version(environ),
            precondition=parse_precondition(environ.get("HTTP_IF_MATCH"), environ.get("HTTP_IF_NONE_MATCH")),
            data_format=request.args.get("data-format-version"),
            user=self.user(request),
            content_type=environ.get("CONTENT_TYPE"),
            valid=flag(request.args.get("valid") or None, "valid"),
            stage=short(self._text(environ, "Workflow-Stage"), "workflow stage"),
            source=short(request.args.get("document"), "document parameter"),
            client_hash=_client_hash(algorithm, value),
            flat_view=self.flat_view(request),
            holder=self._text(environ, "Path-To-Holder"),
        )

    def delete(self, request: Request) -> Delete:
        """Read a DELETE."""
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
        """Return the format in which a definition is asked for; a HEAD may say anything (spec forms 1.1)."""
        word = request.args.get("form-definition-format-version")
        return migration_target(word) if request.method == "GET" else word or None

    def nonrelevant(self, request: Request) -> str | None:
        """Return the parameter about data that is not relevant (spec forms 3.1)."""
        return request.args.get("nonrelevant")

    def version_to_publish(self, request: Request) -> VersionRequest:
        """Return the version of a publication: the parameter, else the header (spec crud 8.3)."""
        parameter = request.args.get("form-definition-version")
        return versions.parse(parameter, None, None) if parameter else self._version(request.environ)

    def version_to_search(self, request: Request) -> int | Searched:
        """Return the version whose documents are searched (spec search 1.4)."""
        return versions.parse_searched(request.environ.get(self._keys["Form-Definition-Version"]))

    def version_to_reindex(self, request: Request) -> int:
        """Return the version whose index is rebuilt (spec search 5)."""
        return versions.parse_reindexed(request.environ.get(self._keys["Form-Definition-Version"]))

    def version_to_reencrypt(self, request: Request) -> int | None:
        """Return the version whose data is encrypted anew; ``None`` for all (spec forms 4.5)."""
        return versions.number_only(self._version(request.environ), "encrypting anew")

    def user(self, request: Request) -> User:
        """Return the user that the caller names (spec crud 6.1)."""
        environ = request.environ
        [credentials] = self._exact(environ, "Credentials")
        if credentials and credentials.strip():
            return users.parse_credentials(credentials)
        return users.from_headers(*self._exact(environ, "Username", "Group", "Roles"))

    def datasource(self, request: Request) -> str:
        """Return the name of the data source that is asked; empty where none is named (spec crud 10.2)."""
        return (self._text(request.environ, "Datasource") or "").strip()

    def flat_view(self, request: Request) -> bool:
        """Return whether flat views are asked for (spec search 7.1)."""
        return (request.environ.get(self._keys["Create-Flat-View"]) or "").strip().lower() == "true"

    def _version(self, environ: WSGIEnvironment) -> VersionRequest:
        return versions.parse(
            environ.get(self._keys["Form-Definition-Version"]),
            self._text(environ, "For-Document-Id"),
            environ.get(self._keys["For-Document-IsDraft"]),
        )

    def _text(self, environ: WSGIEnvironment, name: str) -> str | None:
        """Return a header: UTF-8 where its bytes are, else Latin-1, which is what WSGI passes on (PEP 3333)."""
        value: str | None = environ.get(self._keys[name])
        if value is None or value.isascii():
            return value
        with suppress(UnicodeError):
            return value.encode("latin-1").decode()
        return value

    def _exact(self, environ: WSGIEnvironment, *names: str) -> list[str | None]:
        """Return headers that must be UTF-8: guessed at, one could be the name of another user.

        Raises:
            BadRequestError: one is not.
        """
        values: list[str | None] = [environ.get(self._keys[name]) for name in names]
        for at, value in enumerate(values):
            if value is not None and not value.isascii():
                try:
                    values[at] = value.encode("latin-1").decode()
                except UnicodeError:
                    raise BadRequestError(f"the header that ends in {names[at]} is not UTF-8") from None
        return values

    @staticmethod
    def _refuse_purge(request: Request) -> None:
        if request.method != "GET" and flag(request.args.get("force-delete") or None, "force-delete"):
            raise BadRequestError("purging (force-delete) is not enabled on this service")


def instant_of(value: str | None, name: str) -> Instant | None:
    """Return an instant; ``None`` where nothing, or only blanks, was sent. ``name`` is for the error.

    Raises:
        BadRequestError: it is no instant.
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


@dataclass(frozen=True, slots=True)
class Face:
    """A set of paths below ``prefix``: how its requests are read, and the services that answer them.

    ``named`` are the services of the data sources that a header may name instead; ``None`` where it is not read.
    """

    prefix: str
    parser: RequestParser
    default: Services
    named: Mapping[str, Services] | None = None

    def services(self, request: Request) -> Services:
        """Return the services that a request asks (spec crud 10.2).

        Raises:
            BadRequestError: it names a data source that there is not.
        """
        name = "" if self.named is None else self.parser.datasource(request)
        if self.named is None or not name:
            return self.default
        found = self.named.get(name)
        if found is None:
            raise BadRequestError(f"there is no datasource {name!r} here")
        return found
