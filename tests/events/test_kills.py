"""Kills at system calls of a save: every commit has its event afterwards, in order, and nothing else has one."""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from tests import rig_service
from tests.rigs import strikes
from tests.rigs.strikes import Injector
from tests.service import V1, Answer, Service, running

_CALLS = ("fsync", "link", "linkat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "pwrite64", "sendto")
_SETTINGS = """
events = true
administrators = ["trusted"]
"svc.persistence.proxy.disable-version-history.short.*" = true
"""
_RECOVERED = 40.0
Ask = Callable[[Service, str], Answer]


def _path(document: str) -> str:
    return f"{document}/data/D/data.xml"


def _save(service: Service, document: str) -> Answer:
    return service.put(_path(document), b"<d/>", **V1)


def _delete(service: Service, document: str) -> Answer:
    return service.delete(_path(document))


def _instants(service: Service, document: str) -> list[str]:
    """The instants of all revisions that are on disk, oldest first."""
    folder = service.data / document / "data/D"
    found = [folder / "data.xml.json", *folder.glob(".history/*.data.xml.json")]
    return sorted({json.loads(each.read_bytes())["modified"] for each in found if each.exists()})


def _events(service: Service) -> dict[str, list[str]]:
    """The timestamps of the events of each form, in their order."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    cursor, has_more = "start", True
    while has_more:
        page = json.loads(service.call("GET", f"changes?since={cursor}&limit=1000").body)
        cursor, has_more = page["next"], page["has_more"]
        for each in page["changes"]:
            found[f"{each['data']['app']}/{each['data']['form']}"].append(each["timestamp"])
    return found


@contextmanager
def _serving(directory: Path) -> Iterator[Service]:
    file = directory / "settings.toml"
    file.write_text(_SETTINGS)
    module, env = rig_service.__name__, rig_service.ENVIRONMENT
    with running(directory, workers=1, threads=1, module=module, env=env, options=("--config", str(file))) as service:
        yield service


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(("app", "is_written_again"), [("long", False), ("short", True)])
def test_a_kill_costs_no_event(tmp_path: Path, step: int, app: str, *, is_written_again: bool) -> None:
    """In ``short`` no history is kept: the next save replaces the revision that the killed one has committed."""
    strikes.require(tmp_path)
    expected: dict[str, set[str]] = {}
    late, numbers = 0, count()

    with _serving(tmp_path) as service:
        injector = Injector(service, tmp_path)

        def fresh(saves: int) -> str:
            document = f"{app}/form{next(numbers)}"
            service.get(_path(document))  # the worker has its thread from the first request on
            expected[document] = {_save(service, document).instant for _ in range(saves)}
            return document

        for saves, ask in ((0, _save), (1, _save), (2, _delete)):
            points = injector.points(partial(ask, service, undisturbed := fresh(saves)), _CALLS)
            expected.pop(undisturbed)
            for point in points[::step]:
                document = fresh(saves)
                injector.strike(point, "signal=KILL", partial(ask, service, document))
                expected[document] |= set(_instants(service, document))
                late += len(expected[document]) > len(_events(service)[document])
                if is_written_again:
                    assert _save(service, document).status in (201, 204)
                    expected[document] |= set(_instants(service, document))
        ends = time.monotonic() + _RECOVERED
        while wrong := {
            name: (sorted(instants), found)
            for name, instants in expected.items()
            if (found := _events(service)[name]) != sorted(instants)
        }:
            assert time.monotonic() < ends, wrong
            time.sleep(0.5)
    assert late > 0, "no kill was between a commit and its event"
