"""Defects, planted in what was recorded: the same request with one protection taken away.

They prove the rig. A search that does not find them would not find a real one either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.crash.operations import Linked, Operation, Removed, Renamed, Synced
from tests.crash.runs import Request

Operations = tuple[Operation, ...]
_Chosen = Callable[[Operation], bool]

_COLLECTION = "app/form/data"
_DIRECTORY = f"{_COLLECTION}/document"
_PREPARED = f"{_DIRECTORY}/.data.xml.json"
_HISTORY = f"{_DIRECTORY}/.history"
_CONTENT = f"{_DIRECTORY}/data.xml"


def _fsync_of(path: str | None) -> _Chosen:
    return lambda operation: isinstance(operation, Synced) and operation.path == path


def _commit(operation: Operation) -> bool:
    return isinstance(operation, Renamed) and operation.source == _PREPARED


def _placing(operation: Operation) -> bool:
    """Whether this takes the old content from its name: only the history has it then."""
    if isinstance(operation, Removed):
        return operation.path == _CONTENT
    return isinstance(operation, Renamed) and operation.target == _CONTENT


def _keeping(operation: Operation) -> bool:
    return isinstance(operation, Linked) and operation.target.startswith(f"{_HISTORY}/")


def _find(operations: Operations, chosen: _Chosen) -> int:
    return next(number for number, operation in enumerate(operations) if chosen(operation))


def _find_last(operations: Operations, chosen: _Chosen) -> int:
    return max(number for number, operation in enumerate(operations) if chosen(operation))


def _without(operations: Operations, chosen: _Chosen) -> Operations:
    return tuple(operation for operation in operations if not chosen(operation))


def _with_moved(operations: Operations, chosen: _Chosen, before: _Chosen) -> Operations:
    """The chosen operation done earlier, just before the first of some others."""
    moved = operations[_find(operations, chosen)]
    rest = _without(operations, chosen)
    number = _find(rest, before)
    return (*rest[:number], moved, *rest[number:])


def _content_not_synced(operations: Operations) -> Operations:
    return _without(operations, _fsync_of(None))


def _sidecar_not_synced(operations: Operations) -> Operations:
    return _without(operations, _fsync_of(_PREPARED))


def _history_not_synced(operations: Operations) -> Operations:
    return _without(operations, _fsync_of(_HISTORY))


def _history_not_kept(operations: Operations) -> Operations:
    return _without(operations, _keeping)


def _parent_not_synced(operations: Operations) -> Operations:
    return _without(operations, _fsync_of(_COLLECTION))


def _commit_not_synced(operations: Operations) -> Operations:
    """Without the directory's fsyncs from the commit on."""
    commit = _find(operations, _commit)
    return operations[:commit] + _without(operations[commit:], _fsync_of(_DIRECTORY))


def _names_not_synced(operations: Operations) -> Operations:
    """Without the directory's last fsync before the commit."""
    last = _find_last(operations[: _find(operations, _commit)], _fsync_of(_DIRECTORY))
    return operations[:last] + operations[last + 1 :]


def _commit_before_names(operations: Operations) -> Operations:
    return _with_moved(operations, _commit, before=_fsync_of(_DIRECTORY))


def _commit_before_content(operations: Operations) -> Operations:
    return _with_moved(operations, _commit, before=_fsync_of(None))


def _content_before_commit(operations: Operations) -> Operations:
    return _with_moved(operations, _placing, before=_commit)


def _commit_not_awaited(operations: Operations) -> Operations:
    """The old content is taken away right after the commit, which is not durable yet."""
    after = _find(operations, _commit) + 1
    placing = operations[_find(operations, _placing)]
    return (*operations[:after], placing, *_without(operations[after:], _placing))


@dataclass(frozen=True, slots=True)
class Defect:
    """A protection taken away from one request, and whether it is missed even where names change in order."""

    name: str
    plant: Callable[[Operations], Operations]
    request: Request
    ordered: bool

    def __str__(self) -> str:
        return f"{self.name}, {self.request.value}, {'ordered' if self.ordered else 'unordered'}"


_PUTS = (Request.CREATE, Request.REPLACE)
_OVER = (Request.REPLACE, Request.DELETE)
_ALL = (Request.CREATE, Request.REPLACE, Request.DELETE)
_BOTH = (True, False)
_UNORDERED = (False,)

_CATALOGUE: tuple[
    tuple[str, Callable[[Operations], Operations], tuple[Request, ...], tuple[bool, ...]],
    ...,
] = (
    ("content not synced", _content_not_synced, _PUTS, _BOTH),
    ("sidecar not synced", _sidecar_not_synced, _ALL, _BOTH),
    ("commit not synced", _commit_not_synced, _ALL, _BOTH),
    ("commit before the content's fsync", _commit_before_content, _PUTS, _BOTH),
    ("content replaced before the commit", _content_before_commit, _OVER, _BOTH),
    ("content replaced before the commit is durable", _commit_not_awaited, _OVER, _UNORDERED),
    ("revision not kept", _history_not_kept, _OVER, _BOTH),
    ("names not synced before the commit", _names_not_synced, _PUTS, _UNORDERED),
    ("commit before the names' fsync", _commit_before_names, _PUTS, _UNORDERED),
    ("history not synced", _history_not_synced, _OVER, _UNORDERED),
    ("parent of a new directory not synced", _parent_not_synced, (Request.CREATE,), _UNORDERED),
)

DEFECTS = tuple(
    Defect(name, plant, request, ordered)
    for name, plant, requests, models in _CATALOGUE
    for request in requests
    for ordered in models
)
