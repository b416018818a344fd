"""Object stores as providers of attachments. Apart, because their library is loaded only where there are any."""

from __future__ import annotations

from functools import partial

from persistence.errors import StartupError
from persistence.model.addresses import Form
from persistence.model.object_places import ObjectPlace
from persistence.properties.properties import ProviderProperties
from persistence.providers.locations import object_places_of
from persistence.providers.provider import Opening, Provider
from persistence.s3.bodies import ObjectBodies
from persistence.s3.objects import ObjectLimits, Objects
from persistence.s3.sweep import settle_notes
from persistence.settings import Settings
from persistence.storage.storage import KeepsHistory, Revisions, Storage


class ObjectStores:
    """The engine of object stores, which keep attachments alone. Providers with one place share its connections.

    Bodies are received in the home of the settings, where it is noted, too, which of them have no record yet.
    """

    calls_others = False
    written = ()

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        settings, properties = opening.settings, opening.properties
        keeps_history = properties.keeps_history
        self._at = {place: open_bodies(settings, keeps_history, place) for place in object_places_of(properties)}
        self.sweeps = [partial(settle_notes, bodies, self._main) for bodies in self._at.values()]

    def provider(self, configured: ProviderProperties) -> Provider:
        """Refuse to keep forms. See ``Engine``."""
        raise StartupError(
            f"provider {configured.name!r} keeps forms, and its uri is an object store, which keeps attachments alone:"
            " name it in base-path"
        )

    def bodies(self, configured: ProviderProperties, main: Storage) -> ObjectBodies:  # noqa: ARG002 - others need it
        if configured.place is None:
            raise StartupError(f"provider {configured.name!r} keeps attachments: its base-path must name a bucket")
        return self._at[configured.place]

    def _main(self, form: Form) -> Revisions:
        return self._opening.route_of(form).data.storage


def open_bodies(settings: Settings, keeps_history: KeepsHistory, place: ObjectPlace) -> ObjectBodies:
    """Return the bodies at a place; nothing is asked of the store yet."""
    limits = ObjectLimits(settings.remote_connect, settings.remote_timeout, settings.remote_calls)
    return ObjectBodies(Objects(place, limits), settings.home, keeps_history)
