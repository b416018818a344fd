"""Which versions of a form a search looks at (spec search 1.4)."""

from __future__ import annotations

from dataclasses import dataclass

from persistence.dialect import Dialect
from persistence.model.addresses import DESIGNER_VERSION, Form
from persistence.model.versions import Searched, VersionRequest, only_first
from persistence.properties.properties import Properties
from persistence.services.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that are looked at, all of them where it is ``None``, and the one whose definition counts."""

    versions: tuple[int, ...] | None
    definition: int


def searched(
    form: Form, asked: int | Searched, *, catalog: Catalog, properties: Properties, dialect: Dialect
) -> Versions:
    """What a request means by its version.

    Raises:
        VersionError: the form has version 1 only, and another was asked for.
        DamagedError, DiskError: a definition cannot be read.
    """
    is_designer = dialect.is_designer(form)
    if not is_designer and not properties.of(form).has_versions:
        if isinstance(asked, int):
            only_first(VersionRequest(number=asked))
        return Versions((1,), 1)
    if isinstance(asked, int):
        return Versions((asked,), asked)
    if is_designer:  # nothing is published of it
        return Versions(None, DESIGNER_VERSION)
    latest = next(catalog.versions(form), None)
    if latest is None:
        # What was deleted still says who may see its data: that of the versions that say the same.
        alike = catalog.alike(form)
        return Versions(alike, alike[0]) if alike else Versions(None, 1)
    return Versions(None if asked is Searched.ALL else (latest.version,), latest.version)
