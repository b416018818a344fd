"""The look at what a kill has left sees what it is there for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rigs import aftermath
from tests.rigs.scenarios import NEW, OLD, PROMOTE, Resource
from tests.rigs.views import Comparison, View, Views

_FORM = "app/form"


def _store(directory: Path, name: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(OLD)
    sidecar = {"digest": f"sha256:{hashlib.sha256(OLD).hexdigest()}"}
    (directory / f"{name}.json").write_text(json.dumps(sidecar))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (".spool", ".trash"):
        (tmp_path / name).mkdir()
    document = tmp_path / _FORM / "data" / "document"
    _store(document, "data.xml")
    _store(document / ".history", "2026-03-04T05-06-07.089Z.data.xml")
    _store(tmp_path / _FORM / "draft" / "document", "data.xml")
    assert aftermath.left(tmp_path, _FORM) == []
    return tmp_path


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (lambda data: (data / ".trash/1").mkdir(), ".trash/1"),
        (lambda data: (data / ".spool/1").touch(), ".spool/1"),
        (lambda data: (data / "app/form/data/other").mkdir(), "data/other is empty"),
        (lambda data: (data / "app/form/data/document/.data.xml.json").touch(), ".data.xml.json is temporary"),
        (lambda data: (data / "app/form/data/document/scan.bin").touch(), "scan.bin has no sidecar"),
        (lambda data: (data / "app/form/data/document/data.xml").unlink(), "data.xml is missing"),
        (lambda data: (data / "app/form/data/document/data.xml").write_bytes(NEW), "not what its sidecar describes"),
        (
            lambda data: (data / "app/form/data/document/data.xml.json").write_text('{"deleted": true}'),
            "data.xml is deleted and there",
        ),
        (lambda data: (data / "app/form/draft/document/data.xml.json").write_text('{"deleted": true}'), "tombstone"),
        (
            lambda data: (data / "app/form/data/document/.history/2026-03-04T05-06-07.089Z.data.xml").unlink(),
            "data.xml is missing",
        ),
    ],
)
def test_leftovers_are_seen(tree: Path, plant: Callable[[Path], None], expected: str) -> None:
    plant(tree)
    assert any(expected in text for text in aftermath.left(tree, _FORM))


def _view(content: bytes | None, instant: str, etag: str) -> View:
    if content is None:
        return View(404, b"nothing\n", {})
    date = "Wed, 04 Mar 2026 05:06:07 GMT"
    own = {"etag": f'"{etag * 40}"', "svc-last-modified": instant, "last-modified": date}
    own |= {"svc-created": "2026-03-04T05:06:07.089Z", "created": date, "svc-form-definition-version": "1"}
    return View(200, content, own)


def _views(resources: tuple[Resource, ...], *, new: set[str], instant: str, etag: str) -> dict[Resource, View]:
    return {one: _view(one.after if one.path in new else one.before, instant, etag) for one in resources}


_RESOURCES = tuple(PROMOTE.resources)
_ALL = {one.path for one in _RESOURCES}
_DATA, *_DRAFT = _RESOURCES
_BEFORE = _views(_RESOURCES, new=set(), instant="2026-03-04T05:06:07.089Z", etag="a")
_AFTER = _views(_RESOURCES, new=_ALL, instant="2026-03-04T05:06:07.090Z", etag="b")


def _faults(found: Views) -> list[str]:
    return list(Comparison(_BEFORE, found, _AFTER).faults(PROMOTE))


def test_whole_states_are_right() -> None:
    assert _faults(_BEFORE) == _faults(_AFTER) == _faults({**_BEFORE, _DATA: _AFTER[_DATA]}) == []


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({**_AFTER, _DATA: _BEFORE[_DATA]}, "has changed before"),
        ({**_AFTER, _DRAFT[1]: _BEFORE[_DRAFT[1]]}, "only a part of"),
        ({**_AFTER, _DATA: replace(_BEFORE[_DATA], body=NEW)}, "the entity tag"),
        ({**_AFTER, _DATA: replace(_AFTER[_DATA], headers=_BEFORE[_DATA].headers)}, "is not younger"),
        ({**_BEFORE, _DATA: replace(_AFTER[_DATA], body=OLD)}, "neither old nor new"),
        ({**_BEFORE, _DATA: replace(_BEFORE[_DATA], body=NEW[:200])}, "neither old nor new"),
        ({**_BEFORE, _DATA: View(500, b"damaged\n", {})}, "neither old nor new"),
        (
            {**_AFTER, _DATA: replace(_AFTER[_DATA], headers={**_AFTER[_DATA].headers, "content-length": "1"})},
            "other headers",
        ),
    ],
)
def test_what_is_neither_old_nor_new_is_seen(found: Views, expected: str) -> None:
    assert any(expected in fault for fault in _faults(found))
