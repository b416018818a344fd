"""The other servers to which forms may be published, by the settings (spec crud 8.3)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from persistence.dialect import DIALECTS
from persistence.model import server_urls
from persistence.model.addresses import PUBLIC_PREFIX, Form
from persistence.model.server_urls import RemoteTarget, ServerUrl
from persistence.settings import Settings

if TYPE_CHECKING:
    from persistence.remote.publisher import RemotePublisher


class PublicationServers:
    """Calls the servers that the setting ``publish_to`` allows. They speak the dialect of this service."""

    def __init__(self, settings: Settings) -> None:
        self._allowed = tuple(map(server_urls.parse, settings.publish_to))
        self._settings = settings

    def require_allowed(self, url: str) -> ServerUrl:
        """Read the address of a server that may be published to."""
        return server_urls.require_allowed(url, self._allowed)

    @contextmanager
    def publisher(
        self, target: RemoteTarget, form: Form, *, user: str | None, source: str | None, flat_view: bool
    ) -> Iterator[RemotePublisher]:
        """Call a server for a block; ``user`` is named to it as the one who publishes, and no other header is sent.

        Redirects are not followed, and no proxy of the environment is used. ``source`` and ``flat_view``: see
        ``RemotePublisher``.
        """
        # Loads the HTTP client, which other services do not need.
        from persistence.remote.client import CallLimits, Client, Connections  # noqa: PLC0415
        from persistence.remote.headers import NothingForwarded  # noqa: PLC0415
        from persistence.remote.publisher import RemotePublisher  # noqa: PLC0415

        dialect = DIALECTS[self._settings.dialect]
        names = NothingForwarded(dialect, dialect)
        fields = [] if user is None else [names.field("Username", user)]
        if target.authorization is not None:
            fields.append(("Authorization", target.authorization.encode("ascii")))
        limits = CallLimits(self._settings.remote_connect, self._settings.remote_timeout, 1)
        with Connections(f"{target.server}{PUBLIC_PREFIX}", limits) as connections:
            client = Client("", names, connections)
            yield RemotePublisher(client, form, tuple(fields), source, flat_view, target.is_forced)
