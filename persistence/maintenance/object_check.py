"""Objects in a bucket that no record names, and their removal.

Nothing is removed for a form of which there are no records at all: whoever checks with the wrong data directory would
otherwise lose every body in the bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

from persistence.errors import ConfigurationError, StartupError
from persistence.maintenance.findings import Finding, FindingKind, Remedy, Report, Treatment
from persistence.model.addresses import Form
from persistence.s3.sweep import StrayObject, stray_objects
from persistence.storage.storage import Readable

if TYPE_CHECKING:  # it imports a library that need not be installed
    from persistence.s3.bodies import ObjectBodies

RecordsOf = Callable[[Form], str | None]
"""Returns the tree or database with the records of a form's bodies; ``None`` if the properties lead elsewhere."""


class ObjectsCheck:
    """One check of a place in an object store for objects without a record; those that are young are left alone.

    ``places`` are the usable trees by their roots, and databases by their addresses. Objects of others are skipped,
    because without their records every object would look like a stray.
    """

    def __init__(
        self, bodies: ObjectBodies, records_of: RecordsOf, places: Mapping[str, Readable], remedies: frozenset[Remedy]
    ) -> None:
        self._bodies = bodies
        self._records_of = records_of
        self._places = places
        self._treatment = Treatment(remedies)
        self.totals = self._treatment.totals
        self._known = cache(self._is_known)

    def run(self, below: str = "") -> Iterator[Report | None]:
        """Check the objects below the names of a key; yield ``None`` for each that is in order."""
        for each in stray_objects(self._bodies, self._main_of, below.strip("/")):
            if each is None:
                yield None
                continue
            finding = self._finding(each)
            yield self._treatment.apply(finding, partial(self._bodies.objects.remove, [each.found.key]))

    def _finding(self, stray: StrayObject) -> Finding:
        path = f"{self._bodies.place}/{stray.found.key}"
        if stray.reference is None:
            return FindingKind.FOREIGN.at(path, "a key that the service does not give")
        form = stray.reference.address.form
        if self._place(form) is None:
            return FindingKind.FOREIGN.at(path, "no property leads here from this form: nobody looks for these bodies")
        if not self._known(form):
            return FindingKind.FOREIGN.at(path, f"there are no records of {form}: is it the right data directory?")
        return FindingKind.STRAY_OBJECT.at(path, "a body that no record names, stored more than an hour ago")

    def _main_of(self, form: Form) -> Readable | None:
        """Return the place with the records of a form; ``None`` where nobody can say what they name.

        Where no property leads here, any place does: what it names is in order.
        """
        place = self._place(form)
        return next(iter(self._places.values()), None) if place is None else self._places.get(place)

    def _place(self, form: Form) -> str | None:
        try:
            return self._records_of(form)
        except (ConfigurationError, StartupError):  # the form has no provider any more
            return None

    def _is_known(self, form: Form) -> bool:
        main = self._main_of(form)
        return main is not None and form in main.forms(form.app)
