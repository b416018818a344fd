"""The thread that re-encrypts forms, one job after the other."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from persistence.model.addresses import Form
from persistence.services.reencryption import ReencryptionJobs
from tests.opened import opened
from tests.waiting import eventually


@pytest.mark.parametrize("before", ["broken", "fine"])
def test_a_defect_in_one_job_does_not_keep_others_from_running(before: str) -> None:
    done: list[str] = []
    told: list[tuple[Form, str]] = []

    def job_of(form: Form, version: int | None) -> Any:
        """A job that ends with an error that nobody expected, or is done."""

        def run(*_: object) -> int:
            if form.name == "broken":
                raise ZeroDivisionError("a defect")
            done.append(form.name)
            return 0

        reencryption = SimpleNamespace(has_key=True, has_form=lambda _: True)
        own = {"form": form, "version": version, "begun": threading.Event(), "note_waiting": lambda: None}
        return SimpleNamespace(**own, reencryption=reencryption, run=run)

    jobs = opened(ReencryptionJobs((), job_of, lambda form, cause: told.append((form, cause))))
    jobs.begin(Form("hr", before), None)
    jobs.begin(Form("hr", "last"), None)
    eventually(lambda: "last" in done)
    assert done[-1] == "last"
    assert told == ([(Form("hr", "broken"), "ZeroDivisionError: a defect")] if before == "broken" else [])
