"""The quarantine: where a repair puts what it takes out of the way, under the path it had, with the reason.

Nothing in it is ever read or removed by the service.
"""

from __future__ import annotations

import os

import msgspec

from persistence.maintenance.findings import Finding
from persistence.model.instants import next_after
from persistence.storage import directories, files
from persistence.storage.layout import QUARANTINE, file_name

_REASONS = "reasons.jsonl"


class Quarantine:
    """One run's directory in the quarantine of a root; it is made when something comes in."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._directory = f"{root}/{QUARANTINE}/{file_name(next_after(None))}"

    def move(self, path: str, finding: Finding) -> None:
        """Move a file or directory in; raises ``OSError``."""
        self._note(finding, files.move_away(path, self._inside(path)))

    def keep(self, path: str, finding: Finding) -> None:
        """Keep a file here too, before something else takes its name; raises ``OSError``."""
        target = self._inside(path)
        directories.ensure(os.path.dirname(target))
        files.keep_as(path, target)
        directories.sync(os.path.dirname(target))
        self._note(finding, target)

    def _inside(self, path: str) -> str:
        inside = os.path.relpath(path, self._root)
        if inside.split(os.sep)[0] == _REASONS:  # an application, which would take the name of the file below
            inside = f"%{inside}"
        return f"{self._directory}/{inside}"

    def _note(self, finding: Finding, target: str) -> None:
        note = {
            "kind": finding.kind.label,
            "what": finding.what,
            "was": os.path.relpath(finding.path, self._root),
            "is": os.path.relpath(target, self._root),
        }
        files.append(f"{self._directory}/{_REASONS}", msgspec.json.encode(note) + b"\n")
