"""The provider face behind the proxy of a runtime: how its requests are read (spec crud 11, spec forms 5.6)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flask import Flask, Request, Response

from persistence.errors import BadAddressError
from persistence.http.application import RESOURCE_METHODS, add_route
from persistence.http.parsing import RequestParser, instant_of
from persistence.model import versions
from persistence.model.texts import short
from persistence.model.users import User
from persistence.model.versions import VersionRequest
from persistence.services.requests import Delete, Origin, Put

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


class ProxiedParser(RequestParser):
    """Reads requests of a proxy, which passes on what its own caller sent and adds what it has found out.

    The proxy itself finds the version of a document, migrates definitions and removes data that is not relevant.
    """

    def put(self, request: Request) -> Put:
        """Read a PUT without its body."""
        put = super().put(request)
        is_singleton = (self._text(request.environ, "Singleton") or "").strip().lower() == "true"
        return replace(put, origin=self._origin(request, put.user), is_singleton=is_singleton)

    def delete(self, request: Request) -> Delete:
        """Read a DELETE."""
        delete = super().delete(request)
        return replace(delete, origin=self._origin(request, delete.user))

    def definition_format(self, request: Request) -> None:
        """Return ``None``: definitions are sent as they are stored."""

    def nonrelevant(self, request: Request) -> None:
        """Return ``None``: data is sent as it is stored."""

    def _version(self, environ: WSGIEnvironment) -> VersionRequest:
        return versions.parse(environ.get(self._keys["Form-Definition-Version"]), None, None)

    def _origin(self, request: Request, user: User) -> Origin:
        """Return the creation and the owner that the proxy has found; where it has found none, the user's."""
        environ = request.environ
        created = instant_of(self._text(environ, "Created-Existing"), "the creation that exists")
        if created is None:
            return Origin(None, user)
        existing_name, existing_group = self._exact(environ, "Username-Existing", "Group-Existing")
        name = short(existing_name, "owner's name") or user.name
        group = short(existing_group, "owner's group") or user.group
        organization = user.organization if name == user.name else ()
        return Origin(created, User(name=name, group=group, organization=organization))


def add_unknown_paths(app: Flask) -> None:
    """Answer 400 under all other paths of resources, to the methods that resources have; to others it stays 405."""
    for path in ("/crud", "/crud/", "/crud/<path:rest>"):
        add_route(app, path, _unknown, *RESOURCE_METHODS)


def _unknown(rest: str = "") -> Response:
    raise BadAddressError(f"there are no resources under the path {rest!r}")
