"""The provider face behind the proxy of a runtime: how its requests are read (spec crud 11, spec forms 5.6)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flask import Blueprint, Request, Response

from persistence.errors import BadAddressError
from persistence.http.crud import METHODS
from persistence.http.parsing import RequestParser, instant_of
from persistence.model import versions
from persistence.model.texts import short
from persistence.model.users import User
from persistence.model.versions import VersionRequest
from persistence.services.requests import Delete, Origin, Put

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


class ProxiedParser(RequestParser):
    """Reads requests of a proxy, which hands on what its own caller sent and adds what it has found out.

    So what the proxy itself does is left to it: the document of which a version is wanted, and changes to what is read.
    """

    def put(self, request: Request) -> Put:
        """A PUT, but for its body."""
        put = super().put(request)
        is_singleton = (self._own(request.environ, "SINGLETON") or "").strip().lower() == "true"
        return replace(put, origin=self._origin(request, put.user), is_singleton=is_singleton)

    def delete(self, request: Request) -> Delete:
        """A DELETE."""
        delete = super().delete(request)
        return replace(delete, origin=self._origin(request, delete.user))

    def definition_format(self, request: Request) -> None:
        """Definitions are handed out as they are stored."""

    def nonrelevant(self, request: Request) -> None:
        """So is data."""

    def _version(self, environ: WSGIEnvironment) -> VersionRequest:
        return versions.parse(environ.get(self._prefix + "FORM_DEFINITION_VERSION"), None, None)

    def _origin(self, request: Request, user: User) -> Origin:
        """The creation and the owner that the proxy has found; the user's where it has found none."""
        environ = request.environ
        created = instant_of(self._own(environ, "CREATED_EXISTING"), "the creation that exists")
        if created is None:
            return Origin(None, user)
        name = short(self._own(environ, "USERNAME_EXISTING", is_exact=True), "owner's name") or user.name
        group = short(self._own(environ, "GROUP_EXISTING", is_exact=True), "owner's group") or user.group
        return Origin(created, User(name=name, group=group, organization=_organization(name, user)))


def _organization(owner: str | None, user: User) -> tuple[str, ...]:
    return user.organization if owner == user.name else ()


def unknown_paths() -> Blueprint:
    """What is no path of a resource: 400 for every method that resources have, so that all others stay 405."""
    blueprint = Blueprint("unknown", __name__, url_prefix="/crud")
    for rule in ("", "/", "/<path:rest>"):
        blueprint.add_url_rule(rule, view_func=_unknown, methods=METHODS, provide_automatic_options=False)
    return blueprint


def _unknown(rest: str = "") -> Response:
    raise BadAddressError(f"there are no resources under the path {rest!r}")
