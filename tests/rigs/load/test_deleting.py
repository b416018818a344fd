"""A DELETE of all data among those who save."""

import threading
from pathlib import Path

from tests.service import running


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
