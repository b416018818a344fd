"""Concurrency over HTTP: eight processes on three documents."""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.rigs.load.hammer import DOCUMENTS, body_of, hammer
from tests.service import running

PROCESSES = 8


@pytest.mark.parametrize("seconds", [2.0, pytest.param(20.0, marks=pytest.mark.long)])
def test_no_update_is_lost_and_no_body_has_the_headers_of_another(tmp_path: Path, seconds: float) -> None:
    """The issue: PUTs with version checks and If-Match; every acknowledged one counts, every read is one revision."""
    with running(tmp_path, workers=4, threads=4) as service:
        for document in DOCUMENTS:
            service.put(
                f"app/form/data/{document}/data.xml",
                body_of(0, "start"),
                Form_Definition_Version=1,
                Workflow_Stage="0 start",
            )
        with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
            least = int(50 * seconds) // PROCESSES + 1
            hammers = [
                pool.submit(hammer, service.port, each, seconds, tmp_path / "over", least) for each in range(PROCESSES)
            ]
            outcomes = [each.result() for each in hammers]
        assert [violation for outcome in outcomes for violation in outcome.violations] == []
        for document in DOCUMENTS:
            path = f"app/form/data/{document}/data.xml"
            acknowledged = sum(outcome.increments[document] for outcome in outcomes)
            assert service.get(path)["Svc-Workflow-Stage"].split()[0] == str(acknowledged)  # type: ignore[union-attr]
            instants = [instant for outcome in outcomes for instant in outcome.instants[document]]
            assert len(set(instants)) == acknowledged
            for instant in instants[:20]:
                assert service.get(f"{path}?last-modified-time={instant}").status == 200
        assert sum(outcome.refused for outcome in outcomes) > 0
        assert sum(outcome.reads for outcome in outcomes) > 50 * seconds
        assert service.leftovers() == []


def test_deleting_all_data_among_writers(tmp_path: Path) -> None:
    """The issue: safe against concurrent writers: every document ends deleted, or saved after its deletion."""
    with running(tmp_path, workers=2, threads=4) as service:
        paths = [f"app/form/data/D{number}/data.xml" for number in range(40)]
        for path in paths:
            service.put(path, Form_Definition_Version=1)
        stop = threading.Event()
        failures: list[int] = []

        def save() -> None:
            while not stop.is_set():
                for path in paths:
                    status = service.put(path, b"<again/>", Form_Definition_Version=1).status
                    if status not in (201, 204):
                        failures.append(status)

        writer = threading.Thread(target=save)
        writer.start()
        statuses = [service.delete("app/form/data/").status for _ in range(4)]
        stop.set()
        writer.join()
        assert (statuses, failures) == ([200] * 4, [])
        assert service.delete("app/form/data/").status == 200
        assert {service.get(path).status for path in paths} == {404}
        assert {service.put(path, Form_Definition_Version=1).status for path in paths} == {201}
        assert service.leftovers() == []
