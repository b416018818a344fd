"""What of a form's data is indexed (spec search 2.2 to 2.4)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """An element on the way to a value: its local name, its namespace and, if one is given, its ``id``.

    An empty ``name`` stands for any element.
    """

    name: str
    namespace: str = ""
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """An indexed control: its path, exactly as requests send it, and the steps from the root element of the data."""

    path: str
    steps: tuple[Step, ...]
