"""All that is known of one published version of a form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from persistence.definitions.catalog import Catalog
from persistence.errors import DamagedError, DeletedError, DiskError, NotFoundError
from persistence.forms.controls import Control
from persistence.maintenance.sight import Attachment, Faulty, Origin, Sight
from persistence.model.addresses import FORM_XHTML, DefinitionAddress, Form
from persistence.model.form_versions import PublishedVersion
from persistence.model.permissions import Permissions
from persistence.services.access import permissions_of
from persistence.services.definitions import latest_version


@dataclass(frozen=True, slots=True)
class Edition:
    """A published version. ``source`` is the id of the unpublished definition that it was made of, where that is known.

    ``permissions`` are those in force, ``size`` is in bytes, ``path`` that of its file, and ``data_format`` the format
    of data at rest, in which the controls' paths are to be told.
    """

    published: PublishedVersion
    source: str | None
    size: int
    is_edited: bool
    is_singleton: bool
    permissions: Permissions | None
    permissions_from: Origin
    others: tuple[int | Faulty, ...]
    attachments: tuple[Attachment | Faulty, ...]
    controls: tuple[Control, ...] | Faulty
    data_format: str
    path: str

    @property
    def is_damaged(self) -> bool:
        """Whether anything of it, or another version, cannot be read."""
        return any(isinstance(each, Faulty) for each in (self.controls, *self.others, *self.attachments))


def edition(sight: Sight, form: Form, version: int | None = None) -> Edition:
    """A version of a form, or the highest one that is published.

    Raises:
        NotFoundError: it was never published.
        DeletedError: it was deleted.
        BadAddressError: a name cannot be a file name.
        DamagedError: it cannot be read.
    """
    number = latest_version(sight.store, form) if version is None else version
    if number is None:
        raise NotFoundError(f"{form} has no published version")
    address = DefinitionAddress(form, number, FORM_XHTML)
    found, published = sight.store.read(address, content=False), sight.catalog_of(form).of(form, number).published
    if found is not None and found.sidecar.deleted:
        raise DeletedError(f"{form}/{number} was deleted at {found.sidecar.modified}{_by(found.sidecar.modifier)}")
    if found is None or published is None:
        raise NotFoundError(f"{form}/{number} does not exist")
    return Edition(
        published,
        source=found.sidecar.source,
        size=found.size,
        is_edited=found.is_edited,
        is_singleton=sight.is_singleton(published),
        permissions=permissions_of(published, sight.properties.of(form)),
        permissions_from=sight.origin(published),
        others=tuple(_others(sight, form, number)),
        attachments=tuple(sight.attachments(address)),
        controls=_controls(sight, form, number),
        data_format=sight.properties.of(form).data_format,
        path=sight.layout.place(address).content,
    )


def _by(modifier: str | None) -> str:
    return "" if modifier is None else f" by {modifier}"


def _others(sight: Sight, form: Form, version: int) -> Iterator[int | Faulty]:
    for number in sorted({*sight.store.versions(form)} - {version}):
        try:
            if sight.catalog_of(form).of(form, number).published is not None:
                yield number
        except (DamagedError, DiskError) as error:
            yield Faulty(str(number), str(error))


def _controls(sight: Sight, form: Form, version: int) -> tuple[Control, ...] | Faulty:
    try:
        return Catalog(sight.store).of(form, version).controls or ()
    except (DamagedError, DiskError) as error:
        return Faulty(FORM_XHTML, str(error))
