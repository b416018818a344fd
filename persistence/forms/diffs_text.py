"""Differences between revisions as lines, for people, and as JSON, for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from persistence.forms.data_tree import HeldValue
from persistence.forms.diffs import Difference, DiffKind
from persistence.forms.diffs_xml import shortened

_WORDS: Mapping[DiffKind, str] = {
    DiffKind.ITERATION_ADDED: "added",
    DiffKind.ITERATION_REMOVED: "removed",
    DiffKind.ELEMENT_ADDED: "added",
    DiffKind.ELEMENT_REMOVED: "removed",
}


def as_line(each: Difference, language: str | None = None, truncation: int | None = None) -> str:
    """Return a difference as one line; its values are quoted, with at most ``truncation`` characters."""
    label = _label(each, language)
    return f"{_place(each)}{f' ({label})' if label else ''}: {_change(each, truncation)}"


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A difference as a row: its place, and the older and newer text, which may be empty."""

    place: str
    label: str
    older: str
    newer: str


def as_row(each: Difference, language: str | None = None, truncation: int | None = None) -> DiffRow:
    """Return a difference as a row; its values have at most ``truncation`` characters."""
    place, label = _place(each), "" if each.node is None or each.node.label is None else each.node.label.text(language)
    if each.kind is DiffKind.VALUE_CHANGED:
        return DiffRow(place, label, _plain(each.older, truncation), _plain(each.newer, truncation))
    change, word = _change(each, truncation), _WORDS.get(each.kind)
    return DiffRow(place, label, "" if word == "added" else change, "" if word == "removed" else change)


def _plain(value: HeldValue, truncation: int | None) -> str:
    if value.is_encrypted:
        return "encrypted"
    name = dict(value.attributes).get("filename")
    return shortened(value.text if name is None else name, truncation)


def as_json(each: Difference, language: str | None = None, truncation: int | None = None) -> str:
    """Return a difference as an object, without unknown fields."""
    is_value = each.kind is DiffKind.VALUE_CHANGED
    values = {
        "type": each.kind.value,
        "name": None if each.node is None else each.node.name,
        "label": _label(each, language),
        "place": _place(each) if each.node is not None else None,
        "count": len(each.iterations),
        "from": _object(each.older, truncation) if is_value else None,
        "to": _object(each.newer, truncation) if is_value else None,
    }
    return msgspec.json.encode({name: value for name, value in values.items() if value}).decode()


def _place(each: Difference) -> str:
    names = [name if position == 0 else f"{name}[{position + 1}]" for name, position in each.place]
    own = [each.node.name] if each.node is not None and each.iterations else []
    return "/".join(names + own) or "elsewhere"


def _change(each: Difference, truncation: int | None) -> str:
    if each.kind is DiffKind.VALUE_CHANGED:
        return f"{_value_text(each.older, truncation)} -> {_value_text(each.newer, truncation)}"
    if each.iterations:
        count, numbers = len(each.iterations), ", ".join(str(position + 1) for position in each.iterations)
        return f"{count} iteration{'' if count == 1 else 's'} {_WORDS[each.kind]}: {numbers}"
    return _WORDS.get(each.kind, "something differs")


def _value_text(value: HeldValue, truncation: int | None) -> str:
    if value.is_encrypted:
        return "encrypted"
    held = [f"{name}={shortened(text, truncation)}" for name, text in value.attributes]
    return " ".join([repr(shortened(value.text, truncation)), *held])


def _label(each: Difference, language: str | None) -> str:
    label = None if each.node is None else each.node.label
    return "" if label is None else label.in_language(language)


def _object(value: HeldValue, truncation: int | None) -> dict[str, object]:
    if value.is_encrypted:
        return {"encrypted": True}
    return {"text": shortened(value.text, truncation), **dict(value.attributes)}
