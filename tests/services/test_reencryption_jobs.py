"""The thread that re-encrypts forms, one job after the other."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from persistence.model.addresses import Form
from persistence.services.reencryption import ReencryptionJob, ReencryptionJobs
from tests.opened import opened
from tests.waiting import eventually


class _Reencryption:
    """Has every form, and a key."""

    has_key = True

    def has_form(self, form: Form) -> bool:
        del form
        return True


class _Job:
    """A job that ends with an error that nobody expected, or is done."""

    def __init__(self, form: Form, done: list[str]) -> None:
        self.form = form
        self.version = None
        self.reencryption = _Reencryption()
        self._done = done
        self.begun = threading.Event()

    def note_waiting(self) -> None:
        """Note nothing: there is no record."""

    def run(self, *_: object) -> int:
        if self.form.name == "broken":
            raise ZeroDivisionError("a defect")
        self._done.append(self.form.name)
        return 0


@pytest.mark.parametrize("before", ["broken", "fine"])
def test_a_defect_in_one_job_does_not_keep_others_from_running(before: str) -> None:
    done: list[str] = []
    told: list[tuple[Form, str]] = []

    def job_of(form: Form, version: int | None) -> ReencryptionJob:
        del version
        return cast("ReencryptionJob", cast("Any", _Job(form, done)))

    jobs = opened(ReencryptionJobs((), job_of, lambda form, cause: told.append((form, cause))))
    jobs.begin(Form("hr", before), None)
    jobs.begin(Form("hr", "last"), None)
    eventually(lambda: "last" in done)
    assert done[-1] == "last"
    assert told == ([(Form("hr", "broken"), "ZeroDivisionError: a defect")] if before == "broken" else [])
