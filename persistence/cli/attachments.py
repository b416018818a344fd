"""The option ``--attachments`` of commands that fill a storage: the place for the attachments."""

from __future__ import annotations

from typing import Literal

import click

from persistence.cli.options import Option
from persistence.errors import BadRequestError
from persistence.model.object_places import ObjectPlace, addressed_place
from persistence.properties.properties import Properties
from persistence.providers.locations import object_places_of
from persistence.providers.opened import arriving_bodies
from persistence.settings import Settings
from persistence.storage.managed import ListedBodies

WITH_DATA: Literal["with-data"] = "with-data"
"""The value of the option for attachments that come to their data."""

Attachments = ObjectPlace | Literal["with-data"]


class _AttachmentsType(click.ParamType[Attachments]):
    name = "place of attachments"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Attachments:
        if value == WITH_DATA:
            return WITH_DATA
        try:
            return value if isinstance(value, ObjectPlace) else addressed_place(str(value))
        except BadRequestError as error:
            self.fail(f"{error}; or {WITH_DATA}", param, ctx)


def attachments_option(text: str) -> Option:
    return click.option("--attachments", metavar=f"s3://BUCKET/PREFIX|{WITH_DATA}", type=_AttachmentsType(), help=text)


def open_attachments(
    settings: Settings, properties: Properties, location: str, given: Attachments | None
) -> ListedBodies | None:
    """Open the place for the attachments of the tree or database ``location``; ``None`` if they come to their data.

    A place of a provider is in the store of that provider, unless the option names another endpoint or region.
    """
    if not isinstance(given, ObjectPlace):
        return None
    place, known = given, object_places_of(properties)
    if not place.endpoint and not place.region:
        place = next((each for each in known if str(each) == str(place)), place)
    for each in known:
        if place.meets(each) and str(each) != str(place):
            raise click.UsageError(f"{place} overlaps {each}: each place needs a prefix of its own")
    bodies = arriving_bodies(settings, location, place)
    next(bodies.objects.listed(), None)  # refused now, and not after the first document
    return bodies
