"""The option ``--attachments`` of commands that fill a storage: the place for the attachments."""

from __future__ import annotations

from typing import Literal

import click
import msgspec

from persistence.cli.options import Option
from persistence.errors import BadRequestError
from persistence.model.object_places import Bucket, parse_addressed_bucket
from persistence.properties.properties import Properties
from persistence.providers.locations import buckets_of
from persistence.providers.opened import bucket_bodies, with_calls_of_a_move
from persistence.settings import Settings
from persistence.storage.managed import ListedBodies
from persistence.storage.storage import keeps_all

WITH_DATA: Literal["with-data"] = "with-data"
"""The value of the option for attachments that come to their data."""

Attachments = Bucket | Literal["with-data"]


class _AttachmentsType(click.ParamType[Attachments]):
    name = "place of attachments"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Attachments:
        if value == WITH_DATA:
            return WITH_DATA
        try:
            return value if isinstance(value, Bucket) else parse_addressed_bucket(str(value))
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
    if not isinstance(given, Bucket):
        return None
    place, known = given, buckets_of(properties)
    if not place.endpoint and not place.region:
        place = next((each for each in known if str(each) == str(place)), place)
    for each in known:
        if place.meets(each) and str(each) != str(place):
            raise click.UsageError(f"{place} overlaps {each}: each place needs a prefix of its own")
    # A service with that storage finds the notes there.
    there = msgspec.structs.replace(with_calls_of_a_move(settings), data=location)
    bodies = bucket_bodies(there, keeps_all)(place)
    next(bodies.objects.listed(), None)  # refused now, and not after the first document
    return bodies
