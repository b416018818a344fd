"""Defects, planted in what was recorded: the same request with one protection taken away.

They prove the rig. A search that does not find them would not find a real one either.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable
from dataclasses import dataclass

from persistence.storage.layout import TRASH
from tests.rigs.crash.model import Operation
from tests.rigs.scenarios import ATTACH_OVER, CREATE, DELETE_DATA, FIRST_REPLACE, PROMOTE, PUBLISH_SECOND, Scenario

RECORDED = (CREATE, FIRST_REPLACE, PROMOTE, DELETE_DATA, PUBLISH_SECOND, ATTACH_OVER)
"""The requests whose crashes are searched."""

FORM = "app/form"

Operations = tuple[Operation, ...]
_Chosen = Callable[[Operation], bool]

_DRAFTS = f"{FORM}/draft"
_DRAFT = f"{_DRAFTS}/document"


class _Paths:
    def __init__(self, scenario: Scenario) -> None:
        path = scenario.step.path
        below = "form/2/form.xhtml" if path.startswith("form/") else path
        self.directory, name = os.path.split(f"{FORM}/{below}")
        self.parent = os.path.dirname(self.directory)
        self.next_sidecar = f"{self.directory}/.{name}.json"
        self.history = f"{self.directory}/.history"
        self._content = f"{self.directory}/{name}"

    def is_commit(self, operation: Operation) -> bool:
        return operation.kind == "rename" and operation.source == self.next_sidecar

    def is_placing(self, operation: Operation) -> bool:
        """Whether this takes the old content from its name: only the history has it then."""
        return operation.kind in {"remove", "rename"} and operation.path == self._content

    def is_keeping(self, operation: Operation) -> bool:
        return operation.kind == "link" and operation.path.startswith(f"{self.history}/")


_Remove = Callable[[Operations, _Paths], Operations]


def _fsync_of(path: str | None) -> _Chosen:
    return lambda operation: operation.kind == "sync" and operation.path == path


def _discarding(operation: Operation) -> bool:
    return operation.kind == "rename" and operation.source == _DRAFT


def _find(operations: Operations, chosen: _Chosen) -> int:
    return next(number for number, operation in enumerate(operations) if chosen(operation))


def _without(operations: Operations, chosen: _Chosen) -> Operations:
    return tuple(operation for operation in operations if not chosen(operation))


def _with_moved(operations: Operations, chosen: _Chosen, before: _Chosen) -> Operations:
    moved = operations[_find(operations, chosen)]
    rest = _without(operations, chosen)
    number = _find(rest, before)
    return (*rest[:number], moved, *rest[number:])


def _committed_before(what: Callable[[_Paths], _Chosen]) -> _Remove:
    return lambda done, paths: _with_moved(done, paths.is_commit, before=what(paths))


def _commit_not_synced(operations: Operations, paths: _Paths) -> Operations:
    commit = _find(operations, paths.is_commit)
    return operations[:commit] + _without(operations[commit:], _fsync_of(paths.directory))


def _names_not_synced(operations: Operations, paths: _Paths) -> Operations:
    commit, is_fsync = _find(operations, paths.is_commit), _fsync_of(paths.directory)
    last = max(number for number, operation in enumerate(operations[:commit]) if is_fsync(operation))
    return operations[:last] + operations[last + 1 :]


def _commit_not_awaited(operations: Operations, paths: _Paths) -> Operations:
    """The old content is taken away right after the commit, which is not durable yet."""
    after = _find(operations, paths.is_commit) + 1
    placing = operations[_find(operations, paths.is_placing)]
    return (*operations[:after], placing, *_without(operations[after:], paths.is_placing))


def _draft_in_pieces(operations: Operations, _: _Paths) -> Operations:
    """The draft is removed file by file where it is, not taken away whole."""
    return tuple(
        operation._replace(path="/".join((_DRAFT, *operation.path.split("/")[2:])))
        if operation.kind in {"open", "remove"} and operation.path.startswith(f"{TRASH}/")
        else operation
        for operation in _without(operations, _discarding)
    )


@dataclass(frozen=True, slots=True)
class Defect:
    """A protection taken away from one request, and whether it is missed even where names change in order."""

    name: str
    remove: _Remove
    request: Scenario
    ordered: bool

    def planted(self, operations: Operations) -> Operations:
        return self.remove(operations, _Paths(self.request))

    def __str__(self) -> str:
        return f"{self.name}, {self.request.name}, {'ordered' if self.ordered else 'unordered'}"


_NEW = (CREATE, PUBLISH_SECOND)
_PUTS = (*_NEW, FIRST_REPLACE, ATTACH_OVER)
_OVER = (FIRST_REPLACE, DELETE_DATA, ATTACH_OVER)
_ALL = (*_PUTS, DELETE_DATA)
_SAVING = (PROMOTE,)
_BOTH = (True, False)
_UNORDERED = (False,)

_CATALOGUE: tuple[tuple[str, _Remove, tuple[Scenario, ...], tuple[bool, ...]], ...] = (
    ("content not synced", lambda done, _: _without(done, _fsync_of(None)), _PUTS, _BOTH),
    ("sidecar not synced", lambda done, paths: _without(done, _fsync_of(paths.next_sidecar)), _ALL, _BOTH),
    ("commit not synced", _commit_not_synced, _ALL, _BOTH),
    ("commit before the content's fsync", _committed_before(lambda _: _fsync_of(None)), _PUTS, _BOTH),
    (
        "content replaced before the commit",
        lambda done, paths: _with_moved(done, paths.is_placing, before=paths.is_commit),
        _OVER,
        _BOTH,
    ),
    ("content replaced before the commit is durable", _commit_not_awaited, _OVER, _UNORDERED),
    ("revision not kept", lambda done, paths: _without(done, paths.is_keeping), _OVER, _BOTH),
    ("names not synced before the commit", _names_not_synced, _PUTS, _UNORDERED),
    ("commit before the names' fsync", _committed_before(lambda paths: _fsync_of(paths.directory)), _PUTS, _UNORDERED),
    ("history not synced", lambda done, paths: _without(done, _fsync_of(paths.history)), _OVER, _UNORDERED),
    (
        "parent of a new directory not synced",
        lambda done, paths: _without(done, _fsync_of(paths.parent)),
        _NEW,
        _UNORDERED,
    ),
    (
        "draft gone before the commit",
        lambda done, paths: _with_moved(done, _discarding, before=paths.is_commit),
        _SAVING,
        _BOTH,
    ),
    ("draft removed file by file", _draft_in_pieces, _SAVING, _BOTH),
    ("draft's end not synced", lambda done, _: _without(done, _fsync_of(_DRAFTS)), _SAVING, _BOTH),
)

DEFECTS = tuple(
    Defect(name, remove, request, ordered)
    for name, remove, requests, models in _CATALOGUE
    for request in requests
    for ordered in models
)
