"""The counts of all forms for the pages, made in the background, because counting reads a record of each document.

A page shows the last counts with their time. A look at it begins new ones, the more seldom the longer they take.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from persistence.errors import PersistenceError
from persistence.limits import COUNTING_AWAITED, COUNTING_SHARE, FORMS_COUNTED
from persistence.maintenance.counts import FormCounts, count_documents
from persistence.maintenance.reports import TreeReader
from persistence.model.addresses import Form

PlacesOfForms = Callable[[], Iterable[tuple[Form, TreeReader]]]
"""Returns every form whose documents are counted, with the place that has them."""


@dataclass(frozen=True, slots=True)
class CountedForms:
    """Counts by form; ``at`` is when they were complete, in seconds since 1970, ``None`` before the first time."""

    counts: Mapping[Form, FormCounts] = field(default_factory=dict)
    at: float | None = None


class FormCounting:
    """Counts in a thread that ends with its work; one for all threads of a worker."""

    def __init__(self, places: PlacesOfForms) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._last = CountedForms()
        self._began = 0.0
        self._took = 0.0
        self._due = 0.0

    def counted(self) -> CountedForms:
        """Return the known counts; wait for new ones that are quick."""
        with self._lock:
            if self._thread is None and time.monotonic() >= self._due:
                self._thread = threading.Thread(target=self._count, name="counts of forms", daemon=True)
                self._began = time.monotonic()
                self._thread.start()
            counting, left = self._thread, self._began + COUNTING_AWAITED - time.monotonic()
        if counting is not None and left > 0 and self._took <= COUNTING_AWAITED:
            counting.join(left)
        return self._last

    def _count(self) -> None:
        began = time.monotonic()
        known = dict(self._last.counts)
        try:
            found: dict[Form, FormCounts] = {}
            for form, place in islice(self._places(), FORMS_COUNTED):
                found[form] = known[form] = count_documents(place, form)
                if self._last.at is None:
                    self._last = CountedForms(dict(known))
            self._last = CountedForms(found, time.time())
        except PersistenceError:  # other pages report the same fault
            self._last = CountedForms(known, self._last.at)
        finally:
            self._took = time.monotonic() - began
            self._due = time.monotonic() + self._took / COUNTING_SHARE
            with self._lock:
                self._thread = None
