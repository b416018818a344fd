"""What lies in the tree after a kill that should not be there for good: looked at without the service's own code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

_HISTORY = ".history"
_SIDECAR = ".json"
_OWN = (".spool", ".trash")


def left(data: Path, form: str, *, but_leases: bool = False) -> list[str]:
    """Everything below a form that a whole write does not leave, and everything in the store's own directories.

    What a killed LOCK leaves is in nobody's way, and the next one replaces it: ``check --repair`` removes it only when
    it is so old that nobody can be at work on it (``but_leases``).
    """
    found = [str(path) for name in _OWN for path in (data / name).iterdir()]
    if not but_leases:
        found += _left_of_a_lease(lease(data, form.partition("/")[0]))
    for directory in (data / form).glob("*/**/"):
        if directory.parent != data / form:  # a collection may be empty
            found += _left_in(directory)
    return sorted(text.replace(f"{data}/", "") for text in found)


def lease(data: Path, document: str) -> Path:
    """The file of a document's lease."""
    digest = hashlib.sha256(document.encode()).hexdigest()
    return data / ".leases" / digest[:2] / digest


def _left_of_a_lease(path: Path) -> Iterator[str]:
    for each in path.parent.glob(f"{path.name}*"):
        if each != path:
            yield f"{each} is temporary"
        elif json.loads(each.read_bytes()).get("document") is None:
            yield f"{each} is no lease"


def _left_in(directory: Path) -> Iterator[str]:
    entries = {path.name: path for path in directory.iterdir()}
    if not entries:
        yield f"{directory} is empty"
    for name, path in entries.items():
        if path.is_dir():
            if name.startswith(".") and name != _HISTORY:
                yield f"{path} is a directory of no known use"
        elif name.startswith(".") or "~" in name:
            yield f"{path} is temporary"
        elif not name.endswith(_SIDECAR):
            if f"{name}{_SIDECAR}" not in entries:
                yield f"{path} has no sidecar"
        else:
            yield from _of_sidecar(path, path.with_name(name.removesuffix(_SIDECAR)))


def _of_sidecar(path: Path, content: Path) -> Iterator[str]:
    sidecar = json.loads(path.read_bytes())
    if sidecar.get("deleted"):
        if content.exists():
            yield f"{content} is deleted and there"
        if path.parents[1].name == "draft":
            yield f"{path} is a tombstone of a draft"
    elif not content.exists():
        yield f"{content} is missing"
    elif sidecar["digest"] != f"sha256:{hashlib.sha256(content.read_bytes()).hexdigest()}":
        yield f"{content} is not what its sidecar describes"
