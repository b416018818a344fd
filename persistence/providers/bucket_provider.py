"""Object stores as providers of attachments. Apart, because their library is loaded only where there are any."""

from __future__ import annotations

from functools import partial

from persistence.errors import StartupError
from persistence.model.network_addresses import Bucket
from persistence.properties.properties import ProviderProperties
from persistence.providers.locations import buckets_of
from persistence.providers.router import Engine, Opening, Provider
from persistence.s3.body_references import settle_notes
from persistence.s3.object_bodies import ObjectBodies, ObjectLimits, Objects
from persistence.settings import Settings
from persistence.storage.storage import KeepsHistory, Storage


class ObjectStores(Engine):
    """The engine of object stores, which keep attachments alone. Providers with one bucket share its connections.

    Bodies are received in the home of the settings, which also has notes of those without a record.
    """

    def __init__(self, opening: Opening) -> None:
        self._bodies_at = opening.bodies_at
        every = map(self._bodies_at, buckets_of(opening.properties))
        self.sweeps = [partial(settle_notes, bodies, opening.data_of) for bodies in every]

    def provider(self, configured: ProviderProperties) -> Provider:
        raise StartupError(
            f"provider {configured.name!r} keeps forms, and its uri is an object store, which keeps attachments alone:"
            " name it in base-path"
        )

    def bodies(self, configured: ProviderProperties, main: Storage) -> ObjectBodies:  # noqa: ARG002 - others need it
        if configured.place is None:
            raise StartupError(f"provider {configured.name!r} keeps attachments: its base-path must name a bucket")
        return self._bodies_at(configured.place)


def open_bodies(settings: Settings, keeps_history: KeepsHistory, place: Bucket) -> ObjectBodies:
    limits = ObjectLimits(settings.remote_connect, settings.remote_timeout, settings.remote_calls)
    return ObjectBodies(Objects(place, limits), settings.home, keeps_history)
