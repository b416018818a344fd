"""Removing objects that no record names: those of notes by the service itself, all others when a check asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from persistence.errors import PersistenceError
from persistence.limits import ABANDONED_OBJECT_AFTER
from persistence.model.addresses import Form
from persistence.s3.references import BodyReference, decode_references
from persistence.storage import files
from persistence.storage.storage import Revisions

if TYPE_CHECKING:  # both import a library that need not be installed
    from persistence.s3.bodies import ObjectBodies
    from persistence.s3.objects import ListedObject

MainOf = Callable[[Form], Revisions | None]
"""Returns the main storage of a form's data, if its attachments are in the place."""


def settle_notes(bodies: ObjectBodies, main_of: MainOf, age: float = ABANDONED_OBJECT_AFTER) -> int:
    """Remove the objects that notes name and no record does; return how many. Raises ``OSError`` too.

    A note whose records or objects cannot be looked at stays.
    """
    count = 0
    for path, lines in bodies.notes.left(age):
        with suppress(PersistenceError):
            references = decode_references(bodies.place, lines)
            if lines.strip() and not references:
                continue  # of another place
            unnamed = [each for each in references if _is_unnamed(each, main_of)]
            bodies.objects.remove([each.key for each in unnamed])
            files.remove_quietly(path)
            count += len(unnamed)
    return count


def _is_unnamed(reference: BodyReference, main_of: MainOf) -> bool:
    main = main_of(reference.address.form)
    return main is not None and not reference.is_named(main)


@dataclass(frozen=True, slots=True)
class StrayObject:
    """An object that no record names; ``reference`` is ``None`` where its key is not one that the service gives."""

    found: ListedObject
    reference: BodyReference | None


def stray_objects(
    bodies: ObjectBodies, main_of: MainOf, below: str = "", age: float = ABANDONED_OBJECT_AFTER
) -> Iterator[StrayObject | None]:
    """Yield the objects below the names of a key that no record names, and ``None`` for each that is in order.

    A younger one than ``age`` seconds is in order: its record may be about to be committed.
    """
    limit = datetime.now(UTC) - timedelta(seconds=age)
    for found in bodies.objects.listed(below):
        reference = BodyReference.of_key(found.key)
        is_stray = found.stored < limit and (reference is None or _is_unnamed(reference, main_of))
        yield StrayObject(found, reference) if is_stray else None
